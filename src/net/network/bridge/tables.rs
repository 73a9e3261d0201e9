//! What the packet filter's tables say of the sandboxes at the bridge: masquerade, ports of the node, and senders who are not who
//! they say. Pure.
//!
//! Invariants: three tables of our own and nothing of anybody else's. What they say follows from the sandboxes alone: rules that
//! hardly ever change, and sets whose members are the sandboxes'.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use super::attachment::{Attachment, Attachments};
use crate::api::service::Protocol;
use crate::net::netfilter::{
    BaseChain, ChainType, Ct, Element, Family, Fib, Field, Hook, Key, Load, Meta, OnTable,
    Register, Rule, Set, Table, Transaction, Type, Value, Verdict, ct_state, ct_status,
};
use crate::net::network::PortMapping;

/// Numbers of protocols in an Ethernet frame.
const ETHER_IPV4: [u8; 2] = [0x08, 0x00];
const ETHER_IPV6: [u8; 2] = [0x86, 0xdd];
const ETHER_ARP: [u8; 2] = [0x08, 0x06];

/// The priority of a chain before whatever else looks at a frame.
const FIRST: i32 = -300;

/// The tables that the kernel can have.
#[derive(Debug)]
pub(super) struct Tables {
    known: Vec<Table>,
    bridge: String,
}

/// Ranges that pods of one family have their addresses from.
type Ranges = BTreeSet<(IpAddr, u8)>;

/// Elements, by the set that they are in.
type Members = BTreeMap<&'static str, Vec<Element>>;

/// A port of the node that leads to a pod: its address if it has one, protocol and number.
type NodePort = (Option<IpAddr>, Protocol, u16);

/// The address and port that each port of the node leads to.
type NodePorts = BTreeMap<NodePort, (IpAddr, u16)>;

impl Tables {
    pub(super) fn new(known: Vec<Table>, bridge: &str) -> Self {
        Self {
            known,
            bridge: bridge.to_owned(),
        }
    }

    /// True if the kernel can have none of the tables.
    pub(super) fn are_none(&self) -> bool {
        self.known.is_empty()
    }

    pub(super) fn known(&self) -> &[Table] {
        &self.known
    }

    /// Makes the tables those of these sandboxes, whatever they were; of none, there are no tables.
    pub(super) fn whole(&self, attachments: &Attachments) -> Transaction {
        let mut transaction = Transaction::new();
        for table in &self.known {
            let family = table.family;
            let mut on = transaction.on(table);
            // Adding it first makes the removal succeed where it is not there.
            let Some(ranges) = ranges(attachments, family) else {
                on.add_table().delete_table();
                continue;
            };
            on.replace_table();
            match family {
                Family::Bridge => add_sets_of_frames(&mut on),
                _ => add_sets_of_addresses(&mut on, family),
            }
            let mut members = Members::new();
            for attachment in attachments.values() {
                add_members(attachment, family, &mut members);
            }
            for (port, to) in node_ports(attachments, family, |_| true) {
                add_node_port(port, to, &mut members);
            }
            for (set, elements) in members {
                on.add_elements(set, elements);
            }
            match family {
                Family::Bridge => check_senders(&mut on),
                _ => self.add_rules_of_addresses(&mut on, family, &ranges),
            }
        }
        transaction
    }

    /// Makes the tables of these sandboxes those of others. None where more than members of sets changes.
    pub(super) fn difference(&self, from: &Attachments, to: &Attachments) -> Option<Transaction> {
        let gone = others(from, to);
        let new = others(to, from);
        let ports = gone.iter().chain(&new).flat_map(|a| &a.ports);
        let touched: BTreeSet<NodePort> = ports.map(node_port).collect();
        let is_touched = |port: &NodePort| touched.contains(port);
        let mut transaction = Transaction::new();
        for table in &self.known {
            let family = table.family;
            if ranges(from, family) != ranges(to, family) {
                return None;
            }
            let (mut removed, mut added) = (Members::new(), Members::new());
            for attachment in &gone {
                add_members(attachment, family, &mut removed);
            }
            for attachment in &new {
                add_members(attachment, family, &mut added);
            }
            let led = node_ports(from, family, is_touched);
            let leads = node_ports(to, family, is_touched);
            for (&port, &to) in led.iter().filter(|(p, to)| leads.get(p) != Some(to)) {
                add_node_port(port, to, &mut removed);
            }
            for (&port, &to) in leads.iter().filter(|(p, to)| led.get(p) != Some(to)) {
                add_node_port(port, to, &mut added);
            }
            let mut on = transaction.on(table);
            for (set, elements) in removed {
                on.delete_elements(set, elements);
            }
            for (set, elements) in added {
                on.add_elements(set, elements);
            }
        }
        Some(transaction)
    }

