//! What controllers see of a pod: its record, its status, and whether a table of services with it is in force.

use std::collections::{BTreeMap, HashMap};

use jiff::{SignedDuration, Timestamp};

use crate::api::status::ContainerState;
use crate::api::{Pod, PodPhase, PodStatus, PodUid};
use crate::base::clock::Time;
use crate::pods::admission::Rejection;
use crate::workloads::{ContainerKind, ObservedContainer, ObservedPod, PodRecord};

/// When the readiness of each pod changed, on the line of the steady clock.
#[derive(Default)]
pub struct Readiness(HashMap<PodUid, Change>);

/// The last change of the readiness of a pod.
#[derive(Clone, Copy)]
struct Change {
    is_ready: bool,
    at: Timestamp,
    /// Version of the change feed at which the change was seen.
    version: u64,
    /// True if the pod has been ready since the daemon looks.
    was_ready: bool,
}

/// The facts that a look at a pod needs besides the pod.
pub struct Look<'a> {
    /// Time on the line of the steady clock.
    pub now: Timestamp,
    /// The wall clock, which the times in statuses are of.
    pub wall: Timestamp,
    /// Version of the change feed up to which statuses have been read.
    pub version: u64,
    /// Tells whether the table of services is current up to a version of the change feed.
    pub in_force: &'a dyn Fn(u64) -> bool,
}

impl Look<'_> {
    /// Returns a time of the wall clock on the line of the steady clock, never in its future.
    fn on_the_line(&self, time: Time) -> Timestamp {
        let age = self.wall.as_second().saturating_sub(time.unix_seconds());
        let age = SignedDuration::from_secs(age.max(0));
        self.now.checked_sub(age).unwrap_or(Timestamp::MIN)
    }
}

impl Readiness {
    /// Notes the readiness of a pod. The first look takes the time from the status, which an earlier daemon may have
    /// written; later looks take the time of the look.
    fn note(&mut self, uid: &PodUid, status: &PodStatus, look: &Look<'_>) -> Change {
        let is_ready = status.is_ready();
        let known = self.0.get(uid).copied();
        if let Some(known) = known.filter(|known| known.is_ready == is_ready) {
            return known;
        }
        let since = status
            .condition("Ready")
            .and_then(|c| c.last_transition_time);
        let at = match (known, since) {
            (None, Some(since)) => look.on_the_line(since),
            _ => look.now,
        };
        let version = look.version;
        let was_ready = is_ready || known.is_some_and(|known| known.was_ready);
        let change = Change {
            is_ready,
            at,
            version,
            was_ready,
        };
        self.0.insert(uid.clone(), change);
        change
    }

    /// Returns the version of the change feed at which the last change of a pod's readiness was seen.
    pub fn seen_at(&self, uid: &PodUid) -> Option<u64> {
        Some(self.0.get(uid)?.version)
    }

    /// Forgets the pods that are gone.
    pub fn retain(&mut self, is_there: impl Fn(&PodUid) -> bool) {
        self.0.retain(|uid, _| is_there(uid));
    }

    /// Looks at a pod.
    pub fn look(
        &mut self,
        record: &PodRecord,
        pod: Option<&Pod>,
        status: Option<&PodStatus>,
        look: &Look<'_>,
    ) -> ObservedPod {
        let mut observed = ObservedPod {
            name: record.name.clone(),
            uid: record.uid.clone(),
            labels: texts(record, "labels"),
            annotations: texts(record, "annotations"),
            created: record.created,
            is_deleted: record.deleted_at.is_some(),
            deleted_at: record.deleted_at,
            ..ObservedPod::default()
        };
        let Some(status) = status else {
            return observed;
        };
        let change = self.note(&record.uid, status, look);
        observed.waits_for_room = waits_for_room(status);
        observed.phase = match observed.waits_for_room {
            true => PodPhase::Pending,
            false => status.phase,
        };
        observed.is_ready = change.is_ready;
        observed.ready_changed = change.was_ready.then_some(change.at);
        observed.is_in_table = change.is_ready && (look.in_force)(change.version);
        observed.containers = containers(pod, status, look);
        let conditions = status.conditions.iter();
        observed.conditions = conditions
            .map(|c| (c.type_.clone(), c.status.clone()))
            .collect();
        observed
    }
}

