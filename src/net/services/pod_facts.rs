//! The facts about a pod of this node that services depend on.
//!
//! Invariants: the facts are copies. The facts refer to no pod and no status, so they can be kept and compared.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use crate::api::pod::{ContainerPort, PodSpec};
use crate::api::service::{IpFamily, Protocol};
use crate::api::{Container, ContainerStatus, Pod, PodPhase, PodStatus};

/// A port that a container of the pod declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodPort {
    /// The name of the port; may be empty.
    pub name: String,
    /// Number of the port in the container.
    pub port: u16,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Number of the node's port that leads to the container's port. For a pod on the node's network this is by default the
    /// container's port.
    pub host_port: Option<u16>,
    /// The node's address for `host_port`, or `None` for every address.
    pub host_ip: Option<IpAddr>,
}

/// A pod of this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFacts {
    /// Namespace of the pod (`metadata.namespace`).
    pub namespace: String,
    /// Name of the pod (`metadata.name`).
    pub name: String,
    /// Labels of the pod (`metadata.labels`).
    pub labels: BTreeMap<String, String>,
    /// Phase of the pod (`status.phase`).
    pub phase: PodPhase,
    /// Addresses of the pod (`status.podIPs`), primary first.
    pub addresses: Vec<IpAddr>,
    /// The network namespace of the pod, if the pod has only a loopback interface; otherwise None. The addresses of
    /// such a pod have a meaning only inside of that namespace.
    pub loopback_only: Option<PathBuf>,
    /// True if the pod is on the node's network.
    pub host_network: bool,
    /// True if the pod can answer: all its containers are ready and its readiness gates are open. A terminating pod can be
    /// serving too (services 1.2).
    pub serving: bool,
    /// True if the pod is being terminated.
    pub terminating: bool,
    /// The reason for which the pod is not serving, as text for people. Empty if the pod is serving.
    pub not_serving: String,
    /// Host name that the pod asks for (`spec.hostname`). Empty if the pod asks for no host name.
    pub hostname: String,
    /// Subdomain that the pod asks for (`spec.subdomain`). Empty if the pod asks for no subdomain.
    pub subdomain: String,
    /// The declared ports: first those of the containers, then those of the sidecars (services 1.3). SCTP ports are
    /// left out.
    pub ports: Vec<PodPort>,
}

impl PodFacts {
    /// Makes the facts of a pod from its status. `terminating` says that the pod is being terminated. The condition
    /// Ready of a terminating pod is False, whatever its probes say. `loopback_only` is the value of the field with
    /// this name.
    pub fn of(
        pod: &Pod,
        status: &PodStatus,
        terminating: bool,
        loopback_only: Option<PathBuf>,
    ) -> Self {
        let not_serving = not_serving(&pod.spec, status, terminating);
        Self {
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            labels: pod.metadata.labels.clone(),
            phase: status.phase,
            addresses: addresses(status),
            loopback_only,
            host_network: pod.spec.host_network,
            serving: not_serving.is_none(),
            terminating,
            not_serving: not_serving.unwrap_or_default(),
            hostname: pod.spec.hostname.clone(),
            subdomain: pod.spec.subdomain.clone(),
            ports: ports(&pod.spec),
        }
    }

    /// Returns the pod's addresses of one family, primary first.
    pub fn addresses_of(&self, family: IpFamily) -> impl Iterator<Item = IpAddr> {
        let of_family = move |a: &&IpAddr| IpFamily::of(**a) == family;
        self.addresses.iter().filter(of_family).copied()
    }
}

/// Returns the pod's addresses from its status, without texts that are not addresses.
fn addresses(status: &PodStatus) -> Vec<IpAddr> {
    let all: Vec<IpAddr> = status
        .pod_ips
        .iter()
        .filter_map(|ip| ip.ip.parse().ok())
        .collect();
    match all.is_empty() {
        true => status.pod_ip.parse().into_iter().collect(),
        false => all,
    }
}

/// Returns the declared ports of a pod, in the order in which a port's name is looked up.
fn ports(spec: &PodSpec) -> Vec<PodPort> {
    let containers = spec.containers.iter().chain(spec.sidecars());
    let ports = containers.flat_map(|c| &c.ports);
    ports.filter_map(|p| port(p, spec.host_network)).collect()
}

