//! The parts of the daemon that people and programs see: the views, and the server that shows them.

use crate as face;
use {
    podprobe_api as api, podprobe_base as base, podprobe_engine as engine, podprobe_net as net,
    podprobe_pods as pods, podprobe_workloads as workloads,
};

pub mod server;
pub mod views;

#[cfg(test)]
#[path = "../../tests/support/wings/every_workload.rs"]
mod every_workload;
#[cfg(test)]
#[path = "../../tests/support/wings/fake_session.rs"]
mod fake_session;
#[cfg(test)]
#[path = "../../tests/support/wings/test_pods.rs"]
mod test_pods;
