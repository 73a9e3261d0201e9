//! The three syncs of a pod: make it run, make it end, clear up (kubelet-probes 8.1, 8.4, 8.5).
//!
//! What to do is decided in [`crate::pod_actions`] and [`crate::status`]; this file carries it out and records why
//! something did not work. It runs on the pod worker's thread and may block there.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::turns::{Ended, Turns};
use super::{Outcome, Phase, PodSyncer, Work};
use crate::api::{Container, Pod, PodStatus, PodUid};
use crate::clock::{Moment, Time, go_duration};
use crate::events::{EventType, Recorder};
use crate::pod_actions::{
    self, ALL_CONTAINERS_RESTARTING, BackOff, BackOffKey, KillReason, MINIMUM_GRACE_SECONDS, PodActions, ToKill, ToRemove,
    kill_grace_period,
};
use crate::prober::results::ProbeResult;
use crate::runtime::{ContainerId, Runtime, RuntimePodStatus, RuntimeState, StartErrorReason};
use crate::status::{self, StartFailure, StatusManager};

/// Instances of a container kept: the newest and the one before it.
const KEPT_INSTANCES: usize = 2;
/// Start failures remembered (kubelet-probes 9.3, note on S9).
const MAX_FAILURES: usize = 1000;
/// Stack of a thread that only waits for one container to end.
const KILL_STACK: usize = 256 * 1024;

/// What the syncer needs of PLEG.
pub trait PodCache: Send + Sync {
    /// The pod's runtime status as seen after `since`; blocks until there is one.
    ///
    /// # Errors
    /// The runtime did not answer in time.
    fn newer_than(&self, uid: &PodUid, since: Moment) -> Result<Arc<RuntimePodStatus>, String>;

    /// Look at this pod again soon: something was done to it. Never blocks.
    fn request_relist(&self, uid: &PodUid);
}

/// What the syncer needs of the probe manager (kubelet-probes 4.2, 4.3).
pub trait Probes: Send + Sync {
    /// Starts the workers the pod lacks.
    fn add_pod(&self, pod: &Arc<Pod>);
    /// The pod is ending: only readiness goes on.
    fn stop_liveness_and_startup(&self, pod: &Pod);
    /// Nothing of the pod runs any more.
    fn remove_pod(&self, pod: &Pod);
    /// Writes Ready and Started into a fresh status.
    fn update_pod_status(&self, pod: &Pod, status: &mut PodStatus);
    /// The liveness cache.
    fn liveness(&self, id: &ContainerId) -> Option<ProbeResult>;
    /// The startup cache.
    fn startup(&self, id: &ContainerId) -> Option<ProbeResult>;
}

/// What a syncer works with.
pub struct Deps {
    /// Runs things.
    pub runtime: Arc<dyn Runtime>,
    /// What runs.
    pub cache: Arc<dyn PodCache>,
    /// Probes.
    pub probes: Arc<dyn Probes>,
    /// Statuses.
    pub statuses: Arc<StatusManager>,
    /// Events.
    pub recorder: Arc<Recorder>,
    /// Address of pods in the node's network.
    pub node_ip: IpAddr,
    /// Ceiling of the crash-loop back-off.
    pub max_back_off: Duration,
}

/// See the module.
pub struct Syncer {
    deps: Deps,
    back_off: Mutex<BackOff>,
    failures: Mutex<HashMap<(PodUid, String), StartFailure>>,
    /// When each pod's last run ended: the next one waits for news after that.
    last_run: Mutex<HashMap<PodUid, Moment>>,
}

/// Why a sync did not do all it should.
#[derive(Default)]
struct Problems {
    errors: Vec<String>,
    retry_at: Option<Moment>,
}

impl Problems {
    fn add(&mut self, error: String) {
        self.errors.push(error);
    }

    fn held_until(&mut self, at: Moment) {
        self.retry_at = Some(self.retry_at.map_or(at, |earliest| earliest.min(at)));
    }
}

