//! Assigns node ports to services.
//!
//! As in Kubernetes, a number belongs to one service, whatever the protocol. Within a service, a TCP and a UDP port may
//! share a number, as the two ports of DNS do.

use std::collections::{HashMap, HashSet};

use super::candidate::{Candidate, Owners, has_it};
use super::ranges::{hash, is_node_port, node_ports};
use crate::api::field::{FieldError, child, item};
use crate::api::service::{Protocol, Service, ServicePort};

/// A node port that a service is to get.
struct Slot<'s> {
    who: usize,
    /// The service's port and its index in `spec.ports`, or `None` for the health check port.
    of: Option<(usize, &'s ServicePort)>,
    given: Option<u16>,
    had: Option<u16>,
    got: Option<u16>,
}

impl Slot<'_> {
    fn protocol(&self) -> Protocol {
        self.of.map_or(Protocol::Tcp, |(_, port)| port.protocol)
    }

    fn path(&self) -> String {
        match self.of {
            Some((index, _)) => child(&item("spec.ports", index), "nodePort"),
            None => "spec.healthCheckNodePort".into(),
        }
    }
}

/// The index of a service among the candidates, and a port number and protocol that the service uses.
type Use = (usize, u16, Protocol);

struct Work<'w, 's> {
    all: &'w mut [Candidate<'s>],
    owners: Owners<u16>,
    uses: HashSet<Use>,
}

/// Assigns the node ports of all services. First, services keep the ports that they have. Then come the ports that files
/// give. Last, the remaining ports are chosen.
pub(super) fn assign(all: &mut [Candidate<'_>]) {
    let mut slots = slots(all);
    let given: HashSet<Use> = slots
        .iter()
        .filter_map(|slot| Some((slot.who, slot.given?, slot.protocol())))
        .collect();
    let mut work = Work {
        all,
        owners: Owners::new(),
        uses: HashSet::new(),
    };
    for slot in &mut slots {
        let kept = slot.had.filter(|had| match slot.given {
            Some(given) => given == *had,
            // Another port of the same service asks for this number now.
            None => !given.contains(&(slot.who, *had, slot.protocol())),
        });
        slot.got = kept.and_then(|port| work.take(slot, port).ok());
    }
    for slot in slots.iter_mut().filter(|slot| slot.got.is_none()) {
        slot.got = slot.given.and_then(|port| work.given(slot, port));
    }
    let places = places(&slots);
    for place in 0..slots.len() {
        if slots[place].got.is_none() {
            let twin = twin(&slots[place], &places).and_then(|twin| slots[twin].got);
            slots[place].got = work.rest(&slots[place], twin);
        }
    }
    for slot in slots {
        match slot.of {
            Some((index, _)) => all[slot.who].node_ports[index] = slot.got,
            None => all[slot.who].health_check_node_port = slot.got,
        }
    }
}

fn slots<'s>(all: &[Candidate<'s>]) -> Vec<Slot<'s>> {
    let mut slots = Vec::new();
    for (who, candidate) in all.iter().enumerate() {
        let service: &Service = candidate.service;
        if candidate.is_refused || !service.has_node_ports() {
            continue;
        }
        let held = &candidate.held;
        let wants = |port: &ServicePort| port.node_port.is_some() || !service.no_node_ports;
        for (index, port) in candidate.service.ports.iter().enumerate() {
            if wants(port) {
                slots.push(Slot {
                    who,
                    of: Some((index, port)),
                    given: port.node_port,
                    had: held.node_ports.get(&port.name).copied(),
                    got: None,
                });
            }
        }
        if service.needs_health_check() {
            slots.push(Slot {
                who,
                of: None,
                given: service.health_check_node_port,
                had: held.health_check_node_port,
                got: None,
            });
        }
    }
    for slot in &mut slots {
        slot.had = slot.had.filter(|port| is_node_port(*port));
    }
    slots
}

/// Returns the indexes of the slots by service, port and protocol.
fn places(slots: &[Slot<'_>]) -> HashMap<Use, usize> {
    let of = |(place, slot): (usize, &Slot<'_>)| {
        let (_, port) = slot.of?;
        Some(((slot.who, port.port, port.protocol), place))
    };
    slots.iter().enumerate().filter_map(of).collect()
}

/// Returns the index of the slot of the same service and the same port number, but with the other protocol.
fn twin(slot: &Slot<'_>, places: &HashMap<Use, usize>) -> Option<usize> {
    let (_, port) = slot.of?;
    let other = match port.protocol {
        Protocol::Tcp => Protocol::Udp,
        Protocol::Udp => Protocol::Tcp,
    };
    places.get(&(slot.who, port.port, other)).copied()
}

impl Work<'_, '_> {
    /// Claims a port for a slot, and returns the port.
    ///
    /// # Errors
    /// Returns the index of the service that has the port.
    fn take(&mut self, slot: &Slot<'_>, port: u16) -> Result<u16, usize> {
        let port = self.owners.claim(port, slot.who)?;
        match self.uses.insert((slot.who, port, slot.protocol())) {
            true => Ok(port),
            false => Err(slot.who),
        }
    }

    fn given(&mut self, slot: &Slot<'_>, port: u16) -> Option<u16> {
        let owner = match self.take(slot, port) {
            Ok(port) => return Some(port),
            Err(owner) => owner,
        };
        let has_it = has_it(&self.all[owner]);
        let detail = format!("provided port is already allocated: {has_it}");
        let problem = FieldError::invalid(slot.path(), port, detail);
        self.all[slot.who].problems.push(problem);
        None
    }

    /// Finds a port for a slot that still has no port. If the file gives a port that is taken, the slot keeps the port
    /// that it had before, if any. If the file gives no port, the slot gets the port of its twin with the other
    /// protocol, or a new port.
    fn rest(&mut self, slot: &Slot<'_>, twin: Option<u16>) -> Option<u16> {
        let other = match slot.given {
            Some(_) => slot.had,
            None => twin,
        };
        let got = other.and_then(|port| self.take(slot, port).ok());
        match slot.given {
            Some(_) => got,
            None => got.or_else(|| self.new_one(slot)),
        }
    }

    fn new_one(&mut self, slot: &Slot<'_>) -> Option<u16> {
        let what = slot
            .of
            .map_or("/healthCheckNodePort", |(_, port)| &port.name);
        let hash = hash(&format!("{}/{what}", self.all[slot.who].name));
        let free = node_ports(hash).find(|port| !self.owners.has(port));
        if let Some(port) = free {
            return self.take(slot, port).ok();
        }
        let detail = "failed to allocate a nodePort: range is full: all of 30000-32767 is taken; remove services, or set allocateLoadBalancerNodePorts to false where no node port is needed";
        let problem = FieldError::required(slot.path(), detail);
        self.all[slot.who].problems.push(problem);
        None
    }
}
