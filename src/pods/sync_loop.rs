//! The sync loop: one select over everything that can happen, like the kubelet's `syncLoopIteration`
//! (kubelet-probes 5).
//!
//! Invariants: the loop waits only in [`SyncLoop::next_event`]. It makes no blocking send, join, runtime call or disk
//! access, and takes no lock that another thread holds during a wait. Only the loop writes the pod manager. The loop
//! handles one event at a time, then looks for the next.

mod heartbeat;
mod housekeeping;
mod metrics;
mod places;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, never, select, tick};

pub use heartbeat::Heartbeat;
pub use metrics::LoopMetrics;
pub use places::Places;

use crate::api::conditions::ConditionChange;
use crate::api::{Pod, PodPhase, PodSource, PodStatus, PodUid};
use crate::base::clock::{Moment, Time};
use crate::base::live::Live;
use crate::engine::images::manager::ImageWaitReason;
use crate::engine::runtime::RuntimePodStatus;
use crate::pods::admission;
use crate::pods::events::Recorder;
use crate::pods::eviction::Evictions;
use crate::pods::manager::PodManager;
use crate::pods::objects::Objects;
use crate::pods::pleg::{EventKind, PlegHealthError, PodLifecycleEvent};
use crate::pods::prober::results::{self, ProbeResult};
use crate::pods::sources::{PodConfig, PodOperation, PodUpdate};
use crate::pods::status::StatusManager;
use crate::pods::workers::{PodWorkers, Update, UpdateKind};
use heartbeat::{HOUSEKEEPING_PASS, SYNC_PASS};

/// The time between two sync ticks (5.1).
const SYNC_TICK: Duration = Duration::from_secs(1);
/// The time between two housekeeping ticks (5.1).
const HOUSEKEEPING: Duration = Duration::from_secs(2);
/// The first pause of the loop while the runtime is unhealthy. Each further pause is twice as long (5.1).
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause of the loop while the runtime is unhealthy.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The channels that the loop reads. ARCHITECTURE.md has their capacities.
pub struct Channels {
    /// Updates from the pod sources. If the channel is closed, the daemon ends.
    pub config: Receiver<PodUpdate>,
    /// Events from PLEG.
    pub pleg: Receiver<PodLifecycleEvent>,
    /// Updates from the liveness results manager.
    pub liveness: Receiver<results::Update>,
    /// Updates from the readiness results manager.
    pub readiness: Receiver<results::Update>,
    /// Updates from the startup results manager.
    pub startup: Receiver<results::Update>,
    /// Signals from the image keeper that the names in the image store have changed.
    pub images: Receiver<()>,
    /// Signals from the store of objects. Objects to which pods refer have changed. [`Objects::take_changed`] returns
    /// these objects.
    pub objects: Receiver<()>,
    /// Signals from the watch of volumes that pods must end. [`Evictions::ending`] returns these pods.
    pub evictions: Receiver<()>,
    /// Signals from the pod workers that a pod has ended, so that a pod that waits for room may start.
    pub room: Receiver<()>,
    /// The stop signal. If the channel is closed, the daemon ends.
    pub stop: Receiver<()>,
}

