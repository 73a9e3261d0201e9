//! The userspace data path: connections of services are taken by a process and handed on to their endpoints.
//!
//! It runs in the role `podprobe proxy`; [`client`] is the daemon's end of it.
//!
//! Invariants: connecting to an endpoint holds up no other client. A connection that is established is ended by its
//! two ends alone: not by a new table, not by the end of the daemon. What is bound is released before anything new is
//! bound, so that two services may exchange their ports.

pub mod addresses;
pub mod balancer;
pub mod client;
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
