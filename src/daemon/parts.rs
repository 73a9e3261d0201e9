//! The parts of the daemon. [`Shared`] has the parts that many other parts write and read; [`Made`] has the parts that
//! work on pods. Each function makes one part from the parts that it needs.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crossbeam_channel::{Receiver, Sender};

use super::adapters::{
    FileWorkloads, Prober, RuntimeCache, Seen, ServedServices, ServiceLinks, TemplateImages,
    Traffic, Withdrawal,
};
use super::backend::DaemonBackend;
use super::cluster::ClusterNode;
use super::counted::Counted;
use super::error::{DaemonError, cannot};
use super::garbage::Garbage;
use super::last_daemon::LastDaemon;
use super::live_settings::{LiveSettings, Reloading};
use super::stores::{PodStores, SourceStores};
use crate::api::sysctls::SysctlAllowlist;
use crate::api::{PodSource, PodUid};
use crate::base::clock::Moment;
use crate::base::live::Live;
use crate::base::paths::Layout;
use crate::cluster::link::{self, ReviewDesk};
use crate::cluster::services as cluster_services;
use crate::daemon::settings::Settings;
use crate::engine::images::ImageStore;
use crate::engine::images::manager::{ImageManager, ImageService};
use crate::engine::images::registry::{PullStop, RegistryPuller};
use crate::engine::runtime::{ContainerId, Runtime};
use crate::engine::shims::LogBounds;
use crate::engine::shims::app_armor::AppArmor;
use crate::engine::stats::{self, Stats};
use crate::net::network::Networks;
use crate::net::proxy::published::Published;
use crate::pods::admission;
use crate::pods::checkpoint::{self, Restored};
use crate::pods::container_config::{NodeFacts, huge_pages, kernel_version};
use crate::pods::controllers::{self, ImagesAhead, NodeView, PodOutlet};
use crate::pods::drain::{self, Drain};
use crate::pods::eviction::Evictions;
use crate::pods::kuberuntime::KubeRuntime;
use crate::pods::lifecycle::HandlerRunner;
use crate::pods::pleg::Pleg;
use crate::pods::prober::manager::{self, ProberManager, RestoredReady};
use crate::pods::prober::streaks::Streaks;
use crate::pods::sources::Outlet;
use crate::pods::status::{KeptStatuses, conditions_of_others, is_of_ended};
use crate::pods::sync_loop::Parts;
use crate::pods::volumes::Volumes;
use crate::pods::workers::{self, BegunStops, PodWorkers, Restarts, Syncer};

/// The runtime that runs containers, with the networks and images of the containers.
pub(super) struct Engine {
    pub(super) runtime: Arc<dyn Runtime>,
    /// Ids of the sandboxes that exist.
    pub(super) sandboxes: Vec<String>,
    pub(super) networks: Arc<Networks>,
    /// Bounds of the logs of containers.
    pub(super) logs: Live<LogBounds>,
    /// Service that gives containers their images.
    pub(super) images: Arc<dyn ImageService>,
    /// Image store that old images are removed from.
    pub(super) store: ImageStore,
}

/// The channels that wake the sync loop and carry no data. A wake-up that the loop has not received yet also stands
/// for later wake-ups.
#[derive(Clone)]
pub(super) struct WakeUps<T> {
    pub(super) objects_changed: T,
    pub(super) pod_evicted: T,
    /// Wakes the sync loop when a pod has ended and has made room for others.
    pub(super) room_made: T,
}

/// The stores and counters that many parts share.
pub(super) struct Shared {
    pub(super) pods: PodStores,
    pub(super) sources: SourceStores,
    pub(super) services: Published,
    pub(super) evictions: Arc<Evictions>,
    pub(super) restarts: Arc<Restarts>,
    pub(super) stops: Arc<BegunStops>,
    pub(super) counted: Counted,
    /// True if the statuses of an earlier daemon were restored.
    pub(super) restored: bool,
    /// Time at which the daemon started.
    pub(super) started: Moment,
}

