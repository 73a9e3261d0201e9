//! The numbers and conditions of a Deployment's status (sync.go: calculateStatus, checkPausedConditions; workloads 3.13
//! to 3.15).
//!
//! Invariants: a pause never hides that the deadline has passed. Available follows what the spec says, not what the
//! node makes of it.

use super::status::{
    AVAILABLE, DeploymentCondition, DeploymentStatus, PROGRESSING, REPLICA_FAILURE, SURGE_LOWERED,
};
use super::sync::Sync;
use super::{ObservedSet, SurgeAllowance};
use crate::workloads::numbers::Fenceposts;
use crate::workloads::replica_set::SetFailure;

/// Reason of the condition Progressing of a rollout that made no progress until its deadline.
pub(super) const TIMED_OUT: &str = "ProgressDeadlineExceeded";
/// Reason of the condition Progressing of a Deployment whose newest set is complete.
pub(super) const NEW_SET_AVAILABLE: &str = "NewReplicaSetAvailable";
const PAUSED: &str = "DeploymentPaused";

impl Sync<'_> {
    /// Writes that the Deployment is paused or was resumed, so that the time of a pause does not count against the
    /// deadline (checkPausedConditions).
    pub(super) fn set_pause_condition(&mut self) {
        let reason = self.state.status.reason(PROGRESSING).to_owned();
        if !self.has_deadline() || reason == TIMED_OUT {
            return;
        }
        match (self.input.spec.paused, reason == PAUSED) {
            (true, false) => self.set_progressing("Unknown", PAUSED, "Deployment is paused".into()),
            (false, true) => {
                let message = "Deployment is resumed".into();
                self.set_progressing("Unknown", "DeploymentResumed", message);
            }
            _ => {}
        }
    }

    /// Returns the status of the sets as they are, with the conditions of before (calculateStatus).
    pub(super) fn calculate_status(&self) -> DeploymentStatus {
        let available = self.sum_all(|_, pods| pods.available);
        let updated = self.new_set().map_or(0, |set| self.pods(set).active);
        let mut status = DeploymentStatus {
            observed_generation: self.input.generation,
            replicas: self.sum_all(|_, pods| pods.active),
            updated_replicas: updated,
            ready_replicas: self.sum_all(|_, pods| pods.ready),
            available_replicas: available,
            unavailable_replicas: self
                .sum_all(|set, _| set.size)
                .saturating_sub(available)
                .max(0),
            terminating_replicas: Some(self.sum_all(|_, pods| pods.terminating)),
            conditions: self.state.status.conditions.clone(),
            collision_count: self.state.status.collision_count,
        };
        status.set(self.availability(available));
        status
    }

    fn availability(&self, available: i32) -> DeploymentCondition {
        let written = Fenceposts::of(self.input.spec);
        let wanted = self.replicas().saturating_sub(written.max_unavailable);
        let (status, reason, message) = match available >= wanted {
            true => (
                "True",
                "MinimumReplicasAvailable",
                "Deployment has minimum availability.",
            ),
            false => (
                "False",
                "MinimumReplicasUnavailable",
                "Deployment does not have minimum availability.",
            ),
        };
        DeploymentCondition::new(AVAILABLE, status, reason, message, self.input.now)
    }

    /// Brings the numbers of the status up to date without a look at progress (syncDeploymentStatus).
    pub(super) fn renew_status(&mut self) {
        let mut status = self.calculate_status();
        self.set_surge_condition(&mut status);
        self.note_completeness(&status);
        self.state.status = status;
    }

    /// Writes down the newest set that was complete: a rollback that begins by itself goes there.
    pub(super) fn note_completeness(&mut self, status: &DeploymentStatus) {
        let is_complete = status.is_complete(self.replicas(), self.input.generation);
        if let Some(set) = self.new_set().filter(|_| is_complete) {
            self.state.last_complete = Some(set.name.clone());
        }
    }

    /// True if the status of the last step was that of a complete Deployment.
    pub(super) fn was_complete(&self) -> bool {
        self.state
            .status
            .is_complete(self.replicas(), self.input.generation)
    }

    /// Copies the failure of a set, rather of the new one (getReplicaFailures).
    pub(super) fn set_failure_condition(&self, status: &mut DeploymentStatus) {
        let failure = |set: &ObservedSet| set.failure.clone();
        let of_new = self
            .new_set()
            .and_then(|set| self.observed(set))
            .and_then(failure);
        let of_any = || {
            let mut sets = self.state.sets.iter();
            sets.find_map(|set| self.observed(set).and_then(failure))
        };
        match of_new.or_else(of_any) {
            Some(failure) => status.set(failure_condition(failure)),
            None => status.remove(REPLICA_FAILURE),
        }
    }

    /// Says that the Deployment may not have more pods than replicas (workloads 3.20, 3.21).
    pub(super) fn set_surge_condition(&self, status: &mut DeploymentStatus) {
        let written = Fenceposts::of(self.input.spec).max_surge;
        match &self.input.node.surge {
            SurgeAllowance::None { reason, message } if written > 0 => {
                let message = format!("maxSurge {written} is lowered to 0: {message}");
                let before = status.condition(SURGE_LOWERED);
                if before.is_none_or(|it| it.reason != reason.as_str() || it.message != message) {
                    let (reason, now) = (reason.as_str(), self.input.now);
                    let condition =
                        DeploymentCondition::new(SURGE_LOWERED, "True", reason, message, now);
                    status.replace(condition);
                }
            }
            _ => status.remove(SURGE_LOWERED),
        }
    }
}

fn failure_condition(failure: SetFailure) -> DeploymentCondition {
    let SetFailure {
        reason,
        message,
        since,
    } = failure;
    DeploymentCondition::new(REPLICA_FAILURE, "True", &reason, message, since)
}
