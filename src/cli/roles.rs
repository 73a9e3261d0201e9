//! The inner roles: the program plays one of them if another process of podprobe has started it.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::engine::{nsexec, shims};
use crate::net::proxyd;

/// Runs an inner role. Returns None if the word is not the name of one. Nothing is set up before this call,
/// because these processes are many and small.
pub fn run(word: &str, args: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    match word {
        "shim" => Some(shims::shim::main(args)),
        "sandbox" => Some(shims::sandbox::main(args)),
        "oci" => Some(shims::embedded::main(args)),
        "proxy" => Some(proxyd::proxy::main(args)),
        "nsexec" => Some(nsexec::helper_main(args)),
        _ => None,
    }
}
