//! How the daemon is put together: [`start`] makes the parts, as the kubelet's `NewMainKubelet` does, and then starts the
//! threads, as its `Run` does. Each other function makes or starts one part, and takes what that part needs.
//!
//! PLEG's thread alone starts before all parts are made, because the sync loop wants its first listing.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::adapters::{Prober, RuntimeCache, Seen, ServiceInputs, ServiceLinks, Withdrawal};
use super::backend::DaemonBackend;
use super::counted::Counted;
use super::error::{DaemonError, cannot};
use super::garbage::Garbage;
use super::last_daemon::LastDaemon;
use super::pauses;
use super::threads::Threads;
use crate::api::objects::ObjectKind;
use crate::api::service::Protocol;
use crate::api::sysctls::SysctlAllowlist;
use crate::api::{PodOrigin, PodSource, PodUid, decode};
use crate::base::change_feed::{Aspect, ChangeFeed};
use crate::base::clock::Moment;
use crate::base::paths::Layout;
use crate::base::remove_tree::remove_tree;
use crate::base::threads::Roster;
use crate::daemon::settings::Settings;
use crate::engine::images::ImageStore;
use crate::engine::images::housekeeping::{ImageKeeper, ImageKeeperConfig};
use crate::engine::images::manager::{ImageManager, ImageService, NoRegistry, Puller};
use crate::engine::images::registry::{PullStop, RegistryPuller};
use crate::engine::runtime::metered::Metered;
use crate::engine::runtime::{ContainerId, Runtime};
use crate::engine::shims;
use crate::engine::shims::app_armor::load::{self, Loaded};
use crate::engine::shims::app_armor::{AppArmor, RUNTIME_DEFAULT};
use crate::engine::shims::exits::ExitListener;
use crate::engine::stats::{self, Stats};
use crate::face::server::{self, CredentialFiles, Server, ServerConfig};
use crate::face::views::Records;
use crate::face::views::history::NODE_RESTARTED;
use crate::net::network::{self, NetworkKind, Networks};
use crate::net::proxy::auto::{self, Auto};
use crate::net::proxy::gate::TrafficGate;
use crate::net::proxy::health::{self, Health};
use crate::net::proxy::known::KnownServices;
use crate::net::proxy::metrics::ProxyMetrics;
use crate::net::proxy::names::NameSettings;
use crate::net::proxy::userspace::ProxyRole;
use crate::net::proxy::watch::{self, Removal, ServicesView};
use crate::net::services::claims::OwnPort;
use crate::pods::admission;
use crate::pods::checkpoint::{self, Checkpoint, Restored};
use crate::pods::container_config::{NodeFacts, huge_pages, kernel_version};
use crate::pods::events::Recorder;
use crate::pods::eviction::{self, Evictions};
use crate::pods::kuberuntime::KubeRuntime;
use crate::pods::lifecycle::HandlerRunner;
use crate::pods::manager::PodManager;
use crate::pods::objects::Objects;
use crate::pods::pleg::{self, Pleg, PodLifecycleEvent};
use crate::pods::prober::manager::{self, ProberManager, RestoredReady};
use crate::pods::prober::results;
use crate::pods::sources::file::{FileSource, FileSourceConfig};
use crate::pods::sources::files::Decode;
use crate::pods::sources::http::{HttpSource, HttpSourceConfig};
use crate::pods::sources::merge::UPDATES_CAPACITY;
use crate::pods::sources::{FileStates, Outlet, PodConfig, PodUpdate};
use crate::pods::status::{DELETED, EVICTED, StatusManager, conditions_of_others};
use crate::pods::sync_loop::{Channels, Heartbeat, Parts, SyncLoop};
use crate::pods::volumes::Volumes;
use crate::pods::workers::{self, PodMetrics, PodWorkers, Restarts, Syncer};

/// The time between two looks at a small volume with a limit.
const VOLUME_INTERVAL: Duration = Duration::from_secs(1);
/// The first listing is waited for this long at the start.
const FIRST_LISTING: Duration = Duration::from_secs(1);

