//! The three syncs of a pod: make it run, make it end, clear up (kubelet-probes 8.1, 8.4, 8.5).
//!
//! The decisions are made in [`crate::pods::actions`] and [`crate::pods::status`]. This file carries out the decisions
//! and records why something failed. The code runs on the pod worker's thread and may block there.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{BegunStops, Outcome, Phase, PodMetrics, PodSyncer, Restarts, Work};
use crate::api::{Pod, PodPhase, PodStatus, PodUid};
use crate::base::cancel::Cancel;
use crate::base::clock::{Moment, Time};
use crate::base::locks::Locked;
use crate::engine::runtime::{
    ContainerId, ENDING, Runtime, RuntimeContainerStatus, RuntimeError, RuntimePodStatus,
};
use crate::pods::actions::{
    self, ALL_CONTAINERS_RESTARTING, BackOff, KillReason, ResizeState, ToKill, ToRemove,
};
use crate::pods::admission;
use crate::pods::events::{EventType, Recorder};
use crate::pods::eviction::Evictions;
use crate::pods::kuberuntime::KubeRuntime;
use crate::pods::lifecycle::Hooks;
use crate::pods::manager::PodManager;
use crate::pods::pleg::CacheError;
use crate::pods::probe_result::ProbeResult;
use crate::pods::status::{self, StartFailure, StatusManager};

/// The largest number of start failures that are remembered (kubelet-probes 9.3, note on S9).
const MAX_FAILURES: usize = 1000;
/// The time after which it is checked again whether there is room for other resources of a pod.
const ROOM: Duration = Duration::from_secs(10);
/// The number of hexadecimal digits of a container id.
const ID_DIGITS: usize = 64;

/// The part of PLEG that the syncer needs.
pub trait PodCache: Send + Sync {
    /// Returns the pod's runtime status, read after `since`. Blocks until there is such a status.
    ///
    /// # Errors
    /// Returns [`CacheError`] if the runtime did not answer in time.
    fn newer_than(&self, uid: &PodUid, since: Moment) -> Result<Arc<RuntimePodStatus>, CacheError>;

    /// Requests a relist of a pod that was changed. Never blocks.
    fn request_relist(&self, uid: &PodUid);
}

/// The part of the probe manager that the syncer needs (kubelet-probes 4.2, 4.3).
pub trait Probes: Send + Sync {
    /// Starts the probe workers that the pod does not have yet.
    fn add_pod(&self, pod: &Arc<Pod>);
    /// Stops all but the readiness probes of a pod that is ending.
    fn stop_liveness_and_startup(&self, pod: &Pod);
    /// Stops all probes of a pod of which no container runs any more.
    fn remove_pod(&self, pod: &Pod);
    /// Writes Ready and Started into a fresh status. Changes nothing else.
    fn update_pod_status(&self, pod: &Pod, status: &mut PodStatus);
    /// Wakes the probe workers that a newly stored status concerns.
    fn trigger_workers(&self, _pod: &Pod, _stored: &PodStatus) {}
    /// Records in the history that a container is about to be killed.
    fn killing(&self, _pod: &Pod, _kill: &ToKill) {}
    /// Records in the history that a container is about to restart for a cause outside of the container.
    fn renewing(&self, _pod: &Pod, _container: &str, _cause: &str) {}
    /// Records in the history that a new instance of a container has started in place of `before`.
    fn restarted(
        &self,
        _pod: &Pod,
        _container: &str,
        _attempt: u32,
        _before: Option<&RuntimeContainerStatus>,
    ) {
    }
    /// Returns the liveness result of an instance from the cache, or `None` if the cache has no result.
    fn liveness(&self, id: &ContainerId) -> Option<ProbeResult>;
    /// Returns the startup result of an instance from the cache, or `None` if the cache has no result.
    fn startup(&self, id: &ContainerId) -> Option<ProbeResult>;
}

/// The part of the services that the syncer needs.
pub trait Traffic: Send + Sync {
    /// Waits until the data path sends no new clients to pods that are no longer Ready. Gives up after a short time if
    /// the data path does not follow.
    fn wait_until_withdrawn(&self);
}

