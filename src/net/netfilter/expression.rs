//! The expressions that a rule consists of, and their encoding.
//!
//! A rule is a small program over sixteen registers of 4 bytes. If an expression does not match, its rule ends, and the
//! kernel goes on with the next rule.

use std::time::Duration;

use super::Family;
use super::bytes::Messages;
use super::load::{Load, Meta, Register, put_all};
use super::numbers::{data, expr, list};
use super::set::AnonymousSet;
use super::verdict::{Verdict, milliseconds};

/// The set or map in which an expression looks up a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetName {
    /// A set of the table, by its name.
    Named(String),
    /// A set that belongs to the rule, and is made and removed together with the rule.
    Anonymous(AnonymousSet),
}

impl From<&str> for SetName {
    fn from(name: &str) -> Self {
        Self::Named(name.to_owned())
    }
}

impl From<AnonymousSet> for SetName {
    fn from(set: AnonymousSet) -> Self {
        Self::Anonymous(set)
    }
}

/// The use that a rule makes of the result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The rule ends if the set does not have the key.
    In,
    /// The rule ends if the set has the key.
    NotIn,
    /// The rule takes the key's verdict. The rule ends if the map does not have the key.
    Verdict,
    /// The rule writes the key's value into this register. The rule ends if the map does not have the key.
    Value(Register),
}

/// The change that a rule makes to a set, with a key from the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds the key, or starts its timeout again. A key that exists keeps its value.
    Update = 1,
    /// Removes the key.
    Delete = 2,
}

/// The answer with which a packet is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reject {
    /// ICMP "port unreachable", for [`Family::Ip`] and [`Family::Ip6`]. A client gets ECONNREFUSED.
    Port(Family),
    /// ICMP "port unreachable", for [`Family::Inet`] and [`Family::Bridge`].
    PortAnyFamily,
    /// A TCP packet with the flag RST.
    Reset,
}

/// A comparison of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The rule goes on if the two values are equal.
    Equal = 0,
    /// The rule goes on if the two values differ.
    NotEqual = 1,
}

/// An expression of a rule: loads, checks, changes or ends.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "registers that are read and written")]
pub enum Expression {
    /// Loads a value into registers.
    Load { load: Load, to: Register },
    /// Sets the packet's mark.
    SetMark { from: Register },
    /// Compares registers with a value.
    Compare {
        register: Register,
        comparison: Comparison,
        value: Vec<u8>,
    },
    /// Computes `to = (from & mask) ^ xor`. `mask` and `xor` have the length of the value.
    Bitwise {
        from: Register,
        to: Register,
        mask: Vec<u8>,
        xor: Vec<u8>,
    },
    /// Looks up a key in a set or map.
    Lookup {
        set: SetName,
        key: Register,
        lookup: Lookup,
    },
    /// Ends the rule with a verdict.
    Verdict(Verdict),
    /// Writes a value into a register.
    Immediate { to: Register, value: Vec<u8> },
    /// Translates the packet's destination.
    Dnat {
        family: Family,
        address: Register,
        port: Option<Register>,
    },
    /// Translates the source to the address of the interface by which the packet leaves. The port is chosen at random.
    Masquerade,
    /// Translates the destination to a port of the node itself.
    Redirect { port: Register },
    /// Refuses the packet.
    Reject(Reject),
    /// Changes a set. The set must be one that rules may change ([`super::Set::dynamic`]). The rule ends if the set is
    /// full.
    Change {
        set: String,
        change: Change,
        key: Register,
        value: Option<Register>,
        timeout: Option<Duration>,
    },
}

fn put_value(m: &mut Messages, kind: u16, value: &[u8]) {
    m.nest(kind, |m| m.put(data::VALUE, value));
}

