//! The pure state of every pod worker, and the effect of an update on this state (kubelet-probes 8.1).
//!
//! Invariants: a worker moves from sync to terminating, terminated and finished, and never back. The grace period of a
//! terminating pod only shrinks. At most one pod of a name runs, and the other pods of that name wait in order of
//! arrival. A worker has at most one run at a time.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use crate::api::{Pod, PodUid};
use crate::pods::actions::pod_grace_period;

/// The request that an update makes to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateKind {
    /// The pod is new on this node.
    Create,
    /// The pod has changed.
    Update,
    /// The pod must be synced again.
    Sync,
    /// The pod must end, because it was removed or no source has it.
    Kill {
        /// The grace period in seconds that replaces a longer grace period, or `None` to keep the pod's grace period.
        grace_override: Option<i64>,
    },
}

/// An update of a pod.
#[derive(Clone, Debug)]
pub struct Update {
    /// The request that the update makes.
    pub kind: UpdateKind,
    /// The pod. If only the runtime knows the pod, this object has only metadata.
    pub pod: Arc<Pod>,
    /// True if only the runtime knows this pod. Such a pod can only be killed and removed.
    pub runtime_only: bool,
    /// True if the pod's stored phase is Succeeded or Failed.
    pub phase_is_terminal: bool,
    /// True if the runtime shows a live container or sandbox of the pod.
    pub is_running: bool,
}

/// The sync that a worker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Makes the pod run.
    Sync,
    /// Makes the pod end.
    Terminating,
    /// Clears up after the pod.
    Terminated,
}

/// The task of one run of a worker.
#[derive(Clone, Debug)]
pub struct Work {
    /// The sync to run.
    pub phase: Phase,
    /// The request that led to the run. If several requests led to the run, this is the strongest of them.
    pub asked: UpdateKind,
    /// The newest version of the pod.
    pub pod: Arc<Pod>,
    /// The grace period of a terminating run in seconds, at least 1.
    pub grace: i64,
    /// True if only the runtime knows this pod: see [`Update::runtime_only`].
    pub runtime_only: bool,
    /// True if the pod was removed and not only finished. Its files are then removed too.
    pub removed: bool,
}

/// How far a pod's worker is with the end of the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerStage {
    /// The worker runs the pod or is stopping it, so a container may still run.
    Running,
    /// No container of the pod runs, and none will start again.
    Stopped,
    /// The worker has finished: the pod has stopped, and its volumes and cgroups are gone.
    Finished,
}

/// The way in which a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// The run did its work.
    Ok,
    /// A sync found the pod in a terminal phase.
    Terminal,
    /// The run failed and must be tried again.
    Failed,
}

/// The effect of an update on the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing needs to be done now: the worker has finished, or the update is kept for later.
    Nothing,
    /// The worker is new: its thread must be started.
    Spawn,
    /// The worker's thread must be woken.
    Wake,
    /// The thread must be woken and its present run cancelled: the pod must end from now on, or end sooner.
    Overtake,
}

/// The step that follows a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The worker runs again at once, because its phase has changed or an update has come during the run.
    Again,
    /// The worker runs again after the resync interval.
    Resync,
    /// The worker runs again after the retry interval.
    Retry,
    /// The worker has finished. The next worker that waited for its pod name must be woken.
    Finished {
        /// The pod that may start now, if a pod waited for the name.
        wake: Option<PodUid>,
    },
}

#[derive(Debug)]
struct WorkerState {
    pod: Arc<Pod>,
    phase: Phase,
    asked: UpdateKind,
    finished: bool,
    pending: bool,
    grace: i64,
    runtime_only: bool,
    removed: bool,
    restart_requested: bool,
}

/// The table of all workers.
#[derive(Debug, Default)]
pub struct Table {
    workers: HashMap<PodUid, WorkerState>,
    /// The UID of the pod that runs under each name.
    running: HashMap<String, PodUid>,
    /// The UIDs of the pods that wait for each name.
    waiting: HashMap<String, VecDeque<PodUid>>,
}

impl Table {
    /// Applies an update to a worker, and makes the worker if there is none.
    pub fn update(&mut self, update: Update) -> Effect {
        let uid = update.pod.uid().clone();
        let Some(worker) = self.workers.get_mut(&uid) else {
            return self.insert(uid, update);
        };
        if worker.finished || worker.phase != Phase::Sync {
            if update.kind == UpdateKind::Create {
                worker.restart_requested = true;
                return Effect::Nothing;
            }
            if worker.finished {
                return Effect::Nothing;
            }
        }
        let (phase, grace) = (worker.phase, worker.grace);
        worker.merge(&update);
        match worker.phase != phase || worker.grace < grace {
            true => Effect::Overtake,
            false => Effect::Wake,
        }
    }