impl PodSyncer for Syncer {
    fn run(&self, work: &Work) -> Outcome {
        let outcome = match work.phase {
            Phase::Sync => self.sync(&work.pod),
            Phase::Terminating => self.terminating(work),
            Phase::Terminated => self.terminated(work),
        };
        let uid = work.pod.uid();
        let finished = work.phase == Phase::Terminated && outcome == Outcome::Ok;
        if finished {
            self.last_run.lock().expect("no panic while the lock is held").remove(uid);
        } else {
            self.ran(uid);
        }
        outcome
    }
}

impl Syncer {
    /// A syncer with an empty back-off table.
    pub fn new(deps: Deps) -> Self {
        let back_off = Mutex::new(BackOff::new(deps.max_back_off));
        Self { deps, back_off, failures: Mutex::default(), last_run: Mutex::default() }
    }

    /// Housekeeping: drops back-off entries nobody can meet again.
    pub fn collect_garbage(&self, now: Moment) {
        self.back_off.lock().expect("no panic while the lock is held").collect_garbage(now);
    }

    // ---- sync ----

    fn sync(&self, pod: &Arc<Pod>) -> Outcome {
        let runtime = match self.runtime_status(pod) {
            Ok(status) => status,
            Err(outcome) => return outcome,
        };
        let status = self.publish(pod, &runtime, false);
        if status.phase.is_terminal() {
            return Outcome::Terminal;
        }
        self.deps.probes.add_pod(pod);
        let actions = pod_actions::compute(&pod_actions::Inputs {
            pod,
            status: &runtime,
            liveness: &|id| self.deps.probes.liveness(id),
            startup: &|id| self.deps.probes.startup(id),
            restart_all: status.condition(ALL_CONTAINERS_RESTARTING).is_some_and(|c| c.status == "True"),
        });
        if actions.is_empty() {
            return Outcome::Ok;
        }
        if !actions.remove.is_empty() {
            return self.remove_for_restart(pod, &actions.remove);
        }
        let mut problems = Problems::default();
        self.carry_out(pod, runtime, &actions, &mut problems);
        self.deps.cache.request_relist(pod.uid());
        self.outcome(pod, problems)
    }

    /// The runtime's word, newer than the end of this pod's last run.
    fn runtime_status(&self, pod: &Pod) -> Result<Arc<RuntimePodStatus>, Outcome> {
        let last_run = self.last_run.lock().expect("no panic while the lock is held").get(pod.uid()).copied().unwrap_or_default();
        self.deps.cache.newer_than(pod.uid(), last_run).map_err(|e| {
            let error = format!("error determining status: {e}");
            self.event(pod, "", EventType::Warning, "FailedSync", &error);
            Outcome::Failed { error, retry_at: None }
        })
    }

    /// Computes the API status and stores it.
    fn publish(&self, pod: &Pod, runtime: &RuntimePodStatus, pod_is_terminal: bool) -> PodStatus {
        let old = self.deps.statuses.get(pod.uid());
        let status = status::generate(&status::Inputs {
            pod,
            runtime,
            old: old.as_deref(),
            failure: &|name| self.failure(pod.uid(), name),
            probed: &|s| self.deps.probes.update_pod_status(pod, s),
            now: Time::now(),
            node_ip: self.deps.node_ip,
            pod_is_terminal,
            deadline_exceeded: deadline_exceeded(pod, old.as_deref()),
        });
        let status = if pod_is_terminal { status::finished(&pod.spec, status) } else { status };
        self.deps.statuses.set(pod, status.clone());
        status
    }

