//! The pod lifecycle event generator (kubelet-probes 7): relists the runtime, caches what it finds, and tells the sync loop
//! what changed.
//!
//! Invariants: the cache is written by the one relist thread only, and before the event that tells of it is sent. The
//! thread never waits for the sync loop: a full channel drops the event and counts it, and the next sync tick repairs it.
//! A relist that failed or panicked changes nothing but the health.

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

/// Capacity of the event channel; when it is full, events are dropped and counted.
pub const EVENTS_CAPACITY: usize = 1000;
/// The time from the end of one relist to the start of the next.
pub const RELIST_PERIOD: Duration = Duration::from_secs(1);
/// Unhealthy after this long without a listing that succeeded.
pub const RELIST_THRESHOLD: Duration = Duration::from_secs(180);

/// The figures that the thread reports about its relists.
#[derive(Default)]
struct Counters {
    relisted: Mutex<Option<Moment>>,
    discarded: AtomicU64,
    panics: AtomicU64,
    durations: Durations,
    /// The times from the beginning of one relist to that of the next.
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

/// The pods to relist one by one, each with the time of its first request: at most one entry for each pod.
type Requests = BTreeMap<PodUid, Moment>;

/// The handle of the relist thread, shared by everyone who reads.
pub struct Pleg {
    cache: Arc<Cache>,
    counters: Arc<Counters>,
    requests: Arc<Mutex<Requests>>,
    wake: Sender<()>,
    thread: JoinHandle<()>,
}

impl Pleg {
    /// Starts the thread `pleg`; it lists at once. It ends when `stop` has an item or is closed, or `events` is closed.
    ///
    /// # Errors
    /// Returns an error if no thread is left.
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

    /// The cache of the runtime's last word on each pod.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// Asks for a relist of this pod alone, at once: after a sync that did something. Never blocks.
    pub fn request(&self, uid: &PodUid) {
        self.requests.locked().insert(uid.clone(), Moment::now());
        // Full: it is to be woken anyway.
        let _ = self.wake.try_send(());
    }

    /// Tells whether a listing has succeeded lately.
    ///
    /// # Errors
    /// Returns [`PlegHealthError`] if there was no listing yet, or none for [`RELIST_THRESHOLD`].
    pub fn health(&self, now: Moment) -> Result<(), PlegHealthError> {
        health(self.counters.relisted(), now)
    }

    /// Events dropped because the channel was full, since the start.
    pub fn discarded(&self) -> u64 {
        self.counters.discarded.load(Ordering::Relaxed)
    }

    /// Relists that panicked, since the start.
    pub fn panics(&self) -> u64 {
        self.counters.panics.load(Ordering::Relaxed)
    }

    /// True if the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Appends the kubelet's families (kubelet-probes 11.3).
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

/// A reason why what the cache holds may be out of date, in the kubelet's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlegHealthError {
    /// No listing has succeeded yet.
    #[error("pleg has yet to be successful")]
    NeverListed,
    /// The last listing that succeeded is too long ago.
    #[error(
        "pleg was last seen active {} ago; threshold is {}",
        go_duration(*.ago),
        go_duration(RELIST_THRESHOLD)
    )]
    Silent {
        /// The time since then.
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
                        // The handle is gone, and so is everyone who reads the cache.
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

    /// Runs one round. A panic in it, most likely the runtime's, costs that round.
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

/// True if nothing of the pod is left in the runtime.
fn is_gone(status: &RuntimePodStatus) -> bool {
    status.containers.is_empty() && status.sandboxes.is_empty()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
