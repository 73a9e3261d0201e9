//! Puts the daemon together. [`start`] first makes the parts (parts.rs), as the kubelet's `NewMainKubelet` does. Then
//! [`start`] starts the threads, as the kubelet's `Run` does. Each other function starts one thread from the parts
//! that the thread needs.
//!
//! Only PLEG's thread starts before all parts are made, because the sync loop needs PLEG's first listing.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::adapters::{Prober, ServedServices, ServiceInputs};
use super::backend::DaemonBackend;
use super::error::{DaemonError, cannot};
use super::parts::{Engine, Given, Made, Shared, WakeUps};
use super::threads::Threads;
use super::{pauses, service_manager};
use crate::api::objects::ObjectKind;
use crate::api::service::Protocol;
use crate::api::{PodOrigin, PodUid, decode};
use crate::base::clock::Moment;
use crate::base::live::Live;
use crate::base::paths::Layout;
use crate::base::remove_tree::remove_tree;
use crate::base::threads::Roster;

use crate::cluster::link;
use crate::cluster::rounds::RoundsThread;
use crate::cluster::services as cluster_services;
use crate::daemon::settings::{AuthorizationMode, Settings};
use crate::engine::images::housekeeping::{ImageKeeper, ImageKeeperConfig};
use crate::engine::images::{ImageGcPolicy, ImageStore};
use crate::engine::runtime::Runtime;
use crate::engine::runtime::metered::Metered;
use crate::engine::shims;
use crate::engine::shims::app_armor::load::{self, Loaded};
use crate::engine::shims::app_armor::{AppArmor, RUNTIME_DEFAULT};
use crate::engine::shims::exits::ExitListener;
use crate::face::server::{self, CredentialFiles, Host, Server, ServerConfig, Webhooks};
use crate::net::network::{self, NetworkKind, Networks};
use crate::net::proxy::auto::{self, Auto};
use crate::net::proxy::health::{self, Health};
use crate::net::proxy::names::NameSettings;
use crate::net::proxy::process_end::ProcessEnd;
use crate::net::proxy::userspace::ProxyRole;
use crate::net::proxy::watch::{self, Removal, ServiceSettings};
use crate::net::services::claims::OwnPort;
use crate::pods::checkpoint::{self, Checkpoint};
use crate::pods::controllers::{self, WallClockWatch};
use crate::pods::eviction;
use crate::pods::history::NODE_RESTARTED;
use crate::pods::kuberuntime::KubeRuntime;
use crate::pods::pleg::{self, Pleg, PodLifecycleEvent};
use crate::pods::prober::manager;
use crate::pods::prober::results;
use crate::pods::sources::Decode;
use crate::pods::sources::file::{FileSource, FileSourceConfig};
use crate::pods::sources::http::{HttpSource, HttpSourceConfig};
use crate::pods::sources::merge::UPDATES_CAPACITY;
use crate::pods::sources::{Outlet, PodUpdate};
use crate::pods::sync_loop::{Channels, SyncLoop};

/// Time between two checks of a small volume with a limit.
const VOLUME_INTERVAL: Duration = Duration::from_secs(1);
/// Longest wait for PLEG's first listing at the start of the daemon.
const FIRST_LISTING: Duration = Duration::from_secs(1);

/// The parts of a daemon that other code uses while the threads run.
pub(super) struct Running {
    pub(super) backend: Arc<DaemonBackend>,
    pub(super) runtime: Arc<dyn Runtime>,
    /// Channel on which pod sources send updates to the sync loop.
    pub(super) updates: Sender<PodUpdate>,
    /// Order to remove everything that leads clients to services.
    pub(super) removal: Arc<Removal>,
    /// Directory of the process that forwards clients of services to pods, if there is such a process.
    pub(super) proxy: PathBuf,
    /// Path of the cgroup of all pods, absolute in each cgroup hierarchy.
    pub(super) cgroup: String,
}

