//! The message to the DNS responder: the names of the cluster's services, and the clients that get answers.
//!
//! Invariants: these types only hold data ([`super::naming`] makes the names). Equal states give equal values, so a
//! message can be compared with the last message.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::api::service::{Cidr, Protocol};

/// All facts that the DNS responder needs, in one message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// Version of the message, which grows with each change. The version is also the serial number of the zone.
    pub version: u32,
    /// The cluster's domain, such as `cluster.local`.
    pub domain: String,
    /// The addresses of the cluster's DNS service, to which clients send their questions.
    pub addresses: Vec<IpAddr>,
    /// Address ranges of pods. The responder never forwards questions for reverse names in these ranges.
    pub pod_cidrs: Vec<Cidr>,
    /// Address ranges of services. The responder never forwards questions for reverse names in these ranges.
    pub service_cidrs: Vec<Cidr>,
    /// Addresses of the clients that get answers: the pods and the node itself.
    pub clients: Vec<Cidr>,
    /// The node's own resolvers, in the order of its resolv.conf.
    pub upstreams: Vec<SocketAddr>,
    /// The names of all services, in any order.
    pub services: Vec<ServiceNames>,
}

impl Names {
    /// Tells whether at least one name resolves to the address of a pod, which no data path serves.
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
    /// The target that the name resolves to.
    pub target: NameTarget,
}

/// The target that the name of a service resolves to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NameTarget {
    /// The service's own addresses.
    ClusterIps {
        /// The cluster IPs, at most one of each family.
        addresses: Vec<IpAddr>,
        /// The service's ports.
        ports: Vec<NamedPort>,
    },
    /// The endpoints of a headless service.
    Headless(Vec<EndpointNames>),
    /// The name in `spec.externalName`.
    ExternalName(String),
}

/// A port of a service, for an SRV record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NamedPort {
    /// The name of the port; may be empty.
    pub name: String,
    /// Protocol of the port, which the SRV record names as `_tcp` or `_udp`.
    pub protocol: Protocol,
    /// The number of the port.
    pub port: u16,
}

/// An endpoint of a headless service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointNames {
    /// The address of the endpoint.
    pub address: IpAddr,
    /// The endpoint's own name below the service's. `None` means that the name is the address with dashes.
    pub hostname: Option<String>,
    /// The condition `ready` as in slices. With `publishNotReadyAddresses`, the value is always true.
    pub ready: bool,
    /// The ports of the service, with the numbers that they have at this endpoint.
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