/// What runs containers, and what they are made of.
pub(super) struct Engine {
    pub(super) runtime: Arc<dyn Runtime>,
    /// The networks of its sandboxes, and the ids of those that there are.
    pub(super) networks: (Arc<Networks>, Vec<String>),
    /// Where containers get their images.
    pub(super) images: Arc<dyn ImageService>,
    /// The store that is kept in order.
    pub(super) store: ImageStore,
}

/// What a daemon is asked for while its threads run.
pub(super) struct Running {
    pub(super) backend: Arc<DaemonBackend>,
    pub(super) runtime: Arc<dyn Runtime>,
    /// Where pods come from.
    pub(super) sources: Vec<PodSource>,
    /// Where pod sources send to the sync loop.
    pub(super) updates: Sender<PodUpdate>,
    /// Takes back what sends clients to services.
    pub(super) removal: Arc<Removal>,
    /// Where the process is that does, if any.
    pub(super) proxy: PathBuf,
    /// The cgroup of all pods, absolute in each hierarchy.
    pub(super) cgroup: String,
}

/// Makes every part and starts every thread.
pub(super) fn start(
    settings: &Settings,
    layout: &Layout,
    mut engine: Engine,
) -> Result<(Running, Threads), DaemonError> {
    let started = Moment::now();
    // Before the first container of an earlier daemon is looked at: one that waits for the profile starts at once.
    load_app_armor_profile(settings);
    let counted = Counted::default();
    engine.runtime = Arc::new(Metered::new(engine.runtime, counted.operations.clone()));
    let mut restored = checkpoint::read(&layout.checkpoint());
    let last = LastDaemon::new(&restored);
    let (pod_evicted, evicted) = bounded(1);
    let (room_made, room) = bounded(1);
    let pods_with_data = KubeRuntime::pods_with_data(layout);
    KubeRuntime::sweep_log_links(layout);
    let restarts = Arc::<Restarts>::default();
    let evictions = evictions(settings, layout, &pods_with_data, pod_evicted);
    forget_those_that_began_anew(&mut restored, &evictions);
    let (objects_changed, objects) = bounded(1);
    let networks = engine.networks.0.clone();
    let health = Health::new().map_err(cannot("make the health checks of services"))?;
    let sources = sources(settings);
    let shared = (networks, health);
    let stores = Stores::new(restored, started, objects_changed, &sources, shared);
    let facts = NodeFacts::read(settings.node_ip, &layout.lib_dir());
    let node = node(settings, &facts);
    let (kuberuntime, pulls) = kuberuntime(settings, &engine, layout, &stores, facts);
    let kuberuntime = Arc::new(kuberuntime);
    let StartedPleg {
        pleg,
        lifecycle,
        stop: stop_pleg,
    } = start_pleg(engine.runtime.clone())?;
    let (results, result_updates) = results_managers();
    let prober = Arc::new(Prober {
        manager: prober_manager(settings, &stores, &engine, &pleg, &results, last.readiness),
        results,
        records: stores.records.clone(),
    });
    prober.manager.pauses().open(layout.pauses());
    for (uid, container) in last.ended_with_the_node {
        let history = &stores.records.history;
        history.renewing(&uid, &container, NODE_RESTARTED);
    }
    let hooks = hooks(settings, &stores, &engine);
    let syncer = Arc::new(syncer(
        settings,
        &stores,
        kuberuntime.clone(),
        hooks,
        &pleg,
        &prober,
        (evictions.clone(), restarts.clone(), counted.pods.clone()),
    ));
    let workers = Arc::new(PodWorkers::new(
        syncer.clone(),
        settings.sync_frequency,
        room_made,
    ));
    let backend = backend(
        settings,
        layout,
        &stores,
        &pleg,
        &prober,
        &workers,
        Asked {
            kuberuntime: kuberuntime.clone(),
            evictions: evictions.clone(),
            restarts,
            counted: counted.clone(),
            store: engine.store.clone(),
            node: node.clone(),
        },
    );
    let backend = Arc::new(backend);
    let (channels, senders) = channels(lifecycle, result_updates, [objects, evicted, room]);
    let parts = Parts {
        node,
        huge_pages,
        pods: stores.pods.clone(),
        workers: workers.clone(),
        statuses: stores.statuses.clone(),
        config: stores.config.clone(),
        objects: stores.objects.clone(),
        evictions: evictions.clone(),
        runtime: Arc::new(RuntimeCache(pleg.clone())),
        probes: prober.clone(),
        recorder: stores.recorder.clone(),
        metrics: counted.sync_loop,
        garbage: Box::new(garbage(
            &stores,
            syncer,
            workers,
            &prober,
            evictions.clone(),
        )),
        pods_with_data,
        places: RefCell::default(),
        has_forgotten: Default::default(),
    };

    let sync_loop = start_sync_loop(channels, parts, backend.heartbeat.clone())?;
    let updates = senders.updates;
    let roster = &*backend.roster;
    let removal = Arc::<Removal>::default();
    let threads = Threads {
        sync_loop: (sync_loop, senders.stop),
        checkpoint: start_checkpoint(backend.checkpoint.clone(), prober, roster)?,
        files: start_file_source(settings, layout, stores.outlet(&updates), last.pods, roster)?,
        url: start_http_source(settings, layout, stores.outlet(&updates), roster)?,
        exits: start_exit_listener(layout, pleg.clone(), roster)?,
        images: start_image_keeper(
            settings,
            layout,
            engine.store,
            senders.images_changed,
            roster,
        )?,
        volumes: start_volume_watch(&stores, kuberuntime, evictions, roster)?,
        services: start_services(
            settings,
            layout,
            &stores,
            &engine.networks.0,
            (engine.runtime.clone(), removal.clone()),
            roster,
        )?,
        network: start_network_watch(engine.networks, roster)?,
        health: start_health(settings, &stores, roster)?,
        // The last, so that what the others clear away is not there when clients are answered.
        server: start_server(settings, layout, backend.clone())?,
        pulls,
        pleg: (pleg, stop_pleg),
    };
    let running = Running {
        sources,
        backend,
        runtime: engine.runtime,
        updates,
        removal,
        proxy: layout.proxy_dir(),
        cgroup: layout.cgroup(),
    };
    Ok((running, threads))
}