impl Shared {
    /// Opens the stores with the data that the last daemon left on the disk. Returns the stores, and the data that the
    /// stores do not take.
    pub(super) fn open(
        settings: &Settings,
        layout: &Layout,
        started: Moment,
        pods_with_data: &[PodUid],
        wake: WakeUps<Sender<()>>,
    ) -> Result<(Shared, LastDaemon), DaemonError> {
        let mut restored = checkpoint::read(&layout.checkpoint());
        let kept = KeptStatuses::new(layout);
        let last = LastDaemon::new(&mut restored, &kept);
        let ceiling = settings.max_container_restart_period;
        let evictions = Evictions::open(layout, pods_with_data, ceiling, wake.pod_evicted);
        forget_those_that_began_anew(&mut restored, &evictions);
        let has_statuses = !restored.statuses.is_empty();
        let pods = PodStores::new(restored, kept, layout.checkpoint());
        let (all, feed) = (sources(settings), pods.feed.clone());
        let shared = Shared {
            sources: SourceStores::new(all, feed, wake.objects_changed),
            pods,
            services: Published::new().map_err(cannot("make the health checks of services"))?,
            evictions: Arc::new(evictions),
            restarts: Arc::default(),
            stops: Arc::new(BegunStops::open(layout)),
            counted: Counted::default(),
            restored: has_statuses,
            started,
        };
        Ok((shared, last))
    }
}

/// The inputs for the parts that work on pods.
pub(super) struct Given {
    pub(super) shared: Shared,
    pub(super) pleg: Arc<Pleg>,
    pub(super) results: manager::Results,
    /// Readiness of containers, as the last daemon knew it.
    pub(super) readiness: HashMap<ContainerId, RestoredReady>,
    /// Channel that tells the sync loop that a pod has ended.
    pub(super) room_made: Sender<()>,
}

/// The parts that work on pods. When they have been made, PLEG is the only part with a running thread.
pub(super) struct Made {
    pub(super) shared: Shared,
    pub(super) kuberuntime: Arc<KubeRuntime>,
    pub(super) prober: Arc<Prober>,
    node: Live<admission::Node>,
    pleg: Arc<Pleg>,
    syncer: Arc<Syncer>,
    workers: Arc<PodWorkers>,
    room_made: Sender<()>,
    pub(super) live: LiveSettings,
    pub(super) drain: Arc<Drain>,
    closed: Live<Option<admission::Closed>>,
}

impl Made {
    /// Makes every part. The second value is the handle that ends the pulls of images.
    pub(super) fn new(
        settings: &Settings,
        layout: &Layout,
        engine: &Engine,
        given: Given,
    ) -> (Self, PullStop) {
        let Given {
            shared,
            pleg,
            results,
            readiness,
            room_made,
        } = given;
        let facts = NodeFacts::read(settings.node_ip, &layout.lib_dir());
        let node = Live::new(node(settings, layout, &facts));
        let live = LiveSettings::new(settings);
        let (kuberuntime, pulls) = kuberuntime(settings, &live, engine, layout, &shared, facts);
        let kuberuntime = Arc::new(kuberuntime.with_labels(node.clone()));
        let prober = Arc::new(Prober {
            manager: prober_manager(
                settings, layout, &shared, engine, &pleg, &results, readiness,
            ),
            results,
            records: shared.pods.records.clone(),
        });
        let syncer = syncer(
            settings,
            &node,
            &shared,
            engine,
            &kuberuntime,
            &pleg,
            &prober,
        );
        let workers = PodWorkers::new(syncer.clone(), live.resync.clone(), room_made.clone());
        let workers = Arc::new(workers);
        let closed = Live::default();
        let drain = Drain::open(
            layout,
            drain::Deps {
                pods: shared.pods.manager.clone(),
                workers: workers.clone(),
                evictions: shared.evictions.clone(),
                config: shared.sources.config.clone(),
                feed: shared.pods.feed.clone(),
                closed: closed.clone(),
                room: room_made.clone(),
                times: live.shutdown.clone(),
            },
        );
        let made = Self {
            drain: Arc::new(drain),
            closed,
            workers,
            shared,
            kuberuntime,
            prober,
            node,
            pleg,
            syncer,
            room_made,
            live,
        };
        (made, pulls)
    }

