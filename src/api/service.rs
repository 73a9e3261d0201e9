//! The typed view of Service, EndpointSlice and Endpoints, in the API's names.
//!
//! Invariants: an object that [`super::decode`] returns is valid and has its defaults. An Endpoints object is kept
//! only as the slices that mirror it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) mod written;

pub use super::cidr::Cidr;
use crate::base::clock::Time;

/// Place of the cluster DNS address in `serviceCIDR`; the first address has place 0.
pub const DNS_PLACE: u128 = 10;

/// The transport of a service port. The API also has SCTP, but podprobe refuses it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Protocol {
    /// TCP.
    #[default]
    #[serde(rename = "TCP")]
    Tcp,
    /// UDP.
    #[serde(rename = "UDP")]
    Udp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        })
    }
}

/// `spec.type`: how clients reach the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServiceType {
    /// The service has an address that works inside the node and its pods.
    #[default]
    ClusterIp,
    /// The service has an address as with `ClusterIp`, and a port on the node's addresses.
    NodePort,
    /// The service has an address and a port as with `NodePort`, and the addresses that its status names.
    LoadBalancer,
    /// The service's name is an alias of a DNS name elsewhere. Nothing is proxied.
    ExternalName,
}

/// `spec.clusterIP` and `spec.clusterIPs`: the addresses of the service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClusterIps {
    /// The file gives no addresses, so the daemon allocates addresses from `serviceCIDR`. An `ExternalName` service
    /// never gets an address.
    #[default]
    Allocated,
    /// The service is headless (`None`). Its name leads to the pods, and nothing is proxied.
    Headless,
    /// Addresses from the file, primary first; at most one of each family. If a service of two families gives only one
    /// address, the daemon allocates the address of the other family.
    Given(Vec<IpAddr>),
}

impl ClusterIps {
    /// Returns the addresses that are given, primary first.
    pub fn given(&self) -> &[IpAddr] {
        match self {
            Self::Given(addresses) => addresses,
            Self::Allocated | Self::Headless => &[],
        }
    }
}

/// `ports[].targetPort`: the port of the pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetPort {
    /// Number of the port, 1 to 65535.
    Number(u16),
    /// Name of a container port.
    Name(String),
}

/// `spec.ports[]`: a port of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// Name of the port. It may be empty if the service has a single port.
    pub name: String,
    /// Protocol of the port: TCP or UDP.
    pub protocol: Protocol,
    /// Number of the port, 1 to 65535.
    pub port: u16,
    /// Port of the pods that connections go to. A target port that the file leaves out equals `port`.
    pub target_port: TargetPort,
    /// Node port. If it is None and the service's type has node ports, podprobe allocates one.
    pub node_port: Option<u16>,
    /// `appProtocol`, which only appears in slices and has no effect.
    pub app_protocol: Option<String>,
}

/// `internalTrafficPolicy` or `externalTrafficPolicy`: the endpoints that traffic goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TrafficPolicy {
    /// Traffic goes to all endpoints.
    #[default]
    Cluster,
    /// Traffic goes only to endpoints of this node, and the client's address is kept. If the node has no endpoint,
    /// the client gets no answer.
    Local,
}

/// `ipFamilyPolicy`: the number of address families that the service has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IpFamilyPolicy {
    /// The service has a single family.
    #[default]
    SingleStack,
    /// The service has both families if the node has both.
    PreferDualStack,
    /// The service has both families. On a node with a single family the service is refused.
    RequireDualStack,
}

/// `ipFamilies[]`: a family of addresses. It prints as `IPv4` or `IPv6`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl IpFamily {
    /// Returns the family of an address.
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

