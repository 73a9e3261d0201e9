//! The settings of a pod that concern its network: bandwidth and host ports.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::api::service::Protocol;

/// The limits for the traffic of a pod, in bits per second; None means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bandwidth {
    /// The limit for traffic to the pod, in bits per second.
    pub ingress: Option<u64>,
    /// The limit for traffic from the pod, in bits per second.
    pub egress: Option<u64>,
}

/// A port of the node that leads to a port of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PortMapping {
    /// The address of the node; None means all addresses.
    pub host_ip: Option<IpAddr>,
    /// The node's port.
    pub host_port: u16,
    /// The pod's port.
    pub container_port: u16,
    /// The protocol of the port: TCP or UDP.
    pub protocol: Protocol,
}
