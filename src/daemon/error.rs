//! Why the daemon did not start.

use std::fmt;
use std::io;

/// The daemon did not start; the text says what to do.
#[derive(Debug)]
pub struct DaemonError(pub(super) String);

impl fmt::Display for DaemonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DaemonError {}

/// Turns the cause into "cannot `what`: cause".
pub(super) fn cannot(what: impl fmt::Display) -> impl FnOnce(io::Error) -> DaemonError {
    move |cause| DaemonError(format!("cannot {what}: {cause}"))
}
