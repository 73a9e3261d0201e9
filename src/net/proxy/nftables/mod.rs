//! Services in the kernel's packet filter. Maps in podprobe's own table lead from address, protocol and port
//! to the chain of a service. The cost of a connection does not depend on the number of services.
//!
//! Invariants: only the tables `<id>-services` and the tracked connections that lead to services are read or
//! changed. A change is one transaction, so no packet sees half of a change. Only one bit of a packet's mark is
//! used, 0x4000. This bit is cleared before the packet leaves the node.
//!
//! The table does not contain host ports, which lead to containers. Host ports belong to the network of pods.
//! docs/nftables.md shows the table.

mod base;
mod flows;
mod names;
mod path;
mod plan;
mod service;

pub use path::Nftables;

#[cfg(test)]
mod tests;
