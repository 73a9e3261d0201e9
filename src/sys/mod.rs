//! The system calls that nix does not wrap. The only module with `unsafe`.
#![allow(unsafe_code)]

pub mod xattr;
