//! The work of a kubelet, from the sources of pods to their statuses.

use crate as pods;
use {
    podprobe_api as api, podprobe_base as base, podprobe_engine as engine, podprobe_net as net,
    podprobe_workloads as workloads,
};

pub mod actions;
pub mod admission;
pub mod checkpoint;
pub mod container_config;
pub mod controllers;
pub mod drain;
pub mod events;
pub mod eviction;
pub mod history;
pub mod kuberuntime;
pub mod lifecycle;
pub mod manager;
pub mod objects;
pub mod pleg;
pub mod probe_result;
pub mod prober;
pub mod sources;
pub mod status;
pub mod sync_loop;
pub mod volumes;
pub mod workers;

#[cfg(test)]
#[path = "../../tests/support/wings/fake_runtime.rs"]
mod fake_runtime;
#[cfg(test)]
#[path = "../../tests/support/skip.rs"]
mod skip;
#[cfg(test)]
#[path = "../../tests/support/wings/test_pods.rs"]
mod test_pods;
#[cfg(test)]
#[path = "../../tests/support/wings/used_stack.rs"]
mod used_stack;
