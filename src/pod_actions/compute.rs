//! What to start and what to kill in one sync (kubelet-probes 8.3).

use crate::api::{Container, Pod};
use crate::prober::results::ProbeResult;
use crate::runtime::{ContainerId, RuntimeContainerStatus, RuntimePodStatus, RuntimeState};

use super::restart::should_be_restarted;
use crate::api::pod::RestartPolicy;

/// Why a container is killed: decides its grace period (8.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KillReason {
    /// The pod ends, or the spec changed.
    None,
    /// The startup probe failed.
    StartupProbe,
    /// The liveness probe failed.
    LivenessProbe,
    /// The runtime lost track of it.
    Unknown,
}

/// A container to kill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToKill {
    /// Which instance.
    pub id: ContainerId,
    /// Its name.
    pub name: String,
    /// For the Killing event.
    pub message: String,
    /// For the grace period.
    pub reason: KillReason,
}

/// What one sync has to do, in this order: kill the pod or single containers, create the sandbox, start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodActions {
    /// Kill every running container and the sandbox first.
    pub kill_pod: bool,
    /// Create a sandbox.
    pub create_sandbox: bool,
    /// Number of the sandbox to create.
    pub attempt: u32,
    /// Indexes into `spec.containers`, in spec order.
    pub start: Vec<usize>,
    /// Single containers to kill.
    pub kill: Vec<ToKill>,
}

impl PodActions {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        !self.kill_pod && !self.create_sandbox && self.start.is_empty() && self.kill.is_empty()
    }
}

/// What a decision rests on.
pub struct Inputs<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// What the runtime said last.
    pub status: &'a RuntimePodStatus,
    /// The liveness cache.
    pub liveness: &'a dyn Fn(&ContainerId) -> Option<ProbeResult>,
    /// The startup cache.
    pub startup: &'a dyn Fn(&ContainerId) -> Option<ProbeResult>,
}

/// Decides (8.3 steps 1, 3, 4, 5). Init containers and whole-pod restarts (steps 2, 8.3.1) are a later step; specs that
/// hold them are refused at decoding.
pub fn compute(inputs: &Inputs) -> PodActions {
    let (needed, attempt) = sandbox_needed(inputs.pod, inputs.status);
    if needed { with_new_sandbox(inputs, attempt) } else { in_sandbox(inputs, attempt) }
}

/// Step 1: is a new sandbox needed, and its attempt (or the present one's).
pub(crate) fn sandbox_needed(pod: &Pod, status: &RuntimePodStatus) -> (bool, u32) {
    let Some(newest) = status.sandboxes.first() else { return (true, 0) };
    let ready = status.sandboxes.iter().filter(|s| s.ready).count();
    let no_ip = !pod.spec.host_network && newest.ips.is_empty();
    let changed = newest.host_network != pod.spec.host_network;
    match ready != 1 || !newest.ready || no_ip || changed {
        true => (true, newest.attempt + 1),
        false => (false, newest.attempt),
    }
}

/// Step 3.
fn with_new_sandbox(inputs: &Inputs, attempt: u32) -> PodActions {
    let Inputs { pod, status, .. } = inputs;
    let killed = PodActions { kill_pod: true, attempt, ..PodActions::default() };
    let policy = pod.spec.restart_policy;
    if policy == RestartPolicy::Never && attempt != 0 && !status.containers.is_empty() {
        return killed;
    }
    let done = |c: &Container| {
        policy == RestartPolicy::OnFailure && status.container(&c.name).is_some_and(|s| s.state == RuntimeState::Exited && s.exit_code == 0)
    };
    let start: Vec<usize> = indexes(pod, |c| !done(c));
    if start.is_empty() && pod.spec.containers.iter().any(|c| status.container(&c.name).is_some()) {
        return killed;
    }
    PodActions { create_sandbox: true, start, ..killed }
}

/// Step 5.
fn in_sandbox(inputs: &Inputs, attempt: u32) -> PodActions {
    let mut actions = PodActions { attempt, ..PodActions::default() };
    let mut kept = 0;
    for (index, container) in inputs.pod.spec.containers.iter().enumerate() {
        match decide(inputs, container) {
            Decision::Leave => {}
            Decision::Keep => kept += 1,
            Decision::Start(kill) => {
                actions.kill.extend(kill);
                actions.start.push(index);
            }
            Decision::Kill(kill) => actions.kill.push(kill),
        }
    }
    if kept == 0 && actions.start.is_empty() {
        actions.kill_pod = true;
        actions.kill.clear();
    }
    actions
}