/// The parts that a syncer works with.
pub struct Deps {
    /// Turns pods into sandboxes and containers.
    pub kuberuntime: Arc<KubeRuntime>,
    /// Runs the hooks of containers.
    pub hooks: Arc<dyn Hooks>,
    /// The cache of each pod's runtime status.
    pub cache: Arc<dyn PodCache>,
    /// The probe manager.
    pub probes: Arc<dyn Probes>,
    /// The API statuses of pods.
    pub statuses: Arc<StatusManager>,
    /// The services that send clients to pods.
    pub traffic: Arc<dyn Traffic>,
    /// The evicted and deleted pods.
    pub evictions: Arc<Evictions>,
    /// The restarts that people have requested.
    pub restarts: Arc<Restarts>,
    /// The stops that an earlier daemon has begun.
    pub stops: Arc<BegunStops>,
    /// The recorder of events.
    pub recorder: Arc<Recorder>,
    /// The counters of pods.
    pub metrics: Arc<PodMetrics>,
    /// The pods that should run, and the node on which they have room.
    pub pods: Arc<PodManager>,
    /// Returns the node with its resources as they are now.
    pub node: Box<dyn Fn() -> admission::Node + Send + Sync>,
    /// The address of pods that use the node's network.
    pub node_ip: IpAddr,
    /// The ceiling of the crash-loop back-off.
    pub max_back_off: Duration,
}

/// Carries out the three syncs.
pub struct Syncer {
    pub(super) deps: Deps,
    pub(super) back_off: Mutex<BackOff>,
    pub(super) failures: Mutex<HashMap<(PodUid, String), StartFailure>>,
    /// The pods that are to have other resources.
    pub(super) resizes: Mutex<HashMap<PodUid, ResizeState>>,
    /// The time at which each pod's last run ended. The next run waits for a newer runtime status.
    last_run: Mutex<HashMap<PodUid, Moment>>,
}

/// The stage of the pod for which a status is computed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Syncing,
    /// The pod is being stopped.
    Ending,
    /// All containers of the pod have stopped.
    Ended,
}

/// Collects the reasons why a run did not complete.
pub(super) struct Problems<'a> {
    /// The cancellation of the run. A cancelled run starts nothing new.
    pub(super) cancel: &'a Cancel,
    pub(super) errors: Vec<String>,
    retry_at: Option<Moment>,
}

impl<'a> Problems<'a> {
    pub(super) fn new(cancel: &'a Cancel) -> Self {
        Self {
            cancel,
            errors: Vec::new(),
            retry_at: None,
        }
    }

    pub(super) fn add(&mut self, error: String) {
        self.errors.push(error);
    }

    pub(super) fn held_until(&mut self, at: Moment) {
        self.retry_at = Some(self.retry_at.map_or(at, |earliest| earliest.min(at)));
    }
}

impl PodSyncer for Syncer {
    fn run(&self, work: &Work, cancel: &Cancel) -> Outcome {
        let began = Moment::now();
        let outcome = match work.phase {
            Phase::Sync => self.sync(&work.pod, cancel),
            Phase::Terminating => self.terminating(work, cancel),
            Phase::Terminated => self.terminated(work),
        };
        let took = Moment::now().since(began);
        self.deps.metrics.ran(work.asked, took);
        let uid = work.pod.uid();
        let finished = work.phase == Phase::Terminated && outcome == Outcome::Ok;
        if finished {
            self.last_run.locked().remove(uid);
        } else {
            self.ran(uid);
        }
        match outcome {
            // a cancelled run is not an error (8.1)
            Outcome::Failed { .. } if cancel.is_cancelled() => Outcome::Failed {
                error: String::new(),
                retry_at: None,
            },
            outcome => outcome,
        }
    }
}

impl Syncer {
    /// Makes a syncer with an empty back-off table.
    pub fn new(deps: Deps) -> Self {
        let back_off = Mutex::new(BackOff::new(deps.max_back_off));
        Self {
            deps,
            back_off,
            failures: Mutex::default(),
            resizes: Mutex::default(),
            last_run: Mutex::default(),
        }
    }

    /// Sets the longest back-off before a restart of a container.
    pub fn set_max_back_off(&self, ceiling: Duration) {
        self.back_off.locked().set_ceiling(ceiling);
    }

    /// Housekeeping: drops the back-off entries that can no longer hold back a start.
    pub fn collect_garbage(&self, now: Moment) {
        self.back_off.locked().collect_garbage(now);
    }

    // ---- sync ----