    fn insert(&mut self, uid: PodUid, update: Update) -> Effect {
        let killed = matches!(update.kind, UpdateKind::Kill { .. });
        if matches!(update.kind, UpdateKind::Sync) {
            return Effect::Nothing;
        }
        let ended = update.phase_is_terminal && !update.is_running && !killed;
        let mut worker = WorkerState {
            pod: update.pod.clone(),
            phase: if ended {
                Phase::Terminated
            } else {
                Phase::Sync
            },
            asked: UpdateKind::Sync,
            finished: false,
            pending: true,
            grace: 0,
            runtime_only: update.runtime_only,
            removed: false,
            restart_requested: false,
        };
        worker.merge(&update);
        if worker.runtime_only && killed {
            // A pod that an earlier daemon started still has the name, so no other pod of this name may start beside
            // it.
            self.running
                .entry(update.pod.full_name())
                .or_insert_with(|| uid.clone());
        }
        if worker.phase == Phase::Sync {
            self.waiting
                .entry(update.pod.full_name())
                .or_default()
                .push_back(uid.clone());
        }
        self.workers.insert(uid, worker);
        Effect::Spawn
    }

    /// Schedules another run for a pod that only the runtime knows. Returns false for any other pod.
    pub fn look_again(&mut self, uid: &PodUid) -> bool {
        let orphan = self
            .workers
            .get_mut(uid)
            .filter(|e| e.runtime_only && !e.finished);
        orphan.map(|e| e.pending = true).is_some()
    }

    /// Schedules another run for a pod that is meant to run. Returns false for any other pod.
    pub fn sync_again(&mut self, uid: &PodUid) -> bool {
        let runs = self
            .workers
            .get_mut(uid)
            .filter(|e| e.phase == Phase::Sync && !e.finished);
        runs.map(|e| e.pending = true).is_some()
    }

    /// Schedules another run for a pod that is ending. Returns false for any other pod.
    pub fn end_again(&mut self, uid: &PodUid) -> bool {
        let ends = self
            .workers
            .get_mut(uid)
            .filter(|e| e.phase == Phase::Terminating && !e.finished);
        ends.map(|e| e.pending = true).is_some()
    }

    /// Begins the next run of a worker. Returns `None` if no run is due now.
    pub fn begin(&mut self, uid: &PodUid) -> Option<Work> {
        let worker = self.workers.get(uid)?;
        if worker.finished
            || !worker.pending
            || (worker.phase == Phase::Sync && !self.allowed_to_start(uid))
        {
            return None;
        }
        let worker = self.workers.get_mut(uid)?;
        worker.pending = false;
        Some(Work {
            phase: worker.phase,
            asked: std::mem::replace(&mut worker.asked, UpdateKind::Sync),
            pod: worker.pod.clone(),
            grace: worker.grace,
            runtime_only: worker.runtime_only,
            removed: worker.removed,
        })
    }

    /// Tells whether the pod may start now. Static pods of one name start one at a time, in order of arrival.
    fn allowed_to_start(&mut self, uid: &PodUid) -> bool {
        let Some(worker) = self.workers.get(uid) else {
            return false;
        };
        let name = worker.pod.full_name();
        if let Some(holder) = self.running.get(&name) {
            return holder == uid;
        }
        if self.next_waiting(&name).as_ref() != Some(uid) {
            return false;
        }
        self.waiting
            .get_mut(&name)
            .expect("it has a front")
            .pop_front();
        self.running.insert(name, uid.clone());
        true
    }

    /// Records the end of a run. `ran` is the phase of the run. If the worker has moved on during the run, its new
    /// phase counts.
    pub fn complete(&mut self, uid: &PodUid, ran: Phase, done: Done) -> Next {
        let Some(worker) = self.workers.get_mut(uid) else {
            return Next::Finished { wake: None };
        };
        match (ran, done) {
            (_, Done::Failed) => {}
            (Phase::Sync, Done::Terminal) => worker.move_on(Phase::Terminating),
            (Phase::Sync, Done::Ok) => {}
            (Phase::Terminating, _) => worker.move_on(Phase::Terminated),
            (Phase::Terminated, _) => return self.finish(uid),
        }
        match worker.pending {
            true => Next::Again,
            false if done == Done::Failed => Next::Retry,
            false => Next::Resync,
        }
    }

