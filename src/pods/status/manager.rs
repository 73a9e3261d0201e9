//! The status manager holds the latest status of every pod, with a version. Only the manager writes statuses
//! (kubelet-probes 9.6).
//!
//! Invariants: the lock is held for map operations, and while a status is written to its file in /run. Readers get an
//! `Arc` and never wait for other work of a writer. A status is in its file before anybody is told of it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::ages::Ages;
use super::conditions::{self, TooManyConditions, refresh_ready};
use super::container_statuses::UNSEEN_EXIT_CODE;
use super::kept::KeptStatuses;
use crate::api::conditions::ConditionChange;
use crate::api::pod::{PodSpec, RestartPolicy};
use crate::api::status::{ContainerState, ContainerStateTerminated};
use crate::api::{ContainerStatus, Pod, PodStatus, PodUid};
use crate::base::change_feed::{Aspect, ChangeFeed};
use crate::base::clock::{Moment, Time};
use crate::base::locks::Locked;
use crate::engine::runtime::ContainerId;
use crate::pods::actions::{ALL_CONTAINERS_RESTARTING, should_restart_after};

/// Holds the latest status of every pod.
pub struct StatusManager {
    statuses: Mutex<HashMap<PodUid, Arc<PodStatus>>>,
    ages: Mutex<Ages>,
    feed: Arc<ChangeFeed>,
    /// The place where each status is written before it is told; None in tests.
    kept: Option<KeptStatuses>,
}

impl StatusManager {
    /// Makes a manager with the statuses of an earlier daemon, which may be empty. The manager reports every change to
    /// `feed`.
    pub fn new(restored: HashMap<PodUid, PodStatus>, feed: Arc<ChangeFeed>) -> Self {
        let statuses = restored
            .into_iter()
            .map(|(uid, s)| (uid, Arc::new(s)))
            .collect();
        Self {
            statuses: Mutex::new(statuses),
            ages: Mutex::default(),
            feed,
            kept: None,
        }
    }

    /// Writes each status to `kept` before it is told. Those that are only in the checkpoint are written now.
    pub fn with_kept(self, kept: KeptStatuses) -> Self {
        for (uid, status) in self.lock().iter().filter(|(uid, _)| !kept.has(uid)) {
            kept.keep(uid, status);
        }
        Self {
            kept: Some(kept),
            ..self
        }
    }

    /// Replaces all ages with the ages from an earlier daemon.
    pub fn with_ages(self, ages: Ages) -> Self {
        Self {
            ages: Mutex::new(ages),
            ..self
        }
    }

    /// Returns the time since the pod's first status, by the boot clock, or `None` if the pod has no status.
    pub fn age(&self, uid: &PodUid, now: Moment) -> Option<Duration> {
        self.lock_ages().of(uid, now)
    }

    #[cfg(test)]
    pub(crate) fn set_ages(&self, ages: Ages) {
        *self.lock_ages() = ages;
    }

    /// Returns the ages of all pods, for the checkpoint.
    pub fn ages(&self) -> Ages {
        self.lock_ages().clone()
    }

    /// Returns the feed that gets every change of a status after the change.
    pub fn feed(&self) -> &ChangeFeed {
        &self.feed
    }

    /// Writes a status that is about to be stored. The lock is held, so that an older status never replaces a newer one.
    fn keep(&self, uid: &PodUid, status: &PodStatus) {
        if let Some(kept) = &self.kept {
            kept.keep(uid, status);
        }
    }

    fn changed(&self, uid: &PodUid) {
        self.feed.tell(uid, Aspect::Status);
    }

    /// Returns the latest status of a pod.
    pub fn get(&self, uid: &PodUid) -> Option<Arc<PodStatus>> {
        self.lock().get(uid).cloned()
    }

    /// Returns the statuses of all pods.
    pub fn all(&self) -> HashMap<PodUid, Arc<PodStatus>> {
        self.lock().clone()
    }

    /// Stores a new status. The whole old status stays if nothing has changed, or if a container would run again
    /// against its restart policy (9.6 "Refused"). The conditions that podprobe does not set stay as they are stored.
    pub fn set(&self, pod: &Pod, status: PodStatus) {
        self.store(pod, status, false);
    }

