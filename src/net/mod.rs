//! The network of pods, and the services that send clients to them.

pub mod netfilter;
pub mod network;
pub mod proxy;
pub mod proxyd;
pub mod services;
