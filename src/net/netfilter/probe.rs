//! Checks what this kernel's packet filter can do. A check uses tables that are gone before a packet passes through them.

use super::Family;
use super::error::NetfilterError;
use super::expression::Reject;
use super::load::{Load, Register};
use super::rule::Rule;
use super::set::{AnonymousSet, Element, Field, Key, Set, Type, Value};
use super::socket::Netfilter;
use super::transaction::{BaseChain, ChainType, Hook, Table, Transaction};

impl Netfilter {
    /// Checks that this kernel can translate destinations and sources of a family, and can choose an endpoint for a packet.
    ///
    /// # Errors
    /// Returns a [`NetfilterError`] with the first operation that the kernel refused.
    pub fn can_translate(&mut self, family: Family, name: &str) -> Result<(), NetfilterError> {
        let nat = |hook, priority| base(ChainType::Nat, hook, priority);
        self.attempt(family, name, |transaction, table| {
            transaction
                .on(table)
                .add_chain("prerouting", nat(Hook::Prerouting, -100))
                .add_chain("output", nat(Hook::Output, -100))
                .add_chain("postrouting", nat(Hook::Postrouting, 100))
                .add_chain("forward", base(ChainType::Filter, Hook::Forward, 0))
                .add_set(Set::verdicts("map", &[Type::Protocol, Type::Port]))
                .add_rule("prerouting", pick(family))
                .add_rule("postrouting", Rule::new().masquerade())
                .add_rule("forward", Rule::new().reject(Reject::Port(family)));
        })
    }

    /// Adds a table, lets `fill` add to the table, and deletes the table, all in one transaction. The table therefore
    /// never takes effect.
    fn attempt(
        &mut self,
        family: Family,
        name: &str,
        fill: impl FnOnce(&mut Transaction, &Table),
    ) -> Result<(), NetfilterError> {
        let table = Table {
            family,
            name: name.to_owned(),
        };
        let mut transaction = Transaction::new();
        transaction.on(&table).replace_table();
        fill(&mut transaction, &table);
        transaction.on(&table).delete_table();
        self.commit(&transaction)
    }
}

fn base(kind: ChainType, hook: Hook, priority: i32) -> Option<BaseChain> {
    Some(BaseChain {
        kind,
        hook,
        priority,
        drop: false,
    })
}

/// Returns the rule for a service with two endpoints: the rule chooses one of them at random, and translates the
/// destination to the chosen endpoint.
fn pick(family: Family) -> Rule {
    let (kind, any, port) = match family {
        Family::Ip6 => (
            Type::Ipv6,
            std::net::Ipv6Addr::LOCALHOST.into(),
            Register(4),
        ),
        _ => (
            Type::Ipv4,
            std::net::Ipv4Addr::LOCALHOST.into(),
            Register(1),
        ),
    };
    let element = |index| {
        let value = Value::Data(Key::of(&[Field::Address(any), Field::Port(1)]));
        Element::mapping(Key::of(&[Field::Number(index)]), value)
    };
    let elements = (0..2).map(element).collect();
    let map = AnonymousSet::map(&[Type::Number], &[kind, Type::Port], elements);
    Rule::new()
        .map(&[Load::Random { modulus: 2 }], map, Register(0))
        .dnat(family, Register(0), Some(port))
}
