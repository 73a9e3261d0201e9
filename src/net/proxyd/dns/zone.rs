//! The DNS zone of the cluster: its names, and the records of each (docs/names.md).
//!
//! Invariants: a name is looked up without regard to case. Every name at or below the cluster's domain, and every
//! reverse name of the cluster's prefixes, is answered from the zone.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use domain::base::iana::Rtype;
use domain::base::name::ToName;
use domain::base::rdata::RecordData;

use crate::net::services::names::{NameTarget, Names, ServiceNames};

use super::record::{Data, OwnedName, Records, TTL, VERSION_TTL, labels, name_of, name_of_text};
use super::reverse::Reverse;
use super::ways::{
    Way, cluster_ways, endpoint_name, endpoint_ways, is_named, undashed, without_repetitions,
};

/// The version of the DNS schema that the zone follows.
const SCHEMA: &str = "1.1.0";

/// The result of looking up a name in the zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The name does not belong to the zone.
    Elsewhere,
    /// The name does not exist. The record is the SOA of the zone that the name would be in.
    NoName(Records),
    /// The name exists, but has no record of the type. The record is the SOA of the zone that the name is in.
    NoData(Records),
    /// The name is an alias of this other name.
    Alias(OwnedName),
    /// The name has at least one record of the type.
    Data {
        /// The records of the type that was asked for.
        records: Records,
        /// Addresses of the names in `records`.
        extra: Vec<Records>,
    },
}

/// A service with a cluster IP, or an endpoint of a service. The first number is the index of the service in the zone.
enum Named {
    ClusterIp(usize),
    Endpoint(usize, usize),
}

/// The choice of records for an answer: their order, and the largest number.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// A counter that rotates the order of the records. Each answer has another value.
    pub turn: usize,
    /// The largest number of records that can fit into the answer.
    pub most: usize,
}

/// The DNS zone of the cluster.
pub struct Zone {
    names: Names,
    /// The cluster's domain; `None` if the configured domain is no valid name. The zone then has only reverse names.
    domain: Option<OwnedName>,
    by_namespace: HashMap<Vec<u8>, HashMap<Vec<u8>, usize>>,
    by_address: HashMap<IpAddr, Vec<Named>>,
}

impl Zone {
    /// Makes the zone of these names.
    pub fn new(names: Names) -> Self {
        let mut by_namespace: HashMap<Vec<u8>, HashMap<Vec<u8>, usize>> = HashMap::new();
        let mut by_address: HashMap<IpAddr, Vec<Named>> = HashMap::new();
        for (at, service) in names.services.iter().enumerate() {
            let lower = |text: &str| text.to_ascii_lowercase().into_bytes();
            let namespace = by_namespace.entry(lower(&service.namespace)).or_default();
            namespace.insert(lower(&service.name), at);
            for (address, named) in addresses(at, service) {
                by_address.entry(address).or_default().push(named);
            }
        }
        let domain = name_of_text(&names.domain.to_ascii_lowercase());
        Self {
            names,
            domain,
            by_namespace,
            by_address,
        }
    }

    /// Returns the names that the zone was made from.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Looks up the records of `name` that have the type `rtype`.
    pub fn find(&self, name: &OwnedName, rtype: Rtype, choice: Choice) -> Found {
        let lower: OwnedName = name.to_canonical_name();
        let all = labels(&lower);
        if let Some(reverse) = Reverse::read(&all) {
            return self.find_address(name, &reverse, rtype);
        }
        let Some(domain) = &self.domain else {
            return Found::Elsewhere;
        };
        let zone = labels(domain);
        match all.strip_suffix(&zone[..]) {
            None => Found::Elsewhere,
            Some(rest) => self.find_below(name, rest, rtype, choice),
        }
    }

    /// Looks up a name below the cluster's domain. `labels` are the labels before that domain.
    fn find_below(
        &self,
        name: &OwnedName,
        labels: &[&[u8]],
        rtype: Rtype,
        choice: Choice,
    ) -> Found {
        match labels {
            [] => self.apex(name, rtype),
            [b"dns-version"] => {
                let text = vec![Data::Txt(SCHEMA)];
                self.of_type(name, rtype, VERSION_TTL, text)
            }
            [b"ns", b"dns"] => {
                let addresses = self.names.addresses.iter().copied().map(Data::address);
                self.of_type(name, rtype, TTL, addresses.collect())
            }
            [b"svc"] | [b"pod"] | [b"dns"] | [_, b"pod"] => self.no_data(),
            [namespace, b"svc"] if self.by_namespace.contains_key(*namespace) => self.no_data(),
            [address, _, b"pod"] => self.find_pod(name, address, rtype),
            [rest @ .., service, namespace, b"svc"] => match self.service(namespace, service) {
                Some(service) => self.find_service(name, service, rest, rtype, choice),
                None => self.no_name(),
            },
            _ => self.no_name(),
        }
    }

