//! The plan for a configuration: the addresses to bind, and the treatment of the clients of each.
//!
//! Invariants: pure. An address with port and protocol occurs once. If two services ask for the same address, the first
//! service in the table gets it, and a conflict is reported for the other service.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use crate::api::service::{Cidr, Protocol};
use crate::net::proxyd::message::{
    Action, Configuration, HostPorts, NotBound, Options, ServiceAddresses,
};
use crate::net::services::table::{Backend, Backends, HostPort, ServicePortEntry, ServicePortName};

/// The kind of address by which a client reaches a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Entrance {
    /// A cluster IP.
    Cluster,
    /// An external IP, or a node port.
    External,
    /// An IP of the load balancer.
    LoadBalancer,
}

/// An address or a portal that is bound for clients.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// An address and port of the node.
    Address(Protocol, SocketAddr),
    /// A port of the proxy process for the addresses of one kind and family. The last field is true for IPv6.
    Portal(ServicePortName, Entrance, bool),
}

/// An address or a portal to bind, and the treatment of its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The address or the portal.
    pub place: Place,
    /// The service port that clients reach at the place.
    pub name: ServicePortName,
    /// The kind of address by which the service is reached.
    pub entrance: Entrance,
    /// The treatment of clients at the place.
    pub action: Action,
    /// The ranges of clients that are served; an empty list means all clients.
    pub source_ranges: Vec<Cidr>,
    /// The addresses that are redirected to the portal; empty if the place is no portal.
    pub portal_of: Vec<SocketAddr>,
    /// True if the address is reached by a route, and no interface has it.
    pub is_routed: bool,
}

impl Wanted {
    /// Returns the protocol: TCP or UDP.
    pub fn protocol(&self) -> Protocol {
        self.name.protocol
    }

    /// Returns true if this is an entry for the address `ip`, with any port.
    pub fn is_at(&self, ip: IpAddr) -> bool {
        matches!(self.place, Place::Address(_, at) if at.ip() == ip)
    }
}

/// The endpoints of a service port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The name of the service port.
    pub name: ServicePortName,
    /// Time for which a client keeps its endpoint; None without affinity.
    pub affinity: Option<Duration>,
    /// The endpoints for each kind of client, in the order of [`crate::net::proxyd::message::Clients`].
    pub lists: [Vec<Backend>; 3],
}

/// The plan for a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The addresses and portals to bind, in the order of the table.
    pub wanted: Vec<Wanted>,
    /// The endpoints of each service port.
    pub pools: Vec<Pool>,
    /// The addresses that are not bound for a service because another service has them.
    pub conflicts: Vec<NotBound>,
    /// Addresses of services and names that must be added to the node.
    pub addresses: BTreeSet<IpAddr>,
    taken: BTreeSet<Place>,
}

impl Plan {
    /// Makes the plan for a configuration.
    pub fn of(configuration: &Configuration) -> Self {
        let options = &configuration.options;
        let mut plan = Self::default();
        for service in &configuration.table.services {
            plan.add_service(service, configuration);
        }
        for port in &configuration.table.host_ports {
            plan.add_host_port(port, options);
        }
        // The DNS responder binds the addresses of names itself.
        let names = configuration.names.iter().flat_map(|n| &n.addresses);
        let claimed = names.filter(|ip| !configuration.is_routed(**ip));
        plan.addresses.extend(claimed);
        plan
    }

    fn add_service(&mut self, service: &ServicePortEntry, configuration: &Configuration) {
        let before = self.wanted.len();
        let options = &configuration.options;
        match options.service_addresses {
            ServiceAddresses::Elsewhere => {}
            ServiceAddresses::Bound => {
                self.bind_service(service, &configuration.table.service_cidrs);
            }
            ServiceAddresses::Portals { .. } => self.add_portals(service),
        }
        if let Some(port) = service.node_port {
            for ip in node_port_addresses(options) {
                let entrance = Entrance::External;
                self.want(wanted(service, entrance, (ip, port).into()));
            }
        }
        if self.wanted.len() > before {
            self.pools.push(Pool {
                name: service.name.clone(),
                affinity: service.affinity,
                lists: service.lists().map(endpoints),
            });
        }
    }

