//! The network of pods and what sends clients of services to them.

pub mod netfilter;
pub mod network;
pub mod proxy;
pub mod proxyd;
pub mod services;