/// Those that the configuration names.
pub(super) fn sources(settings: &Settings) -> Vec<PodSource> {
    let url = settings.static_pod_url.as_ref();
    let url = url.map(|_| PodSource::Http);
    [PodSource::File].into_iter().chain(url).collect()
}

/// The daemon goes on without it: pods that need no profile run, and the others say what they wait for.
fn load_app_armor_profile(settings: &Settings) {
    let (allowed, parser) = (settings.load_app_armor_profile, load::parser());
    let kernel = AppArmor::of_the_kernel();
    match load::load(allowed, &kernel, parser.as_deref(), load::LIMIT) {
        Ok(Loaded::NotAllowed) => {}
        Ok(Loaded::NoAppArmor) => {
            log::info!(
                "loadAppArmorProfile: the kernel enforces no AppArmor profiles; none is loaded"
            );
        }
        Ok(Loaded::Replaced) => log::info!("the AppArmor profile {RUNTIME_DEFAULT} is loaded"),
        Err(why) => log::warn!("{why}"),
    }
}

// ---- the parts ----

/// What is known of pods, files and probes: many parts write to it, and more read it.
struct Stores {
    feed: Arc<ChangeFeed>,
    recorder: Arc<Recorder>,
    pods: Arc<PodManager>,
    statuses: Arc<StatusManager>,
    config: Arc<PodConfig>,
    objects: Arc<Objects>,
    files: Arc<FileStates>,
    records: Arc<Records>,
    /// The services as they are, and who waits for them.
    services: Arc<ServicesView>,
    gate: Arc<TrafficGate>,
    networks: Arc<Networks>,
    known: Arc<KnownServices>,
    health: Arc<Health>,
    proxy_metrics: Arc<ProxyMetrics>,
    /// Statuses of an earlier daemon are there.
    restored: bool,
    /// When the daemon started.
    started: Moment,
}