    /// Stores a status that was computed from `old`, as [`Self::set`] does. Returns false, and stores nothing, if another
    /// thread has changed the stored status since. The status would take that change back, such as a Ready that came
    /// meanwhile, so it must be computed anew.
    #[must_use]
    pub fn replace(&self, pod: &Pod, old: Option<&Arc<PodStatus>>, status: PodStatus) -> bool {
        let statuses = self.lock_for(pod);
        let is_newest = match (statuses.get(pod.uid()), old) {
            (Some(stored), Some(old)) => Arc::ptr_eq(stored, old),
            (stored, old) => stored.is_none() && old.is_none(),
        };
        if is_newest {
            self.store_in(statuses, pod, status, false);
        }
        is_newest
    }

    /// Stores the status of a pod that starts from its beginning, whatever has ended before.
    pub fn renew(&self, pod: &Pod, status: PodStatus) {
        self.store(pod, status, true);
    }

    fn store(&self, pod: &Pod, status: PodStatus, is_new: bool) {
        self.store_in(self.lock_for(pod), pod, status, is_new);
    }

    fn store_in(
        &self,
        mut statuses: MutexGuard<'_, HashMap<PodUid, Arc<PodStatus>>>,
        pod: &Pod,
        mut status: PodStatus,
        is_new: bool,
    ) {
        let old = statuses.get(pod.uid());
        if let Some(old) = old {
            if conditions::take_those_of_others(&mut status, &old.conditions) {
                refresh_ready(&pod.spec, &mut status, &old.conditions, Time::now());
            }
            if **old == status {
                return;
            }
            if !is_new && let Some(container) = revived_against_policy(pod, old, &status) {
                return log::error!(
                    "the status of {} is not updated: container {container} ended for good and cannot run again",
                    pod.reference()
                );
            }
        }
        self.keep(pod.uid(), &status);
        statuses.insert(pod.uid().clone(), Arc::new(status));
        drop(statuses);
        self.changed(pod.uid());
    }

    /// Stores the first status of a pod that was rejected and is now admitted. The pod's age begins now.
    pub fn begin_anew(&self, pod: &Pod, status: PodStatus) {
        self.lock_ages().forget(pod.uid());
        self.set(pod, status);
    }

    /// Sets the readiness of one container, for the sync loop. Recomputes Ready and ContainersReady, but not the phase.
    /// Does nothing if the pod does not have this instance.
    pub fn set_container_readiness(&self, pod: &Pod, id: &ContainerId, ready: bool) {
        self.change_container(pod, id, |container| {
            let changed = container.ready != ready;
            container.ready = ready;
            changed
        });
    }

    /// Sets `started` of one container, for the sync loop. Sets no other field of the container.
    pub fn set_container_started(&self, pod: &Pod, id: &ContainerId, started: bool) {
        self.change_container(pod, id, |container| {
            let changed = container.started != Some(started);
            container.started = Some(started);
            changed
        });
    }

    /// Sets or removes a condition that podprobe does not set itself. Returns true if anything has changed. Ready is
    /// recomputed in the same step.
    ///
    /// # Errors
    /// Returns [`TooManyConditions`] if the pod already has the largest number of conditions that it may have.
    pub fn set_condition(
        &self,
        pod: &Pod,
        change: &ConditionChange,
        now: Time,
    ) -> Result<bool, TooManyConditions> {
        let mut statuses = self.lock();
        let stored = statuses.get(pod.uid()).cloned().unwrap_or_default();
        let conditions = conditions::changed(&pod.spec, &stored.conditions, change, now)?;
        if conditions == stored.conditions {
            return Ok(false);
        }
        let mut status = PodStatus {
            conditions,
            ..PodStatus::clone(&stored)
        };
        refresh_ready(&pod.spec, &mut status, &stored.conditions, now);
        self.keep(pod.uid(), &status);
        statuses.insert(pod.uid().clone(), Arc::new(status));
        drop(statuses);
        self.changed(pod.uid());
        Ok(true)
    }