    fn add_rules_of_addresses(&self, table: &mut OnTable<'_>, family: Family, ranges: &Ranges) {
        for (chain, hook) in [("prerouting", Hook::Prerouting), ("output", Hook::Output)] {
            table.add_chain(chain, Some(base(ChainType::Nat, hook, -100)));
            translate(table, chain, family);
        }
        let sends = [Load::source(family), Load::destination(family)];
        let elsewhere = crate::net::netfilter::interface(&self.bridge);
        keep_in(table, family, &elsewhere);
        keep_off(table, family, ranges);
        table
            .add_chain(
                "postrouting",
                Some(base(ChainType::Nat, Hook::Postrouting, 100)),
            )
            // A pod that reaches itself through the node would answer itself directly.
            .add_rule(
                "postrouting",
                Rule::new()
                    .any_bit(Ct::Status, ct_status::DNAT)
                    .in_set(&sends, "to-itself")
                    .masquerade(),
            )
            .add_rule(
                "postrouting",
                Rule::new()
                    .in_set(&[Load::source(family)], "pods")
                    .is_not(Load::Meta(Meta::OutputName), &elsewhere)
                    .masquerade(),
            );
    }
}

/// The ranges of the pods that a table is about; None where there is no such pod. Frames are of every pod and of no range.
fn ranges(attachments: &Attachments, family: Family) -> Option<Ranges> {
    let mut addresses = attachments.values().flat_map(|a| &a.addresses);
    if !addresses.any(|ip| is_of(*ip, family)) {
        return None;
    }
    let mut found = Ranges::new();
    if family != Family::Bridge {
        let all = attachments.values().flat_map(|a| &a.gateways);
        // One by one: almost all say the same, and collecting would sort them first.
        for range in all.filter(|range| is_of(range.network, family)) {
            found.insert((range.network, range.prefix));
        }
    }
    Some(found)
}

/// Returns the sandboxes of `of` that are not among `others` or are different there.
fn others<'a>(of: &'a Attachments, others: &Attachments) -> Vec<&'a Attachment> {
    let mut others = others.iter().peekable();
    let is_other = |one: &(&String, &Arc<Attachment>)| {
        while others.next_if(|(id, _)| *id < one.0).is_some() {}
        others.peek() != Some(one)
    };
    of.iter().filter(is_other).map(|(_, a)| &**a).collect()
}

fn add_sets_of_addresses(table: &mut OnTable<'_>, family: Family) {
    let kind = match family {
        Family::Ip6 => Type::Ipv6,
        _ => Type::Ipv4,
    };
    let port = [Type::Protocol, Type::Port];
    let at = [kind, port[0], port[1]];
    table
        .add_set(Set::new("pods", &[kind]))
        .add_set(Set::new("to-itself", &[kind, kind]))
        .add_set(Set::map("host-ports", &port, &[kind, Type::Port]))
        .add_set(Set::map("host-ports-at", &at, &[kind, Type::Port]));
}

fn add_sets_of_frames(table: &mut OnTable<'_>) {
    let sender = [Type::Interface, Type::Ether];
    table
        .add_set(Set::new("ports", &[Type::Interface]))
        .add_set(Set::new("senders", &sender))
        .add_set(Set::new("ipv4", &[sender[0], sender[1], Type::Ipv4]))
        .add_set(Set::new("ipv6", &[sender[0], sender[1], Type::Ipv6]));
}

