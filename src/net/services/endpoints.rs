//! The endpoints of a service among the pods of this node, as the endpoint slice controller computes them (services 1).
//!
//! Invariants: pure. Equal inputs in any order give equal endpoints in one order: by pod, then by family.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use super::pod_facts::PodFacts;
use crate::api::service::{
    Endpoint, EndpointConditions, EndpointPort, EndpointSlice, IpFamily, IpFamilyPolicy, Service,
    ServicePort, TargetPort,
};

/// A service whose endpoints are wanted.
#[derive(Clone, Copy, Debug)]
pub struct Selecting<'a> {
    /// The namespace of the service. Pods of other namespaces are not selected.
    pub namespace: &'a str,
    /// The name of the service.
    pub name: &'a str,
    /// The service.
    pub service: &'a Service,
    /// The families of the service's addresses. For a headless service, the families that it names, or else those of the
    /// node.
    pub families: &'a [IpFamily],
}

/// A pod of this node as an endpoint of a service, with its addresses of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodEndpoint {
    /// The endpoint as a slice would have it, but without the name of the node.
    pub endpoint: Endpoint,
    /// The family of all addresses of the endpoint.
    pub family: IpFamily,
    /// The ports of the service that the pod has, with the pod's numbers.
    pub ports: Vec<EndpointPort>,
    /// The network namespace of a pod that has only a loopback interface.
    pub loopback_only: Option<PathBuf>,
}

/// Tells whether the service's selector selects a pod with these labels. An empty selector selects none.
pub fn selects(service: &Service, labels: &BTreeMap<String, String>) -> bool {
    let has = |(key, value)| labels.get(key) == Some(value);
    !service.selector.is_empty() && service.selector.iter().all(has)
}

/// True if the pod can be an endpoint: it has not finished and has an address. A pod that ends can be one (services 1.1).
pub fn counts(pod: &PodFacts) -> bool {
    !pod.phase.is_terminal() && !pod.addresses.is_empty()
}

/// The conditions of a pod's endpoint (services 1.2).
pub fn conditions(service: &Service, pod: &PodFacts) -> EndpointConditions {
    EndpointConditions {
        ready: service.publish_not_ready_addresses || pod.serving && !pod.terminating,
        serving: pod.serving,
        terminating: pod.terminating,
    }
}

/// The number of a service port on a pod; None where the pod has no port of that name and protocol (services 1.3).
pub fn target_port(port: &ServicePort, pod: &PodFacts) -> Option<u16> {
    match &port.target_port {
        TargetPort::Number(number) => Some(*number),
        TargetPort::Name(name) => pod
            .ports
            .iter()
            .find(|p| p.name == *name && p.protocol == port.protocol)
            .map(|p| p.port),
    }
}

/// The endpoints of a service among these pods.
pub fn endpoints<'p>(
    of: &Selecting<'_>,
    pods: impl IntoIterator<Item = &'p PodFacts>,
) -> Vec<PodEndpoint> {
    let selected = |pod: &&PodFacts| {
        pod.namespace == of.namespace && selects(of.service, &pod.labels) && counts(pod)
    };
    let mut pods: Vec<&PodFacts> = pods.into_iter().filter(selected).collect();
    pods.sort_by_key(|pod| &pod.name);
    let families = || of.families.iter().copied();
    let each = pods
        .iter()
        .flat_map(|pod| families().map(move |f| (pod, f)));
    each.filter_map(|(pod, family)| endpoint(of, pod, family))
        .collect()
}

/// Makes the endpoint of a pod for one family, or returns `None` if the pod has no address of that family.
fn endpoint(of: &Selecting<'_>, pod: &PodFacts, family: IpFamily) -> Option<PodEndpoint> {
    let addresses: Vec<_> = pod.addresses_of(family).collect();
    if addresses.is_empty() {
        return None;
    }
    let named = !pod.hostname.is_empty() && pod.subdomain == of.name;
    Some(PodEndpoint {
        endpoint: Endpoint {
            addresses,
            conditions: conditions(of.service, pod),
            hostname: named.then(|| pod.hostname.clone()),
            node_name: None,
            target: Some((pod.namespace.clone(), pod.name.clone())),
        },
        family,
        ports: ports(of.service, pod),
        loopback_only: pod.loopback_only.clone(),
    })
}

fn ports(service: &Service, pod: &PodFacts) -> Vec<EndpointPort> {
    let port = |port: &ServicePort| {
        Some(EndpointPort {
            name: port.name.clone(),
            protocol: port.protocol,
            port: Some(target_port(port, pod)?),
            app_protocol: port.app_protocol.clone(),
        })
    };
    service.ports.iter().filter_map(port).collect()
}

/// Returns the endpoints as slices, as the controller would write them: one slice for each family and each set of ports.
/// The slices are for people and for names. `node_name` is the name of this node.
pub fn slices(service: &str, node_name: &str, endpoints: &[PodEndpoint]) -> Vec<EndpointSlice> {
    let mut slices: Vec<EndpointSlice> = Vec::new();
    for of_pod in endpoints {
        let endpoint = Endpoint {
            node_name: Some(node_name.to_owned()),
            ..of_pod.endpoint.clone()
        };
        let fits = |s: &&mut EndpointSlice| s.family == of_pod.family && s.ports == of_pod.ports;
        match slices.iter_mut().find(fits) {
            Some(slice) => slice.endpoints.push(endpoint),
            None => slices.push(EndpointSlice {
                service: service.to_owned(),
                family: of_pod.family,
                endpoints: vec![endpoint],
                ports: of_pod.ports.clone(),
            }),
        }
    }
    slices.sort_by_key(|slice| slice.family);
    slices
}

/// Returns the families of a service (services 1.4): the families of its addresses; if it has none, those that it names; if
/// it names none, as many of the node's as its policy allows. `of_node` begins with the primary family.
pub fn families(service: &Service, cluster_ips: &[IpAddr], of_node: &[IpFamily]) -> Vec<IpFamily> {
    let mut families: Vec<IpFamily> = cluster_ips.iter().copied().map(IpFamily::of).collect();
    if families.is_empty() {
        families.clone_from(&service.ip_families);
    }
    if families.is_empty() {
        let is_single = service.ip_family_policy == IpFamilyPolicy::SingleStack;
        let most = match is_single && !service.selector.is_empty() {
            true => 1,
            false => of_node.len(),
        };
        families.extend(of_node.iter().take(most));
    }
    families.sort_unstable();
    families.dedup();
    families
}

#[cfg(test)]
#[path = "endpoints_tests.rs"]
mod tests;