    /// Forgets the pods outside `known`.
    pub fn remove_orphans(&self, known: &HashSet<PodUid>) {
        self.lock_ages().retain(known);
        let mut statuses = self.lock();
        let gone = statuses.extract_if(|uid, _| !known.contains(uid));
        let gone: Vec<PodUid> = gone.map(|(uid, _)| uid).collect();
        if let Some(kept) = &self.kept {
            gone.iter().for_each(|uid| kept.forget(uid));
        }
        drop(statuses);
        gone.iter().for_each(|uid| self.changed(uid));
    }

    fn change_container(
        &self,
        pod: &Pod,
        id: &ContainerId,
        change: impl FnOnce(&mut ContainerStatus) -> bool,
    ) {
        let mut statuses = self.lock();
        let Some(stored) = statuses.get_mut(pod.uid()) else {
            return;
        };
        let uri = id.uri();
        let mut status = PodStatus::clone(stored);
        let mut containers = status
            .container_statuses
            .iter_mut()
            .chain(&mut status.init_container_statuses);
        let Some(container) = containers.find(|c| c.container_id == uri) else {
            return;
        };
        if !change(container) {
            return;
        }
        refresh_ready(&pod.spec, &mut status, &stored.conditions, Time::now());
        self.keep(pod.uid(), &status);
        *stored = Arc::new(status);
        drop(statuses);
        self.changed(pod.uid());
    }

    /// Lets the age of a pod begin, if it has none, and then takes the lock of the statuses.
    fn lock_for(&self, pod: &Pod) -> MutexGuard<'_, HashMap<PodUid, Arc<PodStatus>>> {
        self.lock_ages().begin(pod.uid(), Moment::now());
        self.lock()
    }

    fn lock_ages(&self) -> MutexGuard<'_, Ages> {
        self.ages.locked()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PodUid, Arc<PodStatus>>> {
        self.statuses.locked()
    }
}

/// Finds a container that was terminated and is not terminated any more (9.6 "Refused"). Finds no container if the
/// pod's policy is Always or all containers are restarted. A container with an exit code that allows a restart does not
/// count.
fn revived_against_policy<'a>(
    pod: &Pod,
    old: &'a PodStatus,
    status: &PodStatus,
) -> Option<&'a str> {
    let restarting = [old, status]
        .iter()
        .any(|s| conditions::is_true(&s.conditions, ALL_CONTAINERS_RESTARTING));
    if pod.spec.restart_policy == RestartPolicy::Always || restarting {
        return None;
    }
    let may_restart = |name: &str, code| {
        pod.container(name)
            .is_some_and(|c| should_restart_after(pod.spec.restart_policy, c, code))
    };
    let ended_for_good = |c: &&ContainerStatus| {
        c.state
            .terminated
            .as_ref()
            .is_some_and(|t| !may_restart(&c.name, t.exit_code))
    };
    let lives = |name: &str| {
        let mut now = status.container_statuses.iter();
        now.any(|c| c.name == name && c.state.terminated.is_none())
    };
    let mut ended = old.container_statuses.iter().filter(ended_for_good);
    ended.find(|c| lives(&c.name)).map(|c| c.name.as_str())
}

