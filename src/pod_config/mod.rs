//! Pod sources and their merge (kubelet-probes 6): which pods should run on this node.
//!
//! Invariants: a source only ever hands over its full set; [`merge::PodConfig`] alone turns sets into operations. What
//! is wrong with a file never costs a running pod. Deciding ([`files`], [`merge`]) knows no thread, descriptor or clock;
//! [`mod@file`] and `last_good` only wait, read, write and send.

pub mod file;
pub mod files;
mod last_good;
pub mod merge;
mod read;
pub mod states;

pub use file::FileSource;
pub use merge::{PodConfig, PodOperation, PodUpdate};
pub use states::{FileProblem, FileStates, PodFile};
