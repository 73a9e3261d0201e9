//! Computes the whole API status of a pod in one pure step: statuses, phase, Ready and Started, conditions
//! (kubelet-probes 9.1–9.5).

use std::net::IpAddr;

use super::container_statuses::{self, StartFailure};
use super::{conditions, phase};
use crate::api::qos::QosClass;
use crate::api::status::PodIp;
use crate::api::{Pod, PodPhase, PodSource, PodStatus};
use crate::base::clock::Time;
use crate::engine::runtime::RuntimePodStatus;
use crate::pods::actions::{
    ALL_CONTAINERS_RESTARTING, ResizeState, has_initialized, restart_all_wanted, sandbox_needed,
};
use crate::pods::admission::{NODE_DRAINED, NODE_SHUTDOWN, Rejection};

/// The reason in the status of an evicted pod, and the reason of the event about the eviction.
pub const EVICTED: &str = "Evicted";
/// The reason in the status of a pod that a person has deleted while its file still exists.
pub const DELETED: &str = "Deleted";
/// The reason of a pod of an API server that has ended because the node shuts down.
pub const TERMINATED: &str = "Terminated";

/// The order that ends a pod or has ended it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedBy {
    /// The reason in the pod's status.
    pub reason: &'static str,
    /// The message in the pod's status.
    pub message: String,
    /// True if the pod starts again when the node takes pods again. It is then Pending, and has not failed.
    pub comes_back: bool,
}

impl EndedBy {
    /// Returns the message if the order ends the pod for the sake of the node, and the pod does not come back as it was.
    fn disrupts(&self) -> Option<&str> {
        [EVICTED, TERMINATED]
            .contains(&self.reason)
            .then_some(&*self.message)
    }
}

/// True if a status has the reason of a pod that was evicted or deleted, or has ended with all pods of the node.
pub fn is_of_ended(status: &PodStatus) -> bool {
    let reasons = [EVICTED, DELETED, TERMINATED, NODE_DRAINED, NODE_SHUTDOWN];
    reasons.contains(&status.reason.as_str()) && Rejection::of(status).is_none()
}

/// The inputs from which a pod's status is computed.
pub struct Inputs<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The last status from the runtime.
    pub runtime: &'a RuntimePodStatus,
    /// The previous API status.
    pub old: Option<&'a PodStatus>,
    /// Returns the recorded start failure of a container.
    pub failure: &'a dyn Fn(&str) -> Option<StartFailure>,
    /// Writes Ready and Started from the probe results (kubelet-probes 4.3). This function must change nothing else.
    pub probed: &'a dyn Fn(&mut PodStatus),
    /// The present time on the wall clock, for transition times.
    pub now: Time,
    /// The node's address, for pods that use the node's network.
    pub node_ip: IpAddr,
    /// True if all containers of the pod were stopped for good.
    pub pod_is_terminal: bool,
    /// True if the pod is being stopped.
    pub terminating: bool,
    /// True if activeDeadlineSeconds have passed since the start time.
    pub deadline_exceeded: bool,
    /// The order that ends the pod or has ended it, or `None` if there is no such order.
    pub ended_by: Option<&'a EndedBy>,
    /// The state of the pod's resize (8.13).
    pub resize: &'a ResizeState,
}

