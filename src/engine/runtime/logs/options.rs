//! What of a log is wanted, in the words of `v1.PodLogOptions`.

use std::time::SystemTime;

use super::record::Origin;

/// Which part of a log to read, and how to write it. The default is all of it, as the container wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// `tailLines`: start with the last N lines that the log has when it is opened.
    pub tail_lines: Option<u64>,
    /// Start time: of the lines that `tail_lines` selects, leave out those that began before it.
    pub since: Option<SystemTime>,
    /// `timestamps`: begin each line with its time and a space.
    pub timestamps: bool,
    /// `limitBytes`: end after N written bytes, even in the middle of a line.
    pub limit_bytes: Option<u64>,
    /// `stream`: the output streams whose lines are wanted.
    pub stream: LogStream,
}

/// The output streams of a container whose lines are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogStream {
    /// Both streams, in the order of the log.
    #[default]
    All,
    /// stdout only.
    Stdout,
    /// stderr only.
    Stderr,
}

impl LogStream {
    /// Tells whether lines of this origin are wanted. A line that is not in CRI's form belongs to no stream: only `All`
    /// includes it.
    pub(super) fn has(self, origin: Origin) -> bool {
        match self {
            Self::All => true,
            Self::Stdout => origin == Origin::Stdout,
            Self::Stderr => origin == Origin::Stderr,
        }
    }
}