    fn finish(&mut self, uid: &PodUid) -> Next {
        let worker = self.workers.get_mut(uid).expect("looked up by the caller");
        worker.finished = true;
        worker.pending = false;
        let name = worker.pod.full_name();
        if self.running.get(&name) == Some(uid) {
            self.running.remove(&name);
        }
        Next::Finished {
            wake: self.next_waiting(&name),
        }
    }

    /// Returns the next pod that may start under a name. A pod that was killed while it waited is left out.
    fn next_waiting(&mut self, name: &str) -> Option<PodUid> {
        let queue = self.waiting.get_mut(name)?;
        queue.retain(|u| {
            self.workers
                .get(u)
                .is_some_and(|e| e.phase == Phase::Sync && !e.finished)
        });
        let next = queue.front().cloned();
        if next.is_none() {
            self.waiting.remove(name);
        }
        next
    }

    /// Drops finished workers if their pods are no longer desired, or were re-created with the same UID (lessons A10).
    /// Returns the pods of the dropped workers.
    pub fn sync_known(&mut self, desired: &HashSet<PodUid>) -> Vec<PodUid> {
        let gone = |(uid, e): (&PodUid, &WorkerState)| {
            (e.finished && (!desired.contains(uid) || e.restart_requested)).then(|| uid.clone())
        };
        let dropped: Vec<PodUid> = self.workers.iter().filter_map(gone).collect();
        for uid in &dropped {
            self.workers.remove(uid);
        }
        dropped
    }

    /// Returns the pods whose probes may run: the pods that are syncing or terminating (kubelet-probes 5.5).
    pub fn probed(&self) -> HashSet<PodUid> {
        let alive = |(uid, e): (&PodUid, &WorkerState)| {
            (e.phase != Phase::Terminated && !e.finished).then(|| uid.clone())
        };
        self.workers.iter().filter_map(alive).collect()
    }

    /// True if the pod has a worker, finished or not.
    pub fn contains(&self, uid: &PodUid) -> bool {
        self.workers.contains_key(uid)
    }

    /// True if the worker must end, or has ended.
    pub fn is_terminating(&self, uid: &PodUid) -> bool {
        self.workers
            .get(uid)
            .is_some_and(|e| e.finished || e.phase != Phase::Sync)
    }

    /// Returns how far the worker is with the end of its pod. Returns `None` if there is no worker.
    pub fn stage(&self, uid: &PodUid) -> Option<WorkerStage> {
        let worker = self.workers.get(uid)?;
        Some(match worker.phase {
            _ if worker.finished => WorkerStage::Finished,
            Phase::Terminated => WorkerStage::Stopped,
            Phase::Sync | Phase::Terminating => WorkerStage::Running,
        })
    }

    /// Returns the pod of an unfinished worker. Returns `None` for a pod that only the runtime knows.
    pub fn pod(&self, uid: &PodUid) -> Option<Arc<Pod>> {
        let worker = self.workers.get(uid);
        let worker = worker.filter(|e| !e.finished && !e.runtime_only);
        worker.map(|e| e.pod.clone())
    }

    /// Returns the pods that are ending and may still have running containers.
    pub fn ending(&self) -> Vec<Arc<Pod>> {
        let is_ending =
            |e: &&WorkerState| e.phase == Phase::Terminating && !e.finished && !e.runtime_only;
        let ending = self.workers.values().filter(is_ending);
        ending.map(|e| e.pod.clone()).collect()
    }

    /// Returns every pod with an unfinished worker. The flag is true if the pod is being removed or killed.
    pub fn working(&self) -> Vec<(Arc<Pod>, bool)> {
        let each =
            |e: &WorkerState| (!e.finished && !e.runtime_only).then(|| (e.pod.clone(), e.removed));
        self.workers.values().filter_map(each).collect()
    }
}

