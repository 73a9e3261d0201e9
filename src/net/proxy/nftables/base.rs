//! The part of the tables that does not depend on services: the chains that the kernel calls, and the maps and
//! sets that these chains look up. The cost of these lookups is the same for one service and for a thousand.
//!
//! There are two kinds of clients (nftables 2). Clients in pods ([`POD_CIDRS`]) and on the node itself are inside.
//! All other clients are outside.

use super::names::{
    CLUSTER_IPS, CLUSTER_IPS_CHECK, ENDPOINTS_CHECK, FIREWALL_CHECK, FIREWALL_IPS, HAIRPINS,
    NO_ENDPOINT_NODEPORTS, NO_ENDPOINT_SERVICES, NODEPORTS_CHECK, POD_CIDRS, REJECT, SERVICE_CIDRS,
    SERVICE_IPS, SERVICE_NODEPORTS, SERVICES,
};
use crate::net::netfilter::{
    BaseChain, ChainType, Ct, Family, Fib, Hook, Load, Meta, OnTable, Reject, Rule, Set, Type,
    Verdict, ct_state, ct_status,
};

/// The mark of a packet whose source must be translated. kube-proxy uses the same mark. The mark is cleared before
/// the packet leaves the node.
pub(super) const MASQUERADE: u32 = 0x4000;

/// The treatment of the clients of one kind, inside or outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Serve,
    Reject,
    Drop,
}

impl Fate {
    /// Returns the verdict for this treatment in a chain that refuses clients.
    pub(super) fn verdict(self) -> Verdict {
        match self {
            Self::Serve => Verdict::Return,
            Self::Reject => Verdict::Goto(REJECT.into()),
            Self::Drop => Verdict::Drop,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Serve => "serve",
            Self::Reject => "reject",
            Self::Drop => "drop",
        }
    }
}

/// Returns the verdict on packets to an external address: `inside` for clients on the node and in pods, `outside`
/// for all other clients.
pub(super) fn refusal(inside: Fate, outside: Fate) -> Verdict {
    match inside == outside {
        true => inside.verdict(),
        false => Verdict::Goto(refusal_chain(inside, outside)),
    }
}

fn refusal_chain(inside: Fate, outside: Fate) -> String {
    format!("inside-{}-outside-{}", inside.word(), outside.word())
}

