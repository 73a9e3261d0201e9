//! Probing: one thread per (pod, container, probe type), the pure machine that says what a step does, the handlers.
//!
//! Invariants: a worker lives as long as its container may, not as long as the sync that made it (lessons A3). A probe
//! *error* is not a probe *failure*: an error changes nothing but the history. Results carry the container id.

pub mod results;