    /// Returns the backend that answers clients.
    pub(super) fn backend(
        &self,
        settings: &Settings,
        layout: &Layout,
        engine: &Engine,
    ) -> DaemonBackend {
        let shared = &self.shared;
        DaemonBackend {
            settings: Live::new(Arc::new(settings.clone())),
            layout: layout.clone(),
            node: self.node.clone(),
            started: shared.started,
            pods: shared.pods.clone(),
            sources: shared.sources.clone(),
            services: shared.services.clone(),
            networks: engine.networks.clone(),
            kuberuntime: self.kuberuntime.clone(),
            store: engine.store.clone(),
            stats: Stats::new(stats::Reader::new(layout.clone())),
            pleg: self.pleg.clone(),
            workers: self.workers.clone(),
            prober: self.prober.clone(),
            evictions: shared.evictions.clone(),
            drain: self.drain.clone(),
            restarts: shared.restarts.clone(),
            counted: shared.counted.clone(),
            reviews: Arc::new(ReviewDesk::new(
                settings.node_name.clone(),
                settings.review_lifetimes(),
            )),
            heartbeat: Arc::default(),
            roster: Arc::default(),
            reloading: Reloading {
                live: self.live.clone(),
                logs: engine.logs.clone(),
                syncer: self.syncer.clone(),
                room_made: self.room_made.clone(),
                turn: Mutex::default(),
            },
        }
    }

    /// Returns the node, as controllers ask for it.
    pub(super) fn node_view(&self) -> NodeView {
        let (pods, feed) = (&self.shared.pods, self.shared.pods.feed.clone());
        let puller = TemplateImages(self.kuberuntime.clone());
        NodeView {
            name: self.node.get().name,
            node: self.node.clone(),
            closed: self.closed.clone(),
            huge_pages,
            pods: pods.manager.clone(),
            statuses: pods.statuses.clone(),
            workers: self.workers.clone(),
            images: ImagesAhead::new(Box::new(puller), move || feed.wake()),
            zones: Default::default(),
        }
    }

    /// Returns the parts that the thread `controllers` needs. `stopped` closes when the daemon ends.
    pub(super) fn of_the_controllers(
        &self,
        settings: &Settings,
        layout: &Layout,
        outlet: Outlet,
        stopped: Receiver<()>,
    ) -> controllers::manager::Deps {
        let shared = &self.shared;
        let woken = shared.pods.feed.clone();
        controllers::manager::Deps {
            wanted: Box::new(FileWorkloads {
                sources: shared.sources.clone(),
                // The feed only tells that something has changed. The thread then asks what.
                watch: shared.sources.workloads.watch(move || woken.wake()),
            }),
            table: Box::new(Traffic(shared.services.gate.clone())),
            running: Box::new(RuntimeCache(self.pleg.clone())),
            pods: shared.pods.manager.clone(),
            statuses: shared.pods.statuses.clone(),
            checkpoint: shared.pods.checkpoint.clone(),
            workers: self.workers.clone(),
            feed: shared.pods.feed.clone(),
            outlet: PodOutlet::new(outlet, settings.node_name.clone(), stopped),
            node: self.node_view(),
            board: shared.sources.board.clone(),
            recorder: shared.pods.recorder.clone(),
            states: layout.workloads(),
            records: layout.made_pods(),
            settings: self.live.controllers.clone(),
        }
    }

