//! What the responder of names gets: the services of the cluster as names see them, and whom to answer.
//!
//! Invariants: nothing here decides ([`super::naming`] does). Equal states give equal values, so that a message can be compared with the last.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::api::service::{Cidr, Protocol};

/// All that the responder needs, as it comes in one message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// Grows with each change; the serial of the zone.
    pub version: u32,
    /// The cluster's domain, `cluster.local`.
    pub domain: String,
    /// The addresses that clients ask: those of the cluster's DNS service.
    pub addresses: Vec<IpAddr>,
    /// Where pods have their addresses. Their reverse names are never asked elsewhere.
    pub pod_cidrs: Vec<Cidr>,
    /// Where services have theirs; the same.
    pub service_cidrs: Vec<Cidr>,
    /// Who gets answers: the pods and the node's own addresses.
    pub clients: Vec<Cidr>,
    /// The node's resolvers, in the order of its resolv.conf.
    pub upstreams: Vec<SocketAddr>,
    /// In any order.
    pub services: Vec<ServiceNames>,
}

impl Names {
    /// Whether a name leads to a pod itself, and not to an address from which a data path sends clients on.
    pub fn lead_to_pods(&self) -> bool {
        let leads = |target: &NameTarget| match target {
            NameTarget::Headless(endpoints) => endpoints.iter().any(|e| e.ready),
            NameTarget::ClusterIps { .. } | NameTarget::ExternalName(_) => false,
        };
        self.services.iter().any(|s| leads(&s.target))
    }
}

/// The names of one service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceNames {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What the name leads to.
    pub target: NameTarget,
}

/// What the name of a service leads to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NameTarget {
    /// Its own addresses.
    ClusterIps {
        /// At most one of each family.
        addresses: Vec<IpAddr>,
        /// The service's ports.
        ports: Vec<NamedPort>,
    },
    /// Each of its endpoints.
    Headless(Vec<EndpointNames>),
    /// `spec.externalName`.
    ExternalName(String),
}

/// A port with a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NamedPort {
    /// May be empty.
    pub name: String,
    /// The `_tcp` or `_udp` of its SRV record.
    pub protocol: Protocol,
    /// Its number.
    pub port: u16,
}

/// An endpoint of a headless service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointNames {
    /// Its address.
    pub address: IpAddr,
    /// Its own name below the service. None: the address with dashes.
    pub hostname: Option<String>,
    /// As slices have it: also true with `publishNotReadyAddresses`.
    pub ready: bool,
    /// The ports of the service, with the numbers that this endpoint has for them.
    pub ports: Vec<NamedPort>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_pods_where_a_headless_service_has_a_ready_one() {
        let leads = |target: NameTarget| {
            let services = vec![ServiceNames {
                namespace: "n".into(),
                name: "s".into(),
                target,
            }];
            let names = Names {
                services,
                ..Names::default()
            };
            names.lead_to_pods()
        };
        let endpoint = |ready| EndpointNames {
            address: [10, 244, 0, 2].into(),
            hostname: None,
            ready,
            ports: Vec::new(),
        };
        assert!(leads(NameTarget::Headless(vec![
            endpoint(false),
            endpoint(true)
        ])));
        assert!(!leads(NameTarget::Headless(vec![endpoint(false)])));
        assert!(!leads(NameTarget::ExternalName("example.com".into())));
        assert!(!leads(NameTarget::ClusterIps {
            addresses: vec![[10, 96, 0, 7].into()],
            ports: Vec::new(),
        }));
    }
}
