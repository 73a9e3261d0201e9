//! The backend, which gives the daemon's data to the server and to the live table, and takes their requests.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::adapters::Prober;
use super::counted::Counted;
use super::live_settings::Reloading;
use super::stores::{PodStores, SourceStores};
use crate::api::objects::{LocalObject, ObjectKind};
use crate::api::pod::Volume;
use crate::api::validation::probe_field;
use crate::api::{Container, Pod, PodSource, PodStatus, PodUid};
use crate::base::change_feed::Aspect;
use crate::base::clock::Moment;
use crate::base::live::Live;
use crate::base::paths::Layout;
use crate::base::threads::Roster;
use crate::cluster::link::ReviewDesk;
use crate::daemon::settings::Settings;
use crate::engine::images::manager::ImageWaitReason;
use crate::engine::images::{ImagePull, ImageStore, PullStage};
use crate::engine::runtime::{RuntimePodStatus, RuntimeState};
use crate::engine::stats::Stats;
use crate::face::server::Shown;
use crate::face::server::containers::ContainerName;
use crate::face::views::{PodView, Snapshot, SnapshotUpdate};
use crate::net::network::Networks;
use crate::net::proxy::published::Published;
use crate::net::services::view::ServiceView;
use crate::pods::admission;
use crate::pods::drain::Drain;
use crate::pods::events::{Event, EventList};
use crate::pods::eviction::Evictions;
use crate::pods::history::PodHistory;
use crate::pods::kuberuntime::KubeRuntime;
use crate::pods::pleg::Pleg;
use crate::pods::sync_loop::Heartbeat;
use crate::pods::workers::{PodWorkers, Restarts};
use crate::workloads::view::WorkloadList;

/// Longest wait after the daemon's start for the first reading of every source, and for the first table of services.
/// After this wait the daemon answers with the pods that it knows.
const FIRST_READING: Duration = Duration::from_secs(5);
/// Longest time after the daemon's start without a table of services. It is longer than the data path waits for a source
/// (`FIRST_WAIT`). After it, a node without a table has no services.
const FIRST_TABLE: Duration = Duration::from_secs(30);
/// Time between two checks whether every source has been read.
const FIRST_READING_STEP: Duration = Duration::from_millis(20);

/// Every part of the daemon that clients may ask.
pub(super) struct DaemonBackend {
    pub(super) settings: Live<Arc<Settings>>,
    pub(super) layout: Layout,
    /// Name, labels, resources and kernel features of this node. Pods are admitted against them.
    pub(super) node: Live<admission::Node>,
    /// Time at which the daemon started.
    pub(super) started: Moment,
    pub(super) pods: PodStores,
    pub(super) sources: SourceStores,
    pub(super) services: Published,
    pub(super) networks: Arc<Networks>,
    pub(super) kuberuntime: Arc<KubeRuntime>,
    pub(super) store: ImageStore,
    pub(super) stats: Stats,
    pub(super) pleg: Arc<Pleg>,
    pub(super) workers: Arc<PodWorkers>,
    pub(super) prober: Arc<Prober>,
    pub(super) evictions: Arc<Evictions>,
    /// The orders that hold for all pods of the node.
    pub(super) drain: Arc<Drain>,
    pub(super) restarts: Arc<Restarts>,
    pub(super) counted: Counted,
    /// The questions about clients for the API server.
    pub(super) reviews: Arc<ReviewDesk>,
    /// Progress of the sync loop.
    pub(super) heartbeat: Arc<Heartbeat>,
    /// Progress of the long-lived threads except the sync loop and the thread of PLEG.
    pub(super) roster: Arc<Roster>,
    /// The parts that a new configuration changes.
    pub(super) reloading: Reloading,
}

impl Shown for DaemonBackend {
    fn snapshot(&self) -> Arc<Snapshot> {
        Arc::new(Snapshot::default().updated(self.everything()))
    }

