//! The state of a Deployment, which is kept on the disk (workloads 9.2).
//!
//! Invariants: pure. Sets are in the order of their creation, and no two have the same name.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::status::{
    DeploymentCondition, DeploymentStatus, HISTORY_LOST, PROGRESSING, ROLLED_BACK,
};
use crate::api::raw_object::RawObject;
use crate::workloads::overrides::{Overrides, VerbError, read_raw};
use crate::workloads::replica_set::ReplacementDelays;
use crate::workloads::revisions::{last_revision, max_revision};

/// The state of a Deployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploymentState {
    /// All sets of the Deployment, the oldest first.
    pub sets: Vec<SetRecord>,
    /// Status after the last step. Progress is a difference to it.
    pub status: DeploymentStatus,
    /// Revision number of the Deployment: its annotation `deployment.kubernetes.io/revision`.
    pub revision: i64,
    /// Overrides of the file by verbs, and by a rollback that the controller began by itself.
    pub overrides: Overrides,
    /// Name of the newest set that was complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_complete: Option<String>,
    /// Name of the set that the condition Progressing is about: the new set of the last step that had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rollout_of: Option<String>,
    /// Time up to which pulls of the new set's images, and times without pods on the node, are left out of the progress
    /// deadline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pull: Option<PullClock>,
    /// Value of the rollback annotation that was obeyed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) obeyed_rollback: Option<String>,
}

/// A set of a Deployment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetRecord {
    /// Name of the set: the Deployment's name and the hash.
    pub name: String,
    /// Value of the label `pod-template-hash` of the set's pods.
    pub hash: String,
    /// Revision number; 0 if the set has none.
    #[serde(default)]
    pub revision: i64,
    /// Earlier revision numbers, separated by commas.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub history: String,
    /// Template of the set's pods, as it was written.
    #[serde(deserialize_with = "read_raw")]
    pub template: Arc<RawObject>,
    /// Number of pods that the set should have.
    pub size: i32,
    /// Replicas of the Deployment when the set was last scaled (annotation `desired-replicas`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired: Option<i32>,
    /// Replicas and surge of the Deployment when the set was last scaled (annotation `max-replicas`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<i32>,
    /// Time in seconds for which a pod of the set must be ready before it counts as available.
    #[serde(default)]
    pub min_ready_seconds: i32,
    /// Annotations that the set has from the Deployment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Time at which the set was made.
    pub created: Timestamp,
    /// Delays before pods that ended by themselves are replaced. [`crate::workloads::replica_set::plan`] returns them.
    #[serde(default)]
    pub delays: ReplacementDelays,
}

impl SetRecord {
    /// Returns the time for which a pod of the set must be ready before it counts as available.
    pub fn min_ready(&self) -> std::time::Duration {
        std::time::Duration::from_secs(u64::try_from(self.min_ready_seconds).unwrap_or_default())
    }
}

/// How far pulls of the new set's images, and times in which the node takes no pods, have been left out of the progress
/// deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum PullClock {
    /// Pulls are under way, or the node takes no pods. All time up to here is left out.
    LeftOutUntil(Timestamp),
    /// The last pull failed. The time until the next one counts.
    Failed,
}

impl DeploymentState {
    /// Returns the set of that name.
    pub fn set(&self, name: &str) -> Option<&SetRecord> {
        self.sets.iter().find(|set| set.name == name)
    }

    /// Returns the set with that revision number, the oldest of several.
    pub fn revision(&self, revision: i64) -> Option<&SetRecord> {
        self.sets.iter().find(|set| set.revision == revision)
    }

    /// Returns the highest revision number of a set.
    pub fn max_revision(&self) -> i64 {
        max_revision(self.sets.iter().map(|set| set.revision))
    }

    /// Returns the revision number to which an undo without a number goes back; 0 if there is none.
    pub fn last_revision(&self) -> i64 {
        last_revision(self.sets.iter().map(|set| set.revision))
    }

    /// Tries the file's template again after a rollback that the controller began by itself (`rollout retry`; workloads
    /// 3.25).
    ///
    /// # Errors
    ///
    /// Returns an error if there was no such rollback.
    pub fn retry(&mut self) -> Result<(), VerbError> {
        if !self.overrides.retry() {
            return Err(VerbError::NothingToRetry);
        }
        self.status.remove(ROLLED_BACK);
        self.forget_progress();
        Ok(())
    }

    /// Says in the status that the state was lost, and what is gone with it (workloads 9.5).
    pub fn say_history_is_lost(&mut self, now: Timestamp) {
        let message = "the state of the Deployment was lost and made anew from its pods: revisions without pods are gone, and the others are counted from 1";
        let condition =
            DeploymentCondition::new(HISTORY_LOST, "True", "StateRebuilt", message, now);
        self.status.set(condition);
    }

    /// Lets the progress deadline begin anew with the next step.
    pub(super) fn forget_progress(&mut self) {
        self.status.remove(PROGRESSING);
        self.pull = None;
    }

    /// True if the state differs from `written` in more than the numbers of the status, which change with each pod that
    /// becomes ready. Those need not be written at once: a stale number looks like progress once, after a restart.
    pub fn must_be_written(&self, written: &Self) -> bool {
        let without_numbers = |state: &Self| DeploymentStatus {
            observed_generation: state.status.observed_generation,
            conditions: state.status.conditions.clone(),
            collision_count: state.status.collision_count,
            ..DeploymentStatus::default()
        };
        if without_numbers(self) != without_numbers(written) {
            return true;
        }
        let mut with_same_status = self.clone();
        with_same_status.status = written.status.clone();
        with_same_status != *written
    }

    pub(super) fn sort(&mut self) {
        self.sets
            .sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
    }
}
