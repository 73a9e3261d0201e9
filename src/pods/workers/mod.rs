//! Pod workers: each pod has one thread that makes the pod run, makes it end, and removes it (kubelet-probes 8.1).
//!
//! Invariants: [`PodWorkers::update`] never blocks (it takes a lock for a map operation and tries a send), so the sync
//! loop may call it. Only a worker's own thread calls the runtime for its pod. A panic in a sync is logged and counted.
//! The sync then counts as failed and is tried again.

mod begun_stops;
mod evicted;
mod killing;
pub mod metrics;
mod resizing;
mod restarts;
mod starting;
mod syncer;
mod table;
mod turns;
mod work_queue;

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};

pub use begun_stops::BegunStops;
pub use metrics::PodMetrics;
pub use restarts::Restarts;
pub(crate) use syncer::deadline_exceeded;
pub use syncer::{Deps, PodCache, Probes, Syncer, Traffic};
pub use table::{Done, Phase, Update, UpdateKind, Work, WorkerStage};
pub use work_queue::WorkQueue;

use crate::api::{Pod, PodUid};
use crate::base::bell::Bell;
use crate::base::cancel::Cancel;
use crate::base::clock::Moment;
use crate::base::live::Live;
use crate::base::locks::Locked;
use crate::base::sys;
use crate::base::wire::dial::come_home;
use crate::engine::runtime::ENDING;
use table::{Effect, Next, Table};

/// The time between a failed sync and its retry: 10 s, jittered to 10–15 s (kubelet-probes 5.6).
const RETRY: Duration = Duration::from_secs(10);
/// The stack size in bytes of a worker's thread. The deepest path of a sync (building an OCI config) touches less than
/// 100 KiB.
const STACK: usize = 512 * 1024;

/// The outcome of one run of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The run did its work.
    Ok,
    /// The sync found the pod in a terminal phase.
    Terminal,
    /// The run failed. The next try is at `retry_at`, or after 10–15 s.
    Failed {
        /// The error text. The log has this text once.
        error: String,
        /// The end of the earliest back-off, if a back-off holds a container back.
        retry_at: Option<Moment>,
    },
}

/// Runs the three syncs of a pod: make it run, make it end, clear up.
pub trait PodSyncer: Send + Sync {
    /// Runs the sync that `work` names. May block on the runtime, and for a grace period. `cancel` cuts the grace
    /// period short.
    fn run(&self, work: &Work, cancel: &Cancel) -> Outcome;
}

/// The workers of all pods.
pub struct PodWorkers {
    inner: Arc<WorkerThreads>,
}

struct WorkerThreads {
    state: Mutex<State>,
    syncer: Arc<dyn PodSyncer>,
    queue: WorkQueue,
    resync: Live<Duration>,
    panics: AtomicU64,
    /// The channel that gets a message when no container of a pod runs any more.
    room: Sender<()>,
    /// The bell that rings with each step of a worker towards its end.
    bell: OnceLock<Arc<Bell>>,
}

#[derive(Default)]
struct State {
    table: Table,
    threads: HashMap<PodUid, Thread>,
    /// The cancellation of each run that is under way.
    runs: HashMap<PodUid, Arc<Cancel>>,
    /// The threads that have ended or are about to end. Housekeeping joins them.
    parked: Vec<JoinHandle<()>>,
    stopping: bool,
}

struct Thread {
    wake: Sender<()>,
    handle: JoinHandle<()>,
}