/// Adds the members that a sandbox has in the sets of a table. Ports of the node are left out, because several sandboxes may
/// ask for one.
fn add_members(attachment: &Attachment, family: Family, to: &mut Members) {
    let mut add = |set, key: &[Field<'_>]| {
        let members: &mut Vec<Element> = to.entry(set).or_default();
        members.push(Element::new(Key::of(key)));
    };
    if family != Family::Bridge {
        for ip in attachment.addresses.iter().filter(|ip| is_of(**ip, family)) {
            add("pods", &[Field::Address(*ip)]);
            add("to-itself", &[Field::Address(*ip), Field::Address(*ip)]);
        }
        return;
    }
    let interface = Field::Interface(&attachment.interface);
    let sender = [interface, Field::Ether(attachment.mac)];
    add("ports", &[interface]);
    add("senders", &sender);
    let has_v6 = attachment.addresses.iter().any(IpAddr::is_ipv6);
    let by_itself = has_v6.then(|| link_local(attachment.mac).into());
    for ip in attachment.addresses.iter().copied().chain(by_itself) {
        let set = if ip.is_ipv4() { "ipv4" } else { "ipv6" };
        add(set, &[sender[0], sender[1], Field::Address(ip)]);
    }
}

fn node_port(port: &PortMapping) -> NodePort {
    (port.host_ip, port.protocol, port.host_port)
}

/// Returns where the `wanted` ports of the node lead to. A sandbox that has taken the place of another one may be here
/// before the other one is gone: the newest gets a port. (With two meanings for one port the kernel would refuse all of
/// the table.)
fn node_ports(
    attachments: &Attachments,
    family: Family,
    wanted: impl Fn(&NodePort) -> bool,
) -> NodePorts {
    let mut found = NodePorts::new();
    if family == Family::Bridge {
        return found;
    }
    let asks = |a: &&Attachment| a.ports.iter().any(|p| wanted(&node_port(p)));
    let mut asking: Vec<&Attachment> = attachments.values().map(|a| &**a).filter(asks).collect();
    asking.sort_by_key(|a| std::cmp::Reverse(a.holder.start_time));
    for attachment in asking {
        for pod in attachment.addresses.iter().filter(|ip| is_of(**ip, family)) {
            for port in attachment.ports.iter().filter(|p| wanted(&node_port(p))) {
                let to = (*pod, port.container_port);
                found.entry(node_port(port)).or_insert(to);
            }
        }
    }
    // The proxy serves loopback.
    let is_ours = |ip: &IpAddr| is_of(*ip, family) && !ip.is_loopback();
    found.retain(|(ip, ..), _| ip.as_ref().is_none_or(is_ours));
    found
}

fn add_node_port((ip, protocol, port): NodePort, to: (IpAddr, u16), members: &mut Members) {
    let number = match protocol {
        Protocol::Tcp => libc::IPPROTO_TCP,
        Protocol::Udp => libc::IPPROTO_UDP,
    };
    let from = [Field::Protocol(number as u8), Field::Port(port)];
    let (set, key) = match ip {
        None => ("host-ports", Key::of(&from)),
        Some(ip) => {
            let at = [Field::Address(ip), from[0], from[1]];
            ("host-ports-at", Key::of(&at))
        }
    };
    let to = Value::Data(Key::of(&[Field::Address(to.0), Field::Port(to.1)]));
    let members = members.entry(set).or_default();
    members.push(Element::mapping(key, to));
}

/// Drops packets of pods that belong to no connection and would leave the node. The kernel does not translate such a
/// packet, so it would leave with the address of a pod.
fn keep_in(table: &mut OnTable<'_>, family: Family, bridge: &[u8]) {
    table
        .add_chain("forward", Some(base(ChainType::Filter, Hook::Forward, 0)))
        .add_rule(
            "forward",
            Rule::new()
                .any_bit(Ct::State, ct_state::INVALID)
                .in_set(&[Load::source(family)], "pods")
                .is_not(Load::Meta(Meta::OutputName), bridge)
                .verdict(Verdict::Drop),
        );
}

/// Drops packets for an address of the pods' range that no pod has. For each such address the node would look for a
/// neighbour. A sender to all of them would fill the one table of neighbours that the kernel has. IPv6 looks before it
/// forwards, so this chain is right behind the translation.
fn keep_off(table: &mut OnTable<'_>, family: Family, ranges: &Ranges) {
    let after_nat = base(ChainType::Filter, Hook::Prerouting, 0);
    table.add_chain("unknown", Some(after_nat));
    let destination = Load::destination(family);
    for &(network, prefix) in ranges {
        let to_range = match network {
            IpAddr::V4(ip) => Rule::new().within(destination, &ip.octets(), prefix),
            IpAddr::V6(ip) => Rule::new().within(destination, &ip.octets(), prefix),
        };
        let elsewhere = to_range
            .is(Load::Fib(Fib::DestinationType), &Fib::UNICAST.to_ne_bytes())
            .not_in_set(&[destination], "pods");
        table.add_rule("unknown", elsewhere.verdict(Verdict::Drop));
    }
}