    /// Returns the parts that the link to a cluster needs, or None if the node stands alone.
    pub(super) fn of_the_link(
        &self,
        settings: &Settings,
        layout: &Layout,
        backend: &Arc<DaemonBackend>,
        outlet: Outlet,
    ) -> Option<link::Deps> {
        let pods = &self.shared.pods;
        Some(link::Deps {
            node: Box::new(ClusterNode(backend.clone())),
            node_name: settings.node_name.clone(),
            admitting: self.node.clone(),
            kubeconfig: settings.kubeconfig.clone()?,
            has_data: {
                let layout = layout.clone();
                Box::new(move |uid| layout.pod_data(uid).exists())
            },
            kept: layout.cluster(),
            kept_pods: layout.kept_pods(),
            kept_objects: layout.kept_objects(),
            networks: backend.networks.clone(),
            pods: pods.manager.clone(),
            statuses: pods.statuses.clone(),
            workers: self.workers.clone(),
            feed: pods.feed.clone(),
            recorder: pods.recorder.clone(),
            reviews: backend.reviews.clone(),
            outlet,
        })
    }

    /// Returns the parts that the watch of a cluster's services needs, or None if podprobe does not serve these.
    pub(super) fn of_the_cluster_services(
        &self,
        settings: &Settings,
        layout: &Layout,
    ) -> Option<cluster_services::Deps> {
        Some(cluster_services::Deps {
            kubeconfig: settings.proxy_kubeconfig.clone()?,
            kept: layout.cluster(),
            objects: self.shared.sources.objects.clone(),
        })
    }

    /// Returns the parts that the sync loop needs.
    pub(super) fn of_the_sync_loop(&self, pods_with_data: Vec<PodUid>) -> Parts {
        let shared = &self.shared;
        let garbage = Garbage {
            syncer: self.syncer.clone(),
            pods: shared.pods.clone(),
            workers: self.workers.clone(),
            prober: self.prober.clone(),
            evictions: shared.evictions.clone(),
        };
        Parts {
            node: self.node.clone(),
            closed: self.closed.clone(),
            huge_pages,
            pods: shared.pods.manager.clone(),
            workers: self.workers.clone(),
            statuses: shared.pods.statuses.clone(),
            config: shared.sources.config.clone(),
            objects: shared.sources.objects.clone(),
            evictions: shared.evictions.clone(),
            runtime: Arc::new(RuntimeCache(self.pleg.clone())),
            probes: self.prober.clone(),
            recorder: shared.pods.recorder.clone(),
            metrics: shared.counted.sync_loop.clone(),
            garbage: Box::new(garbage),
            pods_with_data: pods_with_data.into(),
            places: RefCell::default(),
            has_forgotten: Default::default(),
        }
    }
}

/// Returns the pod sources of the configuration: files and controllers always, HTTP if a URL is configured, and the
/// API server if the node is one of a cluster.
fn sources(settings: &Settings) -> Vec<PodSource> {
    let url = settings.static_pod_url.as_ref();
    let url = url.map(|_| PodSource::Http);
    let api = settings.kubeconfig.as_ref().map(|_| PodSource::Api);
    let always = [PodSource::File, PodSource::Controller];
    always.into_iter().chain(url).chain(api).collect()
}

/// Drops from the checkpoint the status of each pod that was evicted or deleted, if the eviction or deletion is not in
/// force any more. Such a pod has started anew, or may do so now.
pub(super) fn forget_those_that_began_anew(restored: &mut Restored, evictions: &Evictions) {
    let now = Moment::now();
    restored.statuses.retain(|uid, status| {
        if !is_of_ended(status) || evictions.is_evicted(uid, now) {
            return true;
        }
        // A pod that ended with the node goes on with its counts, as after a power cut.
        if !status.phase.is_terminal() {
            status.reason.clear();
            status.message.clear();
            return true;
        }
        // The conditions that clients have set stay.
        let kept = conditions_of_others(status);
        kept.map(|kept| *status = kept).is_some()
    });
}

