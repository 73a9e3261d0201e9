//! Tests of the syncs on the fake runtime: the calls that the runtime gets, their order, and the events that a person
//! sees. The tests in tests/engine/runtime.rs and tests/kubelet/day.rs check that containers really start and end.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use serde_json::{Value, json};

use super::*;
use crate::api::objects::{ConfigMap, LocalObject, ObjectContent, ObjectKey, ObjectKind};
use crate::api::{HookKind, PodPhase, PodSource};
use crate::base::paths::Layout;
use crate::engine::images::manager::{ImageManager, ImageService, NoRegistry};
use crate::engine::images::{Image, ImageConfig, ImageError};
use crate::engine::runtime::{
    RuntimeContainerStatus, RuntimeError, RuntimeErrorKind, RuntimeState,
};
use crate::fake_runtime::{FakeRuntime, end};
use crate::pods::container_config::NodeFacts;
use crate::pods::events::Event;
use crate::pods::history::History;
use crate::pods::lifecycle::{Failure, HookError, HookSubject, Hooks};
use crate::pods::objects::Objects;
use crate::pods::volumes::Volumes;
use crate::pods::workers::UpdateKind;
use crate::pods::workers::begun_stops::{BegunStop, Stop, StopStage};

/// An image service that has every image except `missing`.
struct Images;

impl ImageService for Images {
    fn image(&self, reference: &str) -> Result<Image, ImageError> {
        if reference == "missing" {
            let (reference, similar) = (reference.to_owned(), Vec::new());
            return Err(ImageError::NotFound { reference, similar });
        }
        Ok(Image {
            id: "sha256:1".into(),
            name: reference.into(),
            pulled: false,
            config: ImageConfig::default(),
            layers: Vec::new(),
        })
    }
}

impl PodCache for FakeRuntime {
    fn newer_than(&self, uid: &PodUid, _: Moment) -> Result<Arc<RuntimePodStatus>, CacheError> {
        Ok(Arc::new((self as &dyn Runtime).pod_status(uid).unwrap()))
    }
    fn request_relist(&self, _: &PodUid) {
        self.state().calls.push("relist".into());
    }
}

#[derive(Default)]
struct FakeProbes {
    calls: Mutex<Vec<&'static str>>,
    liveness: Mutex<HashMap<ContainerId, ProbeResult>>,
    history: History,
    /// The status manager, from which a trigger reads the stored status.
    statuses: OnceLock<Arc<StatusManager>>,
    triggers: AtomicUsize,
    /// A change that comes while a status is computed. Until then nothing is ready.
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Probes for FakeProbes {
    fn add_pod(&self, _: &Arc<Pod>) {
        self.calls.lock().unwrap().push("add");
    }
    fn stop_liveness_and_startup(&self, _: &Pod) {
        self.calls.lock().unwrap().push("stop liveness and startup");
    }
    fn remove_pod(&self, _: &Pod) {
        self.calls.lock().unwrap().push("remove");
    }
    fn update_pod_status(&self, _: &Pod, status: &mut PodStatus) {
        let meanwhile = self.meanwhile.lock().unwrap().take();
        status
            .container_statuses
            .iter_mut()
            .for_each(|c| c.ready = meanwhile.is_none() && c.state.running.is_some());
        if let Some(change) = meanwhile {
            change();
        }
    }
    fn trigger_workers(&self, pod: &Pod, stored: &PodStatus) {
        let statuses = self.statuses.get().unwrap();
        assert_eq!(*statuses.get(pod.uid()).unwrap(), *stored);
        self.triggers.fetch_add(1, Ordering::Relaxed);
    }
    fn killing(&self, pod: &Pod, kill: &ToKill) {
        self.history.killing(pod.uid(), kill);
    }
    fn renewing(&self, pod: &Pod, container: &str, cause: &str) {
        self.history.renewing(pod.uid(), container, cause);
    }
    fn restarted(
        &self,
        pod: &Pod,
        container: &str,
        attempt: u32,
        before: Option<&RuntimeContainerStatus>,
    ) {
        self.history
            .restarted(pod.uid(), container, attempt, before, Time::now());
    }
    fn liveness(&self, id: &ContainerId) -> Option<ProbeResult> {
        self.liveness.lock().unwrap().get(id).copied()
    }
    fn startup(&self, _: &ContainerId) -> Option<ProbeResult> {
        None
    }
}

/// Records each call: the number of calls that the runtime had before, and whether the pod was Ready.
struct FakeTraffic {
    runtime: Arc<FakeRuntime>,
    statuses: Arc<StatusManager>,
    asked: Mutex<Vec<(usize, bool)>>,
}

impl Traffic for FakeTraffic {
    fn wait_until_withdrawn(&self) {
        let ready = self.statuses.get(&"u".into()).is_some_and(|s| s.is_ready());
        let calls = self.runtime.state().calls.len();
        self.asked.lock().unwrap().push((calls, ready));
    }
}

struct Harness {
    syncer: Syncer,
    runtime: Arc<FakeRuntime>,
    probes: Arc<FakeProbes>,
    statuses: Arc<StatusManager>,
    traffic: Arc<FakeTraffic>,
    recorder: Arc<Recorder>,
    objects: Arc<Objects>,
    evictions: Arc<Evictions>,
    pod: Arc<Pod>,
    dir: tempfile::TempDir,
}

/// A node with 2 processors and 1 GiB of memory.
fn node() -> admission::Node {
    admission::Node {
        name: "n".into(),
        labels: Default::default(),
        awaits_labels: false,
        cpu_milli: 2000,
        memory: 1 << 30,
        huge_pages: Default::default(),
        max_pods: 110,
        sysctls: Default::default(),
        app_armor: false,
    }
}

/// Opens the evictions under this root, as a daemon does at its start.
fn evictions(root: &std::path::Path) -> Arc<Evictions> {
    let (layout, wake) = (Layout::new(root), crossbeam_channel::bounded(1).0);
    let pods = KubeRuntime::pods_with_data(&layout);
    let ceiling = Duration::from_secs(300);
    Arc::new(Evictions::open(&layout, &pods, ceiling, wake))
}

impl Harness {
    fn new(spec: Value) -> Self {
        hooked(spec, |_, _, _| Ok(()))
    }

    fn on(spec: Value, runtime: Arc<FakeRuntime>, hooks: Arc<dyn Hooks>) -> Self {
        let metadata =
            serde_json::from_value(json!({"name": "p", "namespace": "default", "uid": "u"}))
                .unwrap();
        let pod = Arc::new(Pod {
            metadata,
            spec: serde_json::from_value(spec).unwrap(),
            raw: Default::default(),
        });
        let probes = Arc::<FakeProbes>::default();
        let statuses = Arc::new(StatusManager::new(HashMap::new(), Arc::default()));
        let _ = probes.statuses.set(statuses.clone());
        let recorder = Arc::<Recorder>::default();
        let dir = tempfile::tempdir().unwrap();
        let objects = Arc::<Objects>::default();
        let kuberuntime = KubeRuntime::new(
            runtime.clone(),
            ImageManager::new(Arc::new(Images), Box::new(NoRegistry)),
            Volumes::new(),
            objects.clone(),
            NodeFacts::default(),
            Layout::new(dir.path()),
        );
        let evictions = evictions(dir.path());
        let traffic = Arc::new(FakeTraffic {
            runtime: runtime.clone(),
            statuses: statuses.clone(),
            asked: Mutex::default(),
        });
        let syncer = Syncer::new(Deps {
            kuberuntime: Arc::new(kuberuntime),
            hooks,
            cache: runtime.clone(),
            probes: probes.clone(),
            statuses: statuses.clone(),
            traffic: traffic.clone(),
            evictions: evictions.clone(),
            restarts: Arc::default(),
            stops: Arc::new(BegunStops::open(&Layout::new(dir.path()))),
            recorder: recorder.clone(),
            metrics: Arc::default(),
            pods: Arc::default(),
            node: Box::new(node),
            node_ip: "192.0.2.1".parse().unwrap(),
            max_back_off: Duration::from_secs(300),
        });
        Self {
            syncer,
            runtime,
            probes,
            statuses,
            traffic,
            recorder,
            objects,
            evictions,
            pod,
            dir,
        }
    }

    fn one() -> Self {
        Self::new(
            json!({"terminationGracePeriodSeconds": 30, "containers": [{"name": "c", "image": "i"}]}),
        )
    }

    fn run(&self, phase: Phase) -> Outcome {
        self.syncer.run(
            &Work {
                phase,
                asked: UpdateKind::Sync,
                pod: self.pod.clone(),
                grace: 7,
                runtime_only: false,
                removed: true,
            },
            &Cancel::default(),
        )
    }

    fn pod_dir(&self) -> std::path::PathBuf {
        Layout::new(self.dir.path()).pod_data(self.pod.uid())
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.runtime.state().calls)
    }

    fn end_newest(&self, code: i32) {
        end(&mut self.runtime.state().containers[0], code);
    }

    /// Sets the finish time of the newest instance to this many seconds ago.
    fn ended_before(&self, seconds: u64) {
        let newest = &mut self.runtime.state().containers[0];
        newest.finished = Some(Moment::now() - Duration::from_secs(seconds));
    }

    fn status(&self) -> Arc<PodStatus> {
        self.statuses.get(self.pod.uid()).unwrap()
    }

    fn events(&self) -> Vec<Arc<Event>> {
        self.recorder.list()
    }

    /// Returns the container and the cause of each restart.
    fn causes(&self) -> Vec<(String, String)> {
        self.probes
            .history
            .get(self.pod.uid())
            .restarts
            .into_iter()
            .map(|r| (r.container, r.cause))
            .collect()
    }

    /// Returns the reason and the text of each event, without the events about images.
    fn texts(&self) -> Vec<String> {
        self.events()
            .into_iter()
            .filter(|e| e.reason != "Pulled")
            .map(|e| format!("{} {}", e.reason, e.message))
            .collect()
    }
}

