//! Reads and changes the interfaces, addresses and routes of a network namespace with rtnetlink.
//!
//! Invariants: a socket stays in the namespace in which it was opened. A call waits for the kernel's answer to its
//! own request, and each change is one request. To work in another namespace, the calling thread must first enter
//! that namespace ([`inside`]).

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader,
    NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, AddressScope,
};
use netlink_packet_route::link::{
    InfoBridgePort, InfoData, InfoKind, InfoPortData, InfoPortKind, InfoVeth, LinkAttribute,
    LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{
    NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{
    AddressFamily as SocketFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv,
    sendto, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};

pub use super::rtnetlink_messages::Link;
use super::rtnetlink_messages::{Answer, Request};
use crate::api::cidr::Cidr;

/// The longest time in seconds to wait for an answer of the kernel.
const ANSWER_LIMIT: i64 = 5;
/// The size in bytes of the buffer for the kernel's answers. No datagram of a dump is larger.
const BUFFER: usize = 64 << 10;

/// A route of the main table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The destination range of the route. Prefix length 0 means the default route.
    pub destination: Cidr,
    /// The index of the route's interface; 0 if the route has none.
    pub interface: u32,
}

/// A veth pair to be made. The caller's namespace gets one end, and another namespace gets the peer.
#[derive(Clone, Copy, Debug)]
pub struct Veth<'a> {
    /// Name of the end in the caller's namespace.
    pub name: &'a str,
    /// Index of the bridge. The end in the caller's namespace becomes a port of this bridge.
    pub bridge: u32,
    /// Name of the peer, the end in the other namespace.
    pub peer: &'a str,
    /// The peer's hardware address.
    pub peer_mac: [u8; 6],
    /// The namespace in which the peer is made.
    pub peer_namespace: BorrowedFd<'a>,
    /// The MTU of both ends, in bytes.
    pub mtu: u32,
}

/// A netlink socket to the kernel.
#[derive(Debug)]
pub struct Rtnetlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Rtnetlink {
    /// Opens a socket in the network namespace of the calling thread.
    ///
    /// # Errors
    /// Returns an error if the kernel has no rtnetlink, or if no descriptors are left.
    pub fn open() -> io::Result<Self> {
        let socket = socket(
            SocketFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkRoute,
        )?;
        setsockopt(
            &socket,
            sockopt::ReceiveTimeout,
            &TimeVal::seconds(ANSWER_LIMIT),
        )?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// Returns all interfaces.
    pub fn links(&mut self) -> io::Result<Vec<Link>> {
        let all = self.dump(Request::GetLink(LinkMessage::default()))?;
        Ok(all.into_iter().filter_map(link_of).collect())
    }

    /// Returns the interface with this name, or None.
    pub fn link(&mut self, name: &str) -> io::Result<Option<Link>> {
        let mut message = LinkMessage::default();
        message.attributes = vec![LinkAttribute::IfName(name.into())];
        match self.ask(Request::GetLink(message), 0) {
            Ok(answers) => Ok(answers.into_iter().find_map(link_of)),
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Makes a bridge, which is down. The bridge gets the fixed hardware address `mac`. Without a fixed address,
    /// its address would change with the bridge's ports.
    pub fn add_bridge(&mut self, name: &str, mac: [u8; 6], mtu: u32) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.attributes = vec![
            LinkAttribute::IfName(name.into()),
            LinkAttribute::Address(mac.into()),
            LinkAttribute::Mtu(mtu),
            LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]),
        ];
        self.change(Request::NewLink(message), NEW)
    }

