//! The names of the cluster: a small DNS responder.
//!
//! Clients ask it for services (`NAME.NAMESPACE.svc.cluster.local`, docs/names.md); what is not of the cluster it asks
//! the node's resolvers. It runs in the role `proxy`, as a state machine of one epoll: [`responder::Responder`].
//!
//! Invariants: nothing blocks. No bytes of a client or of a resolver make the responder panic. Whatever waits is counted and
//! bounded: datagrams ([`inbox::MOST`]), questions for other resolvers ([`forward::MOST`]), connections
//! ([`connections::MOST`]), bytes of each. An answer over UDP is never larger than its client allows. Only the given clients
//! get answers. No other resolver is asked for a name of the zone, or for one of its reverse names. All files but part.rs,
//! responder.rs, connection.rs, exchange.rs and random.rs only decide: clock and randomness are arguments.
//!
//! ```text
//! record ◀─ message ◀─ ways, reverse ◀─ zone ◀─ answer ◀─ upstreams ◀─ forward ◀─ connections, exchange, inbox ◀─ responder ◀─ part
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

/// The port on which names are asked for.
pub const PORT: u16 = 53;

#[cfg(test)]
mod forward_tests;
#[cfg(test)]
mod fuzz_tests;
#[cfg(test)]
mod wire_tests;
#[cfg(test)]
mod zone_tests;