/// The worker of a pod computes a status with the results of probes, and stores it a moment later.
#[test]
fn a_ready_that_comes_while_a_status_is_computed_stays() {
    let h = Harness::one();
    h.run(Phase::Sync);
    h.run(Phase::Sync);
    let id = ContainerId::from(h.status().container_statuses[0].container_id.as_str());
    h.statuses.set_container_readiness(&h.pod, &id, false);
    let (statuses, pod) = (h.statuses.clone(), h.pod.clone());
    let becomes_ready = move || statuses.set_container_readiness(&pod, &id, true);
    *h.probes.meanwhile.lock().unwrap() = Some(Box::new(becomes_ready));
    h.run(Phase::Sync);
    assert!(h.probes.meanwhile.lock().unwrap().is_none());
    assert!(h.status().is_ready());
}

#[test]
fn a_new_pod_gets_its_probes_a_sandbox_and_its_containers() {
    let h = Harness::one();
    assert_eq!(h.run(Phase::Sync), Outcome::Ok);
    assert_eq!(
        h.calls(),
        ["sandbox 0", "create c 0", "start c 0", "relist"]
    );
    assert_eq!(*h.probes.calls.lock().unwrap(), ["add"]);
    assert_eq!(
        h.texts(),
        ["Created Container created", "Started Container started"]
    );
    assert_eq!(
        h.probes.triggers.load(Ordering::Relaxed),
        1,
        "after the status was stored"
    );
    assert_eq!(h.run(Phase::Sync), Outcome::Ok);
    assert_eq!(
        (h.calls(), h.status().phase),
        (vec![], PodPhase::Running),
        "nothing to do, and the status says it runs"
    );
}

/// Checks that the metrics have these lines. Each line is a kubelet metric's name without its prefix, followed by its
/// value.
#[track_caller]
fn counted(h: &Harness, lines: &[&str]) {
    let mut text = String::new();
    h.syncer.deps.metrics.write(&mut text);
    for line in lines {
        let line = format!("kubelet_{line}");
        assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
    }
}

#[test]
fn starts_and_syncs_are_counted() {
    let init = json!({"name": "init", "image": "i"});
    let h = Harness::new(
        json!({"initContainers": [init], "containers": [{"name": "c", "image": "missing"}]}),
    );
    h.run(Phase::Sync);
    h.end_newest(0);
    h.run(Phase::Sync);
    counted(
        &h,
        &[
            "pod_worker_duration_seconds_count{operation_type=\"sync\"} 2",
            "pod_worker_duration_seconds_count{operation_type=\"create\"} 0",
            "pod_start_duration_seconds_count 0",
            "started_pods_total 1",
            "started_pods_errors_total 0",
            "started_containers_total{container_type=\"init_container\"} 1",
            "started_containers_total{container_type=\"container\"} 1",
            "started_containers_errors_total{code=\"ErrImageNeverPull\",container_type=\"container\"} 1",
        ],
    );
    let h = Harness::one();
    (0..3).for_each(|_| drop(h.run(Phase::Sync)));
    counted(&h, &["pod_start_duration_seconds_count 1"]);
    h.end_newest(1);
    h.run(Phase::Sync);
    h.run(Phase::Sync);
    counted(
        &h,
        &[
            "pod_start_duration_seconds_count 1",
            "started_containers_total{container_type=\"container\"} 2",
        ],
    );
    let h = Harness::one();
    h.runtime.state().sandbox_error = Some(RuntimeError::failed("no namespaces"));
    h.run(Phase::Sync);
    counted(&h, &["started_pods_total 1", "started_pods_errors_total 1"]);
}

#[test]
fn a_pod_waits_for_its_objects_before_it_gets_a_sandbox() {
    let volume = json!({"name": "v", "configMap": {"name": "conf"}});
    let h = Harness::new(json!({"containers": [{"name": "c", "image": "i"}], "volumes": [volume]}));
    let text = "MountVolume.SetUp failed for volume \"v\" : configmap \"conf\" not found";
    let failed = Outcome::Failed {
        error: text.into(),
        retry_at: None,
    };
    assert_eq!(h.run(Phase::Sync), failed);
    assert_eq!(h.calls(), ["relist"]);
    assert_eq!(h.texts(), [format!("FailedMount {text}")]);
    let waiting = h.status().container_statuses[0].state.waiting.clone();
    assert_eq!(waiting.unwrap().reason, "ContainerCreating");
}

#[test]
fn the_first_restart_is_at_once_and_the_next_waits_ten_seconds_from_the_end() {
    let h = Harness::one();
    h.run(Phase::Sync);
    h.end_newest(1);
    assert_eq!(h.run(Phase::Sync), Outcome::Ok);
    h.end_newest(1);
    h.calls();
    let Outcome::Failed {
        error,
        retry_at: Some(at),
    } = h.run(Phase::Sync)
    else {
        panic!("held back")
    };
    let finished = h.runtime.state().containers[0].finished.unwrap();
    assert_eq!(
        (error.as_str(), at),
        ("", finished + Duration::from_secs(10))
    );
    assert!(!h.calls().iter().any(|c| c.starts_with("start")));
    let status = h.status();
    let waiting = status.container_statuses[0].state.waiting.clone().unwrap();
    assert_eq!(waiting.reason, "CrashLoopBackOff");
    assert_eq!(
        waiting.message,
        "back-off 10s restarting failed container=c pod=p_default(u)"
    );
    assert_eq!(
        h.events().last().unwrap().message,
        "Back-off restarting failed container c in pod p_default(u)"
    );
    h.ended_before(11);
    assert_eq!(h.run(Phase::Sync), Outcome::Ok);
    assert!(h.calls().contains(&"start c 2".to_owned()));
    assert!(
        h.run(Phase::Sync) == Outcome::Ok
            && h.status().container_statuses[0].state.running.is_some(),
        "the failure is forgotten"
    );
}

/// Lessons E2: the back-off after a kill by a probe counts from the end of the killed instance. The kubelet used the
/// finish time of an older instance, so every second kill by a probe had no back-off.
#[test]
fn e2_a_kill_by_a_probe_counts_from_its_own_end() {
    let h = Harness::one();
    h.run(Phase::Sync);
    for round in 0..2 {
        // If the back-off counted from the end of an older instance, the back-off would be over.
        for ended in h
            .runtime
            .state()
            .containers
            .iter_mut()
            .filter(|c| c.state == RuntimeState::Exited)
        {
            ended.finished = Some(Moment::now() - Duration::from_secs(100));
        }
        let id = h.runtime.state().containers[0].id.clone();
        h.probes
            .liveness
            .lock()
            .unwrap()
            .insert(id, ProbeResult::Failure);
        h.calls();
        let outcome = h.run(Phase::Sync);
        let calls = h.calls();
        assert!(calls[0].starts_with("stop "), "{calls:?}");
        let started = calls.iter().any(|c| c.starts_with("start"));
        assert_eq!(started, round == 0, "round {round}: {outcome:?} {calls:?}");
    }
    let killing = h
        .events()
        .into_iter()
        .find(|e| e.reason == "Killing")
        .unwrap();
    assert_eq!(
        (killing.message.as_str(), killing.count),
        ("Container c failed liveness probe, will be restarted", 2)
    );
    let restarts = h.probes.history.get(h.pod.uid()).restarts;
    let causes: Vec<_> = restarts
        .iter()
        .map(|r| (r.attempt, r.cause.as_str()))
        .collect();
    assert!(
        matches!(causes.as_slice(), [(1, cause)] if cause.starts_with("failed liveness probe (exit code ")),
        "{causes:?}"
    );
}

#[test]
fn the_newest_two_instances_are_kept() {
    let h = Harness::one();
    for _ in 0..4 {
        h.run(Phase::Sync);
        h.end_newest(1);
        h.ended_before(100_000);
    }
    let attempts: Vec<u32> = h
        .runtime
        .state()
        .containers
        .iter()
        .map(|c| c.metadata.attempt)
        .collect();
    assert_eq!(attempts, [3, 2]);
}

/// Returns the reason and the message that the pod shows while a container waits.
#[track_caller]
fn waiting(h: &Harness) -> (String, String) {
    let status = h.status();
    let waiting = status.container_statuses[0].state.waiting.clone().unwrap();
    (waiting.reason, waiting.message)
}

#[test]
fn a_start_failure_is_shown_and_tried_again() {
    let h = Harness::one();
    let failed = |e: RuntimeError, at_start| {
        let mut state = h.runtime.state();
        match at_start {
            true => state.start_errors.push_back(e),
            false => state.create_errors.push_back(e),
        }
        drop(state);
        let outcome = h.run(Phase::Sync);
        assert!(matches!(outcome, Outcome::Failed { retry_at: None, .. }));
        waiting(&h).0
    };
    let invalid = RuntimeError::new(RuntimeErrorKind::InvalidConfig, "no such user");
    assert_eq!(failed(invalid, false), "CreateContainerConfigError");
    assert_eq!(
        failed(RuntimeError::failed("no disk"), false),
        "CreateContainerError"
    );
    assert_eq!(
        h.texts(),
        ["Failed Error: no such user", "Failed Error: no disk"]
    );
    assert_eq!(
        failed(RuntimeError::failed("no such file"), true),
        "RunContainerError"
    );
    assert_eq!(
        h.texts()[2..],
        ["Created Container created", "Failed Error: no such file"]
    );
    assert_eq!(h.run(Phase::Sync), Outcome::Ok);
}