impl PodWorkers {
    /// Makes the set of workers, which is empty at first. A healthy pod is synced again after `resync`, jittered to
    /// 1–1.5 times `resync`. `room` gets a message when no container of a pod runs any more.
    pub fn new(
        syncer: Arc<dyn PodSyncer>,
        resync: impl Into<Live<Duration>>,
        room: Sender<()>,
    ) -> Self {
        let inner = WorkerThreads {
            state: Mutex::default(),
            syncer,
            queue: WorkQueue::default(),
            resync: resync.into(),
            panics: AtomicU64::new(0),
            room,
            bell: OnceLock::new(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Passes an update to the pod's worker. Starts the worker if there is none.
    pub fn update(&self, update: Update) {
        let uid = update.pod.uid().clone();
        let mut state = self.inner.lock();
        if state.stopping {
            return;
        }
        match state.table.update(update) {
            Effect::Nothing => {}
            Effect::Spawn => self.inner.spawn(&mut state, uid),
            Effect::Wake => self.inner.wake(&mut state, uid),
            Effect::Overtake => {
                if let Some(run) = state.runs.get(&uid) {
                    run.cancel();
                }
                self.inner.wake(&mut state, uid);
            }
        }
    }

    /// Returns the pods whose next sync is due, for the sync tick. A pod that only the runtime knows is unknown to the
    /// pod manager, so this function itself wakes the worker of such a pod.
    pub fn due(&self, now: Moment) -> Vec<PodUid> {
        let mut due = self.inner.queue.due(now);
        let mut state = self.inner.lock();
        if !state.stopping {
            due.retain(|uid| {
                let orphan = state.table.look_again(uid);
                if orphan {
                    self.inner.wake(&mut state, uid.clone());
                }
                !orphan
            });
        }
        due
    }

    /// Makes the worker sync its pod again. Returns false if the pod has no worker, or is not meant to run.
    pub fn sync_again(&self, uid: &PodUid) -> bool {
        let mut state = self.inner.lock();
        let there = !state.stopping && state.table.sync_again(uid);
        if there {
            self.inner.wake(&mut state, uid.clone());
        }
        there
    }

    /// Lets a worker that ends its pod look again at the time that the pod has, and cuts its present run short.
    pub fn hasten(&self, uid: &PodUid) {
        let mut state = self.inner.lock();
        if state.stopping || !state.table.end_again(uid) {
            return;
        }
        if let Some(run) = state.runs.get(uid) {
            run.cancel();
        }
        self.inner.wake(&mut state, uid.clone());
    }

    /// Housekeeping: drops finished workers if their pods are outside `desired` or were re-created, and joins ended
    /// threads. Returns the pods of the dropped workers.
    pub fn sync_known(&self, desired: &HashSet<PodUid>) -> Vec<PodUid> {
        let mut state = self.inner.lock();
        let dropped = state.table.sync_known(desired);
        for uid in &dropped {
            if let Some(thread) = state.threads.remove(uid) {
                state.parked.push(thread.handle);
            }
            self.inner.queue.remove(uid);
        }
        let (ended, alive): (Vec<_>, Vec<_>) =
            state.parked.drain(..).partition(JoinHandle::is_finished);
        state.parked = alive;
        drop(state);
        for handle in ended {
            let _ = handle.join();
        }
        dropped
    }

    /// Returns the pods whose probes may run: see [`Table::probed`].
    pub fn probed(&self) -> HashSet<PodUid> {
        self.inner.lock().table.probed()
    }

    /// True if this pod has a worker, finished or not.
    pub fn contains(&self, uid: &PodUid) -> bool {
        self.inner.lock().table.contains(uid)
    }

    /// True if the pod is ending or has ended.
    pub fn is_terminating(&self, uid: &PodUid) -> bool {
        self.inner.lock().table.is_terminating(uid)
    }

    /// Returns how far the worker is with the end of its pod: see [`Table::stage`].
    pub fn stage(&self, uid: &PodUid) -> Option<WorkerStage> {
        self.inner.lock().table.stage(uid)
    }

    /// Rings `bell` from now on when a worker has stopped its pod, and when it has finished. There is one such bell.
    pub fn ring(&self, bell: Arc<Bell>) {
        let _ = self.inner.bell.set(bell);
    }

    /// Returns the pod of an unfinished worker: see [`Table::pod`].
    pub fn pod(&self, uid: &PodUid) -> Option<Arc<Pod>> {
        self.inner.lock().table.pod(uid)
    }

    /// Returns the pods that are ending: see [`Table::ending`].
    pub fn ending(&self) -> Vec<Arc<Pod>> {
        self.inner.lock().table.ending()
    }

    /// Returns every pod with an unfinished worker. The flag is true if the pod is being removed.
    pub fn working(&self) -> Vec<(Arc<Pod>, bool)> {
        self.inner.lock().table.working()
    }

    /// Returns the number of panics in workers since the start of the daemon.
    pub fn panics(&self) -> u64 {
        self.inner.panics.load(Ordering::Relaxed)
    }

    /// Starts no more runs, and cancels the runs under way. Containers keep running.
    pub fn stop(&self) {
        let mut state = self.inner.lock();
        state.stopping = true;
        state.runs.values().for_each(|run| run.cancel());
    }

    /// Stops the workers and ends every thread. Waits at most for `limit`. Returns the UIDs of the pods with late
    /// threads.
    pub fn shutdown(&self, limit: Duration) -> Vec<String> {
        self.stop();
        let mut state = self.inner.lock();
        let threads: Vec<_> = state.threads.drain().collect();
        let parked = std::mem::take(&mut state.parked);
        drop(state);
        let deadline = Instant::now() + limit;
        let mut waiting: Vec<(String, JoinHandle<()>)> = parked
            .into_iter()
            .map(|h| ("an ended pod".to_owned(), h))
            .collect();
        for (uid, thread) in threads {
            drop(thread.wake);
            waiting.push((uid.to_string(), thread.handle));
        }
        while waiting.iter().any(|(_, h)| !h.is_finished()) && Instant::now() < deadline {
            std::thread::park_timeout(Duration::from_millis(5));
        }
        waiting
            .into_iter()
            .filter(|(_, h)| !h.is_finished())
            .map(|(name, _)| name)
            .collect()
    }
}

impl WorkerThreads {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }

    /// Wakes the worker of a pod. If the worker's thread could not be started earlier, starts the thread now.
    fn wake(self: &Arc<Self>, state: &mut State, uid: PodUid) {
        match state.threads.get(&uid) {
            // a full channel means that the thread is already woken
            Some(thread) => drop(thread.wake.try_send(())),
            None => self.spawn(state, uid),
        }
    }

    fn spawn(self: &Arc<Self>, state: &mut State, uid: PodUid) {
        let (wake, woken) = bounded(1);
        let _ = wake.try_send(());
        let inner = self.clone();
        let of = uid.clone();
        let name = format!("pod:{}", uid.as_str().chars().take(8).collect::<String>());
        match std::thread::Builder::new()
            .name(name)
            .stack_size(STACK)
            .spawn(move || inner.serve(&of, &woken))
        {
            Ok(handle) => {
                if let Some(old) = state.threads.insert(uid, Thread { wake, handle }) {
                    state.parked.push(old.handle);
                }
            }
            // the table keeps the update, so the next sync of the pod tries again
            Err(e) => {
                log::error!("cannot start the worker of pod {uid}: {e}; trying again");
                self.queue.enqueue(uid, Moment::now() + RETRY);
            }
        }
    }

    /// Runs on the worker's thread: waits to be woken, and runs what is due. Ends when the pod has finished or the
    /// daemon stops.
    fn serve(self: &Arc<Self>, uid: &PodUid, woken: &Receiver<()>) {
        while woken.recv().is_ok() {
            while let Some((work, cancel)) = self.begin(uid) {
                let outcome = self.run(&work, &cancel);
                if self.complete(uid, work.phase, outcome) {
                    return;
                }
            }
            // A sync needs six pages of stack, and the wait for the next sync needs one. An error of this call only
            // costs memory.
            let _ = sys::stack::give_back();
        }
    }

    fn begin(&self, uid: &PodUid) -> Option<(Work, Arc<Cancel>)> {
        let mut state = self.lock();
        let work = if state.stopping {
            None
        } else {
            state.table.begin(uid)
        }?;
        let cancel = Arc::new(Cancel::default());
        state.runs.insert(uid.clone(), cancel.clone());
        Some((work, cancel))
    }

    fn run(&self, work: &Work, cancel: &Cancel) -> Outcome {
        catch_unwind(AssertUnwindSafe(|| self.syncer.run(work, cancel))).unwrap_or_else(|_| {
            self.panics.fetch_add(1, Ordering::Relaxed);
            log::error!(
                "the worker of {} panicked: a bug of podprobe; its sync is tried again",
                work.pod.reference()
            );
            // A hook may have left the thread in the network namespace of its pod.
            if !come_home() {
                log::error!("the worker stays in a foreign network namespace");
            }
            Outcome::Failed {
                error: "the worker panicked (a bug of podprobe); it goes on".into(),
                retry_at: None,
            }
        })
    }

    /// Records the end of a run. Returns true if the worker has finished.
    fn complete(self: &Arc<Self>, uid: &PodUid, ran: Phase, outcome: Outcome) -> bool {
        let (done, retry_at) = match outcome {
            Outcome::Ok => (Done::Ok, None),
            Outcome::Terminal => (Done::Terminal, None),
            Outcome::Failed { error, retry_at } => {
                if !error.is_empty() {
                    let level = failure_level(ran, &error, self.lock().stopping);
                    log::log!(level, "pod {uid}: {error}; trying again");
                }
                (Done::Failed, retry_at)
            }
        };
        let mut state = self.lock();
        state.runs.remove(uid);
        let next = state.table.complete(uid, ran, done);
        if ran != Phase::Sync && done != Done::Failed {
            // a full channel means that the sync loop already has a message
            let _ = self.room.try_send(());
            self.bell.get().inspect(|bell| bell.ring());
        }
        let (now, resync) = (Moment::now(), self.resync.get());
        match next {
            Next::Again => {}
            Next::Resync => self
                .queue
                .enqueue(uid.clone(), now + resync.mul_f64(jitter())),
            Next::Retry => self
                .queue
                .enqueue(uid.clone(), next_retry(now, retry_at, resync, jitter())),
            Next::Finished { wake } => {
                self.queue.remove(uid);
                if let Some(waiter) = wake.filter(|_| !state.stopping) {
                    self.wake(&mut state, waiter);
                }
                return true;
            }
        }
        false
    }
}

/// Returns the log level of a failed run. A failed sync has an event. A failed run that ends a pod or clears up has no
/// event, so it is logged as a warning. A run that the daemon's own end cuts short is not a fault: the next daemon
/// continues the run.
fn failure_level(ran: Phase, error: &str, stopping: bool) -> log::Level {
    let cut_short = stopping || error.contains(ENDING);
    match ran {
        Phase::Terminating | Phase::Terminated if !cut_short => log::Level::Warn,
        _ => log::Level::Debug,
    }
}

/// Returns the time of the next sync after a failed sync: the end of the earliest back-off, or [`RETRY`] later if there
/// is no back-off. A back-off has no jitter, because a single node cannot cause a rush. A back-off may be long, so the
/// next sync comes at the resync interval at the latest: another container of the pod may have failed for another
/// reason.
fn next_retry(now: Moment, back_off: Option<Moment>, resync: Duration, jitter: f64) -> Moment {
    match back_off {
        Some(end) => end.min(now + resync.mul_f64(jitter)),
        None => now + RETRY.mul_f64(jitter),
    }
}

/// Returns a random factor from 1 to 1.5 (kubelet-probes 5.6).
fn jitter() -> f64 {
    1.0 + crate::base::clock::random_fraction() / 2.0
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, poll};
    use serde_json::json;

    use super::*;
    use crate::used_stack::{resident, touch};

    #[test]
    fn no_back_off_holds_the_next_sync_longer_than_the_resync_interval() {
        let at = |seconds| Moment::from_boot(Duration::from_secs(seconds));
        let retry = |back_off: Option<u64>| {
            next_retry(at(100), back_off.map(at), Duration::from_secs(60), 1.5)
        };
        assert_eq!(retry(Some(110)), at(110));
        assert_eq!(retry(Some(400)), at(190));
        assert_eq!(retry(None), at(115));
    }

    #[test]
    fn what_the_end_of_the_daemon_cuts_short_is_no_warning() {
        let level = |ran, error: &str, stopping| failure_level(ran, error, stopping);
        let interrupted = format!("cannot stop container c: {ENDING}");
        for ran in [Phase::Terminating, Phase::Terminated] {
            assert_eq!(level(ran, "the disk is full", false), log::Level::Warn);
            assert_eq!(level(ran, "the disk is full", true), log::Level::Debug);
            assert_eq!(level(ran, &interrupted, false), log::Level::Debug);
            for more in ["; cannot list containers: no answer", " (os error 4)"] {
                let interrupted = format!("{interrupted}{more}");
                assert_eq!(level(ran, &interrupted, false), log::Level::Debug);
            }
        }
        assert_eq!(level(Phase::Sync, "no image", false), log::Level::Debug);
    }

    /// A syncer that reports its runs. Each run ends with the outcome that the test sends.
    struct Scripted {
        ran: Sender<(String, Phase)>,
        outcomes: Receiver<Outcome>,
    }

    impl PodSyncer for Scripted {
        fn run(&self, work: &Work, cancel: &Cancel) -> Outcome {
            self.ran
                .send((work.pod.metadata.uid.to_string(), work.phase))
                .unwrap();
            match self
                .outcomes
                .recv_timeout(Duration::from_secs(10))
                .expect("the test says how a run ends")
            {
                Outcome::Failed { error, .. } if error == "panic" => {
                    panic!("asked for by the test")
                }
                Outcome::Failed { error, .. } if error == "wait" => {
                    let mut fds = [PollFd::new(cancel.fd().unwrap(), PollFlags::POLLIN)];
                    assert_eq!(poll(&mut fds, 10_000_u16), Ok(1), "nobody cancelled it");
                    Outcome::Failed {
                        error: String::new(),
                        retry_at: None,
                    }
                }
                outcome => outcome,
            }
        }
    }

    fn update(kind: UpdateKind, uid: &str, runtime_only: bool) -> Update {
        let metadata = serde_json::from_value(json!({"name": "p", "uid": uid})).unwrap();
        Update {
            kind,
            pod: Arc::new(Pod {
                metadata,
                spec: Default::default(),
                raw: Default::default(),
            }),
            runtime_only,
            phase_is_terminal: false,
            is_running: false,
        }
    }

    struct Harness {
        workers: PodWorkers,
        ran: Receiver<(String, Phase)>,
        end: Sender<Outcome>,
        has_room: Receiver<()>,
    }

    impl Harness {
        fn new() -> Self {
            let (ran_tx, ran) = bounded(100);
            let (end, outcomes) = bounded(100);
            let (room, has_room) = bounded(1);
            let workers = PodWorkers::new(
                Arc::new(Scripted {
                    ran: ran_tx,
                    outcomes,
                }),
                Duration::from_secs(60),
                room,
            );
            Self {
                workers,
                ran,
                end,
                has_room,
            }
        }

        fn send(&self, kind: UpdateKind, uid: &str) {
            self.send_as(kind, uid, false);
        }

        fn kill(&self, uid: &str, grace_override: Option<i64>) {
            self.send(UpdateKind::Kill { grace_override }, uid);
        }

        fn send_as(&self, kind: UpdateKind, uid: &str, runtime_only: bool) {
            self.workers.update(update(kind, uid, runtime_only));
        }

        #[track_caller]
        fn expect(&self, uid: &str, phase: Phase) {
            let got = self
                .ran
                .recv_timeout(Duration::from_secs(10))
                .expect("a run");
            assert_eq!(got, (uid.to_owned(), phase));
        }

        fn end(&self, outcome: Outcome) {
            self.end.send(outcome).unwrap();
        }
    }

    #[test]
    fn that_a_pod_has_ended_is_told_to_those_that_wait_for_room() {
        let h = Harness::new();
        h.send(UpdateKind::Create, "a");
        h.expect("a", Phase::Sync);
        let ending = || h.workers.ending().len();
        h.kill("a", None);
        h.end(Outcome::Ok);
        h.expect("a", Phase::Terminating);
        assert_eq!((ending(), h.has_room.len()), (1, 0));
        h.end(Outcome::Ok);
        assert_eq!(h.has_room.recv_timeout(Duration::from_secs(10)), Ok(()));
        assert_eq!(ending(), 0);
        h.expect("a", Phase::Terminated);
        h.end(Outcome::Ok);
    }

    /// A syncer whose syncs need more than 200 kB of stack.
    struct Deep(Sender<usize>);

    impl PodSyncer for Deep {
        fn run(&self, _: &Work, _: &Cancel) -> Outcome {
            let here = 0_u8;
            touch();
            self.0.send(&raw const here as usize).unwrap();
            Outcome::Ok
        }
    }

    #[test]
    fn a_worker_that_waits_has_given_its_stack_back() {
        let (tell, told) = bounded(1);
        let workers = PodWorkers::new(Arc::new(Deep(tell)), Duration::from_secs(60), bounded(1).0);
        workers.update(update(UpdateKind::Create, "a", false));
        let here = told.recv_timeout(Duration::from_secs(10)).expect("a run");
        let until = Moment::now() + Duration::from_secs(10);
        while resident(here) >= 200 {
            assert!(Moment::now() < until, "the stack is still there");
            std::thread::yield_now();
        }
        assert_eq!(
            workers.shutdown(Duration::from_secs(10)),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_pod_is_synced_killed_and_its_successor_starts_when_it_is_gone() {
        let h = Harness::new();
        h.send(UpdateKind::Create, "a");
        h.expect("a", Phase::Sync);
        h.send(UpdateKind::Create, "b");
        h.kill("a", None);
        h.end(Outcome::Ok);
        h.expect("a", Phase::Terminating);
        h.end(Outcome::Ok);
        h.expect("a", Phase::Terminated);
        h.end(Outcome::Ok);
        h.expect("b", Phase::Sync);
        h.end(Outcome::Ok);
        assert_eq!(
            h.workers.shutdown(Duration::from_secs(10)),
            Vec::<String>::new()
        );
    }

    /// Kubelet-probes 8.1: a run is cancelled when its pod must end, or must end sooner.
    #[test]
    fn a_run_is_cancelled_when_its_pod_is_to_end_or_to_end_sooner() {
        let h = Harness::new();
        let waits = || {
            h.end(Outcome::Failed {
                error: "wait".into(),
                retry_at: None,
            })
        };
        h.send(UpdateKind::Create, "a");
        h.expect("a", Phase::Sync);
        waits();
        h.send(UpdateKind::Sync, "a");
        h.kill("a", Some(20));
        h.expect("a", Phase::Terminating);
        waits();
        h.kill("a", Some(10));
        h.expect("a", Phase::Terminating);
        h.end(Outcome::Ok);
        h.expect("a", Phase::Terminated);
        h.end(Outcome::Ok);
        assert!(h.workers.shutdown(Duration::from_secs(10)).is_empty());
        assert!(h.workers.inner.lock().runs.is_empty());
    }

    #[test]
    fn a_panic_is_counted_and_the_sync_is_tried_again() {
        let h = Harness::new();
        h.send(UpdateKind::Create, "a");
        h.expect("a", Phase::Sync);
        h.end(Outcome::Failed {
            error: "panic".into(),
            retry_at: None,
        });
        h.send(UpdateKind::Sync, "a");
        h.expect("a", Phase::Sync);
        assert_eq!(h.workers.panics(), 1);
        h.end(Outcome::Ok);
        assert!(h.workers.shutdown(Duration::from_secs(10)).is_empty());
    }

    #[test]
    fn a_failed_sync_is_due_when_its_back_off_ends() {
        let h = Harness::new();
        let retry_at = Moment::now() + Duration::from_secs(50);
        h.send(UpdateKind::Create, "a");
        h.expect("a", Phase::Sync);
        h.end(Outcome::Failed {
            error: "held".into(),
            retry_at: Some(retry_at),
        });
        // the shutdown joins the worker, so the end of the worker's run is recorded once the shutdown returns
        assert!(h.workers.shutdown(Duration::from_secs(10)).is_empty());
        assert!(
            h.workers
                .due(retry_at - Duration::from_millis(1))
                .is_empty()
        );
        assert_eq!(h.workers.due(retry_at), ["a".into()]);
    }

    #[test]
    fn a_pod_only_the_runtime_knows_is_tried_again_until_it_is_gone() {
        let h = Harness::new();
        h.send_as(
            UpdateKind::Kill {
                grace_override: Some(1),
            },
            "a",
            true,
        );
        h.expect("a", Phase::Terminating);
        h.end(Outcome::Failed {
            error: "the kernel holds it".into(),
            retry_at: None,
        });
        // once the retry is in the queue, the end of the run is recorded
        while h.workers.inner.queue.is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(
            h.workers.due(Moment::now() + 2 * RETRY),
            [],
            "nobody else can wake it"
        );
        h.expect("a", Phase::Terminating);
        h.end(Outcome::Ok);
        h.expect("a", Phase::Terminated);
        h.end(Outcome::Ok);
        assert!(h.workers.shutdown(Duration::from_secs(10)).is_empty());
    }

    #[test]
    fn a_worker_that_got_no_thread_gets_one_at_the_next_update() {
        let h = Harness::new();
        h.send(UpdateKind::Create, "a");
        h.expect("a", Phase::Sync);
        h.end(Outcome::Ok);
        // The table now has an entry without a thread, as if the thread could not be started.
        let thread = h
            .workers
            .inner
            .lock()
            .threads
            .remove(&PodUid::from("a"))
            .unwrap();
        drop(thread.wake);
        thread.handle.join().unwrap();
        h.send(UpdateKind::Sync, "a");
        h.expect("a", Phase::Sync);
        h.end(Outcome::Ok);
        assert!(h.workers.shutdown(Duration::from_secs(10)).is_empty());
    }

    #[test]
    fn update_never_blocks_on_a_stuck_worker_and_shutdown_names_it() {
        let h = Harness::new();
        h.send(UpdateKind::Create, "a");
        h.expect("a", Phase::Sync);
        for _ in 0..1000 {
            h.send(UpdateKind::Sync, "a");
        }
        assert_eq!(h.workers.shutdown(Duration::ZERO), ["a"]);
        h.end(Outcome::Ok);
    }
}
