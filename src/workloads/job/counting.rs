//! Counts pods that have ended into the state of their Job, each exactly once (workloads 6.9).

use super::facts::{Facts, add};
use super::finish::Outcome;
use super::job_pod::JobPod;
use super::state::JobState;

/// Counts the pods that can be counted now, and writes down their UIDs (trackJobStatusAndRemoveFinalizers).
pub(super) fn settle(facts: &Facts<'_>, outcome: Option<&Outcome>, state: &mut JobState) {
    let fails = outcome.is_some_and(|outcome| !outcome.is_success);
    let is_due = |(position, pod): &(usize, &JobPod<'_>)| {
        let ends = facts.is_job_deleted || outcome.is_some();
        let is_kept = facts.to_replace.values().any(|it| it == position);
        let has_failed = facts.has_failed(pod) && !is_kept;
        !pod.is_settled && (ends || pod.has_succeeded() || has_failed)
    };
    for (_, pod) in facts.pods.iter().enumerate().filter(is_due) {
        if counts_as_failed(facts, pod, fails) {
            state.failed = add(state.failed, 1);
        }
        state.settled.insert(pod.pod.uid.clone());
    }
    state.succeeded = facts.succeeded;
    state.completed_indexes = facts.completed_indexes.clone();
    state.failed_indexes = facts.failed_indexes.clone();
}

/// True if the pod counts as failed. Every pod that has not succeeded does when the Job fails.
fn counts_as_failed(facts: &Facts<'_>, pod: &JobPod<'_>, job_fails: bool) -> bool {
    let has_failed = job_fails || facts.has_failed(pod);
    has_failed && !pod.has_succeeded() && facts.is_countable(pod) && facts.verdict(pod).is_counted()
}
