//! Finds the time at which a pod of a Job ended (workloads 6.6).

use jiff::Timestamp;

use crate::workloads::{ContainerKind, ObservedPod};

/// Returns the time at which the pod ended, by the first of these that is known: the newest end of its containers, the
/// time at which it ceased to be ready, the beginning of its deletion, its creation (getFinishedTime).
pub fn end_time(pod: &ObservedPod) -> Timestamp {
    end_of_containers(pod)
        .or(pod.ready_changed.filter(|_| !pod.is_ready))
        .or(pod.deleted_at)
        .unwrap_or(pod.created)
}

/// Returns the newest end of regular containers and sidecars. A sidecar ends later than the regular containers, so
/// upstream asks for sidecars even where a regular container has no end.
fn end_of_containers(pod: &ObservedPod) -> Option<Timestamp> {
    let regular = newest_end(pod, ContainerKind::Regular).flatten();
    match newest_end(pod, ContainerKind::Sidecar) {
        Some(sidecars) => sidecars.map(|end| regular.map_or(end, |it| it.max(end))),
        None => regular,
    }
}

/// Returns the newest end of the containers of a kind. The outer None says that there are none, the inner None that
/// one of them has not ended.
fn newest_end(pod: &ObservedPod, kind: ContainerKind) -> Option<Option<Timestamp>> {
    let of_kind = pod.containers.iter().filter(|it| it.kind == kind);
    let ends: Vec<Option<Timestamp>> = of_kind.map(|it| it.finished_at).collect();
    if ends.contains(&None) {
        Some(None)
    } else {
        ends.into_iter().max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::ObservedContainer;

    fn at(seconds: i64) -> Option<Timestamp> {
        Timestamp::from_second(seconds).ok()
    }

    /// A pod made at 1 that is deleted from 2 on, with containers that ended then.
    fn pod(containers: &[(ContainerKind, Option<i64>)]) -> ObservedPod {
        let container = |&(kind, end): &(ContainerKind, Option<i64>)| ObservedContainer {
            kind,
            finished_at: end.and_then(at),
            ..Default::default()
        };
        ObservedPod {
            created: at(1).unwrap(),
            deleted_at: at(2),
            containers: containers.iter().map(container).collect(),
            ..Default::default()
        }
    }

    #[track_caller]
    fn check(containers: &[(ContainerKind, Option<i64>)], expected: i64) {
        assert_eq!(Some(end_time(&pod(containers))), at(expected));
    }

    #[test]
    fn the_newest_end_of_all_containers_counts() {
        use ContainerKind::{Init, Regular, Sidecar};
        check(&[(Regular, Some(7)), (Regular, Some(5))], 7);
        check(&[(Regular, Some(7)), (Sidecar, Some(9))], 9);
        check(&[(Regular, Some(9)), (Sidecar, Some(7))], 9);
        check(&[(Regular, Some(7)), (Sidecar, None)], 2);
        check(&[(Regular, Some(7)), (Regular, None)], 2);
        check(&[(Regular, Some(7)), (Init, None)], 7);
        check(&[(Regular, None), (Sidecar, Some(9))], 9);
        check(&[], 2);
    }

    #[test]
    fn only_a_ready_condition_that_is_false_tells_an_end() {
        let mut pod = pod(&[]);
        pod.ready_changed = at(8);
        assert_eq!(Some(end_time(&pod)), at(8));
        pod.is_ready = true;
        assert_eq!(Some(end_time(&pod)), at(2));
        pod.deleted_at = None;
        assert_eq!(Some(end_time(&pod)), at(1));
    }
}