    /// 8.6: removes every container, then the pod starts from its beginning at once.
    fn remove_for_restart(&self, pod: &Arc<Pod>, remove: &[ToRemove]) -> Outcome {
        let mut problems = Problems::default();
        for ToRemove { id, name, kill } in remove {
            if *kill {
                let message = format!("Stopping container {name}");
                let kill = ToKill { id: id.clone(), name: name.clone(), message, reason: KillReason::None };
                self.kill_all(pod, &[kill], Some(0), &mut problems);
            }
            if let Err(e) = self.deps.runtime.remove_container(id) {
                problems.add(e.message);
            }
        }
        self.forget_failures(pod.uid());
        self.deps.cache.request_relist(pod.uid());
        if !problems.errors.is_empty() {
            return self.outcome(pod, problems);
        }
        // the next look must be newer than the removal
        self.ran(pod.uid());
        self.sync(pod)
    }

    /// Kill, create the sandbox, start: the order of 8.4.
    fn carry_out(&self, pod: &Arc<Pod>, mut runtime: Arc<RuntimePodStatus>, actions: &PodActions, problems: &mut Problems) {
        if actions.kill_pod {
            if actions.create_sandbox && !runtime.sandboxes.is_empty() {
                let text = "Pod sandbox changed, it will be killed and re-created.";
                self.event(pod, "", EventType::Normal, "SandboxChanged", text);
            }
            self.kill_pod(pod, &runtime, None, problems);
        } else {
            self.kill_all(pod, &actions.kill, None, problems);
        }
        if !problems.errors.is_empty() {
            return;
        }
        if actions.kill_pod || !actions.kill.is_empty() {
            // what was killed has a finish time now: the back-off counts from it (lessons E2)
            match self.deps.runtime.pod_status(pod.uid()) {
                Ok(fresh) => runtime = Arc::new(fresh),
                Err(e) => return problems.add(e.message),
            }
        }
        if actions.create_sandbox {
            match self.purge_init_containers(pod, &runtime) {
                Ok(left) => runtime = Arc::new(left),
                Err(e) => return problems.add(e),
            }
        }
        let sandbox = match actions.create_sandbox {
            true => self.create_sandbox(pod, actions.attempt, problems),
            false => runtime.sandboxes.first().map(|s| s.id.clone()),
        };
        if let Some(sandbox) = sandbox {
            self.start_all(pod, &sandbox, &runtime, actions, problems);
        }
    }

    /// Init containers, then regular ones, in order. A plain init container that does not start ends the list; a sidecar
    /// is passed over and tried again at the next sync.
    fn start_all(&self, pod: &Pod, sandbox: &ContainerId, runtime: &RuntimePodStatus, actions: &PodActions, problems: &mut Problems) {
        for container in actions.init_start.iter().filter_map(|i| pod.spec.init_containers.get(*i)) {
            if !self.start(pod, sandbox, container, runtime, problems) && !container.always_restarts() {
                return;
            }
        }
        for container in actions.start.iter().filter_map(|i| pod.spec.containers.get(*i)) {
            self.start(pod, sandbox, container, runtime, problems);
        }
    }

    /// Initialisation starts anew with the sandbox, so what it came to before must not be taken for this one's. Returns
    /// what the runtime still knows.
    fn purge_init_containers(&self, pod: &Pod, runtime: &RuntimePodStatus) -> Result<RuntimePodStatus, String> {
        let mut left = runtime.clone();
        let init = |name: &str| pod.spec.init_containers.iter().any(|c| c.name == name);
        for old in left.containers.extract_if(.., |c| init(&c.name)) {
            self.deps.runtime.remove_container(&old.id).map_err(|e| e.message)?;
        }
        Ok(left)
    }

    fn create_sandbox(&self, pod: &Pod, attempt: u32, problems: &mut Problems) -> Option<ContainerId> {
        match self.deps.runtime.run_pod_sandbox(pod, attempt) {
            Ok(id) => Some(id),
            Err(e) => {
                let text = format!("Failed to create pod sandbox: {e}");
                self.event(pod, "", EventType::Warning, "FailedCreatePodSandBox", &text);
                for container in pod.spec.all_containers() {
                    self.remember(pod.uid(), &container.name, e.reason.as_str(), &text);
                }
                problems.add(text);
                None
            }
        }
    }

