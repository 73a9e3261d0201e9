//! Which sockets of the node listen on node ports of services (services 2.7).
//!
//! Invariants: a port is looked at when it comes into the table, and not again while it is there. Nothing is bound: that would take the
//! port from a process that is just starting.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::api::service::Protocol;
use crate::services::table::{ServicePortName, ServiceTable};

/// The node ports of the table, and what is to be said of each.
#[derive(Clone, Debug, Default)]
pub struct Listening {
    ports: BTreeMap<(u16, Protocol), Option<Taken>>,
}

/// A process lost its clients to a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The service port that has them.
    pub name: ServicePortName,
    /// Number, cause and way out; without the service.
    pub message: String,
}

impl Listening {
    /// The table is in force. Gives what is new to be said. `sockets` gives where the node listens for a protocol.
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

    /// What is to be said of a service.
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

/// Where the node listens; nothing where the kernel does not say.
pub fn of_node(protocol: Protocol) -> Vec<SocketAddr> {
    let files = match protocol {
        Protocol::Tcp => ["tcp", "tcp6"],
        Protocol::Udp => ["udp", "udp6"],
    };
    let read = |name: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{name}"));
    let texts = files.into_iter().filter_map(|name| read(name).ok());
    texts.flat_map(|text| listeners(&text)).collect()
}

/// TCP_LISTEN, and what a socket of UDP without a peer has.
const STATES: [&str; 2] = ["0A", "07"];

/// The sockets that wait for clients, of a table of the kernel: `sl local_address rem_address st …` in each line.
fn listeners(text: &str) -> Vec<SocketAddr> {
    let line = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (local, _, state) = (words.next()?, words.next()?, words.next()?);
        STATES.contains(&state).then(|| address(local)).flatten()
    };
    text.lines().filter_map(line).collect()
}

/// `0100007F:1F90`: words of 32 bits in the order of the machine's bytes, and the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let (words, []) = ip.as_bytes().as_chunks::<8>() else {
        return None;
    };
    let words = words.iter().map(|word| {
        let word = std::str::from_utf8(word).ok()?;
        u32::from_str_radix(word, 16).ok().map(u32::to_ne_bytes)
    });
    let bytes = words.collect::<Option<Vec<[u8; 4]>>>()?.concat();
    let ip = match bytes.len() {
        4 => IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16 => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        _ => return None,
    };
    Some((ip.to_canonical(), port).into())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::services::table::{Backends, ServicePortEntry};

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
        }
    }

    fn table(services: Vec<ServicePortEntry>) -> ServiceTable {
        ServiceTable {
            services,
            ..ServiceTable::default()
        }
    }

    /// Lines of a kernel on a little-endian machine.
    #[test]
    #[cfg(target_endian = "little")]
    fn sockets_that_wait_for_clients_are_found() {
        let tcp = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            \x20  0: 00000000:7530 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0\n\
            \x20  1: 0100007F:7531 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0\n\
            \x20  2: 010200C0:7532 0200A8C0:C350 01 00000000:00000000 00:00000000 00000000     0        0 1 1 0\n\
            cut off\n 3: zz:1 0 0A\n 4: 00:1 0 0A\n";
        let found: Vec<String> = listeners(tcp).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["0.0.0.0:30000", "127.0.0.1:30001"]);
        let v6 = "0: 00000000000000000000000000000000:7530 00000000000000000000000000000000:0000 07 0\n\
            1: 0000000000000000FFFF0000010200C0:7531 00000000000000000000000000000000:0000 0A 0\n\
            2: B80D0120000000000000000001000000:7532 00000000000000000000000000000000:0000 0A 0\n";
        let found: Vec<String> = listeners(v6).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            ["[::]:30000", "192.0.2.1:30001", "[2001:db8::1]:30002"]
        );
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
