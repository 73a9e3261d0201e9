//! The holders of addresses and of ports of the node (services 2.4).
//!
//! Invariants: there are no side effects. An address with a port and protocol has one holder, the first that claimed it. The
//! same rule holds for a port on the node's addresses.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use crate::api::service::Protocol;

/// A port that podprobe itself listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnPort {
    /// The address that podprobe listens on, or `None` for every address of the node.
    pub address: Option<IpAddr>,
    /// Number of the port.
    pub port: u16,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Name of the part of podprobe that listens, for texts: `the health check of the proxy`.
    pub what: String,
}

/// The holder of an address or a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A part of podprobe.
    Podprobe(String),
    /// A pod with a host port, by `namespace/name`.
    Pod(String),
    /// A service, by `namespace/name`.
    Service(String),
    /// The health check of a service, by the service's `namespace/name`.
    HealthCheck(String),
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Podprobe(what) => f.write_str(what),
            Self::Pod(name) => write!(f, "a hostPort of pod {name}"),
            Self::Service(name) => write!(f, "service {name}"),
            Self::HealthCheck(name) => write!(f, "healthCheckNodePort of service {name}"),
        }
    }
}

/// The result of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The claim succeeded. The claimant is now the holder.
    New,
    /// The claimant was the holder already.
    Again,
    /// The claim failed, because this other holder has the address or port.
    TakenBy(Holder),
}

/// A claimed port of the node: its address, or `None` for every address, and its holder.
type OnNode = (Option<IpAddr>, Holder);

/// All claimed addresses and ports of the node.
#[derive(Debug, Default)]
pub struct Claims {
    addresses: BTreeMap<(IpAddr, u16, Protocol), Holder>,
    node: BTreeMap<(u16, Protocol), Vec<OnNode>>,
}

impl Claims {
    /// Makes claims in which podprobe holds its own ports.
    pub fn new(own: &[OwnPort]) -> Self {
        let mut claims = Self::default();
        for port in own {
            let holder = Holder::Podprobe(port.what.clone());
            claims.node_port(port.address, port.port, port.protocol, &holder);
            if let Some(address) = port.address {
                claims.address(address, port.port, port.protocol, &holder);
            }
        }
        claims
    }

    /// Claims a port on an address of a service.
    pub fn address(
        &mut self,
        address: IpAddr,
        port: u16,
        protocol: Protocol,
        by: &Holder,
    ) -> Claim {
        let key = (address.to_canonical(), port, protocol);
        match self.addresses.get(&key) {
            Some(holder) if holder == by => Claim::Again,
            Some(holder) => Claim::TakenBy(holder.clone()),
            None => {
                self.addresses.insert(key, by.clone());
                Claim::New
            }
        }
    }

    /// Claims a port on one address of the node, or on all addresses of the node if `address` is `None`.
    pub fn node_port(
        &mut self,
        address: Option<IpAddr>,
        port: u16,
        protocol: Protocol,
        by: &Holder,
    ) -> Claim {
        let holders = self.node.entry((port, protocol)).or_default();
        let meets =
            |other: &Option<IpAddr>| address.is_none() || other.is_none() || *other == address;
        let mut met = holders.iter().filter(|(other, _)| meets(other));
        match met.find(|(_, holder)| holder != by) {
            Some((_, holder)) => Claim::TakenBy(holder.clone()),
            None if holders.iter().any(|(other, _)| *other == address) => Claim::Again,
            None => {
                holders.push((address, by.clone()));
                Claim::New
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(name: &str) -> Holder {
        Holder::Service(name.into())
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    const TCP: Protocol = Protocol::Tcp;

    #[test]
    fn the_first_keeps_an_address() {
        let mut claims = Claims::default();
        let (a, b, at) = (service("a"), service("b"), ip("10.96.0.1"));
        assert_eq!(claims.address(at, 80, TCP, &a), Claim::New);
        assert_eq!(claims.address(at, 80, TCP, &a), Claim::Again);
        assert_eq!(claims.address(at, 80, TCP, &b), Claim::TakenBy(a.clone()));
        assert_eq!(claims.address(at, 80, Protocol::Udp, &b), Claim::New);
        assert_eq!(claims.address(at, 81, TCP, &b), Claim::New);
        let mapped = ip("::ffff:10.96.0.1");
        assert_eq!(claims.address(mapped, 80, TCP, &b), Claim::TakenBy(a));
    }

    #[test]
    fn a_port_on_every_address_meets_one_on_any() {
        let mut claims = Claims::default();
        let (a, b) = (service("a"), service("b"));
        let (one, other) = (Some(ip("192.0.2.1")), Some(ip("192.0.2.2")));
        assert_eq!(claims.node_port(one, 80, TCP, &a), Claim::New);
        assert_eq!(claims.node_port(one, 80, TCP, &a), Claim::Again);
        assert_eq!(claims.node_port(other, 80, TCP, &b), Claim::New);
        assert_eq!(
            claims.node_port(None, 80, TCP, &b),
            Claim::TakenBy(a.clone())
        );
        assert_eq!(claims.node_port(None, 80, Protocol::Udp, &b), Claim::New);
        assert_eq!(claims.node_port(None, 81, TCP, &a), Claim::New);
        assert_eq!(claims.node_port(one, 81, TCP, &b), Claim::TakenBy(a));
    }

    #[test]
    fn podprobe_has_its_ports_first() {
        let own = OwnPort {
            address: Some(ip("10.96.0.10")),
            port: 53,
            protocol: Protocol::Udp,
            what: "the cluster DNS".into(),
        };
        let mut claims = Claims::new(&[own]);
        let taken = Claim::TakenBy(Holder::Podprobe("the cluster DNS".into()));
        let by = service("a");
        assert_eq!(
            claims.address(ip("10.96.0.10"), 53, Protocol::Udp, &by),
            taken
        );
        assert_eq!(claims.node_port(None, 53, Protocol::Udp, &by), taken);
    }
}