/// Computes the status of a pod.
pub fn generate(inputs: &Inputs) -> PodStatus {
    let Inputs {
        pod, runtime, old, ..
    } = inputs;
    let old_conditions = old.map_or(&[][..], |o| &o.conditions);
    // True even in the first status after the last instance is gone, so that this status counts the removed instances.
    let was_restarting = conditions::is_true(old_conditions, ALL_CONTAINERS_RESTARTING);
    let wanted = restart_all_wanted(pod, runtime);
    let of_containers = container_statuses::Inputs {
        pod,
        runtime,
        old: *old,
        failure: inputs.failure,
        restarting: wanted || was_restarting,
    };
    let mut status = PodStatus {
        init_container_statuses: container_statuses::init(&of_containers),
        container_statuses: container_statuses::regular(&of_containers),
        ephemeral_container_statuses: container_statuses::ephemeral(&of_containers),
        start_time: old.and_then(|o| o.start_time).or(Some(inputs.now)),
        qos_class: qos_class(pod).into(),
        observed_generation: pod
            .metadata
            .generation
            .filter(|_| pod.source() == PodSource::Api),
        ..PodStatus::default()
    };
    container_statuses::cut_messages(pod, &mut status.init_container_statuses);
    container_statuses::cut_messages(pod, &mut status.container_statuses);
    container_statuses::cut_messages(pod, &mut status.ephemeral_container_statuses);
    set_phase(inputs, &mut status);
    set_ips(inputs, &mut status);
    (inputs.probed)(&mut status);
    let facts = conditions::ConditionInputs {
        sandbox_ready: !sandbox_needed(pod, runtime).0,
        restarting: wanted || (was_restarting && !runtime.containers.is_empty()),
        terminating: inputs.terminating,
        resize: inputs.resize,
        disrupted: inputs.ended_by.and_then(EndedBy::disrupts),
        old: old_conditions,
    };
    status.conditions = conditions::generate(&pod.spec, &status, &facts);
    conditions::keep_transition_times(&mut status.conditions, old_conditions, inputs.now);
    status
}

/// Sets the phase (9.2). A terminal phase never goes back. A deadline, an eviction or a deletion forces Failed. A pod that
/// starts again when the node takes pods again is Pending, unless it has done its work. An unchanged phase keeps its reason.
fn set_phase(inputs: &Inputs, status: &mut PodStatus) {
    let comes_back = inputs.ended_by.is_some_and(|by| by.comes_back);
    let facts = phase::PhaseInputs {
        pod_is_terminal: inputs.pod_is_terminal && !comes_back,
        has_initialized: has_initialized(inputs.pod, inputs.runtime),
        static_pod: inputs.pod.source().is_static(),
    };
    let statuses = [
        &status.init_container_statuses[..],
        &status.container_statuses,
    ]
    .concat();
    let computed = phase::phase(&inputs.pod.spec, &statuses, facts);
    let was = inputs.old.filter(|o| o.phase.is_terminal());
    status.phase = was.map_or(computed, |o| o.phase);
    let deadline = inputs.deadline_exceeded.then_some((
        "DeadlineExceeded",
        "Pod was active on the node longer than the specified deadline",
    ));
    let held = inputs.ended_by.filter(|by| by.comes_back);
    // Only a pod that had done its work when the order came has succeeded: an exit code 0 after a stop signal says nothing.
    let is_told = |by: &EndedBy| inputs.old.is_some_and(|old| old.reason == by.reason);
    let had_succeeded =
        |by: &EndedBy| computed == PodPhase::Succeeded && !inputs.pod_is_terminal && !is_told(by);
    if let Some(by) = held.filter(|by| was.is_none() && !had_succeeded(by)) {
        status.phase = match inputs.pod_is_terminal {
            true => PodPhase::Pending,
            false => inputs.old.map_or(PodPhase::Pending, |old| old.phase),
        };
        status.reason = by.reason.into();
        status.message.clone_from(&by.message);
        return;
    }
    let ended_by = inputs.ended_by.filter(|by| !by.comes_back);
    let failed = ended_by.map(|by| (by.reason, &*by.message)).or(deadline);
    if let Some((reason, message)) = failed.filter(|_| was.is_none()) {
        status.phase = PodPhase::Failed;
        status.reason = reason.into();
        status.message = message.into();
    } else if let Some(same) = inputs
        .old
        .filter(|o| o.phase == status.phase && !came_back(o))
    {
        status.reason.clone_from(&same.reason);
        status.message.clone_from(&same.message);
    }
}

/// True if the old status is that of a pod that had ended with all pods of the node, and starts again now.
fn came_back(old: &PodStatus) -> bool {
    !old.phase.is_terminal() && is_of_ended(old)
}

