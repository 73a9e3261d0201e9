//! What people and their programs read of the daemon: pods as they are shown, the history of probes, metrics, reports.
//!
//! Invariants: nothing is decided from what is kept here. Everything is bounded, and what belongs to a pod goes with it.

pub mod columns;
pub mod findings;
pub mod hints;
pub mod history;
pub mod human;
pub mod kube_node;
pub mod kube_state;
pub mod lateness;
pub mod log_instance;
mod pods;
pub mod probe_metrics;
pub mod pull_text;
mod records;
mod report;

pub use pods::{Manifest, PodView, Snapshot, SnapshotUpdate};
pub use records::Records;
pub use report::{MAX_SHOWN, ProbeReport};
