//! The pod lifecycle event generator (kubelet-probes 7). The generator relists the pods of the runtime, caches their
//! statuses, and sends the changes to the sync loop.
//!
//! Invariants: only the relist thread writes the cache. The thread writes a change to the cache before it sends the
//! event of the change. The thread never waits for the sync loop: if the channel is full, the event is dropped and
//! counted, and the next sync tick repairs the loss. A relist that failed or panicked changes nothing except the
//! health.

pub mod cache;
pub mod diff;
pub mod relist;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, select};

pub use cache::{Cache, CacheError};
pub use diff::{EventKind, PodLifecycleEvent};

use crate::api::PodUid;
use crate::base::clock::{Moment, go_duration};
use crate::base::locks::Locked;
use crate::base::metrics::counters::Durations;
use crate::base::metrics::{Family, Kind};
use crate::engine::runtime::{Runtime, RuntimePodStatus};
use relist::{Records, step};

/// The capacity of the event channel. When it is full, events are dropped and counted.
pub const EVENTS_CAPACITY: usize = 1000;
/// The time from the end of one relist to the start of the next.
pub const RELIST_PERIOD: Duration = Duration::from_secs(1);
/// The time without a successful listing after which PLEG is unhealthy.
pub const RELIST_THRESHOLD: Duration = Duration::from_secs(180);

/// The counters of the relists.
#[derive(Default)]
struct Counters {
    relisted: Mutex<Option<Moment>>,
    discarded: AtomicU64,
    panics: AtomicU64,
    durations: Durations,
    /// The times from the beginning of one relist to the beginning of the next.
    intervals: Durations,
    of_one_pod: Durations,
}

impl Counters {
    fn relisted(&self) -> Option<Moment> {
        *self.relisted.locked()
    }

    fn listed(&self, began: Moment) {
        *self.relisted.locked() = Some(began);
    }
}

/// The pods to relist one by one, each with the time of its last request. Each pod has at most one entry.
type Requests = BTreeMap<PodUid, Moment>;

/// The handle of the relist thread. All readers share it.
pub struct Pleg {
    cache: Arc<Cache>,
    counters: Arc<Counters>,
    requests: Arc<Mutex<Requests>>,
    wake: Sender<()>,
    thread: JoinHandle<()>,
}

impl Pleg {
    /// Starts the thread `pleg`, which lists at once. The thread ends when `stop` has an item or is closed, or when
    /// `events` is closed.
    ///
    /// # Errors
    /// Returns an error if no thread can be started.
    pub fn spawn(
        runtime: Arc<dyn Runtime>,
        events: Sender<PodLifecycleEvent>,
        stop: Receiver<()>,
    ) -> std::io::Result<Self> {
        let (wake, woken) = bounded(1);
        let requests = Arc::<Mutex<Requests>>::default();
        let (cache, counters) = (Arc::new(Cache::default()), Arc::new(Counters::default()));
        let mut worker = Worker {
            runtime,
            events,
            stop,
            woken,
            requests: Arc::clone(&requests),
            cache: Arc::clone(&cache),
            counters: Arc::clone(&counters),
            records: Records::default(),
            closed: false,
        };
        let thread = std::thread::Builder::new()
            .name("pleg".into())
            .spawn(move || worker.run())?;
        Ok(Self {
            cache,
            counters,
            requests,
            wake,
            thread,
        })
    }

    /// Returns the cache with the last status of each pod from the runtime.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// Requests an immediate relist of this pod alone, after a sync that changed something. Never blocks.
    pub fn request(&self, uid: &PodUid) {
        self.requests.locked().insert(uid.clone(), Moment::now());
        // If the channel is full, the thread will wake anyway.
        let _ = self.wake.try_send(());
    }

    /// Checks that a listing has succeeded recently.
    ///
    /// # Errors
    /// Returns [`PlegHealthError`] if there was no listing yet, or none for [`RELIST_THRESHOLD`].
    pub fn health(&self, now: Moment) -> Result<(), PlegHealthError> {
        health(self.counters.relisted(), now)
    }

    /// Returns the number of events that were dropped since the start because the channel was full.
    pub fn discarded(&self) -> u64 {
        self.counters.discarded.load(Ordering::Relaxed)
    }

    /// Returns the number of relists that panicked since the start.
    pub fn panics(&self) -> u64 {
        self.counters.panics.load(Ordering::Relaxed)
    }

    /// True if the relist thread has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Appends the kubelet's metric families (kubelet-probes 11.3).
    pub fn write_metrics(&self, now: Moment, wall: SystemTime, out: &mut String) {
        self.counters.write(now, wall, out);
    }
}

