//! The ways that lead from a service's name to addresses and ports, and the names of endpoints.

use std::net::IpAddr;

use crate::api::service::Protocol;
use crate::net::services::names::{EndpointNames, NamedPort};

use super::record::Data;

/// An address that a name leads to, with a port if the service has ports.
pub struct Way<'z> {
    /// The port; `None` for a service without ports.
    pub port: Option<&'z NamedPort>,
    pub address: IpAddr,
    /// The endpoint that has this address; `None` for a cluster IP.
    pub endpoint: Option<&'z EndpointNames>,
}

/// Returns at most `most` addresses, each once. The iterator repeats an address for each of its ports. The repetitions
/// follow one another, except at the place where the rotation has cut the list.
pub fn without_repetitions(addresses: impl Iterator<Item = Data>, most: usize) -> Vec<Data> {
    let mut all: Vec<Data> = Vec::new();
    for address in addresses {
        if all.last() != Some(&address) {
            if all.len() == most {
                return all;
            }
            all.push(address);
        }
    }
    if all.len() > 1 && all.first() == all.last() {
        all.pop();
    }
    all
}

pub fn cluster_ways<'z>(addresses: &'z [IpAddr], ports: &'z [NamedPort]) -> Vec<Way<'z>> {
    let each = addresses
        .iter()
        .flat_map(|a| some_or_none(ports).map(|p| (*a, p)));
    let each = each.map(|(address, port)| Way {
        port,
        address,
        endpoint: None,
    });
    each.collect()
}

pub fn endpoint_ways(endpoints: &[EndpointNames]) -> Vec<Way<'_>> {
    let ready = endpoints.iter().filter(|e| e.ready);
    let each = ready.flat_map(|e| some_or_none(&e.ports).map(move |p| (e, p)));
    let each = each.map(|(endpoint, port)| Way {
        port,
        address: endpoint.address,
        endpoint: Some(endpoint),
    });
    each.collect()
}

/// Returns each port, or a single `None` if there is no port. A headless service may have no port at all, and its names
/// still lead to addresses.
fn some_or_none(ports: &[NamedPort]) -> impl Iterator<Item = Option<&NamedPort>> {
    let none = ports.is_empty().then_some(None);
    ports.iter().map(Some).chain(none)
}

impl Way<'_> {
    pub fn data(&self) -> Data {
        Data::address(self.address)
    }

    /// Returns true if the way's port has a name and this protocol, such as `_tcp`.
    pub fn is_named_of(&self, protocol: &[u8]) -> bool {
        self.port.is_some_and(|p| {
            let name: &[u8] = match p.protocol {
                Protocol::Tcp => b"_tcp",
                Protocol::Udp => b"_udp",
            };
            !p.name.is_empty() && name == protocol
        })
    }

    pub fn is_port(&self, port: &[u8], protocol: &[u8]) -> bool {
        let name = port.strip_prefix(b"_");
        let is_it = |p: &NamedPort| name.is_some_and(|n| p.name.as_bytes().eq_ignore_ascii_case(n));
        self.is_named_of(protocol) && self.port.is_some_and(is_it)
    }
}

pub fn is_named(endpoint: &EndpointNames, label: &[u8]) -> bool {
    endpoint_name(endpoint)
        .as_bytes()
        .eq_ignore_ascii_case(label)
}

/// Returns the first label of an endpoint's name: the endpoint's host name, or else its address as CoreDNS writes it.
pub fn endpoint_name(endpoint: &EndpointNames) -> String {
    let hostname = endpoint.hostname.as_ref().filter(|h| !h.is_empty());
    hostname
        .cloned()
        .unwrap_or_else(|| dashed(endpoint.address))
}

/// Writes an address as a label, for example `10-244-0-7` or `fd00--7`. A label must not end with a dash, so `fd00--`
/// gets a zero at its end.
fn dashed(address: IpAddr) -> String {
    let mut text = address.to_string().replace(['.', ':'], "-");
    if text.ends_with('-') {
        text.push('0');
    }
    text
}

/// Reads the address from a label such as `10-244-0-7`; `None` if the label is no address.
pub fn undashed(label: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(label).ok()?;
    let v4 = text.replace('-', ".").parse().map(IpAddr::V4);
    v4.or_else(|_| text.replace('-', ":").parse().map(IpAddr::V6))
        .ok()
}
