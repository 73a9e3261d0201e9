//! The state that TCP connections and UDP clients share: endpoints, limits and metrics.

use std::net::IpAddr;
use std::time::Duration;

use super::addresses::Addresses;
use super::dial::Namespaces;
use super::plan::{Entrance, Wanted, is_in};
use super::pools::Pools;
use crate::api::service::Cidr;
use crate::net::proxyd::message::{Clients, Configuration, Metrics};
use crate::net::proxyd::slab::Key;

/// Number of descriptors that are reserved for other uses than connections.
const RESERVE: u64 = 256;
/// Default for the number of connections of all service ports. With few descriptors the number is smaller.
const CONNECTIONS: usize = 32_768;
/// Largest number of UDP clients of all service ports.
const FLOWS: usize = 16_384;

/// The largest numbers of connections and UDP clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest number of connections of all service ports.
    pub connections: usize,
    /// Largest number of connections of one service port.
    pub connections_per_port: u32,
    /// Largest number of UDP clients of all service ports.
    pub flows: usize,
    /// Largest number of UDP clients of one service port.
    pub flows_per_port: u32,
}

impl Limits {
    /// Returns the limits for this number of descriptors. A connection has two descriptors, and in the worst case half
    /// of the connections have a pipe too. One service port leaves a quarter of the connections to the other service
    /// ports.
    pub fn of(configuration: &Configuration, descriptors: u64) -> Self {
        let options = &configuration.options;
        let room = descriptors.saturating_sub(RESERVE).max(8) as usize;
        let or = |n: u32, default: usize, most: usize| match n {
            0 => default,
            n => most.min(n as usize),
        };
        let connections = or(options.max_connections, CONNECTIONS.min(room / 3), room / 3);
        let of_port = connections - connections / 4;
        let flows = FLOWS.min(room / 4);
        Self {
            connections,
            connections_per_port: or(options.max_connections_per_port, of_port, connections) as u32,
            flows,
            flows_per_port: or(options.max_flows_per_port, flows, flows) as u32,
        }
    }
}

/// The state that TCP and UDP share.
pub struct Shared {
    /// The endpoints of each service port.
    pub pools: Pools,
    /// The network namespaces of pods.
    pub namespaces: Namespaces,
    /// The addresses of services that were added to the node.
    pub addresses: Addresses,
    /// The metrics of the data path.
    pub metrics: Metrics,
    /// The limits of connections and UDP clients.
    pub limits: Limits,
    /// Time after which a silent UDP client is forgotten.
    pub udp_idle: Duration,
    /// Ranges of addresses. Clients with an address in one of these ranges count as inside.
    pub inside: Vec<Cidr>,
    /// The node's own addresses. Clients with these addresses count as inside too.
    pub node_addresses: Vec<IpAddr>,
}

impl Shared {
    /// Returns the kind of a client; `None` if the client is not allowed. The choice of an endpoint depends on this
    /// kind.
    pub fn admit(&mut self, wanted: &Wanted, client: IpAddr) -> Option<Clients> {
        if !wanted.source_ranges.is_empty() && !is_in(&wanted.source_ranges, client) {
            self.metrics.refused += 1;
            return None;
        }
        if wanted.entrance == Entrance::Cluster {
            return Some(Clients::Internal);
        }
        let is_inside = client.is_loopback()
            || self.node_addresses.contains(&client)
            // The node's own processes connect from the service's address, because the node has that address.
            || wanted.is_at(client)
            || is_in(&self.inside, client);
        Some(match is_inside {
            true => Clients::Inside,
            false => Clients::External,
        })
    }

    /// Counts a connection as begun.
    pub fn count_in(&mut self, port: Key, claimed: Option<Key>) {
        self.metrics.accepted += 1;
        if let Some(port) = self.pools.port(port) {
            port.connections += 1;
        }
        if let Some(claimed) = claimed {
            self.addresses.count_in(claimed);
        }
    }

    /// Counts a connection as ended.
    pub fn count_out(&mut self, port: Key, claimed: Option<Key>) {
        if let Some(port) = self.pools.port(port) {
            port.connections -= 1;
        }
        if let Some(claimed) = claimed {
            self.addresses.count_out(claimed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::proxyd::message::Options;

    #[track_caller]
    fn check(options: Options, descriptors: u64, expected: (usize, u32, usize, u32)) {
        let configuration = Configuration {
            options,
            ..Configuration::default()
        };
        let l = Limits::of(&configuration, descriptors);
        let got = (
            l.connections,
            l.connections_per_port,
            l.flows,
            l.flows_per_port,
        );
        assert_eq!(got, expected);
    }

    #[test]
    fn limits_follow_the_options_and_never_exceed_the_descriptors() {
        let options = |all, of_port| Options {
            max_connections: all,
            max_connections_per_port: of_port,
            ..Options::default()
        };
        check(options(0, 0), 1 << 20, (32_768, 24_576, 16_384, 1024));
        check(options(0, 0), 1024, (256, 192, 192, 192));
        check(options(0, 0), 0, (2, 2, 2, 2));
        check(
            options(100_000, 0),
            1 << 20,
            (100_000, 75_000, 16_384, 1024),
        );
        check(options(100_000, 7), 1024, (256, 7, 192, 192));
        check(options(10, 100), 1 << 20, (10, 10, 16_384, 1024));
    }
}
