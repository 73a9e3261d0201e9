//! A client for the kernel's packet filter over netlink: transactions on nftables tables, and tracked connections.
//!
//! Invariants: the kernel carries out a transaction as a whole or not at all. Only tables, chains and sets that the caller
//! names are read or changed. No program is started. This module knows nothing of services and pods.
//!
//! The methods of [`Rule`] write a rule, [`Key::of`] makes a key, and [`Transaction::on`] begins the operations on a table:
//!
//! ```
//! use podprobe_net::netfilter::{BaseChain, ChainType, Family, Hook, Load, Rule, Table, Transaction, Verdict};
//!
//! let table = Table { family: Family::Ip, name: "example".into() };
//! let mut transaction = Transaction::new();
//! let postrouting = BaseChain { kind: ChainType::Nat, hook: Hook::Postrouting, priority: 100, drop: false };
//! transaction
//!     .on(&table)
//!     .replace_table()
//!     .add_chain("postrouting", Some(postrouting))
//!     .add_rule(
//!         "postrouting",
//!         Rule::new()
//!             .within(Load::source(Family::Ip), &[10, 244, 0, 0], 24)
//!             .outside(Load::destination(Family::Ip), &[10, 244, 0, 0], 24)
//!             .masquerade(),
//!     );
//! // Netfilter::open()?.commit(&transaction)?;
//! ```

use std::fmt;

mod batch;
mod bytes;
mod conntrack;
mod error;
mod expression;
mod intervals;
mod load;
mod numbers;
mod probe;
mod rule;
mod set;
mod socket;
mod transaction;
mod verdict;

#[cfg(test)]
mod tests;

pub use conntrack::{Flow, Tuple};
pub use error::NetfilterError;
pub use expression::{Change, Comparison, Expression, Lookup, Reject, SetName};
pub use intervals::intervals;
pub use load::{Base, Ct, Fib, Load, Meta, Register, ct_state, ct_status};
pub use rule::Rule;
pub use set::{AnonymousSet, Element, Field, Key, Set, Type, Value, interface};
pub use socket::{ChainState, Netfilter, SetState, TableState};
pub use transaction::{BaseChain, ChainType, Hook, OnTable, Table, Transaction};
pub use verdict::Verdict;

/// The packets that a table sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4 and IPv6.
    Inet = 1,
    /// IPv4.
    Ip = 2,
    /// Packets that pass through bridges.
    Bridge = 7,
    /// IPv6.
    Ip6 = 10,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inet => "inet",
            Self::Ip => "ip",
            Self::Bridge => "bridge",
            Self::Ip6 => "ip6",
        })
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table {} {}", self.family, self.name)
    }
}
