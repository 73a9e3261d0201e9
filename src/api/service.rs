//! The typed view of Service, EndpointSlice and Endpoints, in the API's names.
//!
//! Invariants: an object that [`super::decode`] returns is valid and has its defaults. Of an Endpoints object nothing is
//! kept but the slices that mirror it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) mod written;

pub use super::cidr::Cidr;

/// The cluster's DNS has this address of `serviceCIDR`, counted from its first.
pub const DNS_PLACE: u128 = 10;

/// The transport of a service port. The API has SCTP, too; podprobe refuses it.
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

/// `spec.type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServiceType {
    /// An address inside the node and its pods.
    #[default]
    ClusterIp,
    /// An address as with `ClusterIP`, and a port on the node's addresses.
    NodePort,
    /// Address and port as with `NodePort`, and the addresses that the service's status names.
    LoadBalancer,
    /// A name for something elsewhere; nothing is proxied.
    ExternalName,
}

/// `spec.clusterIP` and `spec.clusterIPs`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClusterIps {
    /// Left out: they are allocated from `serviceCIDR`. An `ExternalName` has none in the end.
    #[default]
    Allocated,
    /// `None`: headless. Names lead to the pods; nothing is proxied.
    Headless,
    /// Addresses as the file gives them, primary first; at most one of each family. A service of two families may leave
    /// one address out; the daemon allocates it.
    Given(Vec<IpAddr>),
}

/// `ports[].targetPort`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetPort {
    /// A number, 1 to 65535.
    Number(u16),
    /// The name of a container port.
    Name(String),
}

/// `spec.ports[]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// Name of the port; empty if the service has a single port without a name.
    pub name: String,
    /// Protocol of the port: TCP or UDP.
    pub protocol: Protocol,
    /// Number of the port, 1 to 65535.
    pub port: u16,
    /// Port of the pods that connections go to; equals `port` if the file leaves it out.
    pub target_port: TargetPort,
    /// Node port; None: podprobe allocates one if the service's type wants one.
    pub node_port: Option<u16>,
    /// `appProtocol`, which is not acted on and only shown in slices.
    pub app_protocol: Option<String>,
}

/// `internalTrafficPolicy` and `externalTrafficPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TrafficPolicy {
    /// Traffic goes to all endpoints.
    #[default]
    Cluster,
    /// Traffic goes only to endpoints of this node, and keeps the client's address. Without such an endpoint the client
    /// gets no answer.
    Local,
}

/// `ipFamilyPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IpFamilyPolicy {
    /// A single family.
    #[default]
    SingleStack,
    /// Both families where the node has both.
    PreferDualStack,
    /// Both families, or the service is refused.
    RequireDualStack,
}

/// `ipFamilies[]`; prints as there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl IpFamily {
    /// The family of an address.
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
    /// `spec.ports`; empty only for a headless service and an `ExternalName`.
    pub ports: Vec<ServicePort>,
    /// `spec.selector`; empty selects nothing: endpoints come from slices of files.
    pub selector: BTreeMap<String, String>,
    /// `spec.clusterIP`, `spec.clusterIPs`.
    pub cluster_ips: ClusterIps,
    /// `spec.ipFamilies` as written.
    pub ip_families: Vec<IpFamily>,
    /// `spec.ipFamilyPolicy`.
    pub ip_family_policy: IpFamilyPolicy,
    /// `spec.externalIPs`.
    pub external_ips: Vec<IpAddr>,
    /// `spec.externalName`.
    pub external_name: String,
    /// `ClientIP` affinity with its timeout (1 s to 24 h); None is `sessionAffinity: None`.
    pub session_affinity: Option<Duration>,
    /// Traffic policy for clients in the node and its pods.
    pub internal_traffic_policy: TrafficPolicy,
    /// Traffic policy for clients from outside, on node ports and external addresses.
    pub external_traffic_policy: TrafficPolicy,
    /// Pods that are not ready get traffic, too.
    pub publish_not_ready_addresses: bool,
    /// `loadBalancerSourceRanges`: who may use the load balancer's addresses; empty is everybody.
    pub source_ranges: Vec<Cidr>,
    /// `healthCheckNodePort`; allocated where [`Service::needs_health_check`] and it is left out.
    pub health_check_node_port: Option<u16>,
    /// `allocateLoadBalancerNodePorts` is false: ports without a `nodePort` get none.
    pub no_node_ports: bool,
    /// `status.loadBalancer.ingress[].ip` without those of `ipMode: Proxy`.
    pub ingress_ips: Vec<IpAddr>,
}

/// The labels by which a service asks that kube-proxy leaves it alone.
pub const NOT_PROXIED_LABELS: [&str; 2] = [
    "service.kubernetes.io/service-proxy-name",
    "service.kubernetes.io/headless",
];

impl Service {
    /// True if the service is headless: its `clusterIP` is `None`.
    pub fn is_headless(&self) -> bool {
        self.cluster_ips == ClusterIps::Headless
    }

    /// True if a data path serves the service. None serves a headless service, an `ExternalName`, or a service whose
    /// label says that another proxy serves it.
    pub fn is_proxied(&self) -> bool {
        let left_alone = |label: &&str| self.labels.contains_key(*label);
        self.type_ != ServiceType::ExternalName
            && !self.is_headless()
            && !NOT_PROXIED_LABELS.iter().any(left_alone)
    }

    /// True if the ports of the service have node ports.
    pub fn has_node_ports(&self) -> bool {
        matches!(
            self.type_,
            ServiceType::NodePort | ServiceType::LoadBalancer
        )
    }

    /// True if `healthCheckNodePort` answers for the service.
    pub fn needs_health_check(&self) -> bool {
        self.type_ == ServiceType::LoadBalancer
            && self.external_traffic_policy == TrafficPolicy::Local
    }
}

/// `endpoints[].conditions`, with what is left out filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointConditions {
    /// True if the endpoint gets new connections.
    pub ready: bool,
    /// True if the endpoint answers, even while it is terminating.
    pub serving: bool,
    /// True if the endpoint is terminating.
    pub terminating: bool,
}

/// `endpoints[]` of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Addresses of the endpoint; all lead to it, and the first is used.
    pub addresses: Vec<IpAddr>,
    /// Conditions that decide whether the endpoint gets traffic.
    pub conditions: EndpointConditions,
    /// Name of the endpoint below a headless service.
    pub hostname: Option<String>,
    /// Name of the node that the endpoint is on.
    pub node_name: Option<String>,
    /// `targetRef`: namespace and name of the endpoint's pod.
    pub target: Option<(String, String)>,
}

/// `ports[]` of a slice.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EndpointPort {
    /// The name of the service's port.
    pub name: String,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Number of the port. None: all ports, which leads nowhere here.
    pub port: Option<u16>,
    /// `appProtocol`, which is only shown.
    pub app_protocol: Option<String>,
}

/// A discovery.k8s.io/v1 EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSlice {
    /// `metadata.labels["kubernetes.io/service-name"]`; empty belongs to no service.
    pub service: String,
    /// IPv4 or IPv6; slices of `FQDN` are refused.
    pub family: IpFamily,
    /// Endpoints of the slice, at most 1000.
    pub endpoints: Vec<Endpoint>,
    /// Ports of the slice, at most 20000.
    pub ports: Vec<EndpointPort>,
}