impl Channels {
    /// Returns the name of each channel, the number of items in it, and its capacity.
    fn depths(&self) -> [(&'static str, usize, usize); 9] {
        fn of<T>(name: &'static str, channel: &Receiver<T>) -> (&'static str, usize, usize) {
            (name, channel.len(), channel.capacity().unwrap_or(0))
        }
        [
            of("config", &self.config),
            of("pleg", &self.pleg),
            of("liveness", &self.liveness),
            of("readiness", &self.readiness),
            of("startup", &self.startup),
            of("images", &self.images),
            of("objects", &self.objects),
            of("evictions", &self.evictions),
            of("room", &self.room),
        ]
    }
}

/// The runtime cannot be relied on now, because PLEG is unhealthy (5.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("PLEG is not healthy: {0}")]
pub struct RuntimeHealthError(#[from] PlegHealthError);

/// The view of PLEG that the loop needs.
pub trait RuntimeView: Send + Sync {
    /// Returns every pod that the runtime knew at the last listing. Never blocks.
    fn pods(&self) -> Vec<Arc<RuntimePodStatus>>;
    /// Returns the status of one pod. An unknown pod has an empty status.
    fn pod(&self, uid: &PodUid) -> Arc<RuntimePodStatus>;
    /// Checks that the runtime can be relied on now (5.4).
    ///
    /// # Errors
    /// Returns [`RuntimeHealthError`] if the runtime cannot be relied on.
    fn health(&self) -> Result<(), RuntimeHealthError>;
}

/// The part of the probe manager that the loop calls at housekeeping. Its functions never block.
pub trait ProbeHousekeeping: Send + Sync {
    /// Stops the probe workers of pods outside `alive`.
    fn clean_up(&self, alive: &HashSet<PodUid>);
    /// Joins the threads that have ended.
    fn reap(&self);
}

/// Drops the data of removed pods at each housekeeping.
pub trait GarbageCollector: Send {
    /// Drops the data. Must not block.
    fn collect(&self, now: Moment);
}

/// The parts of the daemon on which the loop acts.
pub struct Parts {
    /// The node against which pods are admitted.
    pub node: Live<admission::Node>,
    /// The order under which no pod starts, if there is one.
    pub closed: Live<Option<admission::Closed>>,
    /// Returns the node's present huge pages in bytes, by resource name.
    pub huge_pages: fn() -> BTreeMap<String, i64>,
    /// The pods that should run.
    pub pods: Arc<PodManager>,
    /// The pod workers.
    pub workers: Arc<PodWorkers>,
    /// The statuses of pods.
    pub statuses: Arc<StatusManager>,
    /// The pods of all sources, with a record of which sources have sent a set.
    pub config: Arc<PodConfig>,
    /// The objects that pods refer to.
    pub objects: Arc<Objects>,
    /// The evicted and deleted pods.
    pub evictions: Arc<Evictions>,
    /// The view of the pods in the runtime.
    pub runtime: Arc<dyn RuntimeView>,
    /// The probe manager.
    pub probes: Arc<dyn ProbeHousekeeping>,
    /// The recorder of events.
    pub recorder: Arc<Recorder>,
    /// The counters of the loop.
    pub metrics: Arc<LoopMetrics>,
    /// The collector that drops back-off entries, histories, events and pauses.
    pub garbage: Box<dyn GarbageCollector>,
    /// The pods that had data on the disk when the daemon started, and those that the API server has removed since.
    /// Housekeeping removes the data of each such pod once the pod should not run any more.
    pub pods_with_data: RefCell<Vec<PodUid>>,
    /// The pods that wait for room on the node.
    pub places: RefCell<Places>,
    /// True once the loop has forgotten the statuses that an earlier daemon wrote for removed pods. The loop forgets
    /// these statuses only once.
    pub has_forgotten: Cell<bool>,
}

/// An event that the loop handles.
#[derive(Debug)]
enum Event {
    Config(PodUpdate),
    Lifecycle(PodLifecycleEvent),
    Liveness(results::Update),
    Readiness(results::Update),
    Startup(results::Update),
    ImagesChanged,
    ObjectsChanged,
    Evicted,
    Room,
    SyncTick,
    Housekeeping,
    PauseOver,
    Stop,
}

impl Event {
    /// Returns the bit of an event that touches every pod, or 0 for any other event.
    fn pass(&self) -> u8 {
        match self {
            Event::SyncTick => SYNC_PASS,
            Event::Housekeeping => HOUSEKEEPING_PASS,
            _ => 0,
        }
    }
}

/// The sync loop with its channels and parts.
pub struct SyncLoop {
    channels: Arc<Channels>,
    parts: Parts,
    heartbeat: Arc<Heartbeat>,
    sync_tick: Receiver<std::time::Instant>,
    housekeeping: Receiver<std::time::Instant>,
    pause: Duration,
}

impl SyncLoop {
    /// Makes a loop that has not turned yet.
    fn new(channels: Channels, parts: Parts, heartbeat: Arc<Heartbeat>) -> Self {
        let (sync_tick, housekeeping) = (tick(SYNC_TICK), tick(HOUSEKEEPING));
        let channels = Arc::new(channels);
        parts.metrics.watch(Arc::downgrade(&channels));
        Self {
            channels,
            parts,
            heartbeat,
            sync_tick,
            housekeeping,
            pause: FIRST_PAUSE,
        }
    }

    /// Starts the thread `sync-loop`, which turns until it is stopped.
    ///
    /// # Errors
    /// Returns an error if no thread can be started.
    pub fn spawn(
        channels: Channels,
        parts: Parts,
        heartbeat: Arc<Heartbeat>,
    ) -> io::Result<JoinHandle<()>> {
        let sync_loop = Self::new(channels, parts, heartbeat);
        let builder = thread::Builder::new().name("sync-loop".into());
        builder.spawn(move || sync_loop.run())
    }

    fn run(mut self) {
        loop {
            let health = self.parts.runtime.health();
            let event = match &health {
                Ok(()) => {
                    self.pause = FIRST_PAUSE;
                    self.heartbeat.beat();
                    self.next_event()
                }
                Err(e) => self.rest(e),
            };
            if matches!(event, Event::Stop) {
                return;
            }
            let began = Moment::now();
            let pass = event.pass();
            match catch_unwind(AssertUnwindSafe(|| self.handle_event(event))) {
                Ok(()) => self.heartbeat.handled(pass),
                Err(_) => {
                    // a bug: the event is lost, but the next sync tick or relist repairs the effect
                    self.heartbeat.panicked();
                    log::error!("the sync loop panicked at an event; it goes on");
                }
            }
            if health.is_ok() {
                self.heartbeat.beat();
                self.parts.metrics.turned(Moment::now().since(began));
            }
        }
    }

    /// Waits for the next event. Does nothing else.
    fn next_event(&self) -> Event {
        let Channels {
            config,
            pleg,
            liveness,
            readiness,
            startup,
            images,
            objects,
            evictions,
            room,
            stop,
        } = &*self.channels;
        select! {
            recv(stop) -> _ => Event::Stop,
            recv(config) -> update => update.map_or(Event::Stop, Event::Config),
            recv(pleg) -> event => event.map_or(Event::Stop, Event::Lifecycle),
            recv(liveness) -> update => update.map_or(Event::Stop, Event::Liveness),
            recv(readiness) -> update => update.map_or(Event::Stop, Event::Readiness),
            recv(startup) -> update => update.map_or(Event::Stop, Event::Startup),
            recv(images) -> changed => changed.map_or(Event::Stop, |()| Event::ImagesChanged),
            recv(objects) -> changed => changed.map_or(Event::Stop, |()| Event::ObjectsChanged),
            recv(evictions) -> evicted => evicted.map_or(Event::Stop, |()| Event::Evicted),
            recv(room) -> room => room.map_or(Event::Stop, |()| Event::Room),
            recv(self.sync_tick) -> _ => Event::SyncTick,
            recv(self.housekeeping) -> _ => Event::Housekeeping,
        }
    }

    /// Pauses the loop while the runtime is unhealthy. Nothing is decided during the pause, but a stop ends the pause.
    fn rest(&mut self, why: &RuntimeHealthError) -> Event {
        // After a start of the daemon the first relist takes a moment. The first pause is therefore not logged as an
        // error.
        let level = if self.pause == FIRST_PAUSE {
            log::Level::Debug
        } else {
            log::Level::Error
        };
        log::log!(level, "sync loop rests for {:?}: {why}", self.pause);
        let pause = self.pause;
        self.pause = (pause * 2).min(LONGEST_PAUSE);
        let unused: Receiver<()> = never();
        select! {
            recv(self.channels.stop) -> _ => Event::Stop,
            recv(unused) -> _ => Event::PauseOver,
            default(pause) => Event::PauseOver,
        }
    }

    /// Handles an event by the table of kubelet-probes 5.2.
    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Config(update) => self.parts.handle_config(update),
            Event::Lifecycle(event) => {
                self.parts.count_end(&event);
                if event.kind != EventKind::ContainerRemoved {
                    self.parts.sync(&event.uid);
                }
            }
            Event::Liveness(update) => {
                if update.result == ProbeResult::Failure {
                    self.parts.sync(&update.pod);
                }
            }
            Event::Readiness(update) => self.parts.handle_readiness(&update),
            Event::Startup(update) => self.parts.handle_startup(&update),
            Event::ImagesChanged => self.parts.handle_images_changed(),
            Event::ObjectsChanged => self.parts.handle_objects_changed(),
            Event::Evicted => self.parts.handle_evicted(),
            Event::Room => self.parts.handle_room(),
            Event::SyncTick => self.parts.handle_sync_tick(Moment::now()),
            Event::Housekeeping => self.parts.handle_housekeeping(),
            Event::PauseOver | Event::Stop => {}
        }
    }
}