impl Stores {
    /// A change of objects that the sync loop has not taken yet stands for those that follow.
    fn new(
        restored: Restored,
        started: Moment,
        objects_changed: Sender<()>,
        sources: &[PodSource],
        (networks, health): (Arc<Networks>, Health),
    ) -> Self {
        let feed = Arc::new(ChangeFeed::default());
        let has_statuses = !restored.statuses.is_empty();
        let statuses = StatusManager::new(restored.statuses, feed.clone());
        let changed = feed.clone();
        let files = FileStates::new(move |uids| {
            for uid in uids {
                changed.tell(uid, Aspect::File);
            }
            changed.tell_files();
        });
        Self {
            recorder: Arc::new(Recorder::new(feed.clone())),
            pods: Arc::new(PodManager::new(feed.clone())),
            statuses: Arc::new(statuses.with_ages(restored.ages)),
            config: Arc::new(PodConfig::new(sources)),
            objects: Arc::new(Objects::new(move || _ = objects_changed.try_send(()))),
            files: Arc::new(files),
            records: Arc::default(),
            services: Arc::default(),
            gate: Arc::default(),
            networks,
            known: Arc::default(),
            health: Arc::new(health),
            proxy_metrics: Arc::default(),
            restored: has_statuses,
            started,
            feed,
        }
    }

    fn outlet(&self, updates: &Sender<PodUpdate>) -> Outlet {
        Outlet {
            config: self.config.clone(),
            objects: self.objects.clone(),
            updates: updates.clone(),
            states: self.files.clone(),
            events: self.recorder.clone(),
        }
    }
}

fn evictions(
    settings: &Settings,
    layout: &Layout,
    pods: &[PodUid],
    wake: Sender<()>,
) -> Arc<Evictions> {
    let ceiling = settings.max_container_restart_period;
    Arc::new(Evictions::open(layout, pods, ceiling, wake))
}

/// The checkpoint may still say that a pod is evicted or deleted which has started anew, or may do so now.
pub(super) fn forget_those_that_began_anew(restored: &mut Restored, evictions: &Evictions) {
    let now = Moment::now();
    restored.statuses.retain(|uid, status| {
        let was_ended = [EVICTED, DELETED].contains(&status.reason.as_str());
        if !was_ended || evictions.is_evicted(uid, now) {
            return true;
        }
        // What clients have said of the pod goes on.
        let kept = conditions_of_others(status);
        kept.map(|kept| *status = kept).is_some()
    });
}

/// Also what ends the pulls of images.
fn kuberuntime(
    settings: &Settings,
    engine: &Engine,
    layout: &Layout,
    stores: &Stores,
    node: NodeFacts,
) -> (KubeRuntime, PullStop) {
    let registries = settings.registries.clone();
    let puller = RegistryPuller::new(engine.store.clone(), registries, layout.docker_configs());
    let stop = puller.stopper();
    let puller: Box<dyn Puller> = match settings.registries.pull {
        true => Box::new(puller),
        false => Box::new(NoRegistry),
    };
    let images = ImageManager::new(engine.images.clone(), puller);
    let images = images.parallel(settings.parallel_image_pulls());
    let runtime = engine.runtime.clone();
    let objects = stores.objects.clone();
    let volumes = Volumes::new();
    let kuberuntime = KubeRuntime::new(runtime, images, volumes, objects, node, layout.clone());
    let links = ServiceLinks {
        known: stores.known.clone(),
        objects: stores.objects.clone(),
        started: stores.started,
    };
    let kuberuntime = kuberuntime.with_services(Box::new(links));
    let kuberuntime = kuberuntime.with_resource_policy(settings.resource_policy());
    (kuberuntime.with_dns(settings.node_dns()), stop)
}

fn prober_manager(
    settings: &Settings,
    stores: &Stores,
    engine: &Engine,
    pleg: &Pleg,
    results: &manager::Results,
    restored: HashMap<ContainerId, RestoredReady>,
) -> ProberManager {
    ProberManager::new(manager::Deps {
        statuses: Arc::new(Seen {
            statuses: stores.statuses.clone(),
            cache: pleg.cache().clone(),
        }),
        runtime: engine.runtime.clone(),
        results: results.clone(),
        recorder: stores.recorder.clone(),
        started: stores.started,
        allow_probe_hosts: settings.allow_probe_hosts.clone(),
        restored,
        records: stores.records.clone(),
    })
}

