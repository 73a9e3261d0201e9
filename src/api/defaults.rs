//! The defaults of pods (kubelet-probes 1.1) and workloads (workloads 1.12). This module writes the defaults into the
//! raw object, so every reader of the object sees them.
//!
//! Invariant: never fails and never panics. A value of the wrong shape is left alone, because the decoder refuses it.
//! Applying the defaults twice changes nothing more.

mod workloads;

use serde_json::{Map, Value, json};

pub use workloads::apply_to_workload;

type Object = Map<String, Value>;

/// Adds the defaults to a v1 Pod.
pub fn apply(pod: &mut Value) {
    apply_to_template(pod);
    let Some(spec) = spec_of(pod) else {
        return;
    };
    let host_network = spec.get("hostNetwork").and_then(Value::as_bool);
    for list in ["containers", "initContainers"] {
        for container in objects(spec, list) {
            default_requests(container);
            if host_network.unwrap_or_default() {
                default_host_ports(container);
            }
        }
    }
}

/// Adds the defaults to a template of pods. Only a pod has defaults for requests and host ports; a template has none
/// (pkg/apis/core/v1/defaults.go: SetDefaults_Pod).
pub fn apply_to_template(template: &mut Value) {
    let Some(spec) = spec_of(template) else {
        return;
    };
    default_text(spec, "restartPolicy", "Always");
    default_text(spec, "dnsPolicy", "ClusterFirst");
    default_text(spec, "schedulerName", "default-scheduler");
    for (key, value) in [
        ("terminationGracePeriodSeconds", json!(30)),
        ("securityContext", json!({})),
        ("enableServiceLinks", json!(true)),
    ] {
        spec.entry(key).or_insert(value);
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        objects(spec, list).for_each(default_container);
    }
    for volume in objects(spec, "volumes") {
        // A volume that has only a name has no source.
        if volume.keys().all(|key| key == "name") {
            volume.insert("emptyDir".into(), json!({}));
        }
        default_volume(volume);
    }
}

/// Returns the spec of an object. An object without a spec gets an empty one.
fn spec_of(object: &mut Value) -> Option<&mut Object> {
    let object = object.as_object_mut()?;
    let spec = object.entry("spec").or_insert_with(|| json!({}));
    spec.as_object_mut()
}

/// Adds the defaults of a volume: the permission bits of files (0644), the API version of fields, the life of a token, and
/// the pull policy of an image.
fn default_volume(volume: &mut Object) {
    if let Some(image) = volume.get_mut("image").and_then(Value::as_object_mut) {
        default_pull_policy(image, "reference", "pullPolicy");
    }
    for source in ["configMap", "secret", "downwardAPI", "projected"] {
        let Some(source) = volume.get_mut(source).and_then(Value::as_object_mut) else {
            continue;
        };
        source.entry("defaultMode").or_insert(json!(0o644));
        objects(source, "items").for_each(default_field_ref);
        for projection in objects(source, "sources") {
            if let Some(fields) = projection
                .get_mut("downwardAPI")
                .and_then(Value::as_object_mut)
            {
                objects(fields, "items").for_each(default_field_ref);
            }
            let token = projection.get_mut("serviceAccountToken");
            if let Some(token) = token.and_then(Value::as_object_mut) {
                default_number(token, "expirationSeconds", 3600);
            }
        }
    }
}

fn default_field_ref(owner: &mut Object) {
    if let Some(field) = owner.get_mut("fieldRef").and_then(Value::as_object_mut) {
        default_text(field, "apiVersion", "v1");
    }
}

/// Iterates over the objects in the list `list` of `owner`.
fn objects<'v>(owner: &'v mut Object, list: &str) -> impl Iterator<Item = &'v mut Object> {
    owner
        .get_mut(list)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
}

fn default_text(owner: &mut Object, key: &str, text: &str) {
    if owner.get(key).is_none_or(|value| value == "") {
        owner.insert(key.into(), text.into());
    }
}

/// Sets the number if the field is missing. An explicit 0 counts as missing too.
fn default_number(owner: &mut Object, key: &str, number: i64) {
    if owner.get(key).is_none_or(|value| *value == json!(0)) {
        owner.insert(key.into(), number.into());
    }
}

fn default_pull_policy(owner: &mut Object, image: &str, policy: &str) {
    let named = owner.get(image).and_then(Value::as_str);
    let default = match pulls_always(named.unwrap_or_default()) {
        true => "Always",
        false => "IfNotPresent",
    };
    default_text(owner, policy, default);
}

