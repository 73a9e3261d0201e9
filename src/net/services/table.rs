//! The table for a data path: every port of a service, with its addresses and its endpoints.
//!
//! Invariants: an address with a port and protocol occurs once in a table. The endpoints are already chosen and sorted,
//! so equal states give equal tables.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::api::service::{Cidr, IpFamily, Protocol};

/// The full name of a port of a service. Displays in kube-proxy's form, `ns/name` or `ns/name:port`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServicePortName {
    /// Namespace of the service.
    pub namespace: String,
    /// Name of the service.
    pub service: String,
    /// Name of the port; may be empty.
    pub port: String,
    /// The protocol. Two ports of one service may differ only in the protocol.
    pub protocol: Protocol,
}

impl fmt::Display for ServicePortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.service)?;
        match self.port.is_empty() {
            true => Ok(()),
            false => write!(f, ":{}", self.port),
        }
    }
}

/// An endpoint in the form that a data path uses: where a connection is sent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Backend {
    /// Address and port of the endpoint.
    pub address: SocketAddr,
    /// The network namespace inside of which the address is valid, for a pod that has only a loopback interface;
    /// otherwise None. Only the userspace path can reach a backend with a namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<PathBuf>,
}

/// The backends for one kind of clients. The list may hold both families, but an address of a service leads only to
/// backends of its own family ([`Backends::of_family`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Backends {
    /// Clients are sent to one of these backends. The list is never empty.
    Some(Vec<Backend>),
    /// The service has no endpoint. Clients are refused.
    #[default]
    Reject,
    /// The policy is Local and this node has no endpoint. Packets are dropped, and clients then try another node.
    Drop,
}

impl Backends {
    /// Returns the backends for clients of one family. Clients of a family without backends are refused (services 2.2).
    pub fn of_family(&self, family: IpFamily) -> Self {
        let Self::Some(all) = self else {
            return self.clone();
        };
        let of_family = |b: &&Backend| IpFamily::of(b.address.ip()) == family;
        let own: Vec<Backend> = all.iter().filter(of_family).cloned().collect();
        match own.is_empty() {
            true => Self::Reject,
            false => Self::Some(own),
        }
    }
}

impl From<SocketAddr> for Backend {
    /// Makes a backend that can be reached from the node's own network namespace.
    fn from(address: SocketAddr) -> Self {
        Self {
            address,
            namespace: None,
        }
    }
}

impl FromIterator<Backend> for Backends {
    /// Collects backends. An empty iterator gives `Backends::Reject`.
    fn from_iter<T: IntoIterator<Item = Backend>>(all: T) -> Self {
        let all: Vec<Backend> = all.into_iter().collect();
        match all.is_empty() {
            true => Self::Reject,
            false => Self::Some(all),
        }
    }
}

/// A port of a service with its addresses and its backends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicePortEntry {
    /// The full name of the port.
    pub name: ServicePortName,
    /// Number of the port on the service's addresses.
    pub port: u16,
    /// Addresses for clients on the node and in pods.
    pub cluster_ips: Vec<IpAddr>,
    /// Addresses for clients from outside: `externalIPs`.
    pub external_ips: Vec<IpAddr>,
    /// Addresses of the load balancer, for clients from outside. Only clients in `source_ranges` may use them.
    pub load_balancer_ips: Vec<IpAddr>,
    /// Address ranges of the clients that may use `load_balancer_ips`. If the list is empty, every client may use these
    /// addresses.
    pub source_ranges: Vec<Cidr>,
    /// Number of the port on the node's addresses, except loopback; None if there is no node port.
    pub node_port: Option<u16>,
    /// Time for which a client keeps its endpoint, or `None` without session affinity.
    pub affinity: Option<Duration>,
    /// True with `externalTrafficPolicy: Local`: endpoints then see the address of a client from outside. With Cluster,
    /// they see the address of the node.
    pub external_local: bool,
    /// The backends for all clients of a cluster IP.
    pub internal: Backends,
    /// The backends for clients from outside, who use the external addresses and the node port.
    pub external: Backends,
    /// The backends for the policy Cluster. Clients on the node and in pods use them if `external_local` is true: see
    /// [`Self::inside`]. The list is missing in a table of an older podprobe.
    #[serde(default)]
    pub cluster: Backends,
}

impl ServicePortEntry {
    /// Makes a port of a service that has only cluster IPs, with the same backends for all clients.
    pub fn new(
        name: ServicePortName,
        port: u16,
        cluster_ips: Vec<IpAddr>,
        backends: Backends,
    ) -> Self {
        Self {
            name,
            port,
            cluster_ips,
            external_ips: Vec::new(),
            load_balancer_ips: Vec::new(),
            source_ranges: Vec::new(),
            node_port: None,
            affinity: None,
            external_local: false,
            internal: backends.clone(),
            external: backends.clone(),
            cluster: backends,
        }
    }

    /// Returns the backends for clients on the node and in pods that use the external addresses and the node port. The
    /// traffic policies do not apply to these clients at these addresses (services 2.2).
    pub fn inside(&self) -> &Backends {
        match self.external_local {
            true => &self.cluster,
            false => &self.external,
        }
    }

    /// Returns the three lists of backends: for clients of a cluster IP, for other clients on the node and in pods, and
    /// for other clients from outside.
    pub fn lists(&self) -> [&Backends; 3] {
        [&self.internal, self.inside(), &self.external]
    }
}

/// A port of the node from which clients are sent to a container's port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostPort {
    /// The address of the node, or `None` for every address of the node.
    pub host_ip: Option<IpAddr>,
    /// Number of the port on the node.
    pub port: u16,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// The address and port of the container.
    pub backend: Backend,
    /// The pod as `name_namespace`, for texts.
    pub pod: String,
}

/// The services and host ports that a data path serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceTable {
    /// The ports of services, sorted by name.
    pub services: Vec<ServicePortEntry>,
    /// The host ports, sorted.
    pub host_ports: Vec<HostPort>,
    /// Address ranges of pods. A packet with a source in one of these ranges comes from a pod of this node.
    pub pod_cidrs: Vec<Cidr>,
    /// Address ranges of services. A packet to an address in one of these ranges is refused if no service has the address.
    pub service_cidrs: Vec<Cidr>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(addresses: &[&str]) -> Backends {
        let backend = |a: &&str| Backend {
            address: a.parse().expect("an address with a port"),
            namespace: None,
        };
        Backends::Some(addresses.iter().map(backend).collect())
    }

    #[test]
    fn an_address_leads_to_backends_of_its_family() {
        let both = some(&["10.0.0.1:80", "[fd00::1]:80"]);
        assert_eq!(both.of_family(IpFamily::V4), some(&["10.0.0.1:80"]));
        assert_eq!(both.of_family(IpFamily::V6), some(&["[fd00::1]:80"]));
        let v4 = some(&["10.0.0.1:80"]);
        assert_eq!(v4.of_family(IpFamily::V6), Backends::Reject);
        assert_eq!(Backends::Drop.of_family(IpFamily::V6), Backends::Drop);
    }
}