fn port(port: &ContainerPort, host_network: bool) -> Option<PodPort> {
    let protocol = match port.protocol.as_str() {
        "TCP" | "" => Protocol::Tcp,
        "UDP" => Protocol::Udp,
        _ => return None,
    };
    let number = |n: i32| u16::try_from(n).ok().filter(|n| *n != 0);
    let own = number(port.container_port)?;
    let host_port = number(port.host_port).or(host_network.then_some(own));
    Some(PodPort {
        name: port.name.clone(),
        port: own,
        protocol,
        host_port,
        host_ip: port.host_ip.parse().ok(),
    })
}

/// Returns the reason for which the pod is not serving, or `None` if the pod is serving. For a running pod the
/// condition Ready decides. A terminating pod is never Ready (deviations: ready-while-ending). For such a pod
/// ContainersReady and the readiness gates decide.
fn not_serving(spec: &PodSpec, status: &PodStatus, terminating: bool) -> Option<String> {
    let is_true = |type_: &str| status.condition(type_).is_some_and(|c| c.status == "True");
    let gates_open = || {
        spec.readiness_gates
            .iter()
            .all(|g| is_true(&g.condition_type))
    };
    let serving = match terminating {
        false => is_true("Ready"),
        true => is_true("ContainersReady") && gates_open(),
    };
    (!serving).then(|| why_not_ready(spec, status))
}

fn why_not_ready(spec: &PodSpec, status: &PodStatus) -> String {
    let containers = spec.sidecars().chain(&spec.containers);
    let unready: Vec<String> = containers
        .filter_map(|c| {
            let why = why_unready(c, status.container(&c.name))?;
            Some(format!("container {}: {why}", c.name))
        })
        .collect();
    if !unready.is_empty() {
        return unready.join("; ");
    }
    let is_closed = |type_: &str| status.condition(type_).is_none_or(|c| c.status != "True");
    let closed = spec.readiness_gates.iter().map(|g| &*g.condition_type);
    let closed: Vec<&str> = closed.filter(|type_| is_closed(type_)).collect();
    match closed.is_empty() {
        true => "its status does not say Ready yet".into(),
        false => format!(
            "readiness gate {}: the condition is not True; `podprobe condition` sets it",
            closed.join(", ")
        ),
    }
}

/// Returns the reason for which a container is not ready, or `None` if the container is ready.
fn why_unready(container: &Container, status: Option<&ContainerStatus>) -> Option<String> {
    let Some(status) = status else {
        return Some("not started yet".into());
    };
    if status.ready {
        return None;
    }
    let state = &status.state;
    Some(if let Some(waiting) = &state.waiting {
        format!("waiting: {}", or(&waiting.reason, "not started yet"))
    } else if let Some(ended) = &state.terminated {
        let reason = or(&ended.reason, "ended");
        format!("{reason} with exit code {}", ended.exit_code)
    } else if status.started != Some(true) && container.startup_probe.is_some() {
        "startup probe has not succeeded".into()
    } else if container.readiness_probe.is_some() {
        "readiness probe does not succeed".into()
    } else {
        "not started yet".into()
    })
}

