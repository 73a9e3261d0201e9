//! The sync loop: one select over everything that can happen, mirroring the kubelet's `syncLoopIteration`
//! (kubelet-probes 5).
//!
//! Invariants: the loop waits nowhere but in [`SyncLoop::next_event`]: no blocking send, no join, no runtime call, no
//! disk, no lock that another thread holds across a wait. It alone writes the pod manager. One event is handled a
//! turn, then the loop looks again.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, never, select, tick};

use crate::admission;
use crate::api::{Pod, PodPhase, PodStatus, PodUid};
use crate::clock::{Moment, Time};
use crate::events::{EventType, Recorder};
use crate::pleg::{EventKind, PodLifecycleEvent};
use crate::pod_config::{PodConfig, PodOperation, PodUpdate};
use crate::pod_manager::PodManager;
use crate::pod_workers::{PodWorkers, Update, UpdateKind};
use crate::prober::results::{self, ProbeResult};
use crate::runtime::RuntimePodStatus;
use crate::status::{self, StatusManager};

/// Sync tick (5.1).
const SYNC_TICK: Duration = Duration::from_secs(1);
/// Housekeeping tick (5.1).
const HOUSEKEEPING: Duration = Duration::from_secs(2);
/// A housekeeping pass that takes longer is logged as an error (5.2).
const HOUSEKEEPING_WARNING: Duration = Duration::from_secs(1);
/// Grace period of a runtime pod that nobody wants, in seconds (5.5 step 6).
const ORPHAN_GRACE_SECONDS: i64 = 1;
/// While the runtime is not well the loop rests, from this … (5.1)
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// … doubling to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What the loop listens to; capacities are in ARCHITECTURE.md.
pub struct Channels {
    /// From the pod sources. Closed means the daemon ends.
    pub config: Receiver<PodUpdate>,
    /// From PLEG.
    pub pleg: Receiver<PodLifecycleEvent>,
    /// From the liveness results manager.
    pub liveness: Receiver<results::Update>,
    /// From the readiness results manager.
    pub readiness: Receiver<results::Update>,
    /// From the startup results manager.
    pub startup: Receiver<results::Update>,
    /// Closed means the daemon ends.
    pub stop: Receiver<()>,
}

/// What the loop asks of PLEG.
pub trait RuntimeView: Send + Sync {
    /// Every pod the runtime knew at the last listing. Never blocks.
    fn pods(&self) -> Vec<Arc<RuntimePodStatus>>;
    /// One of them; an unknown one is empty.
    fn pod(&self, uid: &PodUid) -> Arc<RuntimePodStatus>;
    /// Why the runtime cannot be relied on right now (5.4).
    ///
    /// # Errors
    /// The text of 5.4.
    fn health(&self) -> Result<(), String>;
}

/// What the loop asks of the probe manager at housekeeping. Neither blocks.
pub trait ProbeHousekeeping: Send + Sync {
    /// Stops the workers of pods outside `alive`.
    fn clean_up(&self, alive: &HashSet<PodUid>);
    /// Joins threads that have ended.
    fn reap(&self);
}

/// Whom the loop acts on.
pub struct Parts {
    /// Pods that should run.
    pub pods: Arc<PodManager>,
    /// Workers.
    pub workers: Arc<PodWorkers>,
    /// Statuses.
    pub statuses: Arc<StatusManager>,
    /// Which sources have spoken.
    pub config: Arc<PodConfig>,
    /// What the runtime holds.
    pub runtime: Arc<dyn RuntimeView>,
    /// Probe workers.
    pub probes: Arc<dyn ProbeHousekeeping>,
    /// Events.
    pub recorder: Arc<Recorder>,
    /// Small things done at each housekeeping, such as dropping stale back-off entries. Must not block.
    pub also: Box<dyn Fn(Moment) + Send>,
}

/// When the loop last turned, for the health check (5.1, 11.2).
#[derive(Default)]
pub struct Heartbeat(AtomicU64);

impl Heartbeat {
    fn beat(&self) {
        self.0.store(Moment::now().since_boot().as_nanos() as u64, Ordering::Relaxed);
    }

    /// The last turn; None before the first.
    pub fn last(&self) -> Option<Moment> {
        let nanos = self.0.load(Ordering::Relaxed);
        (nanos != 0).then(|| Moment::from_boot(Duration::from_nanos(nanos)))
    }
}

/// One thing that happened.
#[derive(Debug)]
enum Event {
    Config(PodUpdate),
    Lifecycle(PodLifecycleEvent),
    Liveness(results::Update),
    Readiness(results::Update),
    Startup(results::Update),
    SyncTick,
    Housekeeping,
    PauseOver,
    Stop,
}

