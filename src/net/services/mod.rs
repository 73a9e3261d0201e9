//! Services: which endpoints they have, which addresses, and what a data path gets of it.
//!
//! Invariants: nothing here has a thread, a descriptor or a clock. A data path never looks at readiness: endpoints
//! are chosen here.

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
pub mod table;
pub mod view;