    /// Back-off, then the start of one container; whether it was started.
    fn start(&self, pod: &Pod, sandbox: &ContainerId, container: &Container, runtime: &RuntimePodStatus, problems: &mut Problems) -> bool {
        if let Err(held) = self.check_back_off(pod, container, runtime) {
            let name = &container.name;
            let of = pod.reference();
            let event = format!("Back-off restarting failed container {name} in pod {of}");
            self.event(pod, name, EventType::Warning, "BackOff", &event);
            let delay = go_duration(held.delay);
            let message = format!("back-off {delay} restarting failed container={name} pod={of}");
            self.remember(pod.uid(), name, StartErrorReason::CrashLoopBackOff.as_str(), &message);
            problems.held_until(held.retry_at);
            return false;
        }
        self.prune(container, runtime);
        let attempt = next_attempt(container, runtime, self.deps.statuses.get(pod.uid()).as_deref());
        let result = self.deps.runtime.start_container(pod, sandbox, container, attempt);
        let started = result.is_ok();
        match result {
            Ok(_) => {
                self.failures.lock().expect("no panic while the lock is held").remove(&(pod.uid().clone(), container.name.clone()));
                self.event(pod, &container.name, EventType::Normal, "Created", "Container created");
                self.event(pod, &container.name, EventType::Normal, "Started", "Container started");
            }
            Err(e) => {
                self.event(pod, &container.name, EventType::Warning, "Failed", &format!("Error: {e}"));
                self.remember(pod.uid(), &container.name, e.reason.as_str(), &e.message);
                problems.add(format!("cannot start container {}: {e}", container.name));
            }
        }
        started
    }

    fn check_back_off(&self, pod: &Pod, container: &Container, runtime: &RuntimePodStatus) -> Result<(), pod_actions::Held> {
        let key = BackOffKey::new(&pod.reference(), container);
        let mut back_off = self.back_off.lock().expect("no panic while the lock is held");
        back_off.start_after(&key, &container.name, runtime, Moment::now())
    }

    /// Removes all but the newest ended instance, so that with the new one [`KEPT_INSTANCES`] are left.
    fn prune(&self, container: &Container, runtime: &RuntimePodStatus) {
        let ended = runtime.containers.iter().filter(|c| c.name == container.name && c.state != RuntimeState::Running);
        for old in ended.skip(KEPT_INSTANCES - 1) {
            if let Err(e) = self.deps.runtime.remove_container(&old.id) {
                log::warn!("cannot remove an ended instance of container {}: {e}; trying again at its next restart", container.name);
            }
        }
    }

    fn outcome(&self, pod: &Pod, problems: Problems) -> Outcome {
        if problems.errors.is_empty() && problems.retry_at.is_none() {
            return Outcome::Ok;
        }
        // why something waits or failed must be seen at once, not at the next sync
        if let Ok(runtime) = self.deps.runtime.pod_status(pod.uid()) {
            self.publish(pod, &runtime, false);
        }
        match problems.errors.is_empty() {
            true => Outcome::Failed { error: String::new(), retry_at: problems.retry_at },
            false => Outcome::Failed { error: problems.errors.join("; "), retry_at: problems.retry_at },
        }
    }

    // ---- ending ----

    fn terminating(&self, work: &Work) -> Outcome {
        let pod = &work.pod;
        let runtime = match self.deps.runtime.pod_status(pod.uid()) {
            Ok(status) => status,
            Err(e) => return Outcome::Failed { error: e.message, retry_at: None },
        };
        if !work.runtime_only {
            self.publish(pod, &runtime, false);
            self.deps.probes.stop_liveness_and_startup(pod);
        }
        let mut problems = Problems::default();
        self.kill_pod(pod, &runtime, Some(work.grace), &mut problems);
        let runtime = self.deps.runtime.pod_status(pod.uid());
        self.deps.cache.request_relist(pod.uid());
        match runtime {
            Err(e) => problems.add(e.message),
            Ok(runtime) if runtime.is_running() && problems.errors.is_empty() => {
                problems.add("cannot end the pod: something of it still runs; trying again".into());
            }
            Ok(runtime) if !runtime.is_running() => {
                self.deps.probes.remove_pod(pod);
                if !work.runtime_only {
                    self.publish(pod, &runtime, true);
                }
                return Outcome::Ok;
            }
            Ok(_) => {}
        }
        Outcome::Failed { error: problems.errors.join("; "), retry_at: None }
    }

