//! Probing: one thread per (pod, container, probe type), the pure state machine that decides each step of a probe, and
//! the handlers.
//!
//! Invariants: a worker may live as long as its container. A worker does not end with the sync that made it
//! (lessons A3). A probe *error* is not a probe *failure*: an error changes only the history. Each result names its
//! container id.
//!
//! ```text
//! manager ─ add, stop, trigger ─▶ thread ─▶ worker (pure) ─▶ prober ─▶ exec | http | tcp | grpc
//!    ▲ ready, started                └────▶ results ─ updates ─▶ sync loop
//! ```

pub mod cadence;
pub mod container_view;
pub mod context;
pub mod exec;
pub mod grpc;
pub mod http;
mod mailbox;
pub mod manager;
pub mod now;
pub mod outcome;
pub mod pauses;
pub mod ports;
#[allow(clippy::module_inception)]
pub mod prober;
mod progress;
pub mod results;
pub mod status;
pub mod streaks;
pub mod target;
pub mod tcp;
mod thread;
pub mod trace;
pub mod url;
pub mod worker;
