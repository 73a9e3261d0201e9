//! Validates CronJobs (pkg/apis/batch/validation: validateCronJobSpec).

use serde_json::Value;

use super::super::checks::not_negative;
use super::{cron_schedule, job};
use crate::api::field::FieldError;
use crate::api::workload::{CronJobSpec, Workload, WorkloadSpec};

/// Longest name of a CronJob. Its Jobs add a dash and ten digits, and must stay below 64 characters.
const LONGEST_NAME: usize = 52;

const JOB: &str = "spec.jobTemplate.spec";

/// Adds the errors of the spec, and of the length of the name. `old` is the CronJob whose place it takes.
pub(super) fn validate(
    errors: &mut Vec<FieldError>,
    spec: &CronJobSpec,
    workload: &Workload,
    raw: &Value,
    old: Option<&Workload>,
) {
    let old = old.and_then(|old| match &old.spec {
        WorkloadSpec::CronJob(spec) => Some(spec),
        _ => None,
    });
    let zone = spec.time_zone.as_deref();
    let old_schedule = old.map(|old| old.schedule.as_str());
    cron_schedule::schedule(errors, &spec.schedule, old_schedule, zone);
    if let Some(seconds) = spec.starting_deadline_seconds {
        not_negative(errors, "spec.startingDeadlineSeconds", seconds);
    }
    if let Some(zone) = zone.filter(|_| old.is_none_or(|old| old.time_zone != spec.time_zone)) {
        cron_schedule::time_zone(errors, zone);
    }
    concurrency(errors, &spec.concurrency_policy);
    job_template(errors, spec, workload, &raw["jobTemplate"]["spec"]);
    let limits = [
        (
            "spec.successfulJobsHistoryLimit",
            spec.successful_jobs_history_limit,
        ),
        (
            "spec.failedJobsHistoryLimit",
            spec.failed_jobs_history_limit,
        ),
    ];
    for (path, limit) in limits {
        if let Some(limit) = limit {
            not_negative(errors, path, limit);
        }
    }
    let name = workload.metadata.name.as_str();
    if old.is_none() && name.len() > LONGEST_NAME {
        let detail = format!("must be no more than {LONGEST_NAME} characters");
        errors.push(FieldError::invalid("metadata.name", name, detail));
    }
}

fn concurrency(errors: &mut Vec<FieldError>, policy: &str) {
    let known = ["Allow", "Forbid", "Replace"];
    if !known.contains(&policy) {
        let path = "spec.concurrencyPolicy";
        errors.push(FieldError::not_supported(path, policy, &known));
    }
}

fn job_template(
    errors: &mut Vec<FieldError>,
    spec: &CronJobSpec,
    workload: &Workload,
    raw: &Value,
) {
    let of = &spec.job_template.spec;
    job::validate_spec(errors, of, workload, raw, JOB);
    if of.selector.is_some() {
        let detail = "`selector` will be auto-generated";
        let path = format!("{JOB}.selector");
        errors.push(FieldError::invalid(path, raw["selector"].clone(), detail));
    }
    if of.manual_selector == Some(true) {
        let path = format!("{JOB}.manualSelector");
        errors.push(FieldError::not_supported(path, true, &["nil", "false"]));
    }
}
