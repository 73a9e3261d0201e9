//! The system calls that nix has no safe wrapper for. The only place with `unsafe`.
#![allow(unsafe_code)]

pub mod terminal;
