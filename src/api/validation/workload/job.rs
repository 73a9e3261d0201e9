//! Validates Jobs, and the Jobs of CronJobs (pkg/apis/batch/validation).

use serde_json::{Value, json};

use super::super::checks::{named, not_negative};
use super::super::names::{is_dns_label, is_dns_subdomain};
use super::selector::{self, Written};
use super::{exit_codes, success, template};
use crate::api::field::{FieldError, child, entry};
use crate::api::pod::RestartPolicy;
use crate::api::workload::{
    CONTROLLER_UID_LABELS, JOB_NAME_LABELS, JobSpec, LabelSelector, Workload,
};

/// Number of completions from which a Job with limits of its indexes has further limits.
const MANY: i32 = 100_000;
const LIMIT_OF_MANY: i32 = 10_000;
const MOST_PARALLEL: i32 = 100_000;
const MOST_FAILED: i32 = 100_000;
const LONGEST_MANAGER: usize = 63;

const PATH_FORM: &str =
    "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";

pub(super) fn validate(
    errors: &mut Vec<FieldError>,
    spec: &JobSpec,
    workload: &Workload,
    raw: &Value,
) {
    let nothing = LabelSelector::default();
    let written = Written {
        value: raw.get("selector"),
        selector: spec.selector.as_ref().unwrap_or(&nothing),
    };
    made_selector(errors, spec, workload, &written);
    validate_spec(errors, spec, workload, raw, "spec");
    if written.is_missing() {
        errors.push(FieldError::required("spec.selector", ""));
    }
    if selector::validate(errors, written.selector, "spec.selector") {
        template::matches(errors, &written, &spec.template, "spec.template");
    }
    pod_names(errors, spec, workload);
}

/// Checks the selector and the labels that podprobe makes. A person who writes one of them must write what podprobe
/// would have made, or say that the selector is theirs.
fn made_selector(
    errors: &mut Vec<FieldError>,
    spec: &JobSpec,
    workload: &Workload,
    written: &Written,
) {
    if spec.manual_selector == Some(true) || written.is_missing() {
        return;
    }
    let metadata = &workload.metadata;
    let [old_uid, new_uid] = CONTROLLER_UID_LABELS;
    let [old_name, new_name] = JOB_NAME_LABELS;
    let labels = &spec.template.metadata.labels;
    let uid = metadata.uid.as_str();
    let expected = [
        (old_uid, uid),
        (old_name, metadata.name.as_str()),
        (new_uid, uid),
        (new_name, metadata.name.as_str()),
    ];
    for (label, value) in expected {
        let path = entry("spec.template.metadata.labels", label);
        let detail = format!("must be '{value}'");
        match labels.get(label) {
            None => errors.push(FieldError::required(path, detail)),
            Some(found) if found == value => {}
            Some(_) => errors.push(FieldError::invalid(path, json!(labels), detail)),
        }
    }
    let made = expected.map(|(label, value)| (label.to_owned(), value.to_owned()));
    if !written.selector.matches(&made.into()) {
        let detail = "`selector` not auto-generated";
        errors.push(FieldError::invalid("spec.selector", written.json(), detail));
    }
}

/// Checks that the pods of an indexed Job can have their names as host names.
fn pod_names(errors: &mut Vec<FieldError>, spec: &JobSpec, workload: &Workload) {
    let Some(completions) = spec.completions.filter(|it| spec.is_indexed() && *it > 0) else {
        return;
    };
    let name = workload.metadata.name.as_str();
    let last = format!("{name}-{}", completions - 1);
    if !is_dns_label(&last).is_empty() {
        let detail = format!("will not able to create pod with invalid DNS label: {last}");
        errors.push(FieldError::invalid("metadata.name", name, detail));
    }
}

/// Adds the errors of a Job's spec at `path`, except those of its selector.
pub(super) fn validate_spec(
    errors: &mut Vec<FieldError>,
    spec: &JobSpec,
    workload: &Workload,
    raw: &Value,
    path: &str,
) {
    numbers(errors, spec, path);
    if let Some(manager) = &spec.managed_by {
        manager_name(errors, manager, &child(path, "managedBy"));
    }
    completion_mode(errors, spec, path);
    if let Some(policy) = &spec.pod_failure_policy {
        exit_codes::validate(errors, policy, spec, &child(path, "podFailurePolicy"));
    }
    if let Some(policy) = &spec.success_policy {
        let path = child(path, "successPolicy");
        match spec.is_indexed() {
            true => success::validate(errors, policy, spec.completions, &path),
            false => {
                let value = raw["successPolicy"].clone();
                errors.push(FieldError::invalid(path, value, INDEXED_ONLY));
            }
        }
    }
    replacement_policy(errors, spec, &child(path, "podReplacementPolicy"));
    let template = child(path, "template");
    template::validate(errors, workload, &template);
    restart_policy(errors, spec, &child(&template, "spec.restartPolicy"));
}