fn default_container(container: &mut Object) {
    default_pull_policy(container, "image", "imagePullPolicy");
    default_text(container, "terminationMessagePath", "/dev/termination-log");
    default_text(container, "terminationMessagePolicy", "File");
    for variable in objects(container, "env") {
        if let Some(from) = variable.get_mut("valueFrom").and_then(Value::as_object_mut) {
            default_field_ref(from);
        }
    }
    for port in objects(container, "ports") {
        default_text(port, "protocol", "TCP");
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(probe).and_then(Value::as_object_mut) {
            default_probe(probe);
        }
    }
    if let Some(lifecycle) = container
        .get_mut("lifecycle")
        .and_then(Value::as_object_mut)
    {
        for hook in ["postStart", "preStop"] {
            lifecycle
                .get_mut(hook)
                .and_then(Value::as_object_mut)
                .into_iter()
                .for_each(default_http);
        }
    }
}

fn default_probe(probe: &mut Object) {
    default_number(probe, "timeoutSeconds", 1);
    default_number(probe, "periodSeconds", 10);
    default_number(probe, "successThreshold", 1);
    default_number(probe, "failureThreshold", 3);
    default_http(probe);
    if let Some(grpc) = probe.get_mut("grpc").and_then(Value::as_object_mut) {
        grpc.entry("service").or_insert_with(|| json!(""));
    }
}

/// Adds the defaults of `httpGet` in a probe or a lifecycle hook.
fn default_http(owner: &mut Object) {
    if let Some(http) = owner.get_mut("httpGet").and_then(Value::as_object_mut) {
        default_text(http, "path", "/");
        default_text(http, "scheme", "HTTP");
    }
}

/// True if the image's tag is `latest`, or if the image has neither a tag nor a digest.
fn pulls_always(image: &str) -> bool {
    let (named, digest) = image
        .split_once('@')
        .map_or((image, false), |(named, _)| (named, true));
    // A colon before the last slash belongs to the registry's port.
    match named
        .rsplit('/')
        .next()
        .and_then(|last| last.split_once(':'))
    {
        Some((_, tag)) => tag == "latest",
        None => !digest,
    }
}

fn default_host_ports(container: &mut Object) {
    for port in objects(container, "ports") {
        if let Some(number) = port.get("containerPort").and_then(Value::as_i64) {
            default_number(port, "hostPort", number);
        }
    }
}

