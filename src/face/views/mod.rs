//! The views of the daemon that people and their programs read: pods, the history of probes, metrics, reports.
//!
//! Invariants: nothing is decided from the data that is kept here. Everything is bounded, and the data of a pod is
//! dropped with the pod.

pub mod columns;
pub mod findings;
pub mod hints;
pub mod human;
pub mod kube_node;
pub mod kube_state;
pub mod kube_workloads;
pub mod lateness;
pub mod log_instance;
mod pods;
pub mod probe_metrics;
pub mod pull_text;
mod records;
mod report;
pub mod workloads;

pub use pods::{Manifest, PodView, Snapshot, SnapshotUpdate};
pub use records::Records;
pub use report::{MAX_SHOWN, ProbeReport};