    fn sync(&self, pod: &Arc<Pod>, cancel: &Cancel) -> Outcome {
        match self.begin_anew(pod) {
            Ok(true) => {}
            // The sync loop has a message to end the pod.
            Ok(false) => return Outcome::Ok,
            Err(e) => {
                return Outcome::Failed {
                    error: e.to_string(),
                    retry_at: None,
                };
            }
        }
        let runtime = match self.runtime_status(pod) {
            Ok(status) => status,
            Err(outcome) => return outcome,
        };
        let resize = self.plan_resize(pod, &runtime);
        let pod = &resize.pod;
        let status = self.publish(pod, &runtime, Stage::Syncing);
        if status.phase.is_terminal() {
            return Outcome::Terminal;
        }
        self.deps.probes.add_pod(pod);
        let actions = actions::compute(&actions::Inputs {
            pod,
            status: &runtime,
            liveness: &|id| self.deps.probes.liveness(id),
            startup: &|id| self.deps.probes.startup(id),
            restart_all: status
                .condition(ALL_CONTAINERS_RESTARTING)
                .is_some_and(|c| c.status == "True"),
            ended_before: &actions::ended_before(pod, &status, &runtime),
            asked: &self.deps.restarts.asked(pod.uid(), &runtime),
            resized: &resize.restart,
            begun: &self.deps.stops.of(&runtime),
        });
        let mut problems = Problems::new(cancel);
        if !actions.kill_pod {
            self.resize(&resize, &actions.kill, &mut problems);
        }
        if !actions.kill_pod && !actions.starts() {
            self.update_volumes(pod, &runtime);
        }
        if resize.no_room.is_some() {
            problems.held_until(Moment::now() + ROOM);
        }
        if actions.is_empty() {
            return self.outcome(pod, problems);
        }
        if !actions.remove.is_empty() {
            return self.remove_for_restart(pod, &runtime, &actions.remove, cancel);
        }
        self.carry_out(pod, runtime, &actions, &mut problems);
        self.deps.cache.request_relist(pod.uid());
        self.outcome(pod, problems)
    }

    /// Returns the pod's runtime status, read after the end of the pod's last run.
    fn runtime_status(&self, pod: &Pod) -> Result<Arc<RuntimePodStatus>, Outcome> {
        let last_run = self
            .last_run
            .locked()
            .get(pod.uid())
            .copied()
            .unwrap_or_default();
        self.deps
            .cache
            .newer_than(pod.uid(), last_run)
            .map_err(|e| {
                let error = format!("error determining status: {e}");
                self.event(pod, "", EventType::Warning, "FailedSync", &error);
                Outcome::Failed {
                    error,
                    retry_at: None,
                }
            })
    }

    /// Computes the API status of a pod and stores it. Where the sync loop has set a Ready or a Started meanwhile, the status
    /// is computed anew.
    pub(super) fn publish(&self, pod: &Pod, runtime: &RuntimePodStatus, stage: Stage) -> PodStatus {
        let granted = self.deps.pods.granted(pod.uid());
        let pod = granted.as_deref().unwrap_or(pod);
        let (old, status) = loop {
            let old = self.deps.statuses.get(pod.uid());
            let status = self.computed(pod, runtime, stage, old.as_deref());
            let statuses = &self.deps.statuses;
            if statuses.replace(pod, old.as_ref(), status.clone()) {
                break (old, status);
            }
        };
        let newly = old.as_ref().is_none_or(|old| old.reason != status.reason);
        if status.reason == "DeadlineExceeded" && newly {
            self.event(
                pod,
                "",
                EventType::Normal,
                "DeadlineExceeded",
                &status.message,
            );
        }
        let started = |old: &PodStatus| old.phase == PodPhase::Pending;
        let runs = status.phase == PodPhase::Running && old.as_deref().is_none_or(started);
        if let Some(age) = self
            .deps
            .statuses
            .age(pod.uid(), Moment::now())
            .filter(|_| runs)
        {
            self.deps.metrics.pod_runs(age);
        }
        self.deps.probes.trigger_workers(pod, &status);
        status
    }

