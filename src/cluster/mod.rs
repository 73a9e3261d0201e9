//! The link to a cluster: what a node says to an API server, and what it reads there (kubelet-probes 6.5, 9.6–9.9).
//!
//! Invariants: nothing of what runs depends on the link. Only [`link`] and [`client`] have a thread, descriptors and a
//! clock; each other part is a function of what the node knows and of what the API server has answered.

use crate as cluster;
use {podprobe_api as api, podprobe_base as base, podprobe_net as net, podprobe_pods as pods};

pub mod client;
pub mod events;
pub mod exchange;
pub mod kubeconfig;
pub mod link;
pub mod mirror_pods;
pub mod node;
pub mod pod_set;
pub mod reflector;
pub mod reviews;
pub mod rounds;
pub mod services;
pub mod status;
pub mod tokens;
mod watches;

#[cfg(test)]
#[path = "../../tests/support/wings/test_pods.rs"]
mod test_pods;
