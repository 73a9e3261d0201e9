//! Services: their endpoints, their addresses and ports, and the table for the data path.
//!
//! Invariants: no code of this module has a thread, a descriptor or a clock. This module chooses the endpoints, so a
//! data path need not look at readiness.

pub mod allocate;
pub mod build;
pub mod choose;
pub mod claims;
pub mod endpoints;
pub mod environment;
pub mod explain;
pub mod findings;
mod host_ports;
pub mod inputs;
pub mod lookup;
pub mod names;
pub mod naming;
pub mod pod_facts;
pub mod pods_of_slices;
pub mod table;
pub mod view;
