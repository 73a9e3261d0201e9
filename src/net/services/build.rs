//! Builds the table for the data path from services, pods of this node, and endpoint slices of files (services 2).
//!
//! Invariants: the functions have no state and no side effects. Equal inputs in any order give equal tables and
//! findings. A part of a service that is not allowed is left out of the table and reported as a finding. The other
//! parts of the service work.

use std::net::IpAddr;

use super::choose::{Candidate, Choice};
use super::claims::{Claim, Claims, Holder};
use super::findings::{Finding, Subject, What};
use super::host_ports::host_ports;
use super::inputs::{Inputs, NamedService};
use super::lookup::Lookup;
use super::table::{ServicePortEntry, ServicePortName, ServiceTable};
use crate::api::service::{IpFamily, Protocol, ServicePort, ServiceType, TrafficPolicy};

/// A port on which load balancers ask whether this node has endpoints of a service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HealthCheck {
    /// Namespace of the service.
    pub namespace: String,
    /// The name of the service.
    pub service: String,
    /// Number of the port: `healthCheckNodePort`.
    pub port: u16,
    /// The number of different addresses that ready endpoints on this node have.
    pub local_endpoints: usize,
}

/// A built table with its health checks and findings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Built {
    /// The table for the data path.
    pub table: ServiceTable,
    /// The health checks of services, sorted.
    pub health_checks: Vec<HealthCheck>,
    /// The parts that are left out of the table, with the reasons, sorted.
    pub findings: Vec<Finding>,
}

/// Builds the table, the health checks and the findings.
pub fn build(inputs: &Inputs<'_>) -> Built {
    let mut claims = Claims::new(inputs.node.own_ports);
    let mut built = Built::default();
    built.table.host_ports = host_ports(inputs.pods, &mut claims, &mut built.findings);
    let lookup = Lookup::new(inputs);
    for service in by_precedence(inputs.services) {
        Building {
            inputs,
            lookup: &lookup,
            service,
            claims: &mut claims,
            built: &mut built,
        }
        .run();
    }
    built.table.pod_cidrs = inputs.node.pod_cidrs.to_vec();
    built.table.service_cidrs = inputs.node.service_cidrs.to_vec();
    built.table.services.sort_by(|a, b| a.name.cmp(&b.name));
    built.health_checks.sort_unstable();
    built.findings.sort_unstable();
    built
}

/// Returns the services to serve, in order of precedence: older services first, then by namespace and name.
fn by_precedence<'a>(services: &'a [NamedService<'a>]) -> Vec<&'a NamedService<'a>> {
    let served = |s: &&NamedService<'_>| s.service.is_proxied() && !s.lacks_address();
    let mut served: Vec<_> = services.iter().filter(served).collect();
    served.sort_by_key(|s| (s.created.is_none(), s.created, s.namespace, s.name));
    served
}

/// The state while one service is put into the table.
struct Building<'a, 'n> {
    inputs: &'a Inputs<'a>,
    lookup: &'a Lookup<'n>,
    service: &'a NamedService<'a>,
    claims: &'a mut Claims,
    built: &'a mut Built,
}

impl Building<'_, '_> {
    fn run(mut self) {
        let service = self.service.service;
        let candidates = self.lookup.endpoints(self.service).of_ports(service);
        let ports = &service.ports;
        for (place, port) in ports.iter().enumerate() {
            if let Some(entry) = self.entry(place, port, &candidates[place]) {
                self.built.table.services.push(entry);
            }
        }
        self.health_check(&candidates);
    }

    /// Makes the entry of one port. Returns `None` if there is no address and no node port by which clients could reach it.
    fn entry(
        &mut self,
        place: usize,
        port: &ServicePort,
        candidates: &[Candidate],
    ) -> Option<ServicePortEntry> {
        let NamedService {
            service,
            cluster_ips,
            ..
        } = *self.service;
        let ingress_ips = match service.type_ {
            ServiceType::LoadBalancer => &*service.ingress_ips,
            _ => &[],
        };
        let choice = Choice::of(candidates);
        let entry = ServicePortEntry {
            name: self.name(port),
            port: port.port,
            cluster_ips: self.addresses(CLUSTER_IPS, cluster_ips, port),
            external_ips: self.addresses(EXTERNAL_IPS, &service.external_ips, port),
            load_balancer_ips: self.addresses(INGRESS_IPS, ingress_ips, port),
            source_ranges: service.source_ranges.clone(),
            node_port: self.node_port(place, port.protocol),
            affinity: service.session_affinity,
            external_local: service.external_traffic_policy == TrafficPolicy::Local,
            internal: choice.backends(service.internal_traffic_policy),
            external: choice.backends(service.external_traffic_policy),
            cluster: choice.backends(TrafficPolicy::Cluster),
        };
        let nothing_left = entry.cluster_ips.is_empty()
            && entry.external_ips.is_empty()
            && entry.load_balancer_ips.is_empty()
            && entry.node_port.is_none();
        (!nothing_left).then_some(entry)
    }

    fn name(&self, port: &ServicePort) -> ServicePortName {
        ServicePortName {
            namespace: self.service.namespace.to_owned(),
            service: self.service.name.to_owned(),
            port: port.name.clone(),
            protocol: port.protocol,
        }
    }

    /// Claims addresses for a port. Returns the addresses that the service may have, sorted.
    fn addresses(&mut self, field: Field, all: &[IpAddr], port: &ServicePort) -> Vec<IpAddr> {
        let mut left: Vec<IpAddr> = all
            .iter()
            .copied()
            .filter(|address| self.may_have(field, *address, port))
            .collect();
        left.sort_unstable();
        left
    }

