//! Validates a workload that has its defaults, with the API's rules and texts (pkg/apis/apps/validation,
//! pkg/apis/batch/validation). The template is validated as a pod is, with its path before each field.
//!
//! Invariants: pure; all errors at once, in the API's order. What podprobe does not support *yet* is refused in
//! [`crate::api::support`], not here.

mod claims;
mod cron_job;
mod cron_schedule;
mod exit_codes;
mod indexes;
mod job;
mod rolling;
mod selector;
mod sets;
mod stateful_set;
mod success;
mod template;
mod update;

pub use template::{SELECTOR_MISSES_TEMPLATE, checked_pod};
pub use update::validate_update;

use super::names::{is_dns_label, is_dns_subdomain};
use super::object_metadata;
use crate::api::field::FieldError;
use crate::api::workload::{Workload, WorkloadKind, WorkloadSpec};

/// Returns all errors of a workload that has its defaults. `old` is the workload whose place it takes: some rules are
/// kinder to a value that was there before. [`validate_update`] has the fields that may not change.
pub fn validate_workload(workload: &Workload, old: Option<&Workload>) -> Vec<FieldError> {
    let raw = workload.raw.value();
    let mut errors = object_metadata(&workload.metadata, name_rule(workload.kind()));
    let all = &mut errors;
    match &workload.spec {
        WorkloadSpec::Deployment(spec) => sets::deployment(all, spec, workload, &raw["spec"]),
        WorkloadSpec::ReplicaSet(spec) => sets::replica_set(all, spec, workload, &raw["spec"]),
        WorkloadSpec::ReplicationController(spec) => {
            sets::replication_controller(all, spec, workload, &raw["spec"]);
        }
        WorkloadSpec::DaemonSet(spec) => sets::daemon_set(all, spec, workload, &raw["spec"]),
        WorkloadSpec::StatefulSet(spec) => {
            stateful_set::validate(all, spec, workload, &raw["spec"], old.is_some());
        }
        WorkloadSpec::Job(spec) => job::validate(all, spec, workload, &raw["spec"]),
        WorkloadSpec::CronJob(spec) => {
            cron_job::validate(all, spec, workload, &raw["spec"], old);
        }
    }
    errors
}

fn name_rule(kind: WorkloadKind) -> fn(&str) -> Vec<String> {
    match kind {
        WorkloadKind::StatefulSet => is_dns_label,
        _ => is_dns_subdomain,
    }
}

#[cfg(test)]
mod tests;
