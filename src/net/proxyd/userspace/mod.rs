//! The userspace data path in the role `podprobe proxy`: it takes the connections of services and hands them on to
//! endpoints.
//!
//! Invariants: connecting to an endpoint holds up no other client. A connection that is established is ended by its
//! two ends alone: not by a new table, not by the end of the daemon. What is bound is released before anything new is
//! bound, so that two services may exchange their ports.

pub mod addresses;
pub mod balancer;
pub mod connection;
pub mod dial;
pub mod listeners;
pub mod part;
pub mod pipes;
pub mod plan;
pub mod pools;
pub mod ports;
pub mod shared;
pub mod sockets;
pub mod tcp;
pub mod transfer;
pub mod udp;

#[cfg(test)]
mod tests;
