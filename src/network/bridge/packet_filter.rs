//! The packet filter's part in the network of pods: masquerade, ports of the node, and senders who are not who they say.
//!
//! Invariants: three tables of our own, each replaced whole in one transaction, and nothing of anybody else's. What they say
//! follows from the sandboxes alone.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Mutex;

use super::Attachment;
use crate::api::service::Protocol;
use crate::locks::Locked;
use crate::netfilter::{
    BaseChain, ChainState, ChainType, Ct, Element, Family, Fib, Field, Hook, Key, Load, Meta,
    Netfilter, NetfilterError, OnTable, Register, Rule, Set, Table, Transaction, Type, Value,
    Verdict, ct_state, ct_status,
};

/// Numbers of protocols in an Ethernet frame.
const ETHER_IPV4: [u8; 2] = [0x08, 0x00];
const ETHER_IPV6: [u8; 2] = [0x86, 0xdd];
const ETHER_ARP: [u8; 2] = [0x08, 0x06];

/// Before whatever else looks at a frame.
const FIRST: i32 = -300;

/// Names of our tables and of the bridge.
#[derive(Debug)]
pub(super) struct PacketFilter {
    tables: [Table; 3],
    bridge: String,
    /// What the kernel can.
    can: Abilities,
    /// Kept open: the kernel holds up who closes one until everybody has left the rules that were replaced, 10 ms, and a pod
    /// would wait for that.
    socket: Mutex<Option<Netfilter>>,
}

/// Which parts of the packet filter the kernel has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::network) struct Abilities {
    /// Translation of addresses.
    pub(in crate::network) nat: bool,
    /// The filter of frames.
    pub(in crate::network) frames: bool,
}

/// What the packet filter shows of changes by somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Since {
    /// Nothing has changed.
    Same,
    /// Other tables have changed, and perhaps what our chains look up.
    Others,
    /// Our chains are not as they were.
    Ours,
}

/// The tables as the kernel had them after a transaction of ours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Programmed {
    generation: u32,
    chains: Vec<ChainState>,
}

impl PacketFilter {
    pub(super) fn new(id: &str, bridge: &str, can: Abilities) -> Self {
        let name = format!("{id}-network");
        let table = |family| Table {
            family,
            name: name.clone(),
        };
        Self {
            tables: [Family::Ip, Family::Ip6, Family::Bridge].map(table),
            bridge: bridge.to_owned(),
            can,
            socket: Mutex::default(),
        }
    }

    /// After a failure the next one gets a socket of its own.
    fn ask<T>(
        &self,
        question: impl FnOnce(&mut Netfilter) -> Result<T, NetfilterError>,
    ) -> Result<T, NetfilterError> {
        let mut kept = self.socket.locked();
        let mut kernel = match kept.take() {
            Some(kernel) => kernel,
            None => Netfilter::open()?,
        };
        let answer = question(&mut kernel)?;
        *kept = Some(kernel);
        Ok(answer)
    }

    /// Makes the tables those of these sandboxes; of none, there are no tables.
    pub(super) fn program(
        &self,
        attachments: &[&Attachment],
    ) -> Result<Programmed, NetfilterError> {
        if self.can == Abilities::default() {
            return Ok(Programmed::default());
        }
        self.ask(|kernel| {
            kernel.commit(&self.transaction(attachments))?;
            self.look(kernel)
        })
    }

    /// What has become of them since.
    pub(super) fn look_since(&self, since: &Programmed) -> Result<Since, NetfilterError> {
        if self.can == Abilities::default() {
            return Ok(Since::Same);
        }
        self.ask(|kernel| {
            if kernel.generation()? == since.generation {
                return Ok(Since::Same);
            }
            Ok(match self.look(kernel)?.chains == since.chains {
                true => Since::Others,
                false => Since::Ours,
            })
        })
    }

