//! The probe manager: starts and stops workers, and writes the results of probes into statuses
//! (kubelet-probes 4.2–4.4).
//!
//! Invariants: one worker per (pod UID, container, probe type), made only in the vacant arm of its
//! map entry. Sending to a worker never blocks. Only `reap` (ended threads) and `shutdown` (with a
//! limit) join threads. The table's lock is never held during a probe, a runtime call or a send
//! that can block.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use super::container_view::StatusSource;
use super::context::Context;
use super::context::WorkerKey;
pub use super::context::{ProbeRecord, ProbeRecords, RestoredReady};
use super::mailbox::Mailbox;
use super::pauses::Pauses;
use super::prober::Prober;
use super::results::ProbeResult;
pub use super::results::Results;
use super::status::{self, Known};
use super::streaks::Streaks;
pub use super::thread::STACK_SIZE;
use super::thread::{Job, LastInstance, ThreadEnd, Trigger};
use crate::api::{Container, ContainerStatus, Pod, PodStatus, PodUid, Probe, ProbeType};
use crate::base::clock::Moment;
use crate::base::locks::Locked;
use crate::engine::runtime::{ContainerId, Runtime};
use crate::pods::events::Recorder;

/// The parts that the manager uses.
pub struct Deps {
    /// The source of the stored statuses.
    pub statuses: Arc<dyn StatusSource>,
    /// The runtime, which runs exec probes and knows the pods' network namespaces.
    pub runtime: Arc<dyn Runtime>,
    /// The caches that the workers write.
    pub results: Results,
    /// The recorder of events.
    pub recorder: Arc<Recorder>,
    /// The time at which the daemon started.
    pub started: Moment,
    /// The hosts that a probe may name besides the pod's own addresses (`allowProbeHosts`).
    pub allow_probe_hosts: Vec<String>,
    /// The restored values of Ready and Started by container id, from the checkpoint of an earlier daemon.
    pub restored: HashMap<ContainerId, RestoredReady>,
    /// Records what the probes do, for people.
    pub records: Arc<dyn ProbeRecords>,
    /// The place for the counts of equal results, which the next daemon goes on with.
    pub streaks: Streaks,
}

struct Handle {
    mailbox: Arc<Mailbox<Trigger>>,
    last_instance: LastInstance,
    thread: JoinHandle<()>,
    /// The probe as it was when the worker began. The worker keeps using this probe (kubelet-probes
    /// 2.1).
    probe: Probe,
}

#[derive(Default)]
struct Table {
    workers: HashMap<WorkerKey, Handle>,
    ended: Vec<JoinHandle<()>>,
    closed: bool,
}

#[derive(Default)]
struct Workers {
    table: Mutex<Table>,
    /// Signalled when a worker has left the table.
    left: Condvar,
}

impl Workers {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.locked()
    }

    /// Handles the end of a worker's thread.
    fn thread_ended(&self, end: ThreadEnd) {
        match end {
            ThreadEnd::WorkerOver(key) => self.remove(&key),
            ThreadEnd::ThreadLost(job) => self.restart(job),
        }
        self.left.notify_all();
    }

    fn remove(&self, key: &WorkerKey) {
        let mut table = self.table();
        if let Some(handle) = table.workers.remove(key) {
            table.ended.push(handle.thread);
        }
    }

    /// Gives a worker a new thread, because its old thread cannot continue. If no thread can be started, the worker is
    /// missing until the next sync.
    fn restart(&self, job: Box<Job>) {
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
    }
}

/// The probe manager.
pub struct ProberManager {
    context: Arc<Context>,
    workers: Arc<Workers>,
}