enum Decision {
    Leave,
    Keep,
    Start(Option<ToKill>),
    Kill(ToKill),
}

/// The table of step 5 for one container.
fn decide(inputs: &Inputs, container: &Container) -> Decision {
    let policy = inputs.pod.spec.restart_policy;
    let newest = inputs.status.container(&container.name);
    let Some(running) = newest.filter(|s| s.state == RuntimeState::Running) else {
        let deleted = inputs.pod.metadata.deletion_timestamp.is_some();
        return match should_be_restarted(policy, newest, deleted) {
            true => Decision::Start(newest.filter(|s| s.state == RuntimeState::Unknown).map(unknown)),
            false => Decision::Leave,
        };
    };
    let kill = |what: &str, reason| ToKill {
        id: running.id.clone(),
        name: container.name.clone(),
        message: format!("Container {} {what}", container.name),
        reason,
    };
    let (mut kill, restart) = if running.hash != spec_hash(container) {
        (kill("definition changed", KillReason::None), true)
    } else if (inputs.liveness)(&running.id) == Some(ProbeResult::Failure) {
        (kill("failed liveness probe", KillReason::LivenessProbe), policy != RestartPolicy::Never)
    } else if (inputs.startup)(&running.id) == Some(ProbeResult::Failure) {
        (kill("failed startup probe", KillReason::StartupProbe), policy != RestartPolicy::Never)
    } else {
        return Decision::Keep;
    };
    if !restart {
        return Decision::Kill(kill);
    }
    kill.message.push_str(", will be restarted");
    Decision::Start(Some(kill))
}

fn unknown(status: &RuntimeContainerStatus) -> ToKill {
    ToKill {
        id: status.id.clone(),
        name: status.name.clone(),
        message: "Container is in \"unknown\" state, try killing it before restart".into(),
        reason: KillReason::Unknown,
    }
}

fn indexes(pod: &Pod, wanted: impl Fn(&Container) -> bool) -> Vec<usize> {
    pod.spec.containers.iter().enumerate().filter(|(_, c)| wanted(c)).map(|(i, _)| i).collect()
}