    /// Makes a veth pair. The end in the caller's namespace is up, and is a port of the bridge.
    pub fn add_veth(&mut self, veth: &Veth<'_>) -> io::Result<()> {
        let mut peer = LinkMessage::default();
        peer.attributes = vec![
            LinkAttribute::IfName(veth.peer.into()),
            LinkAttribute::Address(veth.peer_mac.into()),
            LinkAttribute::Mtu(veth.mtu),
            LinkAttribute::NetNsFd(veth.peer_namespace.as_raw_fd()),
        ];
        let mut message = up();
        message.attributes = vec![
            LinkAttribute::IfName(veth.name.into()),
            LinkAttribute::Mtu(veth.mtu),
            LinkAttribute::Controller(veth.bridge),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Veth),
                LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
            ]),
        ];
        self.change(Request::NewLink(message), NEW)
    }

    /// Makes an interface a port of a bridge.
    pub fn set_master(&mut self, index: u32, bridge: u32) -> io::Result<()> {
        let mut message = up();
        message.header.index = index;
        message.attributes = vec![LinkAttribute::Controller(bridge)];
        self.change(Request::NewLink(message), 0)
    }

    /// Configures a port of a bridge. The bridge may send a frame back through the port from which the frame came
    /// (hairpin mode). The bridge learns no hardware addresses from this port.
    pub fn set_port(&mut self, index: u32) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes = vec![LinkAttribute::LinkInfo(vec![
            LinkInfo::PortKind(InfoPortKind::Bridge),
            LinkInfo::PortData(InfoPortData::BridgePort(vec![
                InfoBridgePort::HairpinMode(true),
                InfoBridgePort::Learning(false),
            ])),
        ])];
        self.change(Request::NewLink(message), 0)
    }

    /// Sets an interface up.
    pub fn set_up(&mut self, index: u32) -> io::Result<()> {
        let mut message = up();
        message.header.index = index;
        self.change(Request::NewLink(message), 0)
    }

    /// Sets the port of a bridge through which a hardware address is reached. The bridge does not change this
    /// entry by itself.
    pub fn fix_port_of(&mut self, mac: [u8; 6], port: u32) -> io::Result<()> {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Bridge;
        message.header.ifindex = port;
        message.header.state = NeighbourState::Noarp;
        message.header.flags = NeighbourFlags::Controller;
        message.attributes = vec![NeighbourAttribute::LinkLayerAddress(mac.into())];
        let flags = NLM_F_CREATE | NLM_F_REPLACE;
        self.change(Request::NewNeighbour(message), flags)
    }

    /// Sets the hardware address of a neighbour permanently. So no other machine can claim the neighbour's IP
    /// address.
    pub fn fix_neighbour(&mut self, ip: IpAddr, mac: [u8; 6], link: u32) -> io::Result<()> {
        let mut message = neighbour(ip, link);
        message.header.state = NeighbourState::Permanent;
        let mac = NeighbourAttribute::LinkLayerAddress(mac.into());
        message.attributes.push(mac);
        let flags = NLM_F_CREATE | NLM_F_REPLACE;
        self.change(Request::NewNeighbour(message), flags)
    }

    /// Removes the entry of a neighbour. Idempotent.
    pub fn forget_neighbour(&mut self, ip: IpAddr, link: u32) -> io::Result<()> {
        match self.change(Request::DelNeighbour(neighbour(ip, link)), 0) {
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            done => done,
        }
    }

    /// Removes an interface, with its peer if it has one. Idempotent.
    pub fn remove_link(&mut self, name: &str) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.attributes = vec![LinkAttribute::IfName(name.into())];
        match self.change(Request::DelLink(message), 0) {
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => Ok(()),
            done => done,
        }
    }

    /// Returns the addresses of an interface.
    pub fn addresses(&mut self, index: u32) -> io::Result<Vec<Cidr>> {
        let of_it = self.every_address()?.into_iter();
        let of_it = of_it.filter(|(interface, _)| *interface == index);
        Ok(of_it.map(|(_, address)| address).collect())
    }

    /// Returns the addresses of all interfaces, each with the index of its interface.
    pub fn every_address(&mut self) -> io::Result<Vec<(u32, Cidr)>> {
        let all = self.dump(Request::GetAddress(AddressMessage::default()))?;
        let address = |message| match message {
            Answer::Address(m) => Some((m.header.index, address_of(&m)?)),
            _ => None,
        };
        Ok(all.into_iter().filter_map(address).collect())
    }

    /// Gives an interface an address. The interface may have this address already. The kernel does not first check
    /// whether another machine has the same IPv6 address, because no other machine may have it.
    pub fn add_address(&mut self, index: u32, address: Cidr) -> io::Result<()> {
        let mut message = address_message(index, address);
        message.header.flags = AddressHeaderFlags::Nodad;
        let flags = AddressAttribute::Flags(AddressFlags::Nodad);
        message.attributes.push(flags);
        let flags = NLM_F_CREATE | NLM_F_REPLACE;
        self.change(Request::NewAddress(message), flags)
    }

    /// Gives an interface an address with host scope: the address is valid on this machine only, and the kernel
    /// does not choose it as the source address of other connections.
    ///
    /// # Errors
    /// Returns the kernel's error, also if the interface has the address already.
    pub fn claim_address(&mut self, index: u32, ip: IpAddr) -> io::Result<()> {
        let mut message = address_message(index, Cidr::single(ip));
        message.header.scope = AddressScope::Host;
        self.change(Request::NewAddress(message), NEW)
    }

    /// Removes an address from an interface. Idempotent.
    pub fn remove_address(&mut self, index: u32, address: Cidr) -> io::Result<()> {
        let message = address_message(index, address);
        match self.change(Request::DelAddress(message), 0) {
            Err(e) if e.raw_os_error() == Some(libc::EADDRNOTAVAIL) => Ok(()),
            done => done,
        }
    }

    /// Returns the routes of the main table, for both address families.
    pub fn routes(&mut self) -> io::Result<Vec<Route>> {
        let mut routes = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            let all = self.dump(Request::GetRoute(message))?;
            routes.extend(all.into_iter().filter_map(route_of));
        }
        Ok(routes)
    }

    /// Adds a route to `destination`: through `gateway`, or without a gateway directly through the interface.
    pub fn add_route(
        &mut self,
        destination: Cidr,
        gateway: Option<IpAddr>,
        interface: u32,
    ) -> io::Result<()> {
        let message = route_message(destination, gateway, interface);
        let flags = NLM_F_CREATE | NLM_F_REPLACE;
        self.change(Request::NewRoute(message), flags)
    }

    /// Removes a route without a gateway. Idempotent.
    pub fn remove_route(&mut self, destination: Cidr, interface: u32) -> io::Result<()> {
        let message = route_message(destination, None, interface);
        match self.change(Request::DelRoute(message), 0) {
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            done => done,
        }
    }

    /// Adds a local route, which makes all addresses in `destination` the node's own. The addresses need not
    /// belong to any interface. Idempotent.
    pub fn add_local_route(&mut self, destination: Cidr, loopback: u32) -> io::Result<()> {
        let message = local_message(destination, loopback);
        let flags = NLM_F_CREATE | NLM_F_REPLACE;
        self.change(Request::NewRoute(message), flags)
    }

    /// Removes a local route. Idempotent.
    pub fn remove_local_route(&mut self, destination: Cidr, loopback: u32) -> io::Result<()> {
        let message = local_message(destination, loopback);
        match self.change(Request::DelRoute(message), 0) {
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            done => done,
        }
    }

    fn change(&mut self, message: Request, flags: u16) -> io::Result<()> {
        self.ask(message, flags | NLM_F_ACK).map(drop)
    }

    fn dump(&mut self, message: Request) -> io::Result<Vec<Answer>> {
        self.ask(message, NLM_F_DUMP)
    }

    /// Sends one request and reads the kernel's answer: an object, a list of objects, or an acknowledgement.
    fn ask(&mut self, message: Request, flags: u16) -> io::Result<Vec<Answer>> {
        self.sequence += 1;
        let payload = NetlinkPayload::InnerMessage(message);
        let mut request = NetlinkMessage::new(NetlinkHeader::default(), payload);
        request.header.flags = NLM_F_REQUEST | flags;
        request.header.sequence_number = self.sequence;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        let kernel = NetlinkAddr::new(0, 0);
        sendto(self.socket.as_raw_fd(), &bytes, &kernel, MsgFlags::empty())?;
        let mut answers = Vec::new();
        let mut buffer = vec![0; BUFFER];
        loop {
            let n = match recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => {
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "rtnetlink does not answer",
                    ));
                }
                n => n?,
            };
            let single = flags & (NLM_F_ACK | NLM_F_DUMP) == 0;
            if self.read_datagram(&buffer[..n], single, &mut answers)? {
                return Ok(answers);
            }
        }
    }

    /// Adds the messages of a datagram to the answers. Returns true if the answers are now complete.
    fn read_datagram(
        &self,
        mut bytes: &[u8],
        single: bool,
        answers: &mut Vec<Answer>,
    ) -> io::Result<bool> {
        while !bytes.is_empty() {
            let damaged = |e| io::Error::new(io::ErrorKind::InvalidData, format!("rtnetlink: {e}"));
            let message = NetlinkMessage::<Answer>::deserialize(bytes);
            let message = message.map_err(damaged)?;
            let length = (message.header.length as usize).next_multiple_of(4);
            bytes = bytes.get(length..).unwrap_or_default();
            if message.header.sequence_number != self.sequence {
                continue;
            }
            match message.payload {
                NetlinkPayload::Error(e) if e.code.is_some() => return Err(e.to_io()),
                NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => return Ok(true),
                NetlinkPayload::InnerMessage(answer) => answers.push(answer),
                _ => {}
            }
        }
        Ok(single && !answers.is_empty())
    }
}