impl Counters {
    fn write(&self, now: Moment, wall: SystemTime, out: &mut String) {
        let help = "The number of discard events in PLEG.";
        Family::new(out, "kubelet_pleg_discard_events", Kind::Counter, help)
            .value(&[], self.discarded.load(Ordering::Relaxed));
        if let Some(relisted) = self.relisted() {
            let help = "Timestamp in seconds when PLEG was last seen active.";
            let since = (wall - now.since(relisted)).duration_since(SystemTime::UNIX_EPOCH);
            Family::new(out, "kubelet_pleg_last_seen_seconds", Kind::Gauge, help)
                .real(&[], since.unwrap_or_default().as_secs_f64());
        }
        for (name, help, durations) in [
            (
                "kubelet_pleg_relist_duration_seconds",
                "Duration in seconds for relisting pods in PLEG.",
                &self.durations,
            ),
            (
                "kubelet_pleg_relist_interval_seconds",
                "Interval in seconds between relisting in PLEG.",
                &self.intervals,
            ),
            (
                "kubelet_pleg_pod_relist_duration_seconds",
                "Duration in seconds for relisting a single pod in PLEG.",
                &self.of_one_pod,
            ),
        ] {
            durations.write("", &mut Family::new(out, name, Kind::Histogram, help));
        }
    }
}

/// The reason why the cache may be out of date, in the kubelet's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlegHealthError {
    /// No listing has succeeded yet.
    #[error("pleg has yet to be successful")]
    NeverListed,
    /// The last successful listing is too long ago.
    #[error(
        "pleg was last seen active {} ago; threshold is {}",
        go_duration(*.ago),
        go_duration(RELIST_THRESHOLD)
    )]
    Silent {
        /// The time since the last successful listing.
        ago: Duration,
    },
}

fn health(relisted: Option<Moment>, now: Moment) -> Result<(), PlegHealthError> {
    let relisted = relisted.ok_or(PlegHealthError::NeverListed)?;
    let ago = now.since(relisted);
    match ago > RELIST_THRESHOLD {
        true => Err(PlegHealthError::Silent { ago }),
        false => Ok(()),
    }
}

struct Worker {
    runtime: Arc<dyn Runtime>,
    events: Sender<PodLifecycleEvent>,
    stop: Receiver<()>,
    woken: Receiver<()>,
    requests: Arc<Mutex<Requests>>,
    cache: Arc<Cache>,
    counters: Arc<Counters>,
    records: Records,
    closed: bool,
}

impl Worker {
    fn run(&mut self) {
        while !self.closed {
            self.guarded(Self::relist);
            let next = crossbeam_channel::after(RELIST_PERIOD);
            loop {
                select! {
                    recv(self.stop) -> _ => return,
                    recv(next) -> _ => break,
                    recv(self.woken) -> woken => match woken {
                        Ok(()) => self.relist_requested(),
                        // The handle is dropped, so nothing reads the cache any more.
                        Err(_) => return,
                    },
                }
            }
        }
    }

    fn relist_requested(&mut self) {
        let requests = std::mem::take(&mut *self.requests.locked());
        for (uid, asked) in requests {
            self.guarded(|w| w.relist_pod(&uid, asked));
        }
    }

    /// Runs one round. A panic, most likely in the runtime, ends only this round.
    fn guarded(&mut self, round: impl FnOnce(&mut Self)) {
        if catch_unwind(AssertUnwindSafe(|| round(self))).is_err() {
            self.counters.panics.fetch_add(1, Ordering::Relaxed);
            log::error!("a relist panicked; please report this");
        }
    }

    fn relist(&mut self) {
        let began = Moment::now();
        if let Some(last) = self.counters.relisted() {
            self.counters.intervals.observe(began.since(last));
        }
        let pods = match self.runtime.list_pods() {
            Ok(pods) => pods,
            Err(e) => {
                log::error!("cannot list the runtime's pods: {e}");
                return;
            }
        };
        self.counters.listed(began);
        let changes = step(&mut self.records, pods);
        for change in changes {
            self.cache.set(change.uid, change.status, began);
            self.deliver(change.events);
        }
        self.cache.update_time(began);
        self.counters.durations.observe(Moment::now().since(began));
    }

    fn relist_pod(&mut self, uid: &PodUid, asked: Moment) {
        if self
            .counters
            .relisted()
            .is_some_and(|relisted| relisted > asked)
        {
            return;
        }
        let began = Moment::now();
        match self.runtime.pod_status(uid) {
            Ok(status) => {
                let change = relist::step_pod(&mut self.records, uid, status);
                self.cache.observe(change.uid, change.status, began);
                self.deliver(change.events);
                let took = Moment::now().since(began);
                self.counters.of_one_pod.observe(took);
            }
            Err(e) => log::error!("cannot read the status of pod {uid}: {e}"),
        }
    }

    fn deliver(&mut self, events: Vec<PodLifecycleEvent>) {
        for event in events {
            match self.events.try_send(event) {
                Ok(()) => {}
                Err(TrySendError::Full(event)) => {
                    self.counters.discarded.fetch_add(1, Ordering::Relaxed);
                    log::error!("the event channel is full, dropped {event:?}");
                }
                Err(TrySendError::Disconnected(_)) => self.closed = true,
            }
        }
    }
}

/// True if the runtime has no containers and no sandboxes of the pod any more.
fn is_gone(status: &RuntimePodStatus) -> bool {
    status.containers.is_empty() && status.sandboxes.is_empty()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
