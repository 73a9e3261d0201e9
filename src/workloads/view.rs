//! Workloads as people and programs see them, and the changes that verbs ask for.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::overrides::read_raw;
use super::shown_object::{ShownObject, WorkloadParts};
use super::state::object_hash;
use super::world::Wanted;
use crate::api::raw_object::RawObject;
use crate::api::workload::WorkloadKey;

/// A workload with its status, as the server shows it. ReplicaSets of a Deployment and Jobs of a CronJob are workloads
/// of their own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadView {
    /// The object as an API server gives it: with defaults, overrides, owner references and status.
    pub object: ShownObject,
    /// Path of the file. None for what a controller has made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Hash of the object in the file, as it is in force. A client that has written the file knows by it that the daemon
    /// has read it. None for what a controller has made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_hash: Option<u32>,
    /// Error of the file, if the file has become bad and the last good version goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_error: Option<String>,
    /// Advice about the file and the object, one sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Sentence that says what the workload waits for and since when. None if it waits for nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    /// True if the workload waits for a person, because its controller leaves it as it is.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_held: bool,
    /// The scheduled time after the last one for which a CronJob has started a Job, or after its creation. The time is
    /// in the past if the Job is late. None for other kinds and while the CronJob is suspended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_schedule_time: Option<String>,
    /// Sentences about what verbs have changed against the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<String>,
    /// Revisions that can be gone back to, and the current one, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub revisions: Vec<RevisionView>,
    /// State of the rollout, in kubectl's words. None for kinds without rollouts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutView>,
}

impl WorkloadView {
    /// Returns the view of a workload in a file.
    pub fn of_file(wanted: &Wanted) -> Self {
        let object = WorkloadParts::of(wanted.workload.clone());
        Self {
            object: object.into(),
            file: Some(wanted.file.clone()),
            file_hash: Some(object_hash(&wanted.workload)),
            file_error: wanted.file_error.clone(),
            warnings: wanted.warnings.clone(),
            ..Self::default()
        }
    }
}

/// All workloads, with the version of the list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadList {
    /// Version of the list. A client that asks for a newer list passes it on.
    pub version: u64,
    /// The workloads, sorted by kind, namespace and name.
    pub items: Arc<Vec<WorkloadView>>,
}

impl WorkloadList {
    /// Returns the workloads for a reader of their objects inside of the daemon. What is put together for the reader goes
    /// with the reader.
    pub fn to_read(&self) -> Vec<WorkloadView> {
        Vec::clone(&self.items)
    }
}

/// A revision of a template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RevisionView {
    /// Number of the revision.
    pub revision: i64,
    /// The annotation `kubernetes.io/change-cause`; empty if there is none.
    pub change_cause: String,
    /// The template as it was written.
    #[serde(deserialize_with = "read_raw")]
    pub template: Arc<RawObject>,
}

/// The state of a rollout, as `rollout status` tells it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutView {
    /// kubectl's line about the rollout, without its line end.
    pub text: String,
    /// True if the rollout is complete.
    pub is_done: bool,
    /// The error with which kubectl ends: the deadline was exceeded, or the kind has no rollouts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A change of a workload that a verb asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangeRequest {
    /// The workload.
    pub workload: WorkloadKey,
    /// The change to make.
    pub change: Change,
}

/// A change that a verb makes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Change {
    /// Another number of pods, until the file changes its own.
    Scale {
        /// Number of pods.
        replicas: i32,
        /// Number of pods that there must be before; None means any.
        current_replicas: Option<i32>,
    },
    /// No rollout until the Deployment is resumed.
    Pause,
    /// Rollouts go on.
    Resume,
    /// All pods are replaced.
    Restart,
    /// An earlier revision comes back.
    Undo {
        /// Number of the revision. None means the one before the current one.
        to_revision: Option<i64>,
    },
    /// A version that was rolled back automatically is tried again.
    Retry,
    /// A Job that has ended runs again.
    Rerun,
    /// A Job is made from the template of a CronJob, outside of its schedule.
    CreateJob {
        /// Name of the Job.
        name: String,
    },
    /// A Job that a CronJob has made is removed with its pods.
    DeleteJob {
        /// Name of the Job. The workload of the request is its CronJob.
        name: String,
    },
}

/// The answer to a change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Changed {
    /// kubectl's word for what was done, such as `scaled`, `restarted`, `rolled back` or `skipped rollback (…)`.
    pub done: String,
}

/// Reason why a workload is not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// There is no such workload.
    #[error("{}.{} {name:?} not found", .kind, .group)]
    NotFound {
        /// kubectl's word for the kind, in the plural.
        kind: String,
        /// API group of the kind.
        group: String,
        /// Name of the workload.
        name: String,
    },
    /// The kind of workload or its state does not allow the change.
    #[error("{0}")]
    Refused(String),
    /// The change could not be written to the disk.
    #[error("cannot write the change: {0}; nothing has changed")]
    NotWritten(String),
    /// The controllers do not answer.
    #[error("the controllers do not answer; try again")]
    NoAnswer,
}