fn hooks(settings: &Settings, stores: &Stores, engine: &Engine) -> HandlerRunner {
    HandlerRunner {
        runtime: engine.runtime.clone(),
        recorder: stores.recorder.clone(),
        node_ip: settings.node_ip,
        allow_probe_hosts: settings.allow_probe_hosts.clone(),
    }
}

fn syncer(
    settings: &Settings,
    stores: &Stores,
    kuberuntime: Arc<KubeRuntime>,
    hooks: HandlerRunner,
    pleg: &Arc<Pleg>,
    prober: &Arc<Prober>,
    (evictions, restarts, metrics): (Arc<Evictions>, Arc<Restarts>, Arc<PodMetrics>),
) -> Syncer {
    Syncer::new(workers::Deps {
        kuberuntime,
        hooks: Arc::new(hooks),
        cache: Arc::new(RuntimeCache(pleg.clone())),
        probes: prober.clone(),
        statuses: stores.statuses.clone(),
        traffic: Arc::new(Withdrawal {
            gate: stores.gate.clone(),
            feed: stores.feed.clone(),
        }),
        evictions,
        restarts,
        recorder: stores.recorder.clone(),
        metrics,
        node_ip: settings.node_ip,
        max_back_off: settings.max_container_restart_period,
    })
}

/// Parts that clients are told of and nobody else shares.
struct Asked {
    kuberuntime: Arc<KubeRuntime>,
    evictions: Arc<Evictions>,
    restarts: Arc<Restarts>,
    counted: Counted,
    store: ImageStore,
    node: admission::Node,
}

fn backend(
    settings: &Settings,
    layout: &Layout,
    stores: &Stores,
    pleg: &Arc<Pleg>,
    prober: &Arc<Prober>,
    workers: &Arc<PodWorkers>,
    asked: Asked,
) -> DaemonBackend {
    let checkpoint = Checkpoint::new(layout.checkpoint(), stores.statuses.clone());
    DaemonBackend {
        checkpoint: Arc::new(checkpoint),
        settings: settings.clone(),
        layout: layout.clone(),
        node_name: settings.node_name.clone(),
        feed: stores.feed.clone(),
        recorder: stores.recorder.clone(),
        pods: stores.pods.clone(),
        workers: workers.clone(),
        statuses: stores.statuses.clone(),
        files: stores.files.clone(),
        config: stores.config.clone(),
        prober: prober.clone(),
        pleg: pleg.clone(),
        kuberuntime: asked.kuberuntime,
        heartbeat: Arc::default(),
        roster: Arc::default(),
        services: stores.services.clone(),
        objects: stores.objects.clone(),
        networks: stores.networks.clone(),
        health: stores.health.clone(),
        proxy_metrics: stores.proxy_metrics.clone(),
        counted: asked.counted,
        evictions: asked.evictions,
        restarts: asked.restarts,
        store: asked.store,
        stats: Stats::new(stats::Reader::new(layout.clone())),
        node_ip: settings.node_ip,
        node: asked.node,
        started: stores.started,
    }
}

fn garbage(
    stores: &Stores,
    syncer: Arc<Syncer>,
    workers: Arc<PodWorkers>,
    prober: &Arc<Prober>,
    evictions: Arc<Evictions>,
) -> Garbage {
    Garbage {
        syncer,
        evictions,
        pods: stores.pods.clone(),
        workers,
        prober: prober.clone(),
        recorder: stores.recorder.clone(),
        feed: stores.feed.clone(),
    }
}

/// The ends at which other parts write to the sync loop.
struct Senders {
    updates: Sender<PodUpdate>,
    images_changed: Sender<()>,
    /// Dropping it ends the loop.
    stop: Sender<()>,
}

fn channels(
    lifecycle: Receiver<PodLifecycleEvent>,
    [liveness, readiness, startup]: [ResultUpdates; 3],
    [objects, evictions, room]: [Receiver<()>; 3],
) -> (Channels, Senders) {
    let (updates, config) = bounded(UPDATES_CAPACITY);
    let (images_changed, images) = bounded(1);
    let (stop, stopped) = bounded(0);
    let channels = Channels {
        config,
        pleg: lifecycle,
        liveness,
        readiness,
        startup,
        images,
        objects,
        evictions,
        room,
        stop: stopped,
    };
    let senders = Senders {
        updates,
        images_changed,
        stop,
    };
    (channels, senders)
}

