//! What a Job has written down (workloads 9.3).
//!
//! Invariants: the state is written before the actions that depend on it (workloads 9.1). A step with the old actions
//! undone, done in part or done as a whole leads to the same counts. The state is small: it holds UIDs only of pods
//! that are still there.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::back_off::BackOff;
use super::condition::{Condition, ConditionType};
use super::indexes::Indexes;
use crate::api::PodUid;

/// The state of a Job, which outlives the daemon.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobState {
    /// UID of the Job.
    pub uid: PodUid,
    /// Generation of the spec that was acted on last.
    pub generation: i64,
    /// Time of the first step that was not suspended; None before it, and while the Job is suspended.
    pub start: Option<Timestamp>,
    /// Time at which the Job was complete; None if it is not complete.
    pub completion: Option<Timestamp>,
    /// Number of pods that have succeeded, or of indexes that have.
    pub succeeded: i32,
    /// Number of pods that have failed.
    pub failed: i32,
    /// Indexes that have succeeded.
    pub completed_indexes: Indexes,
    /// Indexes that have failed; None if failures do not count per index.
    pub failed_indexes: Option<Indexes>,
    /// UIDs of pods that are still there and are not to be counted: they are in the counts, or never will be.
    pub settled: BTreeSet<PodUid>,
    /// Deletions that were decided, by the UIDs of their pods, until the pods are gone.
    pub deletions: BTreeMap<PodUid, DeletionReason>,
    /// Back-off of the whole Job.
    pub back_off: BackOff,
    /// Conditions of the Job.
    pub conditions: Vec<Condition>,
    /// True if the Job and its pods were removed after `ttlSecondsAfterFinished`. The state stays as a stub while the
    /// file is there, so that the file does not run again (workloads 6.15).
    pub is_removed: bool,
}

/// The reason why a Job deletes a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeletionReason {
    /// The Job is suspended.
    Suspended,
    /// More pods are active than the Job wants.
    TooMany,
    /// Another pod has the same index.
    RepeatedIndex,
    /// The pod has no index, or one beyond the completions.
    InvalidIndex,
    /// The Job has failed.
    JobFailed,
    /// The Job has succeeded without this pod.
    JobSucceeded,
    /// The Job itself is deleted.
    JobDeleted,
    /// The Job runs once more, and the pod belongs to the run before.
    Rerun,
}

impl JobState {
    /// True if the Job is Complete or Failed. It never runs again, whatever its file says (workloads 8.3).
    pub fn is_finished(&self) -> bool {
        self.finish_time().is_some()
    }

    /// Returns the time at which the Job was Complete or Failed; None before.
    pub fn finish_time(&self) -> Option<Timestamp> {
        let ends = [ConditionType::Complete, ConditionType::Failed];
        let mut conditions = self.conditions.iter();
        let last = conditions.find(|it| it.is_true && ends.contains(&it.type_))?;
        Some(last.changed)
    }

    /// Forgets pods that are gone.
    pub(super) fn keep_only(&mut self, present: &BTreeSet<&PodUid>) {
        self.settled.retain(|uid| present.contains(uid));
        self.deletions.retain(|uid, _| present.contains(uid));
    }
}
