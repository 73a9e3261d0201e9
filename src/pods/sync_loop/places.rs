//! Places on the node: decides which pods are admitted, and in which order the rejected pods wait for room
//! (kubelet-probes 5.3, 10; deviations: rejected-pods-wait).
//!
//! Invariants: a waiting pod has no worker and uses no resources of the node. An ending pod uses its resources until
//! none of its containers runs. A running pod keeps its place, even if pods of a higher rank wait. No pod is stopped to
//! make room.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::Parts;
use crate::api::{Pod, PodPhase, PodSource, PodStatus, PodUid};
use crate::base::clock::{Moment, Time};
use crate::engine::runtime::RuntimePodStatus;
use crate::pods::actions;
use crate::pods::admission::{self, Closed, Node, Rejection, Taken};
use crate::pods::events::EventType;
use crate::pods::status;
use crate::pods::workers::UpdateKind;

/// True if a rejection of the pod is final, as a kubelet's is: a controller of the cluster makes another pod for one of the
/// API server that was rejected.
fn is_rejected_for_good(pod: &Pod) -> bool {
    pod.source() == PodSource::Api
}

/// The pods that wait for room.
#[derive(Default)]
pub struct Places(HashMap<PodUid, Waiting>);

struct Waiting {
    since: Time,
    /// The last rejection reason for which an event was recorded.
    told: Option<Cow<'static, str>>,
}

impl Places {
    pub(super) fn waits(&self, uid: &PodUid) -> bool {
        self.0.contains_key(uid)
    }

    pub(super) fn forget(&mut self, uid: &PodUid) {
        self.0.remove(uid);
    }
}

/// The resources of the node that pods use.
struct Room {
    /// The resources that the staying pods use.
    staying: Taken,
    /// The resources that the staying pods and the ending pods use.
    now: Taken,
    ending: Vec<Arc<Pod>>,
}

impl Room {
    fn take(&mut self, pod: &Pod) {
        self.staying.add(pod);
        self.now.add(pod);
    }

    /// Returns the present use without the use of older versions of this pod. An older version that is ending does not
    /// keep the pod from its place, because the pod's worker waits for the end of the older version.
    fn beside_older_versions(&self, pod: &Pod) -> Cow<'_, Taken> {
        let name = pod.full_name();
        if self.ending.iter().all(|e| e.full_name() != name) {
            return Cow::Borrowed(&self.now);
        }
        let mut taken = self.staying.clone();
        let others = self.ending.iter().filter(|e| e.full_name() != name);
        others.for_each(|pod| taken.add(pod));
        Cow::Owned(taken)
    }
}

impl Parts {
    pub(super) fn handle_additions(&self, pods: Vec<Arc<Pod>>) {
        pods.iter()
            .for_each(|p| self.evictions.seen(p, Moment::now()));
        self.end_predecessors(&pods);
        let (ended, new): (Vec<_>, Vec<_>) = pods.into_iter().partition(|pod| {
            let may_be_admitted = self.is_rejected(pod.uid()) && !is_rejected_for_good(pod);
            let has_ended = self.phase(pod.uid()).is_terminal() && !may_be_admitted;
            let is_marked = self.evictions.is_evicted(pod.uid(), Moment::now());
            has_ended || is_marked || self.workers.is_terminating(pod.uid())
        });
        for pod in ended {
            self.pods.set(pod.clone());
            self.dispatch(pod, UpdateKind::Create);
        }
        self.admit(new);
    }

    pub(super) fn handle_update(&self, pod: Arc<Pod>) {
        self.evictions.seen(&pod, Moment::now());
        let ends = pod.metadata.deletion_timestamp.is_some();
        let is_rejected = self.is_rejected(pod.uid()) && !is_rejected_for_good(&pod);
        if !ends && is_rejected && !self.workers.contains(pod.uid()) {
            return self.admit(vec![pod]);
        }
        self.pods.set(pod.clone());
        self.dispatch(pod, UpdateKind::Update);
    }

