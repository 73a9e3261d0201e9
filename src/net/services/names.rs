//! The message for the responder of names: the services of the cluster as names see them, and the clients to answer.
//!
//! Invariants: nothing here decides ([`super::naming`] does). Equal states give equal values, so that a message can be
//! compared with the last.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::api::service::{Cidr, Protocol};

/// All facts that the responder of names needs, in one message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// The version, which grows with each change. It is the serial of the zone.
    pub version: u32,
    /// The cluster's domain, `cluster.local`.
    pub domain: String,
    /// The addresses that clients ask: those of the cluster's DNS service.
    pub addresses: Vec<IpAddr>,
    /// The ranges of pods' addresses. The responder never asks other resolvers for reverse names in these ranges.
    pub pod_cidrs: Vec<Cidr>,
    /// The ranges of services' addresses. The responder never asks other resolvers for reverse names in these ranges.
    pub service_cidrs: Vec<Cidr>,
    /// The addresses of clients that get answers: the pods and the node itself.
    pub clients: Vec<Cidr>,
    /// The node's resolvers, in the order of its resolv.conf.
    pub upstreams: Vec<SocketAddr>,
    /// The names of all services, in any order.
    pub services: Vec<ServiceNames>,
}

impl Names {
    /// True if some name leads to a pod itself, and not to an address from which a data path sends clients on.
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
    /// The namespace of the service.
    pub namespace: String,
    /// The name of the service.
    pub name: String,
    /// The target of the name.
    pub target: NameTarget,
}

/// The target to which the name of a service leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NameTarget {
    /// The service's own addresses.
    ClusterIps {
        /// The addresses, at most one of each family.
        addresses: Vec<IpAddr>,
        /// The service's ports.
        ports: Vec<NamedPort>,
    },
    /// The endpoints of a headless service.
    Headless(Vec<EndpointNames>),
    /// `spec.externalName`.
    ExternalName(String),
}

/// A port with a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NamedPort {
    /// The name of the port; may be empty.
    pub name: String,
    /// The `_tcp` or `_udp` of its SRV record.
    pub protocol: Protocol,
    /// The number of the port.
    pub port: u16,
}

/// An endpoint of a headless service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointNames {
    /// The address of the endpoint.
    pub address: IpAddr,
    /// The endpoint's own name below the service, or `None`: the name is then the address with dashes.
    pub hostname: Option<String>,
    /// The condition `ready`, as slices have it: also true with `publishNotReadyAddresses`.
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