    /// Adds the addresses of a service. The daemon adds one route to all addresses in `routed`. All other addresses
    /// are added to the node one by one.
    fn bind_service(&mut self, service: &ServicePortEntry, routed: &[Cidr]) {
        for (entrance, ips) in entrances(service) {
            for ip in ips {
                let is_routed = is_in(routed, *ip);
                // Every node has the addresses of loopback.
                if !ip.is_loopback() && !is_routed {
                    self.addresses.insert(*ip);
                }
                let wanted = wanted(service, entrance, (*ip, service.port).into());
                self.want(Wanted {
                    // No interface has an IPv6 address of a service.
                    is_routed: is_routed || ip.is_ipv6(),
                    ..wanted
                });
            }
        }
    }

    fn add_portals(&mut self, service: &ServicePortEntry) {
        for (entrance, ips) in entrances(service) {
            for v6 in [false, true] {
                let of_family = ips.iter().filter(|ip| ip.is_ipv6() == v6);
                let addresses: Vec<SocketAddr> =
                    of_family.map(|ip| (*ip, service.port).into()).collect();
                let Some(first) = addresses.first() else {
                    continue;
                };
                let mut portal = wanted(service, entrance, *first);
                portal.place = Place::Portal(service.name.clone(), entrance, v6);
                portal.portal_of = addresses;
                self.want(portal);
            }
        }
    }

    fn add_host_port(&mut self, port: &HostPort, options: &Options) {
        let v6 = port.backend.address.is_ipv6();
        let name = ServicePortName {
            namespace: "hostPort".into(),
            service: port.pod.clone(),
            // No service has a port with such a name.
            port: SocketAddr::new(port.host_ip.unwrap_or(ANY[usize::from(v6)]), port.port)
                .to_string(),
            protocol: port.protocol,
        };
        let before = self.wanted.len();
        let addresses = host_port_addresses(port.host_ip, options).into_iter();
        for ip in addresses.filter(|ip| ip.is_ipv6() == v6) {
            self.want(Wanted {
                place: Place::Address(port.protocol, (ip, port.port).into()),
                name: name.clone(),
                entrance: Entrance::External,
                action: Action::Serve,
                source_ranges: Vec::new(),
                portal_of: Vec::new(),
                is_routed: false,
            });
        }
        if self.wanted.len() > before {
            self.pools.push(Pool {
                name,
                affinity: None,
                lists: [(); 3].map(|()| vec![port.backend.clone()]),
            });
        }
    }

    fn want(&mut self, wanted: Wanted) {
        if self.taken.insert(wanted.place.clone()) {
            return self.wanted.push(wanted);
        }
        let Place::Address(protocol, address) = wanted.place else {
            return;
        };
        let same =
            |w: &&Wanted| matches!(w.place, Place::Address(p, a) if (p, a) == (protocol, address));
        let owner = self.wanted.iter().find(same);
        let owner = owner.map_or_else(String::new, |w| w.name.to_string());
        // If one service names an address twice, there is no conflict.
        if owner != wanted.name.to_string() {
            self.conflicts.push(NotBound {
                address,
                protocol,
                service: wanted.name.to_string(),
                error: format!(
                    "cannot serve {} on {address}/{protocol}: it belongs to {owner}; give one of them another port",
                    wanted.name
                ),
            });
        }
    }
}

fn entrances(service: &ServicePortEntry) -> [(Entrance, &[IpAddr]); 3] {
    [
        (Entrance::Cluster, &service.cluster_ips),
        (Entrance::External, &service.external_ips),
        (Entrance::LoadBalancer, &service.load_balancer_ips),
    ]
}

fn wanted(service: &ServicePortEntry, entrance: Entrance, at: SocketAddr) -> Wanted {
    let ranged = entrance == Entrance::LoadBalancer;
    Wanted {
        place: Place::Address(service.name.protocol, at),
        name: service.name.clone(),
        entrance,
        action: action(service, entrance, at.is_ipv6()),
        source_ranges: if ranged {
            service.source_ranges.clone()
        } else {
            Vec::new()
        },
        portal_of: Vec::new(),
        is_routed: false,
    }
}