    fn watch(&self, after: u64, ceiling: Duration) -> SnapshotUpdate {
        self.tell_of_pulls();
        if self.pods.feed.since(after).0.is_some() {
            self.pods.feed.wait_newer(after, ceiling);
        }
        let (Some(changes), version) = self.pods.feed.since(after) else {
            return self.everything();
        };
        let uids: HashSet<PodUid> = changes.pods.into_keys().collect();
        let shown = self.shown(|pod| uids.contains(pod.uid()));
        let mut gone = uids.clone();
        let events = self.pods.recorder.list();
        let mut view = |(pod, terminating): &(Arc<Pod>, bool)| {
            gone.remove(pod.uid());
            let of_it = events.iter().filter(|e| e.uid == pod.uid().as_str());
            self.view(pod, *terminating, of_it.cloned().collect())
        };
        SnapshotUpdate {
            pods: shown.iter().map(&mut view).collect(),
            gone: gone.into_iter().map(|uid| uid.to_string()).collect(),
            problems: changes.files.then(|| self.sources.files.problems()),
            ..self.update(version)
        }
    }

    fn events(&self, after: Option<u64>, ceiling: Duration) -> EventList {
        let version = match after {
            Some(after) => self
                .pods
                .feed
                .wait_newer_of(Aspect::Events, after, ceiling)
                .max(after),
            None => self.pods.feed.version(),
        };
        EventList {
            version,
            node_name: self.settings.get().node_name.clone(),
            events: self.pods.recorder.newer_than(after.unwrap_or(0)),
        }
    }

    fn history(&self, uid: &PodUid) -> PodHistory {
        self.prober.records.history.get(uid)
    }

    fn pod(&self, name: &ContainerName) -> Option<Arc<PodView>> {
        let pod = self.named_pod(name).ok()?;
        Some(self.view(&pod, false, Vec::new()))
    }

    fn running_pods(&self) -> Vec<Value> {
        let mut pods = self.pleg.cache().all();
        pods.retain(|pod| pod.is_running());
        pods.iter().map(|pod| runtime_pod(pod)).collect()
    }

    fn services(&self) -> Option<Vec<ServiceView>> {
        // A daemon that has just started does not know its services yet, so this call waits for the first table of
        // services.
        let views = self
            .services
            .views((self.started + FIRST_READING).since(Moment::now()));
        let is_new = || Moment::now().since(self.started) < FIRST_TABLE;
        views.or_else(|| (!is_new()).then(Vec::new))
    }

    fn workloads(&self, after: Option<u64>, ceiling: Duration) -> WorkloadList {
        // A daemon that has just started has not looked at its workloads yet, and none of them would be found.
        let first = || (self.started + FIRST_READING).since(Moment::now());
        let ceiling = after.map_or_else(first, |_| ceiling);
        self.sources.board.read_newer(after.unwrap_or(0), ceiling)
    }

    fn objects(&self, kind: ObjectKind) -> Vec<Value> {
        self.wait_for_sources(|| false);
        let objects = self.sources.objects.of_kind(kind);
        objects.iter().map(LocalObject::v1).collect()
    }

    fn config(&self) -> Value {
        self.settings.get().in_force()
    }

    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").into()
    }
}

impl DaemonBackend {
    /// Waits right after the daemon's start until every source has been read or has failed, or until `is_enough`.
    pub(super) fn wait_for_sources(&self, is_enough: impl Fn() -> bool) {
        let awaited = |source: &PodSource| !self.sources.files.has_problem(*source);
        while self.sources.config.unseen().iter().any(awaited)
            && Moment::now().since(self.started) < FIRST_READING
            && !is_enough()
        {
            self.pods
                .feed
                .wait_newer(self.pods.feed.version(), FIRST_READING_STEP);
        }
    }

    /// Returns all pods after every source has been read or has failed. Before that, a daemon that has just started
    /// knows no pods.
    fn everything(&self) -> SnapshotUpdate {
        self.wait_for_sources(|| false);
        // The version is read before the pods. A change between the two is reported again with the next version.
        let version = self.pods.feed.version();
        let mut events: HashMap<String, Vec<Arc<Event>>> = HashMap::new();
        for event in self.pods.recorder.list() {
            events.entry(event.uid.clone()).or_default().push(event);
        }
        let mut view = |(pod, terminating): &(Arc<Pod>, bool)| {
            let of_it = events.remove(pod.uid().as_str()).unwrap_or_default();
            self.view(pod, *terminating, of_it)
        };
        SnapshotUpdate {
            complete: true,
            pods: self.shown(|_| true).iter().map(&mut view).collect(),
            problems: Some(self.sources.files.problems()),
            ..self.update(version)
        }
    }

    /// Returns an update without changes.
    fn update(&self, version: u64) -> SnapshotUpdate {
        SnapshotUpdate {
            version,
            node_name: self.settings.get().node_name.clone(),
            stalled: self.heartbeat.stalled(self.started, Moment::now()),
            closed: self.drain.told(),
            ..SnapshotUpdate::default()
        }
    }

