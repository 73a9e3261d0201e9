//! Pod sources and their merge (kubelet-probes 6): which pods should run on this node.
//!
//! Invariants: a source always hands over its full set; only [`merge::PodConfig`] turns sets into
//! operations. An error in a file never ends a running pod. [`files`] and [`merge`] decide and know
//! no thread, descriptor or clock; [`mod@file`] and `last_good` only wait, read, write and send.

pub mod file;
pub mod files;
mod last_good;
pub mod merge;
mod problem;
mod read;
pub mod states;

pub use file::FileSource;
pub use merge::{PodConfig, PodOperation, PodUpdate};
pub use problem::FileProblem;
pub use states::{FileStates, PodFile};
