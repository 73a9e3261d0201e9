//! The wanted status of a pod put over the status that the API server has (kubelet-probes 9.7).
//!
//! Invariants: what belongs to others stays as the API server has it. The API server checks almost nothing of what a
//! node sends, so the rules of a phase are kept here: a terminal phase stays, and it is not shown while a container may
//! run.

use serde_json::Value;

use super::api_form::{is_owned, is_shared, items};
use super::{Object, PodView, WorkerStage, is_terminal};
use crate::api::pod::{PodSpec, RestartPolicy};
use crate::base::clock::Time;
use crate::pods::actions::{may_restart_all, should_restart_after};

/// Fields of a status that the node sets. A field of this list that the node has no value for goes.
const OWNED: [&str; 9] = [
    "phase",
    "reason",
    "message",
    "podIP",
    "podIPs",
    "initContainerStatuses",
    "containerStatuses",
    "ephemeralContainerStatuses",
    "conditions",
];

/// Fields that the node sets and that stay as the API server has them while the node has no value.
const KEPT: [&str; 4] = ["qosClass", "hostIP", "hostIPs", "observedGeneration"];

/// Tells whether the API server has set a deletion timestamp on the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// The pod stays.
    None,
    /// The pod is being deleted.
    Requested,
}

impl Deletion {
    /// Reads the state of an API object.
    pub fn of(object: &Value) -> Self {
        match &object["metadata"]["deletionTimestamp"] {
            Value::Null => Self::None,
            _ => Self::Requested,
        }
    }
}

/// The refusal of a status in which a container runs again after it had ended for good. The API server refuses such a
/// status with 422, so it is not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the status of the pod is not sent: container {container} ended for good and cannot run again; a status with another state of it will be sent"
)]
pub struct Revived {
    /// Name of the container.
    pub container: String,
}

/// Puts `form`, the pod's status as [`super::api_form()`] makes it, over `present`, the status of the API server.
///
/// `now` becomes the transition time of a condition that changes here.
///
/// # Errors
/// Returns the container that the API server would not let run again.
pub fn merge(
    pod: &PodView,
    mut form: Object,
    present: &Object,
    deletion: Deletion,
    now: Time,
) -> Result<Object, Revived> {
    if let Some(container) = revived(pod.spec, present, &form) {
        return Err(Revived { container });
    }
    let terminal = settle_phase(pod, &mut form, present, deletion);
    merge_conditions(&mut form, present, terminal.as_deref(), now);
    let mut merged = present.clone();
    for field in OWNED {
        match form.remove(field) {
            Some(value) => merged.insert(field.into(), value),
            None => merged.remove(field),
        };
    }
    for field in KEPT {
        if let Some(value) = form.remove(field) {
            merged.insert(field.into(), value);
        }
    }
    // The start time is set once and never changes, also by a node that has lost its own record of it.
    if let Some(start) = form.remove("startTime") {
        merged.entry("startTime").or_insert(start);
    }
    Ok(merged)
}

/// Decides phase, reason and message. Returns the terminal phase that the pod has or will have, if there is one.
fn settle_phase(
    pod: &PodView,
    form: &mut Object,
    present: &Object,
    deletion: Deletion,
) -> Option<String> {
    let running = pod.stage == WorkerStage::Running;
    let ended = is_terminal(form.get("phase"));
    if !ended && !pod.mirror && !running && deletion == Deletion::Requested {
        form.insert("phase".into(), last_phase(pod.spec, form).into());
    }
    // A static pod may run again after an eviction, with the same UID (deviations: evicted-pods-come-back).
    let stays = is_terminal(present.get("phase")) && !pod.mirror;
    let phase = if stays { present } else { &*form };
    let phase = phase.get("phase").filter(|phase| is_terminal(Some(phase)));
    let terminal = phase.and_then(Value::as_str).map(str::to_owned);
    if stays || (ended && running) {
        for field in ["phase", "reason", "message"] {
            form.remove(field);
            if let Some(value) = present.get(field) {
                form.insert(field.into(), value.clone());
            }
        }
    }
    terminal
}

/// Returns the terminal phase of a deleted pod whose containers have stopped: Succeeded if each container has ended with
/// exit code 0, else Failed.
fn last_phase(spec: &PodSpec, form: &Object) -> &'static str {
    let exits_0 = |list: &str, name: &str| {
        let statuses = form.get(list).and_then(Value::as_array);
        let mut statuses = statuses.into_iter().flatten();
        statuses.any(|c| c["name"] == name && c["state"]["terminated"]["exitCode"] == 0)
    };
    let plain = spec.init_containers.iter().filter(|c| !c.always_restarts());
    let mut init = plain.map(|c| exits_0("initContainerStatuses", &c.name));
    let regular = spec.containers.iter();
    let mut regular = regular.map(|c| exits_0("containerStatuses", &c.name));
    if init.all(|ok| ok) && regular.all(|ok| ok) {
        "Succeeded"
    } else {
        "Failed"
    }
}