/// 32-bit FNV-1a over the container's name and image, and nothing else (8.3, 15 O12).
pub fn spec_hash(container: &Container) -> u32 {
    let text = serde_json::json!({"name": container.name, "image": container.image}).to_string();
    text.bytes().fold(0x811c_9dc5, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::SystemTime;

    use serde_json::{Value, json};

    use super::*;
    use crate::api::pod::ObjectMeta;
    use crate::runtime::RuntimeSandboxStatus;

    pub(crate) fn container_status(name: &str, id: &str, state: RuntimeState, exit_code: i32) -> RuntimeContainerStatus {
        RuntimeContainerStatus {
            id: id.into(),
            name: name.into(),
            state,
            attempt: 0,
            image: String::new(),
            image_id: String::new(),
            hash: 0,
            created_at: SystemTime::UNIX_EPOCH,
            started_at: None,
            started: None,
            finished_at: None,
            finished: None,
            exit_code,
            signal: None,
            reason: String::new(),
            message: String::new(),
            pid: None,
            log_path: "".into(),
        }
    }

    fn runtime_state(v: &Value) -> RuntimeState {
        match v.as_str().unwrap() {
            "running" => RuntimeState::Running,
            "exited" => RuntimeState::Exited,
            "created" => RuntimeState::Created,
            "unknown" => RuntimeState::Unknown,
            other => panic!("unknown state {other}"),
        }
    }

    fn pod(input: &Value) -> Pod {
        let mut spec = input["spec"].clone();
        let object = spec.as_object_mut().unwrap();
        if object.get("restartPolicy").is_some_and(|p| p == "") {
            object.remove("restartPolicy");
        }
        let deletion_timestamp = (input["deletionTimestamp"] == true).then(String::new);
        let metadata = ObjectMeta { deletion_timestamp, ..ObjectMeta::default() };
        Pod { metadata, spec: serde_json::from_value(spec).unwrap(), raw: Value::Null }
    }

    fn status(pod: &Pod, input: &Value) -> RuntimePodStatus {
        let containers = input["statuses"].as_array().unwrap().iter().map(|s| {
            let name = s["name"].as_str().unwrap();
            let mut status =
                container_status(name, s["id"].as_str().unwrap(), runtime_state(&s["state"]), s["exitCode"].as_i64().unwrap_or(0) as i32);
            let hash = pod.container(name).map_or(0, spec_hash);
            status.hash = if s["hashChanged"] == true { !hash } else { hash };
            status
        });
        let s = &input["sandbox"];
        let sandboxes = (s["present"] == true).then(|| RuntimeSandboxStatus {
            id: "sandbox".into(),
            attempt: s["attempt"].as_u64().unwrap_or(0) as u32,
            ready: s["ready"] == true,
            host_network: false,
            created_at: SystemTime::UNIX_EPOCH,
            ips: s["ip"].as_str().filter(|ip| !ip.is_empty()).map(|ip| ip.parse().unwrap()).into_iter().collect(),
        });
        RuntimePodStatus { containers: containers.collect(), sandboxes: sandboxes.into_iter().collect(), ..Default::default() }
    }

    fn cached(map: &Value, id: &ContainerId) -> Option<ProbeResult> {
        Some(match map.get(id.as_str())?.as_str()? {
            "Success" => ProbeResult::Success,
            "Failure" => ProbeResult::Failure,
            _ => ProbeResult::Unknown,
        })
    }

    /// podactions.json `cases`, those without init containers, sidecars, container policies and whole-pod restarts.
    #[test]
    fn start_and_kill_decisions_hold() {
        let vectors: Value = serde_json::from_str(include_str!("../../tests/vectors/podactions.json")).unwrap();
        let later = |input: &Value| {
            let text = input["spec"].to_string();
            input["spec"]["initContainers"] != json!([])
                || input["restartAll"] == true
                || text.contains("restartPolicyRules")
                || input["spec"]["containers"].to_string().contains("restartPolicy")
        };
        let mut ran = 0;
        for case in vectors["cases"].as_array().unwrap().iter().filter(|c| !later(&c["input"])) {
            let (input, expect) = (&case["input"], &case["expect"]);
            let pod = pod(input);
            let status = status(&pod, input);
            let got = compute(&Inputs {
                pod: &pod,
                status: &status,
                liveness: &|id| cached(&input["liveness"], id),
                startup: &|id| cached(&input["startup"], id),
            });
            let kill: Vec<&str> = got.kill.iter().map(|k| k.id.as_str()).collect();
            let got = json!({"killPod": got.kill_pod, "createSandbox": got.create_sandbox, "attempt": got.attempt,
                "initStart": [], "start": got.start, "kill": kill});
            assert_eq!(&got, expect, "{}: {}", case["id"], case["note"]);
            ran += 1;
        }
        assert!(ran >= 15, "only {ran} cases ran");
    }

    #[test]
    fn kills_say_why_and_whether_a_restart_follows() {
        let mut pod = pod(&json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}));
        let input = json!({"statuses": [{"name": "c", "id": "x", "state": "running"}],
            "sandbox": {"present": true, "ready": true, "ip": "10.0.0.1"}});
        let status = status(&pod, &input);
        let message = |pod: &Pod, startup: bool| {
            let failed_when = |failed: bool| move |_: &ContainerId| failed.then_some(ProbeResult::Failure);
            compute(&Inputs { pod, status: &status, liveness: &failed_when(!startup), startup: &failed_when(startup) })
        };
        // Never: nothing is kept and nothing starts, so the whole pod goes
        assert!(message(&pod, false).kill_pod);
        pod.spec.restart_policy = RestartPolicy::OnFailure;
        let kill = &message(&pod, false).kill[0];
        assert_eq!(
            (kill.message.as_str(), kill.reason),
            ("Container c failed liveness probe, will be restarted", KillReason::LivenessProbe)
        );
        let kill = &message(&pod, true).kill[0];
        assert_eq!((kill.message.as_str(), kill.reason), ("Container c failed startup probe, will be restarted", KillReason::StartupProbe));
    }

    #[test]
    fn the_hash_covers_name_and_image_only() {
        let base: Container = serde_json::from_value(json!({"name": "a", "image": "b"})).unwrap();
        let with = |patch: Value| {
            let mut v = json!({"name": "a", "image": "b"});
            v.as_object_mut().unwrap().extend(patch.as_object().unwrap().clone());
            spec_hash(&serde_json::from_value(v).unwrap())
        };
        assert_eq!(with(json!({"command": ["x"], "env": [{"name": "A", "value": "1"}]})), spec_hash(&base));
        assert_ne!(with(json!({"image": "c"})), spec_hash(&base));
        assert_ne!(with(json!({"name": "c"})), spec_hash(&base));
    }
}