type ResultUpdates = Receiver<results::Update>;

/// The three caches, and their channels in the order liveness, readiness, startup.
fn results_managers() -> (manager::Results, [ResultUpdates; 3]) {
    let make = || {
        let (send, receive) = bounded(results::UPDATES_CAPACITY);
        (Arc::new(results::Manager::new(send)), receive)
    };
    let (liveness, of_liveness) = make();
    let (readiness, of_readiness) = make();
    let (startup, of_startup) = make();
    let results = manager::Results {
        startup,
        readiness,
        liveness,
    };
    (results, [of_liveness, of_readiness, of_startup])
}

/// What pods may ask of this node. An amount that the kernel does not tell is 0.
fn node(settings: &Settings, facts: &NodeFacts) -> admission::Node {
    let name = settings.node_name.clone();
    admission::Node {
        labels: admission::node_labels(&name, &settings.node_labels),
        name,
        cpu_milli: facts.allocatable.milli_cpu,
        memory: facts.allocatable.memory,
        huge_pages: huge_pages(),
        max_pods: settings.max_pods,
        app_armor: AppArmor::of_the_kernel().is_enabled(),
        sysctls: SysctlAllowlist::new(kernel_version(), &settings.allowed_unsafe_sysctls)
            .unwrap_or_default(),
    }
}

// ---- the threads ----

struct StartedPleg {
    pleg: Arc<Pleg>,
    lifecycle: Receiver<PodLifecycleEvent>,
    /// Dropping it ends the thread.
    stop: Sender<()>,
}

/// Starts PLEG and waits for its first listing, so that the sync loop's first look finds the runtime listed. When the
/// listing takes longer, the sync loop rests instead.
fn start_pleg(runtime: Arc<dyn Runtime>) -> Result<StartedPleg, DaemonError> {
    let (events, lifecycle) = bounded(pleg::EVENTS_CAPACITY);
    let (stop, stopped) = bounded(0);
    let pleg = Pleg::spawn(runtime, events, stopped).map_err(cannot("start the relist thread"))?;
    let no_pod = PodUid::default();
    let _ = pleg
        .cache()
        .get_newer_than(&no_pod, Moment::default(), FIRST_LISTING);
    Ok(StartedPleg {
        pleg: Arc::new(pleg),
        lifecycle,
        stop,
    })
}

fn start_sync_loop(
    channels: Channels,
    parts: Parts,
    heartbeat: Arc<Heartbeat>,
) -> Result<JoinHandle<()>, DaemonError> {
    let sync_loop = SyncLoop::new(channels, parts, heartbeat);
    std::thread::Builder::new()
        .name("sync-loop".into())
        .spawn(move || sync_loop.run())
        .map_err(cannot("start the thread sync-loop"))
}

/// Dropping the sender ends the thread.
fn start_checkpoint(
    checkpoint: Arc<Checkpoint>,
    prober: Arc<Prober>,
    roster: &Roster,
) -> Result<(JoinHandle<()>, Sender<()>), DaemonError> {
    let (stop, stopped) = bounded(0);
    let save_pauses = pauses::saver(prober);
    let thread = checkpoint::spawn(checkpoint, stopped, save_pauses, roster)
        .map_err(cannot("start the checkpoint thread"))?;
    Ok((thread, stop))
}

/// Dropping the sender ends the thread.
fn start_volume_watch(
    stores: &Stores,
    kuberuntime: Arc<KubeRuntime>,
    evictions: Arc<Evictions>,
    roster: &Roster,
) -> Result<(JoinHandle<()>, Sender<()>), DaemonError> {
    let (stop, stopped) = bounded(0);
    let watch = eviction::Watch {
        pods: stores.pods.clone(),
        statuses: stores.statuses.clone(),
        evictions,
        recorder: stores.recorder.clone(),
        feed: stores.feed.clone(),
        limited: Box::new(move |pod| kuberuntime.limited_volumes(pod)),
        interval: VOLUME_INTERVAL,
    };
    let thread =
        eviction::spawn(watch, stopped, roster).map_err(cannot("start the thread volumes"))?;
    Ok((thread, stop))
}