/// Puts the conditions of others before those of the node, and keeps the scheduler's condition. At a terminal phase the
/// pod is not ready, whatever the node's status says. A condition that the node shares with others is sent with a terminal
/// phase alone, as by a kubelet.
fn merge_conditions(form: &mut Object, present: &Object, terminal: Option<&str>, now: Time) {
    let before = present.get("conditions").and_then(Value::as_array);
    let before = before.map_or(&[][..], Vec::as_slice);
    if let Some(Value::Array(own)) = form.get_mut("conditions") {
        own.retain(|c| terminal.is_some() || !is_shared(c));
    }
    for condition in items(form, "conditions") {
        let type_ = condition.get("type").cloned().unwrap_or_default();
        let before = before.iter().find(|c| c["type"] == type_);
        match (type_.as_str(), terminal) {
            (Some("PodScheduled"), _) => keep_scheduled(condition, before),
            (Some("Ready" | "ContainersReady"), Some(phase)) => not_ready(condition, phase, now),
            _ => {}
        }
        fill_in(condition, before, now);
    }
    let own = match form.remove("conditions") {
        Some(Value::Array(own)) => own,
        _ => Vec::new(),
    };
    let is_of_others = |c: &&Value| {
        let is_own = own.iter().any(|own| own["type"] == c["type"]);
        !(is_owned(c) || is_shared(c) && is_own)
    };
    let mut all: Vec<Value> = before.iter().filter(is_of_others).cloned().collect();
    all.extend(own);
    let scheduled = |c: &&Value| c["type"] == "PodScheduled";
    if !all.iter().any(|c| scheduled(&c)) {
        all.extend(before.iter().find(scheduled).cloned());
    }
    if !all.is_empty() {
        form.insert("conditions".into(), all.into());
    }
}

/// Replaces the node's PodScheduled by the scheduler's. Only the generation is the node's.
fn keep_scheduled(condition: &mut Object, before: Option<&Value>) {
    let Some(Value::Object(before)) = before else {
        return;
    };
    let generation = condition.remove("observedGeneration");
    *condition = before.clone();
    if let Some(generation) = generation {
        condition.insert("observedGeneration".into(), generation);
    }
}

/// Makes a condition False because the pod has ended.
fn not_ready(condition: &mut Object, phase: &str, now: Time) {
    let reason = match phase {
        "Succeeded" => "PodCompleted",
        _ => "PodFailed",
    };
    if condition.get("status").is_some_and(|s| s != "False") {
        condition.insert("status".into(), "False".into());
        condition.insert("lastTransitionTime".into(), now.to_string().into());
    }
    condition.insert("reason".into(), reason.into());
    condition.remove("message");
}

/// Fills in what the node does not know of a condition. The API server's generation stays, as the API server itself
/// keeps it. A missing transition time becomes the API server's, or `now` if the status differs.
fn fill_in(condition: &mut Object, before: Option<&Value>, now: Time) {
    let generation = before.map_or(&Value::Null, |b| &b["observedGeneration"]);
    if !generation.is_null() {
        let known = condition.entry("observedGeneration");
        known.or_insert_with(|| generation.clone());
    }
    let unchanged = before.filter(|b| Some(&b["status"]) == condition.get("status"));
    let time = condition.entry("lastTransitionTime").or_insert(Value::Null);
    if time.is_null() {
        let known = unchanged.map(|b| b["lastTransitionTime"].clone());
        *time = known.unwrap_or_else(|| now.to_string().into());
    }
}

/// Finds a container that has ended for good in the API server's status and has another state in the wanted status.
fn revived(spec: &PodSpec, present: &Object, form: &Object) -> Option<String> {
    if spec.restart_policy == RestartPolicy::Always || may_restart_all(spec) {
        return None;
    }
    super::api_form::CONTAINER_LISTS.iter().find_map(|list| {
        let before = present.get(*list).and_then(Value::as_array);
        let after = form.get(*list).and_then(Value::as_array);
        let lives = |name: &str| {
            let mut after = after.into_iter().flatten();
            after.any(|c| c["name"] == name && c["state"]["terminated"].is_null())
        };
        let mut before = before.into_iter().flatten();
        let found = before.find(|c| {
            let name = c["name"].as_str().unwrap_or_default();
            ended_for_good(spec, name, c) && lives(name)
        });
        found.and_then(|c| c["name"].as_str()).map(str::to_owned)
    })
}

/// True if a container has ended and its policy does not let it run again. A sidecar always may run again.
fn ended_for_good(spec: &PodSpec, name: &str, status: &Value) -> bool {
    let Some(container) = spec.find(name).map(|found| found.container) else {
        return false;
    };
    let code = status["state"]["terminated"]["exitCode"].as_i64();
    let code = code.and_then(|code| i32::try_from(code).ok());
    code.is_some_and(|code| !should_restart_after(spec.restart_policy, container, code))
}
