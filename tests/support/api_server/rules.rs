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

/// True if a pod refers to an object: a node may read the objects of its pods only.
fn refers(value: &Value, resource: &str, name: &str) -> bool {
    let (kinds, fields): (&[&str], &[&str]) = match resource {
        "configmaps" => (&["configMap", "configMapRef", "configMapKeyRef"], &["name"]),
        "persistentvolumeclaims" => (&["persistentVolumeClaim"], &["claimName"]),
        _ => (
            &["secret", "secretRef", "secretKeyRef", "imagePullSecrets"],
            &["name", "secretName"],
        ),
    };
    let names = |value: &Value| {
        let values = match value {
            Value::Array(values) => values.as_slice(),
            value => std::slice::from_ref(value),
        };
        values
            .iter()
            .any(|value| fields.iter().any(|field| value[*field] == name))
    };
    match value {
        Value::Object(map) => map.iter().any(|(key, value)| {
            kinds.contains(&key.as_str()) && names(value) || refers(value, resource, name)
        }),
        Value::Array(values) => values.iter().any(|value| refers(value, resource, name)),
        _ => false,
    }
}

/// Checks who asks: a service proxy may read what services are made of and nothing else, and a node
/// only the services of it.
pub(super) fn may_read_services(
    is_proxy: bool,
    method: &str,
    parts: &[&str],
) -> Result<(), Refusal> {
    let resource = parts.last().copied().unwrap_or_default();
    let user = match is_proxy {
        true => "system:kube-proxy",
        false => "system:node:edge",
    };
    let is_allowed = match is_proxy {
        true => {
            method == "GET" && ["services", "endpointslices", "servicecidrs"].contains(&resource)
        }
        false => !["endpointslices", "servicecidrs"].contains(&resource),
    };
    match is_allowed {
        true => Ok(()),
        false => Err((
            403,
            format!("{resource} is forbidden: User \"{user}\" cannot list resource \"{resource}\""),
        )),
    }
}

/// Checks that a node may read an object: by its name, and because one of its pods refers to it.
pub(super) fn read_by_node<'p>(
    mut pods: impl Iterator<Item = &'p Value>,
    resource: &str,
    namespace: &str,
    name: Option<&str>,
) -> Result<(), Refusal> {
    let Some(name) = name else {
        return Err((
            403,
            format!("{resource} is forbidden: a node cannot list all of them"),
        ));
    };
    let is_of_namespace = |pod: &Value| pod["metadata"]["namespace"] == namespace;
    match pods.any(|pod| is_of_namespace(pod) && refers(&pod["spec"], resource, name)) {
        true => Ok(()),
        false => Err((
            403,
            format!(
                "{resource} \"{name}\" is forbidden: no relationship found between node 'edge' and this object"
            ),
        )),
    }
}

/// Refuses a list or a watch of objects that a node reads one by one.
pub(super) fn only_one_by_one(resource: &str) -> Result<(), Refusal> {
    match resource {
        "persistentvolumeclaims" | "persistentvolumes" => Err((
            403,
            format!(
                "{resource} is forbidden: User \"system:node:edge\" cannot watch resource \"{resource}\" in API group \"\": \
                 can only get individual resources of this type"
            ),
        )),
        _ => Ok(()),
    }
}

/// Checks that a node may read a volume: one of its pods has a claim that is bound to it.
pub(super) fn read_volume_by_node<'p>(
    pods: &[&'p Value],
    mut claims: impl Iterator<Item = &'p Value>,
    name: &str,
) -> Result<(), Refusal> {
    let is_used = |claim: &Value| {
        let metadata = &claim["metadata"];
        let (namespace, claim) = (metadata["namespace"].as_str(), metadata["name"].as_str());
        let (Some(namespace), Some(claim)) = (namespace, claim) else {
            return false;
        };
        let pods = pods.iter().copied();
        read_by_node(pods, "persistentvolumeclaims", namespace, Some(claim)).is_ok()
    };
    match claims.any(|claim| claim["spec"]["volumeName"] == name && is_used(claim)) {
        true => Ok(()),
        false => Err((
            403,
            format!(
                "persistentvolumes \"{name}\" is forbidden: no relationship found between node 'edge' and this object"
            ),
        )),
    }
}