/// Equal failures of several attempts are one event, although each attempt has its own container id.
#[test]
fn equal_failures_are_one_event_whatever_the_ids_in_them() {
    let h = Harness::one();
    for digit in ["1", "a"] {
        let id = digit.repeat(64);
        let text = format!("cannot create container {id}: /run/{id}/x: no such user");
        let error = RuntimeError::failed(text);
        h.runtime.state().create_errors.push_back(error);
        h.run(Phase::Sync);
    }
    let text = "cannot create container: /run/<id>/x: no such user";
    assert_eq!(h.texts(), [format!("Failed Error: {text}")]);
    assert_eq!(h.events()[0].count, 2);
    let waiting = h.status().container_statuses[0].state.waiting.clone();
    assert_eq!(waiting.unwrap().message, text);
}

/// A container whose start is cut short by the end of the daemon gets no event, because the next daemon starts the
/// container.
#[test]
fn what_the_end_of_the_daemon_cuts_short_is_no_event() {
    let h = Harness::one();
    let text = format!("cannot start the container: {ENDING}");
    let error = RuntimeError::failed(text);
    h.runtime.state().create_errors.push_back(error);
    assert!(matches!(h.run(Phase::Sync), Outcome::Failed { .. }));
    assert_eq!(h.texts(), [] as [&str; 0]);
}

#[test]
fn an_image_that_is_not_there_is_asked_for_before_anything_is_created() {
    let h = Harness::new(json!({"containers": [{"name": "c", "image": "missing"}]}));
    assert!(matches!(h.run(Phase::Sync), Outcome::Failed { .. }));
    let (reason, message) = waiting(&h);
    assert_eq!(reason, "ErrImageNeverPull");
    assert!(
        message.contains("cannot find image \"missing\""),
        "{message}"
    );
    assert_eq!(
        h.texts(),
        [
            format!("ErrImageNeverPull {message}"),
            "Failed Error: ErrImageNeverPull".into()
        ]
    );
    assert_eq!(h.calls(), ["sandbox 0", "relist"]);
}

/// A sync ensures each image once, even if several containers mount it. The events of these images are events of the
/// pod.
#[test]
fn the_images_of_volumes_are_ensured_before_the_containers_that_mount_them() {
    let volume = |name: &str, reference: &str| json!({"name": name, "image": {"reference": reference, "pullPolicy": "Never"}});
    let container = |name: &str, volumes: &[&str]| {
        let mounts = volumes
            .iter()
            .map(|v| json!({"name": v, "mountPath": format!("/{v}"), "subPath": "d"}));
        json!({"name": name, "image": "i", "volumeMounts": mounts.collect::<Vec<_>>()})
    };
    let containers = [
        container("a", &["gone"]),
        container("b", &["gone", "there"]),
        container("c", &["there"]),
    ];
    let volumes = [
        volume("gone", "missing"),
        volume("there", "data:1"),
        volume("unused", "missing"),
    ];
    let h = Harness::new(json!({"containers": containers, "volumes": volumes}));
    assert!(matches!(h.run(Phase::Sync), Outcome::Failed { .. }));
    assert_eq!(
        h.calls(),
        ["sandbox 0", "create c 0", "start c 0", "relist"]
    );
    let (reason, message) = waiting(&h);
    assert_eq!(reason, "ErrImageNeverPull");
    let text = "Container image \"missing\" is not present with pull policy of Never: ";
    assert!(message.starts_with(text), "{message}");
    let events: Vec<_> = h
        .events()
        .iter()
        .map(|e| (e.field_path.clone(), e.reason.clone(), e.count))
        .filter(|e| e.0 != "spec.containers{c}")
        .collect();
    let event = |field: &str, reason: &str| (field.to_owned(), reason.to_owned(), 1);
    assert_eq!(
        events,
        [
            event("", "ErrImageNeverPull"),
            event("spec.containers{a}", "Failed"),
            event("spec.containers{b}", "Failed"),
            event("", "Pulled"),
        ]
    );
    let state = h.runtime.state();
    let mount = &state.configs[0].mounts[0];
    let image = mount.image.clone().unwrap();
    assert_eq!((&*image.id, &*image.name), ("sha256:1", "data:1"));
    assert_eq!(mount.sub_path.as_deref(), Some("d".as_ref()));
    assert!(mount.read_only && mount.host_path.as_os_str().is_empty());
}

/// A restart of a container does not write the files of /etc again, because a running container may have changed these
/// files, and reads them at any time.
#[test]
fn files_of_etc_are_written_with_the_sandbox_and_not_with_a_restart() {
    let h = Harness::one();
    h.run(Phase::Sync);
    let hosts = h.pod_dir().join("etc-hosts");
    std::fs::write(&hosts, "own").unwrap();
    h.end_newest(1);
    h.run(Phase::Sync);
    assert!(h.calls().contains(&"start c 1".to_owned()));
    assert_eq!(std::fs::read_to_string(hosts).unwrap(), "own");
}

/// Missing files of /etc are written before a container is created. The daemon may have been killed after it made the
/// sandbox and before it wrote the files.
#[test]
fn files_of_etc_that_are_missing_are_written_before_a_container() {
    let h = Harness::one();
    h.run(Phase::Sync);
    let hosts = h.pod_dir().join("etc-hosts");
    let written = std::fs::read_to_string(&hosts).unwrap();
    assert!(written.contains("\n127.0.0.1\t"), "{written}");
    std::fs::remove_file(&hosts).unwrap();
    h.end_newest(1);
    h.run(Phase::Sync);
    assert!(h.calls().contains(&"start c 1".to_owned()));
    assert_eq!(std::fs::read_to_string(hosts).unwrap(), written);
}

/// The files of /etc are removed before a new sandbox is made. The new sandbox has other addresses, so the old files
/// must not count as its files.
#[test]
fn files_of_etc_are_gone_before_the_sandbox_that_follows() {
    let h = Harness::one();
    h.run(Phase::Sync);
    let hosts = h.pod_dir().join("etc-hosts");
    assert!(hosts.exists());
    h.runtime.state().sandboxes[0].ready = false;
    h.runtime.state().sandbox_error = Some(RuntimeError::failed("no namespaces"));
    assert!(matches!(h.run(Phase::Sync), Outcome::Failed { .. }));
    assert!(h.calls().contains(&"sandbox 1".to_owned()));
    assert!(!hosts.exists());
}

