//! The process `podprobe proxy DIR`, which proxies connections of services, and answers DNS queries. Like a shim, the
//! process outlives the daemon.
//!
//! Invariants: the process has one thread, which blocks only to wait for events. All work belongs to a
//! [`poller::Part`]. The process goes on with the last table while the daemon is gone, and also after the process
//! itself was killed and started again.

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
