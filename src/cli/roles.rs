//! The inner roles: what this program is when another part of it has started it.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::{nsexec, runtime};

/// Runs an inner role, or gives None when the word is none. These processes are many and small: nothing is set up for
/// them before this.
pub fn run(word: &str, args: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    match word {
        "shim" => Some(runtime::shims::shim::main(args)),
        "sandbox" => Some(runtime::shims::sandbox::main(args)),
        #[cfg(feature = "embedded")]
        "oci" => Some(runtime::shims::embedded::main(args)),
        "nsexec" => Some(nsexec::helper_main(args)),
        _ => None,
    }
}
