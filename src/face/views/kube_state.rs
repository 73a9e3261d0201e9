//! The metrics of pods and services, under the names, types and labels of kube-state-metrics, so that dashboards and
//! rules for kube-state-metrics work.
//!
//! Invariants: pure. A series exists while its pod exists. A reason is a label of a single series, whose value is 1.

use std::net::IpAddr;

use crate::api::pod::{ContainerType, Listed, RestartPolicy};
use crate::api::service::Service;
use crate::api::status::ContainerStateTerminated;
use crate::api::{Container, ContainerStatus, Pod, PodPhase, PodStatus};
use crate::base::clock::Time;
use crate::base::metrics::{Family, Kind, pairs};
use crate::net::services::table::{Backends, ServiceTable};
use crate::net::services::view::type_name;
use crate::workloads::Owner;

/// A pod and its status.
#[derive(Clone, Copy, Debug)]
pub struct PodState<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The status of the pod.
    pub status: &'a PodStatus,
    /// The controller that has made the pod; None for a static pod.
    pub owner: Option<&'a Owner>,
}

/// The labels of the node.
#[derive(Clone, Copy, Debug)]
pub struct NodeLabels<'a> {
    /// The node's name.
    pub name: &'a str,
    /// The node's address, which pods with hostNetwork have too.
    pub ip: IpAddr,
}

/// Appends the metric families of all pods.
pub fn write_pods(pods: &[PodState<'_>], node: NodeLabels<'_>, out: &mut String) {
    let pods: Vec<OfPod<'_>> = pods.iter().map(|p| OfPod::new(*p, node.name)).collect();
    write_infos(&pods, node, out);
    write_times(&pods, out);
    write_phases(&pods, out);
    for (is_init, prefix) in [
        (false, "kube_pod_container"),
        (true, "kube_pod_init_container"),
    ] {
        let of_kind = pods.iter().flat_map(|p| &p.containers);
        let of_kind: Vec<&OfContainer<'_>> = of_kind.filter(|c| c.is_init == is_init).collect();
        write_containers(prefix, &of_kind, out);
        write_resources(prefix, &of_kind, node.name, out);
    }
}

struct OfPod<'a> {
    /// The labels of the pod: `namespace="…",pod="…",uid="…"`.
    pairs: String,
    /// Kind and name of the owner.
    owner: (&'a str, &'a str),
    pod: &'a Pod,
    status: &'a PodStatus,
    containers: Vec<OfContainer<'a>>,
}

struct OfContainer<'a> {
    /// The labels of the container: `container="…",` and the labels of its pod.
    pairs: String,
    spec: &'a Container,
    status: Option<&'a ContainerStatus>,
    is_init: bool,
}

impl<'a> OfPod<'a> {
    fn new(state: PodState<'a>, node: &'a str) -> Self {
        let PodState { pod, status, owner } = state;
        let m = &pod.metadata;
        let of_pod = pairs(&[
            ("namespace", &m.namespace),
            ("pod", &m.name),
            ("uid", m.uid.as_str()),
        ]);
        let container = |listed: Listed<'a>| OfContainer {
            pairs: format!(
                "{},{of_pod}",
                pairs(&[("container", &listed.container.name)])
            ),
            spec: listed.container,
            status: status.container(&listed.container.name),
            is_init: listed.kind == ContainerType::Init,
        };
        Self {
            containers: (pod.spec.listed())
                .filter(|listed| listed.kind != ContainerType::Ephemeral)
                .map(container)
                .collect(),
            pairs: of_pod,
            // The node owns the mirror pod of a static pod.
            owner: owner.map_or(("Node", node), |owner| (&owner.kind, &owner.name)),
            pod,
            status,
        }
    }
}

/// Returns labels with a leading comma, to follow other labels: `,name="value"`.
pub(super) fn more(labels: &[(&str, &str)]) -> String {
    format!(",{}", pairs(labels))
}

pub(super) fn gauge<'a>(out: &'a mut String, name: &'a str, help: &'a str) -> Family<'a> {
    Family::new(out, name, Kind::Gauge, help)
}

fn write_infos(pods: &[OfPod<'_>], node: NodeLabels<'_>, out: &mut String) {
    let host_ip = node.ip.to_string();
    let mut family = gauge(out, "kube_pod_info", "Information about pod.");
    for p in pods {
        let spec = &p.pod.spec;
        let labels = [
            ("created_by_kind", p.owner.0),
            ("created_by_name", p.owner.1),
            ("host_ip", &host_ip),
            ("host_network", truth(spec.host_network)),
            ("node", node.name),
            ("pod_ip", &p.status.pod_ip),
            ("priority_class", &spec.priority_class_name),
        ];
        family.value_of(&[&p.pairs, &more(&labels)], 1);
    }
    let help = "Information about the Pod's owner.";
    let mut family = gauge(out, "kube_pod_owner", help);
    for p in pods {
        let (kind, name) = p.owner;
        let owner = more(&[
            ("owner_is_controller", "true"),
            ("owner_kind", kind),
            ("owner_name", name),
        ]);
        family.value_of(&[&p.pairs, &owner], 1);
    }
    let help = "Describes the restart policy in use by this pod.";
    let mut family = gauge(out, "kube_pod_restart_policy", help);
    for p in pods {
        let policy = match p.pod.spec.restart_policy {
            RestartPolicy::Always => "Always",
            RestartPolicy::OnFailure => "OnFailure",
            RestartPolicy::Never => "Never",
        };
        family.value_of(&[&p.pairs, &more(&[("type", policy)])], 1);
    }
}

pub(super) fn truth(is: bool) -> &'static str {
    if is { "true" } else { "false" }
}

