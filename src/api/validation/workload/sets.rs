//! Validates Deployments, ReplicaSets, ReplicationControllers and DaemonSets (pkg/apis/apps/validation).

use serde_json::Value;

use super::super::checks::not_negative;
use super::selector::{self, Written};
use super::{rolling, template};
use crate::api::field::FieldError;
use crate::api::workload::{
    DaemonSetSpec, DeploymentSpec, LabelSelector, ReplicaSetSpec, Workload, WorkloadKind,
};

const SELECTOR: &str = "spec.selector";
const TEMPLATE: &str = "spec.template";

pub(super) fn deployment(
    errors: &mut Vec<FieldError>,
    spec: &DeploymentSpec,
    workload: &Workload,
    raw: &Value,
) {
    not_negative(errors, "spec.replicas", spec.replicas);
    selected_template(errors, &spec.selector, workload, raw);
    rolling::deployment(errors, &spec.strategy, "spec.strategy");
    not_negative(errors, "spec.minReadySeconds", spec.min_ready_seconds);
    not_negative(
        errors,
        "spec.revisionHistoryLimit",
        spec.revision_history_limit,
    );
    let deadline = spec.progress_deadline_seconds;
    let path = "spec.progressDeadlineSeconds";
    not_negative(errors, path, deadline);
    if deadline <= spec.min_ready_seconds {
        let detail = "must be greater than minReadySeconds";
        errors.push(FieldError::invalid(path, deadline, detail));
    }
}

pub(super) fn replica_set(
    errors: &mut Vec<FieldError>,
    spec: &ReplicaSetSpec,
    workload: &Workload,
    raw: &Value,
) {
    not_negative(errors, "spec.replicas", spec.replicas);
    not_negative(errors, "spec.minReadySeconds", spec.min_ready_seconds);
    selected_template(errors, &spec.selector, workload, raw);
}

/// Checks the selector and the template of a Deployment or a ReplicaSet. The template is not looked at if the selector
/// is not valid, as in the API. The API's text speaks of a deployment in both cases.
fn selected_template(
    errors: &mut Vec<FieldError>,
    selector: &LabelSelector,
    workload: &Workload,
    raw: &Value,
) {
    let written = Written {
        value: raw.get("selector"),
        selector,
    };
    let is_valid = required_selector(errors, &written, "deployment");
    if !is_valid {
        let detail = "invalid label selector";
        errors.push(FieldError::invalid(SELECTOR, written.json(), detail));
        return;
    }
    template::matches(errors, &written, workload.template(), TEMPLATE);
    template::validate(errors, workload, TEMPLATE);
    template::runs_forever(errors, workload.template(), workload.kind(), TEMPLATE);
}

/// Checks that there is a selector that selects something. Returns false if the selector is not valid. `what` is the
/// word for the workload.
pub(super) fn required_selector(
    errors: &mut Vec<FieldError>,
    written: &Written,
    what: &str,
) -> bool {
    if written.is_missing() {
        errors.push(FieldError::required(SELECTOR, ""));
    }
    let is_valid = selector::validate(errors, written.selector, SELECTOR);
    not_empty(errors, written, what);
    is_valid
}

fn not_empty(errors: &mut Vec<FieldError>, written: &Written, what: &str) {
    if !written.is_missing() && written.selector.is_empty() {
        let detail = format!("empty selector is invalid for {what}");
        errors.push(FieldError::invalid(SELECTOR, written.json(), detail));
    }
}

pub(super) fn replication_controller(
    errors: &mut Vec<FieldError>,
    spec: &ReplicaSetSpec,
    workload: &Workload,
    raw: &Value,
) {
    not_negative(errors, "spec.minReadySeconds", spec.min_ready_seconds);
    if spec.selector.is_empty() {
        errors.push(FieldError::required(SELECTOR, ""));
    }
    not_negative(errors, "spec.replicas", spec.replicas);
    if raw.get("template").is_none() {
        errors.push(FieldError::required(TEMPLATE, ""));
        return;
    }
    let written = Written {
        value: Some(raw),
        selector: &spec.selector,
    };
    template::matches(errors, &written, workload.template(), TEMPLATE);
    template::validate(errors, workload, TEMPLATE);
    template::runs_forever(errors, workload.template(), workload.kind(), TEMPLATE);
}

pub(super) fn daemon_set(
    errors: &mut Vec<FieldError>,
    spec: &DaemonSetSpec,
    workload: &Workload,
    raw: &Value,
) {
    let written = Written {
        value: raw.get("selector"),
        selector: &spec.selector,
    };
    // The API has no error of its own for a DaemonSet without a selector: it selects nothing.
    if selector::validate(errors, &spec.selector, SELECTOR) {
        template::matches(errors, &written, &spec.template, TEMPLATE);
    }
    not_empty(errors, &written, "daemonset");
    template::validate(errors, workload, TEMPLATE);
    template::runs_forever(errors, &spec.template, WorkloadKind::DaemonSet, TEMPLATE);
    not_negative(errors, "spec.minReadySeconds", spec.min_ready_seconds);
    rolling::daemon_set(errors, &spec.update_strategy, "spec.updateStrategy");
    not_negative(
        errors,
        "spec.revisionHistoryLimit",
        spec.revision_history_limit,
    );
}