/// The loop.
pub struct SyncLoop {
    channels: Channels,
    parts: Parts,
    heartbeat: Arc<Heartbeat>,
    sync_tick: Receiver<std::time::Instant>,
    housekeeping: Receiver<std::time::Instant>,
    pause: Duration,
}

impl SyncLoop {
    /// A loop that has not turned yet.
    pub fn new(channels: Channels, parts: Parts, heartbeat: Arc<Heartbeat>) -> Self {
        let (sync_tick, housekeeping) = (tick(SYNC_TICK), tick(HOUSEKEEPING));
        Self { channels, parts, heartbeat, sync_tick, housekeeping, pause: FIRST_PAUSE }
    }

    /// Turns until it is told to stop.
    pub fn run(mut self) {
        loop {
            let event = match self.parts.runtime.health() {
                Ok(()) => {
                    self.pause = FIRST_PAUSE;
                    self.heartbeat.beat();
                    self.next_event()
                }
                Err(why) => self.rest(&why),
            };
            if matches!(event, Event::Stop) {
                return;
            }
            if catch_unwind(AssertUnwindSafe(|| self.handle_event(event))).is_err() {
                // a bug: the event is lost, the next sync tick or relist mends what it was about
                log::error!("the sync loop panicked at an event; it goes on");
            }
            self.heartbeat.beat();
        }
    }

    /// Waits for the next event and does nothing else.
    fn next_event(&self) -> Event {
        let Channels { config, pleg, liveness, readiness, startup, stop } = &self.channels;
        select! {
            recv(stop) -> _ => Event::Stop,
            recv(config) -> update => update.map_or(Event::Stop, Event::Config),
            recv(pleg) -> event => event.map_or(Event::Stop, Event::Lifecycle),
            recv(liveness) -> update => update.map_or(Event::Stop, Event::Liveness),
            recv(readiness) -> update => update.map_or(Event::Stop, Event::Readiness),
            recv(startup) -> update => update.map_or(Event::Stop, Event::Startup),
            recv(self.sync_tick) -> _ => Event::SyncTick,
            recv(self.housekeeping) -> _ => Event::Housekeeping,
        }
    }

    /// The runtime is not well: nothing is decided until it is, but a stop is heard.
    fn rest(&mut self, why: &str) -> Event {
        log::error!("sync loop rests for {:?}: {why}", self.pause);
        let pause = self.pause;
        self.pause = (pause * 2).min(LONGEST_PAUSE);
        let unused: Receiver<()> = never();
        select! {
            recv(self.channels.stop) -> _ => Event::Stop,
            recv(unused) -> _ => Event::PauseOver,
            default(pause) => Event::PauseOver,
        }
    }

