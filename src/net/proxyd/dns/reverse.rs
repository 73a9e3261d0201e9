//! Reverse names: `4.3.2.1.in-addr.arpa`, and the names of IPv6 addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use domain::base::name::ToName;

use crate::api::service::Cidr;

use super::record::OwnedName;

/// A name below `in-addr.arpa` or `ip6.arpa`. It stands for the beginning of an address, or for a whole address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reverse {
    /// The address. The bits that the name does not give are 0.
    pub address: IpAddr,
    /// Number of bits of the address that the name gives.
    pub bits: u8,
    /// True if the name has further labels that are no part of an address.
    pub longer: bool,
}

impl Reverse {
    /// Reads a name in lower case. Returns `None` if the name is not a reverse name.
    pub fn read(labels: &[&[u8]]) -> Option<Self> {
        match labels {
            [rest @ .., b"in-addr", b"arpa"] => Some(Self::v4(rest)),
            [rest @ .., b"ip6", b"arpa"] => Some(Self::v6(rest)),
            _ => None,
        }
    }

    fn v4(labels: &[&[u8]]) -> Self {
        let mut octets = [0; 4];
        let known = labels.iter().rev().map_while(|l| decimal(l));
        let count = octets.iter_mut().zip(known).map(|(o, k)| *o = k).count();
        Self {
            address: Ipv4Addr::from(octets).into(),
            bits: 8 * count as u8,
            longer: labels.len() > count,
        }
    }

    fn v6(labels: &[&[u8]]) -> Self {
        let known = labels.iter().rev().map_while(|l| nibble(l)).take(32);
        let (bits, count) = known.fold((0_u128, 0_u8), |(bits, count), nibble| {
            (bits | u128::from(nibble) << (124 - 4 * count), count + 1)
        });
        Self {
            address: Ipv6Addr::from_bits(bits).into(),
            bits: 4 * count,
            longer: labels.len() > usize::from(count),
        }
    }

    /// Returns the address if the name stands for a whole address, and has no further labels.
    pub fn whole(&self) -> Option<IpAddr> {
        let all = if self.address.is_ipv4() { 32 } else { 128 };
        (self.bits == all && !self.longer).then_some(self.address)
    }

    /// Returns the first prefix that contains every address for which the name stands; `None` if there is no such
    /// prefix.
    pub fn below<'c>(&self, cidrs: &'c [Cidr]) -> Option<&'c Cidr> {
        cidrs
            .iter()
            .find(|c| self.bits >= c.prefix && c.contains(self.address))
    }

    /// Returns the name of the smallest zone that covers the prefix. The zone is the end of `name`, with enough labels
    /// for the bits of the prefix.
    pub fn zone_of(&self, cidr: &Cidr, name: &OwnedName) -> OwnedName {
        let step = if self.address.is_ipv4() { 8 } else { 4 };
        // Three labels are always kept: `in-addr` or `ip6`, `arpa`, and the root.
        let keep = usize::from(cidr.prefix.div_ceil(step)) + 3;
        let skip = name.iter().count().saturating_sub(keep);
        let from: usize = name.iter().take(skip).map(|l| l.len() + 1).sum();
        name.range_from(from).to_vec()
    }
}

/// Reads a number from 0 to 255 without leading zeroes.
fn decimal(label: &[u8]) -> Option<u8> {
    let text = std::str::from_utf8(label).ok()?;
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| plain)
}

fn nibble(label: &[u8]) -> Option<u8> {
    match label {
        [digit] => char::from(*digit).to_digit(16).map(|n| n as u8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{labels, name_of_text};
    use super::*;

    fn read(name: &str) -> Option<Reverse> {
        Reverse::read(&labels(&name_of_text(name).unwrap()))
    }

    #[track_caller]
    fn check(name: &str, expected: Option<&str>) {
        let found = read(name).and_then(|r| r.whole());
        assert_eq!(found, expected.map(|a| a.parse().unwrap()), "{name}");
    }

    #[test]
    fn a_reverse_name_says_its_address() {
        check("10.0.96.10.in-addr.arpa", Some("10.96.0.10"));
        check("0.96.10.in-addr.arpa", None);
        check("x.10.0.96.10.in-addr.arpa", None);
        check("1.10.0.96.10.in-addr.arpa", None);
        check("010.0.96.10.in-addr.arpa", None);
        check("256.0.96.10.in-addr.arpa", None);
        check("+1.0.96.10.in-addr.arpa", None);
        check("10.0.96.10.example.org", None);
        let v6 = "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa";
        check(v6, Some("fd00::1"));
        check(&format!("7.{v6}"), None);
        check("0.0.d.f.ip6.arpa", None);
    }

    #[track_caller]
    fn check_zone(cidr: (&str, u8), name: &str, expected: Option<&str>) {
        let cidrs = [Cidr {
            network: cidr.0.parse().unwrap(),
            prefix: cidr.1,
        }];
        let reverse = read(name).unwrap();
        let zone = reverse
            .below(&cidrs)
            .map(|c| reverse.zone_of(c, &name_of_text(name).unwrap()).to_string());
        assert_eq!(zone.as_deref(), expected, "{name}");
    }

    #[test]
    fn a_prefix_is_a_zone_of_whole_labels() {
        let services = ("10.96.0.0", 16);
        check_zone(
            services,
            "1.0.96.10.in-addr.arpa",
            Some("96.10.in-addr.arpa"),
        );
        check_zone(services, "96.10.in-addr.arpa", Some("96.10.in-addr.arpa"));
        check_zone(services, "x.96.10.in-addr.arpa", Some("96.10.in-addr.arpa"));
        check_zone(services, "10.in-addr.arpa", None);
        check_zone(services, "1.0.97.10.in-addr.arpa", None);
        let odd = ("10.96.16.0", 20);
        check_zone(
            odd,
            "1.17.96.10.in-addr.arpa",
            Some("17.96.10.in-addr.arpa"),
        );
        check_zone(odd, "1.32.96.10.in-addr.arpa", None);
        check_zone(("fd00::", 8), "1.d.f.ip6.arpa", Some("d.f.ip6.arpa"));
    }
}
