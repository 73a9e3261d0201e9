//! Decides which tracked flows must end: UDP flows to an endpoint that is gone (kube-proxy's rule), and TCP flows
//! to a clusterIP that began before there was a rule to translate them.
//!
//! Other TCP flows are left alone. An endpoint that is gone closes its connections itself, and an endpoint that is
//! only unready may finish its connections. An untranslated flow reaches no endpoint. But the kernel keeps its
//! entry for up to two minutes. If the client used the same port again in this time, the kernel would refuse the
//! client.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use super::plan::changed_services;
use super::service::{is_of, number, reachable};
use crate::net::netfilter::{Family, Flow};
use crate::net::services::table::{ServicePortEntry, ServiceTable};

/// The protocol number of TCP, IPPROTO_TCP.
pub(super) const TCP: u8 = 6;
/// The protocol number of UDP, IPPROTO_UDP.
pub(super) const UDP: u8 = 17;

/// The flows that must end: the addresses that clients send to, and for each address the endpoints whose flows may
/// continue.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ending {
    addresses: BTreeMap<SocketAddr, BTreeSet<SocketAddr>>,
    node_ports: BTreeMap<u16, BTreeSet<SocketAddr>>,
    /// The addresses of services with TCP flows that may have begun before there was a rule to translate them.
    untranslated: BTreeSet<SocketAddr>,
}

impl Ending {
    /// Finds the flows that must end when the table `next` replaces the table `before`. Only services that differ
    /// between the tables have such flows. `before` is `None` if no table was in force.
    pub(super) fn of(before: Option<&ServiceTable>, next: &ServiceTable, family: Family) -> Self {
        let mut ending = Self::default();
        if before.is_none() {
            let services = next.services.iter().filter(|e| number(e) == TCP);
            let addresses = services.flat_map(|e| {
                let ips = e.cluster_ips.iter().filter(|ip| is_of(family, ip));
                ips.map(|ip| SocketAddr::new(*ip, e.port))
            });
            ending.untranslated = addresses.collect();
        }
        let nothing = ServiceTable::default();
        let before = before.unwrap_or(&nothing);
        for (old, new) in changed_services(before, next) {
            for entry in [old, new].into_iter().flatten() {
                // An old entry adds only its addresses, because its endpoints may be gone.
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
        let backends = entry.lists().into_iter().filter(|_| endpoints);
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

    /// Returns the protocols whose flows may have to end.
    pub(super) fn protocols(&self) -> impl Iterator<Item = u8> {
        let udp = !self.addresses.is_empty() || !self.node_ports.is_empty();
        let tcp = !self.untranslated.is_empty();
        [(UDP, udp), (TCP, tcp)]
            .into_iter()
            .filter_map(|(protocol, any)| any.then_some(protocol))
    }

    /// Tells whether a flow must end: it leads to a service, but not to one of the service's endpoints. A
    /// flow to a node port counts only if it is translated, because a connection to another machine may use
    /// the same port number.
    pub(super) fn ends(&self, flow: &Flow) -> bool {
        let (to, from) = (flow.original.destination, flow.reply.source);
        if flow.protocol == TCP {
            return to == from && self.untranslated.contains(&to);
        }
        if let Some(endpoints) = self.addresses.get(&to) {
            return !endpoints.contains(&from);
        }
        let endpoints = self.node_ports.get(&to.port());
        endpoints.is_some_and(|endpoints| to != from && !endpoints.contains(&from))
    }
}