    /// Starts these pods and the pods that already wait, as far as there is room.
    pub(super) fn admit(&self, pods: Vec<Arc<Pod>>) {
        if pods.is_empty() {
            return;
        }
        let now = Time::now();
        for pod in pods {
            let status = self.statuses.get(pod.uid());
            let runtime = self.runtime.pod(pod.uid());
            let had = actions::in_effect(&pod, &runtime, status.as_deref());
            let rejected = status.filter(|s| Rejection::of(s).is_some());
            let since = rejected.and_then(|s| s.start_time).unwrap_or(now);
            let waiting = Waiting { since, told: None };
            self.places
                .borrow_mut()
                .0
                .insert(pod.uid().clone(), waiting);
            let uid = pod.uid().clone();
            self.pods.set(pod);
            // What it had before counts, and not what it asks for since then.
            self.pods.set_granted(&uid, had.map(Arc::new));
        }
        self.admit_waiting();
    }

    /// Starts the waiting pods for which there is room now. A pod that does not fit does not hold up smaller pods
    /// behind it.
    pub(super) fn admit_waiting(&self) {
        let waiting = self.waiting_in_order();
        if waiting.is_empty() {
            return;
        }
        // The huge pages are read again, because people may reserve them while the daemon runs.
        let node = Node {
            huge_pages: (self.huge_pages)(),
            ..self.node.get()
        };
        let closed = self.closed.get();
        let mut room = self.room();
        for pod in waiting {
            if let Some(closed) = closed.filter(|closed| !self.may_come(&pod, *closed, &room)) {
                self.hold_back(&pod, &closed.rejection());
                continue;
            }
            let granted = self.pods.granted(pod.uid());
            let asks = granted.as_ref().unwrap_or(&pod);
            match self.check(asks, &node, &room.beside_older_versions(&pod)) {
                Err(why) if !why.is_temporary() && !self.runs(pod.uid()) => self.reject(&pod, &why),
                Err(why) if !self.runs(pod.uid()) => {
                    // For the pods behind this one, the room that it is about to get counts as used.
                    match self.check(asks, &node, &room.staying) {
                        Ok(()) => {
                            room.take(asks);
                            self.keep_waiting(&pod, &why);
                        }
                        Err(_) => self.reject(&pod, &why),
                    }
                }
                Ok(()) | Err(_) => {
                    room.take(asks);
                    self.start(pod);
                }
            }
        }
    }

    /// Checks whether the node admits the pod. The choice of nodes of a pod that had its place does not count: it holds when
    /// a pod is scheduled, and is ignored during its execution.
    fn check(&self, pod: &Pod, node: &Node, taken: &Taken) -> Result<(), Rejection> {
        match admission::admit(pod, node, taken) {
            Err(why) if why.is_of_selector() && self.had_its_place(pod.uid()) => {
                admission::admit(&admission::without_selector(pod), node, taken)
            }
            checked => checked,
        }
    }

    /// Tells whether the pod may start although the node takes no pods: its containers run already, or the node is cordoned
    /// and the pod had its place before, also with another content of its file.
    fn may_come(&self, pod: &Pod, closed: Closed, room: &Room) -> bool {
        // An earlier daemon may have started the older version.
        let is_older = |r: &Arc<RuntimePodStatus>| {
            let metadata = &pod.metadata;
            (&r.name, &r.namespace) == (&metadata.name, &metadata.namespace) && r.is_running()
        };
        let is_known = || {
            let name = pod.full_name();
            let has_older = room.ending.iter().any(|e| e.full_name() == name)
                || self.runtime.pods().iter().any(is_older);
            self.had_its_place(pod.uid()) || has_older
        };
        self.runs(pod.uid()) || !closed.ends_pods() && is_known()
    }

    /// Returns the waiting pods in the order in which they get room. Pods that had a place come first, then higher
    /// priorities, then longer waits. Static pods have no creation time, so the name makes the order the same at every
    /// start.
    fn waiting_in_order(&self) -> Vec<Arc<Pod>> {
        let places = self.places.borrow();
        let pods = places.0.iter().filter_map(|(uid, waiting)| {
            let pod = self.pods.get(uid)?;
            let priority = pod.spec.priority.unwrap_or(0);
            let rank = (!self.had_its_place(uid), Reverse(priority), waiting.since);
            Some((rank, pod.full_name(), pod))
        });
        let mut pods: Vec<_> = pods.collect();
        pods.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        pods.into_iter().map(|(_, _, pod)| pod).collect()
    }

