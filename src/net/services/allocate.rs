//! Allocates cluster IPs and node ports for services that do not name them (kube-services 3).
//!
//! Invariants: the functions have no state and no side effects. No address and no port belongs to two services. A service
//! keeps its addresses and ports while it exists and asks for no others, even over restarts, because [`Allocations`]
//! record them. Without that record, the same services get the same addresses and ports again.

mod candidate;
mod cluster_ips;
mod node_ports;
mod ranges;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use self::candidate::{Candidate, Held};
use crate::api::field::FieldError;
use crate::api::objects::ObjectKey;
use crate::api::service::{Cidr, Service};
use crate::base::clock::Time;

/// The record of the addresses and ports of services, for the disk. A record that cannot be read counts as empty. Services
/// may then get other addresses and ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocations {
    /// The addresses and ports of each service, by `namespace/name`.
    #[serde(default)]
    services: BTreeMap<String, Held>,
}

/// The addresses and ports of one service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assigned {
    /// The cluster IPs, primary first. Empty for a headless service, for an `ExternalName`, and if one of `problems` is
    /// the reason why the service gets no cluster IP.
    pub cluster_ips: Vec<IpAddr>,
    /// The node ports of the service's ports, in the order of the ports. None for a port without a node port.
    pub node_ports: Vec<Option<u16>>,
    /// The health check port, if the service needs one.
    pub health_check_node_port: Option<u16>,
    /// The time when this daemon or an earlier one first saw the service.
    pub since: Option<Time>,
    /// The reasons for which the service does not get everything that it asks for.
    pub problems: Vec<FieldError>,
}

/// The addresses and ports of all services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// The addresses and ports of each service that was passed in.
    pub services: BTreeMap<ObjectKey, Assigned>,
    /// The record to write to the disk and to pass to the next call.
    pub record: Allocations,
}

/// Gives each service its addresses and ports. `services` must be all services, because the addresses and ports of any
/// other service become free. Therefore keep the returned record only if every source has reported its services.
/// `cidrs` are the ranges of `serviceCIDR`, at most one for each family. A service that names no family gets the family
/// of the first range. A service that is not in the record counts as first seen `now`.
pub fn allocate(
    services: &[(ObjectKey, Arc<Service>)],
    cidrs: &[Cidr],
    before: &Allocations,
    now: Time,
) -> Assignment {
    let candidate = |(key, service)| {
        let name = candidate::name(key);
        let mut held = before.services.get(&name).cloned().unwrap_or_default();
        held.since.get_or_insert(now);
        Candidate::new(key, name, service, held)
    };
    let pairs = services.iter().map(|(key, service)| (key, &**service));
    let mut all: Vec<Candidate<'_>> = pairs.map(candidate).collect();
    // If two services newly claim the same address, the service that comes first in this order gets the address.
    all.sort_by_key(|candidate| candidate.key);
    cluster_ips::assign(&mut all, cidrs);
    node_ports::assign(&mut all);
    let mut assignment = Assignment::default();
    for candidate in all {
        let holds = candidate.holds();
        if holds != Held::default() {
            let name = candidate.name;
            assignment.record.services.insert(name, holds);
        }
        let assigned = Assigned {
            cluster_ips: candidate.cluster_ips,
            node_ports: candidate.node_ports,
            health_check_node_port: candidate.health_check_node_port,
            since: candidate.held.since,
            problems: candidate.problems,
        };
        assignment.services.insert(candidate.key.clone(), assigned);
    }
    assignment
}

/// Returns the addresses and ports that a control plane has given its services.
pub fn given(services: &[(ObjectKey, Arc<Service>)]) -> BTreeMap<ObjectKey, Assigned> {
    let of = |service: &Service| Assigned {
        cluster_ips: service.cluster_ips.given().to_vec(),
        node_ports: service.ports.iter().map(|port| port.node_port).collect(),
        health_check_node_port: service.health_check_node_port,
        since: service.created,
        problems: Vec::new(),
    };
    let services = services.iter();
    services
        .map(|(key, service)| (key.clone(), of(service)))
        .collect()
}

#[cfg(test)]
mod tests;
