//! The chains, sets and elements of one service port in the table of one address family.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::base::{self, Fate, MASQUERADE, from_node, from_pod, refusal};
use super::names::{
    FIREWALL_IPS, NO_ENDPOINT_NODEPORTS, NO_ENDPOINT_SERVICES, Names, SERVICE_IPS,
    SERVICE_NODEPORTS,
};
use crate::api::service::Protocol;
use crate::net::netfilter::{
    AnonymousSet, Change, Element, Expression, Family, Field, Key, Load, Meta, Register, Rule,
    Type, Value, Verdict, intervals,
};
use crate::net::services::table::{Backend, Backends, ServicePortEntry};

/// The chains, sets and elements that a service port has in the table of one address family.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    /// The chains, each with its name and rules.
    pub(super) chains: Vec<(String, Vec<Rule>)>,
    /// The names of the sets that record which clients keep an endpoint.
    pub(super) affinities: BTreeSet<String>,
    /// The elements of maps, each with the name of its map, its key and its verdict.
    pub(super) elements: Vec<(&'static str, Key, Verdict)>,
}

pub(super) fn is_of(family: Family, address: &IpAddr) -> bool {
    address.is_ipv4() == (family == Family::Ip)
}

/// Returns the backends of an address family that the kernel can reach.
pub(super) fn reachable(backends: &Backends, family: Family) -> Vec<&Backend> {
    match backends {
        Backends::Some(all) => all
            .iter()
            .filter(|b| b.namespace.is_none() && is_of(family, &b.address.ip()))
            .collect(),
        Backends::Reject | Backends::Drop => Vec::new(),
    }
}

fn fate(backends: &Backends, family: Family) -> Fate {
    match backends {
        Backends::Drop => Fate::Drop,
        _ if reachable(backends, family).is_empty() => Fate::Reject,
        _ => Fate::Serve,
    }
}

impl Parts {
    /// Makes the parts of a service port in the table of `family`.
    pub(super) fn of(entry: &ServicePortEntry, family: Family) -> Self {
        let names = Names::of(&entry.name);
        let mut parts = Self::default();
        let internal = fate(&entry.internal, family);
        let inside = fate(entry.inside(), family);
        let outside = fate(&entry.external, family);
        parts.addresses(entry, family, &names, internal, (inside, outside));
        if internal == Fate::Serve {
            let rules = Pick::of(entry, &entry.internal, family, &names).rules();
            parts.chains.push((names.service.clone(), rules));
        }
        if is_external(entry) && (inside == Fate::Serve || outside == Fate::Serve) {
            if inside == Fate::Serve && *entry.inside() != entry.internal {
                let rules = Pick::of(entry, entry.inside(), family, &names).rules();
                parts.chains.push((names.inside.clone(), rules));
            }
            let rules = external_rules(entry, family, &names, (inside, outside));
            parts.chains.push((names.external.clone(), rules));
        }
        if let Some(time) = entry.affinity {
            parts.endpoints(entry, family, &names, time);
        }
        parts.firewall(entry, family, names.firewall);
        parts
    }

    /// Adds a chain and a set of clients for each endpoint.
    fn endpoints(
        &mut self,
        entry: &ServicePortEntry,
        family: Family,
        names: &Names,
        time: Duration,
    ) {
        let backends = entry.lists().into_iter();
        let backends = backends.flat_map(|all| reachable(all, family));
        let endpoints: BTreeSet<SocketAddr> = backends.map(|b| b.address).collect();
        for endpoint in endpoints {
            let names = names.endpoint(endpoint);
            self.affinities.insert(names.affinity.clone());
            let affinity = (names.affinity, time);
            let rules = endpoint_rules(number(entry), family, endpoint, affinity);
            self.chains.push((names.chain, rules));
        }
    }

    /// Adds the elements that lead from the service's addresses to its chains, or to refusals.
    fn addresses(
        &mut self,
        entry: &ServicePortEntry,
        family: Family,
        names: &Names,
        internal: Fate,
        (inside, outside): (Fate, Fate),
    ) {
        let of_family = |ips: &[IpAddr]| -> Vec<Key> {
            let ips = ips.iter().filter(|ip| is_of(family, ip));
            ips.map(|ip| service_key(entry, *ip)).collect()
        };
        let mut external = of_family(&entry.external_ips);
        external.extend(of_family(&entry.load_balancer_ips));
        let places = (SERVICE_IPS, NO_ENDPOINT_SERVICES);
        for key in of_family(&entry.cluster_ips) {
            self.element(places, key, &names.service, (internal, internal));
        }
        for key in external {
            self.element(places, key, &names.external, (inside, outside));
        }
        let places = (SERVICE_NODEPORTS, NO_ENDPOINT_NODEPORTS);
        if let Some(port) = entry.node_port.filter(|_| has_family(entry, family)) {
            let key = Key::of(&[Field::Protocol(number(entry)), Field::Port(port)]);
            self.element(places, key, &names.external, (inside, outside));
        }
    }

