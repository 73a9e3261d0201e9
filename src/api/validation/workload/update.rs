//! The fields of a workload that may not change (workloads 1.10, 5.11, 6.16).
//!
//! Invariant: what counts is the meaning, and not the text: an empty map equals a missing one, and labels have no order.

use serde_json::{Value, json};

use crate::api::field::FieldError;
use crate::api::workload::{JobSpec, PodTemplate, StatefulSetSpec, Workload, WorkloadSpec};

const IMMUTABLE: &str = "field is immutable";
const SET_FIELDS: &str = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";

/// Returns an error for each field that `new` changes and that may not change once `old` is there. Both have the same
/// key.
pub fn validate_update(new: &Workload, old: &Workload) -> Vec<FieldError> {
    let mut changes = Changes {
        raw: new.raw.value(),
        errors: Vec::new(),
    };
    match (&new.spec, &old.spec) {
        (WorkloadSpec::Deployment(new), WorkloadSpec::Deployment(old)) => {
            changes.field("selector", new.selector == old.selector);
        }
        (WorkloadSpec::ReplicaSet(new), WorkloadSpec::ReplicaSet(old)) => {
            changes.field("selector", new.selector == old.selector);
        }
        (WorkloadSpec::DaemonSet(new), WorkloadSpec::DaemonSet(old)) => {
            changes.field("selector", new.selector == old.selector);
        }
        (WorkloadSpec::StatefulSet(new), WorkloadSpec::StatefulSet(of_old)) => {
            changes.stateful_set(new, of_old, &old.raw.value());
        }
        (WorkloadSpec::Job(new), WorkloadSpec::Job(old)) => changes.job(new, old),
        _ => {}
    }
    changes.errors
}

struct Changes {
    /// The new object, for the values in errors.
    raw: Value,
    errors: Vec<FieldError>,
}

impl Changes {
    /// Adds the error of a field of the spec unless the field is the same as before.
    fn field(&mut self, field: &str, is_same: bool) {
        if !is_same {
            let value = self.raw["spec"][field].clone();
            let path = format!("spec.{field}");
            self.errors
                .push(FieldError::invalid(path, value, IMMUTABLE));
        }
    }

    /// Adds one error for all fields of a StatefulSet that may not change, as the API does, and names them.
    fn stateful_set(&mut self, new: &StatefulSetSpec, old: &StatefulSetSpec, old_raw: &Value) {
        let claims = |raw: &Value| claims(&raw["spec"]["volumeClaimTemplates"]);
        let fields = [
            ("selector", new.selector == old.selector),
            ("serviceName", new.service_name == old.service_name),
            (
                "podManagementPolicy",
                new.pod_management_policy == old.pod_management_policy,
            ),
            ("volumeClaimTemplates", claims(&self.raw) == claims(old_raw)),
        ];
        let changed = fields.iter().filter(|(_, is_same)| !is_same);
        let changed: Vec<String> = changed.map(|(field, _)| format!("'{field}'")).collect();
        if !changed.is_empty() {
            let detail = format!("{SET_FIELDS}; changed: {}", changed.join(", "));
            self.errors.push(FieldError::forbidden("spec", detail));
        }
    }

    fn job(&mut self, new: &JobSpec, old: &JobSpec) {
        self.completions(new, old);
        self.field("selector", new.selector == old.selector);
        // A suspended Job has no pods, so its template may still change.
        let may_change = old.is_suspended();
        self.field(
            "template",
            may_change || is_same(&new.template, &old.template),
        );
        self.field("completionMode", new.completion_mode == old.completion_mode);
        self.field(
            "podFailurePolicy",
            new.pod_failure_policy == old.pod_failure_policy,
        );
        let limits = (new.backoff_limit_per_index, old.backoff_limit_per_index);
        self.field("backoffLimitPerIndex", limits.0 == limits.1);
        self.field("managedBy", new.managed_by == old.managed_by);
        self.field("successPolicy", new.success_policy == old.success_policy);
    }

    /// Checks the completions. Those of an indexed Job may change together with its parallelism.
    fn completions(&mut self, new: &JobSpec, old: &JobSpec) {
        let is_same = new.completions == old.completions;
        if !new.is_indexed() {
            self.field("completions", is_same);
        } else if let Some(completions) = new.completions.filter(|_| !is_same)
            && Some(completions) != new.parallelism
        {
            let detail = "can only be modified in tandem with spec.parallelism";
            self.errors
                .push(FieldError::invalid("spec.completions", completions, detail));
        }
    }
}

/// True if both templates make the same pods.
fn is_same(new: &PodTemplate, old: &PodTemplate) -> bool {
    let metadata = |template: &PodTemplate| {
        (
            template.metadata.labels.clone(),
            template.metadata.annotations.clone(),
        )
    };
    new.spec == old.spec && metadata(new) == metadata(old)
}

/// Returns what makes the claims: of each template its name, labels, annotations and spec, without empty values.
fn claims(templates: &Value) -> Vec<Value> {
    let templates = templates.as_array().into_iter().flatten();
    let claim = |template: &Value| {
        let metadata = &template["metadata"];
        let mut claim = json!({
            "name": metadata["name"],
            "labels": metadata["labels"],
            "annotations": metadata["annotations"],
            "spec": template["spec"],
        });
        // Clusters add the default mode.
        if claim["spec"]["volumeMode"] == "Filesystem" {
            claim["spec"]["volumeMode"] = Value::Null;
        }
        drop_empty(&mut claim);
        claim
    };
    templates.map(claim).collect()
}

fn drop_empty(value: &mut Value) {
    if let Value::Object(map) = value {
        map.values_mut().for_each(drop_empty);
        map.retain(|_, member| !is_empty(member));
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}