    /// A removed pod goes with all its remains; one that merely finished keeps its records and logs.
    fn terminated(&self, work: &Work) -> Outcome {
        let uid = work.pod.uid();
        self.forget_failures(uid);
        if !work.removed {
            return Outcome::Ok;
        }
        match self.remove_everything(uid) {
            Ok(()) => Outcome::Ok,
            Err(e) => Outcome::Failed { error: format!("cannot remove what is left of the pod: {e}"), retry_at: None },
        }
    }

    fn remove_everything(&self, uid: &PodUid) -> Result<(), crate::runtime::RuntimeError> {
        let runtime = &self.deps.runtime;
        let left = runtime.pod_status(uid)?;
        left.containers.iter().try_for_each(|c| runtime.remove_container(&c.id))?;
        left.sandboxes.iter().try_for_each(|s| runtime.remove_pod_sandbox(&s.id))?;
        runtime.remove_pod(uid)?;
        self.deps.cache.request_relist(uid);
        Ok(())
    }

    /// Every running container at once, sidecars in their turn, then the sandboxes (8.5).
    fn kill_pod(&self, pod: &Pod, runtime: &RuntimePodStatus, grace: Option<i64>, problems: &mut Problems) {
        let alive = runtime.containers.iter().filter(|c| c.state != RuntimeState::Exited);
        let kills: Vec<ToKill> = alive
            .map(|c| ToKill {
                id: c.id.clone(),
                name: c.name.clone(),
                message: format!("Stopping container {}", c.name),
                reason: KillReason::None,
            })
            .collect();
        self.kill_in_turn(pod, &kills, grace, problems);
        for sandbox in &runtime.sandboxes {
            if let Err(e) = self.deps.runtime.stop_pod_sandbox(&sandbox.id) {
                self.event(pod, "", EventType::Warning, "FailedKillPod", &format!("error killing pod: {e}"));
                problems.add(e.message);
            }
        }
    }

    /// In parallel: the slowest decides how long it takes.
    fn kill_all(&self, pod: &Pod, kills: &[ToKill], grace: Option<i64>, problems: &mut Problems) {
        self.kill_each(pod, kills, grace, None, problems);
    }

    /// In parallel too, but a sidecar waits for those it has to outlive, as long as its grace period lasts.
    fn kill_in_turn(&self, pod: &Pod, kills: &[ToKill], grace: Option<i64>, problems: &mut Problems) {
        let turns = Turns::new(kills.iter().map(|k| k.name.as_str()));
        self.kill_each(pod, kills, grace, Some(&turns), problems);
    }

