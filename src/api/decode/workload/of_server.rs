//! Removes from a workload what an API server has written into it, so that the output of `kubectl get -o yaml` is an
//! input.

use serde_json::{Map, Value};

use crate::api::workload::{CONTROLLER_UID_LABELS, WorkloadKind};

/// Removes the fields by which an API server says that an object is being deleted. Returns a warning for each, and one
/// for an object that belongs to another.
pub(super) fn drop_fields(raw: &mut Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let Some(metadata) = raw.get_mut("metadata").and_then(Value::as_object_mut) else {
        return warnings;
    };
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        if metadata.shift_remove(field).is_some() {
            warnings.push(format!(
                "metadata.{field}: not acted on: an object in a file is deleted by removing the file"
            ));
        }
    }
    let owners = metadata.get("ownerReferences").and_then(Value::as_array);
    let mut owners = owners.into_iter().flatten();
    if let Some(owner) = owners.find(|owner| owner["controller"] == true) {
        let text = |field: &str| owner[field].as_str().unwrap_or_default().to_owned();
        warnings.push(format!(
            "metadata.ownerReferences: not acted on: {} {} makes its own, so this object runs beside it: remove one of the two",
            text("kind"),
            text("name")
        ));
    }
    warnings
}

/// Removes the selector and the labels that a server has made for a Job. They have the UID of the Job in that cluster,
/// and the Job has another UID here.
pub(super) fn drop_selector(kind: WorkloadKind, raw: &mut Value) {
    let uid = raw.pointer("/metadata/uid").cloned().unwrap_or_default();
    if kind != WorkloadKind::Job || !uid.is_string() {
        return;
    }
    let maps = [
        "/spec/selector/matchLabels",
        "/spec/template/metadata/labels",
        "/metadata/labels",
    ];
    for map in maps {
        if let Some(map) = raw.pointer_mut(map).and_then(Value::as_object_mut) {
            drop_uid(map, &uid);
        }
    }
}

fn drop_uid(map: &mut Map<String, Value>, uid: &Value) {
    map.retain(|key, value| !CONTROLLER_UID_LABELS.contains(&key.as_str()) || value != uid);
}
