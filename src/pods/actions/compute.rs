//! Decides what one sync starts and kills (kubelet-probes 8.3). This file decides about the sandbox. The files init.rs,
//! regular.rs and restart_all.rs decide about the containers.

use super::pod_actions::{Inputs, PodActions};
use super::restart::should_restart_after;
use super::restart_all::removals;
use super::{init, regular};
use crate::api::pod::RestartPolicy;
use crate::api::{Container, Pod, PodStatus};
use crate::engine::runtime::{RuntimePodStatus, RuntimeState};

/// Returns the names of the regular and ephemeral containers that the runtime no longer knows and that have ended for good
/// according to the pod's stored status: an ephemeral one as soon as it has run. The runtime's records do not survive a reboot, but the stored status does.
pub fn ended_before(pod: &Pod, stored: &PodStatus, runtime: &RuntimePodStatus) -> Vec<String> {
    let ended = |c: &&Container| {
        let status = stored.container_statuses.iter().find(|s| s.name == c.name);
        let end = status.and_then(|s| s.state.terminated.as_ref());
        runtime.container(&c.name).is_none()
            && end.is_some_and(|t| !should_restart_after(pod.spec.restart_policy, c, t.exit_code))
    };
    let has_run = |c: &&Container| {
        let status = stored.container(&c.name);
        runtime.container(&c.name).is_none() && status.is_some_and(|s| !s.container_id.is_empty())
    };
    let containers = pod.spec.containers.iter().filter(ended);
    let ephemeral = pod.spec.ephemeral_containers.iter().map(|c| &c.container);
    let all = containers.chain(ephemeral.filter(has_run));
    all.map(|c| c.name.clone()).collect()
}

/// Decides which actions one sync carries out (8.3).
pub fn compute(inputs: &Inputs) -> PodActions {
    let (needed, attempt) = sandbox_needed(inputs.pod, inputs.status);
    if inputs.restart_all {
        return PodActions {
            attempt,
            remove: removals(inputs.pod, inputs.status),
            ..PodActions::default()
        };
    }
    if needed {
        with_new_sandbox(inputs, attempt)
    } else {
        in_sandbox(inputs, attempt)
    }
}

/// Tells whether the pod needs a new sandbox (8.3 step 1). Also returns the attempt number of the new sandbox, or of
/// the present sandbox if the pod keeps it.
pub(crate) fn sandbox_needed(pod: &Pod, status: &RuntimePodStatus) -> (bool, u32) {
    let Some(newest) = status.sandboxes.first() else {
        return (true, 0);
    };
    let ready = status.sandboxes.iter().filter(|s| s.ready).count();
    let no_ip = !pod.spec.host_network && newest.ips.is_empty();
    let changed = newest.host_network != pod.spec.host_network;
    match ready != 1 || !newest.ready || no_ip || changed {
        true => (true, newest.attempt + 1),
        false => (false, newest.attempt),
    }
}

/// Decides the actions for a pod that needs a new sandbox (8.3 step 3).
fn with_new_sandbox(inputs: &Inputs, attempt: u32) -> PodActions {
    let Inputs { pod, status, .. } = inputs;
    let killed = PodActions {
        kill_pod: true,
        attempt,
        ..PodActions::default()
    };
    let policy = pod.spec.restart_policy;
    if policy == RestartPolicy::Never && attempt != 0 && !status.containers.is_empty() {
        return killed;
    }
    let done = |c: &Container| {
        let on_failure = c.restart_policy.unwrap_or(policy) == RestartPolicy::OnFailure;
        let succeeded = status
            .container(&c.name)
            .is_some_and(|s| s.state == RuntimeState::Exited && s.exit_code == 0);
        (on_failure && succeeded) || inputs.ended_before.contains(&c.name)
    };
    let start: Vec<usize> = pod
        .spec
        .containers
        .iter()
        .enumerate()
        .filter(|(_, c)| !done(c))
        .map(|(i, _)| i)
        .collect();
    if start.is_empty()
        && pod
            .spec
            .containers
            .iter()
            .any(|c| status.container(&c.name).is_some() || done(c))
    {
        return killed;
    }
    match pod.spec.init_containers.is_empty() {
        true => PodActions {
            create_sandbox: true,
            start,
            ..killed
        },
        false => PodActions {
            create_sandbox: true,
            init_start: vec![0],
            ..killed
        },
    }
}

