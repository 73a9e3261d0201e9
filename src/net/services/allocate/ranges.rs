//! The ranges of addresses and ports for services, and the order in which free addresses and ports are tried.
//!
//! As in Kubernetes, the first part of a range is reserved for services that name their address or port. Allocation
//! uses the second part, and the first part only when the second part is full.

use std::fmt;
use std::net::IpAddr;
use std::ops::Range;

use crate::api::service::{Cidr, DNS_PLACE};
use crate::api::validation::NODE_PORTS;

/// Number of the first address of a range. In a cluster, the API server's own service has this address.
const FIRST: u128 = 1;

/// Hashes a text to a well-spread number, which is the same in every version of podprobe (FNV-1a).
pub(super) fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Returns the size of the part of a range that is reserved for services that name their address or port. The size is
/// `min(max(16, size / step), most)`, or 0 for a range of at most 16.
fn named_part(size: u128, step: u128, most: u128) -> u128 {
    match size {
        0..=16 => 0,
        _ => (size / step).clamp(16, most),
    }
}

/// Returns all numbers of a range. The hash selects the first number. After the end of the range, the numbers continue
/// at the start of the range.
fn around(range: Range<u128>, hash: u64) -> impl Iterator<Item = u128> {
    let size = range.end.saturating_sub(range.start);
    let start = match size {
        0 => 0,
        _ => u128::from(hash) % size,
    };
    (0..size).map(move |step| range.start + (start + step) % size)
}

/// A range of `serviceCIDR`. Its addresses are numbered from the network address on.
pub(super) struct IpRange {
    cidr: Cidr,
    network: u128,
    /// Number of the last address that a service may have.
    last: u128,
    /// Number of the last address that podprobe allocates by itself.
    last_allocated: u128,
    named: u128,
}

impl IpRange {
    pub(super) fn new(cidr: Cidr) -> Self {
        let (network, bits) = match cidr.network {
            IpAddr::V4(ip) => (u32::from(ip).into(), 32),
            IpAddr::V6(ip) => (u128::from(ip), 128),
        };
        let host_bits = u32::from(bits - cidr.prefix.min(bits));
        let most = u128::MAX.checked_shr(128 - host_bits).unwrap_or(0);
        // The last address of an IPv4 network is the broadcast address.
        let last = match cidr.network {
            IpAddr::V4(_) => most.saturating_sub(1),
            IpAddr::V6(_) => most,
        };
        Self {
            cidr,
            network,
            last,
            // 65535 addresses are enough. Later addresses of a larger IPv6 range are never allocated.
            last_allocated: match cidr.network {
                IpAddr::V4(_) => last,
                IpAddr::V6(_) => last.min(0xffff),
            },
            named: named_part(most.saturating_add(1), 16, 256),
        }
    }

    fn number(&self, ip: IpAddr) -> Option<u128> {
        let number: u128 = match (ip, self.cidr.network) {
            (IpAddr::V4(ip), IpAddr::V4(_)) => u32::from(ip).into(),
            (IpAddr::V6(ip), IpAddr::V6(_)) => ip.into(),
            _ => return None,
        };
        number.checked_sub(self.network)
    }

    fn address(&self, number: u128) -> IpAddr {
        let address = self.network.wrapping_add(number);
        match self.cidr.network {
            IpAddr::V4(_) => IpAddr::V4((address as u32).into()),
            IpAddr::V6(_) => IpAddr::V6(address.into()),
        }
    }

    /// Tells whether a service may have the address: it is in the range, and is neither the network's own address nor the
    /// broadcast address.
    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        self.number(ip)
            .is_some_and(|number| (1..=self.last).contains(&number))
    }

    /// Tells whether the address may be allocated to a service that did not name it.
    pub(super) fn may_be_allocated(&self, ip: IpAddr) -> bool {
        let number = self.number(ip);
        self.contains(ip) && number != Some(DNS_PLACE) && number != Some(FIRST)
    }

    /// Returns the addresses that may be allocated, in the order in which they are tried.
    pub(super) fn candidates(&self, hash: u64) -> impl Iterator<Item = IpAddr> {
        let end = self.last_allocated + 1;
        let (first, named) = (1.min(end), (1 + self.named).min(end));
        around(named..end, hash)
            .chain(around(first..named, hash))
            .map(|number| self.address(number))
            .filter(|ip| self.may_be_allocated(*ip))
    }
}

impl fmt::Display for IpRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.cidr.network, self.cidr.prefix)
    }
}

/// Tells whether a port number is in the range for node ports.
pub(super) fn is_node_port(port: u16) -> bool {
    NODE_PORTS.contains(&port)
}

/// Returns the node ports in the order in which they are tried.
pub(super) fn node_ports(hash: u64) -> impl Iterator<Item = u16> {
    let first = u128::from(*NODE_PORTS.start());
    let size = NODE_PORTS.len() as u128;
    let named = named_part(size, 32, 128);
    around(named..size, hash)
        .chain(around(0..named, hash))
        .map(move |number| (first + number) as u16)
}
