//! What a data path gets: every service port with the addresses it answers on and the endpoints it leads to.
//!
//! Invariants: an address with port and protocol occurs once in a table. Endpoints are chosen already, and sorted; so
//! equal states give equal tables.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::api::service::{Cidr, IpFamily, Protocol};

/// Names a service port; prints as `ns/name` or `ns/name:port`, kube-proxy's form.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServicePortName {
    /// Namespace of the service.
    pub namespace: String,
    /// Its name.
    pub service: String,
    /// Name of the port; may be empty.
    pub port: String,
    /// Two ports of one number differ in it.
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

/// Where a connection may be sent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Backend {
    /// Address and port.
    pub address: SocketAddr,
    /// It is connected to from inside this network namespace: a pod that has only a loopback interface. The userspace
    /// path alone can reach it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<PathBuf>,
}

/// The backends of one kind of client. Those of both families stand in one list; an address leads to those of its own
/// ([`Backends::of_family`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Backends {
    /// One of these, never empty.
    Some(Vec<Backend>),
    /// The service has no endpoint: clients are refused.
    #[default]
    Reject,
    /// The policy is Local and no endpoint is on this node: packets are dropped, so that clients try elsewhere.
    Drop,
}

impl Backends {
    /// Those for clients of one family; a family without any refuses (services 2.2).
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
    /// Reached from the node.
    fn from(address: SocketAddr) -> Self {
        Self {
            address,
            namespace: None,
        }
    }
}

impl FromIterator<Backend> for Backends {
    /// None of them refuses.
    fn from_iter<T: IntoIterator<Item = Backend>>(all: T) -> Self {
        let all: Vec<Backend> = all.into_iter().collect();
        match all.is_empty() {
            true => Self::Reject,
            false => Self::Some(all),
        }
    }
}

/// One port of one service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicePortEntry {
    /// See [`ServicePortName`].
    pub name: ServicePortName,
    /// Its number on the addresses below.
    pub port: u16,
    /// Addresses for clients on the node and in pods.
    pub cluster_ips: Vec<IpAddr>,
    /// Addresses for clients from outside: `externalIPs`.
    pub external_ips: Vec<IpAddr>,
    /// The same of the load balancer: only `source_ranges` may use them.
    pub load_balancer_ips: Vec<IpAddr>,
    /// Who may use `load_balancer_ips`; empty is everybody.
    pub source_ranges: Vec<Cidr>,
    /// A port on the node's addresses, loopback excepted.
    pub node_port: Option<u16>,
    /// How long a client keeps its endpoint.
    pub affinity: Option<Duration>,
    /// `externalTrafficPolicy: Local`: clients from outside keep their address. With Cluster they appear as the node.
    pub external_local: bool,
    /// For every client of a cluster IP.
    pub internal: Backends,
    /// For clients from outside, on the external addresses and the node port.
    pub external: Backends,
    /// Those of policy Cluster, where `external_local` is set: see [`Self::inside`]. A table of an older podprobe has none.
    #[serde(default)]
    pub cluster: Backends,
}

impl ServicePortEntry {
    /// Reached by its cluster IPs alone, with the same endpoints for everybody.
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

    /// For clients on the node and in pods, on the external addresses and the node port: no traffic policy counts for them
    /// there (services 2.2).
    pub fn inside(&self) -> &Backends {
        match self.external_local {
            true => &self.cluster,
            false => &self.external,
        }
    }

    /// Those of each kind of clients.
    pub fn lists(&self) -> [&Backends; 3] {
        [&self.internal, self.inside(), &self.external]
    }
}

/// A port of the node that leads to a container's port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostPort {
    /// None: every address of the node.
    pub host_ip: Option<IpAddr>,
    /// The port.
    pub port: u16,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// The container's.
    pub backend: Backend,
    /// `name_namespace` of the pod, for texts.
    pub pod: String,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceTable {
    /// Sorted by name.
    pub services: Vec<ServicePortEntry>,
    /// Sorted.
    pub host_ports: Vec<HostPort>,
    /// Sources in these are pods of this node.
    pub pod_cidrs: Vec<Cidr>,
    /// Addresses in these that no service has are refused.
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
