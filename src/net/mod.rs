//! The network of pods, and the services that send clients to them.

use crate as net;
use {podprobe_api as api, podprobe_base as base};

pub mod netfilter;
pub mod network;
pub mod proxy;
pub mod proxyd;
pub mod services;

#[cfg(test)]
#[path = "../../tests/support/wings/own_network.rs"]
mod own_network;
#[cfg(test)]
#[path = "../../tests/support/skip.rs"]
mod skip;
#[cfg(test)]
#[path = "../../tests/support/wings/test_pods.rs"]
mod test_pods;