    /// Reports the progress of pulls to all watchers. Pulls do not report their progress themselves. Instead each
    /// watcher calls this function at least twice a second.
    fn tell_of_pulls(&self) {
        for uid in self.kuberuntime.images().pulls_to_tell(Moment::now()) {
            self.pods.feed.tell(&uid.as_str().into(), Aspect::Pulls);
        }
    }

    /// Returns the pulls that containers of a pod wait for. A back-off is left out if no container waits for its
    /// image any more.
    fn pulls(&self, pod: &Pod, status: &PodStatus) -> Vec<ImagePull> {
        let images = self.kuberuntime.images();
        let mut pulls = images.pulls_of(pod.uid().as_str(), Moment::now());
        pulls.retain(|pull| match pull.stage {
            PullStage::BackOff { .. } => waits_for_image(pod, status, &pull.image),
            _ => true,
        });
        pulls
    }

    fn network_lacks(&self, pod: &Pod, status: &PodStatus) -> Vec<String> {
        let address = status.pod_ip.parse().ok();
        let address = address.filter(|_| !pod.spec.host_network);
        let missing = address
            .into_iter()
            .flat_map(|ip| self.networks.missing_for(ip));
        missing.map(|m| m.text.clone()).collect()
    }

    /// Returns the pods for which `wanted` is true, among the pods that run or should run and the pods that are
    /// ending. The second value of each pair is true for a pod that is being removed.
    pub(super) fn shown(&self, wanted: impl Fn(&Pod) -> bool) -> Vec<(Arc<Pod>, bool)> {
        // The manager is read before the workers. A pod that is removed leaves the manager only after its worker has
        // the order to end, so no pod is missed.
        let pods = self.pods.manager.all();
        let working = self.workers.working();
        let ending = || working.iter().filter(|(_, removed)| *removed);
        let is_ending = |uid: &PodUid| ending().any(|(pod, _)| pod.uid() == uid);
        let mut seen = HashSet::new();
        let all = pods.into_iter().chain(ending().map(|(pod, _)| pod.clone()));
        all.filter(|pod| wanted(pod) && seen.insert(pod.uid().clone()))
            .map(|pod| {
                let terminating = is_ending(pod.uid());
                (pod, terminating)
            })
            .collect()
    }

    /// Returns advice on probes that the file has changed while the probe workers go on with the old probes.
    fn outdated_probes(&self, pod: &Pod) -> Vec<String> {
        let path = |name: &str| {
            let found = pod.spec.find(name);
            found.map_or_else(|| name.to_owned(), |listed| listed.path())
        };
        let why = "changed, and not acted on: the file gives the pod a uid, so it stays the same pod and keeps the probe it began with";
        let each = |(name, probe_type): (String, _)| {
            format!("{}.{}: {why}", path(&name), probe_field(probe_type))
        };
        self.prober
            .manager
            .outdated(pod)
            .into_iter()
            .map(each)
            .collect()
    }

    fn view(&self, pod: &Arc<Pod>, terminating: bool, events: Vec<Arc<Event>>) -> Arc<PodView> {
        let file = self.sources.files.get(pod.uid()).unwrap_or_default();
        let logs = self
            .layout
            .pod_logs(&pod.metadata.namespace, &pod.metadata.name, pod.uid());
        let status = self.pods.statuses.get(pod.uid()).unwrap_or_default();
        Arc::new(PodView {
            object: pod.clone().into(),
            pulls: self.pulls(pod, &status),
            network_lacks: self.network_lacks(pod, &status),
            status,
            file: file.file,
            warnings: file
                .warnings
                .into_iter()
                .chain(self.outdated_probes(pod))
                .collect(),
            file_error: file.file_error,
            terminating,
            log_dir: logs.display().to_string(),
            paused: self.prober.manager.pauses().of(pod.uid(), Moment::now()),
            events,
        })
    }
}

/// Returns a v1 Pod with the runtime's facts about a pod, as a kubelet returns it.
fn runtime_pod(pod: &RuntimePodStatus) -> Value {
    let running = pod
        .containers
        .iter()
        .filter(|c| c.state == RuntimeState::Running);
    let containers: Vec<Value> = running
        .map(|c| json!({"name": c.name, "image": c.image, "resources": {}}))
        .collect();
    json!({
        "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "spec": {"containers": containers},
        "status": {},
    })
}

