//! The probe manager: which workers there are, and what their results mean for a status (kubelet-probes 4.2–4.4).
//!
//! Invariants: one worker per (pod UID, container, probe type), made only in the vacant arm of its map entry. Sending
//! to a worker never blocks. No method joins a thread but `reap` (those that have ended) and `shutdown` (with a limit).
//! The table's lock is never held while a probe, a runtime call or a send that can block goes on.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::history::History;
use super::mailbox::Mailbox;
use super::metrics::ProbeMetrics;
use super::pauses::Pauses;
use super::prober::Prober;
use super::results::{self, ProbeResult};
use super::status::{self, Known};
pub use super::thread::STACK_SIZE;
use super::thread::{Job, Seen, Trigger};
use crate::api::{Container, ContainerStatus, Pod, PodStatus, PodUid, Probe, ProbeType};
use crate::clock::Moment;
use crate::events::Recorder;
use crate::runtime::{ContainerId, Runtime};

/// Where the workers see what is known of their pod. Called from their threads; must not block.
pub trait StatusSource: Send + Sync {
    /// A number that grows with every change of a status, after the change. While it stays no worker looks at its status
    /// again.
    fn version(&self) -> u64;

    /// The stored API status.
    fn pod_status(&self, uid: &PodUid) -> Option<Arc<PodStatus>>;

    /// When a container of this boot started, as the runtime says.
    fn started_moment(&self, uid: &PodUid, id: &ContainerId) -> Option<Moment>;
}

/// The three result caches.
#[derive(Clone)]
pub struct Results {
    /// Of startup probes.
    pub startup: Arc<results::Manager>,
    /// Of readiness probes.
    pub readiness: Arc<results::Manager>,
    /// Of liveness probes.
    pub liveness: Arc<results::Manager>,
}

impl Results {
    /// The cache of that type.
    pub fn of(&self, probe_type: ProbeType) -> &results::Manager {
        match probe_type {
            ProbeType::Startup => &self.startup,
            ProbeType::Readiness => &self.readiness,
            ProbeType::Liveness => &self.liveness,
        }
    }
}

/// What an earlier daemon knew of a container that still runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoredReady {
    /// It was ready.
    pub ready: bool,
    /// Its startup probe had passed, or it has none.
    pub started: bool,
}

/// What the manager is made of.
pub struct Deps {
    /// The stored statuses.
    pub statuses: Arc<dyn StatusSource>,
    /// Runs exec probes and knows the network namespaces.
    pub runtime: Arc<dyn Runtime>,
    /// The caches the workers write.
    pub results: Results,
    /// Takes the events.
    pub recorder: Arc<Recorder>,
    /// When the daemon started.
    pub started: Moment,
    /// Hosts that a probe may name besides the pod's own (`allowProbeHosts`).
    pub allow_probe_hosts: Vec<String>,
    /// Readiness and started by container id, from the checkpoint of an earlier daemon.
    pub restored: HashMap<ContainerId, RestoredReady>,
}

/// Names a worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) uid: PodUid,
    pub(super) container: String,
    pub(super) probe_type: ProbeType,
}

impl Key {
    pub(super) fn thread_name(&self) -> String {
        format!(
            "{}:{}",
            self.probe_type.as_str().to_lowercase(),
            self.container
        )
    }
}

struct Handle {
    mailbox: Arc<Mailbox<Trigger>>,
    seen: Seen,
    thread: JoinHandle<()>,
    /// What it goes by: that of the pod as it was when the worker began (kubelet-probes 2.1).
    probe: Probe,
}

#[derive(Default)]
struct Table {
    workers: HashMap<Key, Handle>,
    ended: Vec<JoinHandle<()>>,
    closed: bool,
}

/// What manager and workers share.
pub(super) struct Shared {
    pub(super) statuses: Arc<dyn StatusSource>,
    pub(super) results: Results,
    pub(super) prober: Prober,
    pub(super) started: Moment,
    restored: HashMap<ContainerId, RestoredReady>,
    panics: AtomicU64,
    pub(super) history: Arc<History>,
    pub(super) pauses: Arc<Pauses>,
    pub(super) metrics: ProbeMetrics,
    table: Mutex<Table>,
    changed: Condvar,
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_restored(&self, id: &ContainerId) -> bool {
        self.restored.contains_key(id)
    }

    pub(super) fn count_panic(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
    }

    /// A worker's last act.
    pub(super) fn ended(&self, key: &Key) {
        let mut table = self.table();
        if let Some(handle) = table.workers.remove(key) {
            table.ended.push(handle.thread);
        }
        self.changed.notify_all();
    }