/// Makes the last status of a finished pod (9.7). Every container counts as ended, whatever its last known state. The
/// phase of a static pod does not change. Containers that initialisation never reached do not change either: the init
/// containers after the last one that ran, and the regular containers if the initialisation was not complete.
pub fn finished(spec: &PodSpec, mut status: PodStatus) -> PodStatus {
    let untouched = |c: &ContainerStatus| {
        c.container_id.is_empty()
            && c.last_state.terminated.is_none()
            && c.state.terminated.is_none()
    };
    let reached = status
        .init_container_statuses
        .iter()
        .rposition(|c| !untouched(c))
        .map_or(0, |at| at + 1);
    let begun = status.container_statuses.iter().any(|c| !untouched(c));
    let initialized = spec.init_containers.is_empty()
        || begun
        || conditions::is_true(&status.conditions, "Initialized");
    let regular = if initialized {
        &mut status.container_statuses[..]
    } else {
        &mut []
    };
    let all = status.init_container_statuses[..reached]
        .iter_mut()
        .chain(regular);
    for container in all.filter(|c| c.state.terminated.is_none()) {
        let ended = ContainerStateTerminated {
            exit_code: UNSEEN_EXIT_CODE,
            reason: "ContainerStatusUnknown".into(),
            message: "The container could not be located when the pod was terminated".into(),
            container_id: container.container_id.clone(),
            ..ContainerStateTerminated::default()
        };
        container.ready = false;
        container.started = Some(false);
        container.state = ContainerState {
            terminated: Some(ended),
            ..ContainerState::default()
        };
    }
    status
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::PodPhase;
    use crate::api::conditions::ConditionStatus;
    use crate::test_pods;

    fn pod(policy: &str) -> Pod {
        let spec = json!({"restartPolicy": policy, "containers": [{"name": "a"}]});
        test_pods::pod("p").uid("u").spec(spec).build()
    }

    fn status(pod: &Pod, container: Value) -> PodStatus {
        let mut s = PodStatus {
            phase: PodPhase::Running,
            ..Default::default()
        };
        s.container_statuses = vec![serde_json::from_value(container).unwrap()];
        s.conditions = conditions::generate(
            &pod.spec,
            &s,
            &conditions::ConditionInputs {
                sandbox_ready: true,
                restarting: false,
                terminating: false,
                disrupted: None,
                resize: &crate::pods::actions::ResizeState::default(),
                old: &[],
            },
        );
        s
    }

    fn running(id: &str) -> Value {
        json!({"name": "a", "containerID": format!("podprobe://{id}"), "state": {"running": {"startedAt": null}}, "started": false})
    }

    /// Lessons A8: if a readiness probe succeeds while the pod ends, the pod does not become ready again.
    #[test]
    fn a8_a_pod_that_is_being_stopped_stays_unready() {
        let (m, _) = manager();
        let pod = pod("Always");
        let mut leaving = status(&pod, running("1"));
        let facts = conditions::ConditionInputs {
            sandbox_ready: true,
            restarting: false,
            terminating: true,
            disrupted: None,
            resize: &crate::pods::actions::ResizeState::default(),
            old: &[],
        };
        leaving.conditions = conditions::generate(&pod.spec, &leaving, &facts);
        m.set(&pod, leaving);
        for ready in [true, false, true] {
            m.set_container_readiness(&pod, &"1".into(), ready);
            let s = m.get(pod.uid()).unwrap();
            assert_eq!(
                (s.is_ready(), s.container_statuses[0].ready),
                (false, ready)
            );
            assert_eq!(
                s.condition("ContainersReady").unwrap().status == "True",
                ready
            );
        }
    }

    fn manager() -> (StatusManager, Arc<ChangeFeed>) {
        let feed = Arc::new(ChangeFeed::default());
        (StatusManager::new(HashMap::new(), feed.clone()), feed)
    }

    #[test]
    fn versions_grow_with_changes_only() {
        let (m, n) = manager();
        let pod = pod("Always");
        m.set(&pod, status(&pod, running("1")));
        let v = n.version();
        m.set(&pod, status(&pod, running("1")));
        assert_eq!(n.version(), v, "the same status again is no change");
        m.set(&pod, status(&pod, running("2")));
        assert_ne!(n.version(), v);
    }

    #[test]
    fn readiness_is_written_by_container_id_and_moves_the_conditions() {
        let (m, n) = manager();
        let pod = pod("Always");
        m.set(&pod, status(&pod, running("2")));
        m.set_container_readiness(&pod, &"1".into(), true);
        assert!(
            !m.get(pod.uid()).unwrap().is_ready(),
            "a late result of an older instance is dropped"
        );
        m.set_container_readiness(&pod, &"2".into(), true);
        let s = m.get(pod.uid()).unwrap();
        assert!(s.is_ready() && s.condition("ContainersReady").unwrap().status == "True");
        let v = n.version();
        m.set_container_readiness(&pod, &"2".into(), true);
        assert_eq!(n.version(), v);
        m.set_container_readiness(&pod, &"2".into(), false);
        let s = m.get(pod.uid()).unwrap();
        assert_eq!(
            s.condition("Ready").unwrap().message,
            "containers with unready status: [a]"
        );
    }

    #[test]
    fn started_sets_nothing_else() {
        let (m, _) = manager();
        let pod = pod("Always");
        m.set(&pod, status(&pod, running("2")));
        m.set_container_started(&pod, &"2".into(), true);
        let s = m.get(pod.uid()).unwrap();
        assert_eq!(
            (s.container_statuses[0].started, s.is_ready()),
            (Some(true), false)
        );
    }

    #[test]
    fn a_restart_of_all_revives_what_ended_for_good() {
        let (m, _) = manager();
        let pod = pod("Never");
        let mut old = status(
            &pod,
            json!({"name": "a", "containerID": "podprobe://1", "state": {"terminated": {"exitCode": 0}}}),
        );
        old.conditions.push(
            serde_json::from_value(json!({"type": "AllContainersRestarting", "status": "True", "lastTransitionTime": null})).unwrap(),
        );
        m.set(&pod, old);
        m.set(
            &pod,
            status(
                &pod,
                json!({"name": "a", "state": {"waiting": {"reason": "RestartingAllContainers"}}}),
            ),
        );
        assert!(
            m.get(pod.uid()).unwrap().container_statuses[0]
                .state
                .waiting
                .is_some()
        );
    }

    #[test]
    fn readiness_of_a_sidecar_is_written_too() {
        let (m, _) = manager();
        let mut pod = pod("Always");
        pod.spec_mut().init_containers =
            serde_json::from_value(json!([{"name": "s", "restartPolicy": "Always"}])).unwrap();
        let mut s = status(&pod, running("1"));
        s.init_container_statuses = vec![ContainerStatus {
            name: "s".into(),
            ..serde_json::from_value(running("2")).unwrap()
        }];
        m.set(&pod, s);
        m.set_container_started(&pod, &"2".into(), true);
        m.set_container_readiness(&pod, &"2".into(), true);
        assert!(!m.get(pod.uid()).unwrap().is_ready());
        m.set_container_readiness(&pod, &"1".into(), true);
        let s = m.get(pod.uid()).unwrap();
        assert_eq!(
            (s.is_ready(), s.init_container_statuses[0].started),
            (true, Some(true))
        );
    }

    /// Checks which containers end as unknown: the init containers `i1` and `i2`, and the regular container. Each entry
    /// of `did` tells whether the container ran.
    #[track_caller]
    fn check_finished(did: [bool; 3], expected: [bool; 3]) {
        let spec =
            serde_json::from_value(json!({"initContainers": [{"name": "i1"}, {"name": "i2"}], "containers": [{"name": "a"}]})).unwrap();
        let one = |ran: bool| match ran {
            true => serde_json::from_value(running("1")).unwrap(),
            false => ContainerStatus::default(),
        };
        let [i1, i2, a] = did.map(one);
        let given = PodStatus {
            init_container_statuses: vec![i1, i2],
            container_statuses: vec![a],
            ..Default::default()
        };
        let got = finished(&spec, given);
        let ended: Vec<bool> = got
            .init_container_statuses
            .iter()
            .chain(&got.container_statuses)
            .map(|c| c.state.terminated.is_some())
            .collect();
        assert_eq!(ended, expected);
    }

    #[test]
    fn what_initialisation_never_came_to_has_not_ended() {
        check_finished([true, true, true], [true, true, true]);
        check_finished([true, false, false], [true, false, false]);
        check_finished([false, true, false], [true, true, false]);
        check_finished([false, false, true], [false, false, true]);
    }

    #[test]
    fn a_refused_status_changes_nothing_else_of_the_pod() {
        let (m, feed) = manager();
        let pod = pod("Never");
        let ended = json!({"name": "a", "containerID": "podprobe://1", "state": {"terminated": {"exitCode": 0}}});
        m.set(&pod, status(&pod, ended));
        let (before, version) = (m.get(pod.uid()).unwrap(), feed.version());
        let mut revived = status(&pod, running("2"));
        revived.message = "another".into();
        m.set(&pod, revived);
        assert_eq!((m.get(pod.uid()), feed.version()), (Some(before), version));
    }

    #[test]
    fn a_container_that_ended_for_good_stays_ended() {
        let (m, _) = manager();
        let ended = json!({"name": "a", "containerID": "podprobe://1", "state": {"terminated": {"exitCode": 0}}});
        for (policy, ends) in [("Never", true), ("OnFailure", true), ("Always", false)] {
            let pod = pod(policy);
            m.set(&pod, status(&pod, ended.clone()));
            m.set(&pod, status(&pod, running("2")));
            assert_eq!(
                m.get(pod.uid()).unwrap().container_statuses[0]
                    .state
                    .terminated
                    .is_some(),
                ends,
                "{policy}"
            );
            m.remove_orphans(&HashSet::new());
            assert!(m.get(pod.uid()).is_none());
        }
    }

    fn gated_and_running() -> (StatusManager, Arc<ChangeFeed>, Pod, PodStatus) {
        let (m, feed) = manager();
        let spec =
            json!({"containers": [{"name": "a"}], "readinessGates": [{"conditionType": "x"}]});
        let pod = test_pods::pod("p").uid("u").spec(spec).build();
        let mut container = running("1");
        container["ready"] = true.into();
        let computed = status(&pod, container);
        m.set(&pod, computed.clone());
        (m, feed, pod, computed)
    }

    fn set_x(m: &StatusManager, pod: &Pod, status: Option<ConditionStatus>) -> bool {
        let change = ConditionChange {
            type_: "x".into(),
            status,
            reason: String::new(),
            message: String::new(),
        };
        m.set_condition(pod, &change, Time::now()).unwrap()
    }

    #[test]
    fn a_condition_moves_ready_at_once_and_tells_of_changes_only() {
        use ConditionStatus::{False, True};
        let (m, feed, pod, _) = gated_and_running();
        let ready = || m.get(pod.uid()).unwrap().is_ready();
        assert!(!ready());
        for (wanted, is_change, is_ready) in [
            (Some(True), true, true),
            (Some(True), false, true),
            (Some(False), true, false),
            (Some(True), true, true),
            (None, true, false),
            (None, false, false),
        ] {
            let version = feed.version();
            assert_eq!(set_x(&m, &pod, wanted), is_change, "{wanted:?}");
            assert_eq!((ready(), feed.version() != version), (is_ready, is_change));
        }
    }

    /// A condition is kept if a client sets it while a sync computes a new status from the old one.
    #[test]
    fn a_condition_that_is_set_during_a_sync_is_kept() {
        let (m, _, pod, computed_before) = gated_and_running();
        assert!(set_x(&m, &pod, Some(ConditionStatus::True)));
        let since = m.get(pod.uid()).unwrap();
        m.set(&pod, computed_before);
        let after = m.get(pod.uid()).unwrap();
        assert!(after.is_ready(), "{:?}", after.conditions);
        assert_eq!(
            after, since,
            "the times of transition are those of the store"
        );
    }

    #[test]
    fn a_condition_may_come_before_the_first_status() {
        let (_, _, pod, computed) = gated_and_running();
        let (m, _) = manager();
        assert!(!set_x(&m, &pod, None));
        assert_eq!(m.get(pod.uid()), None);
        assert!(set_x(&m, &pod, Some(ConditionStatus::True)));
        assert!(!m.get(pod.uid()).unwrap().is_ready());
        m.set(&pod, computed);
        assert!(m.get(pod.uid()).unwrap().is_ready());
        m.remove_orphans(&HashSet::new());
        assert_eq!(m.get(pod.uid()), None);
    }

    #[test]
    fn a_gate_does_not_make_a_pod_ready_that_is_being_stopped() {
        let (m, _, pod, mut leaving) = gated_and_running();
        let facts = conditions::ConditionInputs {
            sandbox_ready: true,
            restarting: false,
            terminating: true,
            disrupted: None,
            resize: &crate::pods::actions::ResizeState::default(),
            old: &[],
        };
        leaving.conditions = conditions::generate(&pod.spec, &leaving, &facts);
        m.set(&pod, leaving);
        assert!(set_x(&m, &pod, Some(ConditionStatus::True)));
        assert!(!m.get(pod.uid()).unwrap().is_ready());
    }
}
