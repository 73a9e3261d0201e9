//! The inner roles: what this program does when another part of it has started it.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::engine::{nsexec, shims};
use crate::net::proxyd;

/// Runs an inner role, or returns None when the word is not one. Nothing is set up before this,
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
