//! Ranges of addresses in the kernel's form: an element at the begin of each range, and one after its end.

use std::net::IpAddr;

use super::set::{Element, Key};

/// Converts networks (`10.0.0.0/8`) of one family to the elements of a set of intervals. Networks that overlap or touch
/// are merged, because the kernel would refuse such networks.
pub fn intervals(networks: &[(IpAddr, u8)]) -> Vec<Element> {
    let mut ranges: Vec<(u128, u128)> = networks.iter().map(|&(a, p)| range(a, p)).collect();
    ranges.sort_unstable();
    let mut merged: Vec<(u128, u128)> = Vec::new();
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    let v4 = networks.first().is_some_and(|(a, _)| a.is_ipv4());
    let highest = if v4 { u32::MAX.into() } else { u128::MAX };
    let mut elements = Vec::new();
    if merged.first().is_some_and(|(first, _)| *first > 0) {
        elements.push(end_at(v4, 0));
    }
    for (first, last) in merged {
        elements.push(Element::new(address_key(v4, first)));
        if last < highest {
            elements.push(end_at(v4, last + 1));
        }
    }
    elements
}

fn range(address: IpAddr, prefix: u8) -> (u128, u128) {
    let (value, bits) = match address {
        IpAddr::V4(a) => (u128::from(a.to_bits()), 32),
        IpAddr::V6(a) => (a.to_bits(), 128),
    };
    let host = bits - u32::from(prefix).min(bits);
    let rest = 1_u128.checked_shl(host).map_or(u128::MAX, |b| b - 1);
    (value & !rest, value | rest)
}

fn address_key(v4: bool, value: u128) -> Key {
    match v4 {
        true => Key((value as u32).to_be_bytes().to_vec()),
        false => Key(value.to_be_bytes().to_vec()),
    }
}

fn end_at(v4: bool, value: u128) -> Element {
    Element::end(address_key(v4, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(networks: &[&str], expected: &[&str]) {
        let networks: Vec<(IpAddr, u8)> = networks
            .iter()
            .map(|n| n.split_once('/').unwrap())
            .map(|(a, p)| (a.parse().unwrap(), p.parse().unwrap()))
            .collect();
        let found: Vec<String> = intervals(&networks)
            .iter()
            .map(|e| {
                let address = match e.key.0.len() {
                    4 => IpAddr::from(<[u8; 4]>::try_from(&e.key.0[..]).unwrap()),
                    _ => IpAddr::from(<[u8; 16]>::try_from(&e.key.0[..]).unwrap()),
                };
                format!("{}{address}", if e.end { "<" } else { "" })
            })
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn intervals_begin_and_end() {
        check(&["10.1.2.3/8"], &["<0.0.0.0", "10.0.0.0", "<11.0.0.0"]);
        check(&["0.0.0.0/0"], &["0.0.0.0"]);
        check(&["255.255.255.255/32"], &["<0.0.0.0", "255.255.255.255"]);
        check(&["0.0.0.0/1"], &["0.0.0.0", "<128.0.0.0"]);
        check(&["fd00::/8"], &["<::", "fd00::", "<fe00::"]);
        check(&["::/0"], &["::"]);
        check(&[], &[]);
    }

    #[test]
    fn intervals_that_overlap_or_touch_are_one() {
        check(
            &["10.1.0.0/16", "10.0.0.0/8"],
            &["<0.0.0.0", "10.0.0.0", "<11.0.0.0"],
        );
        check(
            &["11.0.0.0/8", "10.0.0.0/8"],
            &["<0.0.0.0", "10.0.0.0", "<12.0.0.0"],
        );
        check(
            &["10.0.0.0/8", "10.0.0.0/8", "12.0.0.0/8"],
            &["<0.0.0.0", "10.0.0.0", "<11.0.0.0", "12.0.0.0", "<13.0.0.0"],
        );
        check(&["0.0.0.0/0", "1.0.0.0/8"], &["0.0.0.0"]);
    }
}
