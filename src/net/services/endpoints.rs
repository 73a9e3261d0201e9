//! Computes the endpoints of a service among the pods of this node, like the endpoint slice controller (services 1).
//!
//! Invariants: the functions have no state and no side effects. Equal inputs in any order give equal endpoints, sorted by
//! pod and then by family.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use super::pod_facts::PodFacts;
use crate::api::service::{
    Endpoint, EndpointConditions, EndpointPort, EndpointSlice, IpFamily, IpFamilyPolicy, Service,
    ServicePort, TargetPort,
};

/// A service, together with what is needed to find its endpoints.
#[derive(Clone, Copy, Debug)]
pub struct Selecting<'a> {
    /// Namespace of the service. Only pods of this namespace are selected.
    pub namespace: &'a str,
    /// The name of the service.
    pub name: &'a str,
    /// The service.
    pub service: &'a Service,
    /// The families of the service's addresses. A headless service has the families that it names, or if it names no
    /// family, the families of the node.
    pub families: &'a [IpFamily],
}

/// A pod of this node as an endpoint of a service, with all its addresses of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodEndpoint {
    /// The endpoint as it would be in a slice, but without the name of the node.
    pub endpoint: Endpoint,
    /// The family of all addresses of the endpoint.
    pub family: IpFamily,
    /// The ports of the service that the pod has, with the numbers that they have in the pod.
    pub ports: Vec<EndpointPort>,
    /// The network namespace of the pod, if the pod has only a loopback interface; otherwise None.
    pub loopback_only: Option<PathBuf>,
}

/// Tells whether the service's selector matches a pod with these labels. An empty selector matches no pod.
pub fn selects(service: &Service, labels: &BTreeMap<String, String>) -> bool {
    let has = |(key, value)| labels.get(key) == Some(value);
    !service.selector.is_empty() && service.selector.iter().all(has)
}

/// Tells whether the pod can be an endpoint: it has not finished and has an address. A terminating pod can be an endpoint
/// (services 1.1).
pub fn counts(pod: &PodFacts) -> bool {
    !pod.phase.is_terminal() && !pod.addresses.is_empty()
}

/// Returns the conditions of a pod's endpoint (services 1.2).
pub fn conditions(service: &Service, pod: &PodFacts) -> EndpointConditions {
    EndpointConditions {
        ready: service.publish_not_ready_addresses || pod.serving && !pod.terminating,
        serving: pod.serving,
        terminating: pod.terminating,
    }
}

/// Returns the number that a service's port has in a pod. Returns None if the pod has no port of that name and protocol
/// (services 1.3).
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

/// Returns the endpoints of a service among these pods.
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

/// Groups the endpoints into slices as the controller would: one slice for each family and each set of ports. The slices
/// serve for display and for DNS names. `node_name` is the name of this node.
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

/// Returns the families of a service (services 1.4). A service with addresses has the families of these addresses. A
/// service without an address has the families that it names. A service that names no family has the node's families,
/// as many as the service's policy allows. `of_node` begins with the primary family.
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
