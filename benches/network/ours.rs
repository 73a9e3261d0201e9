//! podprobe's own machinery: the probe manager with its real threads, caches, history, metrics and the real status
//! manager. Only the runtime is made up: it knows no sandbox.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::bounded;
use podprobe::api::pod::{
    GrpcAction, HttpGetAction, IntOrString, ObjectMeta, PodSpec, TcpSocketAction,
};
use podprobe::api::status::{ContainerState, ContainerStateRunning};
use podprobe::api::{
    Container, ContainerStatus, Pod, PodPhase, PodStatus, PodUid, Probe, ProbeType,
};
use podprobe::base::change_feed::Aspect;
use podprobe::base::clock::{Moment, Time};
use podprobe::engine::runtime::{ContainerId, ExecOutcome, RuntimeError};
use podprobe::face::views::Records;
use podprobe::pods::events::Recorder;
use podprobe::pods::history::MAX_RUNS;
use podprobe::pods::prober::manager::{Deps, ProberManager, RestoredReady, Results, StatusSource};
use podprobe::pods::prober::outcome::{HandlerResult, Outcome, Phase};
use podprobe::pods::prober::results;
use podprobe::pods::status::StatusManager;
use serde_json::{Value, json};

use crate::probed::{Probed, ProbedRuntime};
use crate::roles;
use crate::support::usage::process_cpu;

/// Containers of a pod, each with a readiness and a liveness probe.
const CONTAINERS: usize = 5;

struct World {
    statuses: StatusManager,
    started: Moment,
}

impl StatusSource for World {
    fn version(&self) -> u64 {
        self.statuses.feed().version_of(Aspect::Status)
    }

    fn pod_status(&self, uid: &PodUid) -> Option<Arc<PodStatus>> {
        self.statuses.get(uid)
    }

    fn started_moment(&self, _: &PodUid, _: &ContainerId) -> Option<Moment> {
        Some(self.started)
    }
}

/// Pods with the node's network.
struct HostNetwork;

impl Probed for HostNetwork {
    fn exec(&self, _: &ContainerId) -> Result<ExecOutcome, RuntimeError> {
        unreachable!("no exec probe here")
    }
}

pub(crate) struct Ours {
    /// Dropping it ends the workers.
    _manager: ProberManager,
    records: Arc<Records>,
}

impl Ours {
    /// Starts the workers as a daemon that has just started anew does: their containers run already, so the first probes
    /// are spread over the period.
    pub(crate) fn start(handler: &str, workers: usize, port: u16) -> Self {
        let pods: Vec<_> = (0..workers.div_ceil(2 * CONTAINERS))
            .map(|n| pod(n, workers, handler, port))
            .collect();
        let before = Moment::now();
        let statuses = pods.iter().map(|p| (p.uid().clone(), status(p))).collect();
        let world = World {
            statuses: StatusManager::new(statuses, Arc::default()),
            started: before,
        };
        let (updates, read) = bounded(results::UPDATES_CAPACITY);
        // The sync loop's part: somebody takes the results.
        std::thread::spawn(move || read.iter().count());
        let cache = || Arc::new(results::Manager::new(updates.clone()));
        let restored = pods.iter().flat_map(|p| &p.spec.containers).map(|c| {
            (
                id(&c.name),
                RestoredReady {
                    ready: true,
                    started: true,
                },
            )
        });
        let records = Arc::<Records>::default();
        let manager = ProberManager::new(Deps {
            statuses: Arc::new(world),
            runtime: Arc::new(ProbedRuntime(Arc::new(HostNetwork))),
            results: Results {
                startup: cache(),
                readiness: cache(),
                liveness: cache(),
            },
            recorder: Arc::new(Recorder::default()),
            started: Moment::now(),
            allow_probe_hosts: Vec::new(),
            restored: restored.collect::<HashMap<_, _>>(),
            records: records.clone(),
            streaks: Default::default(),
        });
        pods.iter().for_each(|p| remember(&records, p));
        pods.iter().for_each(|p| manager.add_pod(p));
        println!("{}", json!({"workers": manager.worker_count()}));
        Self {
            _manager: manager,
            records,
        }
    }

