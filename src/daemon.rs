//! The daemon: wires the parts, holds the lock of its root, and ends them in order.

mod hands_on;

use std::cell::Cell;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, bounded};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{SigSet, Signal};

use crate::api::decode::{self, StaticSource};
use crate::api::validation::probe_field;
use crate::api::{Container, ContainerStatus, Pod, PodStatus, PodUid};
use crate::checkpoint;
use crate::clock::{Moment, Time};
use crate::events::{EventList, Recorder};
use crate::image_keeper::{ImageKeeper, ImageKeeperConfig};
use crate::images::ImageStore;
use crate::layout::Layout;
use crate::notifier::Notifier;
use crate::pleg::{self, Cache, Pleg};
use crate::pod_actions::ToKill;
use crate::pod_config::file::{FileSource, FileSourceConfig};
use crate::pod_config::merge::UPDATES_CAPACITY;
use crate::pod_config::{FileStates, PodConfig, PodUpdate, Source};
use crate::pod_manager::PodManager;
use crate::pod_workers::{Deps, PodCache, PodWorkers, Probes, Syncer, Update, UpdateKind};
use crate::prober::history::PodHistory;
use crate::prober::manager::{self, ProberManager, RestoredReady, StatusSource};
use crate::prober::now::ProbeReport;
use crate::prober::results::{self, ProbeResult};
use crate::runtime::exits::ExitListener;
use crate::runtime::{ContainerId, ImagesInUse, Runtime, RuntimeContainerStatus, RuntimePodStatus, ShimRuntime, StartErrorReason};
use crate::server::protocol::{PauseTarget, ProbeTarget};
use crate::server::{self, Backend, Server};
use crate::settings::Settings;
use crate::status::{PodView, Snapshot, StatusManager};
use crate::sync_loop::{Channels, Heartbeat, Parts, ProbeHousekeeping, RuntimeView, SyncLoop};

/// A sync waits this long for a status newer than its last run; a relist takes a second at most, a busy disk longer.
const STATUS_CEILING: Duration = Duration::from_secs(20);

/// The first listing is waited for this long at the start.
const FIRST_LISTING: Duration = Duration::from_secs(1);

/// How long shutdown waits for probes that wait for an answer over the network; their timeouts may be far longer.
const PROBES_LIMIT: Duration = Duration::from_secs(1);
/// How long a new daemon waits for the root's lock; one that runs keeps it far longer.
const LOCK_PATIENCE: Duration = Duration::from_secs(3);
/// How often it tries.
const LOCK_STEP: Duration = Duration::from_millis(20);

/// The daemon did not start; the text says what to do.
#[derive(Debug)]
pub struct DaemonError(String);

impl std::fmt::Display for DaemonError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DaemonError {}

fn cannot(what: impl std::fmt::Display) -> impl FnOnce(io::Error) -> DaemonError {
    move |e| DaemonError(format!("cannot {what}: {e}"))
}

/// A running daemon.
pub struct Daemon {
    shared: Arc<Shared>,
    updates: Sender<PodUpdate>,
    files: Mutex<Option<FileSource>>,
    keeper: Mutex<Option<ImageKeeper>>,
    exits: Mutex<Option<ExitListener>>,
    threads: Mutex<Vec<(&'static str, JoinHandle<()>)>>,
    stop: Mutex<Vec<Sender<()>>>,
    server: Mutex<Option<Server>>,
    /// Held until the process ends: one daemon a root.
    _lock: Flock<File>,
}

/// What the threads and the readers share.
struct Shared {
    layout: Layout,
    node_name: String,
    notifier: Arc<Notifier>,
    recorder: Arc<Recorder>,
    pods: Arc<PodManager>,
    workers: Arc<PodWorkers>,
    statuses: Arc<StatusManager>,
    states: Arc<FileStates>,
    config: Arc<PodConfig>,
    runtime: Arc<ShimRuntime>,
    prober: Arc<Prober>,
    pleg: Arc<Pleg>,
    started: Moment,
    heartbeat: Arc<Heartbeat>,
}

impl Daemon {
    /// Starts every part. Containers of an earlier daemon of this root are found and kept.
    ///
    /// # Errors
    /// Another daemon holds the root; a directory, the runtime, the socket or a thread is not to be had.
    pub fn start(settings: Settings, layout: Layout) -> Result<Self, DaemonError> {
        crate::sys::harden_process();
        block_signals();
        let lock = prepare_root(&layout)?;
        let images = ImageStore::open(layout.images()).map_err(|e| DaemonError(e.to_string()))?;
        let runtime = ShimRuntime::new(&layout, &settings, images.clone()).map_err(cannot("set up the runtime"))?;
        let runtime = Arc::new(runtime);
        runtime.check().map_err(|e| DaemonError(e.to_string()))?;
        Self::wire(settings, layout, lock, runtime, images)
    }

