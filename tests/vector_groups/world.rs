//! A fake environment of the prober and its manager: statuses, start times and a runtime whose exec
//! gives the answers of the test.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded};
use podprobe::api::raw_object::RawObject;
use podprobe::api::{ContainerStatus, Pod, PodPhase, PodStatus, PodUid};
use podprobe::base::clock::Moment;
use podprobe::engine::runtime::{
    ContainerId, ExecOutcome, RuntimeError, RuntimeErrorKind, RuntimeState,
};
use podprobe::face::views::Records;
use podprobe::pods::events::Recorder;
use podprobe::pods::prober::manager::{Deps, ProberManager, Results, StatusSource};
use podprobe::pods::prober::results::{Manager, Update};
use serde_json::{Value, json};

pub(crate) use crate::fake_runtime::runtime_container_status as runtime_container;
use crate::probed::{Probed, ProbedRuntime};

/// What a command in a container comes to.
#[derive(Clone, Copy)]
pub enum Answer {
    /// It exits with this.
    Code(i32),
    /// Nothing can be said.
    Error,
}

/// Statuses and start times by what was put in.
pub struct World {
    pub statuses: Mutex<HashMap<PodUid, Arc<PodStatus>>>,
    /// Another one at each look.
    version: AtomicU64,
    pub answer: Mutex<Answer>,
}

impl World {
    pub fn new(answer: Answer) -> Arc<Self> {
        Arc::new(Self {
            statuses: Mutex::default(),
            version: AtomicU64::new(0),
            answer: Mutex::new(answer),
        })
    }
}

impl StatusSource for World {
    fn version(&self) -> u64 {
        self.version.fetch_add(1, Ordering::Relaxed)
    }

    fn pod_status(&self, uid: &PodUid) -> Option<Arc<PodStatus>> {
        self.statuses.lock().unwrap().get(uid).cloned()
    }

    fn started_moment(&self, _: &PodUid, _: &ContainerId) -> Option<Moment> {
        None
    }
}

impl Probed for World {
    fn exec(&self, _: &ContainerId) -> Result<ExecOutcome, RuntimeError> {
        match *self.answer.lock().unwrap() {
            Answer::Code(code) => Ok(ExecOutcome::Exited {
                code,
                output: b"said".to_vec(),
            }),
            Answer::Error => Err(RuntimeError::new(
                RuntimeErrorKind::Failed,
                "no descriptors",
            )),
        }
    }
}

/// A probe manager in that world.
pub struct Daemon {
    pub world: Arc<World>,
    pub manager: ProberManager,
    pub results: Results,
    /// Held so that the channel is open; nothing waits for it.
    _updates: Receiver<Update>,
}

impl Daemon {
    pub fn new() -> Self {
        let world = World::new(Answer::Code(0));
        let (tx, updates) = bounded(10_000);
        let cache = || Arc::new(Manager::new(tx.clone()));
        let results = Results {
            startup: cache(),
            readiness: cache(),
            liveness: cache(),
        };
        let manager = ProberManager::new(Deps {
            statuses: world.clone(),
            runtime: Arc::new(ProbedRuntime(world.clone())),
            results: results.clone(),
            recorder: Arc::new(Recorder::default()),
            started: Moment::now(),
            allow_probe_hosts: Vec::new(),
            restored: HashMap::new(),
            records: Arc::<Records>::default(),
            streaks: Default::default(),
        });
        Self {
            world,
            manager,
            results,
            _updates: updates,
        }
    }

    /// Stores what a sync would: the entries with Ready and Started as the manager says.
    pub fn store(&self, pod: &Pod, entries: Vec<ContainerStatus>) -> PodStatus {
        let mut fresh = PodStatus {
            phase: PodPhase::Running,
            container_statuses: entries,
            ..Default::default()
        };
        self.manager.update_pod_status(pod, &mut fresh);
        self.world
            .statuses
            .lock()
            .unwrap()
            .insert(pod.uid().clone(), Arc::new(fresh.clone()));
        self.manager.trigger_workers(pod, &fresh);
        fresh
    }

    /// The workers have ended when it returns.
    pub fn end(&self) -> Result<(), String> {
        super::same(
            "threads that did not end",
            0,
            self.manager.shutdown(CEILING),
        )
    }
}

/// No wait is longer.
pub const CEILING: Duration = Duration::from_secs(20);

/// Waits for a condition.
pub fn until(what: &str, condition: impl Fn() -> bool) -> Result<(), String> {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > CEILING {
            return Err(format!(
                "expected: {what}; it did not come within {CEILING:?}"
            ));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// A pod with that name as its UID.
pub fn pod_of(name: &str, spec: Value) -> Arc<Pod> {
    let metadata = json!({"name": name, "namespace": "default", "uid": name});
    let typed = |v: &Value| serde_json::from_value(v.clone()).expect("a pod spec");
    let metadata_typed = serde_json::from_value(metadata.clone()).expect("metadata");
    Arc::new(Pod {
        metadata: metadata_typed,
        spec: typed(&spec),
        raw: RawObject::new(&json!({"metadata": metadata, "spec": spec})),
    })
}

/// An entry of an API status; `state` is one of the API's.
pub fn entry(name: &str, id: &str, state: Value, started: Option<bool>) -> ContainerStatus {
    let id = if id.is_empty() {
        String::new()
    } else {
        ContainerId::from(id).uri()
    };
    let mut entry = json!({"name": name, "containerID": id, "state": state});
    if let Some(started) = started {
        entry["started"] = started.into();
    }
    serde_json::from_value(entry).expect("a container status")
}

/// The state of the API that a word stands for.
pub fn api_state(word: &str, exit_code: i32, reason: &str) -> Result<Value, String> {
    Ok(match word {
        "running" => json!({"running": {"startedAt": null}}),
        "waiting" => json!({"waiting": {"reason": reason}}),
        "terminated" => json!({"terminated": {"exitCode": exit_code, "reason": reason}}),
        other => return super::unknown("state", other),
    })
}

/// The runtime's state that a word stands for.
pub fn runtime_state(word: &str) -> Result<RuntimeState, String> {
    Ok(match word {
        "created" => RuntimeState::Created,
        "running" => RuntimeState::Running,
        "exited" => RuntimeState::Exited,
        "unknown" => RuntimeState::Unknown,
        other => return super::unknown("state", other),
    })
}
