//! Makes a transaction from a table of services: for the whole table, or for the differences from the current
//! table.
//!
//! Invariants: the operations are in the order in which the kernel needs them. Chains come before the rules
//! and elements that lead to them. Deleted elements come before new elements, because an address may move
//! from one service to another. The clients of an endpoint are forgotten only with the endpoint or the
//! service.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::base;
use super::names::{CLUSTER_IPS, HAIRPINS, MAPS, POD_CIDRS, SERVICE_CIDRS, SETS, is_of_service};
use super::service::{Parts, is_of, reachable};
use crate::api::service::Cidr;
use crate::net::netfilter::{
    ChainState, Element, Family, Field, Key, OnTable, Rule, Set, SetState, Table, Transaction,
    Value, Verdict, intervals,
};
use crate::net::services::table::{ServicePortEntry, ServiceTable};

/// Both address families. Each has its own table.
pub(super) const FAMILIES: [Family; 2] = [Family::Ip, Family::Ip6];

/// The largest number of clients that can keep one endpoint at the same time. Further clients are balanced without
/// affinity (deviations: affinity-limit). For a set of this size the kernel allocates 4,096 buckets (32 KB) when
/// the set is made.
const AFFINITIES: u32 = 3_072;

/// Tells whether `table` needs this address family. IPv4 is always needed. IPv6 is needed only if the table has an
/// IPv6 address or range, because a kernel may lack IPv6.
pub(super) fn uses(table: &ServiceTable, family: Family) -> bool {
    let cidrs = table.pod_cidrs.iter().chain(&table.service_cidrs);
    let services = table.services.iter().flat_map(|entry| {
        [
            &entry.cluster_ips,
            &entry.external_ips,
            &entry.load_balancer_ips,
        ]
    });
    family == Family::Ip
        || cidrs.map(|c| c.network).any(|ip| is_of(family, &ip))
        || services.flatten().any(|ip| is_of(family, ip))
}

/// Makes a transaction that programs everything into a new table. The new table replaces the old one.
pub(super) fn from_nothing(next: &ServiceTable, table: &Table) -> Transaction {
    let mut transaction = Transaction::new();
    let on = &mut transaction.on(table);
    on.replace_table();
    fill(on, next, table.family);
    transaction
}

/// Makes a transaction that programs everything into an existing table, whose session affinities stay.
/// Returns the transaction and the chains that are now unused.
pub(super) fn into_table(
    next: &ServiceTable,
    table: &Table,
    chains: &[ChainState],
    sets: &[SetState],
) -> (Transaction, Vec<String>) {
    let mut transaction = Transaction::new();
    let on = &mut transaction.on(table);
    on.add_table().flush_table();
    let wanted: BTreeSet<String> = all_parts(next, table.family)
        .flat_map(|parts| parts.affinities)
        .collect();
    for set in sets.iter().filter(|set| !set.anonymous) {
        let ours = MAPS.contains(&set.name.as_str()) || SETS.contains(&set.name.as_str());
        match (ours, wanted.contains(&set.name)) {
            (true, _) => on.flush_set(set.name.as_str()),
            (_, true) => on,
            (_, false) => on.delete_set(set.name.as_str()),
        };
    }
    fill(on, next, table.family);
    let used: BTreeSet<&str> = transaction.chain_uses(table).into_keys().collect();
    let left = chains.iter().map(|chain| &chain.name);
    let left = left.filter(|name| !used.contains(name.as_str()));
    let left = left.cloned().collect();
    (transaction, left)
}

fn all_parts(table: &ServiceTable, family: Family) -> impl Iterator<Item = Parts> {
    table.services.iter().map(move |e| Parts::of(e, family))
}

fn fill(on: &mut OnTable<'_>, next: &ServiceTable, family: Family) {
    base::add(on, family);
    let mut changes = Changes::default();
    all_parts(next, family).for_each(|parts| changes.add(parts));
    changes.into_operations(on);
    on.add_elements(POD_CIDRS, cidr_elements(&next.pod_cidrs, family));
    on.add_elements(SERVICE_CIDRS, cidr_elements(&next.service_cidrs, family));
    let all = |of: Of| -> BTreeSet<IpAddr> {
        let services = next.services.iter();
        services.flat_map(|e| of(e, family)).collect()
    };
    on.add_elements(CLUSTER_IPS, address_elements(&all(cluster_ips)));
    on.add_elements(HAIRPINS, hairpin_elements(&all(endpoint_ips)));
}