    fn service(&self, namespace: &[u8], name: &[u8]) -> Option<&ServiceNames> {
        let at = *self.by_namespace.get(namespace)?.get(name)?;
        self.names.services.get(at)
    }

    /// Looks up a name of a service. `before` has the labels before the service's own name.
    fn find_service(
        &self,
        name: &OwnedName,
        service: &ServiceNames,
        before: &[&[u8]],
        rtype: Rtype,
        choice: Choice,
    ) -> Found {
        let mut ways = match &service.target {
            NameTarget::ExternalName(target) => return self.external(target, before),
            NameTarget::ClusterIps { addresses, ports } => cluster_ways(addresses, ports),
            NameTarget::Headless(endpoints) => endpoint_ways(endpoints),
        };
        match before {
            [] => {}
            [protocol] if protocol.starts_with(b"_") => {
                // `_tcp.NAME` exists if there is a name `_PORT._tcp.NAME`.
                let is_on_the_way = ways.iter().any(|w| w.is_named_of(protocol));
                return if is_on_the_way {
                    self.no_data()
                } else {
                    self.no_name()
                };
            }
            [hostname] => ways.retain(|w| w.endpoint.is_some_and(|e| is_named(e, hostname))),
            [port, protocol] => ways.retain(|w| w.is_port(port, protocol)),
            _ => return self.no_name(),
        }
        if ways.is_empty() {
            return self.no_name();
        }
        let turn = choice.turn % ways.len();
        ways.rotate_left(turn);
        if rtype == Rtype::SRV {
            return self.servers(name, service, &ways, choice.most);
        }
        let of_type = ways.iter().map(Way::data).filter(|d| d.rtype() == rtype);
        self.of_type(name, rtype, TTL, without_repetitions(of_type, choice.most))
    }

    /// Looks up a name of a service with an `externalName`. Such a service has only one name, which is an alias.
    fn external(&self, target: &str, before: &[&[u8]]) -> Found {
        let is_address = target.parse::<IpAddr>().is_ok();
        let target = name_of_text(target).filter(|_| before.is_empty() && !is_address);
        target.map_or_else(|| self.no_name(), Found::Alias)
    }