    fn wire(
        settings: Settings,
        layout: Layout,
        lock: Flock<File>,
        runtime: Arc<ShimRuntime>,
        images: ImageStore,
    ) -> Result<Self, DaemonError> {
        let started = Moment::now();
        let notifier = Arc::new(Notifier::default());
        let recorder = Arc::new(Recorder::new(notifier.clone()));
        let checkpoint::Restored { statuses: restored, ages } = checkpoint::read(&layout.checkpoint());
        let readiness = restored_readiness(&restored);
        let running = restored.keys().cloned().collect();
        let statuses = Arc::new(StatusManager::new(restored, notifier.clone()).with_ages(ages));

        let (pleg_events, from_pleg) = bounded(pleg::EVENTS_CAPACITY);
        let (stop_pleg, pleg_stopped) = bounded(0);
        let left_behind = Cell::new(runtime.pods_with_data());
        let pleg = Pleg::spawn(runtime.clone(), pleg_events, pleg_stopped).map_err(cannot("start the relist thread"))?;
        let pleg = Arc::new(pleg);
        // so that the sync loop's first look finds the runtime listed; a slow disk makes it rest instead
        let _ = pleg.cache().get_newer_than(&PodUid::default(), Moment::default(), FIRST_LISTING);
        let cache = Arc::new(RuntimeCache(pleg.clone()));

        let ((results, from_results), seen) =
            (results_managers(), Arc::new(Seen { statuses: statuses.clone(), cache: pleg.cache().clone() }));
        let prober = Arc::new(Prober {
            manager: ProberManager::new(manager::Deps {
                statuses: seen,
                runtime: runtime.clone(),
                results: results.clone(),
                recorder: recorder.clone(),
                started,
                allow_probe_hosts: settings.allow_probe_hosts.clone(),
                restored: readiness,
            }),
            results,
        });
        prober.manager.pauses().open(layout.pauses());
        let syncer = Arc::new(Syncer::new(Deps {
            runtime: runtime.clone(),
            cache: cache.clone(),
            probes: prober.clone(),
            statuses: statuses.clone(),
            recorder: recorder.clone(),
            node_ip: settings.node_ip,
            max_back_off: settings.max_container_restart_period,
        }));
        let workers = Arc::new(PodWorkers::new(syncer.clone(), settings.sync_frequency));
        let (changed, heartbeat) = (notifier.clone(), Arc::new(Heartbeat::default()));
        let shared = Arc::new(Shared {
            node_name: settings.node_name.clone(),
            notifier: notifier.clone(),
            recorder: recorder.clone(),
            pods: Arc::new(PodManager::new(notifier.clone())),
            workers: workers.clone(),
            statuses: statuses.clone(),
            states: Arc::new(FileStates::new(move || changed.changed())),
            config: Arc::new(PodConfig::new(&[Source::File])),
            runtime,
            prober: prober.clone(),
            pleg,
            layout,
            started,
            heartbeat: heartbeat.clone(),
        });
        let (prober_for_pauses, tidying) = (prober.clone(), shared.clone());
        let (updates, from_config) = bounded(UPDATES_CAPACITY);
        let (stop_loop, loop_stopped) = bounded(0);
        let [liveness, readiness, startup] = from_results;
        let parts = Parts {
            pods: shared.pods.clone(),
            workers,
            statuses: statuses.clone(),
            config: shared.config.clone(),
            runtime: cache,
            probes: prober,
            recorder,
            also: Box::new(move |now| tidying.housekeeping(&syncer, now)),
            left_behind,
        };
        let channels = Channels { config: from_config, pleg: from_pleg, liveness, readiness, startup, stop: loop_stopped };
        let sync_loop = SyncLoop::new(channels, parts, heartbeat);
        let loop_thread = spawn("sync-loop", move || sync_loop.run())?;
        let (stop_checkpoint, checkpoint_stopped) = bounded(0);
        let checkpoint =
            checkpoint::spawn(shared.layout.checkpoint(), statuses, checkpoint_stopped, hands_on::pauses_saver(prober_for_pauses));
        let checkpoint = checkpoint.map_err(cannot("start the checkpoint thread"))?;
        let server = server::spawn(&shared.layout.socket(), shared.clone()).map_err(|e| DaemonError(e.to_string()))?;
        let files = FileSource::spawn(FileSourceConfig {
            path: settings.static_pod_path.clone(),
            check_frequency: settings.file_check_frequency,
            last_good: shared.layout.last_good(),
            running,
            decode: decoder(settings.node_name.clone()),
            config: shared.config.clone(),
            updates: updates.clone(),
            states: shared.states.clone(),
            events: shared.recorder.clone(),
        });
        let files = files.map_err(cannot("watch the pods directory"))?;
        let of = shared.pleg.clone();
        let exits = ExitListener::spawn(shared.layout.exits(), move |uid| of.request(uid)).map_err(cannot("listen for ends"))?;
        let keeper = ImageKeeper::spawn(image_keeper_config(&shared, images)).map_err(cannot("watch the image directory"))?;
        log::info!(
            "podprobe {} runs as node {}, pods from {}",
            env!("CARGO_PKG_VERSION"),
            shared.node_name,
            settings.static_pod_path.display()
        );
        Ok(Self {
            shared,
            updates,
            files: Mutex::new(Some(files)),
            keeper: Mutex::new(Some(keeper)),
            exits: Mutex::new(Some(exits)),
            threads: Mutex::new(vec![("sync loop", loop_thread), ("checkpoint", checkpoint)]),
            stop: Mutex::new(vec![stop_loop, stop_checkpoint, stop_pleg]),
            server: Mutex::new(Some(server)),
            _lock: lock,
        })
    }