/// Returns the treatment of clients at an address. A socket cannot distinguish its clients before it accepts them. So
/// the address is served if any kind of client has an endpoint. An address leads only to endpoints of its own family.
fn action(service: &ServicePortEntry, entrance: Entrance, v6: bool) -> Action {
    let of = |backends: &Backends| match backends {
        Backends::Some(list) if list.iter().any(|b| b.address.is_ipv6() == v6) => Action::Serve,
        Backends::Some(_) | Backends::Reject => Action::Refuse,
        Backends::Drop => Action::Drop,
    };
    let [internal, inside, external] = service.lists().map(of);
    match (entrance, inside, external) {
        (Entrance::Cluster, ..) => internal,
        (_, Action::Serve, _) | (_, _, Action::Serve) => Action::Serve,
        (_, _, external) => external,
    }
}

fn endpoints(backends: &Backends) -> Vec<Backend> {
    match backends {
        Backends::Some(list) => list.clone(),
        Backends::Reject | Backends::Drop => Vec::new(),
    }
}

const LOOPBACK: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::LOCALHOST),
    IpAddr::V6(Ipv6Addr::LOCALHOST),
];
const ANY: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    IpAddr::V6(Ipv6Addr::UNSPECIFIED),
];

/// Returns the addresses for node ports. Each address is bound separately, so that services can use the same port on
/// other addresses.
fn node_port_addresses(options: &Options) -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = match (options.node_ports, options.node_addresses.is_empty()) {
        (false, _) => Vec::new(),
        (true, true) => return ANY.into(),
        (true, false) => options.node_addresses.clone(),
    };
    found.retain(|ip| !ip.is_loopback());
    if options.localhost_node_ports {
        found.extend(LOOPBACK);
    }
    found
}

fn host_port_addresses(host_ip: Option<IpAddr>, options: &Options) -> Vec<IpAddr> {
    let named = host_ip.filter(|ip| !ip.is_unspecified());
    match (options.host_ports, named) {
        (HostPorts::None, _) => Vec::new(),
        (HostPorts::All, Some(ip)) => vec![ip],
        (HostPorts::All, None) if options.node_addresses.is_empty() => of_family(ANY, host_ip),
        (HostPorts::All, None) => {
            let mut found = of_family(LOOPBACK, host_ip);
            let others = options.node_addresses.iter().filter(|ip| !ip.is_loopback());
            found.extend(others.filter(|ip| is_of_family(**ip, host_ip)));
            found
        }
        (HostPorts::Localhost, Some(ip)) if ip.is_loopback() => vec![ip],
        (HostPorts::Localhost, Some(_)) => Vec::new(),
        (HostPorts::Localhost, None) => of_family(LOOPBACK, host_ip),
    }
}

/// Returns true if the address has the family of `host_ip`, or if there is no `host_ip`. `0.0.0.0` means IPv4 and `::`
/// means IPv6, as the author of the pod expects.
fn is_of_family(ip: IpAddr, host_ip: Option<IpAddr>) -> bool {
    host_ip.is_none_or(|host_ip| host_ip.is_ipv4() == ip.is_ipv4())
}

fn of_family(ips: [IpAddr; 2], host_ip: Option<IpAddr>) -> Vec<IpAddr> {
    ips.into_iter()
        .filter(|ip| is_of_family(*ip, host_ip))
        .collect()
}