    fn kill_each(&self, pod: &Pod, kills: &[ToKill], grace: Option<i64>, turns: Option<&Turns>, problems: &mut Problems) {
        let errors: Vec<String> = match kills {
            [] => return,
            [one] => self.kill(pod, one, grace, None).err().into_iter().collect(),
            many => std::thread::scope(|scope| {
                let spawn = |kill| {
                    let thread = std::thread::Builder::new().name("kill".into()).stack_size(KILL_STACK);
                    thread.spawn_scoped(scope, move || self.kill(pod, kill, grace, turns)).map_err(|e| (kill, e))
                };
                let threads: Vec<_> = many.iter().map(spawn).collect();
                let end = |t: Result<std::thread::ScopedJoinHandle<'_, Result<(), String>>, (&ToKill, std::io::Error)>| match t {
                    Ok(handle) => handle.join().unwrap_or_else(|_| Err("killing panicked".into())),
                    // no thread to be had: one after the other, without a turn
                    Err((kill, _)) => {
                        let _ended = turns.map(|turns| Ended(turns, &kill.name));
                        self.kill(pod, kill, grace, None)
                    }
                };
                threads.into_iter().filter_map(|t| end(t).err()).collect()
            }),
        };
        problems.errors.extend(errors);
    }

    fn kill(&self, pod: &Pod, kill: &ToKill, grace: Option<i64>, turns: Option<&Turns>) -> Result<(), String> {
        // also when it fails or panics: whoever waits for it is not to wait in vain
        let _ended = turns.map(|turns| Ended(turns, &kill.name));
        self.event(pod, &kill.name, EventType::Normal, "Killing", &kill.message);
        let own = || kill_grace_period(pod, pod.container(&kill.name), kill.reason);
        let given = Duration::from_secs(grace.unwrap_or_else(own).max(0) as u64);
        let waited = turns.map(|turns| turns.wait(&pod_actions::ends_after(&pod.spec, &kill.name), given)).unwrap_or_default();
        let left = given.saturating_sub(waited).max(Duration::from_secs(MINIMUM_GRACE_SECONDS as u64));
        let stopped = self.deps.runtime.stop_container(&kill.id, left);
        stopped.map_err(|e| {
            self.event(pod, &kill.name, EventType::Warning, "FailedKillPod", &format!("error killing pod: {e}"));
            format!("cannot stop container {}: {e}", kill.name)
        })
    }

    // ---- small things ----

    fn event(&self, pod: &Pod, container: &str, type_: EventType, reason: &str, message: &str) {
        let field_path = if container.is_empty() { String::new() } else { pod.field_path(container) };
        self.deps.recorder.record(&pod.reference(), &field_path, type_, reason, message);
    }

    fn ran(&self, uid: &PodUid) {
        self.last_run.lock().expect("no panic while the lock is held").insert(uid.clone(), Moment::now());
    }

    fn forget_failures(&self, uid: &PodUid) {
        self.failures.lock().expect("no panic while the lock is held").retain(|(of, _), _| of != uid);
    }

    fn failure(&self, uid: &PodUid, name: &str) -> Option<StartFailure> {
        self.failures.lock().expect("no panic while the lock is held").get(&(uid.clone(), name.to_owned())).cloned()
    }

    fn remember(&self, uid: &PodUid, name: &str, reason: &str, message: &str) {
        let mut failures = self.failures.lock().expect("no panic while the lock is held");
        let key = (uid.clone(), name.to_owned());
        if failures.len() >= MAX_FAILURES && !failures.contains_key(&key) {
            return;
        }
        failures.insert(key, StartFailure { reason: reason.into(), message: message.into() });
    }
}

/// activeDeadlineSeconds since the start time (9.2). Wall clock: the start time is the API's and outlives a boot.
pub(crate) fn deadline_exceeded(pod: &Pod, status: Option<&PodStatus>) -> bool {
    let started = status.and_then(|s| s.start_time);
    match (pod.spec.active_deadline_seconds, started) {
        (Some(limit), Some(started)) => Time::now().unix_seconds() - started.unix_seconds() >= limit,
        _ => false,
    }
}

/// Newest known instance + 1 (8.4, last paragraph). Where the runtime knows none, the status before tells: it has counted
/// a container that vanished already (9.3 S3), one that ended not yet.
fn next_attempt(container: &Container, runtime: &RuntimePodStatus, old: Option<&PodStatus>) -> u32 {
    let newest = runtime.containers.iter().filter(|c| c.name == container.name).map(|c| c.attempt).max();
    let counted = || {
        let before = old?.container(&container.name)?;
        Some(before.restart_count + u32::from(!before.container_id.is_empty()))
    };
    newest.map(|n| n + 1).or_else(counted).unwrap_or(0)
}

#[cfg(test)]
mod tests;
