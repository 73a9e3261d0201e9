//! Services in the kernel's packet filter: a table of our own, in which maps lead from address, protocol and port to a
//! service's chain. The cost of a connection does not depend on the number of services.
//!
//! Invariants: nothing outside of the tables `<id>-services` is read or changed, but for connections that lead to
//! services. A change is one transaction: no packet sees half of it. A packet's mark is used for one bit, 0x4000, and
//! cleared before the packet leaves.
//!
//! Ports of the node that lead to containers are not in it: they belong to the network of pods. docs/nftables.md shows the
//! table.

mod base;
mod flows;
mod names;
mod path;
mod plan;
mod service;

pub use path::Nftables;

#[cfg(test)]
mod tests;