impl WorkerState {
    /// Merges an update into the worker. Only the newest pod counts, and the phase only moves forward.
    fn merge(&mut self, update: &Update) {
        self.pending = true;
        if !update.runtime_only {
            self.pod = update.pod.clone();
            self.runtime_only = false;
        }
        let grace_override = match update.kind {
            UpdateKind::Kill { grace_override } => grace_override,
            _ => None,
        };
        let killed = matches!(update.kind, UpdateKind::Kill { .. });
        if killed || self.asked == UpdateKind::Sync {
            self.asked = update.kind;
        }
        self.removed |= killed;
        if self.phase == Phase::Sync
            && (killed
                || update.phase_is_terminal
                || self.pod.metadata.deletion_timestamp.is_some())
        {
            self.phase = Phase::Terminating;
        }
        if self.phase == Phase::Terminating {
            self.grace = pod_grace_period(&self.pod, self.grace, grace_override);
        }
    }

    fn move_on(&mut self, to: Phase) {
        if to == Phase::Terminating && self.phase == Phase::Sync {
            self.grace = pod_grace_period(&self.pod, self.grace, None);
            self.phase = to;
        }
        if to == Phase::Terminated {
            self.phase = to;
        }
        self.pending = true;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::test_pods;

    fn pod(uid: &str, name: &str) -> Arc<Pod> {
        let spec = json!({"terminationGracePeriodSeconds": 30});
        test_pods::pod(name).uid(uid).spec(spec).arc()
    }

    fn update(kind: UpdateKind, uid: &str) -> Update {
        Update {
            kind,
            pod: pod(uid, "p"),
            runtime_only: false,
            phase_is_terminal: false,
            is_running: false,
        }
    }

    fn kill(grace_override: Option<i64>) -> UpdateKind {
        UpdateKind::Kill { grace_override }
    }

    /// Runs all runs of a worker that are due now. Returns the phases that ran.
    fn drive(table: &mut Table, uid: &str) -> Vec<Phase> {
        let uid = uid.into();
        let mut ran = Vec::new();
        while let Some(work) = table.begin(&uid) {
            ran.push(work.phase);
            table.complete(&uid, work.phase, Done::Ok);
        }
        ran
    }

    #[test]
    fn a_run_says_what_asked_for_it() {
        let mut t = Table::default();
        let mut asked = |kinds: &[UpdateKind]| {
            for kind in kinds {
                t.update(update(*kind, "u"));
            }
            let work = t.begin(&"u".into()).expect("there is work");
            t.complete(&"u".into(), work.phase, Done::Ok);
            work.asked
        };
        let (create, sync) = (UpdateKind::Create, UpdateKind::Sync);
        assert_eq!(asked(&[create, sync]), create, "a sync asks for less");
        assert_eq!(asked(&[sync]), sync);
        assert_eq!(asked(&[sync, UpdateKind::Update]), UpdateKind::Update);
        assert_eq!(asked(&[sync, kill(None), sync]), kill(None));
    }

    #[test]
    fn a_pod_lives_syncs_and_is_removed() {
        let mut t = Table::default();
        assert_eq!(t.update(update(UpdateKind::Create, "u")), Effect::Spawn);
        assert_eq!(drive(&mut t, "u"), [Phase::Sync]);
        assert_eq!(t.update(update(UpdateKind::Sync, "u")), Effect::Wake);
        assert_eq!(drive(&mut t, "u"), [Phase::Sync]);
        assert_eq!(t.update(update(kill(None), "u")), Effect::Overtake);
        assert_eq!(drive(&mut t, "u"), [Phase::Terminating, Phase::Terminated]);
        assert_eq!(t.update(update(UpdateKind::Sync, "u")), Effect::Nothing);
        assert_eq!(t.sync_known(&HashSet::new()), ["u".into()]);
        assert!(!t.contains(&"u".into()));
    }

    #[test]
    fn a_pod_waits_for_one_of_its_name_that_an_earlier_daemon_started() {
        let mut t = Table::default();
        t.update(Update {
            runtime_only: true,
            ..update(kill(Some(1)), "old")
        });
        t.update(update(UpdateKind::Create, "new"));
        assert!(t.begin(&"new".into()).is_none());
        assert_eq!(t.begin(&"old".into()).unwrap().phase, Phase::Terminating);
        t.complete(&"old".into(), Phase::Terminating, Done::Ok);
        assert_eq!(t.begin(&"old".into()).unwrap().phase, Phase::Terminated);
        let next = t.complete(&"old".into(), Phase::Terminated, Done::Ok);
        assert_eq!(
            next,
            Next::Finished {
                wake: Some("new".into())
            }
        );
        assert_eq!(drive(&mut t, "new"), [Phase::Sync]);
    }

    #[test]
    fn a_sync_update_for_an_unknown_pod_starts_nothing() {
        assert_eq!(
            Table::default().update(update(UpdateKind::Sync, "u")),
            Effect::Nothing
        );
    }

    #[test]
    fn updates_merge_while_a_run_is_under_way() {
        let mut t = Table::default();
        t.update(update(UpdateKind::Create, "u"));
        let work = t.begin(&"u".into()).unwrap();
        t.update(update(UpdateKind::Update, "u"));
        t.update(update(UpdateKind::Sync, "u"));
        assert_eq!(t.complete(&"u".into(), work.phase, Done::Ok), Next::Again);
        assert_eq!(drive(&mut t, "u"), [Phase::Sync], "two updates, one run");
    }

    #[test]
    fn a_kill_during_a_sync_wins_over_its_end() {
        let mut t = Table::default();
        t.update(update(UpdateKind::Create, "u"));
        let work = t.begin(&"u".into()).unwrap();
        t.update(update(kill(Some(5)), "u"));
        assert_eq!(t.complete(&"u".into(), work.phase, Done::Ok), Next::Again);
        let work = t.begin(&"u".into()).unwrap();
        assert_eq!(
            (work.phase, work.grace, work.removed),
            (Phase::Terminating, 5, true)
        );
    }

    #[test]
    fn the_grace_period_only_shrinks() {
        let mut t = Table::default();
        t.update(update(UpdateKind::Create, "u"));
        drive(&mut t, "u");
        for (asked, expected) in [(None, 30), (Some(10), 10), (Some(20), 10), (Some(0), 1)] {
            t.update(update(kill(asked), "u"));
            assert_eq!(t.begin(&"u".into()).unwrap().grace, expected, "{asked:?}");
            t.complete(&"u".into(), Phase::Terminating, Done::Failed);
        }
    }

    #[test]
    fn a_failed_terminating_run_is_tried_again() {
        let mut t = Table::default();
        t.update(update(kill(None), "u"));
        let work = t.begin(&"u".into()).unwrap();
        assert_eq!(
            t.complete(&"u".into(), work.phase, Done::Failed),
            Next::Retry
        );
        t.update(update(UpdateKind::Sync, "u"));
        assert_eq!(t.begin(&"u".into()).unwrap().phase, Phase::Terminating);
    }

    #[test]
    fn a_worker_says_how_far_it_is() {
        let (mut t, uid) = (Table::default(), PodUid::from("u"));
        assert_eq!(t.stage(&uid), None);
        t.update(update(UpdateKind::Create, "u"));
        assert_eq!(t.stage(&uid), Some(WorkerStage::Running));
        t.begin(&uid).unwrap();
        t.complete(&uid, Phase::Sync, Done::Terminal);
        assert_eq!(
            t.stage(&uid),
            Some(WorkerStage::Running),
            "it stops the pod"
        );
        t.begin(&uid).unwrap();
        t.complete(&uid, Phase::Terminating, Done::Ok);
        assert_eq!(t.stage(&uid), Some(WorkerStage::Stopped));
        t.begin(&uid).unwrap();
        t.complete(&uid, Phase::Terminated, Done::Ok);
        assert_eq!(t.stage(&uid), Some(WorkerStage::Finished));
    }

    #[test]
    fn a_finished_pod_runs_through_to_terminated_and_keeps_its_remains() {
        let mut t = Table::default();
        t.update(update(UpdateKind::Create, "u"));
        let work = t.begin(&"u".into()).unwrap();
        assert_eq!(
            t.complete(&"u".into(), work.phase, Done::Terminal),
            Next::Again
        );
        let work = t.begin(&"u".into()).unwrap();
        assert_eq!(
            (work.phase, work.grace, work.removed),
            (Phase::Terminating, 30, false)
        );
    }

    #[test]
    fn a_pod_that_ended_before_this_daemon_starts_as_terminated() {
        let mut t = Table::default();
        t.update(Update {
            phase_is_terminal: true,
            ..update(UpdateKind::Create, "u")
        });
        assert_eq!(drive(&mut t, "u"), [Phase::Terminated]);
        // with a container still alive the pod is terminated properly
        let mut t = Table::default();
        t.update(Update {
            phase_is_terminal: true,
            is_running: true,
            ..update(UpdateKind::Create, "u")
        });
        assert_eq!(drive(&mut t, "u"), [Phase::Terminating, Phase::Terminated]);
    }

    #[test]
    fn a10_the_same_uid_removed_and_added_again_runs_again() {
        let mut t = Table::default();
        t.update(update(UpdateKind::Create, "u"));
        drive(&mut t, "u");
        t.update(update(kill(None), "u"));
        assert_eq!(t.update(update(UpdateKind::Create, "u")), Effect::Nothing);
        drive(&mut t, "u");
        let desired = HashSet::from(["u".into()]);
        assert_eq!(t.sync_known(&desired), ["u".into()]);
        assert_eq!(t.update(update(UpdateKind::Create, "u")), Effect::Spawn);
        assert_eq!(drive(&mut t, "u"), [Phase::Sync]);
    }

    #[test]
    fn pods_of_one_name_run_one_at_a_time_in_order() {
        let mut t = Table::default();
        for uid in ["a", "b", "c"] {
            t.update(update(UpdateKind::Create, uid));
        }
        assert_eq!(
            (drive(&mut t, "b"), drive(&mut t, "a"), drive(&mut t, "c")),
            (vec![], vec![Phase::Sync], vec![])
        );
        // pod b is removed before it has ever started, so pod c is next
        t.update(update(kill(None), "b"));
        assert_eq!(drive(&mut t, "b"), [Phase::Terminating, Phase::Terminated]);
        t.update(update(kill(None), "a"));
        let work = t.begin(&"a".into()).unwrap();
        t.complete(&"a".into(), work.phase, Done::Ok);
        t.begin(&"a".into()).unwrap();
        let next = t.complete(&"a".into(), Phase::Terminated, Done::Ok);
        assert_eq!(
            next,
            Next::Finished {
                wake: Some("c".into())
            },
            "the first that still waits is woken"
        );
        assert_eq!(drive(&mut t, "c"), [Phase::Sync]);
    }

    #[test]
    fn random_walks_never_go_back() {
        let mut seed = 0x9e37_79b9_u32;
        let mut random = move |n: u32| {
            seed ^= seed << 13;
            seed ^= seed >> 17;
            seed ^= seed << 5;
            seed % n
        };
        let rank = |p: Phase| p as u8;
        for _ in 0..300 {
            let mut t = Table::default();
            let mut last: HashMap<&str, (u8, i64)> = HashMap::new();
            for _ in 0..60 {
                let uid = ["a", "b", "c"][random(3) as usize];
                let kind = match random(6) {
                    0 => UpdateKind::Create,
                    1 => UpdateKind::Update,
                    2 => kill(Some(i64::from(random(40)))),
                    3 => kill(None),
                    _ => UpdateKind::Sync,
                };
                let phase_is_terminal = random(10) == 0;
                if t.update(Update {
                    phase_is_terminal,
                    ..update(kind, uid)
                }) == Effect::Spawn
                {
                    last.remove(uid);
                }
                if let Some(work) = t.begin(&uid.into()) {
                    let (phase, grace) = last.get(uid).copied().unwrap_or((0, i64::MAX));
                    assert!(rank(work.phase) >= phase, "went back");
                    if work.phase == Phase::Terminating {
                        assert!(work.grace >= 1 && work.grace <= grace, "grace grew");
                        last.insert(uid, (rank(work.phase), work.grace));
                    } else {
                        last.insert(uid, (rank(work.phase), grace));
                    }
                    let done = [Done::Ok, Done::Terminal, Done::Failed][random(3) as usize];
                    t.complete(&uid.into(), work.phase, done);
                }
                if random(8) == 0 {
                    for gone in t.sync_known(&HashSet::new()) {
                        last.retain(|u, _| *u != gone.as_str());
                    }
                }
                let running: HashSet<_> = t.running.values().collect();
                assert!(running.len() <= 1, "two pods of one name");
            }
        }
    }

    #[test]
    fn a_pod_is_looked_at_again_while_it_is_to_run() {
        let mut t = Table::default();
        let uid = "u".into();
        assert!(!t.sync_again(&uid), "unknown");
        t.update(update(UpdateKind::Create, "u"));
        assert_eq!(drive(&mut t, "u"), [Phase::Sync]);
        assert!(t.sync_again(&uid));
        assert_eq!(drive(&mut t, "u"), [Phase::Sync]);
        t.update(update(kill(None), "u"));
        assert!(!t.sync_again(&uid), "it ends");
        drive(&mut t, "u");
        assert!(!t.sync_again(&uid), "it has ended");
    }
}