const NEW: u16 = NLM_F_CREATE | NLM_F_EXCL;

fn up() -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    message
}

fn family(ip: IpAddr) -> AddressFamily {
    match ip {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

fn address_message(index: u32, address: Cidr) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(address.network);
    message.header.prefix_len = address.prefix;
    message.header.index = index;
    message.attributes = vec![
        AddressAttribute::Local(address.network),
        AddressAttribute::Address(address.network),
    ];
    message
}

fn neighbour(ip: IpAddr, link: u32) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family(ip);
    message.header.ifindex = link;
    message.attributes = vec![NeighbourAttribute::Destination(ip.into())];
    message
}

fn route_message(destination: Cidr, gateway: Option<IpAddr>, interface: u32) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family(destination.network);
    message.header.destination_prefix_length = destination.prefix;
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Boot;
    message.header.kind = RouteType::Unicast;
    message.header.scope = match gateway {
        Some(_) => RouteScope::Universe,
        None => RouteScope::Link,
    };
    message.attributes = vec![RouteAttribute::Oif(interface)];
    if destination.prefix > 0 {
        let to = RouteAttribute::Destination(destination.network.into());
        message.attributes.push(to);
    }
    let via = gateway.map(|g| RouteAttribute::Gateway(g.into()));
    message.attributes.extend(via);
    message
}

