//! The identity that a source gives its pods (kubelet-probes 6.1): UID, name suffix, namespace, node.
//!
//! Invariant: pure. The same content from the same origin gives the same UID. Other content or another origin gives
//! another UID. Layout, key order, nulls and explicit defaults of the spec are not content: they decode to the same
//! pod.

use serde_json::{Map, Value, json};

use super::pod::Pod;
use super::source::{HASH_ANNOTATION, PodOrigin, PodSource, SEEN_ANNOTATION};
use super::workload::WorkloadKey;
use crate::base::pod_uid::PodUid;

/// Gives a static pod that already has its defaults a name suffix, namespace, node name, annotation, toleration and
/// phase, and a UID if the file gives none. A pod without a name stays without one, and validation refuses it. A pod
/// of the API server is not changed, because the server has already given the pod its identity.
pub fn apply(raw: &mut Value, origin: &PodOrigin) {
    let Some(uid_texts) = origin.uid_texts() else {
        return;
    };
    let uid = match raw.pointer("/metadata/uid").and_then(Value::as_str) {
        Some(uid) if !uid.is_empty() => uid.to_owned(),
        _ => derived_uid(raw, &uid_texts),
    };
    let metadata = object(raw, "metadata");
    metadata.insert("uid".into(), uid.clone().into());
    if let Some(name) = metadata
        .get("name")
        .and_then(Value::as_str)
        .filter(|name| !name.is_empty())
    {
        let name = static_name(name, origin.node_name());
        metadata.insert("name".into(), name.into());
    }
    if metadata
        .get("namespace")
        .and_then(Value::as_str)
        .is_none_or(str::is_empty)
    {
        metadata.insert("namespace".into(), "default".into());
    }
    object_in(metadata, "annotations").insert(HASH_ANNOTATION.into(), uid.into());
    let spec = object(raw, "spec");
    spec.insert("nodeName".into(), origin.node_name().into());
    if origin.source() == PodSource::File {
        tolerate_everything(spec);
    }
    object(raw, "status").insert("phase".into(), "Pending".into());
}

/// Returns the name of a static pod: `<name>-<node name in lower case>`.
pub fn static_name(name: &str, node_name: &str) -> String {
    format!("{name}-{}", node_name.to_lowercase())
}

/// Adds the toleration that keeps a static pod from being evicted by a NoExecute taint.
fn tolerate_everything(spec: &mut Map<String, Value>) {
    let exists = json!({"operator": "Exists", "effect": "NoExecute"});
    let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
    if !tolerations.is_array() {
        *tolerations = json!([]);
    }
    let Value::Array(tolerations) = tolerations else {
        return;
    };
    let text = |toleration: &Value, field: &str| {
        toleration
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let same = |a: &Value| {
        ["key", "operator", "effect", "value"]
            .iter()
            .all(|field| text(a, field) == text(&exists, field))
    };
    match tolerations.iter_mut().find(|t| same(t)) {
        Some(found) => *found = exists,
        None => tolerations.push(exists),
    }
}

fn object<'v>(value: &'v mut Value, key: &str) -> &'v mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    let Value::Object(map) = value else {
        unreachable!("made an object just above")
    };
    object_in(map, key)
}

fn object_in<'m>(map: &'m mut Map<String, Value>, key: &str) -> &'m mut Map<String, Value> {
    let slot = map.entry(key).or_insert_with(|| json!({}));
    if !slot.is_object() {
        *slot = json!({});
    }
    let Value::Object(inner) = slot else {
        unreachable!("made an object just above")
    };
    inner
}

/// Returns the UID for a pod whose file gives none: a hash of the pod and the texts of its origin, as 32 hex digits.
fn derived_uid(raw: &Value, uid_texts: &[String]) -> String {
    let mut hash = Fnv128::new();
    hash.value(raw);
    uid_texts.iter().for_each(|text| hash.text(text));
    format!("{:032x}", hash.0)
}

/// Returns the UID of a workload: a hash of its kind, its namespace and its name, as 32 hex digits. A restart of the
/// daemon, and a file that changes, leave the UID as it is, so the children keep their owner (workloads 1.3).
pub fn workload_uid(key: &WorkloadKey) -> PodUid {
    let mut hash = Fnv128::new();
    for text in ["workload", key.kind.as_str(), &key.namespace, &key.name] {
        hash.text(text);
    }
    format!("{:032x}", hash.0).as_str().into()
}

