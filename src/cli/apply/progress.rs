//! How far a pod or a workload is that `apply --wait` waits for.

/// The progress of a pod or workload under `--wait`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    NotYet,
    /// The goal is reached. The text is for example `is ready` or `has completed`.
    Done(&'static str),
    /// The goal will never be reached. The text says why.
    Never(String),
}
