//! The addresses and ports that there are, and the order in which one is looked for.
//!
//! The first part of a range is left to services that name theirs, as in Kubernetes: what is allocated comes from the rest, and
//! from the first part only when the rest is full.

use std::fmt;
use std::net::IpAddr;
use std::ops::Range;

use crate::api::service::{Cidr, DNS_PLACE};
use crate::api::validation::NODE_PORTS;

/// The place in the range that the API server's own service has in a cluster.
const FIRST: u128 = 1;

/// Hashes a text to a number that is the same for ever and well spread (FNV-1a).
pub(super) fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The size of the part of a range that is left to services that name theirs: `min(max(16, size / step), most)`, or 0 for a
/// range of at most 16.
fn named_part(size: u128, step: u128, most: u128) -> u128 {
    match size {
        0..=16 => 0,
        _ => (size / step).clamp(16, most),
    }
}

/// The numbers of a range in a circle. The hash decides with which number it begins.
fn around(range: Range<u128>, hash: u64) -> impl Iterator<Item = u128> {
    let size = range.end.saturating_sub(range.start);
    let start = match size {
        0 => 0,
        _ => u128::from(hash) % size,
    };
    (0..size).map(move |step| range.start + (start + step) % size)
}

/// The addresses of a `serviceCIDR`, numbered from its network address.
pub(super) struct IpRange {
    cidr: Cidr,
    network: u128,
    /// The last number that a service may have.
    last: u128,
    /// The last number that is allocated.
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
        // The last address of an IPv4 network is everybody's.
        let last = match cidr.network {
            IpAddr::V4(_) => most.saturating_sub(1),
            IpAddr::V6(_) => most,
        };
        Self {
            cidr,
            network,
            last,
            // A larger IPv6 range is not used up.
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

    /// True if a service may have the address: the range has it, and it is neither the network's own address nor the address
    /// of everybody in the network.
    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        self.number(ip)
            .is_some_and(|number| (1..=self.last).contains(&number))
    }

    /// True if the address may be allocated to a service that has not named it.
    pub(super) fn may_be_allocated(&self, ip: IpAddr) -> bool {
        let number = self.number(ip);
        self.contains(ip) && number != Some(DNS_PLACE) && number != Some(FIRST)
    }

    /// The addresses that may be allocated, in the order in which they are tried.
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

/// True if services may have the port on the node.
pub(super) fn is_node_port(port: u16) -> bool {
    NODE_PORTS.contains(&port)
}

/// The node ports in the order in which they are tried.
pub(super) fn node_ports(hash: u64) -> impl Iterator<Item = u16> {
    let first = u128::from(*NODE_PORTS.start());
    let size = NODE_PORTS.len() as u128;
    let named = named_part(size, 32, 128);
    around(named..size, hash)
        .chain(around(0..named, hash))
        .map(move |number| (first + number) as u16)
}