/// Makes every part and starts every thread.
pub(super) fn start(
    settings: &Settings,
    layout: &Layout,
    mut engine: Engine,
) -> Result<(Running, Threads), DaemonError> {
    let started = Moment::now();
    // The profile is loaded before the containers of an earlier daemon are looked at. So a container that waits for
    // the profile starts at once.
    load_app_armor_profile(settings);
    let (wake, woken) = wake_ups();
    let pods_with_data = KubeRuntime::pods_with_data(layout);
    KubeRuntime::sweep_log_links(layout);
    let (shared, last) = Shared::open(settings, layout, started, &pods_with_data, wake.clone())?;
    let operations = shared.counted.operations.clone();
    engine.runtime = Arc::new(Metered::new(engine.runtime, operations));
    let StartedPleg {
        pleg,
        lifecycle,
        stop: stop_pleg,
    } = start_pleg(engine.runtime.clone())?;
    let (results, result_updates) = results_managers();
    let given = Given {
        shared,
        pleg: pleg.clone(),
        results,
        readiness: last.readiness,
        room_made: wake.room_made,
    };
    let (made, pulls) = Made::new(settings, layout, &engine, given);
    made.prober.manager.pauses().open(layout.pauses());
    for (uid, container) in last.ended_with_the_node {
        let history = &made.shared.pods.records.history;
        history.renewing(&uid, &container, NODE_RESTARTED);
    }
    let backend = Arc::new(made.backend(settings, layout, &engine));
    let (channels, senders) = channels(lifecycle, result_updates, woken);
    let heartbeat = backend.heartbeat.clone();
    let sync_loop = SyncLoop::spawn(channels, made.of_the_sync_loop(pods_with_data), heartbeat)
        .map_err(cannot("start the thread sync-loop"))?;
    let roster = &*backend.roster;
    let removal = Arc::<Removal>::default();
    let shared = &made.shared;
    let outlet = || shared.sources.outlet(&shared.pods, &senders.updates);
    let threads = Threads {
        sync_loop: (sync_loop, senders.stop),
        checkpoint: start_checkpoint(shared.pods.checkpoint.clone(), made.prober.clone(), roster)?,
        files: start_file_source(settings, layout, outlet(), last.pods, roster)?,
        url: start_http_source(settings, layout, outlet(), roster)?,
        exits: start_exit_listener(layout, pleg.clone(), roster)?,
        images: start_image_keeper(
            made.live.image_gc.clone(),
            layout,
            engine.store.clone(),
            senders.images_changed,
            roster,
        )?,
        eviction: start_eviction(shared, made.kuberuntime.clone(), roster)?,
        drain: made.drain.clone(),
        proxy: start_proxy(settings, layout, shared, &engine, removal.clone(), roster)?,
        network: start_network_watch(engine.networks, engine.sandboxes, roster)?,
        health: start_health(settings, shared, roster)?,
        controllers: start_controllers(settings, layout, &made, outlet(), roster)?,
        wall_clock: start_wall_clock(shared, roster)?,
        link: start_link(
            made.of_the_link(settings, layout, &backend, outlet()),
            roster,
        )?,
        cluster_services: start_cluster_services(
            made.of_the_cluster_services(settings, layout),
            roster,
        )?,
        watchdog: service_manager::start_watchdog(backend.clone(), roster)
            .map_err(cannot("start the thread watchdog"))?,
        // The server starts last. So clients get no answer before the other threads have cleared away old data.
        server: start_server(
            settings,
            layout,
            made.live.debugging.clone(),
            backend.clone(),
        )?,
        pulls,
        pleg: (pleg, stop_pleg),
    };
    made.drain
        .resume()
        .map_err(cannot("start the thread drain"))?;
    let running = Running {
        backend,
        runtime: engine.runtime,
        updates: senders.updates,
        removal,
        proxy: layout.proxy_dir(),
        cgroup: layout.cgroup(),
    };
    Ok((running, threads))
}

/// Loads the AppArmor profile, if the configuration allows it. Without the profile the daemon goes on: pods that need
/// no profile run, and the other pods report what they wait for.
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

/// Makes the channels that wake the sync loop. The senders are for the other parts, the receivers for the loop.
fn wake_ups() -> (WakeUps<Sender<()>>, WakeUps<Receiver<()>>) {
    let (objects_changed, objects) = bounded(1);
    let (pod_evicted, evictions) = bounded(1);
    let (room_made, room) = bounded(1);
    let senders = WakeUps {
        objects_changed,
        pod_evicted,
        room_made,
    };
    let receivers = WakeUps {
        objects_changed: objects,
        pod_evicted: evictions,
        room_made: room,
    };
    (senders, receivers)
}

/// The senders on which other parts write to the sync loop.
struct Senders {
    updates: Sender<PodUpdate>,
    images_changed: Sender<()>,
    /// Channel that ends the sync loop when this sender is dropped.
    stop: Sender<()>,
}

