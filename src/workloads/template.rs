//! Templates of pods: when two are equal, the hash of one, and the pod that is made from one.
//!
//! Invariants: only what was written decides, with today's defaults put on both sides. So an upgrade of podprobe that
//! adds a default starts no rollout (workloads 1.7). A pod has the template's labels, annotations, finalizers and spec,
//! and nothing else of its metadata (workloads 1.4).

use std::cell::OnceCell;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::names::fnv1a_32;
use super::record::{Owner, seconds};
use crate::api::defaults;
use crate::api::quantity::Quantity;
use crate::api::raw_object::RawObject;

pub use super::controller_revisions::REVISION_LABEL;
pub use super::deployment::POD_TEMPLATE_HASH as TEMPLATE_HASH_LABEL;

/// Returns the canonical text of a template: sorted keys, defaults filled in, empty values left out, quantities by
/// value, without the hash label.
pub fn canonical(written: &Value) -> String {
    let mut pod = json!({"metadata": kept_metadata(written), "spec": written["spec"]});
    defaults::apply(&mut pod);
    if let Some(labels) = pod.pointer_mut("/metadata/labels") {
        labels
            .as_object_mut()
            .map(|labels| labels.shift_remove(TEMPLATE_HASH_LABEL));
    }
    sorted(pod, "").to_string()
}

/// True if two templates are equal.
pub fn are_equal(a: &Value, b: &Value) -> bool {
    a == b || canonical(a) == canonical(b)
}

/// A template that is sought among the templates of revisions. Revisions are many, so the canonical text of
/// one is made only if its fingerprint is that of the wanted one.
pub struct SoughtTemplate<'a> {
    written: &'a RawObject,
    canonical: OnceCell<String>,
}

impl<'a> SoughtTemplate<'a> {
    /// Begins the search for a template.
    pub fn new(written: &'a RawObject) -> Self {
        Self {
            written,
            canonical: OnceCell::new(),
        }
    }

    /// Returns the canonical text.
    pub fn canonical(&self) -> &str {
        self.canonical
            .get_or_init(|| canonical(&self.written.value()))
    }

    /// True if another template has the same text, and so is equal.
    pub fn has_text_of(&self, other: &RawObject) -> bool {
        self.written.text() == other.text()
    }

    /// True if the template equals another.
    pub fn is(&self, other: &RawObject) -> bool {
        let of = |canonical: &str| fnv1a_32(canonical.bytes());
        let wanted = self.written.fingerprint(|_| of(self.canonical()));
        wanted == other.fingerprint(|other| of(&canonical(other)))
            && self.canonical() == canonical(&other.value())
    }
}

/// Returns a short text that differs between templates of different texts, as a key.
pub fn text_key(written: &RawObject) -> String {
    format!("{:08x}", fnv1a_32(written.text().bytes()))
}

/// Returns the labels, annotations and finalizers of a template.
fn kept_metadata(template: &Value) -> Value {
    let metadata = &template["metadata"];
    let kept = ["labels", "annotations", "finalizers"];
    let kept = kept
        .into_iter()
        .filter_map(|key| Some((key.to_owned(), metadata.get(key)?.clone())));
    Value::Object(kept.collect())
}

/// Returns the value with sorted keys and without empty members. `key` is the key under which the value stands.
fn sorted(value: Value, key: &str) -> Value {
    match value {
        Value::Object(map) => {
            let is_amounts = ["limits", "requests", "overhead"].contains(&key);
            let mut entries: Vec<(String, Value)> = map
                .into_iter()
                .map(|(key, value)| match is_amounts {
                    true => (key, amount(value)),
                    false => {
                        let value = sorted(value, &key);
                        (key, value)
                    }
                })
                .filter(|(_, value)| !is_empty(value))
                .collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(entries.into_iter().collect())
        }
        Value::Array(items) => items.into_iter().map(|item| sorted(item, "")).collect(),
        other => match key {
            "sizeLimit" => amount(other),
            _ => other,
        },
    }
}

/// Returns a quantity by its value, or the text itself if it is no quantity.
fn amount(written: Value) -> Value {
    let text = match &written {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match Quantity(text).milli_value() {
        Some(thousandths) => format!("{thousandths}m").into(),
        None => written,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(on) => !on,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Number(_) => false,
    }
}

/// The parts that a controller adds to a template when it makes a pod.
#[derive(Clone, Debug, Default)]
pub struct Additions {
    /// Name of the pod.
    pub name: String,
    /// UID of the pod.
    pub uid: String,
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the node.
    pub node_name: String,
    /// Time at which the pod is made, by the wall clock.
    pub created: Timestamp,
    /// The controller of the pod.
    pub owner: Owner,
    /// Labels that the controller sets.
    pub labels: Vec<(String, String)>,
    /// Annotations that the controller sets.
    pub annotations: Vec<(String, String)>,
}

/// Makes a pod from a template as it was written.
pub fn pod(written: &Value, additions: &Additions) -> Value {
    let mut metadata = Map::new();
    metadata.insert("name".into(), additions.name.as_str().into());
    metadata.insert("namespace".into(), additions.namespace.as_str().into());
    metadata.insert("uid".into(), additions.uid.as_str().into());
    metadata.insert(
        "creationTimestamp".into(),
        seconds(additions.created).into(),
    );
    if let Value::Object(kept) = kept_metadata(written) {
        metadata.extend(kept);
    }
    add(&mut metadata, "labels", &additions.labels);
    add(&mut metadata, "annotations", &additions.annotations);
    metadata.insert(
        "ownerReferences".into(),
        json!([reference(&additions.owner)]),
    );
    let mut spec = written["spec"].clone();
    if let Some(spec) = spec.as_object_mut() {
        spec.insert("nodeName".into(), additions.node_name.as_str().into());
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec,
        "status": {"phase": "Pending"}})
}

