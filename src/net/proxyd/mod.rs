//! The process `podprobe proxy DIR`. It proxies connections of services, and answers names over DNS. Like a shim, it
//! outlives the daemon.
//!
//! Invariants: there is one thread, and it blocks only to wait for events. Everything that it does belongs to a
//! [`poller::Part`]. It goes on with the last table when the daemon is gone, and also after it was killed and started
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
