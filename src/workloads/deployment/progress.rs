//! The progress of a rollout and its deadline (deployment/progress.go; workloads 3.13, 3.22).
//!
//! Invariants: the deadline counts from the last progress. Time in which images are pulled, or in which the node takes
//! no pods, does not count. A deadline that has passed stops nothing.

use std::time::Duration;

use jiff::Timestamp;

use super::conditions::{NEW_SET_AVAILABLE, TIMED_OUT};
use super::state::PullClock;
use super::status::{DeploymentCondition, DeploymentStatus, PROGRESSING, whole_seconds};
use super::sync::Sync;
use super::{ImagesState, SurgeAllowance};
use crate::workloads::observed::later;

const UPDATED: &str = "ReplicaSetUpdated";
/// Reason of the condition Progressing of a rollout whose new pod does not fit (workloads 3.21).
pub const DOES_NOT_FIT: &str = "DoesNotFit";
/// Reason of the condition Progressing of a rollout whose images cannot be pulled (workloads 3.22).
const IMAGE_PULL: &str = "ImagePull";
/// Time after the deadline at which the next step is made. Exactly at the deadline a rollout is not late.
const AFTER_DEADLINE: Duration = Duration::from_millis(1);

impl Sync<'_> {
    /// Brings the status up to date after a step of a rollout, and sees whether the rollout gets on
    /// (syncRolloutStatus).
    pub(super) fn end_of_rollout(&mut self) {
        self.leave_out_waits();
        let mut status = self.calculate_status();
        if self.has_deadline() && !self.was_rolled_out(&status) {
            self.judge_progress(&mut status);
        }
        self.set_node_reason(&mut status);
        self.set_failure_condition(&mut status);
        self.set_surge_condition(&mut status);
        self.note_completeness(&status);
        self.state.status = status;
        self.roll_back_when_late();
    }

    /// True if the newest set has been complete before and has not been replaced since. Such a Deployment is not late
    /// any more, even when it loses pods.
    fn was_rolled_out(&self, status: &DeploymentStatus) -> bool {
        status.replicas == status.updated_replicas
            && self.state.status.reason(PROGRESSING) == NEW_SET_AVAILABLE
    }

    fn judge_progress(&mut self, status: &mut DeploymentStatus) {
        if status.is_complete(self.replicas(), self.input.generation) {
            let message = self.about_new_set("has successfully progressed.");
            status.set(self.progressing("True", NEW_SET_AVAILABLE, message));
        } else if status.has_progressed_since(&self.state.status) {
            let message = self.about_new_set("is progressing.");
            status.replace(self.progressing("True", UPDATED, message));
        } else if self.is_late() {
            let message = self.about_new_set("has timed out progressing.");
            status.set(self.progressing("False", TIMED_OUT, message));
        }
    }

    fn progressing(&self, status: &str, reason: &str, message: String) -> DeploymentCondition {
        DeploymentCondition::new(PROGRESSING, status, reason, message, self.input.now)
    }

    fn about_new_set(&self, what: &str) -> String {
        match self.new_set() {
            Some(set) => format!("ReplicaSet \"{}\" {what}", set.name),
            None => format!("Deployment \"{}\" {what}", self.input.name),
        }
    }

    /// True if the last progress is longer ago than the deadline allows (DeploymentTimedOut).
    fn is_late(&self) -> bool {
        match self.state.status.reason(PROGRESSING) {
            NEW_SET_AVAILABLE => false,
            TIMED_OUT => true,
            _ if self.input.node.is_closed => false,
            _ => self
                .deadline()
                .is_some_and(|deadline| deadline < self.input.now),
        }
    }

    /// Returns the time at which the rollout becomes late; None without a condition or without a deadline.
    fn deadline(&self) -> Option<Timestamp> {
        let seconds = u64::try_from(self.input.spec.progress_deadline_seconds).unwrap_or_default();
        let condition = self.state.status.condition(PROGRESSING)?;
        let deadline = later(condition.last_update_time, Duration::from_secs(seconds));
        self.has_deadline().then_some(deadline)
    }

    /// Returns the time at which a step sees that the rollout is late (requeueStuckDeployment).
    pub(super) fn deadline_passes_at(&self) -> Option<Timestamp> {
        let is_settled = matches!(
            self.state.status.reason(PROGRESSING),
            NEW_SET_AVAILABLE | TIMED_OUT
        );
        match is_settled || self.was_complete() {
            true => None,
            false => self
                .deadline()
                .map(|deadline| later(deadline, AFTER_DEADLINE)),
        }
    }

    /// Leaves the time of pulls, and the time in which the node takes no pods, out of the deadline: moves the time of the
    /// last progress on by as much.
    fn leave_out_waits(&mut self) {
        let now = self.input.now;
        let clock = self.state.pull;
        self.state.pull = match (&self.input.node.images, clock) {
            _ if self.state.status.reason(PROGRESSING) == NEW_SET_AVAILABLE => None,
            _ if self.input.node.is_closed => Some(PullClock::LeftOutUntil(match clock {
                Some(PullClock::LeftOutUntil(until)) => self.leave_out(until, Some(now)),
                Some(PullClock::Failed) | None => whole_seconds(now),
            })),
            (ImagesState::Ready, None) => None,
            (ImagesState::Ready, Some(_)) => {
                // Images that have come, and a node that takes pods again, are progress in themselves: the pods have the
                // whole deadline from now on.
                self.move_last_progress(|_| now);
                None
            }
            (ImagesState::Pulling { progressed_at }, Some(PullClock::LeftOutUntil(until))) => Some(
                PullClock::LeftOutUntil(self.leave_out(until, *progressed_at)),
            ),
            (ImagesState::Pulling { .. }, _) => Some(PullClock::LeftOutUntil(whole_seconds(now))),
            (ImagesState::Failed { progressed_at, .. }, clock) => {
                if let Some(PullClock::LeftOutUntil(until)) = clock {
                    self.leave_out(until, *progressed_at);
                }
                Some(PullClock::Failed)
            }
        };
    }

    /// Leaves the time from `until` to the last progress of a pull out of the deadline, in whole seconds. Returns the
    /// time up to which all is left out.
    fn leave_out(&mut self, until: Timestamp, progressed_at: Option<Timestamp>) -> Timestamp {
        let progressed_at = progressed_at.map_or(until, |at| at.min(self.input.now));
        let seconds = progressed_at.as_second().saturating_sub(until.as_second());
        let time = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        self.move_last_progress(|last| later(last, time));
        later(until, time)
    }

    fn move_last_progress(&mut self, to: impl Fn(Timestamp) -> Timestamp) {
        let now = self.input.now;
        if let Some(condition) = self.state.status.condition_mut(PROGRESSING)
            && ![NEW_SET_AVAILABLE, TIMED_OUT].contains(&condition.reason.as_str())
        {
            condition.last_update_time = whole_seconds(to(condition.last_update_time).min(now));
        }
    }

    /// Says in the condition Progressing what the node has against a new pod. The deadline goes on (workloads 3.21,
    /// 3.22).
    fn set_node_reason(&self, status: &mut DeploymentStatus) {
        match self.node_reason(status) {
            Some((reason, message)) => self.say_node_reason(status, reason, message),
            None if self.has_deadline() => self.take_node_reason_back(status),
            None => status.remove(PROGRESSING),
        }
    }

    fn say_node_reason(&self, status: &mut DeploymentStatus, reason: &str, message: String) {
        let mut condition = self.progressing("False", reason, message);
        if let Some(before) = status.condition(PROGRESSING) {
            let is_said = before.reason == reason && before.message == condition.message;
            if before.reason == TIMED_OUT || is_said {
                return;
            }
            condition.last_update_time = before.last_update_time;
        }
        status.replace(condition);
    }

    /// Says that the rollout gets on when the node has nothing against a new pod any more. A pod that fits is progress,
    /// a pull that is tried again is none.
    fn take_node_reason_back(&self, status: &mut DeploymentStatus) {
        let message = self.about_new_set("is progressing.");
        let mut condition = self.progressing("True", UPDATED, message);
        match status.condition(PROGRESSING) {
            Some(before) if before.reason == IMAGE_PULL => {
                condition.last_update_time = before.last_update_time;
            }
            Some(before) if before.reason == DOES_NOT_FIT => {}
            _ => return,
        }
        status.replace(condition);
    }

    fn node_reason(&self, status: &DeploymentStatus) -> Option<(&'static str, String)> {
        if status.is_complete(self.replicas(), self.input.generation) || self.was_rolled_out(status)
        {
            return None;
        }
        match (&self.input.node.surge, &self.input.node.images) {
            (SurgeAllowance::DoesNotFit(message), _) => Some((DOES_NOT_FIT, message.clone())),
            (_, ImagesState::Failed { message, .. }) => Some((IMAGE_PULL, message.clone())),
            _ => None,
        }
    }
}
