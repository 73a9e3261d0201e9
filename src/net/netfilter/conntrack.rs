//! Connections that the kernel tracks. A translated connection keeps its translation while it is tracked. A UDP client
//! that goes on sending therefore reaches an endpoint that is gone, until the connection's entry is deleted. A
//! connection that was tracked before the translation existed is never translated.

use std::net::{IpAddr, SocketAddr};

use nix::errno::Errno;

use super::Family;
use super::bytes::{Attributes, Messages, Received};
use super::error::NetfilterError;
use super::numbers::{ct, message};
use super::socket::Netfilter;

/// Sender and receiver of the packets in one direction of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// Address and port of the sender.
    pub source: SocketAddr,
    /// Address and port of the receiver.
    pub destination: SocketAddr,
}

/// A tracked flow of TCP or UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// Number of the protocol: 6 for TCP, 17 for UDP.
    pub protocol: u8,
    /// Sender and receiver of the client's packets.
    pub original: Tuple,
    /// Sender and receiver of the answers. The sender is the endpoint.
    pub reply: Tuple,
    id: Option<u32>,
}

impl Netfilter {
    /// Lists the tracked flows of a protocol (6 for TCP, 17 for UDP) in [`Family::Ip`] or [`Family::Ip6`].
    ///
    /// # Errors
    /// Returns the kernel's error if the kernel has no connection tracking, or if the process may not list connections.
    pub fn flows(&mut self, family: Family, protocol: u8) -> Result<Vec<Flow>, NetfilterError> {
        // Since Linux 5.8 the kernel leaves out other protocols. Older kernels refuse the filter or list all protocols.
        let answer = match self.dump_flows(family, |m| put_filter(protocol, m)) {
            Err(Errno::EINVAL | Errno::EOPNOTSUPP) => self.dump_flows(family, |_| {}),
            answer => answer,
        };
        let mut flows =
            answer.map_err(|errno| NetfilterError::new("list tracked connections", errno))?;
        flows.retain(|flow| flow.protocol == protocol);
        Ok(flows)
    }

    fn dump_flows(
        &mut self,
        family: Family,
        filter: impl Fn(&mut Messages),
    ) -> Result<Vec<Flow>, Errno> {
        self.dump(message::CT_GET, family as u8, filter, flow)
    }

    /// Deletes the kernel's entry of a flow. The next packet then counts as the first of a new flow. Returns false if
    /// the entry is gone already.
    ///
    /// # Errors
    /// Returns the error of a kernel that does not delete the entry, for example because the process lacks the
    /// privilege.
    pub fn forget(&mut self, flow: &Flow) -> Result<bool, NetfilterError> {
        let family = match flow.original.source {
            SocketAddr::V4(_) => Family::Ip,
            SocketAddr::V6(_) => Family::Ip6,
        };
        let inside = |m: &mut Messages| {
            m.nest(ct::TUPLE_ORIG, |m| {
                put_tuple(flow.protocol, &flow.original, m);
            });
            if let Some(id) = flow.id {
                m.put_u32(ct::ID, id);
            }
        };
        match self.request(message::CT_DELETE, 0, family as u8, inside, |_| {}) {
            Ok(()) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => {
                let what = format!("forget the connection to {}", flow.original.destination);
                Err(NetfilterError::new(what, errno))
            }
        }
    }
}

fn put_filter(protocol: u8, m: &mut Messages) {
    m.nest(ct::TUPLE_ORIG, |m| {
        m.nest(ct::TUPLE_PROTO, |m| m.put(ct::PROTO_NUM, &[protocol]));
    });
    m.nest(ct::FILTER, |m| {
        // This attribute is in the machine's byte order, unlike most of netfilter.
        m.put(ct::FILTER_ORIG_FLAGS, &ct::FILTER_PROTO_NUM.to_ne_bytes());
    });
}

fn put_tuple(protocol: u8, tuple: &Tuple, m: &mut Messages) {
    m.nest(ct::TUPLE_IP, |m| {
        let (source, destination) = match tuple.source {
            SocketAddr::V4(_) => (ct::IP_V4_SRC, ct::IP_V4_DST),
            SocketAddr::V6(_) => (ct::IP_V6_SRC, ct::IP_V6_DST),
        };
        put_address(source, tuple.source.ip(), m);
        put_address(destination, tuple.destination.ip(), m);
    });
    m.nest(ct::TUPLE_PROTO, |m| {
        m.put(ct::PROTO_NUM, &[protocol]);
        m.put(ct::PROTO_SRC_PORT, &tuple.source.port().to_be_bytes());
        m.put(ct::PROTO_DST_PORT, &tuple.destination.port().to_be_bytes());
    });
}

