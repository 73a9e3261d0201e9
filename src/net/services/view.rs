//! A service in the form that people see: its addresses, its ports, its endpoints, and whether each pod gets traffic.
//!
//! Invariants: there are no side effects. Clients get the view as JSON. Therefore later versions of podprobe may add
//! fields, but never remove or change them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::allocate::Assigned;
use super::build::Built;
use super::explain::{PodTraffic, explain};
use super::findings::Subject;
use super::inputs::{Inputs, NamedService};
use super::lookup::Lookup;
use crate::api::service::{ClusterIps, ServicePort, ServiceType, TargetPort, TrafficPolicy};
use crate::base::clock::Time;

/// A service as it is now, for display.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceView {
    /// The namespace of the service.
    pub namespace: String,
    /// The name of the service.
    pub name: String,
    /// The labels of the service.
    pub labels: BTreeMap<String, String>,
    /// The time when podprobe first saw the service.
    pub created: Option<Time>,
    /// Type of the service: `ClusterIP`, `NodePort`, `LoadBalancer` or `ExternalName`.
    pub type_: String,
    /// The cluster IPs, primary first. `None` as the only entry for a headless service. Empty if there is no cluster IP.
    pub cluster_ips: Vec<String>,
    /// The addresses from `externalIPs` and of the load balancer, or the external name.
    pub external: Vec<String>,
    /// The DNS name with which clients in pods find the service. Empty if podprobe does not serve DNS.
    pub dns_name: String,
    /// The ports of the service, in the order of its file.
    pub ports: Vec<PortView>,
    /// The labels of the selector, each as `key=value`.
    pub selector: Vec<String>,
    /// The session affinity: `None`, or `ClientIP` with its time in seconds.
    pub session_affinity: String,
    /// The policy for traffic to cluster IPs: `Cluster` or `Local`.
    pub internal_traffic_policy: String,
    /// The policy for traffic from outside: `Cluster` or `Local`. Empty if no client comes from outside.
    pub external_traffic_policy: String,
    /// The pods that the selector matches.
    pub pods: Vec<PodTraffic>,
    /// The pods that the selector nearly matches.
    pub near: Vec<PodTraffic>,
    /// A remark about the whole service, for example that no pod has the labels. Empty if there is none.
    pub note: String,
    /// The problems of the service: the points in which it differs from what its file asks for.
    pub problems: Vec<String>,
}

/// A port of a service as people see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PortView {
    /// The name of the port; may be empty.
    pub name: String,
    /// Protocol of the port: `TCP` or `UDP`.
    pub protocol: String,
    /// The number of the port.
    pub port: u16,
    /// The port of the pods: a number or a name.
    pub target_port: String,
    /// The port on the node, if there is one.
    pub node_port: Option<u16>,
    /// The endpoints that clients are sent to, each as `address:port`.
    pub endpoints: Vec<String>,
}

/// Makes the view of one service.
pub fn view(
    service: &NamedService<'_>,
    assigned: &Assigned,
    inputs: &Inputs<'_>,
    built: &Built,
) -> ServiceView {
    let s = service.service;
    let explanation = explain(service, inputs);
    let subject = Subject::Service(service.namespace.into(), service.name.into());
    let findings = built.findings.iter().filter(|f| f.subject == subject);
    let refused = assigned.problems.iter().map(ToString::to_string);
    let is_external = matches!(s.type_, ServiceType::NodePort | ServiceType::LoadBalancer)
        || !s.external_ips.is_empty();
    ServiceView {
        namespace: service.namespace.into(),
        name: service.name.into(),
        labels: s.labels.clone(),
        created: assigned.since,
        type_: type_name(s.type_).into(),
        cluster_ips: match s.cluster_ips {
            ClusterIps::Headless => vec!["None".into()],
            _ => service
                .cluster_ips
                .iter()
                .map(ToString::to_string)
                .collect(),
        },
        external: match s.type_ {
            ServiceType::ExternalName => vec![s.external_name.clone()],
            _ => {
                let all = s.external_ips.iter().chain(&s.ingress_ips);
                all.map(ToString::to_string).collect()
            }
        },
        dns_name: String::new(),
        ports: ports(service, inputs),
        selector: s.selector.iter().map(|(k, v)| format!("{k}={v}")).collect(),
        session_affinity: match s.session_affinity {
            None => "None".into(),
            Some(time) => format!("ClientIP ({} s)", time.as_secs()),
        },
        internal_traffic_policy: policy(s.internal_traffic_policy).into(),
        external_traffic_policy: match is_external {
            true => policy(s.external_traffic_policy).into(),
            false => String::new(),
        },
        pods: explanation.selected,
        near: explanation.near,
        note: explanation.note,
        problems: refused.chain(findings.map(|f| f.message.clone())).collect(),
    }
}

/// Returns the ports of a service for display, each with its endpoints for the traffic policy Cluster.
fn ports(service: &NamedService<'_>, inputs: &Inputs<'_>) -> Vec<PortView> {
    let endpoints = Lookup::new(inputs).endpoints(service);
    let of_ports = endpoints.of_ports(service.service);
    let ports = service.service.ports.iter().zip(&of_ports).enumerate();
    ports
        .map(|(index, (port, candidates))| PortView {
            name: port.name.clone(),
            protocol: port.protocol.to_string(),
            port: port.port,
            target_port: target(port),
            node_port: service.node_ports.get(index).copied().flatten(),
            endpoints: used(candidates),
        })
        .collect()
}

fn used(candidates: &[super::choose::Candidate]) -> Vec<String> {
    use super::table::Backends;
    match super::choose::Choice::of(candidates).backends(TrafficPolicy::Cluster) {
        Backends::Some(backends) => backends.iter().map(|b| b.address.to_string()).collect(),
        Backends::Reject | Backends::Drop => Vec::new(),
    }
}

fn target(port: &ServicePort) -> String {
    match &port.target_port {
        TargetPort::Number(number) => number.to_string(),
        TargetPort::Name(name) => name.clone(),
    }
}

/// Returns the API's name for a type of service.
pub fn type_name(type_: ServiceType) -> &'static str {
    match type_ {
        ServiceType::ClusterIp => "ClusterIP",
        ServiceType::NodePort => "NodePort",
        ServiceType::LoadBalancer => "LoadBalancer",
        ServiceType::ExternalName => "ExternalName",
    }
}

fn policy(policy: TrafficPolicy) -> &'static str {
    match policy {
        TrafficPolicy::Cluster => "Cluster",
        TrafficPolicy::Local => "Local",
    }
}