    /// True if the pod already had a place when it came: an earlier daemon ran it, or it was evicted and starts anew.
    fn had_its_place(&self, uid: &PodUid) -> bool {
        let status = self.statuses.get(uid);
        let was_active =
            status.is_some_and(|s| !s.phase.is_terminal() && Rejection::of(&s).is_none());
        was_active || self.evictions.comes_back(uid) || self.runs(uid)
    }

    fn runs(&self, uid: &PodUid) -> bool {
        self.runtime.pod(uid).is_running()
    }

    fn is_rejected(&self, uid: &PodUid) -> bool {
        let status = self.statuses.get(uid);
        status.is_some_and(|s| Rejection::of(&s).is_some())
    }

    /// Computes the use of the node. A pod that has ended has no place any more, unless it starts anew. An ending pod
    /// has its place until none of its containers runs.
    fn room(&self) -> Room {
        let places = self.places.borrow();
        let is_active = |uid: &PodUid| !self.phase(uid).is_terminal();
        let stays = |pod: &Arc<Pod>| {
            let uid = pod.uid();
            !places.waits(uid) && (is_active(uid) || self.evictions.comes_back(uid))
        };
        let staying = self.pods.all_granted().into_iter();
        let staying: Vec<_> = staying.filter(stays).collect();
        let uids: HashSet<&PodUid> = staying.iter().map(|pod| pod.uid()).collect();
        let mut ending = self.workers.ending();
        ending.retain(|pod| {
            let uid = pod.uid();
            !uids.contains(uid) && (is_active(uid) || self.runs(uid))
        });
        let staying = Taken::by(staying.iter().map(AsRef::as_ref));
        let mut now = staying.clone();
        ending.iter().for_each(|pod| now.add(pod));
        Room {
            staying,
            now,
            ending,
        }
    }

    fn start(&self, pod: Arc<Pod>) {
        let waited = self.places.borrow_mut().0.remove(pod.uid());
        if self.is_rejected(pod.uid()) {
            let old = self.statuses.get(pod.uid());
            let old = old.map(|old| (*old).clone()).unwrap_or_default();
            let status = PodStatus {
                phase: PodPhase::Pending,
                qos_class: status::qos_class(&pod).into(),
                init_container_statuses: old.init_container_statuses,
                container_statuses: old.container_statuses,
                ..PodStatus::default()
            };
            self.statuses.begin_anew(&pod, status);
        }
        if waited.is_some_and(|w| w.told.is_some()) {
            let text = "There is room for the pod now";
            self.recorder
                .record(&pod.reference(), "", EventType::Normal, "Admitted", text);
        }
        self.dispatch(pod, UpdateKind::Create);
    }

    /// Lets the pod wait, because pods that are ending still use the room that the waiting pod needs.
    fn keep_waiting(&self, pod: &Pod, why: &Rejection) {
        self.refuse(pod, PodPhase::Pending, why, why.waiting_text());
    }

    /// Lets the pod wait, because the node takes no pods. A pod of the API server is rejected, as by a kubelet.
    fn hold_back(&self, pod: &Pod, why: &Rejection) {
        if is_rejected_for_good(pod) {
            return self.reject(pod, why);
        }
        self.tell(pod, why);
        self.refuse(pod, PodPhase::Pending, why, why.held_back_text());
    }

    /// kubelet-probes 5.3 "Reject": rejects a pod. A pod that lacks room or selects other nodes is tried again, unless it comes
    /// from the API server. Any other pod is not tried again until its file changes or the daemon is restarted.
    pub(super) fn reject(&self, pod: &Pod, why: &Rejection) {
        self.tell(pod, why);
        self.refuse(pod, PodPhase::Failed, why, why.text());
        let is_tried_again = why.is_temporary() || why.is_of_selector();
        if !is_tried_again || is_rejected_for_good(pod) {
            self.places.borrow_mut().forget(pod.uid());
        }
    }

