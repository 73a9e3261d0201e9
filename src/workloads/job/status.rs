//! `status` of a v1 Job: the types, in the API's names and JSON form.

use std::time::SystemTime;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::condition::{Condition, ConditionType, JobReason};
use super::state::JobState;
use crate::base::clock::Time;

/// `status` of a Job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobStatus {
    /// Conditions of the Job.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<JobCondition>,
    /// Time at which the Job started or was resumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// Time at which the Job was complete. A failed Job has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// Number of pods that have not ended and are not being deleted. While a back-off runs it is 0, as it is upstream.
    #[serde(skip_serializing_if = "is_zero")]
    pub active: i32,
    /// Number of pods that have succeeded, or of indexes that have.
    #[serde(skip_serializing_if = "is_zero")]
    pub succeeded: i32,
    /// Number of pods that have failed.
    #[serde(skip_serializing_if = "is_zero")]
    pub failed: i32,
    /// Number of pods that are being deleted and have not ended.
    pub terminating: i32,
    /// Indexes that have succeeded, such as `0-2,5`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub completed_indexes: String,
    /// Indexes that have failed; None if failures do not count per index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_indexes: Option<String>,
    /// Number of active pods that are ready.
    pub ready: i32,
}

/// A condition in the status of a Job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobCondition {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub type_: ConditionType,
    /// `True` or `False`.
    pub status: String,
    /// Time at which the condition was looked at last.
    pub last_probe_time: Time,
    /// Time at which the condition changed last.
    pub last_transition_time: Time,
    /// Reason of the condition.
    pub reason: JobReason,
    /// Message for people.
    pub message: String,
}

/// Numbers of pods that are there now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PodNumbers {
    /// Number of active pods.
    pub(super) active: i32,
    /// Number of active pods that are ready.
    pub(super) ready: i32,
    /// Number of pods that are being deleted and have not ended.
    pub(super) terminating: i32,
}

impl JobStatus {
    /// Makes the status from the state and the numbers of pods.
    pub(super) fn new(state: &JobState, pods: PodNumbers) -> Self {
        Self {
            conditions: state.conditions.iter().map(JobCondition::new).collect(),
            start_time: state.start.map(api_time),
            completion_time: state.completion.map(api_time),
            active: pods.active,
            succeeded: state.succeeded,
            failed: state.failed,
            terminating: pods.terminating,
            completed_indexes: state.completed_indexes.to_string(),
            failed_indexes: state.failed_indexes.as_ref().map(ToString::to_string),
            ready: pods.ready,
        }
    }
}

impl JobCondition {
    fn new(condition: &Condition) -> Self {
        let changed = api_time(condition.changed);
        Self {
            type_: condition.type_,
            status: if condition.is_true { "True" } else { "False" }.to_owned(),
            last_probe_time: changed,
            last_transition_time: changed,
            reason: condition.reason,
            message: condition.message.clone(),
        }
    }
}

fn api_time(time: Timestamp) -> Time {
    SystemTime::from(time).into()
}

fn is_zero(number: &i32) -> bool {
    *number == 0
}