    /// What clients and the live table read.
    pub fn backend(&self) -> Arc<dyn Backend> {
        self.shared.clone()
    }

    /// Waits for TERM, INT or HUP.
    pub fn wait_for_signal(&self) -> Signal {
        loop {
            if let Ok(signal) = handled_signals().wait() {
                return signal;
            }
        }
    }

    /// Ends every thread; containers go on.
    ///
    /// # Errors
    /// Names the threads that have not ended within `limit`.
    pub fn shutdown(&self, limit: Duration) -> Result<(), String> {
        let deadline = Instant::now() + limit;
        let left = || deadline.saturating_duration_since(Instant::now());
        if let Some(server) = self.server.lock().expect("no panic while the lock is held").take() {
            server.stop();
        }
        self.stop_files();
        let keeper = self.keeper.lock().expect("no panic while the lock is held").take();
        keeper.iter().for_each(ImageKeeper::stop);
        if let Some(exits) = self.exits.lock().expect("no panic while the lock is held").take() {
            exits.stop();
        }
        self.shared.runtime.interrupt();
        self.shared.pleg.cache().close();
        // the loop's end closes the results' channels, so no probe worker waits in a send
        self.stop.lock().expect("no panic while the lock is held").clear();
        // whoever waits for a change looks whether it is to end
        self.shared.statuses.changes().changed();
        let mut late = Vec::new();
        late.extend(self.shared.workers.shutdown(left()).into_iter().map(|uid| format!("the worker of pod {uid}")));
        let probes = self.shared.prober.manager.shutdown(left().min(PROBES_LIMIT));
        if probes > 0 {
            // They hold nothing and change nothing any more: the end of the process is theirs.
            log::info!("{probes} probes still wait for an answer; they are given up");
        }
        // one that unpacks a large layer may be cut off: the next daemon loads it again
        keeper.map(|k| k.join(left()));
        for (name, thread) in self.threads.lock().expect("no panic while the lock is held").drain(..) {
            while !thread.is_finished() && !left().is_zero() {
                std::thread::park_timeout(Duration::from_millis(2));
            }
            if !thread.is_finished() {
                late.push(format!("the {name}"));
            }
        }
        if late.is_empty() { Ok(()) } else { Err(format!("{} did not end within {limit:?}", late.join(", "))) }
    }

    /// Stops and removes every pod, as if every file had gone.
    ///
    /// # Errors
    /// Names the pods of which something is left after `limit`.
    pub fn remove_all_pods(&self, limit: Duration) -> Result<(), String> {
        let deadline = Instant::now() + limit;
        self.stop_files();
        for update in self.shared.config.merge(Source::File, Vec::new(), std::time::SystemTime::now()).updates {
            self.updates.send_timeout(update, limit).map_err(|e| format!("cannot remove the pods: {e}"))?;
        }
        loop {
            let version = self.shared.notifier.version();
            let left = self.shared.runtime.list_pods().map_err(|e| e.message)?;
            if left.is_empty() && self.shared.workers.working().is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let names: Vec<_> = left.iter().map(|p| format!("{}_{}", p.name, p.namespace)).collect();
                return Err(format!("not removed within {limit:?}: {}", names.join(", ")));
            }
            self.shared.notifier.wait_newer(version, Duration::from_millis(50));
        }
    }