    /// Returns the SRV records of a name, and the addresses of their targets.
    fn servers(
        &self,
        name: &OwnedName,
        service: &ServiceNames,
        ways: &[Way<'_>],
        most: usize,
    ) -> Found {
        let mut servers = Vec::new();
        let mut extra: Vec<Records> = Vec::new();
        let mut seen: HashSet<Data> = HashSet::new();
        let mut places: HashMap<OwnedName, usize> = HashMap::new();
        for way in ways {
            let (Some(port), Some(target)) = (way.port, self.way_name(service, way)) else {
                continue;
            };
            let server = Data::Srv(port.port, target.clone());
            if seen.insert(server.clone()) {
                if servers.len() == most {
                    break;
                }
                servers.push(server);
            }
            let place = *places.entry(target).or_insert_with_key(|target| {
                extra.push(records(target, TTL, Vec::new()));
                extra.len() - 1
            });
            let addresses = &mut extra[place].data;
            if !addresses.contains(&way.data()) {
                addresses.push(way.data());
            }
        }
        match servers.is_empty() {
            true => self.no_data(),
            false => Found::Data {
                records: records(name, TTL, servers),
                extra,
            },
        }
    }

    /// Returns the name of the way's endpoint. If the way has no endpoint, returns the name of the service.
    fn way_name(&self, service: &ServiceNames, way: &Way<'_>) -> Option<OwnedName> {
        let own = way.endpoint.map(endpoint_name);
        self.service_name(service, own.as_deref())
    }

    fn service_name(&self, service: &ServiceNames, endpoint: Option<&str>) -> Option<OwnedName> {
        let labels = [&service.name, &service.namespace, "svc"];
        let labels = endpoint.into_iter().chain(labels).map(str::as_bytes);
        name_of(labels, self.domain.as_ref()?)
    }

    /// Looks up a name such as `10-244-0-7.NAMESPACE.pod`. Such a name leads to the address in its first label if pods
    /// may have that address.
    fn find_pod(&self, name: &OwnedName, address: &[u8], rtype: Rtype) -> Found {
        let address = undashed(address);
        match address.filter(|a| self.names.pod_cidrs.iter().any(|c| c.contains(*a))) {
            Some(address) => self.of_type(name, rtype, TTL, vec![Data::address(address)]),
            None => self.no_name(),
        }
    }

    fn find_address(&self, name: &OwnedName, reverse: &Reverse, rtype: Rtype) -> Found {
        let names = reverse.whole().map_or_else(Vec::new, |a| self.names_of(a));
        let prefix = reverse
            .below(&self.names.service_cidrs)
            .or_else(|| reverse.below(&self.names.pod_cidrs));
        let start = match prefix {
            Some(prefix) => self.start(reverse.zone_of(prefix, name)),
            // For the address of an endpoint outside of the cluster's prefixes, only the PTR record is known.
            None if rtype == Rtype::PTR && !names.is_empty() => self.start(name.clone()),
            None => return Found::Elsewhere,
        };
        if names.is_empty() {
            let is_whole = reverse.whole().is_some() || reverse.longer;
            return if is_whole {
                Found::NoName(start)
            } else {
                Found::NoData(start)
            };
        }
        match rtype {
            Rtype::PTR => Found::Data {
                records: records(name, TTL, names),
                extra: Vec::new(),
            },
            _ => Found::NoData(start),
        }
    }

    /// Returns the names of an address: the service with this cluster IP, or else the endpoints with this address, or
    /// else the responder's own name.
    fn names_of(&self, address: IpAddr) -> Vec<Data> {
        let Some(named) = self.by_address.get(&address) else {
            let own = self.names.addresses.contains(&address);
            let server = self.below(&["ns", "dns"]).filter(|_| own);
            return server.map(Data::Ptr).into_iter().collect();
        };
        let service = named.iter().find(|n| matches!(n, Named::ClusterIp(_)));
        let named = service.map_or(&named[..], std::slice::from_ref);
        let names = named.iter().filter_map(|n| self.name_of(n));
        names.map(Data::Ptr).collect()
    }

    fn name_of(&self, named: &Named) -> Option<OwnedName> {
        match named {
            Named::ClusterIp(at) => self.service_name(&self.names.services[*at], None),
            Named::Endpoint(at, endpoint) => {
                let service = &self.names.services[*at];
                let NameTarget::Headless(endpoints) = &service.target else {
                    return None;
                };
                self.service_name(service, Some(&endpoint_name(&endpoints[*endpoint])))
            }
        }
    }

    fn apex(&self, name: &OwnedName, rtype: Rtype) -> Found {
        let server = self.below(&["ns", "dns"]);
        match (rtype, server) {
            (Rtype::SOA, _) => Found::Data {
                records: self.start(name.clone()),
                extra: Vec::new(),
            },
            (Rtype::NS, Some(server)) => {
                let addresses = self.names.addresses.iter().copied().map(Data::address);
                let addresses: Vec<Data> = addresses.collect();
                let extra = (!addresses.is_empty()).then(|| records(&server, TTL, addresses));
                Found::Data {
                    records: records(name, TTL, vec![Data::Ns(server)]),
                    extra: extra.into_iter().collect(),
                }
            }
            _ => self.no_data(),
        }
    }

    /// Keeps the items of `data` that have the type, and returns them as records of the name.
    fn of_type(&self, name: &OwnedName, rtype: Rtype, ttl: u32, mut data: Vec<Data>) -> Found {
        data.retain(|d| d.rtype() == rtype);
        match data.is_empty() {
            true => self.no_data(),
            false => Found::Data {
                records: records(name, ttl, data),
                extra: Vec::new(),
            },
        }
    }

    fn no_name(&self) -> Found {
        Found::NoName(self.start(self.domain.clone().unwrap_or_else(OwnedName::root_vec)))
    }

    fn no_data(&self) -> Found {
        Found::NoData(self.start(self.domain.clone().unwrap_or_else(OwnedName::root_vec)))
    }

    /// Returns the SOA record of a zone: the cluster's zone, or a zone of reverse names.
    fn start(&self, zone: OwnedName) -> Records {
        let soa = Data::Soa {
            server: self
                .below(&["ns", "dns"])
                .unwrap_or_else(OwnedName::root_vec),
            mailbox: self
                .below(&["hostmaster"])
                .unwrap_or_else(OwnedName::root_vec),
            serial: self.names.version,
        };
        records(&zone, TTL, vec![soa])
    }

    fn below(&self, labels: &[&str]) -> Option<OwnedName> {
        let labels = labels.iter().map(|l| l.as_bytes());
        name_of(labels, self.domain.as_ref()?)
    }
}

fn records(owner: &OwnedName, ttl: u32, data: Vec<Data>) -> Records {
    Records {
        owner: owner.clone(),
        ttl,
        data,
    }
}

fn addresses(at: usize, service: &ServiceNames) -> Vec<(IpAddr, Named)> {
    match &service.target {
        NameTarget::ClusterIps { addresses, .. } => {
            let all = addresses.iter().map(|a| (*a, Named::ClusterIp(at)));
            all.collect()
        }
        NameTarget::Headless(endpoints) => {
            let ready = endpoints.iter().enumerate().filter(|(_, e)| e.ready);
            let all = ready.map(|(endpoint, e)| (e.address, Named::Endpoint(at, endpoint)));
            all.collect()
        }
        NameTarget::ExternalName(_) => Vec::new(),
    }
}
