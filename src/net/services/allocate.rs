//! Cluster IPs and node ports for services that leave them out (kube-services 3).
//!
//! Invariants: pure. No address and no port has two services. What a service has stays with it as long as it is there and
//! asks for nothing else, also over restarts: [`Allocations`] say what it had. Without them the same services get the same
//! addresses and ports again.

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

/// The record of the addresses and ports that services have, for the disk. A record that cannot be read counts as an empty
/// one; services may then get other addresses and ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocations {
    /// The addresses and ports of each service, by `namespace/name`.
    #[serde(default)]
    services: BTreeMap<String, Held>,
}

/// The addresses and ports that a service gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assigned {
    /// The cluster IPs, primary first. Empty for a headless service, for an `ExternalName`, and if a problem says why.
    pub cluster_ips: Vec<IpAddr>,
    /// The node port of each of the service's ports, in their order.
    pub node_ports: Vec<Option<u16>>,
    /// The health check port, if the service needs one.
    pub health_check_node_port: Option<u16>,
    /// The time when the service was first seen, by this daemon or one before it.
    pub since: Option<Time>,
    /// The reasons why the service does not get all that it asks for.
    pub problems: Vec<FieldError>,
}

/// The addresses and ports of all services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// The addresses and ports of each service, for all services that there were.
    pub services: BTreeMap<ObjectKey, Assigned>,
    /// The record to keep on the disk, and to give to the next call.
    pub record: Allocations,
}

/// Gives each service its addresses and ports. `services` must be all there are, because the addresses and ports of any
/// other service become free: keep the returned record only when every source has spoken. `cidrs` are `serviceCIDR`, at most
/// one for each family; a service that names no family gets the first. A service that is not in the record is first seen
/// `now`.
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
    // Of two new claims to one address the first of this order wins.
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

#[cfg(test)]
mod tests;
