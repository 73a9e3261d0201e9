//! The inner roles: what this program does when another part of it has started it.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::{nsexec, proxy, runtime};

/// Runs an inner role, or returns None when the word is not one. Nothing is set up before this,
/// because these processes are many and small.
pub fn run(word: &str, args: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    match word {
        "shim" => Some(runtime::shims::shim::main(args)),
        "sandbox" => Some(runtime::shims::sandbox::main(args)),
        "oci" => Some(runtime::shims::embedded::main(args)),
        "proxy" => Some(proxy::role::proxy::main(args)),
        "nsexec" => Some(nsexec::helper_main(args)),
        _ => None,
    }
}
