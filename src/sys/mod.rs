//! The only place with `unsafe`: raw system calls that nix does not wrap.
#![allow(unsafe_code)]

pub mod process;