    fn may_have(&mut self, field: Field, address: IpAddr, port: &ServicePort) -> bool {
        let path = field.path;
        if let Some((what, why)) = self.unfit(field, address) {
            self.find(what, format!("{path}: Invalid value: \"{address}\": {why}"));
            return false;
        }
        let (port, protocol) = (port.port, port.protocol);
        match self.claims.address(address, port, protocol, &self.holder()) {
            Claim::New => true,
            Claim::Again => false,
            Claim::TakenBy(by) => {
                let message = format!(
                    "{path}: Invalid value: \"{address}\": port {port}/{protocol} there belongs to {by}; give the service \
                     another address or port"
                );
                self.find(taken(&by, What::AddressTaken), message);
                false
            }
        }
    }

    /// Returns the reason for which no port of the service may have the address, or `None` if the address is allowed.
    fn unfit(&self, field: Field, address: IpAddr) -> Option<(What, String)> {
        if is_of_node(address, self.inputs.node.addresses) {
            let why = format!("it is an address of this node; {}", field.instead);
            return Some((What::AddressOfNode, why));
        }
        let family = IpFamily::of(address);
        let has_family = |ip: &IpAddr| IpFamily::of(*ip) == family;
        if self.service.cluster_ips.iter().any(has_family) {
            return None;
        }
        let why = format!("the service has no {family} address; add {family} to spec.ipFamilies");
        Some((What::OtherFamily, why))
    }

    fn node_port(&mut self, place: usize, protocol: Protocol) -> Option<u16> {
        if !self.service.service.has_node_ports() {
            return None;
        }
        let port = self.service.node_ports.get(place).copied().flatten()?;
        let holder = self.holder();
        let path = format!("spec.ports[{place}].nodePort");
        self.claim_of_node(&path, port, protocol, &holder)
    }

    /// Claims a port of the node. Returns the port if the service may have it.
    fn claim_of_node(
        &mut self,
        path: &str,
        port: u16,
        protocol: Protocol,
        holder: &Holder,
    ) -> Option<u16> {
        match self.claims.node_port(None, port, protocol, holder) {
            Claim::New => Some(port),
            // Two ports of the same service ask for this port of the node. The API refuses such a service.
            Claim::Again => None,
            Claim::TakenBy(by) => {
                let message = format!(
                    "{path}: Invalid value: {port}: {port}/{protocol} of this node belongs to {by}; choose another, or leave it \
                     out and one is allocated"
                );
                self.find(taken(&by, What::NodePortTaken), message);
                None
            }
        }
    }

    fn health_check(&mut self, candidates: &[Vec<Candidate>]) {
        let NamedService {
            service,
            namespace,
            name,
            ..
        } = *self.service;
        let wanted = self.service.health_check_node_port;
        let Some(port) = wanted.filter(|_| service.needs_health_check()) else {
            return;
        };
        let holder = Holder::HealthCheck(format!("{namespace}/{name}"));
        let path = "spec.healthCheckNodePort";
        if self
            .claim_of_node(path, port, Protocol::Tcp, &holder)
            .is_none()
        {
            return;
        }
        self.built.health_checks.push(HealthCheck {
            namespace: namespace.to_owned(),
            service: name.to_owned(),
            port,
            local_endpoints: local_endpoints(candidates),
        });
    }

    fn holder(&self) -> Holder {
        Holder::Service(format!("{}/{}", self.service.namespace, self.service.name))
    }

    fn find(&mut self, what: What, message: String) {
        let subject = Subject::Service(
            self.service.namespace.to_owned(),
            self.service.name.to_owned(),
        );
        let finding = Finding {
            subject,
            what,
            message,
        };
        // The ports of a service share its addresses, so the same finding may come up for each port.
        if !self.built.findings.contains(&finding) {
            self.built.findings.push(finding);
        }
    }
}

/// A field with addresses. `instead` says what a person can do instead of using an address of the node in this field.
#[derive(Clone, Copy)]
struct Field {
    path: &'static str,
    instead: &'static str,
}

const CLUSTER_IPS: Field = Field {
    path: "spec.clusterIPs",
    instead: "choose one of serviceCIDR, or leave it out and one is allocated",
};
const EXTERNAL_IPS: Field = Field {
    path: "spec.externalIPs",
    instead: "use a nodePort, or a hostPort of the pod, to be reached on it",
};
const INGRESS_IPS: Field = Field {
    path: "status.loadBalancer.ingress",
    instead: EXTERNAL_IPS.instead,
};

/// Returns the kind of finding for an address or port that `by` has: `otherwise`, unless `by` is a part of podprobe.
fn taken(by: &Holder, otherwise: What) -> What {
    match by {
        Holder::Podprobe(_) => What::PortOfPodprobe,
        _ => otherwise,
    }
}

/// Tells whether packets to the address stay on the node or go to more than one host. Such an address belongs to the node,
/// or is loopback, unspecified, or multicast.
fn is_of_node(address: IpAddr, of_node: &[IpAddr]) -> bool {
    let address = address.to_canonical();
    of_node.iter().any(|own| own.to_canonical() == address)
        || address.is_loopback()
        || address.is_unspecified()
        || address.is_multicast()
}

/// Returns the number of different addresses of ready endpoints on this node.
fn local_endpoints(candidates: &[Vec<Candidate>]) -> usize {
    let ready = candidates.iter().flatten();
    let ready = ready.filter(|c| c.local && c.conditions.ready);
    let mut places: Vec<_> = ready
        .map(|c| (c.backend.address.ip(), &c.backend.namespace))
        .collect();
    places.sort_unstable();
    places.dedup();
    places.len()
}

#[cfg(test)]
#[path = "build_tests.rs"]
mod tests;