    /// Records the event of a rejection, but not again while the reason is the same.
    fn tell(&self, pod: &Pod, why: &Rejection) {
        let Rejection { reason, message } = why;
        if let Some(waiting) = self.places.borrow_mut().0.get_mut(pod.uid())
            && waiting.told.replace(reason.clone()).as_ref() == Some(reason)
        {
            return;
        }
        self.metrics.rejected(reason);
        self.recorder
            .record(&pod.reference(), "", EventType::Warning, reason, message);
    }

    fn refuse(&self, pod: &Pod, phase: PodPhase, why: &Rejection, message: String) {
        let places = self.places.borrow();
        let since = places.0.get(pod.uid()).map(|waiting| waiting.since);
        drop(places);
        // A pod that ran before has counts, which it keeps.
        let old = self.statuses.get(pod.uid());
        let old = old.filter(|_| phase == PodPhase::Pending && why.is_of_closed_node());
        let old = old.map(|old| (*old).clone()).unwrap_or_default();
        let status = PodStatus {
            init_container_statuses: old.init_container_statuses,
            container_statuses: old.container_statuses,
            phase,
            reason: why.reason.to_string(),
            message,
            qos_class: status::qos_class(pod).into(),
            start_time: since,
            ..PodStatus::default()
        };
        self.statuses.set(pod, status);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use serde_json::json;

    use super::*;
    use crate::api::sysctls::SysctlAllowlist;
    use crate::engine::runtime::RuntimeState;
    use crate::fake_runtime::runtime_container_status;
    use crate::pods::eviction::HeldFor;
    use crate::pods::sources::PodOperation;
    use crate::pods::sync_loop::tests::{Harness, SOON};
    use crate::pods::workers::Phase;
    use crate::test_pods;

    /// Makes a harness of a node with two processors.
    fn harness() -> Harness {
        let h = Harness::new();
        h.node(|node| node.cpu_milli = 2000);
        h.seen();
        h
    }

    fn pod(name: &str, cpu: &str) -> Arc<Pod> {
        prioritized(name, cpu, 0)
    }

    fn prioritized(name: &str, cpu: &str, priority: i32) -> Arc<Pod> {
        let resources = json!({"requests": {"cpu": cpu}});
        let container = json!({"name": "c", "image": "i", "resources": resources});
        let spec = json!({"priority": priority, "containers": [container]});
        test_pods::pod(name).uid(name).spec(spec).arc()
    }

    #[track_caller]
    fn shows(h: &Harness, uid: &str, phase: PodPhase, reason: &str) {
        let status = h.parts.statuses.get(&uid.into()).unwrap();
        assert_eq!((status.phase, status.reason.as_str()), (phase, reason));
    }

    fn add(h: &Harness, pods: &[Arc<Pod>]) {
        h.config(PodOperation::Add, pods);
    }

    fn remove(h: &Harness, pod: &Arc<Pod>) {
        h.config(PodOperation::Remove, std::slice::from_ref(pod));
    }

    /// Waits until no container of an ending pod runs any more.
    fn until_ended(h: &Harness) {
        let deadline = std::time::Instant::now() + SOON;
        while !h.parts.workers.ending().is_empty() {
            assert!(std::time::Instant::now() < deadline, "a pod does not end");
            std::thread::yield_now();
        }
    }

    /// Waits for the first sync of the pod, and drops the reports of all runs before it.
    #[track_caller]
    fn starts(h: &Harness, uid: &str) {
        let wanted = (uid.to_owned(), Phase::Sync);
        while h.ran.recv_timeout(SOON).expect("a run") != wanted {}
    }

    /// Checks that the pod does not start. A pod has a worker from the moment at which its start is decided.
    #[track_caller]
    fn starts_not(h: &Harness, uid: &str) {
        assert!(!h.parts.workers.contains(&uid.into()));
    }

    /// A pod is renamed on a full node. The old pod is still ending when the new pod comes.
    #[test]
    fn a_pod_that_takes_the_place_of_one_that_is_ending_starts_when_that_has_ended() {
        let mut h = harness();
        let (old, new) = (pod("old", "2"), pod("new", "2"));
        add(&h, std::slice::from_ref(&old));
        h.expect("old", Phase::Sync);
        remove(&h, &old);
        add(&h, &[new]);
        shows(&h, "new", PodPhase::Pending, "OutOfcpu");
        let status = h.parts.statuses.get(&"new".into()).unwrap();
        assert_eq!(
            status.message,
            "Pod waits until other pods have ended: Node didn't have enough resource: cpu, requested: 2000, used: 2000, capacity: 2000"
        );
        h.parts.admit_waiting();
        starts_not(&h, "new");
        h.open();
        until_ended(&h);
        h.parts.admit_waiting();
        starts(&h, "new");
        shows(&h, "new", PodPhase::Pending, "");
    }

    /// A pod is renamed on a full node, and the file with the new name is seen before the old file is gone.
    #[test]
    fn a_pod_that_was_rejected_for_want_of_room_starts_when_room_comes() {
        let mut h = harness();
        h.open();
        let (old, new) = (pod("old", "2"), pod("new", "1"));
        add(&h, std::slice::from_ref(&old));
        h.expect("old", Phase::Sync);
        add(&h, &[new]);
        shows(&h, "new", PodPhase::Failed, "OutOfcpu");
        h.parts.handle_housekeeping();
        h.parts.handle_sync_tick(Moment::now());
        starts_not(&h, "new");
        remove(&h, &old);
        until_ended(&h);
        h.parts.handle_sync_tick(Moment::now());
        starts(&h, "new");
        let events = h.parts.recorder.list();
        let told: Vec<_> = events.iter().map(|e| (&*e.reason, e.count)).collect();
        assert_eq!(
            told,
            [("OutOfcpu", 1), ("Admitted", 1)],
            "each is told once"
        );
    }

    #[test]
    fn on_a_node_that_takes_no_pods_new_ones_wait_and_are_told_once() {
        for (closed, reason) in [
            (Closed::Cordoned, "NodeCordoned"),
            (Closed::Drained, "NodeDrained"),
            (Closed::ShuttingDown, "NodeShutdown"),
        ] {
            let mut h = harness();
            h.open();
            h.parts.closed.set(Some(closed));
            add(&h, &[pod("new", "1")]);
            for _ in 0..2 {
                h.parts.handle_housekeeping();
                h.parts.handle_sync_tick(Moment::now());
                starts_not(&h, "new");
                shows(&h, "new", PodPhase::Pending, reason);
            }
            h.parts.closed.set(None);
            h.parts.handle_room();
            starts(&h, "new");
            shows(&h, "new", PodPhase::Pending, "");
            let events = h.parts.recorder.list();
            let told: Vec<_> = events.iter().map(|e| (&*e.reason, e.count)).collect();
            assert_eq!(told, [(reason, 1), ("Admitted", 1)]);
        }
    }

    /// After a reboot, a pod that the node had is at home on a cordoned node, and not on a drained one.
    #[test]
    fn a_cordon_is_not_for_pods_that_the_node_had() {
        for (closed, is_started) in [(Closed::Cordoned, true), (Closed::Drained, false)] {
            let mut h = harness();
            h.open();
            let old = pod("old", "1");
            let status = PodStatus {
                phase: PodPhase::Running,
                ..PodStatus::default()
            };
            h.parts.statuses.set(&old, status);
            h.parts.closed.set(Some(closed));
            add(&h, &[old]);
            assert_eq!(h.parts.workers.contains(&"old".into()), is_started);
        }
    }

    /// A daemon that is killed during a drain gives each pod that still runs its worker, which ends it.
    #[test]
    fn a_pod_that_runs_has_a_worker_whatever_the_order() {
        let mut h = harness();
        h.open();
        let running = RuntimePodStatus {
            uid: "runs".into(),
            containers: vec![runtime_container_status("c", "1", RuntimeState::Running, 0)],
            ..RuntimePodStatus::default()
        };
        h.runtime.pods.lock().unwrap().push(Arc::new(running));
        h.parts.closed.set(Some(Closed::ShuttingDown));
        add(&h, &[pod("runs", "1")]);
        starts(&h, "runs");
    }

    #[test]
    fn a_pod_of_the_api_server_is_rejected_while_the_node_shuts_down() {
        let mut h = harness();
        h.open();
        h.parts.closed.set(Some(Closed::ShuttingDown));
        let api = test_pods::pod("api").uid("api");
        let api = api.annotation("kubernetes.io/config.source", "api");
        add(&h, &[api.arc()]);
        shows(&h, "api", PodPhase::Failed, "NodeShutdown");
        h.parts.closed.set(None);
        h.parts.handle_room();
        starts_not(&h, "api");
    }

    /// A daemon finds that the shutdown is over which has ended a pod, on a node that is drained.
    #[test]
    fn a_pod_whose_wait_is_over_does_not_start_on_a_drained_node() {
        let mut h = harness();
        h.open();
        let held = pod("held", "1");
        let data = crate::base::paths::Layout::new(h.dir.path()).pod_data(held.uid());
        std::fs::create_dir_all(data).unwrap();
        h.parts.evictions.hold(&held, HeldFor::Shutdown, None);
        h.parts.evictions.ended(&held, Moment::now());
        let over = Moment::now();
        h.parts.evictions.release_held(HeldFor::Shutdown, over);
        h.parts.closed.set(Some(Closed::Drained));
        add(&h, &[held]);
        h.parts.handle_sync_tick(over);
        h.parts.handle_housekeeping();
        starts_not(&h, "held");
        shows(&h, "held", PodPhase::Pending, "NodeDrained");
        h.parts.closed.set(None);
        h.parts.handle_room();
        starts(&h, "held");
    }

    #[test]
    fn a_held_pod_waits_for_the_node_and_not_for_room() {
        let mut h = harness();
        h.open();
        let held = pod("held", "1");
        let data = crate::base::paths::Layout::new(h.dir.path()).pod_data(held.uid());
        std::fs::create_dir_all(data).unwrap();
        h.parts.closed.set(Some(Closed::Drained));
        h.parts.evictions.hold(&held, HeldFor::Drain, None);
        h.parts.evictions.ended(&held, Moment::now());
        // The next daemon finds it so.
        add(&h, std::slice::from_ref(&held));
        assert!(!h.parts.places.borrow().waits(held.uid()));
        h.parts
            .evictions
            .release_held(HeldFor::Drain, Moment::now());
        h.parts.handle_sync_tick(Moment::now());
        let syncs = || h.ran.try_iter().filter(|(_, phase)| *phase == Phase::Sync);
        assert_eq!(syncs().count(), 0, "the node takes no pods yet");
        h.parts.closed.set(None);
        let deadline = std::time::Instant::now() + SOON;
        while syncs().count() == 0 {
            assert!(std::time::Instant::now() < deadline, "it does not start");
            h.parts.handle_room();
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_pod_that_has_completed_makes_room() {
        let mut h = harness();
        h.open();
        let (job, next) = (pod("job", "2"), pod("next", "2"));
        add(&h, std::slice::from_ref(&job));
        h.expect("job", Phase::Sync);
        add(&h, &[next]);
        let done = PodStatus {
            phase: PodPhase::Succeeded,
            ..PodStatus::default()
        };
        h.parts.statuses.set(&job, done);
        h.parts.handle_sync_tick(Moment::now());
        h.expect("next", Phase::Sync);
    }

    #[test]
    fn the_higher_priority_and_then_the_longer_wait_comes_first_and_a_large_one_holds_up_none() {
        let mut h = harness();
        h.open();
        let old = pod("old", "2");
        add(&h, std::slice::from_ref(&old));
        h.expect("old", Phase::Sync);
        let waits_since = |pod: &Arc<Pod>, seconds: u64| {
            let status = PodStatus {
                phase: PodPhase::Failed,
                reason: "OutOfcpu".into(),
                message: "Pod was rejected: no room".into(),
                start_time: Some((SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).into()),
                ..PodStatus::default()
            };
            h.parts.statuses.set(pod, status);
            add(&h, std::slice::from_ref(pod));
        };
        let (first, second) = (pod("z-first", "1"), pod("a-second", "1"));
        let (large, urgent) = (
            prioritized("large", "3", 9),
            prioritized("urgent", "500m", 5),
        );
        for (pod, seconds) in [(&second, 200), (&first, 100), (&large, 1), (&urgent, 300)] {
            waits_since(pod, seconds);
        }
        remove(&h, &old);
        until_ended(&h);
        h.parts.admit_waiting();
        for (uid, phase, reason) in [
            ("large", PodPhase::Failed, "OutOfcpu"),
            ("urgent", PodPhase::Pending, ""),
            ("z-first", PodPhase::Pending, ""),
            ("a-second", PodPhase::Failed, "OutOfcpu"),
        ] {
            shows(&h, uid, phase, reason);
        }
    }

    /// After a restart of the daemon, the statuses of the earlier daemon decide which pods keep their places and which
    /// wait.
    #[test]
    fn after_a_restart_who_ran_keeps_its_place_and_who_was_rejected_waits_on() {
        let mut h = harness();
        h.open();
        let (runs, waits) = (pod("z-runs", "2"), pod("a-waits", "2"));
        let running = PodStatus {
            phase: PodPhase::Running,
            ..PodStatus::default()
        };
        h.parts.statuses.set(&runs, running);
        let rejected = PodStatus {
            phase: PodPhase::Failed,
            reason: "OutOfcpu".into(),
            message: "Pod was rejected: no room".into(),
            ..PodStatus::default()
        };
        h.parts.statuses.set(&waits, rejected);
        add(&h, &[runs.clone(), waits]);
        h.expect("z-runs", Phase::Sync);
        shows(&h, "a-waits", PodPhase::Failed, "OutOfcpu");
        remove(&h, &runs);
        until_ended(&h);
        h.parts.handle_sync_tick(Moment::now());
        starts(&h, "a-waits");
    }

    /// A wish for more that was not granted does not cost a pod its place after a reboot, and takes none from another.
    #[test]
    fn a_pod_comes_back_with_what_it_had_and_not_with_what_it_wishes() {
        let mut h = harness();
        h.open();
        let wishes = pod("wishes", "9");
        let had = json!({"name": "c", "containerID": "podprobe://1", "resources": {"requests": {"cpu": "1"}}});
        let ran = PodStatus {
            phase: PodPhase::Running,
            container_statuses: vec![serde_json::from_value(had).unwrap()],
            ..PodStatus::default()
        };
        h.parts.statuses.set(&wishes, ran);
        add(&h, &[wishes]);
        h.expect("wishes", Phase::Sync);
        shows(&h, "wishes", PodPhase::Running, "");
        add(&h, &[pod("beside", "1")]);
        h.expect("beside", Phase::Sync);
    }

    /// A running pod is not rejected for lack of room, even if another source has sent its pods first.
    #[test]
    fn a_pod_that_runs_is_not_rejected_for_want_of_room() {
        let mut h = harness();
        h.open();
        let live = RuntimePodStatus {
            uid: "runs".into(),
            name: "runs".into(),
            containers: vec![runtime_container_status("c", "1", RuntimeState::Running, 0)],
            ..RuntimePodStatus::default()
        };
        h.runtime.pods.lock().unwrap().push(Arc::new(live));
        add(&h, &[pod("other", "2")]);
        h.expect("other", Phase::Sync);
        add(&h, &[pod("runs", "2")]);
        h.expect("runs", Phase::Sync);
    }

    fn wants_ssd() -> Arc<Pod> {
        let selects = json!({"nodeSelector": {"disk": "ssd"}, "containers": [{"name": "c"}]});
        test_pods::pod("picky").uid("picky").spec(selects).arc()
    }

    fn has_ssd(node: &mut Node) {
        node.labels = [("disk".to_owned(), "ssd".to_owned())].into();
    }

    /// In a cluster the labels change while the daemon runs.
    #[test]
    fn a_pod_rejected_for_its_selector_starts_when_the_node_gets_the_label() {
        let mut h = harness();
        h.open();
        add(&h, &[wants_ssd()]);
        shows(&h, "picky", PodPhase::Failed, "NodeAffinity");
        h.parts.handle_sync_tick(Moment::now());
        starts_not(&h, "picky");
        h.node(has_ssd);
        h.parts.handle_sync_tick(Moment::now());
        h.expect("picky", Phase::Sync);
    }

    /// A daemon that is started again finds the pod running, and the label gone.
    #[test]
    fn a_pod_that_runs_is_rejected_for_nothing() {
        let mut h = harness();
        h.open();
        let runs = |uid: &str| {
            let running = RuntimePodStatus {
                uid: uid.into(),
                containers: vec![runtime_container_status("c", "1", RuntimeState::Running, 0)],
                ..RuntimePodStatus::default()
            };
            h.runtime.pods.lock().unwrap().push(Arc::new(running));
        };
        runs("picky");
        add(&h, &[wants_ssd()]);
        h.expect("picky", Phase::Sync);
        let sysctls = json!([{"name": "kernel.other", "value": "1"}]);
        let spec = json!({"securityContext": {"sysctls": sysctls}, "containers": [{"name": "c"}]});
        let tuned = test_pods::pod("tuned").uid("tuned").spec(spec).arc();
        runs("tuned");
        add(&h, &[tuned]);
        h.expect("tuned", Phase::Sync);
    }

    /// A pod that had its place, and runs no more, is rejected for what the node lacks.
    #[test]
    fn only_the_selector_of_a_pod_that_had_its_place_does_not_count() {
        let mut h = harness();
        h.open();
        let picky = wants_ssd();
        let status = PodStatus {
            phase: PodPhase::Running,
            ..PodStatus::default()
        };
        h.parts.statuses.set(&picky, status);
        h.node(|node| node.max_pods = 0);
        add(&h, std::slice::from_ref(&picky));
        shows(&h, "picky", PodPhase::Failed, "OutOfpods");
    }

    /// A pod with a forbidden kernel parameter waits for a change of its file or a restart of the daemon.
    #[test]
    fn a_pod_rejected_for_another_reason_waits_for_its_file_or_a_restart() {
        let mut h = harness();
        h.open();
        let sysctls = json!([{"name": "net.core.somaxconn", "value": "1"}]);
        let spec = json!({"securityContext": {"sysctls": sysctls}, "containers": [{"name": "c"}]});
        let picky = test_pods::pod("picky").uid("picky").spec(spec).arc();
        add(&h, std::slice::from_ref(&picky));
        shows(&h, "picky", PodPhase::Failed, "SysctlForbidden");
        let allowed = SysctlAllowlist::new((6, 1), &["net.core.*".to_owned()]).unwrap();
        h.node(|node| node.sysctls = allowed);
        h.parts.handle_sync_tick(Moment::now());
        starts_not(&h, "picky");
        // the next daemon adds the pod again
        add(&h, std::slice::from_ref(&picky));
        h.expect("picky", Phase::Sync);
    }

    #[test]
    fn an_edit_of_a_rejected_pod_is_admitted() {
        let mut h = harness();
        h.open();
        add(&h, &[pod("a", "3")]);
        shows(&h, "a", PodPhase::Failed, "OutOfcpu");
        h.config(PodOperation::Update, &[pod("a", "1")]);
        h.expect("a", Phase::Sync);
        shows(&h, "a", PodPhase::Pending, "");
    }

    #[test]
    fn an_edit_of_a_pod_on_a_full_node_does_not_wait_for_room_but_for_its_older_version() {
        let h = harness();
        let old = pod("old", "2");
        add(&h, std::slice::from_ref(&old));
        h.expect("old", Phase::Sync);
        remove(&h, &old);
        let mut edited = Pod::clone(&pod("edited", "2"));
        edited.metadata.name = old.metadata.name.clone();
        edited.metadata.namespace = old.metadata.namespace.clone();
        add(&h, &[Arc::new(edited)]);
        assert!(h.parts.workers.contains(&"edited".into()));
        assert!(h.parts.statuses.get(&"edited".into()).is_none());
    }

    #[test]
    fn a_pod_that_is_removed_while_it_waits_does_not_start() {
        let mut h = harness();
        h.open();
        let (old, new) = (pod("old", "2"), pod("new", "2"));
        add(&h, &[old.clone(), new.clone()]);
        // the order of the pods is the order of their names
        h.expect("new", Phase::Sync);
        shows(&h, "old", PodPhase::Failed, "OutOfcpu");
        remove(&h, &old);
        remove(&h, &new);
        assert!(h.parts.places.borrow().0.is_empty());
        until_ended(&h);
        h.parts.handle_sync_tick(Moment::now());
        let mut ran = h.ran.try_iter();
        assert!(!ran.any(|(uid, phase)| uid == "old" && phase == Phase::Sync));
    }
}
