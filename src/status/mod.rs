//! What is known of every pod: phase, conditions, container statuses, and the one snapshot that everything reads.

mod ages;
mod conditions;
mod container_statuses;
mod generate;
mod manager;
mod phase;

pub use ages::Ages;
pub use conditions::containers_ready;
pub use container_statuses::StartFailure;
pub use generate::{Inputs, generate, qos_class};
pub use manager::{StatusManager, finished};

pub use phase::{Facts as PhaseFacts, phase};

pub use crate::pod_config::FileProblem;

use serde::{Deserialize, Serialize};

use crate::api::PodStatus;
use crate::events::Event;
use crate::prober::pauses::PausedProbe;

/// One pod as a person sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodView {
    /// The whole v1 Pod object, defaults and annotations included, with its live status.
    pub object: serde_json::Value,
    /// The same status, typed.
    pub status: PodStatus,
    /// The file the pod comes from.
    pub file: String,
    /// Fields of the file that are not acted on, and other advice; one sentence each.
    pub warnings: Vec<String>,
    /// Set when the file has turned bad and this is its last good version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_error: Option<String>,
    /// The pod is being stopped.
    pub terminating: bool,
    /// Directory of its logs: `<dir>/<container>/<attempt>.log`.
    pub log_dir: String,
    /// Its events, oldest first.
    pub events: Vec<Event>,
    /// Its probes that a person has paused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paused: Vec<PausedProbe>,
}

/// Everything the client verbs show, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// Grows with every change; a watcher asks for the next one after it.
    pub version: u64,
    /// Suffix of every static pod's name.
    pub node_name: String,
    /// Sorted by namespace and name.
    pub pods: Vec<PodView>,
    /// Sorted by file.
    pub problems: Vec<FileProblem>,
    /// The sync loop stands still, so that all this may be old: since when, and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled: Option<String>,
}
