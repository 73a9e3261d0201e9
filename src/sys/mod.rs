//! System calls that need `unsafe`: nothing else in the crate does.
#![allow(unsafe_code)]

pub mod exe;
pub mod process;
pub mod task;
pub mod xattr;
pub mod xattr_images;