fn start_services(
    settings: &Settings,
    layout: &Layout,
    stores: &Stores,
    networks: &Arc<Networks>,
    (runtime, removal): (Arc<dyn Runtime>, Arc<Removal>),
    roster: &Roster,
) -> Result<(JoinHandle<()>, Sender<()>), DaemonError> {
    let (stop, stopped) = bounded(0);
    let feed = stores.feed.clone();
    let woken = feed.clone();
    let kinds = &ObjectKind::OF_SERVICES;
    // The feed says when; what has changed is read as a whole.
    stores.objects.watch(kinds, move || woken.wake());
    let path = Auto::new(auto::Deps {
        mode: settings.proxy_mode,
        loopback_only: networks.kind() == NetworkKind::None,
        id: layout.id(),
        service_cidrs: settings.service_cidrs.clone(),
        role: ProxyRole::new(layout.proxy_dir(), layout.proxy_cgroup()),
    });
    let node = ServiceInputs {
        pods: stores.pods.clone(),
        statuses: stores.statuses.clone(),
        restored: stores.restored,
        objects: stores.objects.clone(),
        config: stores.config.clone(),
        sources: sources(settings),
        runtime,
        networks: networks.clone(),
    };
    let watch = watch::Deps {
        node: Box::new(node),
        feed,
        path: Box::new(path),
        gate: stores.gate.clone(),
        removal,
        known: stores.known.clone(),
        health: stores.health.clone(),
        metrics: stores.proxy_metrics.clone(),
        view: stores.services.clone(),
        record: layout.services(),
        node_name: settings.node_name.clone(),
        own_ports: own_ports(settings),
        pod_cidrs: settings.pod_cidrs.clone(),
        service_cidrs: settings.service_cidrs.clone(),
        names: names(settings),
    };
    let thread =
        watch::spawn(watch, stopped, roster).map_err(cannot("start the thread services"))?;
    Ok((thread, stop))
}

/// None where podprobe answers no names.
fn names(settings: &Settings) -> Option<NameSettings> {
    let addresses = settings.own_dns();
    (!addresses.is_empty()).then(|| NameSettings {
        domain: settings.cluster_domain.clone(),
        addresses,
        resolv_conf: settings.resolv_conf.clone(),
    })
}

/// Where podprobe itself listens: no service may have it.
fn own_ports(settings: &Settings) -> Vec<OwnPort> {
    let own = |at: SocketAddr, what: &str| OwnPort {
        address: Some(at.ip()).filter(|ip| !ip.is_unspecified()),
        port: at.port(),
        protocol: Protocol::Tcp,
        what: what.to_owned(),
    };
    let local = |port: Option<u16>| port.map(|port| (Ipv4Addr::LOCALHOST, port).into());
    let server = server_config(settings);
    let all = [
        (
            settings.healthz_bind_address,
            "the health of services (healthzBindAddress)",
        ),
        (local(server.health), "the daemon's health (healthzPort)"),
        (local(server.read_only), "the server (readOnlyPort)"),
        (server.main.map(|(at, _)| at), "the server (port)"),
    ];
    let taken = all.into_iter().filter_map(|(at, what)| Some((at?, what)));
    taken.map(|(at, what)| own(at, what)).collect()
}

fn start_health(
    settings: &Settings,
    stores: &Stores,
    roster: &Roster,
) -> Result<(JoinHandle<()>, Arc<Health>), DaemonError> {
    let thread = health::spawn(stores.health.clone(), settings.healthz_bind_address, roster);
    let thread = thread.map_err(cannot("start the thread proxy-health"))?;
    Ok((thread, stores.health.clone()))
}

fn start_network_watch(
    (networks, sandboxes): (Arc<Networks>, Vec<String>),
    roster: &Roster,
) -> Result<(JoinHandle<()>, Sender<()>), DaemonError> {
    let (stop, stopped) = bounded(0);
    let thread = network::watch::spawn(networks, sandboxes, stopped, roster)
        .map_err(cannot("start the thread network"))?;
    Ok((thread, stop))
}

