//! The Node object that is registered, and the labels that a node may not give itself.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::facts::{NodeFacts, Taint};

/// The error of a label that the API server takes from no node.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// The label says what the node is for, which only an administrator may say.
    #[error(
        "cannot register the node with the label {key} (nodeLabels): an API server lets no node give itself a role; remove \
         it there, and run: kubectl label node {node} {key}={value}"
    )]
    Role {
        /// Name of the node.
        node: String,
        /// Name of the label.
        key: String,
        /// Value of the label.
        value: String,
    },
    /// The label is in a namespace that belongs to Kubernetes.
    #[error(
        "cannot register the node with the label {key} (nodeLabels): of the labels below kubernetes.io and k8s.io, an API \
         server lets a node set only well-known ones, and those below kubelet.kubernetes.io and node.kubernetes.io; give it \
         a prefix of your own, or run: kubectl label node {node} {key}={value}"
    )]
    Reserved {
        /// Name of the node.
        node: String,
        /// Name of the label.
        key: String,
        /// Value of the label.
        value: String,
    },
    /// The node sets this label itself.
    #[error(
        "cannot register the node with the label {key}={value} (nodeLabels): the node sets it to {own} itself; remove it \
         there"
    )]
    Own {
        /// Name of the label.
        key: String,
        /// Value from the configuration.
        value: String,
        /// Value that the node gives it.
        own: String,
    },
}

/// Labels of Kubernetes that a node may set, besides those that it sets itself.
const WELL_KNOWN: [&str; 8] = [
    "beta.kubernetes.io/instance-type",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.kubernetes.io/region",
    "failure-domain.kubernetes.io/zone",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// The annotation that gives attaching and detaching of volumes to the control plane.
const ATTACH_DETACH: &str = "volumes.kubernetes.io/controller-managed-attach-detach";

/// Checks that the API server takes the labels of the configuration from a node.
///
/// # Errors
/// Returns the first label that it refuses, with the way out.
pub fn check_labels(facts: &NodeFacts) -> Result<(), LabelError> {
    let own = own_labels(facts);
    for (key, value) in &facts.labels {
        let (node, key, value) = (facts.name.clone(), key.clone(), value.clone());
        if let Some(set) = own.get(key.as_str()) {
            if *set != value {
                let own = set.clone();
                return Err(LabelError::Own { key, value, own });
            }
        } else if key.starts_with("node-role.kubernetes.io/") {
            return Err(LabelError::Role { node, key, value });
        } else if is_reserved(&key) {
            return Err(LabelError::Reserved { node, key, value });
        }
    }
    Ok(())
}

fn is_reserved(key: &str) -> bool {
    let namespace = key.split_once('/').map_or("", |(namespace, _)| namespace);
    let below = |domain: &str| {
        let parent = namespace.strip_suffix(domain);
        parent.is_some_and(|parent| parent.is_empty() || parent.ends_with('.'))
    };
    let is_allowed = below("kubelet.kubernetes.io") || below("node.kubernetes.io");
    (below("kubernetes.io") || below("k8s.io")) && !is_allowed && !WELL_KNOWN.contains(&key)
}

/// The labels that every node sets itself.
fn own_labels(facts: &NodeFacts) -> BTreeMap<&'static str, String> {
    let (os, arch) = (&facts.operating_system, &facts.architecture);
    BTreeMap::from([
        ("beta.kubernetes.io/arch", arch.clone()),
        ("beta.kubernetes.io/os", os.clone()),
        ("kubernetes.io/arch", arch.clone()),
        ("kubernetes.io/hostname", facts.hostname.clone()),
        ("kubernetes.io/os", os.clone()),
    ])
}

/// The labels with which a node is registered: its own, and those of the configuration.
fn labels(facts: &NodeFacts) -> Map<String, Value> {
    let own = own_labels(facts);
    let own = own.into_iter().map(|(key, value)| (key.to_owned(), value));
    let configured = facts.labels.clone();
    own.chain(configured)
        .map(|(key, value)| (key, value.into()))
        .collect()
}

/// The Node object for the POST that registers the node.
pub fn new_node(facts: &NodeFacts, status: Value) -> Value {
    let mut spec = Map::new();
    if !facts.taints.is_empty() {
        let taints: Vec<Value> = facts.taints.iter().map(taint).collect();
        spec.insert("taints".to_owned(), taints.into());
    }
    json!({
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {
            "name": facts.name,
            "labels": labels(facts),
            "annotations": { ATTACH_DETACH: "true" },
        },
        "spec": spec,
        "status": status,
    })
}

