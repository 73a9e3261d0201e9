//! The role `podprobe proxy DIR`: one process that proxies connections and answers names. It outlives the daemon, as a
//! shim does.
//!
//! Invariants: one thread; nothing blocks it but the wait for events. Everything that it does belongs to a
//! [`poller::Part`]. It goes on with the last table when the daemon is gone, and when it was itself killed and started
//! again.

pub mod control;
pub mod dns;
pub mod hand_over;
pub mod home;
pub mod message;
pub mod poller;
pub mod program;
pub mod proxy;
pub mod slab;
pub mod userspace;
