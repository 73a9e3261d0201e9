//! The userspace data path in the process `podprobe proxy`. The data path accepts connections to services, and passes
//! them on to endpoints.
//!
//! Invariants: connecting to an endpoint delays no other client. An established connection ends only when its client or
//! its endpoint ends it. A new table or the end of the daemon does not end a connection. Old addresses are released
//! before new addresses are bound, so that two services may exchange their ports.

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
