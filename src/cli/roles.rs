//! The inner roles. A process of podprobe starts the program again in such a role.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::engine::{nsexec, shims};
use crate::net::proxyd;

/// Runs an inner role. Returns None if the word is not the name of a role. Nothing is set up before this call,
/// because the processes of roles are many and small.
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