    /// Adds a key to the map that serves clients, to the map that refuses clients, or to both maps. The treatment
    /// of the clients inside and outside decides which maps get the key.
    fn element(
        &mut self,
        (serve, refuse): (&'static str, &'static str),
        key: Key,
        chain: &str,
        (inside, outside): (Fate, Fate),
    ) {
        if inside == Fate::Serve || outside == Fate::Serve {
            let goto = Verdict::Goto(chain.to_owned());
            self.elements.push((serve, key.clone(), goto));
        }
        if inside != Fate::Serve || outside != Fate::Serve {
            self.elements.push((refuse, key, refusal(inside, outside)));
        }
    }

    /// Adds the chain that drops clients that may not use the load balancer's addresses. If source ranges are
    /// given, but no range of this family, all clients of this family are dropped (deviations: closed-family).
    fn firewall(&mut self, entry: &ServicePortEntry, family: Family, name: String) {
        let ips = entry.load_balancer_ips.iter();
        let ips: Vec<_> = ips.filter(|ip| is_of(family, ip)).collect();
        if entry.source_ranges.is_empty() || ips.is_empty() {
            return;
        }
        let ranges = entry.source_ranges.iter().map(|c| (c.network, c.prefix));
        let ranges: Vec<_> = ranges.filter(|(ip, _)| is_of(family, ip)).collect();
        let mut rule = Rule::new();
        if !ranges.is_empty() {
            let set = AnonymousSet::of_intervals(base::address(family), intervals(&ranges));
            rule = rule.not_in_set(&[Load::source(family)], set);
        }
        for ip in ips {
            let goto = Verdict::Goto(name.clone());
            self.elements
                .push((FIREWALL_IPS, service_key(entry, *ip), goto));
        }
        self.chains.push((name, vec![rule.verdict(Verdict::Drop)]));
    }
}

fn is_external(entry: &ServicePortEntry) -> bool {
    entry.node_port.is_some()
        || !entry.external_ips.is_empty()
        || !entry.load_balancer_ips.is_empty()
}

/// Tells whether the service belongs to this address family: it has a clusterIP or a reachable endpoint of the
/// family. Node ports need this check, because a node port has no address that would show the family.
fn has_family(entry: &ServicePortEntry, family: Family) -> bool {
    entry.cluster_ips.iter().any(|ip| is_of(family, ip))
        || entry
            .lists()
            .into_iter()
            .any(|backends| !reachable(backends, family).is_empty())
}

fn service_key(entry: &ServicePortEntry, ip: IpAddr) -> Key {
    Key::of(&[
        Field::Address(ip),
        Field::Protocol(number(entry)),
        Field::Port(entry.port),
    ])
}

pub(super) fn number(entry: &ServicePortEntry) -> u8 {
    match entry.name.protocol {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
    }
}

/// Returns the rules of the chain for external addresses and the node port. Traffic policies do not apply to
/// clients inside. With `externalTrafficPolicy: Local`, clients outside keep their source address.
fn external_rules(
    entry: &ServicePortEntry,
    family: Family,
    names: &Names,
    (inside, outside): (Fate, Fate),
) -> Vec<Rule> {
    // If clients inside get the same endpoints on these addresses as on the clusterIP, their packets go to the
    // chain of the clusterIP. So a client keeps its endpoint on all addresses of the service.
    let chain = match *entry.inside() == entry.internal {
        true => &names.service,
        false => &names.inside,
    };
    let to_inside = match inside {
        Fate::Serve => Verdict::Goto(chain.clone()),
        // The rule only returns. The map of refusals refuses the client later.
        Fate::Reject | Fate::Drop => Verdict::Return,
    };
    let mut rules = vec![
        from_pod(family).verdict(to_inside.clone()),
        // The node may use the service's own address as the source, and no endpoint can answer to that address.
        from_node().mark(MASQUERADE).verdict(to_inside),
    ];
    if outside == Fate::Serve {
        if !entry.external_local {
            rules.push(Rule::new().mark(MASQUERADE));
        }
        let (is_internal, is_inside) = (
            entry.external == entry.internal,
            entry.external == *entry.inside(),
        );
        match (is_internal, is_inside) {
            (true, _) => rules.push(Rule::new().goto(&names.service)),
            (_, true) => rules.push(Rule::new().goto(&names.inside)),
            _ => rules.extend(Pick::of(entry, &entry.external, family, names).rules()),
        }
    }
    rules
}

