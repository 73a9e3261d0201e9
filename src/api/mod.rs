//! The v1 objects that podprobe reads from pod files and shows to users.
//!
//! Invariants: pure, no file, thread, clock or log; only the time zone of a CronJob is looked up in the node's zoneinfo. A
//! [`Pod`] from [`decode`] is always valid and has its defaults. The pod keeps the raw object that it was read from, so
//! that output shows the whole object.

use crate as api;
use podprobe_base as base;

pub mod app_armor;
pub mod capabilities;
pub mod cidr;
pub mod claimed_volume;
pub mod conditions;
pub mod decode;
pub mod defaults;
pub mod expansion;
pub mod field;
pub mod field_ref;
pub mod huge_pages;
pub mod identity;
pub mod lazy_object;
pub mod objects;
pub mod pod;
pub mod pod_resources;
pub mod priority;
pub mod probe_host;
pub mod qos;
pub mod quantity;
pub mod raw_object;
pub mod references;
pub mod review;
pub mod service;
pub mod service_account;
pub mod source;
pub mod status;
pub mod support;
pub mod sysctls;
pub mod validation;
pub mod workload;

#[cfg(test)]
#[path = "../../tests/support/wings/test_pods.rs"]
mod test_pods;

pub use crate::base::pod_uid::PodUid;
pub use pod::{Container, Handler, Hook, HookKind, Pod, PodRef, Probe, ProbeType};
pub use source::{PodOrigin, PodSource};
pub use status::{ContainerStatus, PodCondition, PodPhase, PodStatus};