/// A base chain: its name, type, hook and priority, and the chains that it jumps to (nftables 1).
type Place = (&'static str, ChainType, Hook, i32, &'static [&'static str]);

/// The base chains. Most filters must see addresses before the translation, so the priority of these filters is
/// below -100. The last filter runs after the translation. A clusterIP that this filter still sees was not
/// translated.
///
/// A change can overtake a packet in the chain `services`: the kernel chooses between old and new rules when the
/// packet enters a base chain, but between old and new elements at each lookup. Old rules look up their
/// endpoint in a map that is gone, and a new element leads to a chain that has no rules yet. Such a packet finds no
/// endpoint, and its whole connection would stay untranslated. So a second base chain looks again, with the new
/// rules. The kernel skips this chain after a translation.
const BASE_CHAINS: [Place; 10] = {
    use ChainType::{Filter, Nat};
    use Hook::{Forward, Input, Output, Postrouting, Prerouting};
    [
        (
            "filter-prerouting",
            Filter,
            Prerouting,
            -110,
            &[FIREWALL_CHECK],
        ),
        (
            "filter-input",
            Filter,
            Input,
            -110,
            &[ENDPOINTS_CHECK, NODEPORTS_CHECK],
        ),
        (
            "filter-forward",
            Filter,
            Forward,
            -110,
            &[ENDPOINTS_CHECK, CLUSTER_IPS_CHECK],
        ),
        (
            "filter-output",
            Filter,
            Output,
            -110,
            &[ENDPOINTS_CHECK, NODEPORTS_CHECK, FIREWALL_CHECK],
        ),
        (
            "filter-output-post-dnat",
            Filter,
            Output,
            -90,
            &[CLUSTER_IPS_CHECK],
        ),
        ("nat-prerouting", Nat, Prerouting, -100, &[SERVICES]),
        ("nat-output", Nat, Output, -100, &[SERVICES]),
        ("nat-prerouting-again", Nat, Prerouting, -99, &[SERVICES]),
        ("nat-output-again", Nat, Output, -99, &[SERVICES]),
        ("nat-postrouting", Nat, Postrouting, 100, &[]),
    ]
};

/// Adds the sets, chains and rules that do not depend on any service.
pub(super) fn add(on: &mut OnTable<'_>, family: Family) {
    sets(on, family);
    let checks = [
        ENDPOINTS_CHECK,
        NODEPORTS_CHECK,
        FIREWALL_CHECK,
        CLUSTER_IPS_CHECK,
    ];
    for chain in checks.into_iter().chain([REJECT, SERVICES]) {
        on.add_chain(chain, None);
    }
    for (name, kind, hook, priority, jumps) in BASE_CHAINS {
        let base = BaseChain {
            kind,
            hook,
            priority,
            drop: false,
        };
        on.add_chain(name, Some(base));
        for to in jumps {
            on.add_rule(name, entry(kind).jump(to));
        }
    }
    no_loops(on, family);
    refusals(on, family);
    dispatch(on, family);
    unallocated(on, family);
    masquerade(on, family);
}

/// Adds the rule that drops forwarded packets to the range of services. A packet that belongs to no connection is
/// not translated. The route of the range would send such a packet in a loop through loopback.
fn no_loops(on: &mut OnTable<'_>, family: Family) {
    let rule = Rule::new().in_set(&[Load::destination(family)], SERVICE_CIDRS);
    on.add_rule("filter-forward", rule.verdict(Verdict::Drop));
}

/// Returns the beginning of a rule in a base chain. In filters, the rule matches only the first packet of a
/// connection. For translation, the kernel itself passes only the first packet.
fn entry(kind: ChainType) -> Rule {
    match kind {
        ChainType::Filter => Rule::new().any_bit(Ct::State, ct_state::NEW),
        ChainType::Nat => Rule::new(),
    }
}

/// Returns the type of the family's addresses.
pub(super) fn address(family: Family) -> Type {
    match family {
        Family::Ip6 => Type::Ipv6,
        _ => Type::Ipv4,
    }
}

fn sets(on: &mut OnTable<'_>, family: Family) {
    let address = address(family);
    let service = [address, Type::Protocol, Type::Port];
    for name in [SERVICE_IPS, NO_ENDPOINT_SERVICES, FIREWALL_IPS] {
        on.add_set(Set::verdicts(name, &service));
    }
    for name in [SERVICE_NODEPORTS, NO_ENDPOINT_NODEPORTS] {
        on.add_set(Set::verdicts(name, &service[1..]));
    }
    on.add_set(Set::new(CLUSTER_IPS, &[address]))
        .add_set(Set::new(HAIRPINS, &[address, address]))
        .add_set(Set::new(POD_CIDRS, &[address]).of_intervals())
        .add_set(Set::new(SERVICE_CIDRS, &[address]).of_intervals());
}

fn service_key(family: Family) -> [Load; 3] {
    let [protocol, port] = NODE_PORT_KEY;
    [Load::destination(family), protocol, port]
}

const NODE_PORT_KEY: [Load; 2] = [Load::Meta(Meta::TransportProtocol), Load::DESTINATION_PORT];

pub(super) fn from_pod(family: Family) -> Rule {
    Rule::new().in_set(&[Load::source(family)], POD_CIDRS)
}

pub(super) fn from_node() -> Rule {
    Rule::new().is(Load::Fib(Fib::SourceType), &Fib::LOCAL.to_ne_bytes())
}

/// Returns the beginning of a rule for packets to an address of the node, except loopback.
fn to_node(family: Family) -> Rule {
    let rule = Rule::new().is(Load::Fib(Fib::DestinationType), &Fib::LOCAL.to_ne_bytes());
    let mut loopback = [0; 16];
    match family {
        Family::Ip6 => {
            loopback[15] = 1;
            rule.is_not(Load::destination(family), &loopback)
        }
        _ => rule.outside(Load::destination(family), &[127, 0, 0, 0], 8),
    }
}

/// Adds the rules that refuse clients of services without endpoints, and clients that may not use an address.
fn refusals(on: &mut OnTable<'_>, family: Family) {
    let kinds = [Fate::Serve, Fate::Reject, Fate::Drop];
    let pairs = kinds.into_iter().flat_map(|i| kinds.map(|o| (i, o)));
    for (inside, outside) in pairs.filter(|(i, o)| i != o) {
        let name = refusal_chain(inside, outside);
        on.add_chain(name.as_str(), None)
            .add_rule(name.as_str(), from_pod(family).verdict(inside.verdict()))
            .add_rule(name.as_str(), from_node().verdict(inside.verdict()))
            .add_rule(name.as_str(), Rule::new().verdict(outside.verdict()));
    }
    let key = service_key(family);
    // TCP clients are refused by a reset, because the kernel limits the rate of ICMP errors to one client
    // (deviations: refused-by-reset).
    let tcp = Rule::new().is(Load::Meta(Meta::TransportProtocol), &[6]);
    on.add_rule(REJECT, tcp.reject(Reject::Reset))
        .add_rule(REJECT, Rule::new().reject(Reject::Port(family)))
        .add_rule(
            ENDPOINTS_CHECK,
            Rule::new().dispatch(&key, NO_ENDPOINT_SERVICES),
        )
        .add_rule(
            NODEPORTS_CHECK,
            to_node(family).dispatch(&NODE_PORT_KEY, NO_ENDPOINT_NODEPORTS),
        )
        .add_rule(FIREWALL_CHECK, Rule::new().dispatch(&key, FIREWALL_IPS));
}

/// Adds the rules that lead from addresses and ports to the chains of services. Packets to a clusterIP from
/// outside or from the node itself are masqueraded with the node's address, because the endpoint may be on
/// another node.
fn dispatch(on: &mut OnTable<'_>, family: Family) {
    on.add_rule(
        SERVICES,
        Rule::new()
            .in_set(&[Load::destination(family)], CLUSTER_IPS)
            .not_in_set(&[Load::source(family)], POD_CIDRS)
            .mark(MASQUERADE),
    )
    .add_rule(
        SERVICES,
        Rule::new().dispatch(&service_key(family), SERVICE_IPS),
    )
    .add_rule(
        SERVICES,
        to_node(family).dispatch(&NODE_PORT_KEY, SERVICE_NODEPORTS),
    );
}

/// Adds the rules that refuse unused ports of a clusterIP, and addresses in the range of services that no service
/// has. Addresses of an interface of the node are not refused (deviations: unallocated-refused).
fn unallocated(on: &mut OnTable<'_>, family: Family) {
    let daddr = [Load::destination(family)];
    let foreign = || Rule::new().is_not(Load::Fib(Fib::DestinationType), &Fib::LOCAL.to_ne_bytes());
    for set in [CLUSTER_IPS, SERVICE_CIDRS] {
        on.add_rule(
            CLUSTER_IPS_CHECK,
            foreign().in_set(&daddr, set).goto(REJECT),
        );
    }
}

/// Adds the rules that replace the source by the node's address. These rules cover packets with the mark
/// (nftables 3) and packets of a pod that reaches itself through a service. Without these rules such a pod would
/// answer itself directly, not through the node.
fn masquerade(on: &mut OnTable<'_>, family: Family) {
    let ends = [Load::source(family), Load::destination(family)];
    on.add_rule(
        "nat-postrouting",
        Rule::new()
            .marked(MASQUERADE)
            .unmark(MASQUERADE)
            .masquerade(),
    )
    .add_rule(
        "nat-postrouting",
        Rule::new()
            .any_bit(Ct::Status, ct_status::DNAT)
            .in_set(&ends, HAIRPINS)
            .masquerade(),
    );
}
