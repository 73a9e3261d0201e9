//! The adapters through which the daemon's parts use one another. Each part sees only the functions that it needs of
//! other parts.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::stores::{PodStores, SourceStores};
use crate::api::workload::WorkloadKey;
use crate::api::{Pod, PodSource, PodStatus, PodUid};
use crate::base::cancel::Cancel;
use crate::base::change_feed::{Aspect, ChangeFeed};
use crate::base::clock::{Moment, Time};
use crate::daemon::settings::Settings;
use crate::engine::images::PullStage;
use crate::engine::images::manager::ImageEvent;
use crate::engine::runtime::{ContainerId, Runtime, RuntimeContainerStatus, RuntimePodStatus};
use crate::face::views::Records;
use crate::net::network::{NetworkKind, Networks};
use crate::net::proxy::gate::TrafficGate;
use crate::net::proxy::known::KnownServices;
use crate::net::proxy::watch::{FIRST_WAIT, NodeState};
use crate::net::services::environment::given_environment;
use crate::net::services::inputs::ServiceObjects;
use crate::pods::actions::ToKill;
use crate::pods::controllers::images_ahead::{PullFailure, PullImages};
use crate::pods::controllers::manager::{RunningPods, ServiceTable, WantedWorkloads};
use crate::pods::kuberuntime::{KubeRuntime, ServiceVariables, StartError};
use crate::pods::objects::Objects;
use crate::pods::pleg::{Cache, CacheError, Pleg};
use crate::pods::prober::manager::{self, ProberManager, StatusSource};
use crate::pods::prober::results::ProbeResult;
use crate::pods::sources::workload_store::WorkloadWatch;
use crate::pods::status::StatusManager;
use crate::pods::sync_loop::{ProbeHousekeeping, RuntimeHealthError, RuntimeView};
use crate::pods::workers::{self, PodCache, Probes};
use crate::workloads::world::Wanted;

/// Longest time for which a sync waits for a status that is newer than the sync before. A relist takes at most a
/// second, or longer on a busy disk.
const STATUS_CEILING: Duration = Duration::from_secs(20);

/// The status manager and the runtime's cache, from which probe workers read the statuses of pods.
pub(super) struct Seen {
    pub(super) statuses: Arc<StatusManager>,
    pub(super) cache: Arc<Cache>,
}

impl StatusSource for Seen {
    fn version(&self) -> u64 {
        self.statuses.feed().version_of(Aspect::Status)
    }

    fn pod_status(&self, uid: &PodUid) -> Option<Arc<PodStatus>> {
        self.statuses.get(uid)
    }

    fn started_moment(&self, uid: &PodUid, id: &ContainerId) -> Option<Moment> {
        self.cache
            .get(uid)
            .containers
            .iter()
            .find(|c| c.id == *id)
            .and_then(|c| c.started)
    }
}

/// Longest time for which the end of a pod waits until the data path of services no longer leads to the pod.
const WITHDRAWAL: Duration = Duration::from_secs(1);

/// The data path of services, as the syncer sees it.
pub(super) struct Withdrawal {
    pub(super) gate: Arc<TrafficGate>,
    pub(super) feed: Arc<ChangeFeed>,
}

impl workers::Traffic for Withdrawal {
    fn wait_until_withdrawn(&self) {
        let version = self.feed.version_of(Aspect::Status);
        if !self.gate.wait(version, WITHDRAWAL) {
            log::warn!(
                "the data path of services does not follow; a pod ends while clients may still be sent to it"
            );
        }
    }
}

/// Longest wait for a service that has just been added. Usually the service is known within a few milliseconds.
const SERVICES: Duration = Duration::from_secs(1);

/// The origin of the services that this node serves.
#[derive(Clone, Copy)]
enum ServiceOrigin {
    /// The node's own sources: it stands alone.
    Sources,
    /// The cluster.
    Cluster,
    /// Nowhere: the cluster has another proxy on this node. Services of files would have other addresses than the cluster's.
    Nowhere,
}

/// The services that this node serves.
pub(super) struct ServedServices {
    objects: Arc<Objects>,
    origin: ServiceOrigin,
}

