//! The order in which the pods of a set go when the set shrinks (workloads 2.2, 2.3).
//!
//! Invariants: pure. Equal pods in equal order give an equal order. The comparison is upstream's and is not transitive:
//! ages count on a logarithmic scale, and pods of one age class are compared by other rules if their times are exactly
//! equal. So nothing here may be sorted by `sort_by`, which may panic on such a comparison.

use std::cmp::Ordering;
use std::time::Duration;

use jiff::Timestamp;

use super::observed::{ContainerKind, ObservedPod};
use crate::api::PodPhase;

/// Annotation with the cost of deleting a pod: pods with a lower cost go first.
pub const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Sorts pods: the pod that goes first is the first (controller_utils.go: ActivePodsWithRanks). A pod counts as
/// available after `min_ready`. Without a time, ages are compared exactly and not on the logarithmic scale.
pub fn sort_for_deletion(pods: &mut [&ObservedPod], min_ready: Duration, now: Option<Timestamp>) {
    // Upstream sorts short lists by insertion too. Longer ones it sorts otherwise, which can only be seen where the
    // comparison goes round in a circle.
    for end in 1..pods.len() {
        let mut at = end;
        while at > 0 && goes_before(pods[at], pods[at - 1], min_ready, now) {
            pods.swap(at, at - 1);
            at -= 1;
        }
    }
}

/// True if `a` goes before `b`. The first rule that tells the two apart decides.
fn goes_before(
    a: &ObservedPod,
    b: &ObservedPod,
    min_ready: Duration,
    now: Option<Timestamp>,
) -> bool {
    by_state(a, b)
        .then_with(|| by_availability(a, b, min_ready, now))
        .then_with(|| deletion_cost(a).cmp(&deletion_cost(b)))
        .then_with(|| by_ready_time(a, b, now))
        .then_with(|| most_restarts(b).cmp(&most_restarts(a)))
        .then_with(|| by_age(a, Some(a.created), b, Some(b.created), now))
        .is_lt()
}

/// Compares the pods: without a place, then by phase, then not ready.
fn by_state(a: &ObservedPod, b: &ObservedPod) -> Ordering {
    b.waits_for_room
        .cmp(&a.waits_for_room)
        .then_with(|| phase_rank(a.phase).cmp(&phase_rank(b.phase)))
        .then_with(|| a.is_ready.cmp(&b.is_ready))
}

fn phase_rank(phase: PodPhase) -> u8 {
    match phase {
        PodPhase::Unknown => 1,
        PodPhase::Running => 2,
        PodPhase::Pending | PodPhase::Succeeded | PodPhase::Failed => 0,
    }
}

/// Compares the pods: not available first. Upstream has no such rule. A Deployment that shrinks a set by its pods that
/// are not available needs it: on the logarithmic scale an available pod could go in the place of one that is merely
/// ready (workloads 3.7, 3.23).
fn by_availability(
    a: &ObservedPod,
    b: &ObservedPod,
    min_ready: Duration,
    now: Option<Timestamp>,
) -> Ordering {
    let Some(now) = now else {
        return Ordering::Equal;
    };
    let is_available = |pod: &ObservedPod| pod.is_available(min_ready, now);
    is_available(a).cmp(&is_available(b))
}

fn by_ready_time(a: &ObservedPod, b: &ObservedPod, now: Option<Timestamp>) -> Ordering {
    match a.is_ready && b.is_ready {
        true => by_age(a, a.ready_changed, b, b.ready_changed, now),
        false => Ordering::Equal,
    }
}

/// Compares two times of pods: a missing time first, then the shorter age class, then the smaller UID.
fn by_age(
    a: &ObservedPod,
    a_time: Option<Timestamp>,
    b: &ObservedPod,
    b_time: Option<Timestamp>,
    now: Option<Timestamp>,
) -> Ordering {
    let (a_time, b_time) = match (a_time, b_time) {
        (Some(a_time), Some(b_time)) => (a_time, b_time),
        (a_time, b_time) => return a_time.is_some().cmp(&b_time.is_some()),
    };
    match now {
        _ if a_time == b_time => Ordering::Equal,
        None => b_time.cmp(&a_time),
        Some(now) => age_class(a_time, now)
            .cmp(&age_class(b_time, now))
            .then_with(|| a.uid.cmp(&b.uid)),
    }
}