/// The choice of an endpoint for a connection.
struct Pick<'a> {
    family: Family,
    protocol: u8,
    backends: Vec<&'a Backend>,
    names: &'a Names,
    /// True if the service has session affinity.
    affinity: bool,
}

/// The register for the endpoint's address. The port follows directly after it.
const ENDPOINT: Register = Register(0);

impl<'a> Pick<'a> {
    fn of(
        entry: &'a ServicePortEntry,
        backends: &'a Backends,
        family: Family,
        names: &'a Names,
    ) -> Self {
        Self {
            family,
            protocol: number(entry),
            backends: reachable(backends, family),
            names,
            affinity: entry.affinity.is_some(),
        }
    }

    /// Returns the rules that choose an endpoint. With affinity, the first rules choose the endpoint that the
    /// client used before.
    fn rules(&self) -> Vec<Rule> {
        if !self.affinity {
            return vec![self.random()];
        }
        let kept = self.backends.iter().map(|backend| {
            let names = self.names.endpoint(backend.address);
            let client = [Load::source(self.family)];
            let rule = Rule::new().in_set(&client, names.affinity.as_str());
            rule.goto(&names.chain)
        });
        let mut rules: Vec<Rule> = kept.collect();
        rules.push(self.random_chain());
        rules
    }

    fn modulus(&self) -> [Load; 1] {
        let modulus = self.backends.len() as u32;
        [Load::Random { modulus }]
    }

    fn numbered(&self, value: impl Fn(&Backend) -> Value) -> Vec<Element> {
        let backends = (0..).zip(&self.backends);
        let element = |(number, backend): (u32, &&Backend)| {
            Element::mapping(Key::of(&[Field::Number(number)]), value(backend))
        };
        backends.map(element).collect()
    }

    fn random(&self) -> Rule {
        let elements = self.numbered(|backend| {
            let (ip, port) = (backend.address.ip(), backend.address.port());
            Value::Data(Key::of(&[Field::Address(ip), Field::Port(port)]))
        });
        let value = [base::address(self.family), Type::Port];
        let map = AnonymousSet::map(&[Type::Number], &value, elements);
        let rule = of_protocol(self.protocol).map(&self.modulus(), map, ENDPOINT);
        dnat(rule, self.family)
    }

    fn random_chain(&self) -> Rule {
        let elements = self.numbered(|backend| {
            let chain = self.names.endpoint(backend.address).chain;
            Value::Verdict(Verdict::Goto(chain))
        });
        let map = AnonymousSet::verdicts(&[Type::Number], elements);
        Rule::new().dispatch(&self.modulus(), map)
    }
}

fn of_protocol(protocol: u8) -> Rule {
    Rule::new().is(Load::Meta(Meta::TransportProtocol), &[protocol])
}

fn dnat(rule: Rule, family: Family) -> Rule {
    rule.dnat(family, ENDPOINT, Some(port_register(family)))
}

fn port_register(family: Family) -> Register {
    ENDPOINT.after(Load::destination(family).length())
}

/// Returns the rules of an endpoint's chain in a service with session affinity. The first rule records the
/// client for `time`. If the set of clients is full, only this rule fails, and the client is served without
/// affinity.
///
/// A single map from clients to endpoints would need only one lookup for all endpoints. But `nft list` 1.0.6
/// aborts on a rule whose lookup uses the result of another lookup.
fn endpoint_rules(
    protocol: u8,
    family: Family,
    endpoint: SocketAddr,
    (affinity, time): (String, Duration),
) -> Vec<Rule> {
    let client = Rule::new().load(&[Load::source(family)], Register(0));
    let keep = client.with(Expression::Change {
        set: affinity,
        change: Change::Update,
        key: Register(0),
        value: None,
        timeout: Some(time),
    });
    let rule = of_protocol(protocol)
        .with(Expression::Immediate {
            to: ENDPOINT,
            value: octets(endpoint.ip()),
        })
        .with(Expression::Immediate {
            to: port_register(family),
            value: endpoint.port().to_be_bytes().to_vec(),
        });
    vec![keep, dnat(rule, family)]
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}