fn default_requests(container: &mut Object) {
    let Some(resources) = container
        .get_mut("resources")
        .and_then(Value::as_object_mut)
    else {
        return;
    };
    let Some(limits) = resources
        .get("limits")
        .and_then(Value::as_object)
        .filter(|limits| !limits.is_empty())
        .cloned()
    else {
        return;
    };
    if let Some(requests) = resources
        .entry("requests")
        .or_insert_with(|| json!({}))
        .as_object_mut()
    {
        for (name, limit) in limits {
            requests.entry(name).or_insert(limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(given: Value, pointer: &str, expected: Value) {
        let mut pod = given;
        apply(&mut pod);
        assert_eq!(
            pod.pointer(pointer),
            Some(&expected).filter(|v| !v.is_null()),
            "{pointer}"
        );
        let once = pod.clone();
        apply(&mut pod);
        assert_eq!(pod, once, "twice is once");
    }

    fn container(container: Value) -> Value {
        json!({"spec": {"containers": [container]}})
    }

    #[test]
    fn a_pod_has_its_defaults() {
        for (key, expected) in [
            ("restartPolicy", json!("Always")),
            ("dnsPolicy", json!("ClusterFirst")),
            ("schedulerName", json!("default-scheduler")),
            ("terminationGracePeriodSeconds", json!(30)),
            ("securityContext", json!({})),
            ("enableServiceLinks", json!(true)),
        ] {
            check(json!({}), &format!("/spec/{key}"), expected);
        }
        let given = json!({"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "enableServiceLinks": false}});
        check(given.clone(), "/spec/restartPolicy", json!("Never"));
        check(
            given.clone(),
            "/spec/terminationGracePeriodSeconds",
            json!(0),
        );
        check(given, "/spec/enableServiceLinks", json!(false));
    }

    #[test]
    fn the_pull_policy_follows_the_tag() {
        for (image, policy) in [
            ("app", "Always"),
            ("app:latest", "Always"),
            ("app:1.2", "IfNotPresent"),
            ("localhost:5000/app", "Always"),
            ("localhost:5000/app:1", "IfNotPresent"),
            ("app@sha256:00", "IfNotPresent"),
            ("app:latest@sha256:00", "Always"),
        ] {
            check(
                container(json!({"image": image})),
                "/spec/containers/0/imagePullPolicy",
                json!(policy),
            );
            check(
                json!({"spec": {"volumes": [{"name": "v", "image": {"reference": image}}]}}),
                "/spec/volumes/0/image/pullPolicy",
                json!(policy),
            );
        }
        let never = json!({"reference": "app", "pullPolicy": "Never"});
        check(
            json!({"spec": {"volumes": [{"name": "v", "image": never}]}}),
            "/spec/volumes/0/image/pullPolicy",
            json!("Never"),
        );
        check(
            container(json!({"image": "app", "imagePullPolicy": "Never"})),
            "/spec/containers/0/imagePullPolicy",
            json!("Never"),
        );
    }

    #[test]
    fn d9_every_probe_of_every_kind_of_container_has_its_defaults() {
        for list in ["containers", "initContainers", "ephemeralContainers"] {
            for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
                let given = json!({"spec": {list: [{probe: {"httpGet": {"port": 80}, "grpc": {}, "timeoutSeconds": 0, "failureThreshold": -1}}]}});
                let at = |field: &str| format!("/spec/{list}/0/{probe}/{field}");
                check(given.clone(), &at("timeoutSeconds"), json!(1));
                check(given.clone(), &at("periodSeconds"), json!(10));
                check(given.clone(), &at("successThreshold"), json!(1));
                check(given.clone(), &at("failureThreshold"), json!(-1));
                check(given.clone(), &at("initialDelaySeconds"), Value::Null);
                check(
                    given.clone(),
                    &at("terminationGracePeriodSeconds"),
                    Value::Null,
                );
                check(given.clone(), &at("httpGet/path"), json!("/"));
                check(given.clone(), &at("httpGet/scheme"), json!("HTTP"));
                check(given, &at("grpc/service"), json!(""));
            }
        }
        check(
            container(json!({"livenessProbe": {"failureThreshold": 0}})),
            "/spec/containers/0/livenessProbe/failureThreshold",
            json!(3),
        );
    }

    #[test]
    fn containers_ports_requests_and_volumes_have_theirs() {
        check(
            container(json!({})),
            "/spec/containers/0/terminationMessagePath",
            json!("/dev/termination-log"),
        );
        check(
            container(json!({})),
            "/spec/containers/0/terminationMessagePolicy",
            json!("File"),
        );
        check(
            container(json!({"ports": [{"containerPort": 80}]})),
            "/spec/containers/0/ports/0/protocol",
            json!("TCP"),
        );
        check(
            container(json!({"ports": [{"containerPort": 80}]})),
            "/spec/containers/0/ports/0/hostPort",
            Value::Null,
        );
        let given = json!({"spec": {"hostNetwork": true, "containers": [{"ports": [{"containerPort": 80}, {"containerPort": 81, "hostPort": 9}]}]}});
        check(
            given.clone(),
            "/spec/containers/0/ports/0/hostPort",
            json!(80),
        );
        check(given, "/spec/containers/0/ports/1/hostPort", json!(9));
        let given = container(
            json!({"resources": {"limits": {"cpu": "1", "memory": "2"}, "requests": {"cpu": "500m"}}}),
        );
        check(
            given,
            "/spec/containers/0/resources/requests",
            json!({"cpu": "500m", "memory": "2"}),
        );
        check(
            json!({"spec": {"volumes": [{"name": "v"}]}}),
            "/spec/volumes/0/emptyDir",
            json!({}),
        );
        check(
            json!({"spec": {"volumes": [{"name": "v", "nfs": {}}]}}),
            "/spec/volumes/0/emptyDir",
            Value::Null,
        );
        let volume = json!({"name": "v", "secret": {"secretName": "s"},
            "downwardAPI": {"items": [{"fieldRef": {"fieldPath": "metadata.name"}}], "defaultMode": 256},
            "projected": {"sources": [{"downwardAPI": {"items": [{"fieldRef": {}}]}}]}});
        let given = json!({"spec": {"volumes": [volume]}});
        let at = |path: &str, expected| {
            check(given.clone(), &format!("/spec/volumes/0/{path}"), expected);
        };
        at("secret/defaultMode", json!(420));
        at("downwardAPI/defaultMode", json!(256));
        at("downwardAPI/items/0/fieldRef/apiVersion", json!("v1"));
        at("projected/defaultMode", json!(420));
        at(
            "projected/sources/0/downwardAPI/items/0/fieldRef/apiVersion",
            json!("v1"),
        );
        let hook = container(json!({"lifecycle": {"preStop": {"httpGet": {}}}}));
        check(
            hook,
            "/spec/containers/0/lifecycle/preStop/httpGet/path",
            json!("/"),
        );
    }

    #[test]
    fn a_wrong_shape_is_left_alone() {
        for wrong in [
            json!(3),
            json!({"spec": 5}),
            json!({"spec": {"containers": {"a": 1}, "volumes": [2]}}),
            container(json!({"livenessProbe": [], "ports": [1], "resources": {"limits": 1}})),
        ] {
            apply(&mut wrong.clone());
        }
    }
}
