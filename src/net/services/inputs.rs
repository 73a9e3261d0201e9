//! What the table of services is made of.
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

/// What services are made of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceObjects {
    /// Each with its key, in the order of keys.
    pub services: Vec<(ObjectKey, Arc<Service>)>,
    /// The same; those that mirror an Endpoints object have its key.
    pub slices: Vec<(ObjectKey, Arc<EndpointSlice>)>,
}

/// A service with what was allocated for it.
#[derive(Clone, Copy, Debug)]
pub struct NamedService<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// The service.
    pub service: &'a Service,
    /// When it was created, if that is known: of two that want the same, the older one has it.
    pub created: Option<Time>,
    /// Given or allocated, primary first. None of a service that has none, or none yet: it is not served.
    pub cluster_ips: &'a [IpAddr],
    /// The node port of each of the service's ports, given or allocated, in their order.
    pub node_ports: &'a [Option<u16>],
    /// Given or allocated.
    pub health_check_node_port: Option<u16>,
}

impl NamedService<'_> {
    /// A data path would serve it, and it has no cluster IP: none could be allocated, or the one it names is refused. Nothing
    /// of it is served then, neither node ports nor other addresses.
    pub fn lacks_address(&self) -> bool {
        self.service.is_proxied() && self.cluster_ips.is_empty()
    }
}

/// A slice of a file.
#[derive(Clone, Copy, Debug)]
pub struct NamedSlice<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// The slice.
    pub slice: &'a EndpointSlice,
}

/// What the node has.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeFacts<'a> {
    /// `nodeName`.
    pub name: &'a str,
    /// The addresses of its interfaces, without those that a data path has put there for services.
    pub addresses: &'a [IpAddr],
    /// Those that pods get addresses of, the primary one first.
    pub families: &'a [IpFamily],
    /// Where podprobe itself listens.
    pub own_ports: &'a [OwnPort],
    /// Of the table.
    pub pod_cidrs: &'a [Cidr],
    /// Of the table.
    pub service_cidrs: &'a [Cidr],
}

/// All that the table is made of.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inputs<'a> {
    /// In any order.
    pub services: &'a [NamedService<'a>],
    /// In any order.
    pub slices: &'a [NamedSlice<'a>],
    /// The pods of this node, in any order.
    pub pods: &'a [&'a PodFacts],
    /// This node.
    pub node: NodeFacts<'a>,
}

/// Gives `f` the services and slices with what each has.
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
