//! Validates `successPolicy` of indexed Jobs.

use super::super::checks::not_negative;
use super::indexes;
use crate::api::field::{FieldError, child, item};
use crate::api::workload::{SuccessPolicy, SuccessRule};

const MOST_RULES: usize = 20;
const LONGEST_INDEXES: usize = 64 * 1024;

/// Adds the errors of the policy at `path`. Without `completions`, which has its own error, no index is too large.
pub(super) fn validate(
    errors: &mut Vec<FieldError>,
    policy: &SuccessPolicy,
    completions: Option<i32>,
    path: &str,
) {
    let path = child(path, "rules");
    if policy.rules.is_empty() {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        errors.push(FieldError::required(&path, detail));
    } else if policy.rules.len() > MOST_RULES {
        errors.push(FieldError::too_many(&path, policy.rules.len(), MOST_RULES));
    }
    let completions = completions.unwrap_or(i32::MAX);
    for (index, of) in policy.rules.iter().enumerate() {
        rule(errors, of, completions, &item(&path, index));
    }
}

fn rule(errors: &mut Vec<FieldError>, rule: &SuccessRule, completions: i32, path: &str) {
    if rule.succeeded_count.is_none() && rule.succeeded_indexes.is_none() {
        let detail = "at least one of succeededCount or succeededIndexes must be specified";
        errors.push(FieldError::required(path, detail));
    }
    let mut indexes = None;
    if let Some(text) = &rule.succeeded_indexes {
        let path = child(path, "succeededIndexes");
        if text.len() > LONGEST_INDEXES {
            errors.push(FieldError::too_long(&path, LONGEST_INDEXES));
        }
        let counted = indexes::count(text, completions).unwrap_or_else(|error| {
            let detail = format!("error parsing succeededIndexes: {error}");
            errors.push(FieldError::invalid(&path, text.as_str(), detail));
            0
        });
        indexes = Some(counted);
    }
    if let Some(count) = rule.succeeded_count {
        let path = child(path, "succeededCount");
        not_negative(errors, &path, count);
        let mut at_most = |most: i32, what: &str| {
            if count > most {
                let detail = format!("must be less than or equal to {most} (the number of {what})");
                errors.push(FieldError::invalid(&path, count, detail));
            }
        };
        at_most(completions, "specified completions");
        if let Some(indexes) = indexes {
            at_most(indexes, "indexes in the specified succeededIndexes field");
        }
    }
}
