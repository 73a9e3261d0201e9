//! The userspace data path: connections of services are taken by a process and handed on to their endpoints.

pub mod balancer;
pub mod ports;
