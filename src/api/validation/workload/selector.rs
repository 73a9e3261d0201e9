//! Validates label selectors (apimachinery pkg/apis/meta/v1/validation: ValidateLabelSelector).

use serde_json::Value;

use super::super::checks::named;
use super::super::names::{is_qualified_name, is_valid_label_value};
use crate::api::field::{FieldError, child, item};
use crate::api::pod::ObjectMeta;
use crate::api::workload::{LabelSelector, SelectorRequirement};

/// A selector as the file has it: None if the file has no selector.
pub(super) struct Written<'w> {
    pub(super) value: Option<&'w Value>,
    pub(super) selector: &'w LabelSelector,
}

impl Written<'_> {
    pub(super) fn is_missing(&self) -> bool {
        self.value.is_none()
    }

    /// Returns the selector as JSON, for errors that show it.
    pub(super) fn json(&self) -> Value {
        self.value.cloned().unwrap_or_default()
    }

    /// True if the selector does not select pods with these labels. A selector that is missing selects nothing, and
    /// an empty one selects everything.
    pub(super) fn misses(&self, metadata: &ObjectMeta) -> bool {
        self.is_missing() || !self.selector.matches(&metadata.labels)
    }
}

/// Adds the errors of the selector at `path`. Returns false if the selector is not valid.
pub(super) fn validate(errors: &mut Vec<FieldError>, selector: &LabelSelector, path: &str) -> bool {
    let before = errors.len();
    let at = child(path, "matchLabels");
    for (key, value) in &selector.match_labels {
        named(errors, &at, key, is_qualified_name);
        named(errors, &at, value, is_valid_label_value);
    }
    for (index, condition) in selector.match_expressions.iter().enumerate() {
        requirement(
            errors,
            condition,
            &item(&child(path, "matchExpressions"), index),
        );
    }
    errors.len() == before
}

fn requirement(errors: &mut Vec<FieldError>, condition: &SelectorRequirement, path: &str) {
    let values = child(path, "values");
    match condition.operator.as_str() {
        "In" | "NotIn" if condition.values.is_empty() => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(FieldError::required(&values, detail));
        }
        "Exists" | "DoesNotExist" if !condition.values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(&values, detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => {
            let detail = "not a valid selector operator";
            errors.push(FieldError::invalid(child(path, "operator"), other, detail));
        }
    }
    named(
        errors,
        &child(path, "key"),
        &condition.key,
        is_qualified_name,
    );
    for (index, value) in condition.values.iter().enumerate() {
        named(errors, &item(&values, index), value, is_valid_label_value);
    }
}
