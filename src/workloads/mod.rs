//! The controllers of workloads: what Deployments, ReplicaSets, DaemonSets, StatefulSets, Jobs and CronJobs do next
//! ([docs/workloads.md] has the rules).
//!
//! Invariants: pure. No thread, clock, descriptor, lock or log. A controller is a function of what is wanted, what is
//! there and what it has written down; a second call with the same input gives the same answer. `pods/controllers` has
//! the thread that calls it, writes the state and hands on the pods.
//!
//! All times are [`jiff::Timestamp`]s of one line that never jumps: the thread moves it with the boot clock. Only
//! schedules of CronJobs use the wall clock, which is a second argument where it is needed.
//!
//! [docs/workloads.md]: https://github.com/podprobe/podprobe/blob/main/docs/workloads.md

use crate as workloads;
use {podprobe_api as api, podprobe_base as base};

pub mod change;
pub mod controller_revisions;
pub mod cron_job;
pub mod daemon_set;
pub mod deployment;
mod edit_object;
pub mod event;
pub mod job;
pub mod names;
pub mod numbers;
pub mod observed;
pub mod overrides;
pub mod ports;
pub mod ranking;
mod rebuild;
pub mod record;
pub mod replica_set;
pub mod revisions;
pub mod set_actions;
pub mod set_rollout_status;
pub mod settings;
pub mod shown_object;
pub mod state;
pub mod stateful_set;
pub mod step;
pub mod template;
#[cfg(test)]
mod test_random;
pub mod view;
pub mod waiting;
pub mod world;

#[cfg(test)]
#[path = "../../tests/support/skip.rs"]
mod skip;
#[cfg(test)]
#[path = "../../tests/support/wings/time_zones.rs"]
mod time_zones;

pub use deployment::OnDeadline;
pub use event::{ControllerEvent, EventKind};
pub use observed::{ContainerKind, ObservedContainer, ObservedPod};
pub use record::{Owner, PodRecord};
pub use settings::Settings;
