//! The inputs from which the table of services is built.
//!
//! Invariants: these types only hold data and decide nothing. The caller keeps the data that they borrow.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::allocate::Assigned;
use super::claims::OwnPort;
use super::pod_facts::PodFacts;
use crate::api::objects::ObjectKey;
use crate::api::service::{Cidr, EndpointSlice, IpFamily, Service};
use crate::base::clock::Time;

/// The party that gives services their addresses and names their endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Authority {
    /// This node: it allocates addresses and ports, and the pods that a selector matches are endpoints.
    #[default]
    Node,
    /// The control plane of a cluster: addresses and ports are those of the services, and slices name all endpoints.
    ControlPlane,
    /// The control plane, which cannot be heard now. Its last word counts, except about the pods of this node.
    SilentControlPlane,
}

impl Authority {
    /// True if a control plane has the say, so that nothing is allocated here and only slices name endpoints.
    pub fn is_control_plane(self) -> bool {
        self != Self::Node
    }
}

/// The objects from which services are built.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceObjects {
    /// The party whose objects these are.
    pub authority: Authority,
    /// The ranges of service addresses, if the authority is a control plane. Otherwise the configuration has them.
    pub service_cidrs: Vec<Cidr>,
    /// The services with their keys, sorted by key.
    pub services: Vec<(ObjectKey, Arc<Service>)>,
    /// The endpoint slices with their keys, sorted by key. A slice that mirrors an Endpoints object has the key of that
    /// object.
    pub slices: Vec<(ObjectKey, Arc<EndpointSlice>)>,
}

/// A service together with its name and its allocated addresses and ports.
#[derive(Clone, Copy, Debug)]
pub struct NamedService<'a> {
    /// The namespace of the service.
    pub namespace: &'a str,
    /// The name of the service.
    pub name: &'a str,
    /// The service.
    pub service: &'a Service,
    /// Creation time of the service, if it is known. If two services claim the same address or port, the older service
    /// gets the address or port.
    pub created: Option<Time>,
    /// The cluster IPs, given or allocated, primary first. Empty if the service has no cluster IP, or not yet. No data
    /// path serves a service without a cluster IP.
    pub cluster_ips: &'a [IpAddr],
    /// The node ports of the service's ports, given or allocated, in the order of the ports.
    pub node_ports: &'a [Option<u16>],
    /// The health check port of the service, given or allocated.
    pub health_check_node_port: Option<u16>,
}

impl NamedService<'_> {
    /// Tells whether the service should have a cluster IP but has none: none could be allocated, or the address in its
    /// file was refused. No part of such a service is served, not even its node ports and other addresses.
    pub fn lacks_address(&self) -> bool {
        self.service.is_proxied() && self.cluster_ips.is_empty()
    }
}

/// An endpoint slice from a file or of the control plane.
#[derive(Clone, Copy, Debug)]
pub struct NamedSlice<'a> {
    /// The namespace of the slice.
    pub namespace: &'a str,
    /// The slice.
    pub slice: &'a EndpointSlice,
}

/// Facts about the node that the table depends on.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeFacts<'a> {
    /// Name of the node (`nodeName`).
    pub name: &'a str,
    /// The addresses of the node's interfaces, except addresses that a data path has put there for services.
    pub addresses: &'a [IpAddr],
    /// The families of the addresses that pods get, primary first.
    pub families: &'a [IpFamily],
    /// The ports on which podprobe listens itself.
    pub own_ports: &'a [OwnPort],
    /// The address ranges of pods, for the table.
    pub pod_cidrs: &'a [Cidr],
    /// The address ranges of services, for the table.
    pub service_cidrs: &'a [Cidr],
}

/// All inputs from which the table is built.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inputs<'a> {
    /// The services, in any order.
    pub services: &'a [NamedService<'a>],
    /// The slices from files or of the control plane, in any order.
    pub slices: &'a [NamedSlice<'a>],
    /// The pods of this node, in any order.
    pub pods: &'a [&'a PodFacts],
    /// True if only slices name endpoints, so that no selector makes a pod an endpoint.
    pub only_slices: bool,
    /// This node.
    pub node: NodeFacts<'a>,
}

/// Calls `f` with two lists: the services, each with its assigned addresses and ports, and the slices.
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
