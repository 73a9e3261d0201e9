//! Decides how long a Job and its pods that have ended are kept (workloads 6.8, 6.15).
//!
//! Invariants: a pod is removed only after its UID is in the state. Pods that have ended stay for their logs until the
//! Job goes, except those that were deleted for another reason than the failure of the Job.

use std::time::Duration;

use jiff::Timestamp;

use super::JobInput;
use super::state::{DeletionReason, JobState};
use crate::workloads::ObservedPod;
use crate::workloads::observed::later;

/// Returns the time at which a finished Job is removed. A finish time in the future makes it later.
pub(super) fn removal_time(ttl_seconds: Option<i32>, state: &JobState) -> Option<Timestamp> {
    let ttl = u64::try_from(ttl_seconds?).unwrap_or_default();
    Some(later(state.finish_time()?, Duration::from_secs(ttl)))
}

/// Returns the pods that have ended and may be removed, given the new state.
pub(super) fn removable<'a>(
    input: &JobInput<'a>,
    state: &JobState,
) -> impl Iterator<Item = &'a ObservedPod> {
    let goes = input.is_deleted || state.is_removed;
    let is_over =
        move |pod: &&ObservedPod| pod.phase.is_terminal() && (goes || is_done(pod, state));
    input.pods.iter().filter(is_over)
}

/// True if a pod was deleted, is in the counts, and its log is of no more use. The log of a pod that was deleted
/// because the Job failed tells why (workloads 6.4).
fn is_done(pod: &ObservedPod, state: &JobState) -> bool {
    let reason = state.deletions.get(&pod.uid);
    let is_deleted = pod.is_deleted || reason.is_some();
    let tells_why = reason == Some(&DeletionReason::JobFailed);
    let is_counted = state.is_finished() || state.settled.contains(&pod.uid);
    is_deleted && is_counted && !tells_why
}