    /// The table of 5.2.
    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Config(update) => self.parts.handle_config(update),
            Event::Lifecycle(event) => {
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
            PodOperation::Update | PodOperation::Delete => pods.into_iter().for_each(|p| self.handle_update(p)),
            PodOperation::Remove => pods.iter().for_each(|p| self.handle_removal(p)),
            PodOperation::Reconcile => pods.into_iter().for_each(|p| self.pods.set(p)),
        }
        self.config.mark_handled(source);
    }

    fn handle_additions(&self, mut pods: Vec<Arc<Pod>>) {
        // static pods carry no creation time; their name makes the order the same at every start
        pods.sort_by_key(|p| p.full_name());
        for pod in pods {
            let others = self.pods.all();
            self.pods.set(pod.clone());
            if self.workers.is_terminating(pod.uid()) || self.phase(pod.uid()).is_terminal() {
                self.dispatch(pod, UpdateKind::Create);
                continue;
            }
            let active = others.iter().filter(|o| !self.phase(o.uid()).is_terminal()).map(AsRef::as_ref);
            match admission::admit(&pod, active) {
                Ok(()) => self.dispatch(pod, UpdateKind::Create),
                Err(rejection) => self.reject(&pod, &rejection),
            }
        }
    }

    /// 5.3 "Reject".
    fn reject(&self, pod: &Pod, rejection: &admission::Rejection) {
        let admission::Rejection { reason, message } = rejection;
        self.recorder.record(&pod.reference(), "", EventType::Warning, reason, message);
        let status = PodStatus {
            phase: PodPhase::Failed,
            reason: (*reason).into(),
            message: format!("Pod was rejected: {message}"),
            qos_class: status::qos_class(pod).into(),
            start_time: Some(Time::now()),
            ..PodStatus::default()
        };
        self.statuses.set(pod, status);
    }

    fn handle_update(&self, pod: Arc<Pod>) {
        self.pods.set(pod.clone());
        self.dispatch(pod, UpdateKind::Update);
    }

    /// Before all sources have spoken a missing pod may only be late: housekeeping ends it then.
    fn handle_removal(&self, pod: &Arc<Pod>) {
        self.pods.remove(pod.uid());
        if self.config.all_seen() {
            self.dispatch(pod.clone(), UpdateKind::Kill { grace_override: None });
        }
    }

    fn handle_readiness(&self, update: &results::Update) {
        let Some(pod) = self.known(&update.pod) else { return };
        self.statuses.set_container_readiness(&pod, &update.container, update.result == ProbeResult::Success);
        self.sync(&update.pod);
    }

    fn handle_startup(&self, update: &results::Update) {
        let Some(pod) = self.pods.get(&update.pod) else { return };
        self.statuses.set_container_started(&pod, &update.container, update.result == ProbeResult::Success);
        self.sync(&update.pod);
    }

    fn handle_sync_tick(&self, now: Moment) {
        self.workers.due(now).iter().for_each(|uid| self.sync(uid));
        for pod in self.pods.all().into_iter().filter(|p| p.spec.active_deadline_seconds.is_some()) {
            let status = self.statuses.get(pod.uid());
            let alive = status.as_ref().is_some_and(|s| !s.phase.is_terminal());
            if alive && crate::pod_workers::deadline_exceeded(&pod, status.as_deref()) {
                self.dispatch(pod, UpdateKind::Sync);
            }
        }
    }

    /// The clean-up pass of 5.5.
    fn handle_housekeeping(&self) {
        if !self.config.all_seen() {
            return;
        }
        let started = Moment::now();
        self.clean_up_workers();
        self.probes.clean_up(&self.workers.probed());
        self.probes.reap();
        self.end_orphans();
        (self.also)(started);
        let took = Moment::now().since(started);
        if took > HOUSEKEEPING_WARNING {
            log::error!("housekeeping took {took:?}, more than {HOUSEKEEPING_WARNING:?}");
        }
    }

    /// Steps 1, 4 and 5.
    fn clean_up_workers(&self) {
        let desired = self.pods.uids();
        let dropped = self.workers.sync_known(&desired);
        let mut known = desired;
        known.extend(self.workers.working().into_iter().map(|(pod, _)| pod.uid().clone()));
        // a pod that was re-created with its UID starts with a clean record
        dropped.iter().for_each(|uid| drop(known.remove(uid)));
        self.statuses.remove_orphans(&known);
        for pod in self.pods.all() {
            if !self.workers.contains(pod.uid()) && !self.phase(pod.uid()).is_terminal() {
                self.dispatch(pod, UpdateKind::Create);
            }
        }
    }

    /// Step 6: what the runtime holds and nobody wants, ended pods' remains included.
    fn end_orphans(&self) {
        for runtime in self.runtime.pods() {
            if self.workers.contains(&runtime.uid) || self.pods.get(&runtime.uid).is_some() {
                continue;
            }
            self.workers.update(Update {
                kind: UpdateKind::Kill { grace_override: Some(ORPHAN_GRACE_SECONDS) },
                pod: Arc::new(only_metadata(&runtime)),
                runtime_only: true,
                phase_is_terminal: false,
                is_running: runtime.is_running(),
            });
        }
    }

    fn known(&self, uid: &PodUid) -> Option<Arc<Pod>> {
        // a pod that is being removed goes on to lose readiness until it is gone (lessons A8)
        self.pods.get(uid).or_else(|| self.workers.working().into_iter().map(|(p, _)| p).find(|p| p.uid() == uid))
    }

    fn sync(&self, uid: &PodUid) {
        if let Some(pod) = self.known(uid) {
            self.dispatch(pod, UpdateKind::Sync);
        }
    }

    fn dispatch(&self, pod: Arc<Pod>, kind: UpdateKind) {
        let phase_is_terminal = self.phase(pod.uid()).is_terminal();
        let is_running = self.runtime.pod(pod.uid()).is_running();
        self.workers.update(Update { kind, pod, runtime_only: false, phase_is_terminal, is_running });
    }

    fn phase(&self, uid: &PodUid) -> PodPhase {
        self.statuses.get(uid).map(|s| s.phase).unwrap_or_default()
    }
}

/// All that is known of a pod whose spec is gone.
fn only_metadata(runtime: &RuntimePodStatus) -> Pod {
    let mut metadata = crate::api::pod::ObjectMeta::default();
    metadata.name.clone_from(&runtime.name);
    metadata.namespace.clone_from(&runtime.namespace);
    metadata.uid = runtime.uid.clone();
    Pod { metadata, spec: Default::default(), raw: serde_json::Value::Null }
}