    /// Computes the API status of a pod from the one that is stored.
    fn computed(
        &self,
        pod: &Pod,
        runtime: &RuntimePodStatus,
        stage: Stage,
        old: Option<&PodStatus>,
    ) -> PodStatus {
        let pod_is_terminal = stage == Stage::Ended;
        let ended_by = self.deps.evictions.ended_by(pod.uid(), Moment::now());
        let resize = self.resizes.locked().get(pod.uid()).cloned();
        let status = status::generate(&status::Inputs {
            pod,
            runtime,
            old,
            failure: &|name| self.failure(pod.uid(), name),
            probed: &|s| self.deps.probes.update_pod_status(pod, s),
            now: Time::now(),
            node_ip: self.deps.node_ip,
            pod_is_terminal,
            terminating: stage != Stage::Syncing,
            deadline_exceeded: deadline_exceeded(
                pod,
                self.deps.statuses.age(pod.uid(), Moment::now()),
            ),
            ended_by: ended_by.as_ref(),
            resize: &resize.unwrap_or_default(),
        });
        if pod_is_terminal {
            status::finished(&pod.spec, status)
        } else {
            status
        }
    }

    /// Removes every container, then starts the pod from its beginning at once (8.6).
    fn remove_for_restart(
        &self,
        pod: &Arc<Pod>,
        runtime: &RuntimePodStatus,
        remove: &[ToRemove],
        cancel: &Cancel,
    ) -> Outcome {
        if let Some(asked) = actions::restart_all_asked_by(pod, runtime) {
            let cause = format!(
                "all containers restart: {} ended with exit code {}",
                asked.name, asked.exit_code
            );
            pod.spec
                .all_containers()
                .for_each(|c| self.deps.probes.renewing(pod, &c.name, &cause));
        }
        let mut problems = Problems::new(cancel);
        for ToRemove { id, name, kill } in remove {
            if *kill {
                let message = "killing".to_owned();
                let kill = ToKill {
                    id: id.clone(),
                    name: name.clone(),
                    message,
                    reason: KillReason::None,
                };
                self.kill_all(pod, &[kill], Some(0), &mut problems);
            }
            let removed = self.deps.kuberuntime.remove_container(runtime, name, id);
            if let Err(e) = removed {
                problems.add(e.message);
            }
        }
        self.forget_failures(pod.uid());
        self.deps.cache.request_relist(pod.uid());
        if !problems.errors.is_empty() {
            return self.outcome(pod, problems);
        }
        // the next sync needs a status that is newer than the removal
        self.ran(pod.uid());
        self.sync(pod, cancel)
    }

    fn outcome(&self, pod: &Pod, problems: Problems<'_>) -> Outcome {
        if problems.errors.is_empty() && problems.retry_at.is_none() {
            return Outcome::Ok;
        }
        // The status shows at once, and not only at the next sync, why something waits or failed.
        if let Ok(runtime) = self.runtime().pod_status(pod.uid()) {
            self.publish(pod, &runtime, Stage::Syncing);
        }
        match problems.errors.is_empty() {
            true => Outcome::Failed {
                error: String::new(),
                retry_at: problems.retry_at,
            },
            false => Outcome::Failed {
                error: problems.errors.join("; "),
                retry_at: problems.retry_at,
            },
        }
    }

    // ---- ending ----

    fn terminating(&self, work: &Work, cancel: &Cancel) -> Outcome {
        let pod = &work.pod;
        let runtime = match self.runtime().pod_status(pod.uid()) {
            Ok(status) => status,
            Err(e) => {
                return Outcome::Failed {
                    error: e.message,
                    retry_at: None,
                };
            }
        };
        if !work.runtime_only {
            self.publish(pod, &runtime, Stage::Ending);
            self.deps.probes.stop_liveness_and_startup(pod);
        }
        self.deps.traffic.wait_until_withdrawn();
        let mut problems = Problems::new(cancel);
        let grace = self.grace(work);
        self.kill_pod(pod, &runtime, Some(grace), &mut problems);
        let runtime = self.runtime().pod_status(pod.uid());
        self.deps.cache.request_relist(pod.uid());
        match runtime {
            Err(e) => problems.add(e.message),
            Ok(runtime) if runtime.is_running() && problems.errors.is_empty() => {
                problems.add(
                    "cannot end the pod: a container or sandbox of it still runs; trying again"
                        .into(),
                );
            }
            Ok(runtime) if !runtime.is_running() => {
                self.deps.probes.remove_pod(pod);
                if !work.runtime_only {
                    self.publish(pod, &runtime, Stage::Ended);
                }
                return Outcome::Ok;
            }
            Ok(_) => {}
        }
        Outcome::Failed {
            error: problems.errors.join("; "),
            retry_at: None,
        }
    }