/// Returns a hash of the pod as its source gives it, as 32 hex digits. The hash changes with the content of the file
/// even if the file gives the UID.
pub fn content_hash(pod: &Pod) -> String {
    let mut raw = pod.raw.value();
    // The time at which the pod was first seen is left out, because it changes with each daemon.
    if let Some(annotations) = raw.pointer_mut("/metadata/annotations") {
        let annotations = annotations.as_object_mut();
        annotations.map(|all| all.remove(SEEN_ANNOTATION));
    }
    let mut hash = Fnv128::new();
    hash.value(&raw);
    format!("{:032x}", hash.0)
}

/// Returns a hash of the pod without its UID, as 32 hex digits. Pods of equal content have equal hashes, whether the
/// file gives the UID or not.
pub fn content_hash_without_uid(pod: &Pod) -> String {
    let mut raw = pod.raw.value();
    let metadata = raw.pointer_mut("/metadata").and_then(Value::as_object_mut);
    if let Some(metadata) = metadata {
        metadata.shift_remove("uid");
        let annotations = metadata
            .get_mut("annotations")
            .and_then(Value::as_object_mut);
        if let Some(all) = annotations {
            all.retain(|key, _| key != SEEN_ANNOTATION && key != HASH_ANNOTATION);
        }
    }
    let mut hash = Fnv128::new();
    hash.value(&raw);
    format!("{:032x}", hash.0)
}

/// FNV-1a hash with 128 bits.
struct Fnv128(u128);