#[test]
fn a_volume_that_is_not_ready_keeps_the_pod_from_its_sandbox() {
    let h = Harness::new(json!({"containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "v", "hostPath": {"path": "/nowhere/at/all", "type": "Directory"}}]}));
    assert!(matches!(h.run(Phase::Sync), Outcome::Failed { .. }));
    assert_eq!(waiting(&h).0, "ContainerCreating");
    assert_eq!(h.calls(), ["relist"]);
    let text = "FailedMount MountVolume.SetUp failed for volume \"v\" : hostPath /nowhere/at/all doesn't exist";
    assert!(h.texts()[0].starts_with(text), "{:?}", h.texts());
}

#[test]
fn what_is_to_be_said_of_the_resolver_is_an_event_of_the_pod() {
    let own = json!({"nameservers": ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"]});
    let h = Harness::new(json!({"containers": [{"name": "c", "image": "i"}],
        "dnsPolicy": "None", "dnsConfig": own}));
    h.run(Phase::Sync);
    let text = "DNSConfigForming Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: 192.0.2.1 192.0.2.2 192.0.2.3";
    assert_eq!(h.texts()[0], text);
    assert!(h.calls().contains(&"start c 0".to_owned()));
}

#[test]
fn a_host_name_that_is_too_long_keeps_the_pod_from_its_sandbox() {
    let h = Harness::new(json!({"containers": [{"name": "c", "image": "i"}],
        "subdomain": "s".repeat(60), "setHostnameAsFQDN": true}));
    assert!(matches!(h.run(Phase::Sync), Outcome::Failed { .. }));
    assert_eq!(waiting(&h).0, "ContainerCreating");
    let text = "FailedCreatePodSandBox Failed to create pod sandbox: failed to construct FQDN";
    assert!(h.texts()[0].starts_with(text), "{:?}", h.texts());
}

type HookAnswer = dyn Fn(HookKind, &str, &Cancel) -> Result<(), HookError> + Send + Sync;

/// Hooks that the test answers by kind and container. Each hook is recorded as a call of the runtime, so that the test
/// sees the order of hooks and other calls.
struct Scripted {
    runtime: Arc<FakeRuntime>,
    answer: Box<HookAnswer>,
}

impl Scripted {
    fn run(&self, kind: HookKind, s: HookSubject<'_>, cancel: &Cancel) -> Result<(), HookError> {
        if s.container.hook(kind).is_none() {
            return Ok(());
        }
        let name = &s.container.name;
        let call = format!("{} {name}", kind.field());
        self.runtime.state().calls.push(call);
        (self.answer)(kind, name, cancel)
    }
}

impl Hooks for Scripted {
    fn pre_stop(
        &self,
        s: HookSubject<'_>,
        _: Duration,
        ran: Duration,
        c: &Cancel,
    ) -> Result<(), HookError> {
        if ran.as_secs() > 0 {
            let call = format!("ran {}", ran.as_secs());
            self.runtime.state().calls.push(call);
        }
        self.run(HookKind::PreStop, s, c)
    }

    fn post_start(&self, s: HookSubject<'_>, c: &Cancel) -> Result<(), HookError> {
        self.run(HookKind::PostStart, s, c)
    }
}

fn hooked(
    spec: Value,
    answer: impl Fn(HookKind, &str, &Cancel) -> Result<(), HookError> + Send + Sync + 'static,
) -> Harness {
    let runtime = Arc::<FakeRuntime>::default();
    let hooks = Scripted {
        runtime: runtime.clone(),
        answer: Box::new(answer),
    };
    Harness::on(spec, runtime, Arc::new(hooks))
}

/// Makes a harness with one container that has both hooks.
fn with_hooks(
    answer: impl Fn(HookKind, &str, &Cancel) -> Result<(), HookError> + Send + Sync + 'static,
) -> Harness {
    let both = json!({"preStop": {"sleep": {}}, "postStart": {"sleep": {}}});
    let spec = json!({"terminationGracePeriodSeconds": 30,
        "containers": [{"name": "c", "image": "i", "lifecycle": both}]});
    hooked(spec, answer)
}

fn failed(text: &str) -> Result<(), HookError> {
    Err(HookError::Failed(Failure {
        text: text.to_owned(),
        cause: "why".into(),
    }))
}

#[test]
fn a_pre_stop_hook_runs_before_the_kill_and_a_failure_of_it_delays_nothing() {
    for fails in [false, true] {
        let h = with_hooks(move |kind, _, _| match kind == HookKind::PreStop && fails {
            true => failed("a secret"),
            false => Ok(()),
        });
        h.run(Phase::Sync);
        h.calls();
        assert_eq!(h.run(Phase::Terminating), Outcome::Ok);
        assert_eq!(
            h.calls(),
            ["preStop c", "stop 2 7", "stop sandbox", "relist"]
        );
        let text = "FailedPreStopHook PreStopHook failed: why".to_owned();
        assert_eq!(h.texts().contains(&text), fails);
        assert!(h.texts().iter().all(|t| !t.contains("secret")));
    }
}

#[test]
fn without_a_grace_period_a_pre_stop_hook_is_not_run() {
    let h = with_hooks(|_, _, _| Ok(()));
    h.run(Phase::Sync);
    h.calls();
    let cancel = Cancel::default();
    let runtime = h.syncer.runtime().pod_status(h.pod.uid()).unwrap();
    h.syncer
        .kill_pod(&h.pod, &runtime, Some(0), &mut Problems::new(&cancel));
    assert_eq!(h.calls(), ["stop 2 2", "stop sandbox"]);
}

#[test]
fn a_kill_by_a_liveness_probe_runs_the_pre_stop_hook_too() {
    let h = with_hooks(|_, _, _| Ok(()));
    h.run(Phase::Sync);
    h.calls();
    let id = h.runtime.state().containers[0].id.clone();
    let results = &h.probes.liveness;
    results.lock().unwrap().insert(id, ProbeResult::Failure);
    h.run(Phase::Sync);
    assert_eq!(h.calls()[..2], ["preStop c", "stop 2 30"]);
}

impl Harness {
    /// Lets the next daemon find this stop of the newest container.
    fn next_daemon_finds(&mut self, left: Duration, stage: StopStage) {
        let layout = Layout::new(self.dir.path());
        let id = self.runtime.state().containers[0].id.clone();
        std::fs::create_dir_all(layout.containers().join(id.as_str())).unwrap();
        let now = Moment::now();
        let (since, until) = (now - Duration::from_secs(100), now + left);
        let stop = Stop { since, stage };
        self.syncer.deps.stops.note(&id, BegunStop { stop, until });
        self.next_daemon();
        self.calls();
    }

    fn next_daemon(&mut self) {
        self.syncer.deps.stops = Arc::new(BegunStops::open(&Layout::new(self.dir.path())));
    }
}

/// Returns the seconds of the first stop among these calls.
fn seconds_of(calls: &[String]) -> u64 {
    let stop = calls.iter().find(|c| c.starts_with("stop 2 ")).unwrap();
    stop["stop 2 ".len()..].parse().unwrap()
}

#[test]
fn a_stop_goes_on_under_the_next_daemon_with_what_is_left_of_it() {
    let five = Duration::from_secs(5);
    for (stage, runs_hook) in [
        (StopStage::Begun, true),
        (StopStage::HookDone, false),
        (StopStage::Signalled, false),
    ] {
        let mut h = with_hooks(|_, _, _| Ok(()));
        h.run(Phase::Sync);
        h.next_daemon_finds(five, stage);
        assert_eq!(h.run(Phase::Terminating), Outcome::Ok);
        let calls = h.calls();
        let hook = ["ran 100", "preStop c"].map(str::to_owned);
        assert_eq!(calls.starts_with(&hook), runs_hook, "{stage:?}: {calls:?}");
        assert!(seconds_of(&calls) < 5, "{stage:?}: {calls:?}");
    }
}

/// A daemon that is killed again and again must not keep a container alive by the least time that each of them gives.
#[test]
fn a_stop_whose_time_is_up_ends_at_once_under_the_next_daemon() {
    for (stage, seconds) in [(StopStage::Signalled, 0), (StopStage::HookDone, 2)] {
        let mut h = with_hooks(|_, _, _| Ok(()));
        h.run(Phase::Sync);
        h.next_daemon_finds(Duration::ZERO, stage);
        h.run(Phase::Terminating);
        assert_eq!(seconds_of(&h.calls()), seconds, "{stage:?}");
    }
}

#[test]
fn a_stop_that_has_less_time_now_is_not_given_what_it_had() {
    let mut h = Harness::one();
    h.run(Phase::Sync);
    h.next_daemon_finds(Duration::from_secs(1000), StopStage::Signalled);
    h.run(Phase::Terminating);
    assert_eq!(seconds_of(&h.calls()), 7);
}

/// Without the record the grace period would be that of an orphan, because nobody knows the pod's spec.
#[test]
fn a_stop_of_a_pod_whose_file_is_gone_has_the_time_that_it_was_given() {
    let mut h = Harness::one();
    h.run(Phase::Sync);
    h.next_daemon_finds(Duration::from_secs(1000), StopStage::Signalled);
    let pod = Pod {
        spec: Default::default(),
        ..(*h.pod).clone()
    };
    let runtime = h.syncer.runtime().pod_status(h.pod.uid()).unwrap();
    let cancel = Cancel::default();
    h.syncer
        .kill_pod(&pod, &runtime, Some(1), &mut Problems::new(&cancel));
    assert!(seconds_of(&h.calls()) > 100);
}

/// The container has had the stop signal, and may have begun to end. The next daemon does not know why, because failures
/// of a probe are in memory only.
#[test]
fn a_container_whose_stop_was_begun_is_replaced_by_the_next_daemon() {
    let sidecar = json!({"name": "c", "image": "i", "restartPolicy": "Always"});
    let one = json!([{"name": "c", "image": "i"}]);
    let beside = json!([{"name": "d", "image": "i"}]);
    for (spec, text) in [
        (json!({"containers": one}), "Container"),
        (
            json!({"initContainers": [sidecar], "containers": beside}),
            "Init container",
        ),
    ] {
        let mut h = Harness::new(spec);
        h.run(Phase::Sync);
        h.run(Phase::Sync);
        h.runtime.state().containers.reverse();
        h.next_daemon_finds(Duration::ZERO, StopStage::Signalled);
        assert_eq!(h.run(Phase::Sync), Outcome::Ok);
        assert_eq!(h.calls()[..3], ["stop 2 0", "create c 1", "start c 1"]);
        let killing = h.texts().into_iter().rfind(|t| t.starts_with("Killing"));
        let then = ["", ", will be restarted"][usize::from(text == "Container")];
        assert_eq!(
            killing.unwrap(),
            format!("Killing {text} c is still being stopped{then}")
        );
        assert_eq!(h.run(Phase::Sync), Outcome::Ok);
        assert!(!h.calls().iter().any(|c| c.starts_with("stop")), "once");
    }
}

#[test]
fn a_container_that_does_not_start_again_is_stopped_by_the_next_daemon_too() {
    let beside = json!([{"name": "d", "image": "i"}, {"name": "c", "image": "i"}]);
    let mut h = Harness::new(json!({"restartPolicy": "Never", "containers": beside}));
    h.run(Phase::Sync);
    h.next_daemon_finds(Duration::ZERO, StopStage::Signalled);
    h.run(Phase::Sync);
    assert_eq!(h.calls(), ["stop 3 0", "relist"]);
}

#[test]
fn what_is_left_of_a_stop_is_for_the_next_daemon_only() {
    let mut h = Harness::one();
    h.run(Phase::Sync);
    h.next_daemon_finds(Duration::from_secs(1), StopStage::Signalled);
    {
        let mut state = h.runtime.state();
        let error = RuntimeError::failed("it is cancelled");
        (state.stop_error, state.cancel_in_stop) = (Some(error), true);
    }
    h.run(Phase::Terminating);
    assert!(seconds_of(&h.calls()) < 1);
    h.run(Phase::Terminating);
    assert_eq!(seconds_of(&h.calls()), 7, "a stop that begins again");
    h.next_daemon();
    h.runtime.state().stop_error = None;
    h.run(Phase::Terminating);
    assert!(seconds_of(&h.calls()) < 7);
}

#[test]
fn a_record_of_a_stop_that_is_damaged_or_of_another_boot_counts_for_nothing() {
    for damage in [Some("{"), Some("{}"), None] {
        let mut h = Harness::one();
        h.run(Phase::Sync);
        h.next_daemon_finds(Duration::from_secs(1), StopStage::Signalled);
        let file = Layout::new(h.dir.path()).containers().join("2/stop.json");
        let record: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let mut record = record.as_object().unwrap().clone();
        record.remove("crc32");
        record.insert("boot_id".into(), "another boot".into());
        let text = damage.map_or_else(|| json!(record).to_string(), str::to_owned);
        std::fs::write(&file, text).unwrap();
        h.next_daemon();
        h.run(Phase::Terminating);
        assert_eq!(seconds_of(&h.calls()), 7, "{damage:?}");
    }
}

/// The hook of a sidecar does not wait for the sidecar's turn, as in the kubelet. If the hook waited, the two hooks of
/// this test would wait for each other.
#[test]
fn the_hooks_of_sidecars_do_not_wait_for_their_turn() {
    let hook = json!({"preStop": {"sleep": {}}});
    let spec = json!({"terminationGracePeriodSeconds": 30,
        "initContainers": [{"name": "side", "image": "i", "restartPolicy": "Always", "lifecycle": hook}],
        "containers": [{"name": "c", "image": "i", "lifecycle": hook}]});
    let (ran, side) = crossbeam_channel::bounded(2);
    let h = hooked(spec, move |_, name, _| {
        match name {
            "side" => ran.send(()).unwrap(),
            _ => side.recv_timeout(Duration::from_secs(20)).unwrap(),
        }
        Ok(())
    });
    // The first sync starts the sidecar. The second sync starts the container beside the sidecar.
    h.run(Phase::Sync);
    h.run(Phase::Sync);
    h.calls();
    assert_eq!(h.run(Phase::Terminating), Outcome::Ok);
    let calls = h.calls();
    let stops: Vec<_> = calls.iter().filter(|c| c.starts_with("stop ")).collect();
    assert_eq!(stops, ["stop 3 7", "stop 2 7", "stop sandbox"], "{calls:?}");
    assert_eq!(calls.iter().filter(|c| c.starts_with("preStop")).count(), 2);
}

#[test]
fn a_container_whose_post_start_hook_fails_is_killed() {
    let h = with_hooks(|_, _, _| Ok(()));
    assert_eq!(h.run(Phase::Sync), Outcome::Ok);
    assert_eq!(
        h.calls(),
        [
            "sandbox 0",
            "create c 0",
            "start c 0",
            "postStart c",
            "relist"
        ]
    );
    let h = with_hooks(|kind, _, _| match kind {
        HookKind::PostStart => failed("exit code 1"),
        HookKind::PreStop => Ok(()),
    });
    assert!(matches!(h.run(Phase::Sync), Outcome::Failed { .. }));
    assert_eq!(
        h.calls()[3..],
        ["postStart c", "preStop c", "stop 2 30", "relist"]
    );
    let texts = h.texts();
    for text in [
        "FailedPostStartHook PostStartHook failed: why",
        "Killing FailedPostStartHook",
    ] {
        assert!(texts.iter().any(|t| t == text), "{texts:?}");
    }
    let shown = waiting(&h);
    assert_eq!(shown, ("PostStartHookError".into(), "exit code 1".into()));
}

#[test]
fn a_hook_that_is_cancelled_is_no_failure() {
    let h = with_hooks(|_, _, cancel| {
        cancel.cancel();
        Err(HookError::Cancelled)
    });
    let silent = Outcome::Failed {
        error: String::new(),
        retry_at: None,
    };
    assert_eq!(h.run(Phase::Sync), silent);
    assert_eq!(
        h.calls()[3..],
        ["postStart c", "relist"],
        "nobody kills it here"
    );
    assert_eq!(h.run(Phase::Terminating), silent);
    assert_eq!(h.calls(), ["preStop c", "relist"]);
    assert!(
        h.texts().iter().all(|t| !t.contains("Hook")),
        "{:?}",
        h.texts()
    );
}

/// The boundary for other runtimes: all tests in this file use a runtime that sees configurations only. No
/// configuration has words of the v1 API except in labels, or a path that CRI has no field for.
#[test]
fn a_runtime_sees_configurations_and_nothing_of_pods() {
    let h = Harness::new(
        json!({"containers": [{"name": "c", "image": "i", "command": ["/app"],
        "livenessProbe": {"exec": {"command": ["/check"]}}, "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
        "volumes": [{"name": "v"}]}),
    );
    h.run(Phase::Sync);
    let state = h.runtime.state();
    let (config, sandbox) = (&state.configs[0], &state.sandbox_configs[0]);
    let text = format!("{config:?} {sandbox:?}");
    for word in [
        "/check",
        "Probe",
        "restartPolicy",
        "emptyDir",
        "CreateContainer",
        "CrashLoop",
        "/run/podprobe",
        "/var/lib/podprobe/images",
        "/var/lib/podprobe/containers",
    ] {
        assert!(!text.contains(word), "{word} in {text}");
    }
    assert_eq!(config.labels, {
        let mut labels = sandbox.labels.clone();
        labels.insert("io.kubernetes.container.name".into(), "c".into());
        labels
    });
    assert_eq!(config.image.id, "sha256:1");
}

#[test]
fn one_container_that_cannot_start_holds_no_other_back() {
    let h = Harness::new(
        json!({"containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]}),
    );
    let error = RuntimeError::failed("no such file");
    h.runtime.state().start_errors.push_back(error);
    assert!(matches!(h.run(Phase::Sync), Outcome::Failed { .. }));
    assert_eq!(
        h.calls()[..5],
        [
            "sandbox 0",
            "create a 0",
            "start a 0",
            "create b 0",
            "start b 0"
        ]
    );
}

#[test]
fn a_sandbox_that_fails_starts_nothing_and_says_so() {
    let h = Harness::one();
    h.runtime.state().sandbox_error = Some(RuntimeError::failed("no namespaces"));
    assert!(matches!(h.run(Phase::Sync), Outcome::Failed { .. }));
    assert_eq!(h.calls()[0], "sandbox 0");
    assert_eq!(
        h.texts(),
        ["FailedCreatePodSandBox Failed to create pod sandbox: no namespaces"]
    );
}

#[test]
fn a_dead_sandbox_is_replaced_with_everything_in_it() {
    let h = Harness::one();
    h.run(Phase::Sync);
    h.runtime.state().sandboxes[0].ready = false;
    h.calls();
    h.run(Phase::Sync);
    assert_eq!(
        h.calls(),
        [
            "stop 2 30",
            "stop sandbox",
            "sandbox 1",
            "remove sandbox",
            "create c 1",
            "start c 1",
            "relist"
        ]
    );
    let attempts: Vec<u32> = h
        .runtime
        .state()
        .sandboxes
        .iter()
        .map(|s| s.metadata.attempt)
        .collect();
    assert_eq!(attempts, [1], "the old one's record is gone too");
    assert!(h.texts().contains(
        &"SandboxChanged Pod sandbox changed, it will be killed and re-created.".to_owned()
    ));
    assert_eq!(
        h.causes(),
        [(
            "c".to_owned(),
            "the pod's sandbox was made anew (exit code 137)".to_owned()
        )]
    );
}

/// Kubelet-probes 8.6: the old instances are gone, but the status still shows why there are new instances.
#[test]
fn a_restart_of_all_says_who_asked_for_it() {
    let rules =
        json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [3]}}]);
    let h = Harness::new(json!({"restartPolicy": "Never", "containers": [
        {"name": "b", "image": "i"}, {"name": "c", "image": "i", "restartPolicy": "Never", "restartPolicyRules": rules}]}));
    h.run(Phase::Sync);
    h.end_newest(3);
    assert_eq!(h.run(Phase::Sync), Outcome::Ok);
    let cause = "all containers restart: c ended with exit code 3";
    assert_eq!(
        h.causes(),
        ["b", "c"].map(|name| (name.to_owned(), cause.to_owned()))
    );
    let killed = "Killing killing".to_owned();
    assert!(h.texts().contains(&killed), "{:?}", h.texts());
}

/// The ConfigMap for a variable is missing at first. Only the container with the variable waits for it.
#[test]
fn a_container_waits_for_the_object_that_its_variable_needs() {
    let from = json!({"configMapKeyRef": {"name": "settings", "key": "k"}});
    let env = json!([{"name": "V", "valueFrom": from}]);
    let h = Harness::new(json!({"containers": [
        {"name": "c", "image": "i", "env": env}, {"name": "d", "image": "i"}]}));
    let waits = |expected: &str| {
        assert!(matches!(h.run(Phase::Sync), Outcome::Failed { .. }));
        let state = &h.status().container_statuses[0].state;
        let waiting = state.waiting.as_ref().expect("it waits");
        assert_eq!(waiting.reason, "CreateContainerConfigError");
        assert_eq!(waiting.message, expected);
    };
    waits("configmap \"settings\" not found");
    let d = h.status().container_statuses[1].clone();
    assert!(d.state.running.is_some(), "the other container runs");
    let put = |key: &str| {
        let map = ConfigMap {
            data: [(key.to_owned(), "v".to_owned())].into(),
            ..ConfigMap::default()
        };
        let key = ObjectKey::new(ObjectKind::ConfigMap, "default", "settings");
        let content = ObjectContent::ConfigMap(Arc::new(map));
        let object = LocalObject { key, content };
        h.objects.replace(PodSource::File, vec![object]);
    };
    put("other");
    waits("couldn't find key k in ConfigMap default/settings");
    put("k");
    for _ in 0..2 {
        assert_eq!(h.run(Phase::Sync), Outcome::Ok);
    }
    assert!(h.status().container_statuses[0].state.running.is_some());
}

/// A container that succeeded does not run again after a reboot. The runtime's records do not survive a reboot, but the
/// stored status does.
#[test]
fn a_container_that_succeeded_does_not_run_again_after_a_reboot() {
    let h = Harness::new(json!({"restartPolicy": "OnFailure", "containers": [
        {"name": "a", "image": "i"}, {"name": "b", "image": "i"}]}));
    h.run(Phase::Sync);
    {
        let mut state = h.runtime.state();
        let mut containers = state.containers.iter_mut();
        end(containers.find(|c| c.metadata.name == "a").unwrap(), 0);
    }
    h.run(Phase::Sync);
    {
        let mut state = h.runtime.state();
        state.containers.clear();
        state.sandboxes.clear();
    }
    h.calls();
    for _ in 0..2 {
        assert_eq!(h.run(Phase::Sync), Outcome::Ok);
    }
    let calls = h.calls().into_iter();
    let started: Vec<_> = calls.filter(|c| c.starts_with("start")).collect();
    assert_eq!(started, ["start b 1"]);
    let status = h.status();
    let [a, b] = &status.container_statuses[..] else {
        panic!("{status:?}")
    };
    assert_eq!(a.state.terminated.as_ref().unwrap().exit_code, 0);
    assert!(b.state.running.is_some());
}

#[test]
fn a_pod_that_has_finished_keeps_its_records_and_loses_its_empty_dirs() {
    let h = Harness::new(json!({"restartPolicy": "Never", "volumes": [{"name": "v"}],
        "containers": [{"name": "c", "image": "i"}]}));
    h.run(Phase::Sync);
    h.end_newest(0);
    let volume = h.pod_dir().join("volumes/kubernetes.io~empty-dir/v");
    assert!(volume.exists());
    h.run(Phase::Terminating);
    h.calls();
    let work = Work {
        phase: Phase::Terminated,
        asked: UpdateKind::Sync,
        pod: h.pod.clone(),
        grace: 7,
        runtime_only: false,
        removed: false,
    };
    assert_eq!(h.syncer.run(&work, &Cancel::default()), Outcome::Ok);
    assert_eq!(h.calls(), [] as [&str; 0]);
    assert!(!volume.exists() && h.pod_dir().exists());
}

#[test]
fn a_finished_pod_is_terminal_and_starts_nothing() {
    let h = Harness::new(
        json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}),
    );
    h.run(Phase::Sync);
    h.end_newest(0);
    h.calls();
    assert_eq!(h.run(Phase::Sync), Outcome::Terminal);
    assert_eq!((h.calls(), h.status().phase), (vec![], PodPhase::Succeeded));
}

/// kubelet-probes 13.4 and lessons A8: liveness and startup probes stop first. Readiness probes stop when no container
/// runs any more.
#[test]
fn a8_termination_stops_probes_in_their_order_and_uses_the_pods_grace() {
    let h = Harness::one();
    h.run(Phase::Sync);
    h.calls();
    h.probes.calls.lock().unwrap().clear();
    assert_eq!(h.run(Phase::Terminating), Outcome::Ok);
    assert_eq!(h.calls(), ["stop 2 7", "stop sandbox", "relist"]);
    assert_eq!(
        *h.probes.calls.lock().unwrap(),
        ["stop liveness and startup", "remove"]
    );
    assert!(
        h.texts()
            .contains(&"Killing Stopping container c".to_owned())
    );
    assert!(h.status().container_statuses[0].state.terminated.is_some());
    assert!(h.pod_dir().exists());
    assert_eq!(h.run(Phase::Terminated), Outcome::Ok);
    assert_eq!(h.calls(), ["remove 2", "remove sandbox", "relist"]);
    assert!(!h.pod_dir().exists());
}

/// When the containers of a pod get the stop signal, the pod no longer gets new clients.
#[test]
fn a_pod_that_ends_has_lost_its_clients_before_it_is_told() {
    let h = Harness::one();
    h.run(Phase::Sync);
    h.calls();
    h.run(Phase::Terminating);
    assert_eq!(*h.traffic.asked.lock().unwrap(), [(0, false)]);
    assert!(h.calls()[0].starts_with("stop "));
}

#[test]
fn a3_what_does_not_end_keeps_its_readiness_probe_and_is_tried_again() {
    let h = Harness::one();
    h.run(Phase::Sync);
    h.probes.calls.lock().unwrap().clear();
    let error = RuntimeError::failed("it will not die");
    h.runtime.state().stop_error = Some(error);
    let Outcome::Failed { error, .. } = h.run(Phase::Terminating) else {
        panic!("it still runs")
    };
    assert!(
        error.contains("cannot stop container c: it will not die"),
        "{error}"
    );
    assert_eq!(
        *h.probes.calls.lock().unwrap(),
        ["stop liveness and startup"]
    );
    let status = h.status();
    let ready = status.condition("Ready").unwrap();
    assert_eq!(
        (ready.status.as_str(), ready.reason.as_str()),
        ("False", "PodTerminating")
    );
    assert!(
        status.container_statuses[0].ready
            && status.condition("ContainersReady").unwrap().status == "True"
    );
    assert!(
        h.texts()
            .contains(&"FailedKillPod error killing pod: it will not die".to_owned())
    );
}

/// Kubelet-probes 8.1: a cancelled run writes no event and starts nothing new.
#[test]
fn a_cancelled_run_is_no_error_and_starts_nothing() {
    let h = Harness::new(
        json!({"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]}),
    );
    h.run(Phase::Sync);
    h.calls();
    h.end_newest(1);
    let id = h.runtime.state().containers[1].id.clone();
    h.probes
        .liveness
        .lock()
        .unwrap()
        .insert(id, ProbeResult::Failure);
    let error = RuntimeError::failed("it is cancelled");
    {
        let mut state = h.runtime.state();
        (state.stop_error, state.cancel_in_stop) = (Some(error), true);
    }
    for phase in [Phase::Sync, Phase::Terminating] {
        assert_eq!(
            h.run(phase),
            Outcome::Failed {
                error: String::new(),
                retry_at: None
            }
        );
        let calls = h.calls();
        assert!(
            calls[0].starts_with("stop ") && !calls.iter().any(|c| c.starts_with("start ")),
            "{calls:?}"
        );
        assert!(
            !h.texts().iter().any(|t| t.starts_with("FailedKillPod")),
            "{:?}",
            h.texts()
        );
    }
}

#[test]
fn a_finished_pod_keeps_its_remains_until_it_is_removed() {
    let h = Harness::one();
    h.run(Phase::Sync);
    h.run(Phase::Terminating);
    h.calls();
    let work = Work {
        phase: Phase::Terminated,
        asked: UpdateKind::Sync,
        pod: h.pod.clone(),
        grace: 7,
        runtime_only: false,
        removed: false,
    };
    assert_eq!(
        (h.syncer.run(&work, &Cancel::default()), h.calls()),
        (Outcome::Ok, vec![])
    );
}

/// The removal of a pod does not list the logs of other pods. Otherwise, if many pods are removed together, each
/// removal would look at the logs of all pods.
#[test]
fn the_removal_of_a_pod_lists_no_other_pods_logs() {
    let h = Harness::one();
    let layout = Layout::new(h.dir.path());
    for dir in [layout.logs_dir(), layout.container_log_links()] {
        std::fs::create_dir_all(dir.join("default_other_1")).unwrap();
    }
    h.run(Phase::Sync);
    h.run(Phase::Terminating);
    let logs = layout.pod_logs("default", "p", h.pod.uid());
    std::fs::create_dir_all(logs.join("c")).unwrap();
    let listed = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).unwrap();
    for dir in [layout.logs_dir(), layout.container_log_links()] {
        listed.add_watch(&dir, AddWatchFlags::IN_ACCESS).unwrap();
    }
    assert_eq!(h.run(Phase::Terminated), Outcome::Ok);
    assert!(!logs.exists());
    // An inotify event with a name is about an entry of the pod's own directory.
    let events = listed.read_events().unwrap_or_default();
    assert!(events.iter().all(|e| e.name.is_some()), "{events:?}");
}

/// An earlier daemon may leave the logs of a pod whose name is unknown. These logs are found by the UID alone.
#[test]
fn the_logs_of_a_pod_of_which_only_the_uid_is_known_go_too() {
    let h = Harness::one();
    let layout = Layout::new(h.dir.path());
    let [left, other] = ["u", "other"].map(|uid| layout.pod_logs("default", "q", &uid.into()));
    for dir in [&left, &other] {
        std::fs::create_dir_all(dir.join("c")).unwrap();
    }
    let pod = Pod {
        metadata: serde_json::from_value(json!({"name": "", "uid": "u"})).unwrap(),
        ..(*h.pod).clone()
    };
    let work = Work {
        phase: Phase::Terminated,
        asked: UpdateKind::Sync,
        pod: Arc::new(pod),
        grace: 7,
        runtime_only: true,
        removed: true,
    };
    let outcome = h.syncer.run(&work, &Cancel::default());
    assert_eq!(
        (outcome, left.exists(), other.exists()),
        (Outcome::Ok, false, true)
    );
}

/// After a power cut the runtime has forgotten everything. The restart count continues from the stored status.
#[test]
fn restart_counts_go_on_after_a_power_cut() {
    let h = Harness::one();
    h.run(Phase::Sync);
    h.end_newest(1);
    h.run(Phase::Sync);
    h.run(Phase::Sync);
    assert_eq!(h.status().container_statuses[0].restart_count, 1);
    {
        let mut state = h.runtime.state();
        state.containers.clear();
        state.sandboxes.clear();
    }
    h.calls();
    h.run(Phase::Sync);
    assert_eq!(h.calls()[..2], ["sandbox 0", "create c 2"]);
}

/// Parity B13: if neither the runtime nor the status knows an instance, the logs show how many instances there were.
#[test]
fn where_nobody_knows_an_instance_the_logs_tell_how_many_there_were() {
    let h = Harness::one();
    let logs = h.dir.path().join("var/log/pods/default_p_u/c");
    std::fs::create_dir_all(&logs).unwrap();
    for name in [
        "3.log",
        "11.log.2026-01-01-000000.000000000",
        "12.txt",
        "x.log",
        "13.logs",
    ] {
        std::fs::write(logs.join(name), "").unwrap();
    }
    h.run(Phase::Sync);
    assert_eq!(h.runtime.state().containers[0].metadata.attempt, 12);
    h.end_newest(1);
    h.run(Phase::Sync);
    assert_eq!(h.runtime.state().containers[0].metadata.attempt, 13);
}

#[test]
fn a_container_is_killed_with_at_least_two_seconds() {
    let h = Harness::one();
    h.run(Phase::Sync);
    h.calls();
    let work = Work {
        phase: Phase::Terminating,
        asked: UpdateKind::Sync,
        pod: h.pod.clone(),
        grace: 1,
        runtime_only: false,
        removed: true,
    };
    h.syncer.run(&work, &Cancel::default());
    assert_eq!(h.calls()[0], "stop 2 2");
}

#[test]
fn a_pod_only_the_runtime_knows_is_ended_without_status_or_probes() {
    let h = Harness::one();
    h.run(Phase::Sync);
    h.statuses.remove_orphans(&Default::default());
    h.probes.calls.lock().unwrap().clear();
    let work = |phase| Work {
        phase,
        asked: UpdateKind::Sync,
        pod: h.pod.clone(),
        grace: 1,
        runtime_only: true,
        removed: true,
    };
    assert_eq!(
        h.syncer.run(&work(Phase::Terminating), &Cancel::default()),
        Outcome::Ok
    );
    assert_eq!(
        h.syncer.run(&work(Phase::Terminated), &Cancel::default()),
        Outcome::Ok
    );
    assert!(h.statuses.get(h.pod.uid()).is_none());
    assert_eq!(h.calls().last().unwrap(), "relist");
}

#[test]
fn a_passed_deadline_fails_the_pod() {
    let h = Harness::new(
        json!({"activeDeadlineSeconds": 60, "containers": [{"name": "c", "image": "i"}]}),
    );
    h.run(Phase::Sync);
    // lessons B5: a change of the wall clock ends no pod
    let mut old = PodStatus::clone(&h.status());
    old.start_time = Some(std::time::SystemTime::UNIX_EPOCH.into());
    h.statuses.set(&h.pod, old);
    assert_eq!(h.run(Phase::Sync), Outcome::Ok);
    let began = Moment::now() - Duration::from_secs(61);
    let mut ages = crate::pods::status::Ages::default();
    ages.begin(h.pod.uid(), began);
    h.statuses.set_ages(ages);
    assert_eq!(h.run(Phase::Sync), Outcome::Terminal);
    assert_eq!(
        (h.status().phase, h.status().reason.as_str()),
        (PodPhase::Failed, "DeadlineExceeded")
    );
    h.run(Phase::Sync);
    let event = h
        .events()
        .into_iter()
        .find(|e| e.reason == "DeadlineExceeded")
        .unwrap();
    assert_eq!(
        (event.message.as_str(), event.count),
        (
            "Pod was active on the node longer than the specified deadline",
            1
        )
    );
}

/// Makes an evicted pod with one running container and one completed container.
fn evicted(policy: &str) -> Harness {
    let containers = json!([{"name": "c", "image": "i"}, {"name": "done", "image": "i"}]);
    let h = Harness::new(json!({
        "restartPolicy": policy, "terminationGracePeriodSeconds": 30,
        "containers": containers, "volumes": [{"name": "v"}],
    }));
    h.run(Phase::Sync);
    for container in &mut h.runtime.state().containers {
        if container.metadata.name == "done" {
            end(container, 0);
        }
    }
    std::fs::create_dir_all(h.pod_dir()).unwrap();
    h.evictions.evict(h.pod.uid(), "full. ");
    h.calls();
    h
}

impl Harness {
    /// Runs the syncer as the pod's worker does after the pod has finished, while its file still exists.
    fn run_finished(&self) -> Outcome {
        let work = Work {
            phase: Phase::Terminated,
            asked: UpdateKind::Sync,
            pod: self.pod.clone(),
            grace: 1,
            runtime_only: false,
            removed: false,
        };
        self.syncer.run(&work, &Cancel::default())
    }

    fn phase_and_reason(&self) -> (PodPhase, String, String) {
        let status = self.status();
        (status.phase, status.reason.clone(), status.message.clone())
    }
}

#[test]
fn an_evicted_pod_fails_ends_soon_loses_its_volumes_and_starts_from_its_beginning() {
    for policy in ["Always", "OnFailure", "Never"] {
        eviction_and_new_start(&evicted(policy));
    }
}

#[track_caller]
fn eviction_and_new_start(h: &Harness) {
    let failed = (PodPhase::Failed, "Evicted".into(), "full. ".into());
    let volume = h.pod_dir().join("volumes/kubernetes.io~empty-dir/v");
    assert!(volume.exists());
    assert_eq!(h.run(Phase::Sync), Outcome::Terminal);
    assert_eq!(h.phase_and_reason(), failed);
    assert_eq!(h.calls(), [""; 0]);
    assert_eq!(h.run(Phase::Terminating), Outcome::Ok);
    // the grace period of an eviction is one second, but every stop has at least two
    assert!(h.calls().contains(&"stop 2 2".to_owned()));
    // the container has ended after the signal
    end(&mut h.runtime.state().containers[1], 0);
    assert_eq!(h.run_finished(), Outcome::Ok);
    assert_eq!(h.phase_and_reason(), failed);
    assert!(!volume.exists());
    assert_eq!(h.run_finished(), Outcome::Ok);
    assert_eq!(h.run(Phase::Sync), Outcome::Terminal, "it waits");

    // the sync loop forgets the status when the wait is over
    h.evictions.release(h.pod.uid(), Moment::now());
    h.statuses.remove_orphans(&Default::default());
    h.calls();
    assert_eq!(h.run(Phase::Sync), Outcome::Ok);
    let calls = h.calls();
    for call in ["remove 2", "remove 3", "start c 1", "start done 1"] {
        assert!(calls.iter().any(|c| c == call), "{call}: {calls:?}");
    }
    assert!(volume.exists());
    assert_eq!(h.run(Phase::Sync), Outcome::Ok);
    let status = h.status();
    let count = status.container_statuses[0].restart_count;
    assert_eq!((status.phase, count), (PodPhase::Running, 1));
}

/// An evicted pod without running containers gets its status even if the daemon was killed during the eviction. The
/// next daemon has an older status of the pod, or no status.
#[test]
fn an_evicted_pod_of_which_nothing_runs_gets_its_status() {
    for known in [true, false] {
        let h = evicted("Never");
        h.run(Phase::Terminating);
        match known {
            true => h.statuses.set(&h.pod, PodStatus::default()),
            false => h.statuses.remove_orphans(&Default::default()),
        }
        assert_eq!(h.run_finished(), Outcome::Ok);
        assert_eq!(h.phase_and_reason().1, "Evicted", "{known}");
        assert!(!h.evictions.comes_back(h.pod.uid()));
    }
}

#[test]
fn a_pod_that_ended_before_it_was_evicted_is_not_evicted() {
    let h = evicted("OnFailure");
    let done = PodStatus {
        phase: PodPhase::Succeeded,
        ..PodStatus::default()
    };
    h.statuses.set(&h.pod, done);
    assert_eq!(h.run_finished(), Outcome::Ok);
    assert_eq!(h.status().phase, PodPhase::Succeeded);
    assert!(!h.evictions.is_evicted(h.pod.uid(), Moment::now()));
}

#[test]
fn a_removed_pod_is_not_evicted_any_more() {
    let h = evicted("Always");
    h.run(Phase::Terminating);
    assert_eq!(h.run(Phase::Terminated), Outcome::Ok);
    assert!(!h.evictions.is_evicted(h.pod.uid(), Moment::now()));
}

/// Requests a restart of the newest instance and returns its id.
fn ask(h: &Harness) -> ContainerId {
    let id = h.runtime.state().containers[0].id.clone();
    let restarts = &h.syncer.deps.restarts;
    restarts.ask(h.pod.uid(), "c", id.clone());
    id
}

#[test]
fn a_restart_on_request_kills_with_grace_and_starts_once() {
    let h = Harness::one();
    h.run(Phase::Sync);
    h.calls();
    let old = ask(&h);
    assert_eq!(h.run(Phase::Sync), Outcome::Ok);
    let expected = [
        &format!("stop {old} 30"),
        "create c 1",
        "start c 1",
        "relist",
    ];
    assert_eq!(h.calls(), expected);
    assert_ne!(h.runtime.state().containers[0].id, old);
    let killing = "Killing Container c restart requested, will be restarted".to_owned();
    assert!(h.texts().contains(&killing), "{:?}", h.texts());
    let (container, cause) = h.causes().remove(0);
    assert_eq!(container, "c");
    assert!(cause.starts_with("restart requested ("), "{cause}");
    assert_eq!(h.run(Phase::Sync), Outcome::Ok);
    assert_eq!(h.calls(), [""; 0], "the request is over");
}

#[test]
fn a_restart_on_request_waits_for_no_back_off_and_counts_as_no_crash() {
    let h = Harness::one();
    h.run(Phase::Sync);
    h.end_newest(1);
    h.run(Phase::Sync);
    h.end_newest(1);
    assert!(matches!(h.run(Phase::Sync), Outcome::Failed { .. }));
    let waiting = h.status().container_statuses[0].state.waiting.clone();
    assert_eq!(waiting.unwrap().reason, "CrashLoopBackOff");
    h.calls();
    ask(&h);
    assert_eq!(h.run(Phase::Sync), Outcome::Ok);
    assert!(h.calls().contains(&"start c 2".to_owned()));
    // The next crash waits as long as the last one would have, because the delay has not doubled.
    h.end_newest(1);
    h.run(Phase::Sync);
    let held = h.status().container_statuses[0].state.waiting.clone();
    let message = held.unwrap().message;
    assert!(message.starts_with("back-off 10s"), "{message}");
}

#[test]
fn a_request_goes_with_its_pod() {
    let h = Harness::one();
    h.run(Phase::Sync);
    ask(&h);
    h.run(Phase::Terminating);
    h.run(Phase::Terminated);
    assert!(!h.syncer.deps.restarts.is_asked(h.pod.uid(), "c"));
}

/// A container with this memory as its request and limit.
fn sized(memory: &str, policy: &str) -> Value {
    json!({"containers": [{"name": "c", "image": "i",
        "resources": {"requests": {"memory": memory}, "limits": {"memory": memory}},
        "resizePolicy": [{"resourceName": "memory", "restartPolicy": policy}]}]})
}

impl Harness {
    /// Gives the pod another spec, as an edit does.
    fn edit(&mut self, spec: Value) {
        let mut pod = (*self.pod).clone();
        pod.spec = serde_json::from_value(spec).unwrap();
        self.pod = Arc::new(pod);
    }

    /// Returns the condition of this type with its reason.
    fn condition(&self, type_: &str) -> Option<(String, String)> {
        let status = self.status();
        let condition = status.condition(type_)?;
        assert_eq!(condition.status, "True");
        Some((condition.reason.clone(), condition.message.clone()))
    }

    /// Returns the limit of memory that the status shows.
    fn memory(&self) -> [String; 2] {
        let container = &self.status().container_statuses[0];
        let shown = container.resources.as_ref().unwrap().limits["memory"].clone();
        [shown.0, container.allocated_resources["memory"].0.clone()]
    }
}

const MI: i64 = 1 << 20;

#[test]
fn a_container_gets_more_memory_while_it_runs() {
    let mut h = Harness::new(sized("64Mi", "NotRequired"));
    h.run(Phase::Sync);
    h.calls();
    h.edit(sized("80Mi", "NotRequired"));
    let resized = h.run(Phase::Sync);
    assert!(matches!(resized, Outcome::Failed { error, retry_at: Some(_) } if error.is_empty()));
    let (pod, container) = (format!("update pod {}", 80 * MI), |id: &str| {
        format!("update {id} {}", 80 * MI)
    });
    let calls = h.calls();
    let id = h.runtime.state().containers[0].id.clone();
    assert_eq!(calls, [&pod, &container(id.as_str()), &pod, "relist"]);
    assert_eq!(h.memory(), ["80Mi", "80Mi"]);
    assert_eq!(h.condition("PodResizeInProgress"), Some(Default::default()));
    assert_eq!(h.run(Phase::Sync), Outcome::Ok);
    assert_eq!(h.condition("PodResizeInProgress"), None);
    assert_eq!(
        h.texts().last().unwrap(),
        "ResizeCompleted Pod resize completed"
    );
    // Less: the pod has the larger limit until the container has its own.
    h.edit(sized("48Mi", "NotRequired"));
    h.calls();
    h.run(Phase::Sync);
    let first = format!("update pod {}", 80 * MI);
    let last = format!("update pod {}", 48 * MI);
    let calls = h.calls();
    assert_eq!((&calls[0], &calls[2]), (&first, &last), "{calls:?}");
}

#[test]
fn a_container_that_keeps_its_memory_says_why_and_is_tried_again() {
    let mut h = Harness::new(sized("64Mi", "NotRequired"));
    h.run(Phase::Sync);
    h.edit(sized("1Mi", "NotRequired"));
    for _ in 0..2 {
        let why = RuntimeError::failed("it uses more");
        h.runtime.state().update_errors.push_back(why);
        let failed = h.run(Phase::Sync);
        assert!(matches!(failed, Outcome::Failed { error, .. } if error == "it uses more"));
        let error = ("Error".to_owned(), "it uses more".to_owned());
        assert_eq!(h.condition("PodResizeInProgress"), Some(error));
        assert_eq!(h.memory(), ["64Mi", "1Mi"]);
    }
    let said = |h: &Harness| {
        let texts = h.texts();
        texts
            .iter()
            .filter(|t| t.starts_with("ResizeError"))
            .count()
    };
    assert_eq!(said(&h), 1, "once for one reason");
    h.run(Phase::Sync);
    h.run(Phase::Sync);
    assert_eq!(h.memory(), ["1Mi", "1Mi"]);
    assert_eq!(h.condition("PodResizeInProgress"), None);
}

/// The node of these tests has 1 GiB.
#[test]
fn without_room_a_pod_keeps_what_it_has_and_says_so() {
    let mut h = Harness::new(sized("64Mi", "NotRequired"));
    h.run(Phase::Sync);
    h.edit(sized("2Gi", "NotRequired"));
    h.calls();
    let waits = h.run(Phase::Sync);
    assert!(matches!(waits, Outcome::Failed { error, retry_at: Some(_) } if error.is_empty()));
    assert_eq!(h.calls(), [] as [&str; 0]);
    let text =
        "Node didn't have enough capacity: memory, requested: 2147483648, capacity: 1073741824";
    let infeasible = ("Infeasible".to_owned(), text.to_owned());
    assert_eq!(h.condition("PodResizePending"), Some(infeasible));
    assert_eq!(h.memory(), ["64Mi", "64Mi"]);
    assert_eq!(
        h.texts().last().unwrap(),
        &format!("ResizeInfeasible {text}")
    );

    let other = crate::test_pods::pod("other")
        .uid("o")
        .spec(sized("900Mi", "NotRequired"));
    h.syncer.deps.pods.set(Arc::new(other.build()));
    h.edit(sized("200Mi", "NotRequired"));
    h.run(Phase::Sync);
    let (reason, message) = h.condition("PodResizePending").unwrap();
    assert_eq!(reason, "Deferred");
    assert!(
        message.contains("requested: 209715200, used: 943718400"),
        "{message}"
    );
    // A container that ends meanwhile starts with what it had.
    let id = h.runtime.state().containers[0].id.clone();
    h.runtime
        .stop_container(&id, Duration::ZERO, &Cancel::default())
        .unwrap();
    h.run(Phase::Sync);
    let made = h.runtime.state().configs.last().unwrap().resources.limits;
    assert_eq!(made.memory_limit, Some(64 * MI));
    h.syncer.deps.pods.remove(&"o".into());
    h.run(Phase::Sync);
    h.run(Phase::Sync);
    assert_eq!(h.condition("PodResizePending"), None);
    assert_eq!(h.memory(), ["200Mi", "200Mi"]);
}

#[test]
fn a_container_that_must_restart_for_its_memory_does() {
    let mut h = Harness::new(sized("64Mi", "RestartContainer"));
    h.run(Phase::Sync);
    h.edit(sized("80Mi", "RestartContainer"));
    h.run(Phase::Sync);
    h.run(Phase::Sync);
    let made = h.runtime.state().configs.last().unwrap().clone();
    assert_eq!(made.metadata.attempt, 1);
    assert_eq!(made.resources.limits.memory_limit, Some(80 * MI));
    let texts = h.texts();
    let killed = "Killing Container c resize requires restart, will be restarted";
    assert!(texts.iter().any(|text| text == killed), "{texts:?}");
    assert_eq!(h.memory(), ["80Mi", "80Mi"]);
}

/// A pod's own cgroup that cannot be set is tried again, and nothing is called done before.
#[test]
fn a_resize_is_done_when_the_pod_has_its_limits_too() {
    let mut h = Harness::new(sized("64Mi", "NotRequired"));
    h.run(Phase::Sync);
    h.edit(sized("80Mi", "NotRequired"));
    let busy = RuntimeError::failed("busy");
    let skip = |h: &Harness, errors: Vec<Option<RuntimeError>>| {
        h.runtime.state().pod_update_errors.extend(errors);
    };
    skip(&h, vec![None, Some(busy.clone())]);
    let failed = h.run(Phase::Sync);
    assert!(matches!(failed, Outcome::Failed { error, .. } if error == "busy"));
    skip(&h, vec![Some(busy)]);
    h.run(Phase::Sync);
    assert_eq!(h.memory(), ["80Mi", "80Mi"]);
    let error = ("Error".to_owned(), "busy".to_owned());
    assert_eq!(h.condition("PodResizeInProgress"), Some(error));
    h.calls();
    h.run(Phase::Sync);
    let pod = format!("update pod {}", 80 * MI);
    assert_eq!(h.calls(), [&pod, &pod, "relist"]);
    h.run(Phase::Sync);
    assert_eq!(h.condition("PodResizeInProgress"), None);
}

/// A container that keeps its memory does not keep the others from theirs.
#[test]
fn each_container_gets_what_it_can() {
    let spec = |memory: &str| {
        let container = |name: &str| {
            let resources = json!({"requests": {"memory": memory}, "limits": {"memory": memory}});
            json!({"name": name, "image": "i", "resources": resources})
        };
        json!({"containers": [container("a"), container("b")]})
    };
    let mut h = Harness::new(spec("64Mi"));
    h.run(Phase::Sync);
    h.edit(spec("80Mi"));
    let why = RuntimeError::failed("it uses more");
    h.runtime.state().update_errors.push_back(why);
    h.run(Phase::Sync);
    let limit = |h: &Harness, n: usize| {
        let status = &h.status().container_statuses[n];
        status.resources.as_ref().unwrap().limits["memory"]
            .0
            .clone()
    };
    assert_eq!([limit(&h, 0), limit(&h, 1)], ["64Mi", "80Mi"]);
}

/// A wish that was taken back is not called done.
#[test]
fn a_wish_that_is_taken_back_is_not_completed() {
    let mut h = Harness::new(sized("64Mi", "NotRequired"));
    h.run(Phase::Sync);
    h.edit(sized("1Mi", "NotRequired"));
    let why = RuntimeError::failed("it uses more");
    h.runtime.state().update_errors.push_back(why);
    h.run(Phase::Sync);
    h.edit(sized("64Mi", "NotRequired"));
    h.run(Phase::Sync);
    h.run(Phase::Sync);
    assert_eq!(h.condition("PodResizeInProgress"), None);
    let texts = h.texts();
    assert!(
        !texts.iter().any(|text| text.starts_with("ResizeCompleted")),
        "{texts:?}"
    );
}

/// A pod that ends while it waits for room says what it was granted to the last.
#[test]
fn a_pod_that_ends_was_never_granted_its_wish() {
    let mut h = Harness::new(sized("64Mi", "NotRequired"));
    h.syncer.deps.pods.set(h.pod.clone());
    h.run(Phase::Sync);
    h.edit(sized("2Gi", "NotRequired"));
    h.syncer.deps.pods.set(h.pod.clone());
    h.run(Phase::Sync);
    assert_eq!(h.memory(), ["64Mi", "64Mi"]);
    h.run(Phase::Terminating);
    assert_eq!(h.memory(), ["64Mi", "64Mi"]);
}