    /// A worker whose thread cannot go on continues on a fresh one; without one it is gone until the next sync.
    pub(super) fn restart(&self, job: Box<Job>) {
        let mut table = self.table();
        let key = job.key.clone();
        let Some(mut handle) = table.workers.remove(&key) else {
            return;
        };
        match job.spawn() {
            Ok(thread) => {
                table
                    .ended
                    .push(std::mem::replace(&mut handle.thread, thread));
                table.workers.insert(key, handle);
            }
            Err(e) => {
                log::error!(
                    "cannot start {} again: {e}; the next sync of its pod tries",
                    key.thread_name()
                );
                table.ended.push(handle.thread);
            }
        }
        self.changed.notify_all();
    }
}

/// The probe manager.
pub struct ProberManager {
    shared: Arc<Shared>,
}

impl ProberManager {
    /// A manager without workers; what was restored is in the caches when it returns.
    pub fn new(deps: Deps) -> Self {
        let Deps {
            statuses,
            runtime,
            results,
            recorder,
            started,
            allow_probe_hosts,
            restored,
        } = deps;
        for (id, was) in &restored {
            results.readiness.restore(
                id,
                if was.ready {
                    ProbeResult::Success
                } else {
                    ProbeResult::Failure
                },
            );
            results.startup.restore(
                id,
                if was.started {
                    ProbeResult::Success
                } else {
                    ProbeResult::Unknown
                },
            );
        }
        let prober = Prober::new(runtime, recorder, allow_probe_hosts);
        let shared = Shared {
            statuses,
            results,
            prober,
            started,
            restored,
            panics: AtomicU64::new(0),
            history: Arc::default(),
            pauses: Arc::default(),
            metrics: ProbeMetrics::default(),
            table: Mutex::default(),
            changed: Condvar::new(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Makes the workers the pod lacks: regular containers in order, then sidecars, for each startup, readiness, liveness.
    /// One that cannot be made is logged and tried again at the next sync.
    pub fn add_pod(&self, pod: &Arc<Pod>) {
        for container in pod.spec.containers.iter().chain(pod.spec.sidecars()) {
            for probe_type in ProbeType::ALL {
                self.add_worker(pod, container, probe_type);
            }
        }
    }

    fn add_worker(&self, pod: &Arc<Pod>, container: &Container, probe_type: ProbeType) {
        let Some(probe) = container.probe(probe_type) else {
            return;
        };
        let key = Key {
            uid: pod.uid().clone(),
            container: container.name.clone(),
            probe_type,
        };
        let mut table = self.shared.table();
        if table.closed {
            return;
        }
        let Entry::Vacant(vacant) = table.workers.entry(key.clone()) else {
            return;
        };
        let (mailbox, seen) = (Arc::<Mailbox<Trigger>>::default(), Seen::default());
        match Job::new(
            self.shared.clone(),
            key.clone(),
            pod.clone(),
            probe,
            mailbox.clone(),
            seen.clone(),
        )
        .spawn()
        {
            Ok(thread) => drop(vacant.insert(Handle {
                mailbox,
                seen,
                thread,
                probe: probe.clone(),
            })),
            Err(e) => log::error!(
                "cannot start the {} worker of {}: {e}; the next sync tries again",
                key.thread_name(),
                pod.reference()
            ),
        }
    }

    /// Stops the liveness and startup workers of a terminating pod; readiness goes on (lessons A8), and so do all those of
    /// sidecars, which work on until the others have ended (O8).
    pub fn stop_liveness_and_startup(&self, pod: &Pod) {
        let ends = |key: &Key| {
            key.probe_type != ProbeType::Readiness && !pod.spec.is_sidecar(&key.container)
        };
        self.stop(|key| key.uid == *pod.uid() && ends(key));
    }

    /// Stops all workers of a pod whose containers have stopped.
    pub fn remove_pod(&self, pod: &Pod) {
        self.stop(|key| key.uid == *pod.uid());
    }

    /// Stops the workers of all pods that are not in `desired`.
    pub fn clean_up(&self, desired: &HashSet<PodUid>) {
        self.stop(|key| !desired.contains(&key.uid));
    }

    fn stop(&self, which: impl Fn(&Key) -> bool) {
        for (_, handle) in self
            .shared
            .table()
            .workers
            .iter()
            .filter(|(key, _)| which(key))
        {
            handle.mailbox.stop();
        }
    }

    /// Writes Ready and Started into a fresh status (kubelet-probes 4.3, 4.4), and triggers readiness workers that have
    /// no Success, as well as workers that have not seen a new instance yet.
    pub fn update_pod_status(&self, pod: &Pod, fresh: &mut PodStatus) {
        let stored = self.shared.statuses.pod_status(pod.uid());
        for entry in fresh
            .init_container_statuses
            .iter_mut()
            .chain(&mut fresh.container_statuses)
        {
            let id = ContainerId::from(entry.container_id.as_str());
            let known = self.known(&id, entry, stored.as_deref());
            let trigger = status::update(entry, &pod.spec, known);
            if entry.state.running.is_some() {
                self.trigger(pod, &entry.name, &id, trigger);
            }
        }
    }

    fn known(
        &self,
        id: &ContainerId,
        entry: &ContainerStatus,
        stored: Option<&PodStatus>,
    ) -> Known {
        let old = stored
            .and_then(|s| s.container(&entry.name))
            .filter(|old| old.container_id == entry.container_id);
        Known {
            startup: self.shared.results.startup.get(id),
            readiness: self.shared.results.readiness.get(id),
            was_started: old.is_some_and(|old| old.started == Some(true)),
        }
    }

    fn trigger(&self, pod: &Pod, container: &str, id: &ContainerId, readiness: bool) {
        let table = self.shared.table();
        for probe_type in ProbeType::ALL {
            let key = Key {
                uid: pod.uid().clone(),
                container: container.into(),
                probe_type,
            };
            let Some(handle) = table.workers.get(&key) else {
                continue;
            };
            let unseen = handle
                .seen
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .as_ref()
                != Some(id);
            let trigger = match (readiness && probe_type == ProbeType::Readiness, unseen) {
                (true, _) => Trigger::Probe(id.clone()),
                (false, true) => Trigger::Notice(id.clone()),
                (false, false) => continue,
            };
            if !handle.mailbox.trigger(trigger) {
                log::debug!("{} is triggered already", key.thread_name());
            }
        }
    }

    /// The probes of a pod that its file has changed, added to or taken away under workers that go on with what they began
    /// with, by container: a pod that keeps its UID keeps its workers (kubelet-probes 2.1, 13.5).
    pub fn outdated(&self, pod: &Pod) -> Vec<(String, ProbeType)> {
        let table = self.shared.table();
        let differs = |container: &Container, probe_type: ProbeType| {
            let key = Key {
                uid: pod.uid().clone(),
                container: container.name.clone(),
                probe_type,
            };
            table
                .workers
                .get(&key)
                .is_some_and(|handle| container.probe(probe_type) != Some(&handle.probe))
        };
        let each = |c: &'_ Container| {
            ProbeType::ALL
                .map(|t| differs(c, t).then(|| (c.name.clone(), t)))
                .into_iter()
                .flatten()
        };
        pod.spec.all_containers().flat_map(each).collect()
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// What the probes found, and the causes of restarts.
    pub fn history(&self) -> &Arc<History> {
        &self.shared.history
    }

    /// The probes that are paused; a worker looks there before each run.
    pub fn pauses(&self) -> &Arc<Pauses> {
        &self.shared.pauses
    }

    /// The probes' metrics.
    pub fn metrics(&self) -> &ProbeMetrics {
        &self.shared.metrics
    }

    /// How many workers there are.
    pub fn worker_count(&self) -> usize {
        self.shared.table().workers.len()
    }

    /// Pod, container and probe type of each worker, in no order.
    pub fn workers(&self) -> Vec<(PodUid, String, ProbeType)> {
        self.shared
            .table()
            .workers
            .keys()
            .map(|k| (k.uid.clone(), k.container.clone(), k.probe_type))
            .collect()
    }

    /// How many panics of workers have been caught.
    pub fn panics(&self) -> u64 {
        self.shared.panics.load(Ordering::Relaxed)
    }

    /// Joins threads that have ended; never waits.
    pub fn reap(&self) {
        let mut table = self.shared.table();
        for i in (0..table.ended.len())
            .rev()
            .filter(|i| table.ended[*i].is_finished())
            .collect::<Vec<_>>()
        {
            let _ = table.ended.swap_remove(i).join();
        }
    }

    /// Stops all workers, takes no new ones and waits for their threads at most `limit`. Names each that is late in the
    /// log and returns how many there are. Someone must still read, or have dropped, the results' receivers.
    pub fn shutdown(&self, limit: Duration) -> usize {
        let deadline = Instant::now() + limit;
        self.shared.table().closed = true;
        self.stop(|_| true);
        let left = || deadline.saturating_duration_since(Instant::now());
        let table = self.shared.table();
        let (mut table, _) = self
            .shared
            .changed
            .wait_timeout_while(table, left(), |t| !t.workers.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        let ended = std::mem::take(&mut table.ended);
        for key in table.workers.keys() {
            log::debug!(
                "{} of pod {} has not ended within {limit:?}",
                key.thread_name(),
                key.uid
            );
        }
        let late = table.workers.len();
        drop(table);
        // These have left the table: what remains of them is the end of their threads.
        ended.into_iter().for_each(|t| drop(t.join()));
        late
    }
}

impl Drop for ProberManager {
    fn drop(&mut self) {
        self.shared.table().closed = true;
        self.stop(|_| true);
    }
}