    fn stop_files(&self) {
        if let Some(files) = self.files.lock().expect("no panic while the lock is held").take() {
            files.stop();
            files.join();
        }
    }
}

fn spawn(name: &'static str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, DaemonError> {
    std::thread::Builder::new().name(name.into()).spawn(run).map_err(cannot(format!("start the thread {name}")))
}

fn handled_signals() -> SigSet {
    SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP])
}

/// Before the first thread, so that none of them takes a signal meant for [`Daemon::wait_for_signal`].
fn block_signals() {
    if let Err(e) = handled_signals().thread_block() {
        log::warn!("cannot block signals: {e}; a signal ends the daemon at once");
    }
}

/// Makes the directories and takes the lock.
fn prepare_root(layout: &Layout) -> Result<Flock<File>, DaemonError> {
    for dir in [layout.run_dir(), layout.lib_dir(), layout.logs_dir()] {
        fs::create_dir_all(&dir).map_err(cannot(format!("create {}", dir.display())))?;
    }
    let path = layout.lock();
    let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(cannot(format!("open {}", path.display())))?;
    take_lock(file, LOCK_PATIENCE).ok_or_else(|| {
        let root = layout.root().display();
        DaemonError(format!("another podprobe daemon already runs with root {root}; stop it, or give this one another --root"))
    })
}

/// A daemon that was killed is not gone at once: the kernel tears it down, and what it was just starting ends after it.
fn take_lock(mut file: File, patience: Duration) -> Option<Flock<File>> {
    let deadline = Instant::now() + patience;
    loop {
        file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Some(lock),
            Err(_) if Instant::now() >= deadline => return None,
            Err((file, _)) => file,
        };
        std::thread::sleep(LOCK_STEP);
    }
}

fn decoder(node_name: String) -> crate::pod_config::files::Decode {
    Arc::new(move |bytes: &[u8], path: &Path| {
        let decoded = decode::static_pods(bytes, &StaticSource { node_name: &node_name, path }).map_err(|e| e.to_string())?;
        Ok(decoded.into_iter().map(|d| (d.pod, d.warnings)).collect())
    })
}

fn restored_readiness(statuses: &HashMap<PodUid, PodStatus>) -> HashMap<ContainerId, RestoredReady> {
    let all = statuses.values().flat_map(|s| s.container_statuses.iter().chain(&s.init_container_statuses));
    let running = all.filter(|c| c.state.running.is_some());
    running.map(|c| (c.container_id.as_str().into(), RestoredReady { ready: c.ready, started: c.started == Some(true) })).collect()
}

/// Pods that wait for an image are synced as soon as names in the store change.
fn image_keeper_config(shared: &Arc<Shared>, store: ImageStore) -> ImageKeeperConfig {
    let (layout, of) = (shared.layout.clone(), shared.clone());
    ImageKeeperConfig {
        store,
        drop_dir: shared.layout.image_drop(),
        in_use: Arc::new(move |id| ImagesInUse::read(&layout).contains(id)),
        on_change: Box::new(move || of.sync_pods_without_image()),
    }
}

type Updates = crossbeam_channel::Receiver<results::Update>;

/// The three caches, and their channels in the order liveness, readiness, startup.
fn results_managers() -> (manager::Results, [Updates; 3]) {
    let make = || {
        let (send, receive) = bounded(results::UPDATES_CAPACITY);
        (Arc::new(results::Manager::new(send)), receive)
    };
    let ((liveness, a), (readiness, b), (startup, c)) = (make(), make(), make());
    (manager::Results { startup, readiness, liveness }, [a, b, c])
}

/// What probe workers see.
struct Seen {
    statuses: Arc<StatusManager>,
    cache: Arc<Cache>,
}

impl StatusSource for Seen {
    fn pod_status(&self, uid: &PodUid) -> Option<Arc<PodStatus>> {
        self.statuses.get(uid)
    }

    fn started_moment(&self, uid: &PodUid, id: &ContainerId) -> Option<Moment> {
        self.cache.get(uid).containers.iter().find(|c| c.id == *id).and_then(|c| c.started)
    }
}

/// PLEG as the sync loop and the syncer see it.
struct RuntimeCache(Arc<Pleg>);