impl ServedServices {
    pub(super) fn new(settings: &Settings, objects: Arc<Objects>) -> Self {
        let origin = match (&settings.kubeconfig, &settings.proxy_kubeconfig) {
            (None, _) => ServiceOrigin::Sources,
            (Some(_), Some(_)) => ServiceOrigin::Cluster,
            (Some(_), None) => ServiceOrigin::Nowhere,
        };
        Self { objects, origin }
    }

    fn get(&self) -> ServiceObjects {
        match self.origin {
            ServiceOrigin::Sources => self.objects.services(),
            ServiceOrigin::Cluster => self.objects.cluster_services().unwrap_or_default(),
            ServiceOrigin::Nowhere => ServiceObjects::default(),
        }
    }

    /// True if services of these sources are known, even if there are none.
    fn are_known(&self, sources: &[PodSource]) -> bool {
        let mut sources = sources.iter();
        let have_spoken = sources.all(|source| self.objects.has_spoken(*source));
        let is_of_cluster = matches!(self.origin, ServiceOrigin::Cluster);
        have_spoken && (!is_of_cluster || self.objects.has_cluster_services())
    }
}

/// The services that containers get variables for.
pub(super) struct ServiceLinks {
    pub(super) known: Arc<KnownServices>,
    pub(super) served: ServedServices,
    /// Time at which the daemon started.
    pub(super) started: Moment,
}

impl ServiceVariables for ServiceLinks {
    /// Waits until services are known, at most until `FIRST_WAIT` after the daemon's start. The thread `proxy`, which
    /// finds the services, waits just as long for a source that has not been read.
    fn wait(&self, cancel: &Cancel) {
        let left = (self.started + FIRST_WAIT).since(Moment::now());
        self.known.wait_first(cancel, left);
    }

    fn of(&self, pod: &Pod) -> Vec<(String, String)> {
        if pod.source() == PodSource::Api {
            let services = self.served.objects.services_for(pod);
            let namespace = &pod.metadata.namespace;
            return given_environment(&services, namespace, pod.spec.enable_service_links);
        }
        (self.known).variables(pod, || self.served.get(), SERVICES)
    }
}

/// The state of the node, as the thread `proxy` sees it.
pub(super) struct ServiceInputs {
    pub(super) pods: PodStores,
    pub(super) sources: SourceStores,
    /// True if the statuses of an earlier daemon were restored.
    pub(super) restored: bool,
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) networks: Arc<Networks>,
    pub(super) served: ServedServices,
}

impl NodeState for ServiceInputs {
    fn wanted(&self) -> HashSet<PodUid> {
        self.pods.manager.uids()
    }

    fn pod(&self, uid: &PodUid) -> Option<Arc<Pod>> {
        self.pods.manager.get(uid)
    }

    fn status(&self, uid: &PodUid) -> Option<Arc<PodStatus>> {
        self.pods.statuses.get(uid)
    }

    fn services(&self) -> ServiceObjects {
        self.served.get()
    }

    fn has_all(&self) -> bool {
        self.sources.config.all_seen() && self.served.are_known(&self.sources.all)
    }

    fn has_statuses(&self) -> bool {
        self.restored
    }

    fn network_namespace(&self, uid: &PodUid) -> Option<PathBuf> {
        Some(self.runtime.network_namespace(uid).ok()??.path)
    }

    fn has_network(&self) -> bool {
        self.networks.kind() != NetworkKind::None
    }
}

/// PLEG's cache of the runtime, as the sync loop and the syncer see it.
pub(super) struct RuntimeCache(pub(super) Arc<Pleg>);

impl RuntimeView for RuntimeCache {
    fn pods(&self) -> Vec<Arc<RuntimePodStatus>> {
        self.0.cache().all()
    }

    fn pod(&self, uid: &PodUid) -> Arc<RuntimePodStatus> {
        self.0.cache().get(uid)
    }

    fn health(&self) -> Result<(), RuntimeHealthError> {
        Ok(self.0.health(Moment::now())?)
    }
}

impl PodCache for RuntimeCache {
    fn newer_than(&self, uid: &PodUid, since: Moment) -> Result<Arc<RuntimePodStatus>, CacheError> {
        self.0
            .cache()
            .get_newer_than(uid, since, Duration::ZERO)
            .or_else(|_| {
                // Does not wait for the next full relist: PLEG lists a single pod if a worker has just acted on the
                // pod.
                self.0.request(uid);
                self.0.cache().get_newer_than(uid, since, STATUS_CEILING)
            })
    }

