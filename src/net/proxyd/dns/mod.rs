//! The names of the cluster: a small DNS responder.
//!
//! Clients ask the responder for services (`NAME.NAMESPACE.svc.cluster.local`, docs/names.md). Questions for other
//! names are forwarded to the node's resolvers. The responder runs in the process `podprobe proxy`, as a state machine
//! of one epoll: [`responder::Responder`].
//!
//! Invariants: nothing blocks. No bytes of a client or of a resolver make the responder panic. Everything that waits
//! is counted and bounded: datagrams ([`inbox::MOST`]), forwarded questions ([`forward::MOST`]), connections
//! ([`connections::MOST`]), and the bytes of each. An answer over UDP is never larger than its client allows. Only the
//! configured clients get answers. Names of the zone and its reverse names are never forwarded. All files but part.rs,
//! responder.rs, connection.rs, exchange.rs and random.rs only decide: clock and randomness are arguments.
//!
//! ```text
//! record ◀ message ◀ ways, reverse ◀ zone ◀ answer ◀ upstreams ◀ forward ◀ connections, exchange, inbox ◀ responder ◀ part
//! ```

pub mod answer;
mod connection;
pub mod connections;
pub mod counters;
mod exchange;
pub mod forward;
mod frames;
mod inbox;
pub mod message;
pub mod part;
mod random;
pub mod record;
mod reply;
pub mod responder;
mod reverse;
mod token;
mod upstreams;
mod ways;
pub mod zone;

/// The port on which the responder listens.
pub const PORT: u16 = 53;

#[cfg(test)]
mod forward_tests;
#[cfg(test)]
mod fuzz_tests;
#[cfg(test)]
mod wire_tests;
#[cfg(test)]
mod zone_tests;
