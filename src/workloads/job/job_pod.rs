//! A pod as its Job sees it: the observed pod, and what the Job has written down about it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;

use super::state::{DeletionReason, JobState};
use crate::api::PodPhase;
use crate::workloads::{ContainerKind, ObservedPod};

/// Label and annotation with the completion index of a pod.
pub const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Annotation with the number of failures that the index of a pod had before.
pub const INDEX_FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-failure-count";
/// Annotation with the number of failures of the index that do not count.
pub const INDEX_IGNORED_FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// A pod of a Job.
#[derive(Clone, Debug)]
pub(super) struct JobPod<'a> {
    /// The pod as it is now.
    pub(super) pod: &'a ObservedPod,
    /// Completion index of the pod, which may be beyond the completions; None if the pod has none.
    pub(super) index: Option<i64>,
    /// True if the pod is being deleted, or is to be according to the state.
    pub(super) is_deleted: bool,
    /// Reason of the deletion that the state has; None if it has none.
    pub(super) deletion: Option<DeletionReason>,
    /// True if the pod is counted already or never will be.
    pub(super) is_settled: bool,
}

impl<'a> JobPod<'a> {
    /// Reads a pod. A deletion that is written counts as begun (workloads 9.1).
    pub(super) fn new(pod: &'a ObservedPod, state: &JobState) -> Self {
        let written = state.deletions.get(&pod.uid).copied();
        Self {
            pod,
            index: completion_index(&pod.annotations),
            is_deleted: pod.is_deleted || written.is_some(),
            deletion: written,
            is_settled: state.settled.contains(&pod.uid),
        }
    }

    /// True if the pod has not ended and is not being deleted.
    pub(super) fn is_active(&self) -> bool {
        !self.pod.phase.is_terminal() && !self.is_deleted
    }

    /// True if the pod is being deleted and has not ended.
    pub(super) fn is_terminating(&self) -> bool {
        !self.pod.phase.is_terminal() && self.is_deleted
    }

    /// Returns the reason of a deletion that is written and has not begun.
    pub(super) fn undone_deletion(&self) -> Option<DeletionReason> {
        self.deletion.filter(|_| self.pod.is_active())
    }

    /// True if the pod has succeeded.
    pub(super) fn has_succeeded(&self) -> bool {
        self.pod.phase == PodPhase::Succeeded
    }

    /// True if the pod counts as failed. A pod that is being deleted counts, unless only pods that have ended are
    /// replaced (workloads 6.7).
    pub(super) fn has_failed(&self, only_ended: bool) -> bool {
        let is_going = self.is_deleted && !self.has_succeeded();
        self.pod.phase == PodPhase::Failed || is_going && !only_ended
    }

    /// Returns the completion index if it is below `completions`.
    pub(super) fn index_below(&self, completions: i32) -> Option<i32> {
        let index = i32::try_from(self.index?).ok()?;
        Some(index).filter(|&index| index < completions)
    }

    /// Returns the number of failures that counted for the pod's index before this pod.
    pub(super) fn index_failures(&self) -> i32 {
        count(&self.pod.annotations, INDEX_FAILURE_COUNT)
    }

    /// Returns the number of failures that did not count for the pod's index before this pod.
    pub(super) fn ignored_index_failures(&self) -> i32 {
        count(&self.pod.annotations, INDEX_IGNORED_FAILURE_COUNT)
    }

    /// Returns the number of all failures of the pod's index before this pod.
    pub(super) fn all_index_failures(&self) -> i32 {
        let counted = self.index_failures();
        counted.saturating_add(self.ignored_index_failures())
    }

    /// Returns the key by which superfluous pods are sorted: the first is deleted first (ActivePods). The UID decides
    /// between equal pods, so that a second look decides alike.
    pub(super) fn removal_key(&self) -> impl Ord + use<'a> {
        let pod = self.pod;
        let readiness = pod.is_ready.then(|| pod.ready_changed.map(Reverse));
        let restarts = |kind| Reverse(most_restarts(pod, kind));
        (
            phase_rank(pod.phase),
            readiness,
            restarts(ContainerKind::Regular),
            restarts(ContainerKind::Sidecar),
            Reverse::<Timestamp>(pod.created),
            &pod.uid,
        )
    }
}

fn phase_rank(phase: PodPhase) -> u8 {
    match phase {
        PodPhase::Pending => 0,
        PodPhase::Unknown => 1,
        _ => 2,
    }
}