/// True if a pod waits for room on the node. For people its phase is Failed, and for controllers it is pending: it starts
/// when there is room, and a second pod would not help (workloads 2.5).
fn waits_for_room(status: &PodStatus) -> bool {
    Rejection::of(status).is_some_and(|why| why.is_temporary())
}

fn texts(record: &PodRecord, field: &str) -> BTreeMap<String, String> {
    let all = record.object["metadata"][field].as_object();
    let all = all.into_iter().flatten();
    all.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

fn containers(pod: Option<&Pod>, status: &PodStatus, look: &Look<'_>) -> Vec<ObservedContainer> {
    let inits = status.init_container_statuses.iter();
    let inits = inits.map(|status| (true, status));
    let regular = status.container_statuses.iter();
    let all = inits.chain(regular.map(|status| (false, status)));
    let observed = all.map(|(is_init, status)| {
        let terminated = terminated(&status.state);
        ObservedContainer {
            name: status.name.clone(),
            kind: match is_init {
                false => ContainerKind::Regular,
                true if is_sidecar(pod, &status.name) => ContainerKind::Sidecar,
                true => ContainerKind::Init,
            },
            restarts: i32::try_from(status.restart_count).unwrap_or(i32::MAX),
            exit_code: terminated.map(|(code, _)| code),
            finished_at: terminated.and_then(|(_, at)| Some(look.on_the_line(at?))),
        }
    });
    observed.collect()
}

fn terminated(state: &ContainerState) -> Option<(i32, Option<Time>)> {
    let terminated = state.terminated.as_ref()?;
    Some((terminated.exit_code, terminated.finished_at))
}

fn is_sidecar(pod: Option<&Pod>, name: &str) -> bool {
    pod.is_some_and(|pod| pod.spec.is_sidecar(name))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    /// The wall clock, which is an hour ahead of the line of the steady clock.
    const WALL: i64 = 3600 + NOW;
    const NOW: i64 = 1_800_000_000;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn record() -> PodRecord {
        serde_json::from_value(json!({
            "uid": "u1", "name": "web-1", "namespace": "default",
            "workload": {"kind": "ReplicaSet", "namespace": "default", "name": "web"},
            "owner": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "namespace": "default", "name": "web",
                "uid": "w1"},
            "created": "2027-01-15T08:00:00Z",
            "object": {"metadata": {"labels": {"app": "web"}, "annotations": {"a": "b"}}}}))
        .unwrap()
    }

    fn status(ready: &str, since: i64) -> PodStatus {
        serde_json::from_value(json!({"phase": "Running", "conditions": [
            {"type": "Ready", "status": ready, "lastTransitionTime": at(since).to_string()}]}))
        .unwrap()
    }

    /// Looks at a pod with this status `later` seconds after `NOW`, when the table is current up to version `table`.
    fn look(
        readiness: &mut Readiness,
        status: &PodStatus,
        later: i64,
        (version, table): (u64, u64),
    ) -> ObservedPod {
        let look = Look {
            now: at(NOW + later),
            wall: at(WALL + later),
            version,
            in_force: &|version| version <= table,
        };
        readiness.look(&record(), None, Some(status), &look)
    }

    #[test]
    fn the_first_look_takes_the_time_from_the_status_and_moves_it_to_the_steady_line() {
        let mut readiness = Readiness::default();
        let pod = look(&mut readiness, &status("True", WALL - 40), 0, (1, 1));
        assert_eq!(pod.ready_changed, Some(at(NOW - 40)));
        assert!(pod.is_available(Duration::from_secs(40), at(NOW)));
        assert!(!pod.is_available(Duration::from_secs(41), at(NOW)));
    }

    #[test]
    fn a_time_in_the_future_of_the_wall_clock_counts_as_now() {
        let mut readiness = Readiness::default();
        let pod = look(&mut readiness, &status("True", WALL + 500), 0, (1, 1));
        assert_eq!(pod.ready_changed, Some(at(NOW)));
    }

    #[test]
    fn a_later_change_has_the_time_of_the_look_that_saw_it() {
        let mut readiness = Readiness::default();
        let pod = look(&mut readiness, &status("False", WALL - 40), 0, (1, 1));
        assert_eq!((pod.is_ready, pod.ready_changed), (false, None));
        // The clock of the status is wrong by an hour.
        let ready = status("True", WALL - 3600);
        let pod = look(&mut readiness, &ready, 5, (2, 2));
        assert_eq!(pod.ready_changed, Some(at(NOW + 5)));
        let pod = look(&mut readiness, &ready, 9, (3, 3));
        assert_eq!(pod.ready_changed, Some(at(NOW + 5)));
        let unready = status("False", WALL - 3600);
        let pod = look(&mut readiness, &unready, 10, (4, 4));
        assert_eq!(
            (pod.is_ready, pod.ready_changed),
            (false, Some(at(NOW + 10)))
        );
    }

    #[test]
    fn a_ready_pod_is_in_the_table_when_the_table_has_followed_its_change() {
        let mut readiness = Readiness::default();
        let ready = status("True", WALL);
        let is_in_table = |readiness: &mut Readiness, versions| {
            let pod = look(readiness, &ready, 0, versions);
            assert!(pod.is_ready);
            pod.is_in_table
        };
        assert!(!is_in_table(&mut readiness, (7, 6)));
        assert_eq!(readiness.seen_at(&PodUid::from("u1")), Some(7));
        // Later changes of other pods do not make the pod wait for a newer table.
        assert!(is_in_table(&mut readiness, (9, 7)));
        assert_eq!(readiness.seen_at(&PodUid::from("u1")), Some(7));
        readiness.retain(|_| false);
        assert!(!is_in_table(&mut readiness, (9, 7)));
    }

    #[test]
    fn a_pod_without_room_is_pending_and_one_that_may_not_run_here_has_failed() {
        let rejected = |reason: &str| {
            let status: PodStatus =
                serde_json::from_value(json!({"phase": "Failed", "reason": reason,
                "message": "Pod was rejected: Node didn't have enough resource: memory"}))
                .unwrap();
            let pod = look(&mut Readiness::default(), &status, 0, (1, 1));
            (pod.phase, pod.waits_for_room)
        };
        assert_eq!(rejected("OutOfmemory"), (PodPhase::Pending, true));
        assert_eq!(rejected("NodeAffinity"), (PodPhase::Failed, false));
    }

    #[test]
    fn containers_come_with_their_kind_and_their_end() {
        let status: PodStatus = serde_json::from_value(json!({"phase": "Running",
            "initContainerStatuses": [{"name": "first"}],
            "containerStatuses": [{"name": "main", "restartCount": 3,
                "state": {"terminated": {"exitCode": 7, "finishedAt": at(WALL - 30).to_string()}}}]}))
        .unwrap();
        let pod = look(&mut Readiness::default(), &status, 0, (1, 1));
        let [init, main] = &pod.containers[..] else {
            panic!("{:?}", pod.containers);
        };
        assert_eq!((init.kind, init.exit_code), (ContainerKind::Init, None));
        assert_eq!(
            (main.kind, main.exit_code),
            (ContainerKind::Regular, Some(7))
        );
        assert_eq!((main.restarts, main.finished_at), (3, Some(at(NOW - 30))));
        assert_eq!(pod.labels, BTreeMap::from([("app".into(), "web".into())]));
        assert_eq!(pod.annotations, BTreeMap::from([("a".into(), "b".into())]));
    }

    #[test]
    fn a_pod_without_a_status_is_as_its_record_says() {
        let look = Look {
            now: at(NOW),
            wall: at(WALL),
            version: 1,
            in_force: &|_| true,
        };
        let deleted = PodRecord {
            deleted_at: Some(at(NOW - 1)),
            ..record()
        };
        let pod = Readiness::default().look(&deleted, None, None, &look);
        assert!(pod.is_terminating());
        assert_eq!(pod.phase, PodPhase::Pending);
        assert_eq!(pod.deleted_at, Some(at(NOW - 1)));
    }
}