/// Makes the runtime of pods. The second value is the handle that ends the pulls of images.
fn kuberuntime(
    settings: &Settings,
    live: &LiveSettings,
    engine: &Engine,
    layout: &Layout,
    shared: &Shared,
    node: NodeFacts,
) -> (KubeRuntime, PullStop) {
    let registries = live.registries.clone();
    let puller = RegistryPuller::new(engine.store.clone(), registries, layout.docker_configs());
    let stop = puller.stopper();
    let images = ImageManager::new(engine.images.clone(), Box::new(puller));
    let images = images.parallel(settings.parallel_image_pulls());
    let runtime = engine.runtime.clone();
    let objects = shared.sources.objects.clone();
    let volumes = Volumes::new();
    let kuberuntime = KubeRuntime::new(runtime, images, volumes, objects, node, layout.clone());
    let links = ServiceLinks {
        known: shared.services.known.clone(),
        served: ServedServices::new(settings, shared.sources.objects.clone()),
        started: shared.started,
    };
    let kuberuntime = kuberuntime.with_services(Box::new(links));
    let kuberuntime = kuberuntime.with_resource_policy(live.resources.clone());
    (kuberuntime.with_dns(settings.node_dns()), stop)
}

fn prober_manager(
    settings: &Settings,
    layout: &Layout,
    shared: &Shared,
    engine: &Engine,
    pleg: &Pleg,
    results: &manager::Results,
    restored: HashMap<ContainerId, RestoredReady>,
) -> ProberManager {
    ProberManager::new(manager::Deps {
        statuses: Arc::new(Seen {
            statuses: shared.pods.statuses.clone(),
            cache: pleg.cache().clone(),
        }),
        runtime: engine.runtime.clone(),
        results: results.clone(),
        recorder: shared.pods.recorder.clone(),
        started: shared.started,
        allow_probe_hosts: settings.allow_probe_hosts.clone(),
        restored,
        records: shared.pods.records.clone(),
        streaks: Streaks::new(layout),
    })
}

fn syncer(
    settings: &Settings,
    node: &Live<admission::Node>,
    shared: &Shared,
    engine: &Engine,
    kuberuntime: &Arc<KubeRuntime>,
    pleg: &Arc<Pleg>,
    prober: &Arc<Prober>,
) -> Arc<Syncer> {
    let hooks = HandlerRunner {
        runtime: engine.runtime.clone(),
        recorder: shared.pods.recorder.clone(),
        node_ip: settings.node_ip,
        allow_probe_hosts: settings.allow_probe_hosts.clone(),
    };
    let traffic = Withdrawal {
        gate: shared.services.gate.clone(),
        feed: shared.pods.feed.clone(),
    };
    Arc::new(Syncer::new(workers::Deps {
        kuberuntime: kuberuntime.clone(),
        hooks: Arc::new(hooks),
        cache: Arc::new(RuntimeCache(pleg.clone())),
        probes: prober.clone(),
        statuses: shared.pods.statuses.clone(),
        traffic: Arc::new(traffic),
        evictions: shared.evictions.clone(),
        restarts: shared.restarts.clone(),
        stops: shared.stops.clone(),
        recorder: shared.pods.recorder.clone(),
        metrics: shared.counted.pods.clone(),
        pods: shared.pods.manager.clone(),
        node: node_now(node.clone()),
        node_ip: settings.node_ip,
        max_back_off: settings.max_container_restart_period,
    }))
}

/// Returns a function that returns the node with its huge pages read anew, because people may reserve them while the daemon
/// runs.
fn node_now(node: Live<admission::Node>) -> Box<dyn Fn() -> admission::Node + Send + Sync> {
    Box::new(move || admission::Node {
        huge_pages: huge_pages(),
        ..node.get()
    })
}

/// Returns the resources and features of this node, against which pods are admitted. An amount that the kernel does
/// not report is 0.
fn node(settings: &Settings, layout: &Layout, facts: &NodeFacts) -> admission::Node {
    let name = settings.node_name.clone();
    // In a cluster, the labels that the Node object had last count until the link sees it.
    let is_in_cluster = settings.kubeconfig.is_some();
    let seen = is_in_cluster.then(|| link::labels_last_seen(&layout.cluster(), &name));
    let seen = seen.flatten();
    let awaits_labels = is_in_cluster && seen.is_none();
    let mut labels = seen.unwrap_or_default();
    labels.extend(admission::node_labels(&name, &settings.node_labels));
    admission::Node {
        labels,
        awaits_labels,
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
