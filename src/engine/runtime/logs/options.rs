//! What of a log is wanted, in the words of `v1.PodLogOptions`.

use std::time::SystemTime;

use super::record::Origin;

/// Which part of a log to read, and how to write it. The default is all of it, as the container wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// At most so many of the lines that the log has when it is opened, the newest.
    pub tail_lines: Option<u64>,
    /// Of these, no line that began before.
    pub since: Option<SystemTime>,
    /// Each line begins with its time and a space.
    pub timestamps: bool,
    /// The log ends after so many written bytes, also in the middle of a line.
    pub limit_bytes: Option<u64>,
    /// Which stream.
    pub stream: LogStream,
}

/// What a container writes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogStream {
    /// Both, in the order of the log.
    #[default]
    All,
    /// stdout only.
    Stdout,
    /// stderr only.
    Stderr,
}

impl LogStream {
    /// What is not in CRI's form belongs to no stream, and is shown with all.
    pub(super) fn has(self, origin: Origin) -> bool {
        match self {
            Self::All => true,
            Self::Stdout => origin == Origin::Stdout,
            Self::Stderr => origin == Origin::Stderr,
        }
    }
}
