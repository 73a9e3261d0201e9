//! What a real API server refuses of what a node sends, as it was recorded (docs/kubelet-probes 9.7–9.11).

use serde_json::{Value, json};

/// A refusal: its code, and its sentence.
pub(super) type Refusal = (u16, String);

/// Checks the body of a PATCH of a pod's status against the pod that is there.
pub(super) fn status_patch(pod: &Value, patch: &Value) -> Result<(), Refusal> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let invalid = |why: String| Err((422, format!("Pod \"{name}\" is invalid: {why}")));
    let uid = &patch["metadata"]["uid"];
    if uid != &pod["metadata"]["uid"] {
        return invalid(format!(
            "metadata.uid: Invalid value: {uid}: field is immutable"
        ));
    }
    let status = &patch["status"];
    let is_empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
    if is_empty(&status["conditions"]) && is_empty(&status["$setElementOrder/conditions"]) {
        return Err((500, "no elements in any of the given slices".to_owned()));
    }
    for (kind, value) in [
        ("conditions", "lastTransitionTime"),
        ("conditions", "lastProbeTime"),
    ] {
        for item in status[kind].as_array().into_iter().flatten() {
            let time = item[value].as_str();
            if time.is_some_and(|time| !time.ends_with('Z')) {
                return invalid(format!("status.{kind}: {value} has no zone"));
            }
        }
    }
    for (index, user) in users(status) {
        if user
            .as_i64()
            .is_some_and(|id| !(0..=0x7fff_ffff).contains(&id))
        {
            return invalid(format!(
                "status.containerStatuses[{index}].user.linux.uid: must be between 0 and 2147483647"
            ));
        }
    }
    Ok(())
}

fn users(status: &Value) -> impl Iterator<Item = (usize, &Value)> {
    let statuses = status["containerStatuses"].as_array().into_iter().flatten();
    statuses
        .map(|status| &status["user"]["linux"]["uid"])
        .enumerate()
}

/// Checks the status of a pod after a patch against the one before.
pub(super) fn new_status(before: &Value, after: &Value) -> Result<(), Refusal> {
    let name = after["metadata"]["name"].as_str().unwrap_or_default();
    let invalid = |why: String| Err((422, format!("Pod \"{name}\" is invalid: {why}")));
    let host_ips = after["status"]["hostIPs"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    if host_ips
        .first()
        .is_some_and(|ip| ip["ip"] != after["status"]["hostIP"])
    {
        return invalid("status.hostIPs[0].ip: must be equal to `hostIP`".to_owned());
    }
    let policy = after["spec"]["restartPolicy"].as_str().unwrap_or("Always");
    let state =
        |pod: &Value, index: usize| pod["status"]["containerStatuses"][index]["state"].clone();
    for index in 0..after["status"]["containerStatuses"]
        .as_array()
        .map_or(0, Vec::len)
    {
        let (old, new) = (state(before, index), state(after, index));
        let has_ended = old.get("terminated").is_some_and(|ended| {
            policy == "Never" || policy == "OnFailure" && ended["exitCode"] == 0
        });
        if has_ended && new.get("terminated").is_none() {
            return invalid(format!(
                "status.containerStatuses[{index}].state: Forbidden: may not be transitioned to non-terminated state"
            ));
        }
    }
    let generation = after["status"]["observedGeneration"].as_i64().unwrap_or(0);
    match generation < 0 {
        true => invalid("status.observedGeneration: must be non-negative".to_owned()),
        false => Ok(()),
    }
}

/// Checks a mirror pod that the node `node` creates.
pub(super) fn mirror_pod(node: &Value, pod: &Value) -> Result<(), Refusal> {
    let forbidden = |why: &str| {
        Err((
            403,
            format!("pods {} is forbidden: {why}", pod["metadata"]["name"]),
        ))
    };
    let metadata = &pod["metadata"];
    if metadata["annotations"]["kubernetes.io/config.mirror"].is_null() {
        return forbidden("pod does not have \"kubernetes.io/config.mirror\" annotation");
    }
    if pod["spec"]["nodeName"] != node["metadata"]["name"] {
        return forbidden("node can only create pods with spec.nodeName set to itself");
    }
    let owner = &metadata["ownerReferences"][0];
    let is_owned = owner["kind"] == "Node"
        && owner["uid"] == node["metadata"]["uid"]
        && owner["controller"] == true
        && owner["blockOwnerDeletion"].is_null();
    if !is_owned {
        return forbidden("pod does not have the owner reference of its node");
    }
    if pod["spec"]["serviceAccountName"].is_string() {
        return forbidden("can not create pods that reference serviceaccounts");
    }
    Ok(())
}

/// Checks an event.
pub(super) fn event(namespace: &str, event: &Value) -> Result<(), Refusal> {
    let invalid = |why: &str| Err((422, format!("Event is invalid: {why}")));
    let name = event["metadata"]["name"].as_str().unwrap_or_default();
    if name.is_empty() || name.contains('/') {
        return invalid("metadata.name: Required value");
    }
    let of = event["involvedObject"]["namespace"]
        .as_str()
        .unwrap_or_default();
    let fits = match of {
        "" => namespace == "default",
        of => of == namespace,
    };
    match fits {
        true => Ok(()),
        false => invalid("involvedObject.namespace: does not match event.namespace"),
    }
}

/// Checks a Lease against the one that is there.
pub(super) fn lease(old: Option<&Value>, new: &Value) -> Result<(), Refusal> {
    let renew_time = new["spec"]["renewTime"].as_str().unwrap_or_default();
    let digits = renew_time.split_once('.').map(|(_, rest)| rest);
    if digits.is_none_or(|rest| rest.len() != 7 || !rest.ends_with('Z')) {
        return Err((
            400,
            format!("parsing time {renew_time:?}: cannot parse as \".000000\""),
        ));
    }
    let owners = new["metadata"]["ownerReferences"]
        .as_array()
        .map_or(0, Vec::len);
    if owners != 1 {
        return Err((422, "a lease has exactly one owner, its node".to_owned()));
    }
    let Some(old) = old else { return Ok(()) };
    match &new["metadata"]["resourceVersion"] {
        Value::Null => Err((
            422,
            "metadata.resourceVersion: must be specified for an update".to_owned(),
        )),
        version if version != &old["metadata"]["resourceVersion"] => Err((
            409,
            "the object has been modified; please apply your changes".to_owned(),
        )),
        _ => Ok(()),
    }
}

/// Checks the status of the Node.
pub(super) fn node_status(node: &Value) -> Result<(), Refusal> {
    let features = node["status"]["declaredFeatures"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let names: Vec<&str> = features.iter().filter_map(Value::as_str).collect();
    if !names.is_sorted() {
        return Err((
            422,
            "status.declaredFeatures: list must be sorted alphabetically".to_owned(),
        ));
    }
    for name in ["cpu", "memory", "pods", "ephemeral-storage"] {
        for list in ["capacity", "allocatable"] {
            if !node["status"][list][name].is_string() {
                return Err((422, format!("status.{list}.{name}: Required value")));
            }
        }
    }
    Ok(())
}

/// A `Status` with a refusal.
pub(super) fn status_of((code, message): &Refusal) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "code": code})
}
