//! The table that a data path gets: every service port with the addresses it answers on and the endpoints it leads to.
//!
//! Invariants: an address with port and protocol occurs once in a table. Endpoints are chosen already, and sorted; so
//! equal states give equal tables.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::api::service::{Cidr, IpFamily, Protocol};

/// The full name of a service port. Prints as `ns/name` or `ns/name:port`, kube-proxy's form.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServicePortName {
    /// Namespace of the service.
    pub namespace: String,
    /// Name of the service.
    pub service: String,
    /// Name of the port; may be empty.
    pub port: String,
    /// The protocol, in which two ports of the same number differ.
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

/// A place to which a connection may be sent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Backend {
    /// Address and port.
    pub address: SocketAddr,
    /// The network namespace from inside which the backend is reached, for a pod that has only a loopback interface. Only
    /// the userspace path can reach such a backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<PathBuf>,
}

/// The backends of one kind of client. One list has the backends of both families. An address leads to the backends of its
/// own family ([`Backends::of_family`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Backends {
    /// Clients are sent to one of these backends. The list is never empty.
    Some(Vec<Backend>),
    /// The service has no endpoint: clients are refused.
    #[default]
    Reject,
    /// The policy is Local and no endpoint is on this node: packets are dropped, so that clients try elsewhere.
    Drop,
}

impl Backends {
    /// The backends for clients of one family. A family without backends refuses its clients (services 2.2).
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
    /// A backend that the node reaches from its own network namespace.
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

/// A service port with its addresses and its backends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicePortEntry {
    /// The full name of the service port. See [`ServicePortName`].
    pub name: ServicePortName,
    /// The number of the port on the addresses below.
    pub port: u16,
    /// Addresses for clients on the node and in pods.
    pub cluster_ips: Vec<IpAddr>,
    /// Addresses for clients from outside: `externalIPs`.
    pub external_ips: Vec<IpAddr>,
    /// Addresses of the load balancer, for clients from outside. Only clients in `source_ranges` may use them.
    pub load_balancer_ips: Vec<IpAddr>,
    /// Addresses of the clients that may use `load_balancer_ips`. Empty: every client may.
    pub source_ranges: Vec<Cidr>,
    /// A port on the node's addresses, loopback excepted.
    pub node_port: Option<u16>,
    /// The time for which a client keeps its endpoint, or `None` without session affinity.
    pub affinity: Option<Duration>,
    /// `externalTrafficPolicy: Local`: clients from outside keep their address. With Cluster they appear as the node.
    pub external_local: bool,
    /// The backends for every client of a cluster IP.
    pub internal: Backends,
    /// The backends for clients from outside, on the external addresses and the node port.
    pub external: Backends,
    /// The backends of policy Cluster, which clients inside use if `external_local` is set: see [`Self::inside`]. A table of
    /// an older podprobe has none.
    #[serde(default)]
    pub cluster: Backends,
}

impl ServicePortEntry {
    /// Makes a service port that is reached by its cluster IPs alone, with the same backends for all clients.
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

    /// The backends for clients on the node and in pods, on the external addresses and the node port. No traffic policy
    /// counts for these clients there (services 2.2).
    pub fn inside(&self) -> &Backends {
        match self.external_local {
            true => &self.cluster,
            false => &self.external,
        }
    }

    /// The backends of each kind of clients: of a cluster IP, inside, outside.
    pub fn lists(&self) -> [&Backends; 3] {
        [&self.internal, self.inside(), &self.external]
    }
}

/// A port of the node that leads to a container's port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostPort {
    /// The address of the node, or `None` for every address of the node.
    pub host_ip: Option<IpAddr>,
    /// The number of the port on the node.
    pub port: u16,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// The address and port of the container.
    pub backend: Backend,
    /// `name_namespace` of the pod, for texts.
    pub pod: String,
}

/// The services and host ports that a data path serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceTable {
    /// The service ports, sorted by name.
    pub services: Vec<ServicePortEntry>,
    /// The host ports, sorted.
    pub host_ports: Vec<HostPort>,
    /// The ranges of pods: a packet whose source is in one comes from a pod of this node.
    pub pod_cidrs: Vec<Cidr>,
    /// The ranges of services: an address in one that no service has is refused.
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