/// Sets the pod's addresses from the sandbox (9.5 and 7 "Pod IPs"). Without a sandbox the old addresses stay. A pod in
/// the node's network has the node's address.
fn set_ips(inputs: &Inputs, status: &mut PodStatus) {
    let ips: Vec<IpAddr> = match inputs.runtime.ips() {
        [] if inputs.pod.spec.host_network => vec![inputs.node_ip],
        ips => ips.to_vec(),
    };
    status.pod_ips = ips.iter().map(|ip| PodIp { ip: ip.to_string() }).collect();
    if let (true, Some(old)) = (status.pod_ips.is_empty(), inputs.old) {
        status.pod_ips.clone_from(&old.pod_ips);
    }
    status.pod_ip = status
        .pod_ips
        .first()
        .map(|p| p.ip.clone())
        .unwrap_or_default();
}

/// Returns the value of `status.qosClass`.
pub fn qos_class(pod: &Pod) -> &'static str {
    QosClass::of(pod).as_str()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::engine::runtime::{RuntimeSandboxStatus, RuntimeState};
    use crate::fake_runtime::runtime_container_status;
    use crate::test_pods;

    fn pod(spec: Value) -> Pod {
        test_pods::pod("p").spec(spec).build()
    }

    fn sandbox(ip: &str) -> RuntimeSandboxStatus {
        RuntimeSandboxStatus {
            id: "s".into(),
            attempt: 0,
            ready: true,
            host_network: false,
            created_at: std::time::SystemTime::UNIX_EPOCH,
            ips: vec![ip.parse().unwrap()],
        }
    }

    fn run(
        pod: &Pod,
        runtime: &RuntimePodStatus,
        old: Option<&PodStatus>,
        ready: bool,
        deadline_exceeded: bool,
    ) -> PodStatus {
        generate(&Inputs {
            pod,
            runtime,
            old,
            failure: &|_| None,
            probed: &|s| {
                s.container_statuses
                    .iter_mut()
                    .for_each(|c| c.ready = ready)
            },
            now: Time::now(),
            node_ip: "192.0.2.1".parse().unwrap(),
            pod_is_terminal: false,
            terminating: false,
            deadline_exceeded,
            ended_by: None,
            resize: &ResizeState::default(),
        })
    }

    fn running() -> RuntimePodStatus {
        let containers = vec![runtime_container_status("a", "1", RuntimeState::Running, 0)];
        RuntimePodStatus {
            containers,
            sandboxes: vec![sandbox("10.0.0.7")],
            ..Default::default()
        }
    }

    #[test]
    fn ready_follows_the_probed_containers() {
        let pod = pod(json!({"containers": [{"name": "a"}]}));
        let status = run(&pod, &running(), None, true, false);
        assert_eq!(
            (status.phase, status.is_ready(), status.pod_ip.as_str()),
            (PodPhase::Running, true, "10.0.0.7")
        );
        assert!(!run(&pod, &running(), None, false, false).is_ready());
    }

    #[test]
    fn that_all_was_stopped_ends_a_pod_of_the_api_server_only() {
        let phase = |source: &str| {
            let pod = test_pods::pod("p")
                .annotation("kubernetes.io/config.source", source)
                .spec(json!({"containers": [{"name": "a"}]}))
                .build();
            let mut runtime = running();
            runtime.containers = vec![runtime_container_status("a", "1", RuntimeState::Exited, 0)];
            generate(&Inputs {
                pod: &pod,
                runtime: &runtime,
                old: None,
                failure: &|_| None,
                probed: &|_| (),
                now: Time::now(),
                node_ip: "192.0.2.1".parse().unwrap(),
                pod_is_terminal: true,
                terminating: false,
                deadline_exceeded: false,
                ended_by: None,
                resize: &ResizeState::default(),
            })
            .phase
        };
        let phases = ["file", "http", "api"].map(phase);
        assert_eq!(
            phases,
            [PodPhase::Running, PodPhase::Running, PodPhase::Succeeded]
        );
    }

    #[test]
    fn a_terminal_phase_never_goes_back() {
        let pod = pod(json!({"containers": [{"name": "a"}]}));
        let old = PodStatus {
            phase: PodPhase::Failed,
            reason: "DeadlineExceeded".into(),
            ..Default::default()
        };
        let status = run(&pod, &running(), Some(&old), true, false);
        assert_eq!(
            (status.phase, status.reason.as_str()),
            (PodPhase::Failed, "DeadlineExceeded")
        );
    }

    #[test]
    fn an_eviction_fails_the_pod_unless_it_has_ended() {
        let pod = pod(json!({"containers": [{"name": "a"}]}));
        let evicted = |old: Option<PodPhase>| {
            let old = old.map(|phase| PodStatus {
                phase,
                ..Default::default()
            });
            let status = generate(&Inputs {
                pod: &pod,
                runtime: &running(),
                old: old.as_ref(),
                failure: &|_| None,
                probed: &|_| (),
                now: Time::now(),
                node_ip: "192.0.2.1".parse().unwrap(),
                pod_is_terminal: false,
                terminating: true,
                deadline_exceeded: true,
                ended_by: Some(&EndedBy {
                    reason: EVICTED,
                    message: "full. ".into(),
                    comes_back: false,
                }),
                resize: &ResizeState::default(),
            });
            (status.phase, status.reason, status.message)
        };
        let failed = (PodPhase::Failed, "Evicted".to_owned(), "full. ".to_owned());
        assert_eq!(evicted(None), failed);
        assert_eq!(evicted(Some(PodPhase::Running)), failed);
        assert_eq!(evicted(Some(PodPhase::Succeeded)).0, PodPhase::Succeeded);
    }

    /// A pod whose node is drained: the phase and the reason while it ends, and when it has ended.
    #[test]
    fn a_held_pod_waits_unless_it_had_done_its_work() {
        let held = |old: Option<(PodPhase, &str)>, has_ended: bool, exit_code: Option<i32>| {
            let pod = pod(json!({"restartPolicy": "Never", "containers": [{"name": "a"}]}));
            let mut runtime = running();
            if let Some(code) = exit_code {
                let ended = runtime_container_status("a", "1", RuntimeState::Exited, code);
                runtime.containers = vec![ended];
            }
            let old = old.map(|(phase, reason)| PodStatus {
                phase,
                reason: reason.into(),
                ..PodStatus::default()
            });
            let status = generate(&Inputs {
                pod: &pod,
                runtime: &runtime,
                old: old.as_ref(),
                failure: &|_| None,
                probed: &|_| {},
                now: Time::now(),
                node_ip: IpAddr::from([192, 0, 2, 9]),
                pod_is_terminal: has_ended,
                terminating: true,
                deadline_exceeded: false,
                ended_by: Some(&EndedBy {
                    reason: NODE_DRAINED,
                    message: "drained".into(),
                    comes_back: true,
                }),
                resize: &ResizeState::default(),
            });
            (status.phase, status.reason)
        };
        let drained = |phase| (phase, NODE_DRAINED.to_owned());
        let (runs, told) = ((PodPhase::Running, ""), (PodPhase::Running, NODE_DRAINED));
        assert_eq!(held(Some(runs), false, None), drained(PodPhase::Running));
        for code in [0, 143] {
            let ended = held(Some(told), true, Some(code));
            assert_eq!(ended, drained(PodPhase::Pending), "exit code {code}");
            let again = held(Some(told), false, Some(code));
            assert_eq!(
                again,
                drained(PodPhase::Running),
                "it is ended a second time"
            );
        }
        let done = (PodPhase::Succeeded, String::new());
        assert_eq!(held(Some(runs), false, Some(0)), done, "before the order");
        assert_eq!(held(Some((PodPhase::Succeeded, "")), true, Some(0)), done);
        let failed = held(Some((PodPhase::Failed, "")), true, Some(1));
        assert_eq!(failed, (PodPhase::Failed, String::new()));
    }

    #[test]
    fn a_passed_deadline_fails_the_pod_and_says_so() {
        let status = run(
            &pod(json!({"containers": [{"name": "a"}]})),
            &running(),
            None,
            true,
            true,
        );
        assert_eq!(
            (status.phase, status.reason.as_str()),
            (PodPhase::Failed, "DeadlineExceeded")
        );
    }

    #[test]
    fn addresses_come_from_sandbox_node_or_before() {
        let own = pod(json!({"containers": [{"name": "a"}]}));
        let old = run(&own, &running(), None, true, false);
        assert_eq!(
            run(&own, &RuntimePodStatus::default(), Some(&old), true, false).pod_ip,
            "10.0.0.7"
        );
        let host = pod(json!({"hostNetwork": true, "containers": [{"name": "a"}]}));
        assert_eq!(
            run(&host, &RuntimePodStatus::default(), None, true, false).pod_ip,
            "192.0.2.1"
        );
    }

    #[test]
    fn all_containers_restart_until_none_is_left() {
        let rules = json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [3]}}]);
        let asks = json!({"name": "a", "restartPolicy": "Never", "restartPolicyRules": rules});
        let pod = pod(json!({"restartPolicy": "Never", "containers": [asks, {"name": "b"}]}));
        let with = |containers| RuntimePodStatus {
            containers,
            sandboxes: vec![sandbox("10.0.0.7")],
            ..Default::default()
        };
        let ended =
            |name: &str, code| runtime_container_status(name, name, RuntimeState::Exited, code);
        let says = |status: &PodStatus| {
            status
                .condition("AllContainersRestarting")
                .map(|c| (c.status.clone(), c.reason.clone()))
        };
        let (no, yes) = (
            Some(("False".into(), String::new())),
            Some(("True".into(), "RestartAllContainersStarted".into())),
        );
        let step = |containers, old: Option<&PodStatus>, expected: &Option<(String, String)>| {
            let status = run(&pod, &with(containers), old, true, false);
            assert_eq!(
                (&says(&status), status.phase.is_terminal()),
                (expected, false)
            );
            status
        };
        let alive = step(
            vec![
                runtime_container_status("a", "a", RuntimeState::Running, 0),
                ended("b", 0),
            ],
            None,
            &no,
        );
        let wanted = step(vec![ended("a", 3), ended("b", 0)], Some(&alive), &yes);
        // the container that requested the restart is already removed, the other container is not
        let half = step(vec![ended("b", 0)], Some(&wanted), &yes);
        let gone = step(vec![], Some(&half), &no);
        let counts: Vec<u32> = gone
            .container_statuses
            .iter()
            .map(|c| c.restart_count)
            .collect();
        assert_eq!(counts, [1, 1]);
        // without a rule that restarts all containers the pod does not have the condition
        assert_eq!(
            says(&run(
                &super::tests::pod(json!({"containers": [{"name": "a"}]})),
                &running(),
                None,
                true,
                false
            )),
            None
        );
    }

    #[test]
    fn init_containers_have_statuses_and_hold_the_phase() {
        let pod = pod(json!({"initContainers": [{"name": "i"}], "containers": [{"name": "a"}]}));
        let mut runtime = running();
        runtime.containers = vec![runtime_container_status("i", "1", RuntimeState::Running, 0)];
        let status = run(&pod, &runtime, None, true, false);
        assert_eq!(
            (status.phase, status.init_container_statuses.len()),
            (PodPhase::Pending, 1)
        );
        assert_eq!(status.condition("Initialized").unwrap().status, "False");
    }

    #[test]
    fn quality_of_service_classes() {
        let check = |resources: Value, expected: &str| {
            assert_eq!(
                qos_class(&pod(
                    json!({"containers": [{"name": "a", "resources": resources}]})
                )),
                expected
            );
        };
        check(json!({}), "BestEffort");
        check(
            json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}),
            "Guaranteed",
        );
        check(
            json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}),
            "Burstable",
        );
        check(json!({"requests": {"cpu": "1"}}), "Burstable");
        check(
            json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1024Mi"}}),
            "Guaranteed",
        );
        check(
            json!({"requests": {"cpu": "0", "ephemeral-storage": "1Gi"}}),
            "BestEffort",
        );
    }
}
