//! Validates the pod template of a workload.

use std::collections::BTreeMap;

use serde_json::json;

use super::super::validate_template;
use super::selector::Written;
use crate::api::field::{FieldError, child};
use crate::api::pod::{ClaimVolume, Pod, RestartPolicy, Volume};
use crate::api::raw_object::RawObject;
use crate::api::workload::{PodTemplate, StatefulSetSpec, Workload, WorkloadKind, WorkloadSpec};

/// Detail of the error that the selector does not select the pods of the template.
pub const SELECTOR_MISSES_TEMPLATE: &str = "`selector` does not match template `labels`";

/// Returns the pod that stands for the template when the template is checked. A StatefulSet gives its pods their host
/// names and claims, so its template is checked with these claims and without host names.
pub fn checked_pod(workload: &Workload) -> Pod {
    let template = workload.template();
    let mut pod = Pod {
        metadata: template.metadata.clone(),
        spec: template.spec.clone(),
        raw: RawObject::default(),
    };
    if let WorkloadSpec::StatefulSet(spec) = &workload.spec {
        give_identity(&mut pod, spec);
    }
    pod
}

fn give_identity(pod: &mut Pod, set: &StatefulSetSpec) {
    let spec = pod.spec_mut();
    spec.hostname.clear();
    spec.subdomain.clear();
    let claims = set.volume_claim_templates.iter();
    let claims: BTreeMap<&str, Volume> = claims
        .map(|claim| {
            (
                claim.metadata.name.as_str(),
                claim_volume(&claim.metadata.name),
            )
        })
        .collect();
    spec.volumes
        .retain(|volume| !claims.contains_key(volume.name.as_str()));
    spec.volumes.extend(claims.into_values());
}

fn claim_volume(name: &str) -> Volume {
    Volume {
        name: name.to_owned(),
        persistent_volume_claim: Some(ClaimVolume {
            claim_name: name.to_owned(),
            ..ClaimVolume::default()
        }),
        ..Volume::default()
    }
}

/// Adds the errors of the template at `path`, whatever its workload is.
pub(super) fn validate(errors: &mut Vec<FieldError>, workload: &Workload, path: &str) {
    let found = validate_template(&checked_pod(workload));
    errors.extend(found.into_iter().map(|error| FieldError {
        path: child(path, &error.path),
        ..error
    }));
}

/// Adds an error if the selector does not select the pods of the template at `path`.
pub(super) fn matches(
    errors: &mut Vec<FieldError>,
    selector: &Written,
    template: &PodTemplate,
    path: &str,
) {
    if selector.misses(&template.metadata) {
        let path = child(path, "metadata.labels");
        let labels = &template.metadata.labels;
        let labels = if labels.is_empty() {
            json!(null)
        } else {
            json!(labels)
        };
        errors.push(FieldError::invalid(path, labels, SELECTOR_MISSES_TEMPLATE));
    }
}

/// Adds the errors of a template whose pods run forever: they restart always, and have no deadline.
pub(super) fn runs_forever(
    errors: &mut Vec<FieldError>,
    template: &PodTemplate,
    kind: WorkloadKind,
    path: &str,
) {
    let spec = &template.spec;
    if spec.restart_policy != RestartPolicy::Always {
        let path = child(path, "spec.restartPolicy");
        errors.push(FieldError::not_supported(
            path,
            json!(spec.restart_policy),
            &["Always"],
        ));
    }
    if spec.active_deadline_seconds.is_some() {
        // The API checks a Deployment by the rules of its ReplicaSets, and names them.
        let kind = match kind {
            WorkloadKind::Deployment => WorkloadKind::ReplicaSet,
            kind => kind,
        };
        let path = child(path, "spec.activeDeadlineSeconds");
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.push(FieldError::forbidden(path, detail));
    }
}
