//! Chooses the addresses of a new pod.
//!
//! Invariants: this file has no state. The caller knows from the sandboxes which addresses are in use. The address
//! that a pod gave back last is given out last, because clients may still remember the old pod.

use std::net::IpAddr;

use crate::api::cidr::Cidr;

/// The largest number of addresses that podprobe uses of a range. The further addresses of a larger range stay
/// unused.
const MAX_PLACES: u128 = 1 << 16;

/// Returns the first address of a range. The node itself has this address, and pods send through it.
pub(super) fn gateway(range: Cidr) -> Cidr {
    Cidr {
        network: range.nth(1).unwrap_or(range.network),
        prefix: range.prefix,
    }
}

/// Returns the next free address of `range` after `last`. After the end of the range, the search continues at its
/// beginning. No pod gets the address of the network, the address of the gateway, or the broadcast address.
pub(super) fn next(
    range: Cidr,
    last: Option<IpAddr>,
    in_use: impl Fn(IpAddr) -> bool,
) -> Option<IpAddr> {
    let (first, end) = places(range);
    let start = last.and_then(|ip| range.place(ip)).map_or(first, |n| n + 1);
    let start = if (first..end).contains(&start) {
        start
    } else {
        first
    };
    let order = (start..end).chain(first..start);
    order.filter_map(|n| range.nth(n)).find(|ip| !in_use(*ip))
}

/// Returns the number of pods for which a range has addresses.
pub(super) fn capacity(range: Cidr) -> u128 {
    let (first, end) = places(range);
    end.saturating_sub(first)
}

fn places(range: Cidr) -> (u128, u128) {
    let broadcast = u128::from(range.network.is_ipv4());
    (2, range.size().min(MAX_PLACES).saturating_sub(broadcast))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(s: &str) -> Cidr {
        s.parse().unwrap()
    }

    #[track_caller]
    fn check(cidr: &str, last: &str, used: &[&str], expected: &str) {
        let in_use = |ip: IpAddr| used.contains(&ip.to_string().as_str());
        let got = next(range(cidr), last.parse().ok(), in_use);
        assert_eq!(got.map_or(String::new(), |ip| ip.to_string()), expected);
    }

    #[test]
    fn addresses_go_round_and_leave_out_those_that_are_nobodys() {
        check("10.244.0.0/24", "", &[], "10.244.0.2");
        check("10.244.0.0/24", "10.244.0.2", &[], "10.244.0.3");
        check("10.244.0.0/24", "10.244.0.254", &[], "10.244.0.2");
        check(
            "10.244.0.0/24",
            "10.244.0.253",
            &["10.244.0.254", "10.244.0.2"],
            "10.244.0.3",
        );
        check("10.244.0.0/24", "10.9.0.7", &["10.244.0.2"], "10.244.0.3");
        check("10.244.0.0/30", "", &["10.244.0.2"], "");
        check("fd00::/64", "fd00::ffff", &[], "fd00::2");
        check("fd00::/126", "fd00::2", &["fd00::2"], "fd00::3");
    }

    #[test]
    fn the_node_has_the_first_address() {
        assert_eq!(gateway(range("10.244.0.0/24")).to_string(), "10.244.0.1/24");
        assert_eq!(gateway(range("fd00::/112")).to_string(), "fd00::1/112");
        assert_eq!(capacity(range("10.244.0.0/24")), 253);
        assert_eq!(capacity(range("fd00::/64")), 65534);
    }
}
