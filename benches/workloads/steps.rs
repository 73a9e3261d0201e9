//! Steps of one Deployment, without a node: how long each takes.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use podprobe::api::PodUid;
use podprobe::api::decode::made_workload;
use podprobe::api::pod::PodSpec;
use podprobe::api::workload::WorkloadKey;
use podprobe::base::cron::Zones;
use podprobe::workloads::cron_job::WallClock;
use podprobe::workloads::state::WorkloadState;
use podprobe::workloads::step::{Step, step};
use podprobe::workloads::world::{ImagesState, KnownPod, LastState, Node, Room, Wanted, World};
use podprobe::workloads::{ObservedPod, Settings};
use serde_json::{Value, json};

use crate::support::figures::median;

/// Number of steps that are timed.
const TIMES: usize = 200;
/// Largest number of steps until nothing is to be done any more.
const MOST: usize = 50;
/// Revisions that a Deployment keeps.
const REVISIONS: usize = 11;

/// Returns what was timed, and the milliseconds of the median.
pub(crate) fn times() -> Vec<(String, f64)> {
    let mut deployment = Deployment::new();
    deployment.settle();
    let mut all = vec![("a step with nothing to do".to_owned(), deployment.time())];
    for version in 2..=REVISIONS {
        deployment.wanted = wanted(version);
        deployment.settle();
    }
    let what = format!("a step with nothing to do, {REVISIONS} revisions");
    all.push((what, deployment.time()));
    deployment.wanted = wanted(REVISIONS + 1);
    let what = format!("the first step of a new version, {REVISIONS} revisions");
    all.push((what, deployment.time()));
    all
}

/// A template as people have them: a few variables, probes and mounts.
fn wanted(version: usize) -> Wanted {
    let env: Vec<Value> = (0..10)
        .map(|n| json!({"name": format!("SETTING_{n}"), "value": "a value of some length"}))
        .collect();
    let probe = json!({"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 5});
    let container = json!({"name": "web", "image": format!("registry.example/web:{version}"), "env": env,
        "ports": [{"containerPort": 8080}], "readinessProbe": probe, "livenessProbe": probe,
        "resources": {"limits": {"memory": "64Mi"}}, "volumeMounts": [{"name": "data", "mountPath": "/data"}]});
    let spec = json!({"containers": [container], "volumes": [{"name": "data", "emptyDir": {}}]});
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": spec}}});
    Wanted {
        workload: Arc::new(made_workload(object).unwrap()),
        file: "/etc/podprobe/pods/web.yaml".into(),
        warnings: Vec::new(),
        file_error: None,
        life: 1,
    }
}

/// A node with room and images for all.
struct FreeNode {
    zones: Zones,
    uids: Cell<u64>,
}

impl Node for FreeNode {
    fn name(&self) -> &str {
        "node"
    }
    fn is_selected_by(&self, _: &PodSpec) -> Option<bool> {
        Some(true)
    }
    fn images(&self, _: &str, _: &Value, _: Timestamp) -> ImagesState {
        ImagesState::Ready
    }
    fn room_for(&self, _: &Value, _: &[PodUid]) -> Room {
        Room::Beside
    }
    fn pod_names(&self, _: &str, _: &BTreeSet<PodUid>) -> BTreeSet<String> {
        BTreeSet::new()
    }
    fn zones(&self) -> &Zones {
        &self.zones
    }
    fn takes_pods(&self) -> bool {
        true
    }

    fn new_uid(&self) -> PodUid {
        self.uids.set(self.uids.get() + 1);
        format!("{:08x}-0000-4000-8000-000000000000", self.uids.get())
            .as_str()
            .into()
    }
}

struct Deployment {
    node: FreeNode,
    key: WorkloadKey,
    wanted: Wanted,
    state: Option<WorkloadState>,
    pods: Vec<KnownPod>,
}

impl Deployment {
    fn new() -> Self {
        let wanted = wanted(1);
        Self {
            node: FreeNode {
                zones: Zones::of_node(),
                uids: Cell::new(0),
            },
            key: wanted.workload.key(),
            wanted,
            state: None,
            pods: Vec::new(),
        }
    }

    fn step(&self) -> Step {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let world = World {
            now,
            wall: WallClock {
                now,
                is_trusted: true,
            },
            node: &self.node,
            settings: Settings::default(),
        };
        let last = self.state.as_ref().map_or(LastState::New, LastState::Known);
        step(&world, &self.key, Some(&self.wanted), last, &self.pods)
    }

    /// Steps until nothing is to be done. Each pod is ready at once, and gone at once.
    fn settle(&mut self) {
        for _ in 0..MOST {
            let made = self.step();
            let is_done =
                made.create.is_empty() && made.delete.is_empty() && made.state == self.state;
            self.state = made.state;
            self.pods
                .retain(|pod| !made.delete.contains(&pod.record.uid));
            let ready = made.create.into_iter().map(|record| KnownPod {
                observed: ObservedPod {
                    name: record.name.clone(),
                    uid: record.uid.clone(),
                    created: record.created,
                    phase: podprobe::api::PodPhase::Running,
                    is_ready: true,
                    ready_changed: Some(record.created),
                    is_in_table: true,
                    ..ObservedPod::default()
                },
                record,
            });
            self.pods.extend(ready);
            if is_done {
                return;
            }
        }
        panic!("the Deployment does not settle");
    }

    /// Returns the milliseconds that a step takes.
    fn time(&self) -> f64 {
        let once = |_| {
            let begun = Instant::now();
            std::hint::black_box(self.step());
            begun.elapsed().as_secs_f64() * 1e3
        };
        let samples: Vec<f64> = (0..TIMES).map(once).collect();
        median(&samples)
    }
}