fn numbers(errors: &mut Vec<FieldError>, spec: &JobSpec, path: &str) {
    let mut check = |field: &str, number: Option<i64>| {
        if let Some(number) = number {
            not_negative(errors, &child(path, field), number);
        }
    };
    let wide = |number: Option<i32>| number.map(i64::from);
    check("parallelism", wide(spec.parallelism));
    check("completions", wide(spec.completions));
    check("activeDeadlineSeconds", spec.active_deadline_seconds);
    check("backoffLimit", wide(spec.backoff_limit));
    check(
        "ttlSecondsAfterFinished",
        wide(spec.ttl_seconds_after_finished),
    );
    check("backoffLimitPerIndex", wide(spec.backoff_limit_per_index));
    check("maxFailedIndexes", wide(spec.max_failed_indexes));
    if spec.max_failed_indexes.is_some() && spec.backoff_limit_per_index.is_none() {
        let detail = "when maxFailedIndexes is specified";
        let path = child(path, "backoffLimitPerIndex");
        errors.push(FieldError::required(path, detail));
    }
}

fn manager_name(errors: &mut Vec<FieldError>, name: &str, path: &str) {
    match name.split_once('/') {
        _ if name.is_empty() => errors.push(FieldError::required(path, "")),
        Some((host, rest)) if !host.is_empty() && !rest.is_empty() => {
            named(errors, path, host, is_dns_subdomain);
            if !rest.bytes().all(is_of_path) {
                errors.push(FieldError::invalid(path, rest, PATH_FORM));
            }
        }
        _ => {
            let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            errors.push(FieldError::invalid(path, name, detail));
        }
    }
    if name.len() > LONGEST_MANAGER {
        errors.push(FieldError::too_long(path, LONGEST_MANAGER));
    }
}

fn is_of_path(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte)
}

const INDEXED_ONLY: &str = "requires indexed completion mode";

fn completion_mode(errors: &mut Vec<FieldError>, spec: &JobSpec, path: &str) {
    match spec.completion_mode.as_deref() {
        Some("Indexed") => indexed(errors, spec, path),
        None | Some("NonIndexed") => {
            let mut refuse = |field: &str, number: Option<i32>| {
                let error = |number| FieldError::invalid(child(path, field), number, INDEXED_ONLY);
                errors.extend(number.map(error));
            };
            refuse("backoffLimitPerIndex", spec.backoff_limit_per_index);
            refuse("maxFailedIndexes", spec.max_failed_indexes);
        }
        Some(other) => {
            let known = ["NonIndexed", "Indexed"];
            let path = child(path, "completionMode");
            errors.push(FieldError::not_supported(path, other, &known));
        }
    }
}

fn indexed(errors: &mut Vec<FieldError>, spec: &JobSpec, path: &str) {
    if spec.completions.is_none() {
        let detail = "when completion mode is Indexed";
        errors.push(FieldError::required(child(path, "completions"), detail));
    }
    let mut most = |field: &str, number: Option<i32>, most: i32, detail: String| {
        if let Some(number) = number.filter(|number| *number > most) {
            errors.push(FieldError::invalid(child(path, field), number, detail));
        }
    };
    let (parallelism, failed) = (spec.parallelism, spec.max_failed_indexes);
    let detail =
        format!("must be less than or equal to {MOST_PARALLEL} when completion mode is Indexed");
    most("parallelism", parallelism, MOST_PARALLEL, detail);
    let detail = "must be less than or equal to completions".to_owned();
    let completions = spec.completions.unwrap_or(i32::MAX);
    most("maxFailedIndexes", failed, completions, detail);
    let detail = format!("must be less than or equal to {MOST_FAILED}");
    most("maxFailedIndexes", failed, MOST_FAILED, detail);
    let has_many = spec
        .completions
        .is_some_and(|completions| completions > MANY);
    if !has_many || spec.backoff_limit_per_index.is_none() {
        return;
    }
    let detail = format!(
        "must be less than or equal to {LIMIT_OF_MANY} when completions are above {MANY} and used with backoff limit per index"
    );
    most("parallelism", parallelism, LIMIT_OF_MANY, detail.clone());
    most("maxFailedIndexes", failed, LIMIT_OF_MANY, detail);
    if failed.is_none() {
        let detail = format!("must be specified when completions is above {MANY}");
        errors.push(FieldError::required(
            child(path, "maxFailedIndexes"),
            detail,
        ));
    }
}

fn replacement_policy(errors: &mut Vec<FieldError>, spec: &JobSpec, path: &str) {
    let known: &[&str] = match spec.pod_failure_policy.is_some() {
        true => &["Failed"],
        false => &["Failed", "TerminatingOrFailed"],
    };
    let policy = spec.pod_replacement_policy.as_deref();
    if let Some(policy) = policy.filter(|policy| !known.contains(policy)) {
        errors.push(FieldError::not_supported(path, policy, known));
    }
}

fn restart_policy(errors: &mut Vec<FieldError>, spec: &JobSpec, path: &str) {
    match spec.template.spec.restart_policy {
        RestartPolicy::Always => {
            let detail = "valid values: \"OnFailure\", \"Never\"";
            errors.push(FieldError::required(path, detail));
        }
        RestartPolicy::OnFailure if spec.pod_failure_policy.is_some() => {
            let detail = "only \"Never\" is supported when podFailurePolicy is specified";
            errors.push(FieldError::invalid(path, "OnFailure", detail));
        }
        RestartPolicy::OnFailure | RestartPolicy::Never => {}
    }
}
