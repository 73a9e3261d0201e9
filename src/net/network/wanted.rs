//! What a sandbox wants of its network.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::api::service::Protocol;

/// How much a pod may receive and send, in bits a second; None is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bandwidth {
    /// The bits a second that may reach the pod.
    pub ingress: Option<u64>,
    /// The bits a second that may leave the pod.
    pub egress: Option<u64>,
}

/// A port of the node that leads to a port of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PortMapping {
    /// The address of the node; None is all of them.
    pub host_ip: Option<IpAddr>,
    /// The node's port.
    pub host_port: u16,
    /// The pod's port.
    pub container_port: u16,
    /// TCP or UDP.
    pub protocol: Protocol,
}
