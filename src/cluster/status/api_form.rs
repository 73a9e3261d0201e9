//! The status object that a kubelet would send, made from podprobe's own status.
//!
//! Invariants: the form is the form that the API server stores, so that a status which was accepted does not differ
//! from the API server's copy afterwards.

use serde_json::{Value, json};

use super::{Object, PodView};
use crate::api::conditions::is_kubelets;

/// Largest user or group id that the API server takes.
const MAX_ID: u64 = i32::MAX as u64;

/// Lists of container statuses in a pod status.
pub(super) const CONTAINER_LISTS: [&str; 3] = [
    "initContainerStatuses",
    "containerStatuses",
    "ephemeralContainerStatuses",
];

/// Makes the status that a kubelet would send. Conditions that belong to others are left out, because the API server
/// has the valid ones.
pub fn api_form(pod: &PodView) -> Object {
    let Ok(Value::Object(mut form)) = serde_json::to_value(pod.status) else {
        return Object::new();
    };
    // The API server keeps the generation that a mirror pod had, and a kubelet sends none for it.
    let generation = pod.generation.filter(|_| !pod.mirror);
    conditions(&mut form, generation);
    for list in CONTAINER_LISTS {
        for container in items(&mut form, list) {
            container_status(container);
        }
    }
    if let Some(generation) = generation {
        form.insert("observedGeneration".into(), generation.into());
    }
    if let [primary, ..] = pod.host_ips {
        let ips: Vec<Value> = pod.host_ips.iter().map(|ip| json!({"ip": ip})).collect();
        form.insert("hostIP".into(), primary.as_str().into());
        form.insert("hostIPs".into(), ips.into());
    }
    form
}

/// Returns the objects in a list of an object.
pub(super) fn items<'a>(
    object: &'a mut Object,
    list: &str,
) -> impl Iterator<Item = &'a mut Object> + use<'a> {
    let list = object.get_mut(list).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// True if the condition is set by the node alone.
pub(super) fn is_owned(condition: &Value) -> bool {
    let type_ = condition["type"].as_str().unwrap_or_default();
    is_kubelets(type_) && !is_shared(condition)
}

/// True if the condition is set by the node and by the control plane.
pub(super) fn is_shared(condition: &Value) -> bool {
    condition["type"] == "DisruptionTarget"
}

/// Brings the conditions into the API server's form. The key goes with the last condition: the API server fails on an
/// empty list where it has no conditions.
fn conditions(form: &mut Object, generation: Option<i64>) {
    let Some(list) = form.get_mut("conditions").and_then(Value::as_array_mut) else {
        return;
    };
    list.retain(|condition| is_owned(condition) || is_shared(condition));
    if list.is_empty() {
        form.remove("conditions");
        return;
    }
    for condition in items(form, "conditions") {
        condition.insert("lastProbeTime".into(), Value::Null);
        if let Some(generation) = generation {
            condition.insert("observedGeneration".into(), generation.into());
        }
    }
}

/// Brings the status of one container into the API server's form.
fn container_status(container: &mut Object) {
    for state in ["state", "lastState"] {
        let ended = container
            .get_mut(state)
            .and_then(|s| s.get_mut("terminated"));
        if let Some(Value::Object(ended)) = ended {
            ended.entry("startedAt").or_insert(Value::Null);
            ended.entry("finishedAt").or_insert(Value::Null);
        }
    }
    if let Some(Value::Object(resources)) = container.get_mut("resources") {
        resources.retain(|_, value| !is_empty(value));
    }
    user(container);
}

/// Takes out what the API server refuses in `user.linux`. It would refuse the whole status. Without a user that can be
/// shown, the field goes: a missing uid would mean 0.
fn user(container: &mut Object) {
    let fits = |id: &Value| id.as_u64().is_some_and(|id| id <= MAX_ID);
    let Some(user) = container.get_mut("user") else {
        return;
    };
    let Some(linux) = user.get_mut("linux").and_then(Value::as_object_mut) else {
        return;
    };
    let groups = linux.get_mut("supplementalGroups");
    if let Some(groups) = groups.and_then(Value::as_array_mut) {
        groups.retain(fits);
    }
    linux.retain(|_, value| !is_empty(value));
    if !["uid", "gid"]
        .iter()
        .all(|id| linux.get(*id).is_some_and(fits))
    {
        container.remove("user");
    }
}

/// True for an empty text, list or object, and for null.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
        _ => false,
    }
}