/// Makes a transaction of the differences between two tables of services, for the kernel's table of one address
/// family. Returns the transaction and the chains that are now unused.
pub(super) fn differences(
    before: &ServiceTable,
    next: &ServiceTable,
    table: &Table,
) -> (Transaction, Vec<String>) {
    let family = table.family;
    let mut transaction = Transaction::new();
    let on = &mut transaction.on(table);
    let mut changes = Changes::default();
    let (mut old_entries, mut new_entries) = (Vec::new(), Vec::new());
    for (old, new) in changed_services(before, next) {
        let parts = |entry: Option<&ServicePortEntry>| {
            entry.map(|e| Parts::of(e, family)).unwrap_or_default()
        };
        changes.replace(parts(old), parts(new));
        old_entries.extend(old);
        new_entries.extend(new);
    }
    let left = changes.left.clone();
    changes.into_operations(on);
    cidrs(on, POD_CIDRS, (&before.pod_cidrs, &next.pod_cidrs), family);
    let service_cidrs = (&before.service_cidrs[..], &next.service_cidrs[..]);
    cidrs(on, SERVICE_CIDRS, service_cidrs, family);
    let changed = |of: Of| {
        let gone = missing(of, &old_entries, &next.services, family);
        (gone, missing(of, &new_entries, &before.services, family))
    };
    let (gone, new) = changed(cluster_ips);
    on.delete_elements(CLUSTER_IPS, address_elements(&gone));
    on.add_elements(CLUSTER_IPS, address_elements(&new));
    let (gone, new) = changed(endpoint_ips);
    on.delete_elements(HAIRPINS, hairpin_elements(&gone));
    on.add_elements(HAIRPINS, hairpin_elements(&new));
    (transaction, left)
}

/// A function that returns the addresses of a service port in an address family.
type Of = fn(&ServicePortEntry, Family) -> Vec<IpAddr>;

/// Returns the addresses of `entries` that none of `others` has.
fn missing(
    of: Of,
    entries: &[&ServicePortEntry],
    others: &[ServicePortEntry],
    family: Family,
) -> BTreeSet<IpAddr> {
    let mut ips: BTreeSet<IpAddr> = entries.iter().flat_map(|e| of(e, family)).collect();
    for other in others {
        if ips.is_empty() {
            break;
        }
        for ip in of(other, family) {
            ips.remove(&ip);
        }
    }
    ips
}

/// Returns the services that are in one table only, or differ between the tables. Each service is a pair of its
/// old entry and its new entry. Both tables must be sorted by name.
pub(super) fn changed_services<'a>(
    before: &'a ServiceTable,
    next: &'a ServiceTable,
) -> impl Iterator<Item = (Option<&'a ServicePortEntry>, Option<&'a ServicePortEntry>)> {
    let mut old = before.services.iter().peekable();
    let mut new = next.services.iter().peekable();
    let both = std::iter::from_fn(move || match (old.peek(), new.peek()) {
        (None, None) => None,
        (Some(o), Some(n)) => match o.name.cmp(&n.name) {
            Ordering::Less => Some((old.next(), None)),
            Ordering::Equal => Some((old.next(), new.next())),
            Ordering::Greater => Some((None, new.next())),
        },
        (_, _) => Some((old.next(), new.next())),
    });
    both.filter(|(old, new)| old != new)
}

/// The changes of services, in the order in which the kernel must make them.
#[derive(Debug, Default)]
struct Changes {
    new_chains: Vec<String>,
    new_affinities: Vec<String>,
    /// The new and the changed chains, with their rules.
    rules: Vec<(String, Vec<Rule>)>,
    /// The chains whose old rules must be removed first.
    flushed: Vec<String>,
    gone_affinities: Vec<String>,
    /// The chains to which no rule or element leads any more.
    left: Vec<String>,
    gone_elements: BTreeMap<&'static str, Vec<Element>>,
    new_elements: BTreeMap<&'static str, Vec<Element>>,
}

impl Changes {
    /// Adds the parts of a new service.
    fn add(&mut self, parts: Parts) {
        self.replace(Parts::default(), parts);
    }