fn or<'a>(text: &'a str, other: &'a str) -> &'a str {
    match text.is_empty() {
        true => other,
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::test_pods::pod;

    fn status(value: Value) -> PodStatus {
        serde_json::from_value(value).expect("a status")
    }

    fn ready(status: &str) -> Value {
        json!({"type": "Ready", "status": status, "lastTransitionTime": null})
    }

    fn containers_ready(status: &str) -> Value {
        json!({"type": "ContainersReady", "status": status, "lastTransitionTime": null})
    }

    #[track_caller]
    fn check(spec: Value, of: Value, terminating: bool, serving: bool, why: &str) {
        let pod = pod("web").spec(spec).build();
        let facts = PodFacts::of(&pod, &status(of), terminating, None);
        assert_eq!((facts.serving, &*facts.not_serving), (serving, why));
        assert_eq!(facts.terminating, terminating);
    }

    #[test]
    fn serving_is_ready_and_while_a_pod_ends_containers_ready() {
        let spec = || json!({"containers": [{"name": "c"}]});
        let ready_container =
            json!([{"name": "c", "ready": true, "state": {"running": {"startedAt": null}}}]);
        let of = |r, c| json!({"conditions": [ready(r), containers_ready(c)], "containerStatuses": ready_container});
        check(spec(), of("True", "True"), false, true, "");
        check(spec(), of("False", "True"), true, true, "");
        let unsaid = "its status does not say Ready yet";
        check(spec(), of("False", "True"), false, false, unsaid);
        check(spec(), of("True", "False"), true, false, unsaid);
    }

    #[test]
    fn a_closed_gate_keeps_a_pod_that_ends_from_serving() {
        let spec =
            || json!({"containers": [], "readinessGates": [{"conditionType": "example.com/up"}]});
        let gate = |s| json!({"type": "example.com/up", "status": s, "lastTransitionTime": null});
        let of = |s| json!({"conditions": [gate(s), ready("False"), containers_ready("True")]});
        check(spec(), of("True"), true, true, "");
        let why = "readiness gate example.com/up: the condition is not True; `podprobe condition` sets it";
        check(spec(), of("False"), true, false, why);
    }

    #[test]
    fn each_container_that_is_not_ready_says_why() {
        let probe = json!({"exec": {"command": ["true"]}});
        let spec = json!({
            "initContainers": [{"name": "side", "restartPolicy": "Always"}, {"name": "once"}],
            "containers": [{"name": "a", "readinessProbe": probe}, {"name": "b", "startupProbe": probe},
                {"name": "c"}, {"name": "d"}, {"name": "e"}],
        });
        let running = json!({"running": {"startedAt": null}});
        let of = json!({
            "initContainerStatuses": [{"name": "side", "ready": true, "state": running}, {"name": "once", "ready": false}],
            "containerStatuses": [
                {"name": "a", "ready": false, "started": true, "state": running},
                {"name": "b", "ready": false, "started": false, "state": running},
                {"name": "c", "ready": false, "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
                {"name": "d", "ready": false, "state": {"terminated": {"exitCode": 3, "reason": "Error"}}},
            ],
        });
        let why = "container a: readiness probe does not succeed; container b: startup probe has not succeeded; container c: \
                   waiting: CrashLoopBackOff; container d: Error with exit code 3; container e: not started yet";
        check(spec, of, false, false, why);
    }

    #[test]
    fn ports_are_those_of_containers_and_then_of_sidecars() {
        let spec = json!({
            "initContainers": [
                {"name": "once", "ports": [{"name": "no", "containerPort": 1, "protocol": "TCP"}]},
                {"name": "side", "restartPolicy": "Always", "ports": [{"name": "s", "containerPort": 2, "protocol": "UDP"}]},
            ],
            "containers": [{"name": "c", "ports": [
                {"name": "h", "containerPort": 3, "protocol": "TCP", "hostPort": 33, "hostIP": "10.0.0.1"},
                {"name": "x", "containerPort": 4, "protocol": "SCTP"}]}],
        });
        let facts = PodFacts::of(
            &pod("web").spec(spec).build(),
            &PodStatus::default(),
            false,
            None,
        );
        let port = |name: &str, port, protocol| PodPort {
            name: name.into(),
            port,
            protocol,
            host_port: None,
            host_ip: None,
        };
        let with_host = PodPort {
            host_port: Some(33),
            host_ip: Some([10, 0, 0, 1].into()),
            ..port("h", 3, Protocol::Tcp)
        };
        assert_eq!(facts.ports, [with_host, port("s", 2, Protocol::Udp)]);
    }

    #[test]
    fn a_pod_on_the_nodes_network_has_its_ports_there() {
        let spec = json!({"hostNetwork": true, "containers": [{"name": "c", "ports": [{"containerPort": 80}]}]});
        let facts = PodFacts::of(
            &pod("web").spec(spec).build(),
            &PodStatus::default(),
            false,
            None,
        );
        assert_eq!(facts.ports[0].host_port, Some(80));
        assert!(facts.host_network);
    }

    #[test]
    fn addresses_are_those_of_the_status() {
        let both = status(
            json!({"podIP": "10.244.0.2", "podIPs": [{"ip": "10.244.0.2"}, {"ip": "fd00::2"}, {"ip": "?"}]}),
        );
        let one = status(json!({"podIP": "10.244.0.2"}));
        let facts = |of| PodFacts::of(&pod("web").build(), of, false, None);
        assert_eq!(facts(&both).addresses.len(), 2);
        let v6: Vec<IpAddr> = facts(&both).addresses_of(IpFamily::V6).collect();
        assert_eq!(v6, ["fd00::2".parse::<IpAddr>().expect("an address")]);
        assert_eq!(facts(&one).addresses, [IpAddr::from([10, 244, 0, 2])]);
        assert!(facts(&PodStatus::default()).addresses.is_empty());
    }
}