fn most_restarts(pod: &ObservedPod, kind: ContainerKind) -> i32 {
    let of_kind = pod.containers.iter().filter(|it| it.kind == kind);
    of_kind.map(|it| it.restarts).max().unwrap_or_default()
}

/// Reads the completion index. A text that is no number, or is below 0, is none.
fn completion_index(annotations: &BTreeMap<String, String>) -> Option<i64> {
    let index: i64 = annotations.get(COMPLETION_INDEX)?.parse().ok()?;
    (index >= 0).then_some(index)
}

/// Reads a number of failures. What is no number from 0 on counts as 0.
fn count(annotations: &BTreeMap<String, String>, key: &str) -> i32 {
    let count = annotations.get(key).and_then(|text| text.parse().ok());
    count.filter(|&count: &i32| count >= 0).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::ObservedContainer;

    fn annotated(key: &str, text: &str) -> ObservedPod {
        ObservedPod {
            annotations: BTreeMap::from([(key.into(), text.into())]),
            ..Default::default()
        }
    }

    #[track_caller]
    fn check_index(text: &str, expected: Option<i64>, below_5: Option<i32>) {
        let pod = annotated(COMPLETION_INDEX, text);
        let pod = JobPod::new(&pod, &JobState::default());
        assert_eq!((pod.index, pod.index_below(5)), (expected, below_5));
    }

    #[test]
    fn an_index_is_a_number_from_0_on() {
        check_index("0", Some(0), Some(0));
        check_index("5", Some(5), None);
        check_index("9999999999", Some(9_999_999_999), None);
        check_index("-1", None, None);
        check_index("x", None, None);
    }

    #[track_caller]
    fn check_failures(text: &str, expected: i32) {
        let pod = annotated(INDEX_FAILURE_COUNT, text);
        let pod = JobPod::new(&pod, &JobState::default());
        assert_eq!(pod.index_failures(), expected);
    }

    #[test]
    fn a_damaged_number_of_failures_counts_as_0() {
        check_failures("3", 3);
        check_failures("-3", 0);
        check_failures("9999999999", 0);
        check_failures("x", 0);
    }

    /// A running pod with what a test changes.
    fn running(change: impl FnOnce(&mut ObservedPod)) -> ObservedPod {
        let mut pod = ObservedPod {
            phase: PodPhase::Running,
            created: Timestamp::from_second(100).unwrap(),
            ..Default::default()
        };
        change(&mut pod);
        pod
    }

    fn restarted(kind: ContainerKind) -> ObservedPod {
        running(|pod| {
            let container = ObservedContainer {
                kind,
                restarts: 3,
                ..Default::default()
            };
            pod.containers.push(container);
        })
    }

    fn ready(since: i64) -> ObservedPod {
        running(|pod| {
            pod.is_ready = true;
            pod.ready_changed = Timestamp::from_second(since).ok();
        })
    }

    /// Checks that the first pod is deleted before the second.
    #[track_caller]
    fn check_order(first: &ObservedPod, second: &ObservedPod) {
        let state = JobState::default();
        let key = |pod| JobPod::new(pod, &state);
        assert!(key(first).removal_key() < key(second).removal_key());
    }

    #[test]
    fn the_pod_that_loses_least_is_deleted_first() {
        let plain = running(|_| {});
        check_order(&running(|pod| pod.phase = PodPhase::Pending), &plain);
        let unknown = running(|pod| pod.phase = PodPhase::Unknown);
        check_order(&running(|pod| pod.phase = PodPhase::Pending), &unknown);
        check_order(&unknown, &plain);
        check_order(&plain, &ready(100));
        check_order(&ready(200), &ready(100));
        check_order(&restarted(ContainerKind::Regular), &plain);
        check_order(&restarted(ContainerKind::Sidecar), &plain);
        let created = |at| running(|pod| pod.created = Timestamp::from_second(at).unwrap());
        check_order(&created(101), &created(100));
        check_order(&plain, &running(|pod| pod.uid = "z".into()));
    }

    #[test]
    fn init_containers_do_not_count_for_the_order() {
        let plain = running(|pod| pod.uid = "a".into());
        check_order(&plain, &{
            let mut pod = restarted(ContainerKind::Init);
            pod.uid = "b".into();
            pod
        });
    }
}
