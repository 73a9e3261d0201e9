//! The sources of pods and their merge (kubelet-probes 6). The sources say which pods should run on this node.
//!
//! Invariants: a source always passes its full set. Only [`merge::PodConfig`] turns sets into operations. An error in a
//! file never ends a running pod. The files [`files`], `known_file` and [`merge`] decide, and use no thread, descriptor
//! or clock. The files [`mod@file`], [`http`] and `last_good` only wait, read, write and send.

mod chosen;
pub mod file;
pub mod files;
pub mod http;
mod known_file;
mod last_good;
pub mod merge;
mod outlet;
mod problem;
mod read;
mod reading;
pub mod states;
mod versions;
pub mod workload_store;
#[cfg(test)]
mod workload_tests;

pub use file::FileSource;
pub use http::HttpSource;
pub use merge::{PodConfig, PodOperation, PodUpdate};
pub use outlet::Outlet;
pub use problem::FileProblem;
pub use reading::{ContentError, Decode, Signature};
pub use states::{FileStates, FiledWorkload, PodFile};
