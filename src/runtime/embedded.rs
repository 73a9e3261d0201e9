//! The role `podprobe oci`: an OCI runtime command line on the `libcontainer` crate, with runc's verbs and arguments.

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs one verb: `oci [--root DIR] create --bundle B --pid-file P ID | start ID | kill ID SIGNAL |
/// delete [--force] ID | state ID | --version`. `args` begins after the word `oci`.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let _ = args;
    todo!()
}
