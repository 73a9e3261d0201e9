//! A service during allocation, with the addresses and ports that it had and gets.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::api::field::FieldError;
use crate::api::objects::ObjectKey;
use crate::api::service::Service;
use crate::base::clock::Time;

/// The addresses and ports of one service in the record, whether a file gave them or they were allocated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Held {
    #[serde(rename = "clusterIPs")]
    pub(super) cluster_ips: Vec<IpAddr>,
    /// The node ports, by the name of the service's port.
    pub(super) node_ports: BTreeMap<String, u16>,
    pub(super) health_check_node_port: Option<u16>,
    /// The time when the service was first seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) since: Option<Time>,
}

/// A service during allocation: the addresses and ports that the service had before, and those that it gets now.
pub(super) struct Candidate<'s> {
    pub(super) key: &'s ObjectKey,
    pub(super) name: String,
    pub(super) service: &'s Service,
    pub(super) held: Held,
    pub(super) cluster_ips: Vec<IpAddr>,
    pub(super) node_ports: Vec<Option<u16>>,
    pub(super) health_check_node_port: Option<u16>,
    pub(super) problems: Vec<FieldError>,
    /// True if the service is invalid as it is written. Such a service gets no address and no port.
    pub(super) is_refused: bool,
}

/// Returns the name of a service in the record: `namespace/name`.
pub(super) fn name(key: &ObjectKey) -> String {
    format!("{}/{}", key.namespace, key.name)
}

impl<'s> Candidate<'s> {
    pub(super) fn new(key: &'s ObjectKey, name: String, service: &'s Service, held: Held) -> Self {
        Self {
            key,
            name,
            service,
            held,
            cluster_ips: Vec::new(),
            node_ports: vec![None; service.ports.len()],
            health_check_node_port: None,
            problems: Vec::new(),
            is_refused: false,
        }
    }

    /// Returns the addresses and ports that the service has now, for the record.
    pub(super) fn holds(&self) -> Held {
        let ports = self.service.ports.iter().zip(&self.node_ports);
        Held {
            cluster_ips: self.cluster_ips.clone(),
            node_ports: ports
                .filter_map(|(port, number)| Some((port.name.clone(), (*number)?)))
                .collect(),
            health_check_node_port: self.health_check_node_port,
            since: self.held.since,
        }
    }
}

/// The owners of addresses or ports. An owner is the index of a service among the candidates.
pub(super) struct Owners<K>(HashMap<K, usize>);

impl<K: Eq + Hash + Copy> Owners<K> {
    pub(super) fn new() -> Self {
        Self(HashMap::new())
    }

    /// Claims the address or port `what` for the service at index `who`, and returns the address or port.
    ///
    /// # Errors
    /// Returns the owner's index if another service has claimed `what` already.
    pub(super) fn claim(&mut self, what: K, who: usize) -> Result<K, usize> {
        match *self.0.entry(what).or_insert(who) {
            owner if owner == who => Ok(what),
            owner => Err(owner),
        }
    }

    pub(super) fn has(&self, what: &K) -> bool {
        self.0.contains_key(what)
    }
}

/// Returns the text about a claim to an address or port that `owner` has: the owner's name, and what a person can do.
pub(super) fn has_it(owner: &Candidate<'_>) -> String {
    format!(
        "the Service {} has it: leave it out here, or write another one",
        owner.name
    )
}