/// True if a container that runs or mounts this image is waiting for the image, by the waiting reason of the
/// container.
fn waits_for_image(pod: &Pod, status: &PodStatus, image: &str) -> bool {
    let is_of = |v: &Volume| v.image.as_ref().is_some_and(|i| i.reference == image);
    let mounts = |c: &Container| {
        let mut volumes = pod.spec.volumes.iter().filter(|v| is_of(v));
        volumes.any(|v| c.volume_mounts.iter().any(|m| m.name == v.name))
    };
    let is_of_image = |reason: &str| ImageWaitReason::ALL.iter().any(|r| r.as_str() == reason);
    let waits = |c: &Container| {
        let status = status.container(&c.name);
        let waiting = status.and_then(|s| s.state.waiting.as_ref());
        waiting.is_some_and(|w| is_of_image(&w.reason))
    };
    let mut all = pod.spec.all_containers();
    all.any(|c| (c.image == image || mounts(c)) && waits(c))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::base::paths::Layout;
    use crate::daemon::Daemon;
    use crate::daemon::settings::Settings;
    use crate::face::server::protocol::PauseTarget;

    const CEILING: Duration = Duration::from_secs(60);

    fn file(dir: &Path, uid: &str) {
        let probe = json!({"exec": {"command": ["true"]}});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": uid, "uid": uid},
            "spec": {"containers": [{"name": "c", "image": "i", "livenessProbe": probe}]}});
        std::fs::write(dir.join(format!("{uid}.json")), pod.to_string()).unwrap();
    }

    fn uids(pods: &[Arc<PodView>]) -> Vec<&str> {
        pods.iter().map(|p| p.uid()).collect()
    }

    /// A client that asks right after the daemon's start gets every pod, and a watcher gets only the pods that change.
    /// All pods of this test have ended already, so the daemon starts no containers.
    #[test]
    fn a_daemon_that_has_just_started_knows_its_pods_and_a_watcher_gets_what_changed() {
        if !crate::skip::is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        let pods = layout.pods_dir();
        std::fs::create_dir_all(&pods).unwrap();
        std::fs::create_dir_all(layout.lib_dir()).unwrap();
        ["a", "b", "c"].iter().for_each(|uid| file(&pods, uid));
        let ended = json!({"phase": "Succeeded"});
        let statuses = json!({"a": ended, "b": ended, "c": ended});
        let checkpoint = json!({"version": 1, "statuses": statuses});
        std::fs::write(layout.checkpoint(), checkpoint.to_string()).unwrap();
        let settings = Settings {
            static_pod_path: pods.clone(),
            ..Settings::default()
        };
        let daemon = Daemon::start(settings, layout).unwrap();
        let backend = daemon.backend();
        let mut known = backend.snapshot();
        assert_eq!(
            uids(&known.pods),
            ["a", "b", "c"],
            "not before the files were read"
        );
        assert!(known.pods.iter().all(|p| p.status.phase.is_terminal()));

        let target = PauseTarget {
            uid: "b".into(),
            container: None,
            probe_type: None,
        };
        backend.pause(&target, CEILING).unwrap();
        let deadline = Moment::now() + CEILING;
        let mut update = SnapshotUpdate::default();
        let mut next = |known: &mut Arc<Snapshot>| {
            assert!(Moment::now() < deadline, "{known:?}");
            update = backend.watch(known.version, CEILING);
            assert!(!update.complete, "no reader is that far behind");
            *known = Arc::new(known.updated(update.clone()));
            (uids(&update.pods).join(" "), update.gone.clone())
        };
        let paused = |s: &Snapshot| s.pods.iter().filter(|p| !p.paused.is_empty()).count();
        let mut seen = Vec::new();
        while paused(&known) == 0 {
            seen.push(next(&mut known).0);
        }
        assert_eq!(seen.last().unwrap(), "b");

        std::fs::remove_file(pods.join("c.json")).unwrap();
        let mut gone = Vec::new();
        while uids(&known.pods).contains(&"c") {
            gone = next(&mut known).1;
        }
        assert_eq!(gone, ["c"]);
        assert_eq!(uids(&backend.snapshot().pods), uids(&known.pods));
        assert!(backend.watch(known.version + 1000, CEILING).complete);
        daemon.shutdown(CEILING).unwrap();
    }
}