impl RuntimeView for RuntimeCache {
    fn pods(&self) -> Vec<Arc<RuntimePodStatus>> {
        self.0.cache().all()
    }

    fn pod(&self, uid: &PodUid) -> Arc<RuntimePodStatus> {
        self.0.cache().get(uid)
    }

    fn health(&self) -> Result<(), String> {
        self.0.health(Moment::now()).map_err(|e| format!("PLEG is not healthy: {e}"))
    }
}

impl PodCache for RuntimeCache {
    fn newer_than(&self, uid: &PodUid, since: Moment) -> Result<Arc<RuntimePodStatus>, String> {
        self.0.cache().get_newer_than(uid, since, Duration::ZERO).or_else(|_| {
            // not for the next full relist: a pod just acted on is looked at by itself
            self.0.request(uid);
            self.0.cache().get_newer_than(uid, since, STATUS_CEILING).map_err(|e| e.to_string())
        })
    }

    fn request_relist(&self, uid: &PodUid) {
        self.0.request(uid);
    }
}

/// The probe manager as the sync loop and the syncer see it.
struct Prober {
    manager: ProberManager,
    results: manager::Results,
}

impl ProbeHousekeeping for Prober {
    fn clean_up(&self, alive: &std::collections::HashSet<PodUid>) {
        self.manager.clean_up(alive);
    }

    fn reap(&self) {
        self.manager.reap();
    }
}

impl Probes for Prober {
    fn add_pod(&self, pod: &Arc<Pod>) {
        self.manager.add_pod(pod);
    }

    fn stop_liveness_and_startup(&self, pod: &Pod) {
        self.manager.stop_liveness_and_startup(pod);
    }

    fn remove_pod(&self, pod: &Pod) {
        self.manager.remove_pod(pod);
    }

    fn update_pod_status(&self, pod: &Pod, status: &mut PodStatus) {
        self.manager.update_pod_status(pod, status);
    }

    fn killing(&self, pod: &Pod, kill: &ToKill) {
        self.manager.history().killing(pod.uid(), kill);
    }

    fn renewing(&self, pod: &Pod, container: &str, cause: &str) {
        self.manager.history().renewing(pod.uid(), container, cause);
    }

    fn restarted(&self, pod: &Pod, container: &str, attempt: u32, before: Option<&RuntimeContainerStatus>) {
        self.manager.history().restarted(pod.uid(), container, attempt, before, Time::now());
    }

    fn liveness(&self, id: &ContainerId) -> Option<ProbeResult> {
        self.results.liveness.get(id)
    }

    fn startup(&self, id: &ContainerId) -> Option<ProbeResult> {
        self.results.startup.get(id)
    }
}

impl Backend for Shared {
    fn snapshot(&self) -> Arc<Snapshot> {
        let version = self.notifier.version();
        // in this order: a pod that is being removed is told to end before it leaves the manager
        let mut pods = self.pods.all();
        let working = self.workers.working();
        let ending = |uid: &PodUid| working.iter().any(|(pod, removed)| *removed && pod.uid() == uid);
        pods.extend(working.iter().filter(|(_, removed)| *removed).map(|(pod, _)| pod.clone()));
        pods.sort_by(|a, b| (&a.metadata.namespace, &a.metadata.name, a.uid()).cmp(&(&b.metadata.namespace, &b.metadata.name, b.uid())));
        pods.dedup_by(|a, b| a.uid() == b.uid());
        let events = self.recorder.list();
        let view = |pod: &Arc<Pod>| self.view(pod, ending(pod.uid()), &events);
        Arc::new(Snapshot {
            version,
            node_name: self.node_name.clone(),
            pods: pods.iter().map(view).collect(),
            problems: self.states.problems(),
            stalled: self.heartbeat.stalled(self.started, Moment::now()),
        })
    }

    fn wait_newer(&self, version: u64, ceiling: Duration) -> Arc<Snapshot> {
        self.notifier.wait_newer(version, ceiling);
        self.snapshot()
    }

    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").into()
    }

    fn events(&self, after: Option<u64>, ceiling: Duration) -> EventList {
        let version = after.map_or_else(|| self.notifier.version(), |after| self.notifier.wait_newer(after, ceiling));
        EventList { version, node_name: self.node_name.clone(), events: self.recorder.list() }
    }

    fn history(&self, uid: &PodUid) -> PodHistory {
        self.prober.manager.history().get(uid)
    }

    fn probe(&self, target: &ProbeTarget) -> Result<ProbeReport, String> {
        self.prober.manager.probe_now(&*self.pod(&target.uid)?, &target.container, target.probe_type)
    }

    fn pause(&self, target: &PauseTarget, length: Duration) -> Result<Vec<String>, String> {
        self.pause_probes(target, length)
    }

    fn resume(&self, target: &PauseTarget) -> Result<Vec<String>, String> {
        self.resume_probes(target)
    }

    fn metrics(&self) -> String {
        self.metrics_text()
    }
}