impl ProberManager {
    /// Makes a manager without workers. On return the restored results are in the caches.
    pub fn new(deps: Deps) -> Self {
        let Deps {
            statuses,
            runtime,
            results,
            recorder,
            started,
            allow_probe_hosts,
            restored,
            records,
            streaks,
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
        let context = Context {
            statuses,
            results,
            prober: Prober::new(runtime, recorder, allow_probe_hosts),
            started,
            restored,
            pauses: Arc::default(),
            records,
            streaks,
            panics: AtomicU64::new(0),
        };
        Self {
            context: Arc::new(context),
            workers: Arc::default(),
        }
    }

    /// Makes the missing workers of a pod: first the workers of regular containers in order, then the workers of
    /// sidecars. Each container gets its startup, readiness and liveness workers in this order. A worker that cannot be
    /// made is logged, and tried again at the next sync.
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
        let key = WorkerKey {
            uid: pod.uid().clone(),
            container: container.name.clone(),
            probe_type,
        };
        let mut table = self.workers.table();
        if table.closed {
            return;
        }
        let Entry::Vacant(vacant) = table.workers.entry(key.clone()) else {
            return;
        };
        let (mailbox, last_instance) =
            (Arc::<Mailbox<Trigger>>::default(), LastInstance::default());
        let workers = self.workers.clone();
        let job = Job::new(
            self.context.clone(),
            key.clone(),
            pod.clone(),
            probe,
            mailbox.clone(),
            last_instance.clone(),
            Arc::new(move |end| workers.thread_ended(end)),
        );
        match job.spawn() {
            Ok(thread) => drop(vacant.insert(Handle {
                mailbox,
                last_instance,
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

    /// Stops the liveness and startup workers of a terminating pod. Readiness workers continue (lessons A8), and so do
    /// all workers of sidecars, because sidecars run until the regular containers have ended (O8).
    pub fn stop_liveness_and_startup(&self, pod: &Pod) {
        let ends = |key: &WorkerKey| {
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

    fn stop(&self, which: impl Fn(&WorkerKey) -> bool) {
        let table = self.workers.table();
        let stopped = table.workers.iter().filter(|(key, _)| which(key));
        stopped.for_each(|(_, handle)| handle.mailbox.stop());
    }

    /// Writes Ready and Started into a fresh status (kubelet-probes 4.3, 4.4). Changes nothing else.
    pub fn update_pod_status(&self, pod: &Pod, fresh: &mut PodStatus) {
        let stored = self.context.statuses.pod_status(pod.uid());
        for entry in fresh
            .init_container_statuses
            .iter_mut()
            .chain(&mut fresh.container_statuses)
        {
            let id = ContainerId::from(entry.container_id.as_str());
            let known = self.known(&id, entry, stored.as_deref());
            status::update(entry, &pod.spec, known);
        }
    }

    /// Wakes workers after a status has been stored: readiness workers of containers without a Success, and workers
    /// that have not seen a new instance yet. The workers read the stored status, so the status must be stored first.
    pub fn trigger_workers(&self, pod: &Pod, stored: &PodStatus) {
        let all = stored.init_container_statuses.iter();
        let all = all.chain(&stored.container_statuses);
        for entry in all.filter(|c| c.state.running.is_some()) {
            let id = ContainerId::from(entry.container_id.as_str());
            let readiness = status::awaits_readiness(entry, &pod.spec);
            self.trigger(pod, &entry.name, &id, readiness);
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
            startup: self.context.results.startup.get(id),
            readiness: self.context.results.readiness.get(id),
            was_started: old.is_some_and(|old| old.started == Some(true)),
        }
    }

    fn trigger(&self, pod: &Pod, container: &str, id: &ContainerId, readiness: bool) {
        let table = self.workers.table();
        for probe_type in ProbeType::ALL {
            let key = WorkerKey {
                uid: pod.uid().clone(),
                container: container.into(),
                probe_type,
            };
            let Some(handle) = table.workers.get(&key) else {
                continue;
            };
            let unseen = handle.last_instance.locked().as_ref() != Some(id);
            let trigger = match (readiness && probe_type == ProbeType::Readiness, unseen) {
                (true, _) => Trigger::Probe(id.clone()),
                (false, true) => Trigger::Notice(id.clone()),
                (false, false) => continue,
            };
            handle.mailbox.trigger(trigger);
        }
    }

    /// Returns the probes that the pod's file has changed, added or removed while their workers continue with the old
    /// probes. Each probe is named by its container and its type. A pod that keeps its UID keeps its workers
    /// (kubelet-probes
    /// 2.1, 13.5).
    pub fn outdated(&self, pod: &Pod) -> Vec<(String, ProbeType)> {
        let table = self.workers.table();
        let differs = |container: &Container, probe_type: ProbeType| {
            let key = WorkerKey {
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

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    /// Returns the paused probes. A worker checks the pauses before each run.
    pub fn pauses(&self) -> &Arc<Pauses> {
        &self.context.pauses
    }

    /// Returns the number of workers.
    pub fn worker_count(&self) -> usize {
        self.workers.table().workers.len()
    }

    /// Returns the pod UID, container name and probe type of each worker, in any order.
    pub fn workers(&self) -> Vec<(PodUid, String, ProbeType)> {
        self.workers
            .table()
            .workers
            .keys()
            .map(|k| (k.uid.clone(), k.container.clone(), k.probe_type))
            .collect()
    }

    /// Returns the number of worker panics that have been caught.
    pub fn panics(&self) -> u64 {
        self.context.panics.load(Ordering::Relaxed)
    }

    /// Joins the threads that have ended. Never waits.
    pub fn reap(&self) {
        let mut table = self.workers.table();
        for i in (0..table.ended.len())
            .rev()
            .filter(|i| table.ended[*i].is_finished())
            .collect::<Vec<_>>()
        {
            let _ = table.ended.swap_remove(i).join();
        }
    }

    /// Stops all workers, accepts no new ones, and waits for their threads, at most for `limit`. Logs each late thread
    /// and returns the number of late threads. The receivers of the results must be read or dropped until this function
    /// returns.
    pub fn shutdown(&self, limit: Duration) -> usize {
        let deadline = Instant::now() + limit;
        self.workers.table().closed = true;
        self.stop(|_| true);
        let left = || deadline.saturating_duration_since(Instant::now());
        let table = self.workers.table();
        let (mut table, _) = self
            .workers
            .left
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
        // The workers of these threads have left the table. Only the threads must still end.
        ended.into_iter().for_each(|t| drop(t.join()));
        late
    }
}

impl Drop for ProberManager {
    fn drop(&mut self) {
        self.workers.table().closed = true;
        self.stop(|_| true);
    }
}