    fn look(&self, kernel: &mut Netfilter) -> Result<Programmed, NetfilterError> {
        let mut chains = Vec::new();
        for table in self.known() {
            chains.extend(kernel.chains(table)?);
        }
        Ok(Programmed {
            generation: kernel.generation()?,
            chains,
        })
    }

    /// The tables of families that the kernel has.
    fn known(&self) -> impl Iterator<Item = &Table> {
        let has = |table: &&Table| match table.family {
            Family::Bridge => self.can.frames,
            _ => self.can.nat,
        };
        self.tables.iter().filter(has)
    }

    fn transaction(&self, attachments: &[&Attachment]) -> Transaction {
        let mut transaction = Transaction::new();
        for table in self.known() {
            let family = table.family;
            let is_used = attachments
                .iter()
                .any(|a| a.addresses.iter().any(|ip| is_of(*ip, family)));
            let mut on = transaction.on(table);
            match family {
                // Adding it first makes the removal succeed where it is not there.
                _ if !is_used => drop(on.add_table().delete_table()),
                Family::Bridge => frames(on.replace_table(), attachments),
                _ => self.addresses(on.replace_table(), family, attachments),
            }
        }
        transaction
    }

    /// Translation of addresses of one family.
    fn addresses(&self, table: &mut OnTable<'_>, family: Family, attachments: &[&Attachment]) {
        let kind = match family {
            Family::Ip6 => Type::Ipv6,
            _ => Type::Ipv4,
        };
        let pods = of_family(attachments, family);
        let one = |ip| Element::new(Key::of(&[Field::Address(ip)]));
        let twice = |ip| Element::new(Key::of(&[Field::Address(ip), Field::Address(ip)]));
        table
            .add_set(Set::new("pods", &[kind]))
            .add_elements("pods", pods.iter().map(|(_, ip)| one(*ip)).collect())
            .add_set(Set::new("to-itself", &[kind, kind]))
            .add_elements("to-itself", pods.iter().map(|(_, ip)| twice(*ip)).collect())
            .add_set(Set::map(
                "host-ports",
                &[Type::Protocol, Type::Port],
                &[kind, Type::Port],
            ))
            .add_set(Set::map(
                "host-ports-at",
                &[kind, Type::Protocol, Type::Port],
                &[kind, Type::Port],
            ));
        let mut given = BTreeSet::new();
        for (attachment, pod) in newest_first(&pods) {
            host_ports(table, attachment, pod, &mut given);
        }
        for (chain, hook) in [("prerouting", Hook::Prerouting), ("output", Hook::Output)] {
            table.add_chain(chain, Some(base(ChainType::Nat, hook, -100)));
            translate(table, chain, family);
        }
        let sends = [Load::source(family), Load::destination(family)];
        let elsewhere = crate::netfilter::interface(&self.bridge);
        keep_in(table, family, &elsewhere);
        keep_off(table, family, attachments);
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

/// What belongs to no connection is not translated, and would leave the node with the address of a pod.
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

/// What is for an address of the pods' range that no pod has would have the node look for a neighbour: who sends to all of them
/// would fill the one table of neighbours that the kernel has. IPv6 looks before it forwards, so this is right behind the
/// translation.
fn keep_off(table: &mut OnTable<'_>, family: Family, attachments: &[&Attachment]) {
    let ranges = attachments.iter().flat_map(|a| &a.gateways);
    let ranges = ranges.filter(|range| is_of(range.network, family));
    let ranges: BTreeSet<_> = ranges.map(|range| (range.network, range.prefix)).collect();
    let after_nat = base(ChainType::Filter, Hook::Prerouting, 0);
    table.add_chain("unknown", Some(after_nat));
    let destination = Load::destination(family);
    for (network, prefix) in ranges {
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

/// A sandbox that has taken the place of another one may be here before that is gone.
fn newest_first<'a>(pods: &[(&'a Attachment, IpAddr)]) -> Vec<(&'a Attachment, IpAddr)> {
    let mut pods = pods.to_vec();
    pods.sort_by_key(|(a, _)| std::cmp::Reverse(a.holder.start_time));
    pods
}

/// A port of the node that leads to a pod: its address if it has one, protocol and number.
type NodePort = (Option<IpAddr>, Protocol, u16);

/// A port that was given before is left out: with two meanings for one port the kernel refuses all of the table.
fn host_ports(
    table: &mut OnTable<'_>,
    attachment: &Attachment,
    pod: IpAddr,
    given: &mut BTreeSet<NodePort>,
) {
    for port in &attachment.ports {
        if !given.insert((port.host_ip, port.protocol, port.host_port)) {
            continue;
        }
        let to = Value::Data(Key::of(&[
            Field::Address(pod),
            Field::Port(port.container_port),
        ]));
        let number = match port.protocol {
            Protocol::Tcp => libc::IPPROTO_TCP,
            Protocol::Udp => libc::IPPROTO_UDP,
        };
        let from = [Field::Protocol(number as u8), Field::Port(port.host_port)];
        match port.host_ip {
            None => {
                let element = Element::mapping(Key::of(&from), to);
                table.add_elements("host-ports", vec![element]);
            }
            // The proxy serves loopback.
            Some(ip) if ip.is_ipv4() == pod.is_ipv4() && !ip.is_loopback() => {
                let from = Key::of(&[Field::Address(ip), from[0], from[1]]);
                table.add_elements("host-ports-at", vec![Element::mapping(from, to)]);
            }
            Some(_) => {}
        }
    }
}

/// Lets through from a pod's port only what the pod itself may say: its own hardware address with its own addresses.
fn frames(table: &mut OnTable<'_>, attachments: &[&Attachment]) {
    let port = |a: &Attachment| Element::new(Key::of(&[Field::Interface(&a.interface)]));
    table
        .add_set(Set::new("ports", &[Type::Interface]))
        .add_elements("ports", attachments.iter().map(|a| port(a)).collect())
        .add_set(Set::new("senders", &[Type::Interface, Type::Ether]))
        .add_set(Set::new(
            "ipv4",
            &[Type::Interface, Type::Ether, Type::Ipv4],
        ))
        .add_set(Set::new(
            "ipv6",
            &[Type::Interface, Type::Ether, Type::Ipv6],
        ));
    for a in attachments {
        let sender = [Field::Interface(&a.interface), Field::Ether(a.mac)];
        table.add_elements("senders", vec![Element::new(Key::of(&sender))]);
        let has_v6 = a.addresses.iter().any(IpAddr::is_ipv6);
        let by_itself = has_v6.then(|| link_local(a.mac).into());
        for ip in a.addresses.iter().copied().chain(by_itself) {
            let set = if ip.is_ipv4() { "ipv4" } else { "ipv6" };
            let key = Key::of(&[sender[0], sender[1], Field::Address(ip)]);
            table.add_elements(set, vec![Element::new(key)]);
        }
    }
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

fn of_family<'a>(attachments: &[&'a Attachment], family: Family) -> Vec<(&'a Attachment, IpAddr)> {
    let each = |a: &&'a Attachment| {
        let a = *a;
        a.addresses.iter().map(move |ip| (a, *ip))
    };
    let all = attachments.iter().flat_map(each);
    all.filter(|(_, ip)| is_of(*ip, family)).collect()
}

/// What the kernel can, tried in the namespace of the calling thread, and why it cannot the rest.
pub(in crate::network) fn abilities() -> (Abilities, Vec<NetfilterError>) {
    let sample = Attachment::sample();
    let mut errors = Vec::new();
    let mut can = |abilities: Abilities| {
        let filter = PacketFilter::new("check", "check", abilities);
        let programmed = filter.program(&[&sample]);
        programmed.map_err(|e| errors.push(e)).is_ok()
    };
    let nat = can(Abilities {
        nat: true,
        frames: false,
    });
    let frames = can(Abilities {
        nat: false,
        frames: true,
    });
    (Abilities { nat, frames }, errors)
}