/// Returns the owner reference of a child (workloads 1.3).
pub fn reference(owner: &Owner) -> Value {
    json!({"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid,
        "controller": true, "blockOwnerDeletion": true})
}

fn add(metadata: &mut Map<String, Value>, key: &str, added: &[(String, String)]) {
    if added.is_empty() {
        return;
    }
    let all = metadata.entry(key).or_insert_with(|| json!({}));
    if let Some(all) = all.as_object_mut() {
        for (key, value) in added {
            all.insert(key.clone(), value.as_str().into());
        }
    }
}

/// Returns a template with its defaults, as `rollout history` shows it.
pub fn with_defaults(written: &Value) -> Value {
    let mut pod = json!({"metadata": written["metadata"], "spec": written["spec"]});
    defaults::apply(&mut pod);
    if let Some(labels) = pod
        .pointer_mut("/metadata/labels")
        .and_then(Value::as_object_mut)
    {
        labels.shift_remove(TEMPLATE_HASH_LABEL);
    }
    pod
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(a: Value, b: Value, equal: bool) {
        assert_eq!(
            are_equal(&a, &b),
            equal,
            "\n{}\n{}",
            canonical(&a),
            canonical(&b)
        );
    }

    fn template(spec: Value) -> Value {
        json!({"metadata": {"labels": {"app": "web"}}, "spec": spec})
    }

    #[test]
    fn templates_are_equal_by_what_they_mean() {
        let plain = json!({"containers": [{"name": "c", "image": "i:1"}]});
        let with = |container: Value| template(json!({ "containers": [container] }));
        check(template(plain.clone()), template(plain.clone()), true);
        check(
            template(plain.clone()),
            with(
                json!({"image": "i:1", "name": "c", "env": [], "resources": {}, "tty": false,
                "imagePullPolicy": "IfNotPresent"}),
            ),
            true,
        );
        check(
            template(plain.clone()),
            with(json!({"name": "c", "image": "i:2"})),
            false,
        );
        let limited = |memory: Value| {
            with(json!({"name": "c", "image": "i:1", "resources": {"limits": {"memory": memory}}}))
        };
        check(limited(json!("1Gi")), limited(json!("1024Mi")), true);
        check(limited(json!("1Gi")), limited(json!("1Mi")), false);
        let mut labelled = template(plain.clone());
        labelled["metadata"]["labels"][TEMPLATE_HASH_LABEL] = "x".into();
        check(template(plain.clone()), labelled.clone(), true);
        labelled["metadata"]["labels"]["tier"] = "x".into();
        check(template(plain), labelled, false);
    }

    #[test]
    fn a_sought_template_is_found_by_what_it_means() {
        let raw = |image: &str, more: Value| {
            let mut container = json!({"name": "c", "image": image});
            container
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            RawObject::new(&template(json!({ "containers": [container] })))
        };
        let written = raw("i:1", json!({}));
        let sought = SoughtTemplate::new(&written);
        assert!(sought.has_text_of(&raw("i:1", json!({}))));
        let with_default = raw("i:1", json!({"imagePullPolicy": "IfNotPresent"}));
        assert!(sought.is(&with_default) && !sought.has_text_of(&with_default));
        assert!(!sought.is(&raw("i:2", json!({}))));
        // Two texts may have the same fingerprint.
        let unlike = raw("i:3", json!({}));
        unlike.fingerprint(|_| written.fingerprint(|_| unreachable!()));
        assert!(!sought.is(&unlike));
    }

    #[test]
    fn a_pod_has_the_template_and_what_the_controller_adds() {
        let written = json!({"metadata": {"name": "ignored", "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c"}]}});
        let additions = Additions {
            name: "web-1".into(),
            uid: "u".into(),
            namespace: "shop".into(),
            node_name: "edge".into(),
            labels: vec![(TEMPLATE_HASH_LABEL.into(), "h".into())],
            owner: Owner {
                api_version: "apps/v1".into(),
                kind: "ReplicaSet".into(),
                namespace: "shop".into(),
                name: "web-h".into(),
                uid: "o".into(),
            },
            ..Additions::default()
        };
        let pod = pod(&written, &additions);
        assert_eq!(pod["metadata"]["name"], "web-1");
        let labels = json!({"app": "web", "pod-template-hash": "h"});
        assert_eq!(pod["metadata"]["labels"], labels);
        assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "ReplicaSet");
        assert_eq!(pod["spec"]["nodeName"], "edge");
        assert_eq!(pod["metadata"].get("annotations"), None);
    }
}