/// Checks a TokenRequest for a service account against the pod that it is bound to. `has_account` is true if the service
/// account exists.
pub(super) fn token(
    pod: Option<&Value>,
    account: &str,
    has_account: bool,
    request: &Value,
) -> Result<(), Refusal> {
    let forbidden = |why: String| {
        Err((
            403,
            format!("serviceaccounts \"{account}\" is forbidden: {why}"),
        ))
    };
    let bound = &request["spec"]["boundObjectRef"];
    if bound["kind"] != "Pod" || bound["name"].is_null() {
        return forbidden("node requested token not bound to a pod".to_owned());
    }
    let Some(pod) = pod else {
        return Err((404, format!("pod {} not found", bound["name"])));
    };
    if pod["metadata"]["uid"] != bound["uid"] {
        return forbidden(format!(
            "the UID in the bound object reference ({}) does not match the UID in record",
            bound["uid"].as_str().unwrap_or_default()
        ));
    }
    let volumes = pod["spec"]["volumes"].to_string();
    for audience in request["spec"]["audiences"]
        .as_array()
        .into_iter()
        .flatten()
    {
        if !volumes.contains(&format!("\"audience\":{audience}")) {
            return forbidden(format!("audience {audience} not found in pod spec volume"));
        }
    }
    if !has_account {
        return Err((404, format!("serviceaccounts \"{account}\" not found")));
    }
    match request["spec"]["expirationSeconds"].as_i64() {
        Some(600..=4_294_967_296) => Ok(()),
        _ => Err((
            422,
            "TokenRequest is invalid: spec.expirationSeconds: may not specify a duration less than 10 minutes"
                .to_owned(),
        )),
    }
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

/// The token of the service account `reader`.
pub(crate) const READER_TOKEN: &str = "token-of-the-reader";
/// The user of [`READER_TOKEN`].
pub(crate) const READER: &str = "system:serviceaccount:default:reader";

fn of_kind(review: &Value, kind: &str, group: &str) -> Result<(), Refusal> {
    let version = format!("{group}/v1");
    match review["kind"] == kind && review["apiVersion"] == version.as_str() {
        true => Ok(()),
        false => Err((400, format!("it is no {kind} of {version}"))),
    }
}

/// Reviews a token.
pub(super) fn token_review(review: &Value) -> Result<Value, Refusal> {
    of_kind(review, "TokenReview", "authentication.k8s.io")?;
    let token = review["spec"]["token"].as_str().unwrap_or_default();
    if token.is_empty() {
        return Err((422, "spec.token: Required value".to_owned()));
    }
    let mut reviewed = review.clone();
    reviewed["status"] = match token {
        READER_TOKEN => {
            json!({"authenticated": true, "user": {"username": READER, "uid": "uid-of-reader",
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "extra": {"authentication.kubernetes.io/credential-id": ["JTI=1"]}}})
        }
        _ => json!({"user": {}, "error": "invalid bearer token"}),
    };
    Ok(reviewed)
}

/// Reviews an access to a node. A user of `system:masters` may do everything.
pub(super) fn access_review(review: &Value, grants: &[[String; 3]]) -> Result<Value, Refusal> {
    of_kind(review, "SubjectAccessReview", "authorization.k8s.io")?;
    let spec = &review["spec"];
    let attributes = &spec["resourceAttributes"];
    if attributes["resource"] != "nodes" || attributes["version"] != "v1" {
        return Err((400, format!("no access to a node: {attributes}")));
    }
    let user = spec["user"].as_str().unwrap_or_default();
    if user.is_empty() {
        return Err((422, "spec.user: Required value".to_owned()));
    }
    // The UID that the TokenReview has said is handed on.
    if (user == READER) != (spec["uid"] == "uid-of-reader") {
        return Err((400, format!("{user} has another uid than {}", spec["uid"])));
    }
    let groups = spec["groups"].as_array();
    let is_master = groups.is_some_and(|groups| groups.contains(&"system:masters".into()));
    let is_granted = grants.iter().any(|[name, verb, subresource]| {
        user == name && attributes["verb"] == **verb && attributes["subresource"] == **subresource
    });
    let mut reviewed = review.clone();
    reviewed["status"] = json!({"allowed": is_master || is_granted});
    Ok(reviewed)
}

/// A `Status` with a refusal.
pub(super) fn status_of((code, message): &Refusal) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "code": code})
}
