//! Checks of addresses and CIDRs, with the API's rules.

use std::net::IpAddr;

use crate::api::field::FieldError;
use crate::api::service::{Cidr, IpFamily};

const NO_IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const NO_CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
/// Error of an address with leading zeros. Some programs read `010` as eight, others as ten.
const LEADING_ZEROS: &str = "must not have leading 0s";

/// Reads an address. An IPv4 address in the form of IPv6 becomes an IPv4 address.
pub(crate) fn parse_ip(text: &str) -> Option<IpAddr> {
    text.parse().ok().map(|ip: IpAddr| ip.to_canonical())
}

/// Checks an IP address, as the API's `IsValidIP` does. Returns None if the address has an error.
pub(super) fn valid_ip(errors: &mut Vec<FieldError>, path: &str, text: &str) -> Option<IpAddr> {
    let ip = parse_ip(text);
    if ip.is_none() {
        errors.push(FieldError::invalid(path, text, no_ip(text)));
    }
    ip
}

fn no_ip(text: &str) -> &'static str {
    let number =
        |part: &str| part.bytes().all(|b| b.is_ascii_digit()) && part.parse::<u8>().is_ok();
    let dotted = text.split('.').count() == 4 && text.split('.').all(number);
    if dotted { LEADING_ZEROS } else { NO_IP }
}

/// Checks an address of the family, as the API's `IsValidIPv4Address` and `IsValidIPv6Address` do. Returns None if the
/// address has an error.
pub(super) fn valid_ip_of(
    errors: &mut Vec<FieldError>,
    family: IpFamily,
    path: &str,
    text: &str,
) -> Option<IpAddr> {
    let ip = parse_ip(text).filter(|ip| IpFamily::of(*ip) == family);
    if ip.is_none() {
        let detail = format!("must be a valid {family} address");
        errors.push(FieldError::invalid(path, text, detail));
    }
    ip
}

/// Checks a range of addresses, as the API's `IsValidCIDR` does.
pub(super) fn valid_cidr(errors: &mut Vec<FieldError>, path: &str, text: &str) {
    if Cidr::of_text(text).is_none() {
        errors.push(FieldError::invalid(path, text, NO_CIDR));
    }
}

/// Refuses addresses that lead to no other machine, as the API's `ValidateEndpointIP` does.
pub(super) fn reaches_a_machine(errors: &mut Vec<FieldError>, path: &str, text: &str, ip: IpAddr) {
    let (link_local, link_multicast) = match ip {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(ip) => (
            ip.is_unicast_link_local(),
            ip.segments()[0] & 0xff0f == 0xff02,
        ),
    };
    let mut refuse = |detail: &str| errors.push(FieldError::invalid(path, text, detail));
    if ip.is_unspecified() {
        refuse(&format!("may not be unspecified ({text})"));
    }
    if ip.is_loopback() {
        refuse("may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    if link_local {
        refuse("may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if link_multicast {
        refuse("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    } else if ip.is_multicast() {
        // The API accepts such an address, but no connection can be made to it.
        refuse("may not be in the multicast range (224.0.0.0/4, ff00::/8)");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_no_host_bits() {
        let read = |text| Cidr::of_text(text).map(|c| format!("{}/{}", c.network, c.prefix));
        let good = |text, expected: &str| assert_eq!(read(text).as_deref(), Some(expected));
        good("10.9.8.7/24", "10.9.8.0/24");
        good("10.9.8.7/32", "10.9.8.7/32");
        good("10.9.8.7/0", "0.0.0.0/0");
        good("2001:db8:1::5/33", "2001:db8::/33");
        good("2001:db8::5/128", "2001:db8::5/128");
        good("2001:db8::5/0", "::/0");
        for bad in [
            "10.0.0.0",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "x/8",
            "10.0.0.0/256",
        ] {
            assert_eq!(Cidr::of_text(bad), None, "{bad}");
        }
    }
}
