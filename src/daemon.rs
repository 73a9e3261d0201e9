//! The daemon: wires the parts, holds the lock of its root, and ends them in order.

mod adapters;
mod backend;
mod metrics;
mod pauses;

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
use nix::unistd::{SysconfVar, sysconf};

use self::adapters::{Prober, RuntimeCache, Seen};
use crate::admission;
use crate::api::{PodOrigin, PodSource, PodStatus, PodUid, decode};
use crate::change_feed::{Aspect, ChangeFeed};
use crate::checkpoint;
use crate::clock::Moment;
use crate::events::Recorder;
use crate::images::ImageStore;
use crate::images::housekeeping::{ImageKeeper, ImageKeeperConfig};
use crate::images::manager::{ImageManager, NoRegistry};
use crate::kuberuntime::KubeRuntime;
use crate::layout::Layout;
use crate::lifecycle::NoHooks;
use crate::pleg::{self, Pleg};
use crate::pod_config::file::{FileSource, FileSourceConfig};
use crate::pod_config::merge::UPDATES_CAPACITY;
use crate::pod_config::{FileStates, PodConfig, PodUpdate};
use crate::pod_manager::PodManager;
use crate::pod_workers::{Deps, PodWorkers, Syncer};
use crate::prober::manager::{self, ProberManager, RestoredReady};
use crate::prober::results;
use crate::runtime::shims::exits::ExitListener;
use crate::runtime::shims::{self, ShimRuntime};
use crate::runtime::{ContainerId, Runtime};
use crate::server::{self, Backend, Server};
use crate::settings::Settings;
use crate::status::StatusManager;
use crate::sync_loop::{Channels, Heartbeat, Parts, SyncLoop};
use crate::views::Records;
use crate::views::history::NODE_RESTARTED;
use crate::volumes::Volumes;

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
    feed: Arc<ChangeFeed>,
    recorder: Arc<Recorder>,
    pods: Arc<PodManager>,
    workers: Arc<PodWorkers>,
    statuses: Arc<StatusManager>,
    states: Arc<FileStates>,
    config: Arc<PodConfig>,
    runtime: Arc<dyn Runtime>,
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
        let runtime = ShimRuntime::new(&layout, &settings, images.clone())
            .map_err(cannot("set up the runtime"))?;
        let runtime: Arc<dyn Runtime> = Arc::new(runtime);
        runtime.check().map_err(|e| DaemonError(e.to_string()))?;
        Self::wire(settings, layout, lock, runtime, images)
    }

    fn wire(
        settings: Settings,
        layout: Layout,
        lock: Flock<File>,
        runtime: Arc<dyn Runtime>,
        images: ImageStore,
    ) -> Result<Self, DaemonError> {
        let started = Moment::now();
        let feed = Arc::new(ChangeFeed::default());
        let recorder = Arc::new(Recorder::new(feed.clone()));
        let checkpoint::Restored {
            statuses: restored,
            ages,
            rebooted,
        } = checkpoint::read(&layout.checkpoint());
        let readiness = restored_readiness(&restored);
        let ended_with_the_node = if rebooted {
            instances(&restored)
        } else {
            vec![]
        };
        let running = restored.keys().cloned().collect();
        let statuses = Arc::new(StatusManager::new(restored, feed.clone()).with_ages(ages));

        let (pleg_events, from_pleg) = bounded(pleg::EVENTS_CAPACITY);
        let (stop_pleg, pleg_stopped) = bounded(0);
        let kuberuntime = Arc::new(KubeRuntime::new(
            runtime.clone(),
            ImageManager::new(Arc::new(images.clone()), Box::new(NoRegistry)),
            Volumes::new(),
            layout.clone(),
        ));
        let left_behind = Cell::new(kuberuntime.pods_with_data());
        let pleg = Pleg::spawn(runtime.clone(), pleg_events, pleg_stopped)
            .map_err(cannot("start the relist thread"))?;
        let pleg = Arc::new(pleg);
        // so that the sync loop's first look finds the runtime listed; a slow disk makes it rest instead
        let _ = pleg
            .cache()
            .get_newer_than(&PodUid::default(), Moment::default(), FIRST_LISTING);
        let cache = Arc::new(RuntimeCache(pleg.clone()));

        let ((results, from_results), seen) = (
            results_managers(),
            Arc::new(Seen {
                statuses: statuses.clone(),
                cache: pleg.cache().clone(),
            }),
        );
        let records = Arc::<Records>::default();
        let prober = Arc::new(Prober {
            manager: ProberManager::new(manager::Deps {
                statuses: seen,
                runtime: runtime.clone(),
                results: results.clone(),
                recorder: recorder.clone(),
                started,
                allow_probe_hosts: settings.allow_probe_hosts.clone(),
                restored: readiness,
                records: records.clone(),
            }),
            results,
            records,
        });
        prober.manager.pauses().open(layout.pauses());
        for (uid, container) in ended_with_the_node {
            prober
                .records
                .history
                .renewing(&uid, &container, NODE_RESTARTED);
        }
        let syncer = Arc::new(Syncer::new(Deps {
            kuberuntime,
            hooks: Arc::new(NoHooks),
            cache: cache.clone(),
            probes: prober.clone(),
            statuses: statuses.clone(),
            recorder: recorder.clone(),
            node_ip: settings.node_ip,
            max_back_off: settings.max_container_restart_period,
        }));
        let workers = Arc::new(PodWorkers::new(syncer.clone(), settings.sync_frequency));
        let (changed, heartbeat) = (feed.clone(), Arc::new(Heartbeat::default()));
        let shared = Arc::new(Shared {
            node_name: settings.node_name.clone(),
            feed: feed.clone(),
            recorder: recorder.clone(),
            pods: Arc::new(PodManager::new(feed.clone())),
            workers: workers.clone(),
            statuses: statuses.clone(),
            states: Arc::new(FileStates::new(move |uids| {
                for uid in uids {
                    changed.tell(uid, Aspect::File);
                }
                changed.tell_files();
            })),
            config: Arc::new(PodConfig::new(&[PodSource::File])),
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
        let (images_changed, from_images) = bounded(1);
        let [liveness, readiness, startup] = from_results;
        let parts = Parts {
            node: node(&settings),
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
        let channels = Channels {
            config: from_config,
            pleg: from_pleg,
            liveness,
            readiness,
            startup,
            images: from_images,
            stop: loop_stopped,
        };
        let sync_loop = SyncLoop::new(channels, parts, heartbeat);
        let loop_thread = spawn("sync-loop", move || sync_loop.run())?;
        let (stop_checkpoint, checkpoint_stopped) = bounded(0);
        let checkpoint = checkpoint::spawn(
            shared.layout.checkpoint(),
            statuses,
            checkpoint_stopped,
            pauses::saver(prober_for_pauses),
        );
        let checkpoint = checkpoint.map_err(cannot("start the checkpoint thread"))?;
        let server = server::spawn(&shared.layout.socket(), shared.clone())
            .map_err(|e| DaemonError(e.to_string()))?;
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
        let exits = ExitListener::spawn(shared.layout.exits(), move |uid| of.request(uid))
            .map_err(cannot("listen for ends"))?;
        let keeper = ImageKeeper::spawn(image_keeper_config(&shared, images, images_changed))
            .map_err(cannot("watch the image directory"))?;
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
        if let Some(server) = self
            .server
            .lock()
            .expect("no panic while the lock is held")
            .take()
        {
            server.stop();
        }
        self.stop_files();
        let keeper = self
            .keeper
            .lock()
            .expect("no panic while the lock is held")
            .take();
        keeper.iter().for_each(ImageKeeper::stop);
        if let Some(exits) = self
            .exits
            .lock()
            .expect("no panic while the lock is held")
            .take()
        {
            exits.stop();
        }
        self.shared.runtime.interrupt();
        self.shared.pleg.cache().close();
        // the loop's end closes the results' channels, so no probe worker waits in a send
        self.stop
            .lock()
            .expect("no panic while the lock is held")
            .clear();
        // whoever waits for a change looks whether it is to end
        self.shared.feed.wake();
        let mut late = Vec::new();
        late.extend(
            self.shared
                .workers
                .shutdown(left())
                .into_iter()
                .map(|uid| format!("the worker of pod {uid}")),
        );
        let probes = self
            .shared
            .prober
            .manager
            .shutdown(left().min(PROBES_LIMIT));
        if probes > 0 {
            // They hold nothing and change nothing any more: the end of the process is theirs.
            log::info!("{probes} probes still wait for an answer; they are given up");
        }
        // one that unpacks a large layer may be cut off: the next daemon loads it again
        keeper.map(|k| k.join(left()));
        for (name, thread) in self
            .threads
            .lock()
            .expect("no panic while the lock is held")
            .drain(..)
        {
            while !thread.is_finished() && !left().is_zero() {
                std::thread::park_timeout(Duration::from_millis(2));
            }
            if !thread.is_finished() {
                late.push(format!("the {name}"));
            }
        }
        if late.is_empty() {
            Ok(())
        } else {
            Err(format!("{} did not end within {limit:?}", late.join(", ")))
        }
    }

    /// Stops and removes every pod, as if every file had gone.
    ///
    /// # Errors
    /// Names the pods of which something is left after `limit`.
    pub fn remove_all_pods(&self, limit: Duration) -> Result<(), String> {
        let deadline = Instant::now() + limit;
        self.stop_files();
        for update in self
            .shared
            .config
            .merge(PodSource::File, Vec::new(), std::time::SystemTime::now())
            .updates
        {
            self.updates
                .send_timeout(update, limit)
                .map_err(|e| format!("cannot remove the pods: {e}"))?;
        }
        loop {
            let version = self.shared.feed.version();
            let left = self.shared.runtime.list_pods().map_err(|e| e.message)?;
            if left.is_empty() && self.shared.workers.working().is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let names: Vec<_> = left
                    .iter()
                    .map(|p| format!("{}_{}", p.name, p.namespace))
                    .collect();
                return Err(format!(
                    "not removed within {limit:?}: {}",
                    names.join(", ")
                ));
            }
            self.shared
                .feed
                .wait_newer(version, Duration::from_millis(50));
        }
    }

    fn stop_files(&self) {
        if let Some(files) = self
            .files
            .lock()
            .expect("no panic while the lock is held")
            .take()
        {
            files.stop();
            files.join();
        }
    }
}

fn spawn(
    name: &'static str,
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, DaemonError> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn(run)
        .map_err(cannot(format!("start the thread {name}")))
}

/// HUP only where whoever started the daemon has not ignored it, as nohup does.
fn handled_signals() -> SigSet {
    let mut signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
    if !ignores(Signal::SIGHUP) {
        signals.add(Signal::SIGHUP);
    }
    signals
}

/// Whether the signal is ignored; a blocked signal would still be delivered to a thread that waits for it.
fn ignores(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    mask.and_then(|m| u64::from_str_radix(m.trim(), 16).ok())
        .is_some_and(|m| m & (1 << (signal as i32 - 1)) != 0)
}

/// Before the first thread, so that none of them takes a signal meant for [`Daemon::wait_for_signal`].
fn block_signals() {
    if let Err(e) = handled_signals().thread_block() {
        log::warn!("cannot block signals: {e}; a signal ends the daemon at once");
    }
}

/// Makes the directories and takes the lock: on `/var/lib/podprobe` itself, which nobody clears away while the daemon
/// runs, as happens to /run, and which may be read-only.
fn prepare_root(layout: &Layout) -> Result<Flock<File>, DaemonError> {
    for dir in [layout.run_dir(), layout.lib_dir(), layout.logs_dir()] {
        fs::create_dir_all(&dir).map_err(cannot(format!("create {}", dir.display())))?;
    }
    let path = layout.lib_dir();
    let file = File::open(&path).map_err(cannot(format!("open {}", path.display())))?;
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

/// What pods may ask of this node. An amount that the kernel does not tell is 0.
fn node(settings: &Settings) -> admission::Node {
    let of = |variable| sysconf(variable).ok().flatten().unwrap_or(0);
    let name = settings.node_name.clone();
    admission::Node {
        labels: admission::node_labels(&name, &settings.node_labels),
        name,
        cpu_milli: of(SysconfVar::_NPROCESSORS_ONLN) * 1000,
        memory: of(SysconfVar::_PHYS_PAGES) * of(SysconfVar::PAGE_SIZE),
        max_pods: settings.max_pods,
    }
}

fn decoder(node_name: String) -> crate::pod_config::files::Decode {
    Arc::new(move |bytes: &[u8], path: &Path| {
        let decoded = decode::pods(
            bytes,
            &PodOrigin::File {
                node_name: &node_name,
                path,
            },
        )
        .map_err(|e| e.to_string())?;
        Ok(decoded.into_iter().map(|d| (d.pod, d.warnings)).collect())
    })
}

fn restored_readiness(
    statuses: &HashMap<PodUid, PodStatus>,
) -> HashMap<ContainerId, RestoredReady> {
    let all = statuses.values().flat_map(|s| {
        s.container_statuses
            .iter()
            .chain(&s.init_container_statuses)
    });
    let running = all.filter(|c| c.state.running.is_some());
    running
        .map(|c| {
            (
                c.container_id.as_str().into(),
                RestoredReady {
                    ready: c.ready,
                    started: c.started == Some(true),
                },
            )
        })
        .collect()
}

/// A change of names that the sync loop has not taken yet stands for those that follow.
fn image_keeper_config(
    shared: &Arc<Shared>,
    store: ImageStore,
    changed: Sender<()>,
) -> ImageKeeperConfig {
    let layout = shared.layout.clone();
    ImageKeeperConfig {
        store,
        drop_dir: shared.layout.image_drop(),
        in_use: Box::new(move || shims::images_in_use(&layout)),
        on_change: Box::new(move || _ = changed.try_send(())),
    }
}

/// Every container that had an instance.
fn instances(statuses: &HashMap<PodUid, PodStatus>) -> Vec<(PodUid, String)> {
    let of = |status: &PodStatus| {
        let all = status
            .container_statuses
            .iter()
            .chain(&status.init_container_statuses);
        let had_one = all.filter(|c| !c.container_id.is_empty());
        had_one.map(|c| c.name.clone()).collect::<Vec<_>>()
    };
    let each = |(uid, status): (&PodUid, &PodStatus)| {
        let uid = uid.clone();
        of(status).into_iter().map(move |name| (uid.clone(), name))
    };
    statuses.iter().flat_map(each).collect()
}

type Updates = crossbeam_channel::Receiver<results::Update>;

/// The three caches, and their channels in the order liveness, readiness, startup.
fn results_managers() -> (manager::Results, [Updates; 3]) {
    let make = || {
        let (send, receive) = bounded(results::UPDATES_CAPACITY);
        (Arc::new(results::Manager::new(send)), receive)
    };
    let ((liveness, a), (readiness, b), (startup, c)) = (make(), make(), make());
    (
        manager::Results {
            startup,
            readiness,
            liveness,
        },
        [a, b, c],
    )
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
            assert_ne!(
                std::env::var("CI").as_deref(),
                Ok("true"),
                "CI runs as root"
            );
            return eprintln!("SKIPPED: needs root to start a daemon");
        }
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        let settings = Settings {
            static_pod_path: layout.pods_dir(),
            ..Settings::default()
        };
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
        assert_eq!(
            stalled().is_some(),
            Moment::now().since(at) > Duration::from_secs(120)
        );
        daemon.shutdown(Duration::from_secs(60)).unwrap();
    }

    fn open_at(dir: &Path) -> File {
        File::create(dir.join("lock")).unwrap()
    }
}
