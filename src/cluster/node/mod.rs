//! The node as the API server sees it: the Node object, its status and its Lease (kubelet-probes 9.9).
//!
//! Invariants: everything here decides, and the clocks are arguments. A request is sent again as it was until it has been
//! answered. What others have written into the Node, such as conditions, taints, podCIDR and annotations, stays.

pub mod facts;
pub mod lease;
pub mod object;
pub mod patch;
pub mod registration;
pub mod status;

#[cfg(test)]
pub(super) mod recorded;
