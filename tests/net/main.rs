//! Networks, services and names: real packets, real resolvers.

mod bridge;
mod cluster_services;
mod cni;
mod data_paths;
mod dns;
mod names;
mod proxy_upgrade;
mod services;
#[path = "../support/mod.rs"]
mod support;
mod userspace_proxy;