fn taint(taint: &Taint) -> Value {
    let mut all = json!({"key": taint.key, "effect": taint.effect});
    if !taint.value.is_empty() {
        all["value"] = taint.value.clone().into();
    }
    all
}

/// A Node that was there already, as it is to become: with `status`, and where `reconcile` says so with the labels and the
/// annotation of this node. Everything else stays, also taints of the configuration that it lacks: the API server takes
/// taints from a node only when it is registered (403).
pub fn updated_node(old: &Value, facts: &NodeFacts, status: Value, reconcile: bool) -> Value {
    let mut new = old.as_object().cloned().unwrap_or_default();
    new.insert("status".to_owned(), status);
    if reconcile {
        let mut metadata = take_object(&mut new, "metadata");
        let mut own = take_object(&mut metadata, "labels");
        own.extend(labels(facts));
        let mut annotations = take_object(&mut metadata, "annotations");
        annotations.insert(ATTACH_DETACH.to_owned(), "true".into());
        metadata.insert("labels".to_owned(), own.into());
        metadata.insert("annotations".to_owned(), annotations.into());
        new.insert("metadata".to_owned(), metadata.into());
    }
    new.into()
}

/// Takes the object out of a field. A field that has none gives an empty one.
fn take_object(parent: &mut Map<String, Value>, key: &str) -> Map<String, Value> {
    match parent.remove(key) {
        Some(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(key: &str, value: &str) -> NodeFacts {
        NodeFacts {
            name: "n".into(),
            hostname: "n".into(),
            operating_system: "linux".into(),
            architecture: "arm64".into(),
            labels: BTreeMap::from([(key.into(), value.into())]),
            ..NodeFacts::default()
        }
    }

    #[track_caller]
    fn check(key: &str, is_taken: bool) {
        let checked = check_labels(&facts(key, "x"));
        assert_eq!(checked.is_ok(), is_taken, "{checked:?}");
    }

    #[test]
    fn labels_of_kubernetes_are_refused_but_for_those_of_nodes() {
        check("a", true);
        check("example.com/disk", true);
        check("podprobe/x", true);
        check("notkubernetes.io/x", true);
        check("kubelet.kubernetes.io/x", true);
        check("a.node.kubernetes.io/x", true);
        check("topology.kubernetes.io/zone", true);
        check("node-role.kubernetes.io/worker", false);
        check("node-restriction.kubernetes.io/x", false);
        check("kubernetes.io/x", false);
        check("x.k8s.io/y", false);
        check("kubernetes.io/os", false);
        assert_eq!(check_labels(&facts("kubernetes.io/os", "linux")), Ok(()));
    }

    #[test]
    fn an_error_says_how_the_label_can_be_set() {
        let error = check_labels(&facts("node-role.kubernetes.io/edge", "")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot register the node with the label node-role.kubernetes.io/edge (nodeLabels): an API server lets no node \
             give itself a role; remove it there, and run: kubectl label node n node-role.kubernetes.io/edge="
        );
    }

    #[test]
    fn taints_are_registered_with_and_without_a_value() {
        let mut facts = facts("a", "b");
        let taint = |key: &str, value: &str| Taint {
            key: key.into(),
            value: value.into(),
            effect: "NoSchedule".into(),
        };
        facts.taints = vec![taint("edge", ""), taint("site", "north")];
        let node = new_node(&facts, json!({}));
        assert_eq!(
            node["spec"],
            json!({"taints": [
                {"key": "edge", "effect": "NoSchedule"},
                {"key": "site", "value": "north", "effect": "NoSchedule"},
            ]})
        );
        assert_eq!(node["metadata"]["labels"]["a"], "b");
    }

    #[test]
    fn a_node_that_is_there_keeps_what_others_wrote() {
        let old = json!({
            "metadata": {"name": "n", "labels": {"a": "old", "by-hand": "1", "kubernetes.io/arch": "amd64"}},
            "spec": {"unschedulable": true, "podCIDR": "10.0.0.0/24", "taints": [{"key": "x", "effect": "NoExecute"}]},
            "status": {"phase": "x"},
        });
        let new = updated_node(&old, &facts("a", "new"), json!({"y": 1}), true);
        let labels = &new["metadata"]["labels"];
        assert_eq!(
            [
                &labels["a"],
                &labels["by-hand"],
                &labels["kubernetes.io/arch"]
            ],
            ["new", "1", "arm64"]
        );
        assert_eq!(new["spec"], old["spec"]);
        assert_eq!(new["status"], json!({"y": 1}));
        let later = updated_node(&old, &facts("a", "new"), json!({}), false);
        assert_eq!(later["metadata"], old["metadata"]);
    }
}