fn start_server(
    settings: &Settings,
    layout: &Layout,
    backend: Arc<DaemonBackend>,
) -> Result<Server, DaemonError> {
    server::spawn(&layout.socket(), server_config(settings), backend)
        .map_err(|e| DaemonError(e.to_string()))
}

fn server_config(settings: &Settings) -> ServerConfig {
    let files = || {
        Some(CredentialFiles {
            certificate: settings.tls_cert_file.clone()?,
            key: settings.tls_private_key_file.clone()?,
            client_ca: settings.client_ca_file.clone(),
            token: settings.bearer_token_file.clone(),
        })
    };
    let at = |port: u16| SocketAddr::new(settings.address, port);
    ServerConfig {
        health: settings.healthz_port,
        read_only: settings.read_only_port,
        main: settings.port.map(at).zip(files()),
        debugging: settings.enable_debugging_handlers,
    }
}

fn start_file_source(
    settings: &Settings,
    layout: &Layout,
    outlet: Outlet,
    running: HashSet<PodUid>,
    roster: &Roster,
) -> Result<FileSource, DaemonError> {
    FileSource::spawn(
        FileSourceConfig {
            path: settings.static_pod_path.clone(),
            check_frequency: settings.file_check_frequency,
            last_good: layout.last_good(),
            running,
            decode: decoder(settings.node_name.clone()),
            outlet,
        },
        roster,
    )
    .map_err(cannot("watch the pods directory"))
}

/// None without `staticPodURL`.
fn start_http_source(
    settings: &Settings,
    layout: &Layout,
    outlet: Outlet,
    roster: &Roster,
) -> Result<Option<HttpSource>, DaemonError> {
    let Some(url) = &settings.static_pod_url else {
        // What an earlier daemon has fetched may hold secrets, and nobody reads it any more.
        let _ = remove_tree(&layout.last_good_url());
        return Ok(None);
    };
    let headers = settings.static_pod_url_header.iter();
    let headers =
        headers.flat_map(|(name, values)| values.iter().map(|v| (name.clone(), v.clone())));
    let (node_name, text) = (settings.node_name.clone(), url.to_string());
    let source = HttpSource::spawn(
        HttpSourceConfig {
            url: url.clone(),
            headers: headers.collect(),
            check_frequency: settings.http_check_frequency,
            last_good: layout.last_good_url(),
            decode: Arc::new(move |bytes: &[u8], _: &Path| {
                let (node_name, url) = (&node_name, &text);
                decode::objects(bytes, &PodOrigin::Http { node_name, url })
                    .map_err(|e| e.to_string())
            }),
            outlet,
        },
        roster,
    );
    source.map(Some).map_err(cannot("start the thread pod-url"))
}

fn decoder(node_name: String) -> Decode {
    Arc::new(move |bytes: &[u8], path: &Path| {
        let node_name = &node_name;
        decode::objects(bytes, &PodOrigin::File { node_name, path }).map_err(|e| e.to_string())
    })
}

fn start_exit_listener(
    layout: &Layout,
    pleg: Arc<Pleg>,
    roster: &Roster,
) -> Result<ExitListener, DaemonError> {
    ExitListener::spawn(layout.exits(), move |uid| pleg.request(uid), roster)
        .map_err(cannot("listen for ends"))
}

/// A change of names that the sync loop has not taken yet stands for those that follow.
fn start_image_keeper(
    settings: &Settings,
    layout: &Layout,
    store: ImageStore,
    changed: Sender<()>,
    roster: &Roster,
) -> Result<ImageKeeper, DaemonError> {
    let of_layout = layout.clone();
    ImageKeeper::spawn(
        ImageKeeperConfig {
            store,
            drop_dir: layout.image_drop(),
            in_use: Box::new(move || shims::images_in_use(&of_layout)),
            gc: settings.image_gc(),
            on_change: Box::new(move || _ = changed.try_send(())),
        },
        roster,
    )
    .map_err(cannot("watch the image directory"))
}
