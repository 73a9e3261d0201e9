//! The inputs from which the table of services is made.
//!
//! Invariants: nothing here decides. The caller keeps what these borrow.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::allocate::Assigned;
use super::claims::OwnPort;
use super::pod_facts::PodFacts;
use crate::api::objects::ObjectKey;
use crate::api::service::{Cidr, EndpointSlice, IpFamily, Service};
use crate::base::clock::Time;

/// The objects from files that services are made of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceObjects {
    /// The services with their keys, in the order of keys.
    pub services: Vec<(ObjectKey, Arc<Service>)>,
    /// The slices with their keys, in the order of keys. A slice that mirrors an Endpoints object has the key of that
    /// object.
    pub slices: Vec<(ObjectKey, Arc<EndpointSlice>)>,
}

/// A service with what was allocated for it.
#[derive(Clone, Copy, Debug)]
pub struct NamedService<'a> {
    /// The namespace of the service.
    pub namespace: &'a str,
    /// The name of the service.
    pub name: &'a str,
    /// The service.
    pub service: &'a Service,
    /// The time when the service was created, if it is known. Of two services that want the same, the older one gets it.
    pub created: Option<Time>,
    /// The cluster IPs, given or allocated, primary first. Empty for a service that has none, or none yet: it is not served.
    pub cluster_ips: &'a [IpAddr],
    /// The node port of each of the service's ports, given or allocated, in their order.
    pub node_ports: &'a [Option<u16>],
    /// The health check port of the service, given or allocated.
    pub health_check_node_port: Option<u16>,
}

impl NamedService<'_> {
    /// True if the service lacks a cluster IP that it should have: none could be allocated, or the address that it names is
    /// refused. Then nothing of the service is served, neither node ports nor other addresses.
    pub fn lacks_address(&self) -> bool {
        self.service.is_proxied() && self.cluster_ips.is_empty()
    }
}

/// An endpoint slice that comes from a file.
#[derive(Clone, Copy, Debug)]
pub struct NamedSlice<'a> {
    /// The namespace of the slice.
    pub namespace: &'a str,
    /// The slice.
    pub slice: &'a EndpointSlice,
}

/// The facts about the node.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeFacts<'a> {
    /// `nodeName`.
    pub name: &'a str,
    /// The addresses of the node's interfaces, without those that a data path has put there for services.
    pub addresses: &'a [IpAddr],
    /// The families of the addresses that pods get, primary first.
    pub families: &'a [IpFamily],
    /// The ports on which podprobe itself listens.
    pub own_ports: &'a [OwnPort],
    /// The ranges of pods, for the table.
    pub pod_cidrs: &'a [Cidr],
    /// The ranges of services, for the table.
    pub service_cidrs: &'a [Cidr],
}

/// All inputs of the table.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inputs<'a> {
    /// The services, in any order.
    pub services: &'a [NamedService<'a>],
    /// The slices from files, in any order.
    pub slices: &'a [NamedSlice<'a>],
    /// The pods of this node, in any order.
    pub pods: &'a [&'a PodFacts],
    /// This node.
    pub node: NodeFacts<'a>,
}

/// Calls `f` with the services, their addresses and ports, and the slices.
pub fn with_inputs<T>(
    objects: &ServiceObjects,
    assigned: &BTreeMap<ObjectKey, Assigned>,
    f: impl FnOnce(&[NamedService<'_>], &[NamedSlice<'_>]) -> T,
) -> T {
    let nothing = Assigned::default();
    let services: Vec<NamedService<'_>> = objects
        .services
        .iter()
        .map(|(key, service)| {
            let has = assigned.get(key).unwrap_or(&nothing);
            NamedService {
                namespace: &key.namespace,
                name: &key.name,
                service,
                created: None,
                cluster_ips: &has.cluster_ips,
                node_ports: &has.node_ports,
                health_check_node_port: has.health_check_node_port,
            }
        })
        .collect();
    let slices: Vec<NamedSlice<'_>> = objects
        .slices
        .iter()
        .map(|(key, slice)| NamedSlice {
            namespace: &key.namespace,
            slice,
        })
        .collect();
    f(&services, &slices)
}
