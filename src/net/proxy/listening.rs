//! Finds sockets of the node that listen on node ports of services (services 2.7).
//!
//! Invariants: a port is checked once when it comes into the table, and not again while it stays in the table. The
//! check binds no port, because binding could take the port from a process that is just starting.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use crate::api::service::Protocol;
use crate::base::sys::listening;
use crate::net::services::table::{ServicePortName, ServiceTable};

/// The node ports in the table. Each has a finding if a process listens on that port.
#[derive(Clone, Debug, Default)]
pub struct Listening {
    ports: BTreeMap<(u16, Protocol), Option<Taken>>,
}

/// A node port that a process listens on. The service now gets the clients of that process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The service port that gets the clients.
    pub name: ServicePortName,
    /// The message for users: port number, cause, and what to do. This message does not name the service.
    pub message: String,
}

impl Listening {
    /// Checks the node ports that are new in `table`, which is in force. Returns the ports on which a process
    /// of the node listens. `sockets` returns the addresses on which the node listens for a protocol.
    pub fn look(
        &mut self,
        table: &ServiceTable,
        sockets: impl Fn(Protocol) -> Vec<SocketAddr>,
    ) -> Vec<Taken> {
        let with_port = table.services.iter();
        let wanted: BTreeMap<(u16, Protocol), &ServicePortName> = with_port
            .filter_map(|s| Some(((s.node_port?, s.name.protocol), &s.name)))
            .collect();
        self.ports.retain(|port, _| wanted.contains_key(port));
        let new = wanted.iter().filter(|(p, _)| !self.ports.contains_key(p));
        let new: Vec<_> = new.map(|(port, name)| (*port, *name)).collect();
        let protocols: BTreeSet<Protocol> =
            new.iter().map(|((_, protocol), _)| *protocol).collect();
        let open: BTreeMap<Protocol, Vec<SocketAddr>> =
            protocols.into_iter().map(|p| (p, sockets(p))).collect();
        let mut said = Vec::new();
        for ((port, protocol), name) in new {
            let mut at = open.get(&protocol).into_iter().flatten();
            let at = at.find(|at| at.port() == port && !at.ip().is_loopback());
            let taken = at.map(|at| taken(name, *at));
            said.extend(taken.clone());
            self.ports.insert((port, protocol), taken);
        }
        said
    }

    /// Returns the messages about the node ports of a service.
    pub fn of(&self, namespace: &str, service: &str) -> impl Iterator<Item = &str> {
        let all = self.ports.values().flatten();
        let own = all.filter(move |t| t.name.namespace == namespace && t.name.service == service);
        own.map(|t| t.message.as_str())
    }
}

fn taken(name: &ServicePortName, at: SocketAddr) -> Taken {
    let (port, protocol) = (at.port(), name.protocol);
    let message = format!(
        "nodePort: {port}/{protocol}: a process of the node listened on {at} when the port was programmed; its clients are sent to the \
         service; choose another nodePort, or end that process"
    );
    Taken {
        name: name.clone(),
        message,
    }
}

/// Returns the addresses on which the node listens for a protocol. The list is empty if the kernel does not list
/// these addresses.
pub fn of_node(protocol: Protocol) -> Vec<SocketAddr> {
    let waiting = match protocol {
        Protocol::Tcp => listening::tcp(),
        Protocol::Udp => listening::udp(),
    };
    waiting.into_iter().map(|w| w.at).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::net::services::table::{Backends, ServicePortEntry};

    fn entry(service: &str, node_port: Option<u16>, protocol: Protocol) -> ServicePortEntry {
        ServicePortEntry {
            name: ServicePortName {
                namespace: "default".into(),
                service: service.into(),
                port: String::new(),
                protocol,
            },
            port: 80,
            cluster_ips: Vec::new(),
            external_ips: Vec::new(),
            load_balancer_ips: Vec::new(),
            source_ranges: Vec::new(),
            node_port,
            affinity: None,
            external_local: false,
            internal: Backends::Reject,
            external: Backends::Reject,
            cluster: Backends::Reject,
        }
    }

    fn table(services: Vec<ServicePortEntry>) -> ServiceTable {
        ServiceTable {
            services,
            ..ServiceTable::default()
        }
    }

    #[test]
    fn a_port_is_looked_at_once_and_said_once() {
        let reads = Cell::new(0);
        let sockets = |protocol| {
            reads.set(reads.get() + 1);
            let at = |text: &str| text.parse().unwrap();
            match protocol {
                Protocol::Tcp => vec![at("127.0.0.1:30001"), at("0.0.0.0:30000")],
                Protocol::Udp => vec![at("[::]:30002")],
            }
        };
        let mut listening = Listening::default();
        let tcp = Protocol::Tcp;
        let web = table(vec![
            entry("a", Some(30000), tcp),
            entry("b", Some(30001), tcp),
            entry("c", Some(30002), tcp),
            entry("d", None, tcp),
        ]);
        let said = listening.look(&web, sockets);
        let messages: Vec<_> = said.iter().map(|t| t.message.as_str()).collect();
        let message = "nodePort: 30000/TCP: a process of the node listened on 0.0.0.0:30000 when the port was programmed; its clients are \
            sent to the service; choose another nodePort, or end that process";
        assert_eq!(messages, [message]);
        assert_eq!(listening.of("default", "a").collect::<Vec<_>>(), [message]);
        assert_eq!(listening.of("default", "b").next(), None);
        assert_eq!(listening.of("other", "a").next(), None);
        assert_eq!(listening.look(&web, sockets), []);
        assert_eq!(reads.get(), 1, "once for all ports");
        assert_eq!(listening.look(&table(vec![]), sockets), []);
        assert_eq!(listening.of("default", "a").next(), None);
        let udp = table(vec![entry("e", Some(30002), Protocol::Udp)]);
        assert_eq!(listening.look(&udp, sockets).len(), 1);
        assert_eq!(listening.look(&web, sockets).len(), 1, "it came again");
    }
}