    /// Clears up after a pod. A removed pod loses all its files. A pod that only finished keeps its records and logs.
    fn terminated(&self, work: &Work) -> Outcome {
        let uid = work.pod.uid();
        self.forget_failures(uid);
        self.deps.restarts.forget(uid);
        self.resizes.locked().remove(uid);
        if !work.removed {
            // A finished pod keeps its records and logs, but not its emptyDirs. A pod that comes back keeps these too.
            if self.deps.evictions.keeps_volumes(uid) {
                return self.evicted_has_ended(&work.pod);
            }
            return match self.deps.kuberuntime.tear_down_volumes(&work.pod) {
                Ok(()) => self.evicted_has_ended(&work.pod),
                Err(e) => Outcome::Failed {
                    error: format!("cannot remove the volumes of a finished pod: {e}"),
                    retry_at: None,
                },
            };
        }
        match self.remove_everything(&work.pod) {
            Ok(()) => {
                self.deps.evictions.forget(uid);
                Outcome::Ok
            }
            Err(e) => Outcome::Failed {
                error: format!("cannot remove what is left of the pod: {e}"),
                retry_at: None,
            },
        }
    }

    fn remove_everything(&self, pod: &Pod) -> Result<(), RuntimeError> {
        let uid = pod.uid();
        let left = self.runtime().pod_status(uid)?;
        left.containers.iter().try_for_each(|c| {
            self.deps
                .kuberuntime
                .remove_container(&left, &c.name, &c.id)
        })?;
        left.sandboxes
            .iter()
            .try_for_each(|s| self.runtime().remove_sandbox(&s.id))?;
        self.deps.kuberuntime.remove_pod_data(pod)?;
        self.deps.cache.request_relist(uid);
        Ok(())
    }

    // ---- events and logs ----

    pub(super) fn runtime(&self) -> &dyn Runtime {
        &**self.deps.kuberuntime.runtime()
    }

    /// Records an event, unless the failure came from the end of the daemon.
    pub(super) fn event(
        &self,
        pod: &Pod,
        container: &str,
        type_: EventType,
        reason: &str,
        message: &str,
    ) {
        if message.contains(ENDING) {
            return;
        }
        let field_path = if container.is_empty() {
            String::new()
        } else {
            pod.field_path(container)
        };
        let text = without_ids(message);
        self.deps
            .recorder
            .record(&pod.reference(), &field_path, type_, reason, &text);
    }

    pub(super) fn ran(&self, uid: &PodUid) {
        self.last_run.locked().insert(uid.clone(), Moment::now());
    }

    pub(super) fn forget_failures(&self, uid: &PodUid) {
        self.failures.locked().retain(|(of, _), _| of != uid);
    }

    fn failure(&self, uid: &PodUid, name: &str) -> Option<StartFailure> {
        self.failures
            .locked()
            .get(&(uid.clone(), name.to_owned()))
            .cloned()
    }

    pub(super) fn remember(&self, uid: &PodUid, name: &str, reason: &str, message: &str) {
        if message.contains(ENDING) {
            return;
        }
        let mut failures = self.failures.locked();
        let key = (uid.clone(), name.to_owned());
        if failures.len() >= MAX_FAILURES && !failures.contains_key(&key) {
            return;
        }
        failures.insert(
            key,
            StartFailure {
                reason: reason.into(),
                message: without_ids(message),
            },
        );
    }
}

/// Removes the ids of containers and sandboxes from a text. Each start makes a new id, so the same failure would
/// otherwise become another event each time. The log keeps the ids.
fn without_ids(text: &str) -> String {
    let is_id = |word: &str| word.len() == ID_DIGITS && word.bytes().all(|b| b.is_ascii_hexdigit());
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric());
        let (word, tail) = rest.split_at(end.unwrap_or(rest.len()));
        match is_id(word) {
            true if out.ends_with(' ') => drop(out.pop()),
            true => out.push_str("<id>"),
            false => out.push_str(word),
        }
        let next = tail.chars().next().map_or(0, char::len_utf8);
        out.push_str(&tail[..next]);
        rest = &tail[next..];
    }
    out
}

/// True if the pod has been active for its activeDeadlineSeconds (9.2). `age` is the time that the pod has been active.
pub(crate) fn deadline_exceeded(pod: &Pod, age: Option<Duration>) -> bool {
    let limit = pod
        .spec
        .active_deadline_seconds
        .and_then(|s| u64::try_from(s).ok());
    age.zip(limit)
        .is_some_and(|(age, limit)| age >= Duration::from_secs(limit))
}

#[cfg(test)]
mod tests;
