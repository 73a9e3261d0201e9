//! Options that select which part of a log to read, named as in `v1.PodLogOptions`.

use std::time::SystemTime;

use super::record::Origin;

/// Options for reading a log: which part to read, and how to write it. The default is the whole log, as the container
/// wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// `tailLines`: the number of lines to read, counted back from the end that the log has when it is opened.
    pub tail_lines: Option<u64>,
    /// Lines that began before this time are left out. If `tail_lines` is set, it is applied first.
    pub since: Option<SystemTime>,
    /// `timestamps`: true if each line begins with its time and a space.
    pub timestamps: bool,
    /// `limitBytes`: the number of bytes after which the output ends, even in the middle of a line.
    pub limit_bytes: Option<u64>,
    /// `stream`: the output streams to read.
    pub stream: LogStream,
}

/// The output streams of a container that are read.
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
    /// Tells whether records of this origin are wanted. A record that is not in CRI's form belongs to no stream, so
    /// only `All` includes it.
    pub(super) fn has(self, origin: Origin) -> bool {
        match self {
            Self::All => true,
            Self::Stdout => origin == Origin::Stdout,
            Self::Stderr => origin == Origin::Stderr,
        }
    }
}
