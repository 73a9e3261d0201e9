//! Which tracked UDP flows have to end: they would go on to an endpoint that is gone (kube-proxy's rule).
//!
//! TCP is left alone: an endpoint that is gone closes its connections itself, and one that is only unready may finish.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use super::plan::changed_services;
use super::service::{is_of, number, reachable};
use crate::netfilter::{Family, Flow};
use crate::services::table::{ServicePortEntry, ServiceTable};

/// IPPROTO_UDP
const UDP: u8 = 17;

/// The addresses that clients sent to, and the endpoints that a flow to each may have.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ending {
    addresses: BTreeMap<SocketAddr, BTreeSet<SocketAddr>>,
    node_ports: BTreeMap<u16, BTreeSet<SocketAddr>>,
}

impl Ending {
    /// Of the UDP services that differ between two tables.
    pub(super) fn of(before: &ServiceTable, next: &ServiceTable, family: Family) -> Self {
        let mut ending = Self::default();
        for (old, new) in changed_services(before, next) {
            for entry in [old, new].into_iter().flatten() {
                // Of an old entry the addresses alone count: its endpoints may be gone.
                ending.note(
                    entry,
                    family,
                    new.is_some_and(|new| std::ptr::eq(new, entry)),
                );
            }
        }
        ending
    }

    fn note(&mut self, entry: &ServicePortEntry, family: Family, endpoints: bool) {
        if number(entry) != UDP {
            return;
        }
        let backends = [&entry.internal, &entry.external];
        let backends = backends.iter().filter(|_| endpoints);
        let backends: BTreeSet<SocketAddr> = backends
            .flat_map(|b| reachable(b, family))
            .map(|b| b.address)
            .collect();
        let ips = [
            &entry.cluster_ips,
            &entry.external_ips,
            &entry.load_balancer_ips,
        ];
        for ip in ips.into_iter().flatten().filter(|ip| is_of(family, ip)) {
            let address = SocketAddr::new(*ip, entry.port);
            self.addresses.entry(address).or_default().extend(&backends);
        }
        if let Some(port) = entry.node_port {
            self.node_ports.entry(port).or_default().extend(backends);
        }
    }

    /// Nothing can have to end.
    pub(super) fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.node_ports.is_empty()
    }

    /// Whether the flow leads to a service and not to one of its endpoints. A flow to a node port counts only where it is
    /// translated; somebody else may use the number elsewhere.
    pub(super) fn ends(&self, flow: &Flow) -> bool {
        let (to, from) = (flow.original.destination, flow.reply.source);
        if let Some(endpoints) = self.addresses.get(&to) {
            return !endpoints.contains(&from);
        }
        let endpoints = self.node_ports.get(&to.port());
        endpoints.is_some_and(|endpoints| to != from && !endpoints.contains(&from))
    }
}