fn local_message(destination: Cidr, loopback: u32) -> RouteMessage {
    let mut message = route_message(destination, None, loopback);
    message.header.kind = RouteType::Local;
    message.header.scope = RouteScope::Host;
    message
}

fn link_of(answer: Answer) -> Option<Link> {
    match answer {
        Answer::Link(link) => Some(link),
        _ => None,
    }
}

fn address_of(message: &AddressMessage) -> Option<Cidr> {
    let local = message.attributes.iter().find_map(|a| match a {
        AddressAttribute::Local(ip) => Some(*ip),
        _ => None,
    });
    // A message about an IPv6 address may have no `Local` attribute.
    let address = message.attributes.iter().find_map(|a| match a {
        AddressAttribute::Address(ip) => Some(*ip),
        _ => None,
    });
    Some(Cidr {
        network: local.or(address)?,
        prefix: message.header.prefix_len,
    })
}

fn route_of(answer: Answer) -> Option<Route> {
    use netlink_packet_route::route::RouteAddress;
    let Answer::Route(message) = answer else {
        return None;
    };
    let is_main = message.header.table == RouteHeader::RT_TABLE_MAIN;
    if !is_main || message.header.kind != RouteType::Unicast {
        return None;
    }
    let mut route = Route {
        destination: Cidr {
            network: match message.header.address_family {
                AddressFamily::Inet => IpAddr::from([0; 4]),
                _ => IpAddr::from([0; 16]),
            },
            prefix: message.header.destination_prefix_length,
        },
        interface: 0,
    };
    for attribute in message.attributes {
        match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(ip)) => {
                route.destination.network = ip.into();
            }
            RouteAttribute::Destination(RouteAddress::Inet6(ip)) => {
                route.destination.network = ip.into();
            }
            RouteAttribute::Oif(index) => route.interface = index,
            _ => {}
        }
    }
    Some(route)
}

/// Runs `f` on a new thread inside a network namespace. The calling thread stays in its own namespace.
///
/// # Errors
/// Returns the error of `f`, or an error if the thread cannot be started or may not enter the namespace.
pub fn inside<T: Send>(
    namespace: &File,
    f: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    std::thread::scope(|scope| {
        let run = || {
            setns(namespace, CloneFlags::CLONE_NEWNET)?;
            f()
        };
        let thread = std::thread::Builder::new().name("pod-network".into());
        let thread = thread.stack_size(256 << 10).spawn_scoped(scope, run)?;
        let panicked = |_| Err(io::Error::other("the thread in the pod's network panicked"));
        thread.join().unwrap_or_else(panicked)
    })
}
