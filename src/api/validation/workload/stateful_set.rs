//! Validates StatefulSets (pkg/apis/apps/validation: ValidateStatefulSetSpec).

use serde_json::Value;

use super::super::checks::{named, not_negative};
use super::super::names::is_dns_label;
use super::selector::Written;
use super::sets::required_selector;
use super::{claims, rolling, template};
use crate::api::field::FieldError;
use crate::api::workload::{StatefulSetSpec, StatefulSetUpdateStrategy, Workload, WorkloadKind};

/// Adds the errors of the spec. `is_update` is true for a set that takes the place of another: what may not change was
/// checked when the set was made.
pub(super) fn validate(
    errors: &mut Vec<FieldError>,
    spec: &StatefulSetSpec,
    workload: &Workload,
    raw: &Value,
    is_update: bool,
) {
    let policy = spec.pod_management_policy.as_str();
    if !["OrderedReady", "Parallel"].contains(&policy) {
        let detail = "must be 'OrderedReady' or 'Parallel'";
        errors.push(FieldError::invalid(
            "spec.podManagementPolicy",
            policy,
            detail,
        ));
    }
    update_strategy(errors, &spec.update_strategy, &raw["updateStrategy"]);
    retention(errors, spec);
    if !is_update {
        claims::validate(errors, &raw["volumeClaimTemplates"]);
    }
    not_negative(errors, "spec.replicas", spec.replicas);
    not_negative(errors, "spec.minReadySeconds", spec.min_ready_seconds);
    if let Some(ordinals) = &spec.ordinals {
        not_negative(errors, "spec.ordinals.start", ordinals.start);
    }
    if !is_update && !spec.service_name.is_empty() {
        named(errors, "spec.serviceName", &spec.service_name, is_dns_label);
    }
    selected_template(errors, spec, workload, raw);
    template::runs_forever(
        errors,
        &spec.template,
        WorkloadKind::StatefulSet,
        "spec.template",
    );
}

fn update_strategy(
    errors: &mut Vec<FieldError>,
    strategy: &StatefulSetUpdateStrategy,
    raw: &Value,
) {
    let path = "spec.updateStrategy.rollingUpdate";
    match (strategy.type_.as_str(), &strategy.rolling_update) {
        ("OnDelete", Some(_)) => {
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            errors.push(FieldError::invalid(
                path,
                raw["rollingUpdate"].clone(),
                detail,
            ));
        }
        ("RollingUpdate", Some(limits)) => rolling::stateful_set(errors, limits, path),
        ("OnDelete" | "RollingUpdate", None) => {}
        (other, _) => {
            let detail = "must be 'RollingUpdate' or 'OnDelete'";
            errors.push(FieldError::invalid("spec.updateStrategy", other, detail));
        }
    }
}

fn retention(errors: &mut Vec<FieldError>, spec: &StatefulSetSpec) {
    let Some(policy) = &spec.persistent_volume_claim_retention_policy else {
        return;
    };
    let both = [
        ("whenDeleted", &policy.when_deleted),
        ("whenScaled", &policy.when_scaled),
    ];
    for (field, word) in both {
        let known = ["Retain", "Delete"];
        if !known.contains(&word.as_str()) {
            let path = format!("spec.persistentVolumeClaimRetentionPolicy.{field}");
            errors.push(FieldError::not_supported(path, word.as_str(), &known));
        }
    }
}

fn selected_template(
    errors: &mut Vec<FieldError>,
    spec: &StatefulSetSpec,
    workload: &Workload,
    raw: &Value,
) {
    let written = Written {
        value: raw.get("selector"),
        selector: &spec.selector,
    };
    if required_selector(errors, &written, "statefulset") {
        template::matches(errors, &written, &spec.template, "spec.template");
        template::validate(errors, workload, "spec.template");
    } else {
        errors.push(FieldError::invalid("spec.selector", written.json(), ""));
    }
}
