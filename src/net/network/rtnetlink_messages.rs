//! The messages of rtnetlink that podprobe sends and reads.
//!
//! Invariant: a message of another type is no error, and what it says is not read. The crate's own type of all messages would
//! bring the code for each attribute of each object of the kernel, some 250 kB of the static file. So of an interface only
//! the few attributes of [`Link`] are read.

use netlink_packet_core::{
    DecodeError, Emitable, NetlinkDeserializable, NetlinkHeader, NetlinkSerializable, NlasIterator,
    Parseable, parse_string, parse_u32,
};
use netlink_packet_route::address::{AddressMessage, AddressMessageBuffer};
use netlink_packet_route::link::{LinkFlags, LinkMessage, LinkMessageBuffer};
use netlink_packet_route::neighbour::NeighbourMessage;
use netlink_packet_route::route::{RouteMessage, RouteMessageBuffer};

/// An interface of a network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The index of the interface.
    pub index: u32,
    /// The interface's name.
    pub name: String,
    /// True if the interface is set up.
    pub up: bool,
    /// The interface's MTU, in bytes.
    pub mtu: u32,
    /// The index of the bridge if the interface is a port of a bridge.
    pub master: Option<u32>,
    /// True if the interface is a bridge.
    pub is_bridge: bool,
    /// True if the interface is one end of a veth pair.
    pub is_veth: bool,
}

/// A request.
pub(super) enum Request {
    GetLink(LinkMessage),
    NewLink(LinkMessage),
    DelLink(LinkMessage),
    GetAddress(AddressMessage),
    NewAddress(AddressMessage),
    DelAddress(AddressMessage),
    GetRoute(RouteMessage),
    NewRoute(RouteMessage),
    DelRoute(RouteMessage),
    NewNeighbour(NeighbourMessage),
    DelNeighbour(NeighbourMessage),
}

impl Request {
    fn parts(&self) -> (u16, &dyn Emitable) {
        match self {
            Self::GetLink(message) => (libc::RTM_GETLINK, message),
            Self::NewLink(message) => (libc::RTM_NEWLINK, message),
            Self::DelLink(message) => (libc::RTM_DELLINK, message),
            Self::GetAddress(message) => (libc::RTM_GETADDR, message),
            Self::NewAddress(message) => (libc::RTM_NEWADDR, message),
            Self::DelAddress(message) => (libc::RTM_DELADDR, message),
            Self::GetRoute(message) => (libc::RTM_GETROUTE, message),
            Self::NewRoute(message) => (libc::RTM_NEWROUTE, message),
            Self::DelRoute(message) => (libc::RTM_DELROUTE, message),
            Self::NewNeighbour(message) => (libc::RTM_NEWNEIGH, message),
            Self::DelNeighbour(message) => (libc::RTM_DELNEIGH, message),
        }
    }
}

impl NetlinkSerializable for Request {
    fn message_type(&self) -> u16 {
        self.parts().0
    }

    fn buffer_len(&self) -> usize {
        self.parts().1.buffer_len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        self.parts().1.emit(buffer);
    }
}

/// An answer.
pub(super) enum Answer {
    Link(Link),
    Address(AddressMessage),
    Route(RouteMessage),
    /// An object of another type, which is not read.
    Other,
}

impl NetlinkDeserializable for Answer {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        Ok(match header.message_type {
            libc::RTM_NEWLINK => Self::Link(link(payload)?),
            libc::RTM_NEWADDR => {
                let buffer = AddressMessageBuffer::new_checked(&payload)?;
                Self::Address(AddressMessage::parse(&buffer)?)
            }
            libc::RTM_NEWROUTE => {
                let buffer = RouteMessageBuffer::new_checked(&payload)?;
                Self::Route(RouteMessage::parse(&buffer)?)
            }
            _ => Self::Other,
        })
    }
}

fn link(payload: &[u8]) -> Result<Link, DecodeError> {
    let message = LinkMessageBuffer::new_checked(payload)?;
    let mut link = Link {
        index: message.link_index(),
        up: LinkFlags::from_bits_retain(message.flags()).contains(LinkFlags::Up),
        ..Link::default()
    };
    for attribute in NlasIterator::new(message.payload()) {
        let attribute = attribute?;
        match attribute.kind() {
            libc::IFLA_IFNAME => link.name = parse_string(attribute.value())?,
            libc::IFLA_MTU => link.mtu = parse_u32(attribute.value())?,
            libc::IFLA_MASTER => link.master = Some(parse_u32(attribute.value())?),
            libc::IFLA_LINKINFO => {
                for info in NlasIterator::new(attribute.value()) {
                    let info = info?;
                    if info.kind() == libc::IFLA_INFO_KIND {
                        let kind = parse_string(info.value())?;
                        link.is_bridge = kind == "bridge";
                        link.is_veth = kind == "veth";
                    }
                }
            }
            _ => {}
        }
    }
    Ok(link)
}