pub(super) fn seconds(t: Time) -> u64 {
    u64::try_from(t.unix_seconds()).unwrap_or(0)
}

fn write_times(pods: &[OfPod<'_>], out: &mut String) {
    let help = "Start time in unix timestamp for a pod.";
    let mut family = gauge(out, "kube_pod_start_time", help);
    for p in pods {
        if let Some(start) = p.status.start_time {
            family.value_of(&[&p.pairs], seconds(start));
        }
    }
    let help = "Completion time in unix timestamp for a pod.";
    let mut family = gauge(out, "kube_pod_completion_time", help);
    for p in pods.iter().filter(|p| p.status.phase.is_terminal()) {
        let ends = p.containers.iter().filter_map(|c| c.status);
        let ends = ends.filter_map(|s| s.state.terminated.as_ref()?.finished_at);
        if let Some(last) = ends.max() {
            family.value_of(&[&p.pairs], seconds(last));
        }
    }
}

fn write_phases(pods: &[OfPod<'_>], out: &mut String) {
    const PHASES: [PodPhase; 5] = [
        PodPhase::Pending,
        PodPhase::Succeeded,
        PodPhase::Failed,
        PodPhase::Unknown,
        PodPhase::Running,
    ];
    let phases = PHASES.map(|phase| (phase, more(&[("phase", phase.as_str())])));
    let mut family = gauge(out, "kube_pod_status_phase", "The pods current phase.");
    for p in pods {
        for (phase, pairs) in &phases {
            let is = u64::from(p.status.phase == *phase);
            family.value_of(&[&p.pairs, pairs], is);
        }
    }
    let answers = ["true", "false", "unknown"].map(|a| (a, more(&[("condition", a)])));
    let help = "Describes whether the pod is ready to serve requests.";
    let mut family = gauge(out, "kube_pod_status_ready", help);
    for p in pods {
        let ready = p.status.condition("Ready").map_or("", |c| &c.status);
        for (answer, pairs) in &answers {
            let is = u64::from(ready.eq_ignore_ascii_case(answer));
            family.value_of(&[&p.pairs, pairs], is);
        }
    }
    let mut family = gauge(out, "kube_pod_status_reason", "The pod status reasons");
    for p in pods.iter().filter(|p| !p.status.reason.is_empty()) {
        let reason = more(&[("reason", &p.status.reason)]);
        family.value_of(&[&p.pairs, &reason], 1);
    }
}

/// A metric family of a container: the suffix of its name, its help text, and the function that returns its value.
type Number = (
    &'static str,
    &'static str,
    fn(&ContainerStatus) -> Option<u64>,
);

const NUMBERS: [Number; 8] = [
    (
        "_status_waiting",
        "Describes whether the container is currently in waiting state.",
        |s| Some(s.state.waiting.is_some().into()),
    ),
    (
        "_status_running",
        "Describes whether the container is currently in running state.",
        |s| Some(s.state.running.is_some().into()),
    ),
    (
        "_status_terminated",
        "Describes whether the container is currently in terminated state.",
        |s| Some(s.state.terminated.is_some().into()),
    ),
    (
        "_status_ready",
        "Describes whether the containers readiness check succeeded.",
        |s| Some(s.ready.into()),
    ),
    (
        "_status_restarts_total",
        "The number of container restarts per container.",
        |s| Some(s.restart_count.into()),
    ),
    (
        "_state_started",
        "Start time in unix timestamp for a pod container.",
        |s| {
            let running = s.state.running.as_ref().and_then(|r| r.started_at);
            let ended = s.state.terminated.as_ref().and_then(|t| t.started_at);
            running.or(ended).map(seconds)
        },
    ),
    (
        "_status_last_terminated_exitcode",
        "Describes the exit code for the last container in terminated state.",
        |s| u64::try_from(last_end(s)?.exit_code).ok(),
    ),
    (
        "_status_last_terminated_timestamp",
        "Last terminated time for a pod container in unix timestamp.",
        |s| last_end(s)?.finished_at.map(seconds),
    ),
];

fn last_end(s: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    s.last_state.terminated.as_ref()
}

/// A metric family with a reason as label: the suffix of its name, its help text, and the function that returns the
/// reason.
type Reason = (
    &'static str,
    &'static str,
    fn(&ContainerStatus) -> Option<&str>,
);

const REASONS: [Reason; 3] = [
    (
        "_status_waiting_reason",
        "Describes the reason the container is currently in waiting state.",
        |s| s.state.waiting.as_ref().map(|w| w.reason.as_str()),
    ),
    (
        "_status_terminated_reason",
        "Describes the reason the container is currently in terminated state.",
        |s| s.state.terminated.as_ref().map(|t| t.reason.as_str()),
    ),
    (
        "_status_last_terminated_reason",
        "Describes the last reason the container was in terminated state.",
        |s| last_end(s).map(|t| t.reason.as_str()),
    ),
];

/// Appends the metric families of containers. As in kube-state-metrics, a container without a status has no series.
fn write_containers(prefix: &str, containers: &[&OfContainer<'_>], out: &mut String) {
    let with_status = || {
        containers
            .iter()
            .filter_map(|c| Some((&c.pairs, c.spec, c.status?)))
    };
    let name = format!("{prefix}_info");
    let mut family = gauge(out, &name, "Information about a container in a pod.");
    for (pairs, spec, status) in with_status() {
        let labels = more(&[
            ("container_id", &status.container_id),
            ("image", &status.image),
            ("image_id", &status.image_id),
            ("image_spec", &spec.image),
        ]);
        family.value_of(&[pairs, &labels], 1);
    }
    for (suffix, help, value) in NUMBERS {
        let kind = match suffix.ends_with("_total") {
            true => Kind::Counter,
            false => Kind::Gauge,
        };
        let name = format!("{prefix}{suffix}");
        let mut family = Family::new(out, &name, kind, help);
        for (pairs, _, status) in with_status() {
            if let Some(value) = value(status) {
                family.value_of(&[pairs], value);
            }
        }
    }
    for (suffix, help, reason) in REASONS {
        let name = format!("{prefix}{suffix}");
        let mut family = gauge(out, &name, help);
        for (pairs, _, status) in with_status() {
            if let Some(reason) = reason(status).filter(|r| !r.is_empty()) {
                family.value_of(&[pairs, &more(&[("reason", reason)])], 1);
            }
        }
    }
}

fn write_resources(prefix: &str, containers: &[&OfContainer<'_>], node: &str, out: &mut String) {
    for (suffix, what) in [
        ("_resource_requests", "requested"),
        ("_resource_limits", "limit"),
    ] {
        let name = format!("{prefix}{suffix}");
        let help = format!("The number of {what} resource by a container.");
        let mut family = gauge(out, &name, &help);
        for c in containers {
            let resources = match suffix {
                "_resource_limits" => &c.spec.resources.limits,
                _ => &c.spec.resources.requests,
            };
            for (resource, amount) in resources {
                let Some(milli) = amount.milli_value() else {
                    continue;
                };
                let unit = if resource == "cpu" { "core" } else { "byte" };
                let resource = resource.replace(['-', '/', '.'], "_");
                let labels = [
                    ("node", node),
                    ("resource", resource.as_str()),
                    ("unit", unit),
                ];
                family.real_of(&[&c.pairs, &more(&labels)], milli as f64 / 1000.0);
            }
        }
    }
}

/// A service, and the address that it got.
#[derive(Clone, Copy, Debug)]
pub struct ServiceState<'a> {
    /// The service's namespace.
    pub namespace: &'a str,
    /// The service's name.
    pub name: &'a str,
    /// The service itself.
    pub service: &'a Service,
    /// The primary cluster IP; None if the service has none.
    pub cluster_ip: Option<IpAddr>,
}

/// Appends the metric families of all services. `table` has the endpoints that are in force.
pub fn write_services(services: &[ServiceState<'_>], table: &ServiceTable, out: &mut String) {
    let labels = |s: &ServiceState<'_>| pairs(&[("namespace", s.namespace), ("service", s.name)]);
    let all: Vec<_> = services.iter().map(|s| (labels(s), s)).collect();
    let mut family = gauge(out, "kube_service_info", "Information about service.");
    for (pairs, s) in &all {
        let text = |ip: Option<&IpAddr>| ip.map(IpAddr::to_string).unwrap_or_default();
        let cluster_ip = match s.service.is_headless() {
            true => "None".to_owned(),
            false => text(s.cluster_ip.as_ref()),
        };
        let labels = [
            ("cluster_ip", cluster_ip.as_str()),
            ("external_name", &s.service.external_name),
            ("load_balancer_ip", &text(s.service.ingress_ips.first())),
        ];
        family.value_of(&[pairs, &more(&labels)], 1);
    }
    let mut family = gauge(out, "kube_service_spec_type", "Type about service.");
    for (pairs, s) in &all {
        let type_ = type_name(s.service.type_);
        family.value_of(&[pairs, &more(&[("type", type_)])], 1);
    }
    let help = "Endpoints that clients on the node and in pods are sent to, by port of a service.";
    let mut family = gauge(out, "podprobe_service_endpoints", help);
    for entry in &table.services {
        let (name, port) = (&entry.name, entry.port.to_string());
        let protocol = name.protocol.to_string();
        let endpoints = match &entry.internal {
            Backends::Some(all) => all.len() as u64,
            Backends::Reject | Backends::Drop => 0,
        };
        let labels = [
            ("namespace", name.namespace.as_str()),
            ("service", &name.service),
            ("port", &port),
            ("protocol", &protocol),
        ];
        family.value(&labels, endpoints);
    }
}

#[cfg(test)]
mod tests;