fn put_address(kind: u16, address: IpAddr, m: &mut Messages) {
    match address {
        IpAddr::V4(a) => m.put(kind, &a.octets()),
        IpAddr::V6(a) => m.put(kind, &a.octets()),
    }
}

/// Parses a flow from a listing. Returns None if its protocol has no ports.
fn flow(received: Received<'_>) -> Option<Flow> {
    let attributes = received.attributes();
    let original = attributes.nested(ct::TUPLE_ORIG)?;
    let protocol = original.nested(ct::TUPLE_PROTO)?.get(ct::PROTO_NUM)?;
    Some(Flow {
        protocol: *protocol.first()?,
        original: tuple(original)?,
        reply: tuple(attributes.nested(ct::TUPLE_REPLY)?)?,
        id: attributes.u32(ct::ID),
    })
}

fn tuple(of: Attributes<'_>) -> Option<Tuple> {
    let ip = of.nested(ct::TUPLE_IP)?;
    let proto = of.nested(ct::TUPLE_PROTO)?;
    let end = |v4, v6, port| {
        let address = match (ip.get(v4), ip.get(v6)) {
            (Some(a), _) => IpAddr::from(<[u8; 4]>::try_from(a).ok()?),
            (_, Some(a)) => IpAddr::from(<[u8; 16]>::try_from(a).ok()?),
            _ => return None,
        };
        let port = <[u8; 2]>::try_from(proto.get(port)?).ok()?;
        Some(SocketAddr::new(address, u16::from_be_bytes(port)))
    };
    Some(Tuple {
        source: end(ct::IP_V4_SRC, ct::IP_V6_SRC, ct::PROTO_SRC_PORT)?,
        destination: end(ct::IP_V4_DST, ct::IP_V6_DST, ct::PROTO_DST_PORT)?,
    })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;
    use crate::net::netfilter::{
        BaseChain, ChainType, Ct, Hook, Rule, Table, Transaction, ct_state,
    };
    use crate::own_network::in_own_network;

    /// Makes the kernel track connections. The kernel begins as soon as a rule asks for the state of connections.
    fn track() {
        let table = Table {
            family: Family::Ip,
            name: "t".into(),
        };
        let output = BaseChain {
            kind: ChainType::Filter,
            hook: Hook::Output,
            priority: 0,
            drop: false,
        };
        let mut transaction = Transaction::new();
        transaction
            .on(&table)
            .add_table()
            .add_chain("output", Some(output))
            .add_rule("output", Rule::new().any_bit(Ct::State, ct_state::NEW));
        Netfilter::open().unwrap().commit(&transaction).unwrap();
    }

    const TCP: u8 = 6;
    const UDP: u8 = 17;

    fn list_and_forget() {
        crate::base::sys::socket::loopback_up().unwrap();
        track();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(server.local_addr().unwrap()).unwrap();
        client.send(b"?").unwrap();
        let mut netfilter = Netfilter::open().unwrap();
        let ends = |client: SocketAddr, server: SocketAddr| [client, server, server];
        let udp = ends(client.local_addr().unwrap(), server.local_addr().unwrap());
        let tcp = ends(tcp.local_addr().unwrap(), tcp.peer_addr().unwrap());
        for (protocol, expected) in [(UDP, udp), (TCP, tcp)] {
            let sent = netfilter
                .dump_flows(Family::Ip, |m| put_filter(protocol, m))
                .unwrap();
            assert_eq!(sent.len(), 1, "the kernel leaves out the other");
            let flows = netfilter.flows(Family::Ip, protocol).unwrap();
            let [flow] = flows[..] else {
                panic!("{flows:?}")
            };
            assert_eq!(flow.protocol, protocol);
            let original = flow.original;
            assert_eq!(
                [original.source, original.destination, flow.reply.source],
                expected
            );
            assert_eq!(netfilter.flows(Family::Ip6, protocol), Ok(Vec::new()));
            assert_eq!(netfilter.forget(&flow), Ok(true));
            assert_eq!(netfilter.forget(&flow), Ok(false));
            assert_eq!(netfilter.flows(Family::Ip, protocol), Ok(Vec::new()));
        }
    }

    #[test]
    fn flows_of_one_protocol_are_listed_and_forgotten() {
        in_own_network(list_and_forget);
    }
}