impl Expression {
    /// Writes the expression as an element of a rule's list. `anonymous` is the id of the expression's anonymous set,
    /// if the expression has an anonymous set.
    pub(super) fn put(&self, anonymous: u32, m: &mut Messages) {
        m.nest(list::ELEMENT, |m| {
            m.put_name(expr::NAME, self.name());
            m.nest(expr::DATA, |m| self.put_data(anonymous, m));
        });
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Load { load, .. } => load.name(),
            Self::SetMark { .. } => "meta",
            Self::Compare { .. } => "cmp",
            Self::Bitwise { .. } => "bitwise",
            Self::Lookup { .. } => "lookup",
            Self::Verdict(_) | Self::Immediate { .. } => "immediate",
            Self::Dnat { .. } => "nat",
            Self::Masquerade => "masq",
            Self::Redirect { .. } => "redir",
            Self::Reject(_) => "reject",
            Self::Change { .. } => "dynset",
        }
    }

    fn put_data(&self, anonymous: u32, m: &mut Messages) {
        match self {
            Self::Load { load, to } => load.put(*to, m),
            Self::SetMark { from } => put_all(m, &[(2, Meta::Mark as u32), (3, from.number())]),
            Self::Compare {
                register,
                comparison,
                value,
            } => {
                put_all(m, &[(1, register.number()), (2, *comparison as u32)]);
                put_value(m, 3, value);
            }
            Self::Bitwise {
                from,
                to,
                mask,
                xor,
            } => {
                let (from, to, length) = (from.number(), to.number(), mask.len() as u32);
                // 0 is the operation NFT_BITWISE_MASK_XOR.
                put_all(m, &[(1, from), (2, to), (3, length), (6, 0)]);
                put_value(m, 4, mask);
                put_value(m, 5, xor);
            }
            Self::Lookup { set, key, lookup } => put_lookup(set, *key, *lookup, anonymous, m),
            Self::Verdict(verdict) => {
                // 0 is NFT_REG_VERDICT.
                m.put_u32(1, 0);
                verdict.put(2, m);
            }
            Self::Immediate { to, value } => {
                m.put_u32(1, to.number());
                put_value(m, 2, value);
            }
            Self::Dnat {
                family,
                address,
                port,
            } => {
                put_all(m, &[(1, 1), (2, *family as u32), (3, address.number())]);
                if let Some(port) = port {
                    m.put_u32(5, port.number());
                }
            }
            // 0x10 is NF_NAT_RANGE_PROTO_RANDOM_FULLY.
            Self::Masquerade => m.put_u32(1, 0x10),
            // 2 is NF_NAT_RANGE_PROTO_SPECIFIED.
            Self::Redirect { port } => put_all(m, &[(1, port.number()), (3, 2)]),
            Self::Reject(reject) => put_reject(*reject, m),
            Self::Change {
                set,
                change,
                key,
                value,
                timeout,
            } => {
                m.put_name(1, set);
                put_all(m, &[(3, *change as u32), (4, key.number())]);
                if let Some(value) = value {
                    m.put_u32(5, value.number());
                }
                if let Some(timeout) = timeout {
                    m.put_u64(6, milliseconds(*timeout));
                }
            }
        }
    }
}

fn put_lookup(set: &SetName, key: Register, lookup: Lookup, anonymous: u32, m: &mut Messages) {
    m.put_u32(2, key.number());
    match lookup {
        Lookup::In => {}
        Lookup::NotIn => m.put_u32(5, 1),
        Lookup::Verdict => m.put_u32(3, 0),
        Lookup::Value(to) => m.put_u32(3, to.number()),
    }
    match set {
        SetName::Named(name) => m.put_name(1, name),
        SetName::Anonymous(set) => {
            m.put_name(1, set.name());
            m.put_u32(4, anonymous);
        }
    }
}

fn put_reject(reject: Reject, m: &mut Messages) {
    // Types: 0 is ICMP of the table's family, 1 is RST, 2 is ICMP of the packet's family. The two types of ICMP have
    // different codes for "port unreachable".
    let (kind, code) = match reject {
        Reject::Port(Family::Ip6) => (0, 4),
        Reject::Port(_) => (0, 3),
        Reject::PortAnyFamily => (2, 1),
        Reject::Reset => (1, 0),
    };
    m.put_u32(1, kind);
    m.put(2, &[code]);
}