impl fmt::Display for IpFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// A v1 Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// `spec.type`.
    pub type_: ServiceType,
    /// Ports of the service. Only a headless service and an `ExternalName` may have none.
    pub ports: Vec<ServicePort>,
    /// `spec.selector`, which selects the pods of the service. If the selector is empty, the endpoints come from
    /// slices in files.
    pub selector: BTreeMap<String, String>,
    /// Addresses from `spec.clusterIP` and `spec.clusterIPs`.
    pub cluster_ips: ClusterIps,
    /// Families from `spec.ipFamilies`, as written.
    pub ip_families: Vec<IpFamily>,
    /// `spec.ipFamilyPolicy`.
    pub ip_family_policy: IpFamilyPolicy,
    /// Addresses from `spec.externalIPs`.
    pub external_ips: Vec<IpAddr>,
    /// DNS name that an `ExternalName` service stands for (`spec.externalName`).
    pub external_name: String,
    /// Time for which a client keeps its endpoint, 1 s to 24 h (`sessionAffinity: ClientIP`). None means
    /// `sessionAffinity: None`.
    pub session_affinity: Option<Duration>,
    /// Traffic policy for clients on the node and in its pods.
    pub internal_traffic_policy: TrafficPolicy,
    /// Traffic policy for clients from outside, on node ports and external addresses.
    pub external_traffic_policy: TrafficPolicy,
    /// True if pods that are not ready get traffic too.
    pub publish_not_ready_addresses: bool,
    /// Clients that may use the load balancer's addresses (`loadBalancerSourceRanges`); empty means all clients.
    pub source_ranges: Vec<Cidr>,
    /// `healthCheckNodePort` as the file gives it. If it is None and [`Service::needs_health_check`] is true,
    /// podprobe allocates a port.
    pub health_check_node_port: Option<u16>,
    /// True if `allocateLoadBalancerNodePorts` is false. Ports without a `nodePort` then get no node port.
    pub no_node_ports: bool,
    /// Addresses from `status.loadBalancer.ingress[].ip`, except entries with `ipMode: Proxy`.
    pub ingress_ips: Vec<IpAddr>,
    /// Time at which an API server has created the service. None for a service from a file.
    pub created: Option<Time>,
}

/// Labels by which a service asks kube-proxy to leave the service alone.
pub const NOT_PROXIED_LABELS: [&str; 2] = [
    "service.kubernetes.io/service-proxy-name",
    "service.kubernetes.io/headless",
];

impl Service {
    /// True if the service is headless: its `clusterIP` is `None`.
    pub fn is_headless(&self) -> bool {
        self.cluster_ips == ClusterIps::Headless
    }

    /// True if the data path serves the service. The data path serves no headless service, no `ExternalName` and no
    /// service with one of the [`NOT_PROXIED_LABELS`].
    pub fn is_proxied(&self) -> bool {
        let left_alone = |label: &&str| self.labels.contains_key(*label);
        self.type_ != ServiceType::ExternalName
            && !self.is_headless()
            && !NOT_PROXIED_LABELS.iter().any(left_alone)
    }

    /// True if the type of the service gives its ports node ports.
    pub fn has_node_ports(&self) -> bool {
        matches!(
            self.type_,
            ServiceType::NodePort | ServiceType::LoadBalancer
        )
    }

    /// True if the service has a `healthCheckNodePort`.
    pub fn needs_health_check(&self) -> bool {
        self.type_ == ServiceType::LoadBalancer
            && self.external_traffic_policy == TrafficPolicy::Local
    }
}

/// `endpoints[].conditions`. Conditions that the file leaves out have their defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointConditions {
    /// True if the endpoint gets new connections.
    pub ready: bool,
    /// True if the endpoint answers, even while it is terminating.
    pub serving: bool,
    /// True if the endpoint is terminating.
    pub terminating: bool,
}

/// `endpoints[]` of a slice: a place that connections go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Addresses of the endpoint. All addresses lead to the same endpoint; podprobe uses the first.
    pub addresses: Vec<IpAddr>,
    /// Conditions that decide whether the endpoint gets traffic.
    pub conditions: EndpointConditions,
    /// Host name of the endpoint, for names below a headless service.
    pub hostname: Option<String>,
    /// Name of the node that the endpoint is on.
    pub node_name: Option<String>,
    /// Namespace and name of the endpoint's pod (`targetRef`).
    pub target: Option<(String, String)>,
}

/// `ports[]` of a slice: a port of its endpoints.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EndpointPort {
    /// Name of the service port that leads to this port.
    pub name: String,
    /// Protocol of the port: TCP or UDP.
    pub protocol: Protocol,
    /// Number of the port. In the API, None means all ports. Podprobe leads no connection to a port without a number.
    pub port: Option<u16>,
    /// `appProtocol`, which is only shown and has no effect.
    pub app_protocol: Option<String>,
}

/// A discovery.k8s.io/v1 EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSlice {
    /// Name of the service that the slice belongs to, from `metadata.labels["kubernetes.io/service-name"]`. Empty
    /// means that the slice belongs to no service.
    pub service: String,
    /// Family of the addresses. Slices of the type `FQDN` are refused.
    pub family: IpFamily,
    /// Endpoints of the slice; at most 1000.
    pub endpoints: Vec<Endpoint>,
    /// Ports of the slice; at most 20000.
    pub ports: Vec<EndpointPort>,
}
