//! The work of a kubelet, from the sources of pods to their statuses.

pub mod actions;
pub mod admission;
pub mod checkpoint;
pub mod container_config;
pub mod controllers;
pub mod drain;
pub mod events;
pub mod eviction;
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