/// Decides the actions for a pod that keeps its sandbox (8.3 steps 4 and 5).
fn in_sandbox(inputs: &Inputs, attempt: u32) -> PodActions {
    let init = init::decide(inputs);
    let mut actions = PodActions {
        attempt,
        kill_pod: init.kill_pod,
        init_start: init.start,
        ephemeral_start: new_ephemeral(inputs),
        kill: init.kill,
        ..PodActions::default()
    };
    if init.kill_pod {
        (actions.init_start, actions.kill) = Default::default();
        actions.ephemeral_start.clear();
    }
    if init.kill_pod || !init.initialized {
        return actions;
    }
    let regular = regular::decide(inputs);
    if regular.kept == 0 && regular.start.is_empty() {
        return PodActions {
            attempt,
            kill_pod: true,
            ..PodActions::default()
        };
    }
    actions.start = regular.start;
    actions.kill.extend(regular.kill);
    actions
}

/// Returns the ephemeral containers that have never run. They wait for nothing but the sandbox.
fn new_ephemeral(inputs: &Inputs) -> Vec<usize> {
    let is_new = |name: &String| {
        inputs.status.container(name).is_none() && !inputs.ended_before.contains(name)
    };
    let all = inputs.pod.spec.ephemeral_containers.iter().enumerate();
    let is_deleted = inputs.pod.metadata.deletion_timestamp.is_some();
    all.filter(|(_, c)| !is_deleted && is_new(&c.container.name))
        .map(|(index, _)| index)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use serde_json::{Value, json};

    use super::*;
    use crate::api::pod::ObjectMeta;
    use crate::engine::runtime::{ContainerId, RuntimeSandboxStatus};
    use crate::fake_runtime::runtime_container_status;
    use crate::pods::actions::KillReason;
    use crate::pods::container_config::spec_hash;
    use crate::pods::probe_result::ProbeResult;

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
        // the test cases say only that there is a probe, but have no handler
        for container in spec
            .get_mut("initContainers")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            for (_, probe) in container
                .as_object_mut()
                .unwrap()
                .iter_mut()
                .filter(|(_, v)| **v == true)
            {
                *probe = json!({});
            }
        }
        let object = spec.as_object_mut().unwrap();
        if object.get("restartPolicy").is_some_and(|p| p == "") {
            object.remove("restartPolicy");
        }
        let deletion_timestamp = (input["deletionTimestamp"] == true).then(String::new);
        let metadata = ObjectMeta {
            deletion_timestamp,
            ..ObjectMeta::default()
        };
        Pod {
            metadata,
            spec: serde_json::from_value(spec).unwrap(),
            raw: Default::default(),
        }
    }

    fn status(pod: &Pod, input: &Value) -> RuntimePodStatus {
        let containers = input["statuses"].as_array().unwrap().iter().map(|s| {
            let name = s["name"].as_str().unwrap();
            let mut status = runtime_container_status(
                name,
                s["id"].as_str().unwrap(),
                runtime_state(&s["state"]),
                s["exitCode"].as_i64().unwrap_or(0) as i32,
            );
            let hash = pod.container(name).map_or(0, spec_hash);
            status.hash = if s["hashChanged"] == true {
                !hash
            } else {
                hash
            };
            status
        });
        let s = &input["sandbox"];
        let sandboxes = (s["present"] == true).then(|| RuntimeSandboxStatus {
            id: "sandbox".into(),
            attempt: s["attempt"].as_u64().unwrap_or(0) as u32,
            ready: s["ready"] == true,
            host_network: false,
            created_at: SystemTime::UNIX_EPOCH,
            ips: s["ip"]
                .as_str()
                .filter(|ip| !ip.is_empty())
                .map(|ip| ip.parse().unwrap())
                .into_iter()
                .collect(),
        });
        RuntimePodStatus {
            containers: containers.collect(),
            sandboxes: sandboxes.into_iter().collect(),
            ..Default::default()
        }
    }

    #[test]
    fn kills_say_why_and_whether_a_restart_follows() {
        let mut pod = pod(
            &json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}),
        );
        let input = json!({"statuses": [{"name": "c", "id": "x", "state": "running"}],
            "sandbox": {"present": true, "ready": true, "ip": "10.0.0.1"}});
        let status = status(&pod, &input);
        let message = |pod: &Pod, startup: bool| {
            let failed_when =
                |failed: bool| move |_: &ContainerId| failed.then_some(ProbeResult::Failure);
            compute(&Inputs {
                pod,
                status: &status,
                liveness: &failed_when(!startup),
                startup: &failed_when(startup),
                restart_all: false,
                ended_before: &[],
                asked: &[],
                resized: &[],
                begun: &[],
            })
        };
        // The policy is Never, so no container stays and none starts. The whole pod is killed.
        assert!(message(&pod, false).kill_pod);
        pod.spec_mut().restart_policy = RestartPolicy::OnFailure;
        let kill = &message(&pod, false).kill[0];
        assert_eq!(
            (kill.message.as_str(), kill.reason),
            (
                "Container c failed liveness probe, will be restarted",
                KillReason::LivenessProbe
            )
        );
        let kill = &message(&pod, true).kill[0];
        assert_eq!(
            (kill.message.as_str(), kill.reason),
            (
                "Container c failed startup probe, will be restarted",
                KillReason::StartupProbe
            )
        );
    }

    /// Lessons E3: a probe failure counts only for the instance that failed, and an ended instance is not killed.
    #[test]
    fn e3_a_failure_restarts_the_instance_that_failed_only() {
        let pod = pod(&json!({"spec": {"containers": [{"name": "c", "image": "i"}]}}));
        let of = |id: &str, state: &str| {
            let input = json!({"statuses": [{"name": "c", "id": id, "state": state}],
                "sandbox": {"present": true, "ready": true, "ip": "10.0.0.1"}});
            let failed = |id: &ContainerId| {
                (*id == ContainerId::from("old")).then_some(ProbeResult::Failure)
            };
            compute(&Inputs {
                pod: &pod,
                status: &status(&pod, &input),
                liveness: &failed,
                startup: &failed,
                restart_all: false,
                ended_before: &[],
                asked: &[],
                resized: &[],
                begun: &[],
            })
        };
        assert_eq!(
            (of("old", "running").kill.len(), of("old", "running").start),
            (1, vec![0])
        );
        assert_eq!(
            (of("old", "exited").kill, of("old", "exited").start),
            (vec![], vec![0]),
            "restarting already"
        );
        assert!(
            of("new", "running").is_empty(),
            "{:?}",
            of("new", "running")
        );
    }

    #[test]
    fn an_ephemeral_container_is_started_once() {
        let ephemeral = json!([{"name": "look", "image": "i"}, {"name": "again", "image": "i"}]);
        let mut pod = pod(
            &json!({"spec": {"containers": [{"name": "c", "image": "i"}],
            "initContainers": [{"name": "i", "image": "i"}], "ephemeralContainers": ephemeral}}),
        );
        let started = |pod: &Pod, statuses: Value, ready: bool, ended: &[String]| {
            let input = json!({"statuses": statuses,
                "sandbox": {"present": true, "ready": ready, "ip": "10.0.0.1"}});
            let actions = compute(&Inputs {
                pod,
                status: &status(pod, &input),
                liveness: &|_| None,
                startup: &|_| None,
                restart_all: false,
                ended_before: ended,
                asked: &[],
                resized: &[],
                begun: &[],
            });
            actions.ephemeral_start
        };
        let of = |name: &str, state: &str| json!({"name": name, "id": name, "state": state});
        assert_eq!(
            started(&pod, json!([]), true, &[]),
            [0, 1],
            "before the init container"
        );
        let look = json!([of("look", "exited")]);
        assert_eq!(
            started(&pod, look, true, &[]),
            [1],
            "it is not started again"
        );
        assert_eq!(started(&pod, json!([]), true, &["look".to_owned()]), [1]);
        assert_eq!(started(&pod, json!([]), false, &[]), [0; 0], "no sandbox");
        let input = json!({"statuses": [of("c", "exited"), of("look", "running")],
            "sandbox": {"present": true, "ready": true, "ip": "10.0.0.1"}});
        let removed = compute(&Inputs {
            pod: &pod,
            status: &status(&pod, &input),
            liveness: &|_| None,
            startup: &|_| None,
            restart_all: true,
            ended_before: &[],
            asked: &[],
            resized: &[],
            begun: &[],
        });
        let removed: Vec<&str> = removed.remove.iter().map(|r| r.name.as_str()).collect();
        assert_eq!(removed, ["c"], "it goes on when all others start anew");
        pod.metadata.deletion_timestamp = Some("2026-11-22T00:00:00Z".to_owned());
        assert_eq!(started(&pod, json!([]), true, &[]), [0; 0]);
    }

    #[test]
    fn the_hash_covers_name_and_image_only() {
        let base: Container = serde_json::from_value(json!({"name": "a", "image": "b"})).unwrap();
        let with = |patch: Value| {
            let mut v = json!({"name": "a", "image": "b"});
            v.as_object_mut()
                .unwrap()
                .extend(patch.as_object().unwrap().clone());
            spec_hash(&serde_json::from_value(v).unwrap())
        };
        assert_eq!(
            with(json!({"command": ["x"], "env": [{"name": "A", "value": "1"}]})),
            spec_hash(&base)
        );
        assert_ne!(with(json!({"image": "c"})), spec_hash(&base));
        assert_ne!(with(json!({"name": "c"})), spec_hash(&base));
    }
}