impl Parts {
    fn handle_config(&self, update: PodUpdate) {
        let PodUpdate { op, source, pods } = update;
        match op {
            PodOperation::Add => self.handle_additions(pods),
            PodOperation::Update | PodOperation::Delete => {
                pods.iter().for_each(|p| self.take_over_conditions(p));
                pods.into_iter().for_each(|p| self.handle_update(p))
            }
            PodOperation::Remove => pods.iter().for_each(|p| self.handle_removal(p)),
            PodOperation::Reconcile => pods.into_iter().for_each(|p| self.handle_reconcile(p)),
        }
        self.config.mark_handled(source);
        if self.config.all_seen() && !self.has_forgotten.replace(true) {
            self.forget_lost_statuses();
        }
    }

    /// Takes a pod of which nothing but the status has changed in the API server (6.6).
    fn handle_reconcile(&self, pod: Arc<Pod>) {
        self.take_over_conditions(&pod);
        self.pods.set(pod);
    }

    /// Takes the conditions that others have set in the API server and that the pod's readiness depends on (9.4).
    fn take_over_conditions(&self, pod: &Pod) {
        if pod.source() != PodSource::Api || pod.spec.readiness_gates.is_empty() {
            return;
        }
        for change in ConditionChange::of_gates(pod) {
            if let Err(e) = self.statuses.set_condition(pod, &change, Time::now()) {
                log::warn!("{}: {e}", pod.reference());
            }
        }
    }

    /// Counts the end of a container. The event may be about a sandbox, which is not counted.
    fn count_end(&self, event: &PodLifecycleEvent) {
        let runtime = self.runtime.pod(&event.uid);
        let ended = runtime.containers.iter().find(|c| c.id == event.id);
        let Some(ended) = ended.filter(|_| event.kind == EventKind::ContainerDied) else {
            return;
        };
        let pod = self.pods.get(&event.uid);
        let is_init = pod.is_some_and(|pod| pod.spec.is_init(&ended.name));
        self.metrics.ended(is_init, ended.exit_code, &ended.reason);
    }

    /// Ends and forgets a pod that its source no longer has. This happens even before all sources have sent a set,
    /// because the pod's own source has sent its set (deviations: removal-at-once).
    fn handle_removal(&self, pod: &Arc<Pod>) {
        // The worker is ended before the pod is forgotten. So a reader always sees the pod as running or as ending
        // until it is removed.
        self.dispatch(
            pod.clone(),
            UpdateKind::Kill {
                grace_override: None,
            },
        );
        self.pods.remove(pod.uid());
        self.evictions.release(pod.uid(), Moment::now());
        self.places.borrow_mut().forget(pod.uid());
        // A pod of the API server has ended before it is removed there, and kept its data until now. If it never had a
        // sandbox, the runtime does not know it.
        if pod.source() == PodSource::Api {
            self.pods_with_data.borrow_mut().push(pod.uid().clone());
        }
    }

    fn handle_readiness(&self, update: &results::Update) {
        let Some(pod) = self.known(&update.pod) else {
            return;
        };
        self.statuses.set_container_readiness(
            &pod,
            &update.container,
            update.result == ProbeResult::Success,
        );
        self.sync(&update.pod);
    }

    fn handle_startup(&self, update: &results::Update) {
        let Some(pod) = self.pods.get(&update.pod) else {
            return;
        };
        self.statuses.set_container_started(
            &pod,
            &update.container,
            update.result == ProbeResult::Success,
        );
        self.sync(&update.pod);
    }

    /// Syncs the pods that wait for an image, and the pods that are starting. A pod that is starting may have looked
    /// for its image just before the image came.
    fn handle_images_changed(&self) {
        for pod in self.pods.all() {
            let status = self.statuses.get(pod.uid());
            if status.is_none_or(|s| s.phase == PodPhase::Pending || waits_for_image(&s)) {
                self.dispatch(pod, UpdateKind::Sync);
            }
        }
    }

    /// Syncs the pods that refer to a changed object. Their volumes are brought up to date. Pods that waited for the
    /// object start.
    fn handle_objects_changed(&self) {
        let changed = self.objects.take_changed();
        for pod in self
            .pods
            .all()
            .into_iter()
            .filter(|pod| changed.concerns(pod))
        {
            self.dispatch(pod, UpdateKind::Sync);
        }
    }

    /// Ends the pods that are evicted or deleted. [`Self::dispatch`] finds out that a pod is evicted or deleted.
    fn handle_evicted(&self) {
        let ending = self.evictions.ending();
        ending.iter().for_each(|uid| self.sync(uid));
    }

    /// Starts the evicted pods whose wait is over, as if they had been created again.
    fn readmit_evicted(&self, now: Moment) {
        if self.closed.get().is_some_and(admission::Closed::ends_pods) {
            return;
        }
        let due = self.evictions.due(now);
        for pod in due.iter().filter_map(|uid| self.pods.get(uid)) {
            self.dispatch(pod, UpdateKind::Create);
        }
        // the workers are cleaned up now, and not only at the next housekeeping
        if !due.is_empty() && self.config.all_seen() {
            self.clean_up_workers();
        }
    }

    /// Starts the pods for which there is room now. The node may take pods again.
    fn handle_room(&self) {
        self.readmit_evicted(Moment::now());
        self.admit_waiting();
    }

    fn handle_sync_tick(&self, now: Moment) {
        self.workers.due(now).iter().for_each(|uid| self.sync(uid));
        self.readmit_evicted(now);
        self.admit_waiting();
        for pod in self
            .pods
            .all()
            .into_iter()
            .filter(|p| p.spec.active_deadline_seconds.is_some())
        {
            let status = self.statuses.get(pod.uid());
            let alive = status.as_ref().is_some_and(|s| !s.phase.is_terminal());
            if alive
                && crate::pods::workers::deadline_exceeded(&pod, self.statuses.age(pod.uid(), now))
            {
                self.dispatch(pod, UpdateKind::Sync);
            }
        }
    }