impl Shared {
    fn sync_pods_without_image(&self) {
        let waits =
            |c: &ContainerStatus| c.state.waiting.as_ref().is_some_and(|w| w.reason == StartErrorReason::ErrImageNeverPull.as_str());
        for pod in self.pods.all() {
            let status = self.statuses.get(pod.uid());
            if status.is_some_and(|s| s.container_statuses.iter().any(waits)) {
                self.workers.update(Update {
                    kind: UpdateKind::Sync,
                    pod,
                    runtime_only: false,
                    phase_is_terminal: false,
                    is_running: true,
                });
            }
        }
    }

    /// What is written in the file and not acted on is said.
    fn outdated_probes(&self, pod: &Pod) -> Vec<String> {
        let place = |list: &[Container], name: &str| list.iter().position(|c| c.name == name);
        let path = |name: &str| match place(&pod.spec.containers, name) {
            Some(at) => format!("spec.containers[{at}]"),
            None => format!("spec.initContainers[{}]", place(&pod.spec.init_containers, name).unwrap_or_default()),
        };
        let why = "changed, and not acted on: the file gives the pod a uid, so it stays the same pod and keeps the probe it began with";
        let each = |(name, probe_type): (String, _)| format!("{}.{}: {why}", path(&name), probe_field(probe_type));
        self.prober.manager.outdated(pod).into_iter().map(each).collect()
    }

    fn view(&self, pod: &Pod, terminating: bool, events: &[crate::events::Event]) -> PodView {
        let status = self.statuses.get(pod.uid()).map(|s| PodStatus::clone(&s)).unwrap_or_default();
        let mut object = pod.raw.clone();
        object["status"] = serde_json::to_value(&status).unwrap_or_default();
        let file = self.states.get(pod.uid()).unwrap_or_default();
        PodView {
            object,
            status,
            file: file.file,
            warnings: file.warnings.into_iter().chain(self.outdated_probes(pod)).collect(),
            file_error: file.file_error,
            terminating,
            log_dir: self.layout.pod_logs(&pod.metadata.namespace, &pod.metadata.name, pod.uid()).display().to_string(),
            paused: self.prober.manager.pauses().of(pod.uid(), Moment::now()),
            events: events.iter().filter(|e| e.uid == pod.uid().as_str()).cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_of_a_daemon_that_is_just_ending_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let old = take_lock(open_at(dir.path()), Duration::ZERO).unwrap();
        assert!(take_lock(open_at(dir.path()), Duration::ZERO).is_none());
        let (waits, waiting) = bounded(0);
        let new = std::thread::spawn(move || {
            waits.send(()).unwrap();
            take_lock(open_at(dir.path()), Duration::from_secs(60)).is_some()
        });
        waiting.recv().unwrap();
        drop(old);
        assert!(new.join().unwrap());
    }

    /// Lessons F3.
    #[test]
    fn f3_a_snapshot_says_that_the_sync_loop_stands_still() {
        if !nix::unistd::geteuid().is_root() {
            assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "CI runs as root");
            return eprintln!("SKIPPED: needs root to start a daemon");
        }
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        let settings = Settings { static_pod_path: layout.pods_dir(), ..Settings::default() };
        let daemon = Daemon::start(settings, layout).unwrap();
        let stalled = || daemon.backend().snapshot().stalled.clone();
        assert_eq!(stalled(), None);
        daemon.stop.lock().unwrap().clear();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !daemon.threads.lock().unwrap()[0].1.is_finished() {
            assert!(Instant::now() < deadline, "the sync loop does not end");
            std::thread::yield_now();
        }
        // long ago, unless the machine has only just been started
        let at = Moment::from_boot(Duration::from_nanos(1));
        daemon.shared.heartbeat.turned(at);
        assert_eq!(stalled().is_some(), Moment::now().since(at) > Duration::from_secs(120));
        daemon.shutdown(Duration::from_secs(60)).unwrap();
    }

    fn open_at(dir: &Path) -> File {
        File::create(dir.join("lock")).unwrap()
    }
}