/// Returns the binary logarithm of an age in nanoseconds, rounded down. A time that is not in the past has -1.
fn age_class(time: Timestamp, now: Timestamp) -> i64 {
    let age = now.as_nanosecond() - time.as_nanosecond();
    match u128::try_from(age) {
        Ok(age) => age.checked_ilog2().map_or(-1, i64::from),
        Err(_) => -1,
    }
}

/// Returns the cost of deleting the pod; 0 without the annotation, and for a text that is not a number as upstream
/// writes numbers: no plus sign, no leading zeros.
fn deletion_cost(pod: &ObservedPod) -> i32 {
    let Some(text) = pod.annotations.get(DELETION_COST) else {
        return 0;
    };
    let is_number = text == "0" || text.starts_with(|c: char| c == '-' || ('1'..='9').contains(&c));
    match is_number {
        true => text.parse().unwrap_or_default(),
        false => 0,
    }
}

/// Returns the most restarts of a regular container, and the most restarts of a sidecar.
fn most_restarts(pod: &ObservedPod) -> (i32, i32) {
    let most = |kind: ContainerKind| {
        let of_kind = pod.containers.iter().filter(|it| it.kind == kind);
        of_kind.map(|it| it.restarts).max().unwrap_or_default()
    };
    (most(ContainerKind::Regular), most(ContainerKind::Sidecar))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::observed::later;

    fn pod(name: &str, ready_at: i64) -> ObservedPod {
        ObservedPod {
            name: name.into(),
            uid: name.into(),
            phase: PodPhase::Running,
            is_ready: true,
            is_in_table: true,
            ready_changed: Timestamp::from_second(ready_at).ok(),
            ..ObservedPod::default()
        }
    }

    #[track_caller]
    fn check(pods: &[ObservedPod], min_ready: u64, now: i64, expected: &[&str]) {
        let mut sorted: Vec<&ObservedPod> = pods.iter().collect();
        let now = Timestamp::from_second(now).ok();
        sort_for_deletion(&mut sorted, Duration::from_secs(min_ready), now);
        let names: Vec<&str> = sorted.iter().map(|pod| pod.name.as_str()).collect();
        assert_eq!(names, expected);
    }

    #[test]
    fn a_pod_that_is_ready_but_not_available_goes_before_an_available_one() {
        // Both ages are in one class, so the UID alone would take "a", which is available.
        let pods = [pod("a", 100), pod("b", 101)];
        check(&pods, 0, 110, &["a", "b"]);
        check(&pods, 10, 110, &["b", "a"]);
    }

    #[test]
    fn a_pod_that_no_table_knows_goes_before_one_that_is_served() {
        let mut pods = [pod("a", 100), pod("b", 100)];
        pods[1].is_in_table = false;
        check(&pods, 0, 110, &["b", "a"]);
    }

    #[test]
    fn a_pod_that_waits_for_room_goes_first() {
        let mut pods = [pod("a", 100), pod("b", 100)];
        pods[0].phase = PodPhase::Pending;
        pods[1].waits_for_room = true;
        check(&pods, 0, 110, &["b", "a"]);
    }

    #[test]
    fn a_comparison_that_goes_round_in_a_circle_gives_an_order() {
        // b before a (restarts), c before b (UID), a before c (UID).
        let mut pods: Vec<ObservedPod> = Vec::new();
        for round in 0..40 {
            for (name, ready_at, restarts) in [("a", 9000, 0), ("z", 9000, 1), ("m", 9050, 0)] {
                let mut pod = pod(&format!("{name}{round}"), ready_at);
                pod.containers = vec![crate::workloads::ObservedContainer {
                    restarts,
                    ..Default::default()
                }];
                pods.push(pod);
            }
        }
        let mut sorted: Vec<&ObservedPod> = pods.iter().collect();
        let now = later(Timestamp::UNIX_EPOCH, Duration::from_secs(10_000));
        sort_for_deletion(&mut sorted, Duration::ZERO, Some(now));
        assert_eq!(sorted.len(), pods.len());
    }
}