    fn known(&self, uid: &PodUid) -> Option<Arc<Pod>> {
        // a pod that is being removed can still lose its readiness until it is gone (lessons A8)
        self.pods.get(uid).or_else(|| self.workers.pod(uid))
    }

    fn sync(&self, uid: &PodUid) {
        if let Some(pod) = self.known(uid) {
            self.dispatch(pod, UpdateKind::Sync);
        }
    }

    fn dispatch(&self, pod: Arc<Pod>, kind: UpdateKind) {
        let phase_is_terminal = self.phase(pod.uid()).is_terminal()
            || self.evictions.is_evicted(pod.uid(), Moment::now());
        let is_running = self.runtime.pod(pod.uid()).is_running();
        self.workers.update(Update {
            kind,
            pod,
            runtime_only: false,
            phase_is_terminal,
            is_running,
        });
    }

    fn phase(&self, uid: &PodUid) -> PodPhase {
        self.statuses.get(uid).map(|s| s.phase).unwrap_or_default()
    }
}

/// Tells whether a container or an init container of the pod waits for its image.
fn waits_for_image(status: &PodStatus) -> bool {
    let all = status.init_container_statuses.iter();
    let mut waiting = all
        .chain(&status.container_statuses)
        .filter_map(|c| c.state.waiting.as_ref());
    waiting.any(|w| ImageWaitReason::ALL.iter().any(|r| r.as_str() == w.reason))
}

#[cfg(test)]
pub(in crate::sync_loop) mod tests {
    use std::collections::HashMap;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use crossbeam_channel::{Sender, bounded};
    use serde_json::{Value, json};

    use super::*;
    use crate::api::PodSource as Source;
    use crate::api::objects::{LocalObject, ObjectContent, ObjectKey, ObjectKind};
    use crate::base::cancel::Cancel;
    use crate::engine::runtime::{ContainerId, RuntimeState};
    use crate::fake_runtime::runtime_container_status;
    use crate::pods::pleg::EVENTS_CAPACITY;
    use crate::pods::sources::merge::UPDATES_CAPACITY;
    use crate::pods::workers::{Outcome, Phase, PodSyncer, Work};
    use crate::test_pods;

    /// A time limit for things that happen at once unless something is broken.
    pub(super) const SOON: Duration = Duration::from_secs(20);

    pub(super) fn pod(uid: &str) -> Arc<Pod> {
        let metadata =
            serde_json::from_value(json!({"name": uid, "namespace": "default", "uid": uid}))
                .unwrap();
        let spec = serde_json::from_value(json!({"containers": [{"name": "c"}]})).unwrap();
        Arc::new(Pod {
            metadata,
            spec,
            raw: Default::default(),
        })
    }

    /// A syncer that reports each run, and ends a run only while the gate is open.
    struct Gated {
        ran: Sender<(String, Phase)>,
        gate: crossbeam_channel::Receiver<()>,
    }

    impl PodSyncer for Gated {
        fn run(&self, work: &Work, _: &Cancel) -> Outcome {
            let _ = self
                .ran
                .try_send((work.pod.metadata.uid.to_string(), work.phase));
            let _ = self.gate.recv();
            Outcome::Ok
        }
    }

    #[derive(Default)]
    pub(super) struct FakeRuntime {
        pub(super) pods: Mutex<Vec<Arc<RuntimePodStatus>>>,
        ill: AtomicBool,
        asked: AtomicU64,
    }

