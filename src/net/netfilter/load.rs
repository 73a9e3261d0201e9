//! Registers, and the values that a rule can load into them: bytes of the packet, and properties that the kernel knows.

use super::Family;
use super::bytes::Messages;

/// Number of one of the sixteen registers, 0 to 15. A register has 4 bytes. A longer value also occupies the following
/// registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register(pub u8);

impl Register {
    pub(super) fn number(self) -> u32 {
        // 8 is NFT_REG32_00.
        8 + u32::from(self.0)
    }

    /// Returns the first register after a value of `length` bytes that begins at this register.
    pub fn after(self, length: u32) -> Self {
        Self(self.0 + length.div_ceil(4) as u8)
    }
}

/// The header from which the offset of a payload counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The Ethernet header.
    Link = 0,
    /// The header of IPv4, IPv6 or ARP.
    Network = 1,
    /// The header of TCP or UDP.
    Transport = 2,
}

/// A property of a packet that the kernel knows besides the packet's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meta {
    /// EtherType, 2 bytes in network order.
    Protocol = 1,
    /// The packet's mark, 4 bytes in the machine's order.
    Mark = 3,
    /// Name of the interface by which the packet came in, 16 bytes.
    InputName = 6,
    /// Name of the interface by which the packet goes out, 16 bytes.
    OutputName = 7,
    /// NFPROTO_IPV4 (2) or NFPROTO_IPV6 (10), 1 byte.
    NetworkProtocol = 15,
    /// Number of the transport protocol, 1 byte.
    TransportProtocol = 16,
}

/// A property of a packet that connection tracking knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ct {
    /// State of the packet's connection: one bit of [`ct_state`], 4 bytes in the machine's order.
    State = 0,
    /// Status of the packet's connection: bits of [`ct_status`], 4 bytes in the machine's order.
    Status = 2,
}

/// Bits of [`Ct::State`].
pub mod ct_state {
    /// A packet that belongs to no connection and cannot begin one.
    pub const INVALID: u32 = 1;
    /// A packet of a connection that had packets in both directions.
    pub const ESTABLISHED: u32 = 2;
    /// A packet about a connection, namely an ICMP error.
    pub const RELATED: u32 = 4;
    /// The first packet of a connection.
    pub const NEW: u32 = 8;
}

/// Bits of [`Ct::Status`].
pub mod ct_status {
    /// The connection's destination is translated.
    pub const DNAT: u32 = 1 << 5;
}

/// A property that the routing table gives for an address of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fib {
    /// Type of the packet's source address, 4 bytes in the machine's order. [`Fib::LOCAL`] means an address of the node.
    SourceType = 1,
    /// Type of the packet's destination address, 4 bytes in the machine's order. [`Fib::LOCAL`] means an address of the
    /// node.
    DestinationType = 2,
}

impl Fib {
    /// RTN_UNICAST: an address of another machine.
    pub const UNICAST: u32 = 1;
    /// RTN_LOCAL: an address of the node.
    pub const LOCAL: u32 = 2;
}

/// A value that can be loaded into registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Bytes of the packet.
    Payload {
        /// The header from which `offset` counts.
        base: Base,
        /// Distance from `base`, in bytes.
        offset: u32,
        /// Length of the value, in bytes.
        length: u32,
    },
    /// A property that the kernel knows: see [`Meta`].
    Meta(Meta),
    /// A property that connection tracking knows: see [`Ct`].
    Ct(Ct),
    /// A property from the routing table: see [`Fib`].
    Fib(Fib),
    /// A random number below `modulus`, 4 bytes in the machine's order.
    Random {
        /// The number of different values, at least 1.
        modulus: u32,
    },
    /// The numbers 0 to `modulus` - 1 in turn, 4 bytes in the machine's order.
    Turn {
        /// The number of different values, at least 1.
        modulus: u32,
    },
}

impl Load {
    /// Loads the source port of TCP or UDP.
    pub const SOURCE_PORT: Self = Self::payload(Base::Transport, 0, 2);
    /// Loads the destination port of TCP or UDP.
    pub const DESTINATION_PORT: Self = Self::payload(Base::Transport, 2, 2);
    /// Loads the source address of the Ethernet header.
    pub const ETHER_SOURCE: Self = Self::payload(Base::Link, 6, 6);
    /// Loads the sender's IPv4 address from an ARP packet.
    pub const ARP_SOURCE: Self = Self::payload(Base::Network, 14, 4);
    /// Loads the sender's hardware address from an ARP packet.
    pub const ARP_ETHER_SOURCE: Self = Self::payload(Base::Network, 8, 6);

    /// Returns a load of `length` bytes of the packet, from `offset` bytes after `base` on.
    pub const fn payload(base: Base, offset: u32, length: u32) -> Self {
        Self::Payload {
            base,
            offset,
            length,
        }
    }

    /// Returns a load of the source address in the IP header.
    pub const fn source(family: Family) -> Self {
        match family {
            Family::Ip6 => Self::payload(Base::Network, 8, 16),
            _ => Self::payload(Base::Network, 12, 4),
        }
    }

    /// Returns a load of the destination address in the IP header.
    pub const fn destination(family: Family) -> Self {
        match family {
            Family::Ip6 => Self::payload(Base::Network, 24, 16),
            _ => Self::payload(Base::Network, 16, 4),
        }
    }

    /// Returns the length of the value in bytes.
    pub fn length(self) -> u32 {
        match self {
            Self::Payload { length, .. } => length,
            Self::Meta(Meta::InputName | Meta::OutputName) => 16,
            Self::Meta(Meta::Mark) => 4,
            Self::Meta(Meta::Protocol) => 2,
            Self::Meta(Meta::NetworkProtocol | Meta::TransportProtocol) => 1,
            Self::Ct(_) | Self::Fib(_) | Self::Random { .. } | Self::Turn { .. } => 4,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Payload { .. } => "payload",
            Self::Meta(_) => "meta",
            Self::Ct(_) => "ct",
            Self::Fib(_) => "fib",
            Self::Random { .. } | Self::Turn { .. } => "numgen",
        }
    }

    pub(super) fn put(self, to: Register, m: &mut Messages) {
        let to = to.number();
        match self {
            Self::Payload {
                base,
                offset,
                length,
            } => put_all(m, &[(1, to), (2, base as u32), (3, offset), (4, length)]),
            // Attributes 2 and 1 are NFTA_META_KEY and NFTA_META_DREG. NFTA_CT_KEY and NFTA_CT_DREG have the same numbers.
            Self::Meta(key) => put_all(m, &[(2, key as u32), (1, to)]),
            Self::Ct(key) => put_all(m, &[(2, key as u32), (1, to)]),
            // The result 3 is NFT_FIB_RESULT_ADDRTYPE.
            Self::Fib(of) => put_all(m, &[(3, of as u32), (2, 3), (1, to)]),
            Self::Random { modulus } => put_all(m, &[(1, to), (2, modulus), (3, 1), (4, 0)]),
            Self::Turn { modulus } => put_all(m, &[(1, to), (2, modulus), (3, 0), (4, 0)]),
        }
    }
}

/// Writes attributes that each hold a number.
pub(super) fn put_all(m: &mut Messages, attributes: &[(u16, u32)]) {
    for &(kind, value) in attributes {
        m.put_u32(kind, value);
    }
}