    fn replace(&mut self, old: Parts, new: Parts) {
        let (before, after) = (&old.affinities, &new.affinities);
        self.new_affinities
            .extend(after.difference(before).cloned());
        self.gone_affinities
            .extend(before.difference(after).cloned());
        let mut chains: BTreeMap<String, Vec<Rule>> = old.chains.into_iter().collect();
        for (name, rules) in new.chains {
            match chains.remove(&name) {
                Some(before) if before == rules => continue,
                Some(_) => self.flushed.push(name.clone()),
                None => self.new_chains.push(name.clone()),
            }
            self.rules.push((name, rules));
        }
        self.flushed.extend(chains.keys().cloned());
        self.left.extend(chains.into_keys());
        let before: BTreeSet<_> = old.elements.into_iter().collect();
        let after: BTreeSet<_> = new.elements.into_iter().collect();
        for (map, key, verdict) in before.difference(&after) {
            let gone = self.gone_elements.entry(map).or_default();
            gone.push(mapping(key, verdict));
        }
        for (map, key, verdict) in after.difference(&before) {
            let new = self.new_elements.entry(map).or_default();
            new.push(mapping(key, verdict));
        }
    }

    fn into_operations(self, on: &mut OnTable<'_>) {
        for name in self.new_chains {
            // A chain with this name may still exist without rules, because unused chains are kept for a
            // while.
            on.add_chain(name, None);
        }
        let address = base::address(on.family());
        for name in self.new_affinities {
            on.add_set(Set::new(name, &[address]).dynamic(AFFINITIES, None));
        }
        for name in self.flushed {
            on.flush_chain(name);
        }
        for (name, rules) in self.rules {
            for rule in rules {
                on.add_rule(name.as_str(), rule);
            }
        }
        for (map, elements) in self.gone_elements {
            on.delete_elements(map, elements);
        }
        for (map, elements) in self.new_elements {
            on.add_elements(map, elements);
        }
        for name in self.gone_affinities {
            on.delete_set(name);
        }
    }
}

fn mapping(key: &Key, verdict: &Verdict) -> Element {
    Element::mapping(key.clone(), Value::Verdict(verdict.clone()))
}

/// Replaces all ranges in a set if they differ. A single range cannot be removed, because the kernel merges
/// ranges that touch.
fn cidrs(on: &mut OnTable<'_>, set: &str, (before, next): (&[Cidr], &[Cidr]), family: Family) {
    let (before, next) = (cidr_elements(before, family), cidr_elements(next, family));
    if before != next {
        on.flush_set(set).add_elements(set, next);
    }
}

fn cidr_elements(cidrs: &[Cidr], family: Family) -> Vec<Element> {
    let cidrs = cidrs.iter().map(|c| (c.network, c.prefix));
    let cidrs: Vec<_> = cidrs.filter(|(ip, _)| is_of(family, ip)).collect();
    intervals(&cidrs)
}

fn cluster_ips(entry: &ServicePortEntry, family: Family) -> Vec<IpAddr> {
    let ips = entry.cluster_ips.iter().copied();
    ips.filter(|ip| is_of(family, ip)).collect()
}

fn endpoint_ips(entry: &ServicePortEntry, family: Family) -> Vec<IpAddr> {
    let mut lists = entry.lists().to_vec();
    lists.dedup();
    let backends = lists.into_iter().flat_map(|list| reachable(list, family));
    backends.map(|b| b.address.ip()).collect()
}

fn address_elements<'a>(ips: impl IntoIterator<Item = &'a IpAddr>) -> Vec<Element> {
    let element = |ip: &IpAddr| Element::new(Key::of(&[Field::Address(*ip)]));
    ips.into_iter().map(element).collect()
}

/// Returns the elements of the set of packets from an endpoint to itself.
fn hairpin_elements<'a>(ips: impl IntoIterator<Item = &'a IpAddr>) -> Vec<Element> {
    let element = |ip: &IpAddr| {
        let ip = Field::Address(*ip);
        Element::new(Key::of(&[ip, ip]))
    };
    ips.into_iter().map(element).collect()
}

/// Returns the number of uses that each chain has if nobody else has changed anything. Unused chains are not
/// included.
pub(super) fn chain_uses(table: &ServiceTable, of: &Table) -> BTreeMap<String, u32> {
    let transaction = from_nothing(table, of);
    let uses = transaction.chain_uses(of).into_iter();
    uses.map(|(name, uses)| (name.to_owned(), uses)).collect()
}

/// Tells whether the kernel's chains are as they were programmed. Each expected chain must exist with the expected
/// number of uses. All other chains must be unused chains in `left`.
pub(super) fn is_intact(
    expected: &BTreeMap<String, u32>,
    left: &BTreeSet<String>,
    found: &[ChainState],
) -> bool {
    let (mut same, mut others) = (0, 0);
    for chain in found {
        match expected.get(&chain.name) {
            Some(uses) if *uses == chain.uses => same += 1,
            Some(_) => return false,
            None => {
                others += usize::from(!is_of_service(&chain.name) || !left.contains(&chain.name))
            }
        }
    }
    same == expected.len() && others == 0
}
