//! Ranges of addresses, such as `10.244.0.0/24`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The reasons for which a text is not a range of addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CidrError {
    /// The text is not an address with a prefix length.
    #[error("{0:?} is no range of addresses; write it like 10.244.0.0/24 or fd00:10:244::/112")]
    Form(String),
    /// The text is an address inside a range: bits after the prefix are set.
    #[error("{text:?} has bits beyond its prefix; did you mean {range}?")]
    HostBits {
        /// Text as it was given.
        text: String,
        /// Range that contains the address.
        range: Cidr,
    },
}

/// An IP address with a prefix length. In a range, all bits after the prefix are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cidr {
    /// First address of the range, or the address of an interface in the range.
    pub network: IpAddr,
    /// Length of the prefix in bits: 0 to 32 (IPv4) or 128 (IPv6).
    pub prefix: u8,
}

impl Cidr {
    /// Returns a range of IPv4 addresses.
    pub const fn v4(network: [u8; 4], prefix: u8) -> Self {
        let [a, b, c, d] = network;
        Self {
            network: IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
            prefix,
        }
    }

    /// Returns the range that contains this address alone.
    pub fn single(ip: IpAddr) -> Self {
        Self {
            network: ip,
            prefix: bits(ip),
        }
    }

    /// Reads a range from a text. Bits after the prefix are cleared, as the API does.
    pub fn of_text(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        let network: IpAddr = address.parse().ok()?;
        let is_number = prefix.bytes().all(|b| b.is_ascii_digit());
        let prefix = prefix.parse().ok().filter(|_| is_number)?;
        let range = Self { network, prefix };
        let network = (prefix <= bits(network)).then(|| range.nth(0))??;
        Some(Self { network, prefix })
    }

    /// True if the address is in this range.
    pub fn contains(self, ip: IpAddr) -> bool {
        self.network.is_ipv4() == ip.is_ipv4()
            && number(self.network) & self.mask() == number(ip) & self.mask()
    }

    /// True if the two ranges have an address in common.
    pub fn overlaps(self, other: Self) -> bool {
        match self.prefix <= other.prefix {
            true => self.contains(other.network),
            false => other.contains(self.network),
        }
    }

    /// Returns the number of addresses in the range. For `::/0` the result is the largest number that its type can
    /// hold.
    pub fn size(self) -> u128 {
        1_u128
            .checked_shl(u32::from(bits(self.network) - self.prefix))
            .unwrap_or(u128::MAX)
    }

    /// Returns the address at a place in the range; the first place is 0. Returns None past the end of the range.
    pub fn nth(self, n: u128) -> Option<IpAddr> {
        (n < self.size()).then(|| address(self.network, (number(self.network) & self.mask()) + n))
    }

    /// Returns the place of an address in the range; the first place is 0. Returns None if the address is outside of
    /// the range.
    pub fn place(self, ip: IpAddr) -> Option<u128> {
        self.contains(ip)
            .then(|| number(ip) - (number(self.network) & self.mask()))
    }

    fn mask(self) -> u128 {
        let host = u32::from(bits(self.network) - self.prefix);
        u128::MAX.checked_shl(host).unwrap_or(0)
    }
}

fn bits(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u32::from(ip).into(),
        IpAddr::V6(ip) => ip.into(),
    }
}

fn address(family: IpAddr, n: u128) -> IpAddr {
    match family {
        IpAddr::V4(_) => Ipv4Addr::from(n as u32).into(),
        IpAddr::V6(_) => Ipv6Addr::from(n).into(),
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix)
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    /// Reads a range: address, slash, prefix length. All bits after the prefix must be 0.
    fn from_str(s: &str) -> Result<Self, CidrError> {
        let range = Self::of_text(s).ok_or_else(|| CidrError::Form(s.to_owned()))?;
        let given = s.split('/').next().and_then(|ip| ip.parse().ok());
        match given == Some(range.network) {
            true => Ok(range),
            false => Err(CidrError::HostBits {
                text: s.to_owned(),
                range,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(s: &str) -> Cidr {
        s.parse().unwrap()
    }

    fn ip(s: &str) -> IpAddr {
        s.parse().unwrap()
    }

    #[test]
    fn a_range_is_an_address_and_a_prefix_without_bits_beyond_it() {
        for text in [
            "10.244.0.0/24",
            "0.0.0.0/0",
            "::/0",
            "fd00::/112",
            "1.2.3.4/32",
        ] {
            assert_eq!(cidr(text).to_string(), text);
        }
        for text in [
            "",
            "10.0.0.0",
            "10.0.0.0/33",
            "10.0.0.0/-1",
            "10.0.0.0/+8",
            "x/8",
            "::/129",
        ] {
            let e = text.parse::<Cidr>().unwrap_err().to_string();
            assert!(e.contains("is no range of addresses"), "{text}: {e}");
        }
        assert_eq!(
            "10.244.0.7/24".parse::<Cidr>().unwrap_err().to_string(),
            "\"10.244.0.7/24\" has bits beyond its prefix; did you mean 10.244.0.0/24?"
        );
    }

    #[test]
    fn what_is_in_a_range() {
        let range = cidr("10.1.2.0/24");
        assert!(range.contains(ip("10.1.2.255")));
        assert!(!range.contains(ip("10.1.3.0")));
        assert!(!range.contains(ip("::ffff:10.1.2.1")));
        assert!(cidr("0.0.0.0/0").contains(ip("255.255.255.255")));
        assert!(!cidr("0.0.0.0/0").contains(ip("::1")));
        assert_eq!(range.nth(255), Some(ip("10.1.2.255")));
        assert_eq!(range.nth(256), None);
        assert_eq!(range.place(ip("10.1.2.9")), Some(9));
        assert_eq!(cidr("fd00::/112").nth(10), Some(ip("fd00::a")));
        assert_eq!(cidr("::/0").size(), u128::MAX);
    }

    #[test]
    fn ranges_overlap_when_one_is_in_the_other() {
        for (a, b, overlap) in [
            ("10.0.0.0/8", "10.244.0.0/24", true),
            ("10.244.0.0/24", "10.244.0.128/25", true),
            ("10.244.0.0/24", "10.244.1.0/24", false),
            ("::/0", "10.0.0.0/8", false),
        ] {
            assert_eq!(cidr(a).overlaps(cidr(b)), overlap, "{a} {b}");
            assert_eq!(cidr(b).overlaps(cidr(a)), overlap, "{b} {a}");
        }
    }
}
