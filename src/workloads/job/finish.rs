//! Decides whether a Job ends, and why (workloads 6.3).
//!
//! Invariants: the first function that finds a reason decides, in the order of [`by_limits`], [`by_indexes`] and
//! [`has_completed`]. What was decided by an earlier step stays decided.

use std::time::Duration;

use jiff::Timestamp;

use super::condition::{ConditionType, JobReason, find_true};
use super::facts::Facts;
use super::state::JobState;
use super::success_policy::met_rule;
use super::wanted;
use crate::api::PodPhase;
use crate::api::pod::RestartPolicy;
use crate::workloads::observed::later;

/// The end of a Job, with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    /// True if the Job succeeds.
    pub(super) is_success: bool,
    /// Reason of the end.
    pub(super) reason: JobReason,
    /// Message for people.
    pub(super) message: String,
}

impl Outcome {
    fn new(is_success: bool, reason: JobReason, message: impl Into<String>) -> Self {
        Self {
            is_success,
            reason,
            message: message.into(),
        }
    }

    fn failure(reason: JobReason, message: &str) -> Option<Self> {
        Some(Self::new(false, reason, message))
    }

    /// Makes the outcome of a Job whose completions are reached.
    pub(super) fn completed() -> Self {
        let message = "Reached expected number of succeeded pods";
        Self::new(true, JobReason::CompletionsReached, message)
    }
}

/// Returns how the Job ends by what was decided before, failed pods, restarts or the deadline; None if it goes on.
pub(super) fn by_limits(facts: &Facts<'_>, state: &JobState) -> Option<Outcome> {
    decided_before(state)
        .or_else(|| failed_by_policy(facts))
        .or_else(|| failed_by_limit(facts))
        .or_else(|| failed_by_deadline(facts, state))
}

/// Returns how the Job ends by its indexes, if [`by_limits`] finds nothing.
pub(super) fn by_indexes(facts: &Facts<'_>) -> Option<Outcome> {
    failed_by_indexes(facts).or_else(|| succeeded_by_policy(facts))
}

/// True if the completions are reached and no pod is active. Any success and no active pod end a work queue.
pub(super) fn has_completed(facts: &Facts<'_>, active: i32) -> bool {
    let is_reached = match wanted::completions(facts.spec) {
        Some(completions) => facts.succeeded >= completions,
        None => facts.succeeded > 0,
    };
    is_reached && active == 0
}

fn decided_before(state: &JobState) -> Option<Outcome> {
    let decided = |type_, is_success| {
        let condition = find_true(&state.conditions, type_)?;
        let message = condition.message.as_str();
        Some(Outcome::new(is_success, condition.reason, message))
    };
    decided(ConditionType::SuccessCriteriaMet, true)
        .or_else(|| decided(ConditionType::FailureTarget, false))
}

/// Asks the rules about all failed pods. How a pod ended that the Job itself deleted means nothing: upstream's are gone
/// by then, ours stay until the caller removes them.
fn failed_by_policy(facts: &Facts<'_>) -> Option<Outcome> {
    let pods = facts.pods.iter().filter(|pod| pod.deletion.is_none());
    let mut failed = pods.filter(|pod| facts.has_failed(pod));
    let message = failed.find_map(|pod| facts.verdict(pod).message)?;
    Some(Outcome::new(false, JobReason::PodFailurePolicy, message))
}

fn failed_by_limit(facts: &Facts<'_>) -> Option<Outcome> {
    let limit = wanted::backoff_limit(facts.spec);
    if facts.failed <= limit && !has_restarted_too_often(facts, limit) {
        return None;
    }
    Outcome::failure(
        JobReason::BackoffLimitExceeded,
        "Job has reached the specified backoff limit",
    )
}

/// True if restarts of containers reach the limit. Init containers count, and pods that have ended do not (workloads
/// 6.4).
fn has_restarted_too_often(facts: &Facts<'_>, limit: i32) -> bool {
    if facts.spec.template.spec.restart_policy != RestartPolicy::OnFailure {
        return false;
    }
    let goes_on = |phase| matches!(phase, PodPhase::Running | PodPhase::Pending);
    let pods = facts.pods.iter().filter(|it| goes_on(it.pod.phase));
    let containers = pods.flat_map(|it| &it.pod.containers);
    let restarts: i64 = containers.map(|it| i64::from(it.restarts)).sum();
    restarts >= i64::from(limit).max(1)
}

fn failed_by_deadline(facts: &Facts<'_>, state: &JobState) -> Option<Outcome> {
    deadline(facts, state).filter(|&deadline| facts.now >= deadline)?;
    Outcome::failure(
        JobReason::DeadlineExceeded,
        "Job was active longer than specified deadline",
    )
}

/// Returns the time at which `activeDeadlineSeconds` passes. The deadline rests while the Job is suspended.
pub(super) fn deadline(facts: &Facts<'_>, state: &JobState) -> Option<Timestamp> {
    let seconds = facts.spec.active_deadline_seconds?;
    let seconds = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    let start = state.start.filter(|_| !facts.spec.is_suspended())?;
    Some(later(start, seconds))
}

fn failed_by_indexes(facts: &Facts<'_>) -> Option<Outcome> {
    let failed = facts.failed_indexes.as_ref()?.total();
    let decided = failed.saturating_add(facts.completed_indexes.total());
    let limit = facts.spec.max_failed_indexes;
    if limit.is_some_and(|limit| failed > i64::from(limit)) {
        return Outcome::failure(
            JobReason::MaxFailedIndexesExceeded,
            "Job has exceeded the specified maximal number of failed indexes",
        );
    }
    if failed > 0 && decided >= i64::from(wanted::index_count(facts.spec)) {
        return Outcome::failure(JobReason::FailedIndexes, "Job has failed indexes");
    }
    None
}

fn succeeded_by_policy(facts: &Facts<'_>) -> Option<Outcome> {
    let policy = facts.spec.success_policy.as_ref();
    let policy = policy.filter(|_| facts.is_indexed());
    let completions = wanted::index_count(facts.spec);
    let message = met_rule(policy, completions, &facts.completed_indexes)?;
    Some(Outcome::new(true, JobReason::SuccessPolicy, message))
}
