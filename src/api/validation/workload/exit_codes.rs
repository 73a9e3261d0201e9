//! Validates `podFailurePolicy` of Jobs.

use std::collections::HashSet;

use serde_json::json;

use super::super::checks::named;
use super::super::names::is_qualified_name;
use crate::api::field::{FieldError, child, item};
use crate::api::workload::{
    ExitCodes, JobSpec, PodConditionPattern, PodFailurePolicy, PodFailureRule,
};

const MOST_RULES: usize = 20;
const MOST_VALUES: usize = 255;
const MOST_PATTERNS: usize = 20;
const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
const OPERATORS: [&str; 2] = ["In", "NotIn"];
const STATUSES: [&str; 3] = ["False", "True", "Unknown"];

/// Adds the errors of the policy at `path` in the Job `job`.
pub(super) fn validate(
    errors: &mut Vec<FieldError>,
    policy: &PodFailurePolicy,
    job: &JobSpec,
    path: &str,
) {
    let path = child(path, "rules");
    if policy.rules.len() > MOST_RULES {
        errors.push(FieldError::too_many(&path, policy.rules.len(), MOST_RULES));
    }
    for (index, of) in policy.rules.iter().enumerate() {
        rule(errors, of, job, &item(&path, index));
    }
}

fn rule(errors: &mut Vec<FieldError>, rule: &PodFailureRule, job: &JobSpec, path: &str) {
    let action = child(path, "action");
    match rule.action.as_str() {
        "FailIndex" if job.backoff_limit_per_index.is_none() => {
            let detail = "requires the backoffLimitPerIndex to be set";
            errors.push(FieldError::invalid(action, "FailIndex", detail));
        }
        word => word_of(errors, word, &ACTIONS, &action),
    }
    if let Some(codes) = &rule.on_exit_codes {
        exit_codes(errors, codes, job, &child(path, "onExitCodes"));
    }
    let patterns = &rule.on_pod_conditions;
    conditions(errors, patterns, &child(path, "onPodConditions"));
    let why = match (rule.on_exit_codes.is_some(), !patterns.is_empty()) {
        (true, true) => "specifying both OnExitCodes and OnPodConditions is not supported",
        (false, false) => "specifying one of OnExitCodes and OnPodConditions is required",
        _ => return,
    };
    errors.push(FieldError {
        value: None,
        ..FieldError::invalid(path, "", why)
    });
}

/// Checks that a word is there and is a known one.
fn word_of(errors: &mut Vec<FieldError>, word: &str, known: &[&str], path: &str) {
    if word.is_empty() {
        let words: Vec<String> = known.iter().map(|word| format!("\"{word}\"")).collect();
        let detail = format!("valid values: [{}]", words.join(" "));
        errors.push(FieldError::required(path, detail));
    } else if !known.contains(&word) {
        errors.push(FieldError::not_supported(path, word, known));
    }
}

fn exit_codes(errors: &mut Vec<FieldError>, codes: &ExitCodes, job: &JobSpec, path: &str) {
    word_of(
        errors,
        &codes.operator,
        &OPERATORS,
        &child(path, "operator"),
    );
    let name = codes.container_name.as_deref();
    if let Some(name) = name.filter(|name| job.template.spec.find(name).is_none()) {
        let detail = "must be one of the container or initContainer names in the pod template";
        let path = child(path, "containerName");
        errors.push(FieldError::invalid(path, name, detail));
    }
    let (path, values) = (child(path, "values"), &codes.values);
    if values.is_empty() {
        let detail = "at least one value is required";
        errors.push(FieldError::invalid(&path, json!(values), detail));
    } else if values.len() > MOST_VALUES {
        errors.push(FieldError::too_many(&path, values.len(), MOST_VALUES));
    }
    let mut seen = HashSet::new();
    for (index, value) in values.iter().enumerate() {
        let path = item(&path, index);
        if codes.operator == "In" && *value == 0 {
            let detail = "must not be 0 for the In operator";
            errors.push(FieldError::invalid(&path, 0, detail));
        }
        if !seen.insert(value) {
            errors.push(FieldError::duplicate(&path, *value));
        }
    }
    if !values.is_sorted() {
        errors.push(FieldError::invalid(&path, json!(values), "must be ordered"));
    }
}

fn conditions(errors: &mut Vec<FieldError>, patterns: &[PodConditionPattern], path: &str) {
    if patterns.len() > MOST_PATTERNS {
        errors.push(FieldError::too_many(path, patterns.len(), MOST_PATTERNS));
    }
    for (index, pattern) in patterns.iter().enumerate() {
        let path = item(path, index);
        named(
            errors,
            &child(&path, "type"),
            &pattern.type_,
            is_qualified_name,
        );
        word_of(errors, &pattern.status, &STATUSES, &child(&path, "status"));
    }
}
