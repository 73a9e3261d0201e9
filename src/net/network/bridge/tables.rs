//! The content of the packet filter's tables for the sandboxes at the bridge: masquerade, ports of the node,
//! and a check of the senders' addresses. Pure.
//!
//! Invariants: there are three tables of podprobe, and no table of another program is touched. The content of
//! podprobe's tables follows from the sandboxes alone. The rules hardly ever change. The members of the sets
//! change with every sandbox.

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

/// The protocol numbers of IPv4, IPv6 and ARP in an Ethernet frame.
const ETHER_IPV4: [u8; 2] = [0x08, 0x00];
const ETHER_IPV6: [u8; 2] = [0x86, 0xdd];
const ETHER_ARP: [u8; 2] = [0x08, 0x06];

/// The priority of a chain that sees a frame before all other chains.
const FIRST: i32 = -300;

/// The tables that this kernel supports.
#[derive(Debug)]
pub(super) struct Tables {
    known: Vec<Table>,
    bridge: String,
}

/// The ranges from which the pods of one family have their addresses, as network and prefix length.
type Ranges = BTreeSet<(IpAddr, u8)>;

/// The elements of each set, by the name of the set.
type Members = BTreeMap<&'static str, Vec<Element>>;

/// A port of the node that leads to a pod: the host address or None if the pod names no host address, the
/// protocol, and the port number.
type NodePort = (Option<IpAddr>, Protocol, u16);

/// The address and port to which each port of the node leads.
type NodePorts = BTreeMap<NodePort, (IpAddr, u16)>;

impl Tables {
    pub(super) fn new(known: Vec<Table>, bridge: &str) -> Self {
        Self {
            known,
            bridge: bridge.to_owned(),
        }
    }

    /// Tells whether the kernel supports none of the tables.
    pub(super) fn are_none(&self) -> bool {
        self.known.is_empty()
    }

    pub(super) fn known(&self) -> &[Table] {
        &self.known
    }

    /// Returns a transaction that replaces the kernel's tables, whatever their content, by the tables for
    /// `attachments`. Without sandboxes the transaction only removes the tables.
    pub(super) fn whole(&self, attachments: &Attachments) -> Transaction {
        let mut transaction = Transaction::new();
        for table in &self.known {
            let family = table.family;
            let mut on = transaction.on(table);
            // The transaction adds the table before it removes the table. So the removal succeeds even if the
            // table did not exist.
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

    /// Returns the transaction from the tables for `from` to the tables for `to`. Returns None if anything except
    /// members of sets would change.
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
            // A pod may send to itself through a port of the node. Such a pod would answer itself directly, not
            // through the node, so its address is masqueraded.
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

/// Returns the ranges of the pods that a table of this family covers. Returns None if the table covers no pod. The
/// table of frames covers every pod, and its ranges are empty.
fn ranges(attachments: &Attachments, family: Family) -> Option<Ranges> {
    let mut addresses = attachments.values().flat_map(|a| &a.addresses);
    if !addresses.any(|ip| is_of(*ip, family)) {
        return None;
    }
    let mut found = Ranges::new();
    if family != Family::Bridge {
        let all = attachments.values().flat_map(|a| &a.gateways);
        // The ranges are inserted one by one. Almost all pods have the same range, and `collect` would first sort
        // the ranges of all pods.
        for range in all.filter(|range| is_of(range.network, family)) {
            found.insert((range.network, range.prefix));
        }
    }
    Some(found)
}

/// Returns the sandboxes in `of` that `others` does not have or has with other data.
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

/// Adds a sandbox's members to the sets of a table. Ports of the node are not added, because several
/// sandboxes may ask for the same port.
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

/// Returns the address and port to which each port of the node in `wanted` leads. Two sandboxes may ask for the
/// same port when a new sandbox starts before the old sandbox is gone. In this case the newest sandbox gets the
/// port, because the kernel would refuse a table with two targets for one port.
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
    // Ports on loopback are left out, because the role `proxy` serves these ports.
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

/// Adds the rules that drop a pod's packet if the packet belongs to no connection and would leave the node. The
/// kernel does not translate such a packet, so the packet would leave the node with the pod's address.
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

/// Adds the rules that drop packets for an unused address in the range of the pods. The node would search a
/// neighbour for each such address. A sender that tries all addresses would fill the kernel's only neighbour
/// table. For IPv6 the kernel searches before it forwards, so the chain of these rules comes directly after the
/// translation.
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

/// Adds the rules that check frames from the pods' ports. A frame passes only if the pod sends with its own
/// hardware address and one of its own IP addresses. All other frames from these ports are dropped.
fn check_senders(table: &mut OnTable<'_>) {
    let from = Load::Meta(Meta::InputName);
    let of = |protocol: [u8; 2]| Rule::new().is(Load::Meta(Meta::Protocol), &protocol);
    let is_known = |rule: Rule, mac, ip, set: &str| {
        rule.in_set(&[from, mac, ip], set).verdict(Verdict::Accept)
    };
    // An ARP packet is checked twice: the sender in the Ethernet frame, and the sender inside the packet.
    let arp = of(ETHER_ARP).in_set(&[from, Load::ETHER_SOURCE], "senders");
    // In a pod's namespace, the kernel itself sends some IPv6 packets without a source address: for the check for
    // duplicate addresses, and for reports of group membership. These packets pass, because no receiver remembers
    // a sender without an address.
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

/// Returns the link-local address that a pod's kernel gives its interface by itself (RFC 4291, EUI-64).
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