impl Fnv128 {
    fn new() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte))
                .wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }

    /// Hashes the length of a text and then the text. So two texts have another hash than one text made of both.
    fn text(&mut self, text: &str) {
        self.write(&(text.len() as u64).to_le_bytes());
        self.write(text.as_bytes());
    }

    /// Hashes a value, with the keys of each object sorted by name.
    fn value(&mut self, value: &Value) {
        match value {
            Value::Object(map) => {
                let mut members: Vec<_> = map.iter().collect();
                members.sort_by_key(|(key, _)| *key);
                self.text(&format!("object {}", members.len()));
                for (key, member) in members {
                    self.text(key);
                    self.value(member);
                }
            }
            Value::Array(items) => {
                self.text(&format!("array {}", items.len()));
                items.iter().for_each(|item| self.value(item));
            }
            scalar => self.text(&scalar.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::api::workload::WorkloadKind;

    fn applied(pod: &Value, node: &str, path: &str) -> Value {
        let mut raw = pod.clone();
        apply(
            &mut raw,
            &PodOrigin::File {
                node_name: node,
                path: Path::new(path),
            },
        );
        raw
    }

    fn uid(pod: &Value, node: &str, path: &str) -> String {
        applied(pod, node, path)["metadata"]["uid"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    #[test]
    fn fnv_has_its_published_values() {
        for (text, expected) in [
            ("", "6c62272e07bb014262b821756295c58d"),
            ("a", "d228cb696f1a8caf78912b704e4a8964"),
            ("foobar", "343e1662793c64bf6f0d3597ba446f18"),
        ] {
            let mut hash = Fnv128::new();
            hash.write(text.as_bytes());
            assert_eq!(format!("{:032x}", hash.0), expected, "{text}");
        }
    }

    #[test]
    fn the_uid_of_a_workload_follows_from_its_key_alone() {
        let key = |kind, namespace: &str, name: &str| WorkloadKey {
            kind,
            namespace: namespace.into(),
            name: name.into(),
        };
        let web = key(WorkloadKind::Deployment, "default", "web");
        assert_eq!(workload_uid(&web), workload_uid(&web.clone()));
        assert_eq!(workload_uid(&web).as_str().len(), 32);
        for other in [
            key(WorkloadKind::DaemonSet, "default", "web"),
            key(WorkloadKind::Deployment, "shop", "web"),
            key(WorkloadKind::Deployment, "default", "db"),
            key(WorkloadKind::Deployment, "defaultw", "eb"),
        ] {
            assert_ne!(workload_uid(&web), workload_uid(&other), "{other}");
        }
    }

    #[test]
    fn the_same_pod_keeps_its_uid_and_any_change_makes_another() {
        let pod = json!({"metadata": {"name": "a", "labels": {"x": "1", "y": "2"}}, "spec": {"n": [1, 2]}});
        let base = uid(&pod, "n", "/p/a.json");
        assert_eq!(base.len(), 32);
        assert_eq!(base, uid(&pod, "n", "/p/a.json"));
        let reordered = json!({"spec": {"n": [1, 2]}, "metadata": {"labels": {"y": "2", "x": "1"}, "name": "a"}});
        assert_eq!(
            base,
            uid(&reordered, "n", "/p/a.json"),
            "key order is not content"
        );
        let changes = [
            json!({"metadata": {"name": "a", "labels": {"x": "1", "y": "3"}}, "spec": {"n": [1, 2]}}),
            json!({"metadata": {"name": "a", "labels": {"x": "2", "y": "1"}}, "spec": {"n": [1, 2]}}),
            json!({"metadata": {"name": "a", "labels": {"x": "1"}}, "spec": {"n": [1, 2]}}),
            json!({"metadata": {"name": "a", "labels": {"x": "1", "y": "2"}}, "spec": {"n": [2, 1]}}),
            json!({"metadata": {"name": "a", "labels": {"x": "1", "y": "2"}}, "spec": {"n": ["1", 2]}}),
            json!({"metadata": {"name": "a", "labels": {"x": "1", "y": "2"}, "uid": ""}, "spec": {"n": [1, 2]}}),
        ];
        let nested = [
            json!({"n": [[1], 2]}),
            json!({"n": [[1, 2]]}),
            json!({"n": [[1, 2], []]}),
        ]
        .map(|pod| uid(&pod, "n", "/p"));
        assert!(
            nested[0] != nested[1] && nested[1] != nested[2],
            "nesting is content"
        );
        let mut seen = vec![
            base,
            uid(&pod, "m", "/p/a.json"),
            uid(&pod, "n", "/p/b.json"),
        ];
        seen.extend(changes.iter().map(|pod| uid(pod, "n", "/p/a.json")));
        let all = seen.len();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), all, "each change has its own UID");
    }

    #[test]
    fn each_source_gives_its_own_identity() {
        let pod = json!({"metadata": {"name": "a"}});
        let from = |origin: PodOrigin| {
            let mut raw = pod.clone();
            apply(&mut raw, &origin);
            raw
        };
        let http = |node_name, url| from(PodOrigin::Http { node_name, url });
        let fetched = http("n", "http://a/");
        assert_eq!(fetched["metadata"]["name"], "a-n");
        assert_eq!(fetched["spec"].get("tolerations"), None, "6.1 step 6");
        let uid = |raw: &Value| raw["metadata"]["uid"].clone();
        assert_ne!(uid(&fetched), uid(&http("n", "http://b/")));
        assert_ne!(
            uid(&fetched),
            applied(&pod, "n", "http://a/")["metadata"]["uid"]
        );
        assert_eq!(from(PodOrigin::Api { node_name: "n" }), pod);
    }

    #[test]
    fn a_given_uid_stays_and_is_the_hash() {
        let pod = json!({"metadata": {"name": "a", "uid": "12345", "namespace": "ns", "annotations": {"k": "v"}}});
        let raw = applied(&pod, "Node1", "/p");
        assert_eq!(raw["metadata"]["uid"], "12345");
        assert_eq!(raw["metadata"]["name"], "a-node1");
        assert_eq!(raw["metadata"]["namespace"], "ns");
        assert_eq!(
            raw["metadata"]["annotations"],
            json!({"k": "v", "kubernetes.io/config.hash": "12345"})
        );
        assert_eq!(raw["spec"]["nodeName"], "Node1");
        assert_eq!(raw["status"]["phase"], "Pending");
    }

    #[test]
    fn a_nameless_pod_keeps_no_name_and_the_namespace_has_a_default() {
        let raw = applied(&json!({"metadata": {"namespace": ""}}), "n", "/p");
        assert!(raw["metadata"].get("name").is_none());
        assert_eq!(raw["metadata"]["namespace"], "default");
    }

    #[test]
    fn the_toleration_is_replaced_when_it_matches_and_else_appended() {
        let tolerations = |given: Value| {
            applied(&json!({"spec": {"tolerations": given}}), "n", "/p")["spec"]["tolerations"]
                .clone()
        };
        let exists = json!({"operator": "Exists", "effect": "NoExecute"});
        let other = json!({"key": "k", "operator": "Exists", "effect": "NoExecute"});
        assert_eq!(tolerations(json!([])), json!([exists]));
        assert_eq!(tolerations(json!([other])), json!([other, exists]));
        let seconds = json!({"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5});
        assert_eq!(tolerations(json!([seconds, other])), json!([exists, other]));
    }
}