/// Returns true if the address lies in one of the ranges.
pub fn is_in(ranges: &[Cidr], ip: IpAddr) -> bool {
    ranges.iter().any(|range| range.contains(ip))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::services::table::ServiceTable;

    pub(crate) fn service(name: &str, cluster_ips: &[&str]) -> ServicePortEntry {
        ServicePortEntry::new(
            ServicePortName {
                namespace: "ns".into(),
                service: name.into(),
                port: String::new(),
                protocol: Protocol::Tcp,
            },
            80,
            cluster_ips.iter().map(|ip| ip.parse().unwrap()).collect(),
            Backends::Some(vec![backend(1)]),
        )
    }

    fn backend(port: u16) -> Backend {
        Backend {
            address: ([10, 244, 0, 2], port).into(),
            namespace: None,
        }
    }

    fn plan(services: Vec<ServicePortEntry>, options: Options) -> Plan {
        Plan::of(&Configuration {
            options,
            table: ServiceTable {
                services,
                ..ServiceTable::default()
            },
            ..Configuration::default()
        })
    }

    fn bound() -> Options {
        Options {
            service_addresses: ServiceAddresses::Bound,
            node_ports: true,
            ..Options::default()
        }
    }

    fn places(plan: &Plan) -> Vec<String> {
        let text = |w: &Wanted| match &w.place {
            Place::Address(protocol, at) => format!("{at}/{protocol} {:?}", w.action),
            Place::Portal(name, entrance, v6) => {
                format!("{name} {entrance:?} {v6} {:?}", w.portal_of)
            }
        };
        plan.wanted.iter().map(text).collect()
    }

    #[test]
    fn every_address_of_a_service_is_bound() {
        let mut foo = service("foo", &["10.96.0.1", "fd00::1"]);
        foo.external_ips = vec!["1.2.3.4".parse().unwrap()];
        foo.load_balancer_ips = vec!["5.6.7.8".parse().unwrap()];
        foo.node_port = Some(30080);
        let plan = plan(vec![foo], bound());
        let expected = [
            "10.96.0.1:80/TCP Serve",
            "[fd00::1]:80/TCP Refuse",
            "1.2.3.4:80/TCP Serve",
            "5.6.7.8:80/TCP Serve",
            "0.0.0.0:30080/TCP Serve",
            "[::]:30080/TCP Refuse",
        ];
        assert_eq!(places(&plan), expected);
        assert_eq!(plan.addresses.len(), 4);
        assert_eq!(plan.pools.len(), 1);
    }

    #[test]
    fn another_data_path_leaves_the_local_addresses_only() {
        let mut foo = service("foo", &["10.96.0.1"]);
        foo.node_port = Some(30080);
        let options = Options {
            localhost_node_ports: true,
            ..Options::default()
        };
        let plan = plan(vec![foo, service("bar", &["10.96.0.2"])], options);
        let expected = ["127.0.0.1:30080/TCP Serve", "[::1]:30080/TCP Refuse"];
        assert_eq!(places(&plan), expected);
        assert_eq!(plan.pools.len(), 1, "nobody reaches bar here");
    }

    #[test]
    fn node_ports_are_not_on_loopback_unless_that_is_asked_for() {
        let mut foo = service("foo", &[]);
        foo.node_port = Some(30080);
        let options = Options {
            node_addresses: vec!["127.0.0.1".parse().unwrap(), "192.168.0.9".parse().unwrap()],
            ..bound()
        };
        let plan = plan(vec![foo], options);
        assert_eq!(places(&plan), ["192.168.0.9:30080/TCP Serve"]);
    }

    #[test]
    fn a_portal_serves_all_addresses_of_one_kind_and_family() {
        let mut foo = service("foo", &["10.96.0.1", "fd00::1"]);
        foo.external_ips = vec!["1.2.3.4".parse().unwrap(), "1.2.3.5".parse().unwrap()];
        let options = Options {
            service_addresses: ServiceAddresses::Portals { first: 0, last: 0 },
            ..Options::default()
        };
        let expected = [
            "ns/foo Cluster false [10.96.0.1:80]",
            "ns/foo Cluster true [[fd00::1]:80]",
            "ns/foo External false [1.2.3.4:80, 1.2.3.5:80]",
        ];
        let plan = plan(vec![foo], options);
        assert_eq!(places(&plan), expected);
        assert!(plan.addresses.is_empty(), "nothing of it is bound");
    }

    #[test]
    fn two_services_with_one_address_are_told() {
        let plan = plan(
            vec![
                service("bar", &["10.96.0.1"]),
                service("foo", &["10.96.0.1"]),
            ],
            bound(),
        );
        assert_eq!(places(&plan), ["10.96.0.1:80/TCP Serve"]);
        assert_eq!(
            plan.conflicts[0].error,
            "cannot serve ns/foo on 10.96.0.1:80/TCP: it belongs to ns/bar; give one of them another port"
        );
    }

    #[test]
    fn one_service_may_name_an_address_twice() {
        let mut foo = service("foo", &["10.96.0.1"]);
        foo.external_ips = foo.cluster_ips.clone();
        let plan = plan(vec![foo], bound());
        assert_eq!((plan.wanted.len(), plan.conflicts.len()), (1, 0));
    }

    #[track_caller]
    fn check_action(entrance: Entrance, inside: Backends, external: Backends, expected: Action) {
        let mut foo = service("foo", &[]);
        match entrance {
            Entrance::Cluster => foo.internal = inside,
            _ => (foo.external_local, foo.cluster) = (true, inside),
        }
        foo.external = external;
        assert_eq!(action(&foo, entrance, false), expected);
        let of_the_other_family = action(&foo, entrance, true);
        assert_ne!(of_the_other_family, Action::Serve);
    }

    #[test]
    fn who_is_served_refused_or_dropped() {
        let some = || Backends::Some(vec![backend(1)]);
        let (reject, drop) = (|| Backends::Reject, || Backends::Drop);
        check_action(Entrance::Cluster, some(), reject(), Action::Serve);
        check_action(Entrance::Cluster, reject(), some(), Action::Refuse);
        check_action(Entrance::Cluster, drop(), some(), Action::Drop);
        check_action(Entrance::External, some(), drop(), Action::Serve);
        check_action(Entrance::External, reject(), some(), Action::Serve);
        check_action(Entrance::External, reject(), reject(), Action::Refuse);
        check_action(Entrance::LoadBalancer, reject(), drop(), Action::Drop);
    }

    #[track_caller]
    fn check_host_port(host_ip: Option<&str>, which: HostPorts, node: &[&str], expected: &[&str]) {
        let options = Options {
            host_ports: which,
            node_addresses: node.iter().map(|ip| ip.parse().unwrap()).collect(),
            ..Options::default()
        };
        let found = host_port_addresses(host_ip.map(|ip| ip.parse().unwrap()), &options);
        let found: Vec<String> = found.iter().map(IpAddr::to_string).collect();
        assert_eq!(found, expected, "{host_ip:?} {which:?} {node:?}");
    }

    #[test]
    fn where_host_ports_are_bound() {
        let node = &["192.168.0.9", "fd01::9"];
        check_host_port(None, HostPorts::None, node, &[]);
        check_host_port(None, HostPorts::Localhost, node, &["127.0.0.1", "::1"]);
        let all = ["127.0.0.1", "::1", "192.168.0.9", "fd01::9"];
        check_host_port(None, HostPorts::All, node, &all);
        check_host_port(None, HostPorts::All, &[], &["0.0.0.0", "::"]);
        let v4 = ["127.0.0.1", "192.168.0.9"];
        check_host_port(Some("0.0.0.0"), HostPorts::All, node, &v4);
        check_host_port(Some("::"), HostPorts::All, &[], &["::"]);
        check_host_port(Some("10.0.0.1"), HostPorts::All, node, &["10.0.0.1"]);
        check_host_port(Some("10.0.0.1"), HostPorts::Localhost, node, &[]);
        check_host_port(
            Some("127.0.0.1"),
            HostPorts::Localhost,
            node,
            &["127.0.0.1"],
        );
    }

    #[track_caller]
    fn check_range(network: &str, prefix: u8, ip: &str, expected: bool) {
        let range = Cidr {
            network: network.parse().unwrap(),
            prefix,
        };
        assert_eq!(
            is_in(&[range], ip.parse().unwrap()),
            expected,
            "{network}/{prefix} {ip}"
        );
    }

    #[test]
    fn an_address_lies_in_a_range_of_its_family() {
        check_range("10.0.0.0", 8, "10.255.0.1", true);
        check_range("10.0.0.0", 8, "11.0.0.1", false);
        check_range("0.0.0.0", 0, "11.0.0.1", true);
        check_range("0.0.0.0", 0, "::1", false);
        check_range("10.0.0.1", 32, "10.0.0.1", true);
        check_range("10.0.0.1", 32, "10.0.0.2", false);
        check_range("fd00::", 8, "fd12::1", true);
        check_range("::", 0, "fd12::1", true);
        check_range("fd00::1", 128, "fd00::2", false);
    }
}