    pub(crate) fn answer(&self) {
        roles::answer(|| self.report());
    }

    fn report(&self) -> Value {
        // First: the text of a thousand series takes as long as a second of their probes.
        let cpu = process_cpu();
        let mut text = String::new();
        let begun = Instant::now();
        self.records.write_metrics(&mut text);
        let scrape = begun.elapsed().as_secs_f64() * 1e3;
        let sum = |name: &str, label: &str| -> u64 {
            let lines = text
                .lines()
                .filter(|l| l.starts_with(name) && l.contains(label));
            lines
                .map(|l| l.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
                .sum()
        };
        let failed = sum("prober_probe_total{", "result=\"failed\"")
            + sum("podprobe_prober_probe_errors_total{", "");
        let mut report = roles::report(
            cpu,
            failed + sum("prober_probe_total{", "result=\"successful\""),
            failed,
            &self.records.lateness,
        );
        report["scrape"] = scrape.into();
        report
    }
}

/// What a daemon remembers of each probe after its first half minute, so that memory is that of one that runs for long.
fn remember(records: &Records, pod: &Pod) {
    let outcome = Outcome::new(HandlerResult::Success, "ok", Phase::Read);
    for (container, probe_type) in pod
        .spec
        .containers
        .iter()
        .flat_map(|c| ProbeType::ALL.map(|t| (c, t)))
    {
        if container.probe(probe_type).is_some() {
            let runs = records.history.runs(pod.uid(), &container.name, probe_type);
            (0..MAX_RUNS).for_each(|_| runs.record(&outcome, Time::now()));
        }
    }
}

fn id(container: &str) -> ContainerId {
    ContainerId::from(format!("{container}-0").as_str())
}

fn pod(n: usize, workers: usize, handler: &str, port: u16) -> Arc<Pod> {
    let number = IntOrString::Int(i32::from(port));
    let mut probe = Probe {
        period_seconds: 1,
        ..Default::default()
    };
    match handler {
        "http" => {
            probe.http_get = Some(HttpGetAction {
                path: "/healthz".into(),
                port: number,
                ..Default::default()
            })
        }
        "tcp" => {
            probe.tcp_socket = Some(TcpSocketAction {
                port: number,
                ..Default::default()
            })
        }
        _ => {
            probe.grpc = Some(GrpcAction {
                port: i32::from(port),
                ..Default::default()
            })
        }
    }
    let containers =
        (n * CONTAINERS..workers.div_ceil(2).min((n + 1) * CONTAINERS)).map(|c| Container {
            name: format!("c{c}"),
            readiness_probe: Some(probe.clone()),
            liveness_probe: (2 * c + 1 < workers).then(|| probe.clone()),
            ..Default::default()
        });
    let metadata = ObjectMeta {
        name: format!("pod-{n}-node"),
        namespace: "default".into(),
        uid: format!("0b9f1c5e7d3a4e26-{n}").as_str().into(),
        ..Default::default()
    };
    Arc::new(Pod {
        metadata,
        spec: Arc::new(PodSpec {
            host_network: true,
            containers: containers.collect(),
            ..Default::default()
        }),
        raw: Default::default(),
    })
}

fn status(pod: &Pod) -> PodStatus {
    let state = || ContainerState {
        running: Some(ContainerStateRunning { started_at: None }),
        ..Default::default()
    };
    let entry = |c: &Container| ContainerStatus {
        name: c.name.clone(),
        container_id: id(&c.name).uri(),
        state: state(),
        started: Some(true),
        ready: true,
        ..Default::default()
    };
    PodStatus {
        phase: PodPhase::Running,
        pod_ip: "127.0.0.1".into(),
        container_statuses: pod.spec.containers.iter().map(entry).collect(),
        ..Default::default()
    }
}