fn channels(
    lifecycle: Receiver<PodLifecycleEvent>,
    [liveness, readiness, startup]: [ResultUpdates; 3],
    woken: WakeUps<Receiver<()>>,
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
        objects: woken.objects_changed,
        evictions: woken.pod_evicted,
        room: woken.room_made,
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

/// Makes the caches of probe results. Their channels are in the order liveness, readiness, startup.
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

struct StartedPleg {
    pleg: Arc<Pleg>,
    lifecycle: Receiver<PodLifecycleEvent>,
    /// Channel that ends PLEG's thread when this sender is dropped.
    stop: Sender<()>,
}

/// Starts PLEG and waits for its first listing, so that the sync loop finds the runtime listed. After `FIRST_LISTING`
/// the wait ends; the sync loop then rests until the listing is there.
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

/// Starts the thread of the checkpoint. The thread ends when the returned sender is dropped.
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

/// Starts the thread `controllers`. It ends when the returned sender is dropped and the change feed is woken.
fn start_controllers(
    settings: &Settings,
    layout: &Layout,
    made: &Made,
    outlet: Outlet,
    roster: &Roster,
) -> Result<(JoinHandle<()>, Sender<()>), DaemonError> {
    let (stop, stopped) = bounded(0);
    let deps = made.of_the_controllers(settings, layout, outlet, stopped.clone());
    let thread = controllers::manager::spawn(deps, stopped, roster)
        .map_err(cannot("start the thread controllers"))?;
    Ok((thread, stop))
}

/// Starts the thread `cluster`, if the node is one of a cluster.
fn start_link(
    deps: Option<link::Deps>,
    roster: &Roster,
) -> Result<Option<RoundsThread>, DaemonError> {
    let spawn = |deps| link::spawn(deps, roster).map_err(cannot("start the thread cluster"));
    deps.map(spawn).transpose()
}

/// Starts the thread `cluster-services`, if podprobe serves the services of a cluster.
fn start_cluster_services(
    deps: Option<cluster_services::Deps>,
    roster: &Roster,
) -> Result<Option<RoundsThread>, DaemonError> {
    let spawn = |deps| {
        cluster_services::spawn(deps, roster).map_err(cannot("start the thread cluster-services"))
    };
    deps.map(spawn).transpose()
}

/// Starts the thread that tells the controllers when somebody sets the wall clock.
fn start_wall_clock(shared: &Shared, roster: &Roster) -> Result<WallClockWatch, DaemonError> {
    let feed = shared.pods.feed.clone();
    WallClockWatch::spawn(move || feed.wake(), roster)
        .map_err(cannot("start the thread wall-clock"))
}

/// Starts the thread that watches volumes with limits. The thread ends when the returned sender is dropped.
fn start_eviction(
    shared: &Shared,
    kuberuntime: Arc<KubeRuntime>,
    roster: &Roster,
) -> Result<(JoinHandle<()>, Sender<()>), DaemonError> {
    let (stop, stopped) = bounded(0);
    let watch = eviction::Watch {
        pods: shared.pods.manager.clone(),
        statuses: shared.pods.statuses.clone(),
        evictions: shared.evictions.clone(),
        recorder: shared.pods.recorder.clone(),
        feed: shared.pods.feed.clone(),
        limited: Box::new(move |pod| kuberuntime.limited_volumes(pod)),
        interval: VOLUME_INTERVAL,
    };
    let thread =
        eviction::spawn(watch, stopped, roster).map_err(cannot("start the thread eviction"))?;
    Ok((thread, stop))
}

fn start_proxy(
    settings: &Settings,
    layout: &Layout,
    shared: &Shared,
    engine: &Engine,
    removal: Arc<Removal>,
    roster: &Roster,
) -> Result<(JoinHandle<()>, Sender<()>), DaemonError> {
    let (stop, stopped) = bounded(0);
    let feed = shared.pods.feed.clone();
    let networks = &engine.networks;
    let woken = feed.clone();
    let kinds = &ObjectKind::OF_SERVICES;
    // The feed only tells when something has changed. The thread then reads all services again.
    shared.sources.objects.watch(kinds, move || woken.wake());
    let woken = feed.clone();
    let process_end = ProcessEnd::new(move || woken.wake());
    let path = Auto::new(auto::Deps {
        mode: settings.proxy_mode,
        loopback_only: networks.kind() == NetworkKind::None,
        id: layout.id(),
        service_cidrs: settings.service_cidrs.clone(),
        role: ProxyRole::new(layout.proxy_dir(), layout.proxy_cgroup())
            .with_end(process_end.clone()),
    });
    let node = ServiceInputs {
        pods: shared.pods.clone(),
        sources: shared.sources.clone(),
        restored: shared.restored,
        runtime: engine.runtime.clone(),
        networks: networks.clone(),
        served: ServedServices::new(settings, shared.sources.objects.clone()),
    };
    let watch = watch::Deps {
        node: Box::new(node),
        feed,
        path: Box::new(path),
        process_end,
        published: shared.services.clone(),
        removal,
        record: layout.services(),
        settings: ServiceSettings {
            node_name: settings.node_name.clone(),
            own_ports: own_ports(settings),
            pod_cidrs: networks.pod_cidrs().clone(),
            service_cidrs: settings.service_cidrs.clone(),
            names: names(settings),
        },
    };
    let thread = watch::spawn(watch, stopped, roster).map_err(cannot("start the thread proxy"))?;
    Ok((thread, stop))
}

/// Returns the settings of the name server; None if podprobe does not answer DNS queries.
fn names(settings: &Settings) -> Option<NameSettings> {
    let addresses = settings.own_dns();
    (!addresses.is_empty()).then(|| NameSettings {
        domain: settings.cluster_domain.clone(),
        addresses,
        resolv_conf: settings.resolv_conf.clone(),
    })
}

/// Returns the ports that podprobe itself listens on. A service may not use one of these ports.
fn own_ports(settings: &Settings) -> Vec<OwnPort> {
    let own = |at: SocketAddr, what: &str| OwnPort {
        address: Some(at.ip()).filter(|ip| !ip.is_unspecified()),
        port: at.port(),
        protocol: Protocol::Tcp,
        what: what.to_owned(),
    };
    let local = |port: Option<u16>| port.map(|port| (Ipv4Addr::LOCALHOST, port).into());
    let all = [
        (
            settings.healthz_bind_address,
            "the health of services (healthzBindAddress)",
        ),
        (
            local(settings.healthz_port),
            "the daemon's health (healthzPort)",
        ),
        (local(settings.read_only_port), "the server (readOnlyPort)"),
        (main_address(settings), "the server (port)"),
    ];
    let taken = all.into_iter().filter_map(|(at, what)| Some((at?, what)));
    taken.map(|(at, what)| own(at, what)).collect()
}

fn start_health(
    settings: &Settings,
    shared: &Shared,
    roster: &Roster,
) -> Result<(JoinHandle<()>, Arc<Health>), DaemonError> {
    let health = &shared.services.health;
    let thread = health::spawn(health.clone(), settings.healthz_bind_address, roster);
    let thread = thread.map_err(cannot("start the thread proxy-health"))?;
    Ok((thread, health.clone()))
}

fn start_network_watch(
    networks: Arc<Networks>,
    sandboxes: Vec<String>,
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
    debugging: Live<bool>,
    backend: Arc<DaemonBackend>,
) -> Result<Server, DaemonError> {
    let server = server::spawn(
        &layout.socket(),
        server_config(settings, layout, debugging),
        backend,
    )?;
    Ok(server)
}

/// Returns the address of the port with TLS.
fn main_address(settings: &Settings) -> Option<SocketAddr> {
    let at = |port: u16| SocketAddr::new(settings.address, port);
    settings.port.map(at)
}

fn server_config(settings: &Settings, layout: &Layout, debugging: Live<bool>) -> ServerConfig {
    let of_user = settings.tls_cert_file.clone();
    let made_for = of_user.is_none().then(|| Host {
        name: settings.node_name.clone(),
        address: settings.node_ip,
    });
    let pair = of_user.zip(settings.tls_private_key_file.clone());
    let (certificate, key) = pair.unwrap_or_else(|| layout.server_certificate());
    let files = CredentialFiles {
        certificate,
        key,
        client_ca: settings.client_ca_file.clone(),
        token: settings.bearer_token_file.clone(),
        made_for,
    };
    ServerConfig {
        health: settings.healthz_port,
        read_only: settings.read_only_port,
        main: main_address(settings).map(|at| (at, files)),
        debugging,
        webhooks: Webhooks {
            authentication: settings.token_webhook,
            authorization: settings.authorization_mode == AuthorizationMode::Webhook,
        },
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

/// Starts the source of pods from `staticPodURL`. Returns None if the URL is not set.
fn start_http_source(
    settings: &Settings,
    layout: &Layout,
    outlet: Outlet,
    roster: &Roster,
) -> Result<Option<HttpSource>, DaemonError> {
    let Some(url) = &settings.static_pod_url else {
        // The response that an earlier daemon has stored may contain secrets, and nothing reads it any more.
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
        decode::objects(bytes, &PodOrigin::File { node_name, path })
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

/// Starts the thread `images`. At most one notice of changed image names waits for the sync loop. A waiting notice
/// also stands for later changes.
fn start_image_keeper(
    gc: Live<ImageGcPolicy>,
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
            gc,
            on_change: Box::new(move || _ = changed.try_send(())),
        },
        roster,
    )
    .map_err(cannot("watch the image directory"))
}