    fn request_relist(&self, uid: &PodUid) {
        self.0.request(uid);
    }
}

/// The probe manager, as the sync loop and the syncer see it.
pub(super) struct Prober {
    pub(super) manager: ProberManager,
    pub(super) results: manager::Results,
    pub(super) records: Arc<Records>,
}

impl ProbeHousekeeping for Prober {
    fn clean_up(&self, alive: &HashSet<PodUid>) {
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

    fn trigger_workers(&self, pod: &Pod, stored: &PodStatus) {
        self.manager.trigger_workers(pod, stored);
    }

    fn killing(&self, pod: &Pod, kill: &ToKill) {
        self.records.history.killing(pod.uid(), kill);
    }

    fn renewing(&self, pod: &Pod, container: &str, cause: &str) {
        self.records.history.renewing(pod.uid(), container, cause);
    }

    fn restarted(
        &self,
        pod: &Pod,
        container: &str,
        attempt: u32,
        before: Option<&RuntimeContainerStatus>,
    ) {
        self.records
            .history
            .restarted(pod.uid(), container, attempt, before, Time::now());
    }

    fn liveness(&self, id: &ContainerId) -> Option<ProbeResult> {
        self.results.liveness.get(id)
    }

    fn startup(&self, id: &ContainerId) -> Option<ProbeResult> {
        self.results.startup.get(id)
    }
}

/// The workloads of the files, as the controllers see them.
pub(super) struct FileWorkloads {
    pub(super) sources: SourceStores,
    pub(super) watch: WorkloadWatch,
}

impl WantedWorkloads for FileWorkloads {
    fn take_changed(&self) -> Vec<(WorkloadKey, Option<Wanted>)> {
        let changed = self.watch.take_changed().into_iter();
        changed
            .map(|key| {
                let kept = self.sources.workloads.get(&key);
                let wanted = kept.map(|kept| Wanted {
                    workload: kept.workload,
                    file: kept.file.file,
                    warnings: kept.file.warnings,
                    file_error: kept.file.file_error,
                    life: kept.life,
                });
                (key, wanted)
            })
            .collect()
    }

    fn may_step(&self) -> bool {
        self.sources.workloads.has_spoken(PodSource::File)
            && self.sources.config.has_handled(PodSource::Controller)
    }

    fn knows_all(&self) -> bool {
        let mut sources = self.sources.all.iter();
        let has_spoken = |source: &PodSource| {
            *source == PodSource::Controller || self.sources.workloads.has_spoken(*source)
        };
        sources.all(has_spoken)
    }
}

/// The table of services, as the controllers see it.
pub(super) struct Traffic(pub(super) Arc<TrafficGate>);

impl ServiceTable for Traffic {
    fn is_current(&self, version: u64) -> bool {
        self.0.wait(version, Duration::ZERO)
    }

    fn wait(&self, version: u64, limit: Duration) {
        self.0.wait(version, limit);
    }
}

impl RunningPods for RuntimeCache {
    fn is_running(&self, uid: &PodUid) -> bool {
        self.0.cache().get(uid).is_running()
    }
}

/// The images of pods, as the controllers have them pulled ahead.
pub(super) struct TemplateImages(pub(super) Arc<KubeRuntime>);

impl PullImages for TemplateImages {
    fn pull(&self, pod: &Pod, cancel: &Cancel) -> Result<(), PullFailure> {
        let failed = |e: StartError| PullFailure(e.to_string());
        let mut record = |_: ImageEvent| {};
        for container in pod.spec.all_containers() {
            self.0
                .image(pod, container, cancel, &mut record)
                .map_err(failed)?;
        }
        for volume in pod.spec.volumes.iter().filter_map(|v| v.image.as_ref()) {
            self.0
                .volume_image(pod, volume, cancel, &mut record)
                .map_err(failed)?;
        }
        Ok(())
    }

    fn progress(&self, pod: &Pod) -> u64 {
        let pulls = self.0.images().pulls_of(pod.uid().as_str(), Moment::now());
        let bytes = pulls.iter().map(|pull| match &pull.stage {
            PullStage::Pulling { state, .. } => state.bytes,
            _ => 0,
        });
        bytes.sum()
    }
}