fn translate(table: &mut OnTable<'_>, chain: &str, family: Family) {
    let port = [Load::Meta(Meta::TransportProtocol), Load::DESTINATION_PORT];
    let at = [Load::destination(family), port[0], port[1]];
    let words = if family == Family::Ip6 { 4 } else { 1 };
    let to = |rule: Rule| rule.dnat(family, Register(0), Some(Register(words)));
    let of_the_node = Rule::new().is(Load::Fib(Fib::DestinationType), &Fib::LOCAL.to_ne_bytes());
    // A packet to loopback cannot leave the node.
    let not_loopback = match family {
        Family::Ip6 => of_the_node.is_not(Load::destination(family), &loopback_v6()),
        _ => of_the_node.outside(Load::destination(family), &[127, 0, 0, 0], 8),
    };
    table
        .add_rule(
            chain,
            to(Rule::new().map(&at, "host-ports-at", Register(0))),
        )
        .add_rule(
            chain,
            to(not_loopback.map(&port, "host-ports", Register(0))),
        );
}

fn loopback_v6() -> [u8; 16] {
    Ipv6Addr::LOCALHOST.octets()
}

/// Lets through from a pod's port only what the pod itself may say: its own hardware address with its own addresses.
fn check_senders(table: &mut OnTable<'_>) {
    let from = Load::Meta(Meta::InputName);
    let of = |protocol: [u8; 2]| Rule::new().is(Load::Meta(Meta::Protocol), &protocol);
    let is_known = |rule: Rule, mac, ip, set: &str| {
        rule.in_set(&[from, mac, ip], set).verdict(Verdict::Accept)
    };
    // Both what the packet says and who sends it.
    let arp = of(ETHER_ARP).in_set(&[from, Load::ETHER_SOURCE], "senders");
    // What a pod's kernel asks before it uses an address, and which groups it listens to: nobody keeps a sender without one.
    let by_itself = of(ETHER_IPV6).in_set(&[from, Load::ETHER_SOURCE], "senders");
    let no_address = by_itself.is(Load::source(Family::Ip6), &[0; 16]);
    table
        .add_chain(
            "prerouting",
            Some(base(ChainType::Filter, Hook::Prerouting, FIRST)),
        )
        .add_rule(
            "prerouting",
            Rule::new()
                .not_in_set(&[from], "ports")
                .verdict(Verdict::Accept),
        )
        .add_rule(
            "prerouting",
            is_known(
                of(ETHER_IPV4),
                Load::ETHER_SOURCE,
                Load::source(Family::Ip),
                "ipv4",
            ),
        )
        .add_rule(
            "prerouting",
            is_known(arp, Load::ARP_ETHER_SOURCE, Load::ARP_SOURCE, "ipv4"),
        )
        .add_rule(
            "prerouting",
            is_known(
                of(ETHER_IPV6),
                Load::ETHER_SOURCE,
                Load::source(Family::Ip6),
                "ipv6",
            ),
        )
        .add_rule("prerouting", no_address.verdict(Verdict::Accept))
        .add_rule("prerouting", Rule::new().verdict(Verdict::Drop));
}

/// The one address that a pod's kernel gives its interface by itself (RFC 4291, EUI-64).
fn link_local(mac: [u8; 6]) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac;
    let [upper, lower] = [[a ^ 2, b, c, 0xff], [0xfe, d, e, f]].map(u32::from_be_bytes);
    let prefix = 0xfe80_u128 << 112;
    Ipv6Addr::from(prefix | u128::from(upper) << 32 | u128::from(lower))
}

fn base(kind: ChainType, hook: Hook, priority: i32) -> BaseChain {
    BaseChain {
        kind,
        hook,
        priority,
        drop: false,
    }
}

fn is_of(ip: IpAddr, family: Family) -> bool {
    match family {
        Family::Ip => ip.is_ipv4(),
        Family::Ip6 => ip.is_ipv6(),
        _ => true,
    }
}