    impl RuntimeView for FakeRuntime {
        fn pods(&self) -> Vec<Arc<RuntimePodStatus>> {
            self.pods.lock().unwrap().clone()
        }
        fn pod(&self, uid: &PodUid) -> Arc<RuntimePodStatus> {
            self.pods()
                .into_iter()
                .find(|p| p.uid == *uid)
                .unwrap_or_default()
        }
        fn health(&self) -> Result<(), RuntimeHealthError> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            if self.ill.load(Ordering::SeqCst) {
                Err(PlegHealthError::NeverListed.into())
            } else {
                Ok(())
            }
        }
    }

    #[derive(Default)]
    pub(super) struct FakeProbes(Mutex<Vec<HashSet<PodUid>>>);

    impl ProbeHousekeeping for FakeProbes {
        fn clean_up(&self, alive: &HashSet<PodUid>) {
            self.0.lock().unwrap().push(alive.clone());
        }
        fn reap(&self) {}
    }

    struct NoGarbage;

    impl GarbageCollector for NoGarbage {
        fn collect(&self, _: Moment) {}
    }

    struct Panics;

    impl GarbageCollector for Panics {
        fn collect(&self, _: Moment) {
            panic!("asked for by the test");
        }
    }

    pub(super) struct Harness {
        pub(super) parts: Parts,
        pub(super) runtime: Arc<FakeRuntime>,
        probes: Arc<FakeProbes>,
        pub(super) ran: Receiver<(String, Phase)>,
        /// The gate. Dropping the gate lets every run end.
        gate: Option<Sender<()>>,
        pub(super) dir: tempfile::TempDir,
    }

    impl Harness {
        pub(super) fn new() -> Self {
            let ((ran_tx, ran), (gate, gated)) = (bounded(1000), bounded(0));
            let workers = Arc::new(PodWorkers::new(
                Arc::new(Gated {
                    ran: ran_tx,
                    gate: gated,
                }),
                Duration::from_secs(60),
                bounded(1).0,
            ));
            let (runtime, probes) = (
                Arc::new(FakeRuntime::default()),
                Arc::new(FakeProbes::default()),
            );
            let (dir, wake) = (tempfile::tempdir().unwrap(), bounded(1).0);
            let layout = crate::base::paths::Layout::new(dir.path());
            let evictions = Evictions::open(&layout, &[], Duration::from_secs(300), wake);
            let parts = Parts {
                node: Live::new(admission::Node {
                    max_pods: 110,
                    ..Default::default()
                }),
                closed: Live::default(),
                huge_pages: Default::default,
                pods: Arc::default(),
                workers,
                statuses: Arc::new(StatusManager::new(HashMap::new(), Arc::default())),
                config: Arc::new(PodConfig::new(&[Source::File])),
                objects: Arc::default(),
                evictions: Arc::new(evictions),
                runtime: runtime.clone(),
                probes: probes.clone(),
                recorder: Arc::default(),
                metrics: Arc::default(),
                garbage: Box::new(NoGarbage),
                pods_with_data: RefCell::default(),
                places: RefCell::default(),
                has_forgotten: Cell::default(),
            };
            Self {
                parts,
                runtime,
                probes,
                ran,
                gate: Some(gate),
                dir,
            }
        }

        pub(super) fn config(&self, op: PodOperation, pods: &[Arc<Pod>]) {
            self.parts.handle_config(PodUpdate {
                op,
                source: Source::File,
                pods: pods.to_vec(),
            });
        }

        /// Lets the source send an empty set, so that `all_seen` returns true.
        pub(super) fn seen(&self) {
            self.parts
                .config
                .merge(Source::File, Vec::new(), std::time::SystemTime::now());
            self.config(PodOperation::Add, &[]);
        }

        #[track_caller]
        pub(super) fn expect(&self, uid: &str, phase: Phase) {
            assert_eq!(
                self.ran.recv_timeout(SOON).expect("a run"),
                (uid.to_owned(), phase)
            );
        }

        /// Changes the node.
        pub(super) fn node(&self, change: impl FnOnce(&mut admission::Node)) {
            let mut node = self.parts.node.get();
            change(&mut node);
            self.parts.node.set(node);
        }

        pub(super) fn open(&mut self) {
            self.gate = None;
        }
    }

    #[test]
    fn pods_are_added_and_removed() {
        let mut h = Harness::new();
        h.open();
        h.seen();
        h.config(PodOperation::Add, &[pod("a")]);
        h.expect("a", Phase::Sync);
        h.config(PodOperation::Remove, &[pod("a")]);
        h.expect("a", Phase::Terminating);
        h.expect("a", Phase::Terminated);
        assert!(h.parts.pods.all().is_empty());
    }

    #[test]
    fn a_removal_before_all_sources_have_spoken_ends_its_pod() {
        let mut h = Harness::new();
        h.open();
        h.config(PodOperation::Add, &[pod("a")]);
        h.expect("a", Phase::Sync);
        assert!(!h.parts.config.all_seen());
        h.config(PodOperation::Remove, &[pod("a")]);
        h.expect("a", Phase::Terminating);
    }

    #[test]
    fn a_rejected_pod_fails_and_gets_no_worker() {
        let mut h = Harness::new();
        h.open();
        let with_port = |uid: &str| {
            let mut pod = Pod::clone(&pod(uid));
            let port = json!({"containerPort": 80, "hostPort": 80, "protocol": "TCP"});
            pod.spec_mut().containers[0]
                .ports
                .push(serde_json::from_value(port).unwrap());
            Arc::new(pod)
        };
        h.config(PodOperation::Add, &[with_port("a"), with_port("b")]);
        h.expect("a", Phase::Sync);
        let status = h.parts.statuses.get(&"b".into()).unwrap();
        assert_eq!(
            (status.phase, status.reason.as_str()),
            (PodPhase::Failed, "NodePorts")
        );
        assert!(
            status
                .message
                .starts_with("Pod was rejected: Predicate NodePorts failed"),
            "{}",
            status.message
        );
        assert!(!h.parts.workers.contains(&"b".into()));
        h.seen();
        h.parts.handle_housekeeping();
        assert!(
            !h.parts.workers.contains(&"b".into()),
            "housekeeping does not run it either"
        );
    }

    #[test]
    fn only_failures_of_liveness_sync_a_pod() {
        let runs_after = |results: &[ProbeResult]| {
            let h = Harness::new();
            h.config(PodOperation::Add, &[pod("a")]);
            h.expect("a", Phase::Sync);
            let (channels, _senders) = channels();
            let mut sync_loop = SyncLoop::new(channels, h.parts, Arc::default());
            // the worker is in its first run, so a request for another run is remembered
            for result in results {
                let update = results::Update {
                    container: ContainerId::from("x"),
                    result: *result,
                    pod: "a".into(),
                };
                sync_loop.handle_event(Event::Liveness(update));
            }
            drop(h.gate);
            let far = Moment::now() + Duration::from_secs(1_000_000);
            while sync_loop.parts.workers.due(far).is_empty() {
                std::thread::yield_now();
            }
            h.ran.try_iter().count()
        };
        assert_eq!(runs_after(&[ProbeResult::Success, ProbeResult::Unknown]), 0);
        assert_eq!(runs_after(&[ProbeResult::Failure]), 1);
    }

    /// If an image arrives, exactly the pods that wait for an image are synced. The waiting container may be an init
    /// container.
    #[test]
    fn a_change_of_images_syncs_the_pods_that_wait_for_one() {
        let synced = |status: Value| {
            let h = Harness::new();
            h.config(PodOperation::Add, &[pod("a")]);
            h.expect("a", Phase::Sync);
            let status = serde_json::from_value(status).unwrap();
            h.parts.statuses.set(&pod("a"), status);
            let (channels, _senders) = channels();
            let mut sync_loop = SyncLoop::new(channels, h.parts, Arc::default());
            // the worker is in its first run, so a request for another run is remembered
            sync_loop.handle_event(Event::ImagesChanged);
            drop(h.gate);
            let far = Moment::now() + Duration::from_secs(1_000_000);
            while sync_loop.parts.workers.due(far).is_empty() {
                std::thread::yield_now();
            }
            h.ran.try_iter().count() == 1
        };
        let waits = |list: &str, reason: &str| {
            let waiting = json!({"name": "c", "state": {"waiting": {"reason": reason}}});
            synced(json!({"phase": "Running", list: [waiting]}))
        };
        assert!(waits("containerStatuses", "ErrImageNeverPull"));
        assert!(waits("containerStatuses", "ImagePullBackOff"));
        assert!(waits("initContainerStatuses", "ErrImageNeverPull"));
        assert!(!waits("containerStatuses", "CrashLoopBackOff"));
        assert!(synced(json!({"phase": "Pending"})));
        assert!(!synced(json!({"phase": "Running"})));
    }

    #[test]
    fn a_change_of_an_object_syncs_the_pods_that_refer_to_it() {
        let synced = |changed: &str| {
            let h = Harness::new();
            let from = json!({"configMapKeyRef": {"name": "settings", "key": "k"}});
            let env = json!([{"name": "V", "valueFrom": from}]);
            let spec = json!({"containers": [{"name": "c", "image": "i", "env": env}]});
            let pod = Arc::new(test_pods::pod("a").uid("a").spec(spec).build());
            h.config(PodOperation::Add, &[pod]);
            h.expect("a", Phase::Sync);
            let object = LocalObject {
                key: ObjectKey::new(ObjectKind::ConfigMap, "default", changed),
                content: ObjectContent::ConfigMap(Arc::default()),
            };
            h.parts.objects.replace(Source::File, vec![object]);
            let (channels, _senders) = channels();
            let mut sync_loop = SyncLoop::new(channels, h.parts, Arc::default());
            // the worker is in its first run, so a request for another run is remembered
            sync_loop.handle_event(Event::ObjectsChanged);
            drop(h.gate);
            let far = Moment::now() + Duration::from_secs(1_000_000);
            while sync_loop.parts.workers.due(far).is_empty() {
                std::thread::yield_now();
            }
            h.ran.try_iter().count() == 1
        };
        assert!(synced("settings"));
        assert!(!synced("others"));
    }

    #[test]
    fn the_status_of_a_pod_that_is_gone_is_forgotten_when_all_sources_have_spoken() {
        let mut h = Harness::new();
        h.open();
        for name in ["gone", "wanted", "running"] {
            h.parts.statuses.set(&pod(name), PodStatus::default());
        }
        let running = RuntimePodStatus {
            uid: "running".into(),
            ..Default::default()
        };
        h.runtime.pods.lock().unwrap().push(Arc::new(running));
        let kept = |h: &Harness| {
            let known = |name: &&str| h.parts.statuses.get(&(*name).into()).is_some();
            let names = ["gone", "wanted", "running"].into_iter().filter(known);
            names.collect::<Vec<_>>()
        };
        h.config(PodOperation::Add, &[pod("wanted")]);
        assert_eq!(kept(&h), ["gone", "wanted", "running"]);
        h.seen();
        assert_eq!(kept(&h), ["wanted", "running"]);
    }

    #[test]
    fn the_status_of_a_pod_that_is_still_ending_is_kept() {
        let h = Harness::new();
        h.config(PodOperation::Add, &[pod("a")]);
        h.expect("a", Phase::Sync);
        h.parts.statuses.set(&pod("a"), PodStatus::default());
        h.config(PodOperation::Remove, &[pod("a")]);
        h.seen();
        assert!(h.parts.statuses.get(&"a".into()).is_some());
    }

    #[test]
    fn housekeeping_ends_what_nobody_wants_and_tells_the_probes_who_lives() {
        let mut h = Harness::new();
        h.open();
        h.runtime
            .pods
            .lock()
            .unwrap()
            .push(Arc::new(RuntimePodStatus {
                uid: "orphan".into(),
                name: "o".into(),
                ..Default::default()
            }));
        h.parts.handle_housekeeping();
        assert!(
            !h.parts.workers.contains(&"orphan".into()),
            "not before all sources have spoken"
        );
        h.seen();
        h.config(PodOperation::Add, &[pod("a")]);
        h.expect("a", Phase::Sync);
        h.parts.handle_housekeeping();
        h.expect("orphan", Phase::Terminating);
        h.expect("orphan", Phase::Terminated);
        h.runtime.pods.lock().unwrap().clear();
        h.parts.pods_with_data = vec!["a".into(), "left".into()].into();
        h.parts.handle_housekeeping();
        h.expect("left", Phase::Terminating);
        h.expect("left", Phase::Terminated);
        h.parts.handle_housekeeping();
        assert_eq!(
            *h.parts.pods_with_data.borrow(),
            ["a".into()],
            "its data goes when its file does"
        );
        assert_eq!(
            *h.probes.0.lock().unwrap(),
            vec![HashSet::from(["a".into()]); 3]
        );
    }

    #[test]
    fn a_pod_added_again_with_its_uid_runs_again_with_a_clean_record() {
        let mut h = Harness::new();
        h.open();
        h.seen();
        h.config(PodOperation::Add, &[pod("a")]);
        h.expect("a", Phase::Sync);
        h.parts.statuses.set(
            &pod("a"),
            PodStatus {
                phase: PodPhase::Running,
                ..Default::default()
            },
        );
        h.config(PodOperation::Remove, &[pod("a")]);
        h.expect("a", Phase::Terminating);
        h.config(PodOperation::Add, &[pod("a")]);
        h.expect("a", Phase::Terminated);
        // the worker records its end a moment after it has reported the run
        while h
            .parts
            .workers
            .working()
            .iter()
            .any(|(p, _)| p.uid().as_str() == "a")
        {
            std::thread::yield_now();
        }
        h.parts.handle_housekeeping();
        h.expect("a", Phase::Sync);
        assert!(h.parts.statuses.get(&"a".into()).is_none());
    }

    /// An evicted pod is ended at once, keeps its place on the node until then, and starts anew after its delay.
    #[test]
    fn an_evicted_pod_ends_keeps_its_place_and_starts_anew() {
        let mut h = Harness::new();
        h.open();
        h.seen();
        h.node(|node| node.max_pods = 1);
        let a = pod("a");
        h.config(PodOperation::Add, std::slice::from_ref(&a));
        h.expect("a", Phase::Sync);
        let data = crate::base::paths::Layout::new(h.dir.path()).pod_data(a.uid());
        std::fs::create_dir_all(data).unwrap();
        h.parts.evictions.evict(a.uid(), "full. ");
        h.parts.handle_evicted();
        h.expect("a", Phase::Terminating);
        h.expect("a", Phase::Terminated);
        h.parts.statuses.set(&a, failed());
        h.parts.evictions.ended(&a, Moment::now());
        let finished = || h.parts.workers.working().is_empty();
        let deadline = std::time::Instant::now() + SOON;
        while !finished() && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }

        h.config(PodOperation::Add, &[pod("b")]);
        let status = h.parts.statuses.get(&"b".into()).unwrap();
        assert_eq!(status.reason, "OutOfpods");

        let soon = Moment::now();
        h.parts.handle_sync_tick(soon);
        h.parts.handle_housekeeping();
        assert!(h.parts.statuses.get(a.uid()).is_some(), "it waits");
        h.parts.evictions.release(a.uid(), soon);
        h.parts.handle_sync_tick(soon);
        h.expect("a", Phase::Sync);
        assert!(h.parts.statuses.get(a.uid()).is_none());
        assert_eq!(h.ran.try_iter().count(), 0);
    }

    fn failed() -> PodStatus {
        PodStatus {
            phase: PodPhase::Failed,
            ..PodStatus::default()
        }
    }

    #[test]
    fn an_evicted_pod_whose_file_goes_and_comes_waits_for_nothing() {
        let mut h = Harness::new();
        h.open();
        h.seen();
        let a = pod("a");
        let data = crate::base::paths::Layout::new(h.dir.path()).pod_data(a.uid());
        std::fs::create_dir_all(data).unwrap();
        h.parts.evictions.evict(a.uid(), "full. ");
        h.parts.evictions.ended(&a, Moment::now());
        h.parts.handle_removal(&a);
        assert!(!h.parts.evictions.is_evicted(a.uid(), Moment::now()));
    }

    type Senders = (
        Sender<PodUpdate>,
        Sender<PodLifecycleEvent>,
        [Sender<results::Update>; 3],
        [Sender<()>; 4],
        Sender<()>,
    );

    fn channels() -> (Channels, Senders) {
        let (config_tx, config) = bounded(UPDATES_CAPACITY);
        let (pleg_tx, pleg) = bounded(EVENTS_CAPACITY);
        let (liveness_tx, liveness) = bounded(results::UPDATES_CAPACITY);
        let (readiness_tx, readiness) = bounded(results::UPDATES_CAPACITY);
        let (startup_tx, startup) = bounded(results::UPDATES_CAPACITY);
        let (images_tx, images) = bounded(1);
        let (objects_tx, objects) = bounded(1);
        let (evictions_tx, evictions) = bounded(1);
        let (room_tx, room) = bounded(1);
        let (stop_tx, stop) = bounded(0);
        let senders = (
            config_tx,
            pleg_tx,
            [liveness_tx, readiness_tx, startup_tx],
            [images_tx, objects_tx, evictions_tx, room_tx],
            stop_tx,
        );
        (
            Channels {
                config,
                pleg,
                liveness,
                readiness,
                startup,
                images,
                objects,
                evictions,
                room,
                stop,
            },
            senders,
        )
    }

    /// A panic may leave a change half done. The loop counts as turning again only after it has gone through all pods.
    #[test]
    fn after_a_panic_the_heart_beats_when_both_passes_went_through() {
        let heart = Heartbeat::default();
        let old = Moment::from_boot(Duration::from_nanos(1));
        heart.turned(old);
        heart.panicked();
        for pass in [0, Event::SyncTick.pass(), 0] {
            heart.handled(pass);
            heart.beat();
            assert_eq!(heart.last(), Some(old));
        }
        heart.handled(Event::Housekeeping.pass());
        heart.beat();
        assert!(heart.last() > Some(old));
        assert_eq!(heart.panics(), 1);
    }

    /// The main rule of channels: even with every channel full and every worker stuck, the loop still turns.
    #[test]
    fn with_every_channel_full_and_every_worker_stuck_the_loop_turns() {
        let h = Harness::new();
        let (channels, (config, pleg, results, hints, stop)) = channels();
        for n in 0..UPDATES_CAPACITY {
            let update = PodUpdate {
                op: PodOperation::Add,
                source: Source::File,
                pods: vec![pod(&n.to_string())],
            };
            config.try_send(update).unwrap();
        }
        for n in 0..EVENTS_CAPACITY {
            let event = PodLifecycleEvent {
                uid: n.to_string().as_str().into(),
                kind: EventKind::ContainerDied,
                id: "x".into(),
            };
            pleg.try_send(event).unwrap();
        }
        for sender in &results {
            for n in 0..results::UPDATES_CAPACITY {
                let pod = n.to_string().as_str().into();
                sender
                    .try_send(results::Update {
                        container: "x".into(),
                        result: ProbeResult::Failure,
                        pod,
                    })
                    .unwrap();
            }
        }
        hints.iter().for_each(|hint| hint.try_send(()).unwrap());
        assert!(config.is_full() && pleg.is_full() && hints.iter().all(Sender::is_full));
        assert!(results.iter().all(Sender::is_full));
        let workers = h.parts.workers.clone();
        let metrics = h.parts.metrics.clone();
        let heartbeat = Arc::new(Heartbeat::default());
        let sync_loop = SyncLoop::new(channels, h.parts, heartbeat.clone());
        let thread = std::thread::spawn(move || sync_loop.run());
        let deadline = std::time::Instant::now() + SOON;
        while !(config.is_empty()
            && pleg.is_empty()
            && hints.iter().all(Sender::is_empty)
            && results.iter().all(Sender::is_empty))
        {
            assert!(
                std::time::Instant::now() < deadline,
                "the loop stands still"
            );
            std::thread::yield_now();
        }
        assert_eq!(
            h.ran.iter().take(UPDATES_CAPACITY).count(),
            UPDATES_CAPACITY,
            "every pod's worker was started"
        );
        // every worker is in its first run, but the loop still accepts events and still stops
        assert!(heartbeat.last().is_some());
        let mut out = String::new();
        metrics.write(None, Moment::default(), Moment::default(), &mut out);
        let turns = "podprobe_sync_loop_iteration_duration_seconds_count ";
        let turns = out.lines().find_map(|l| l.strip_prefix(turns));
        assert!(turns.unwrap().parse::<usize>().unwrap() >= UPDATES_CAPACITY);
        config
            .send_timeout(
                PodUpdate {
                    op: PodOperation::Add,
                    source: Source::File,
                    pods: vec![pod("late")],
                },
                SOON,
            )
            .unwrap();
        assert_eq!(h.ran.recv_timeout(SOON).unwrap().0, "late");
        drop(stop);
        thread.join().unwrap();
        drop(h.gate);
        assert!(workers.shutdown(SOON).is_empty());
    }

    /// The metrics of a channel must not keep the channel open, because senders must notice that the loop has ended.
    #[test]
    fn what_waits_for_the_loop_is_shown_and_keeps_no_channel_open() {
        let h = Harness::new();
        let metrics = h.parts.metrics.clone();
        let text = || {
            let mut out = String::new();
            let at = |s| Moment::from_boot(Duration::from_secs(s));
            metrics.write(Some(at(7)), at(1), at(10), &mut out);
            out
        };
        assert!(!text().contains("channel"), "there is no loop yet");
        let (channels, (config, _pleg, results, _hints, _stop)) = channels();
        let update = results::Update {
            container: ContainerId::from("x"),
            result: ProbeResult::Success,
            pod: "a".into(),
        };
        results[1].send(update).unwrap();
        let sync_loop = SyncLoop::new(channels, h.parts, Arc::default());
        for line in [
            "podprobe_sync_loop_channel_depth{channel=\"readiness\"} 1",
            "podprobe_sync_loop_channel_depth{channel=\"liveness\"} 0",
            "podprobe_sync_loop_channel_capacity{channel=\"config\"} 50",
            "podprobe_sync_loop_channel_capacity{channel=\"pleg\"} 1000",
            "podprobe_sync_loop_seconds_since_progress 3",
        ] {
            assert!(text().lines().any(|l| l == line), "{line} in\n{}", text());
        }
        drop(sync_loop);
        assert!(!text().contains("channel"), "it has ended");
        let update = PodUpdate {
            op: PodOperation::Add,
            source: Source::File,
            pods: vec![],
        };
        assert!(config.send(update).is_err(), "and its senders know");
    }

    #[test]
    fn ends_of_containers_and_rejections_are_counted() {
        let h = Harness::new();
        let metrics = h.parts.metrics.clone();
        let mut ended = runtime_container_status("c", "1", RuntimeState::Exited, 137);
        ended.reason = "OOMKilled".into();
        let status = RuntimePodStatus {
            uid: "a".into(),
            containers: vec![ended],
            ..RuntimePodStatus::default()
        };
        h.runtime.pods.lock().unwrap().push(Arc::new(status));
        let (channels, _senders) = channels();
        let mut sync_loop = SyncLoop::new(channels, h.parts, Arc::default());
        for (kind, id) in [
            (EventKind::ContainerStarted, "1"),
            (EventKind::ContainerDied, "1"),
            (EventKind::ContainerDied, "sandbox"),
        ] {
            let id = id.into();
            let uid = "a".into();
            sync_loop.handle_event(Event::Lifecycle(PodLifecycleEvent { uid, kind, id }));
        }
        let rejection = admission::Rejection {
            reason: "NodePorts".into(),
            message: String::new(),
        };
        sync_loop.parts.reject(&pod("b"), &rejection);
        let mut out = String::new();
        metrics.write(None, Moment::default(), Moment::default(), &mut out);
        for line in [
            "terminated_containers_total{container_type=\"container\",exit_code=\"137\",reason=\"OOMKilled\"} 1",
            "admission_rejections_total{reason=\"NodePorts\"} 1",
        ] {
            let line = format!("kubelet_{line}");
            assert!(out.lines().any(|l| l == line), "{line} in\n{out}");
        }
    }

    #[test]
    fn an_ill_runtime_rests_the_loop_and_a_stop_is_still_heard() {
        let h = Harness::new();
        h.runtime.ill.store(true, Ordering::SeqCst);
        let (channels, (config, _pleg, _results, _images, stop)) = channels();
        config
            .send(PodUpdate {
                op: PodOperation::Add,
                source: Source::File,
                pods: vec![pod("a")],
            })
            .unwrap();
        let heartbeat = Arc::new(Heartbeat::default());
        let mut sync_loop = SyncLoop::new(channels, h.parts, heartbeat.clone());
        assert!(matches!(
            sync_loop.rest(&PlegHealthError::NeverListed.into()),
            Event::PauseOver
        ));
        assert_eq!(
            (sync_loop.pause, heartbeat.last()),
            (FIRST_PAUSE * 2, None),
            "no mark while it rests"
        );
        let thread = std::thread::spawn(move || sync_loop.run());
        drop(stop);
        thread.join().unwrap();
        assert!(h.ran.try_recv().is_err(), "nothing was decided");
    }

    /// Lessons F3: a loop that only rests and does nothing must not count as one that works.
    #[test]
    fn f3_a_rest_is_no_turn_and_who_asks_is_told() {
        let h = Harness::new();
        h.runtime.ill.store(true, Ordering::SeqCst);
        let (channels, (_config, _pleg, _results, _images, stop)) = channels();
        let heartbeat = Arc::new(Heartbeat::default());
        let mut sync_loop = SyncLoop::new(channels, h.parts, heartbeat.clone());
        sync_loop.pause = Duration::from_millis(1);
        let (thread, runtime) = (
            std::thread::spawn(move || sync_loop.run()),
            h.runtime.clone(),
        );
        let asked = |n| {
            let before = runtime.asked.load(Ordering::SeqCst);
            let deadline = std::time::Instant::now() + SOON;
            while runtime.asked.load(Ordering::SeqCst) < before + n {
                assert!(
                    std::time::Instant::now() < deadline,
                    "the loop stands still"
                );
                std::thread::yield_now();
            }
        };
        asked(4);
        assert_eq!(heartbeat.last(), None, "four rests");
        let (started, minutes) = (Moment::now(), |n: u64| Duration::from_secs(n * 60));
        assert_eq!(
            heartbeat.stalled(started, started + minutes(2)),
            None,
            "it has just started"
        );
        let text = heartbeat.stalled(started, started + minutes(3)).unwrap();
        assert!(
            text.starts_with("the sync loop has not turned for 3m0s: "),
            "{text}"
        );
        runtime.ill.store(false, Ordering::SeqCst);
        asked(2);
        let turned = heartbeat.last().unwrap();
        assert_eq!(heartbeat.stalled(started, turned + minutes(2)), None);
        assert!(heartbeat.stalled(started, turned + minutes(3)).is_some());
        drop(stop);
        thread.join().unwrap();
    }

    #[test]
    fn a_panic_in_a_handler_costs_one_event() {
        let mut h = Harness::new();
        h.open();
        h.seen();
        h.parts.garbage = Box::new(Panics);
        let (channels, (config, _pleg, _results, _images, stop)) = channels();
        let mut sync_loop = SyncLoop::new(channels, h.parts, Arc::default());
        sync_loop.housekeeping = crossbeam_channel::at(std::time::Instant::now());
        let thread = std::thread::spawn(move || sync_loop.run());
        config
            .send(PodUpdate {
                op: PodOperation::Add,
                source: Source::File,
                pods: vec![pod("a")],
            })
            .unwrap();
        assert_eq!(h.ran.recv_timeout(SOON).unwrap().0, "a");
        drop(stop);
        thread.join().unwrap();
    }
}
