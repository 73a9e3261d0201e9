//! What a pod of a DaemonSet has beside its template: the label of its revision, tolerations, and its node (workloads
//! 4.1).
//!
//! Invariants: pure. The tolerations have no effect here; the pod shows them as upstream's pods do.

use serde_json::{Map, Value, json};

use crate::workloads::controller_revisions::REVISION_LABEL;
use crate::workloads::edit_object::edit_object;

/// Taints that every pod of a DaemonSet tolerates, with the effect (daemon/util: AddOrUpdateDaemonPodTolerations).
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

/// The taint that pods in the node's own network tolerate as well.
const NETWORK: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");

/// Writes into a pod object that was made from the template what a DaemonSet's pod has besides. `hash` is the hash of
/// the pod's revision. A required node affinity is replaced by the name of the node.
pub fn write_into(pod: &mut Map<String, Value>, node: &str, hash: &str) {
    edit_object(pod, "metadata", |metadata| {
        edit_object(metadata, "labels", |labels| {
            labels.insert(REVISION_LABEL.to_owned(), hash.into());
        });
    });
    edit_object(pod, "spec", |spec| {
        tolerate(spec);
        edit_object(spec, "affinity", |affinity| {
            edit_object(affinity, "nodeAffinity", |it| require(it, node));
        });
    });
}

fn require(node_affinity: &mut Map<String, Value>, node: &str) {
    let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    edit_object(
        node_affinity,
        "requiredDuringSchedulingIgnoredDuringExecution",
        |required| {
            let terms = json!([{"matchFields": [field]}]);
            required.insert("nodeSelectorTerms".to_owned(), terms);
        },
    );
}

fn tolerate(spec: &mut Map<String, Value>) {
    let mut tolerations = match spec.remove("tolerations") {
        Some(Value::Array(tolerations)) => tolerations,
        _ => Vec::new(),
    };
    let host_network = spec.get("hostNetwork") == Some(&Value::Bool(true));
    let tolerated = TOLERATED.into_iter();
    for (key, effect) in tolerated.chain(host_network.then_some(NETWORK)) {
        let toleration = json!({"key": key, "operator": "Exists", "effect": effect});
        match tolerations.iter_mut().find(|it| is_same(it, &toleration)) {
            Some(written) => *written = toleration,
            None => tolerations.push(toleration),
        }
    }
    spec.insert("tolerations".to_owned(), tolerations.into());
}

/// True if both tolerations are about the same taints. How long they are tolerated does not count.
fn is_same(written: &Value, other: &Value) -> bool {
    let members = ["key", "operator", "effect", "value"];
    members.iter().all(|it| written.get(it) == other.get(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(template: Value) -> Value {
        let mut pod = template.as_object().unwrap().clone();
        write_into(&mut pod, "edge", "abc");
        Value::Object(pod)
    }

    #[test]
    fn the_pod_has_the_label_of_its_revision() {
        let pod = written(json!({"metadata": {"labels": {"app": "log"}}}));
        let expected = json!({"app": "log", "controller-revision-hash": "abc"});
        assert_eq!(pod["metadata"]["labels"], expected);
    }

    #[test]
    fn the_required_affinity_is_the_node() {
        let terms = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["edge"]}]}]);
        let key = "requiredDuringSchedulingIgnoredDuringExecution";
        let affinity = json!({
            "podAffinity": {"a": 1},
            "nodeAffinity": {"b": 2, key: {"nodeSelectorTerms": [{"matchExpressions": []}]}}
        });
        let pod = written(json!({"spec": {"affinity": affinity}}));
        let expected = json!({
            "podAffinity": {"a": 1},
            "nodeAffinity": {"b": 2, key: {"nodeSelectorTerms": terms}}
        });
        assert_eq!(pod["spec"]["affinity"], expected);
        let pod = written(json!({}));
        assert_eq!(
            pod["spec"]["affinity"]["nodeAffinity"][key]["nodeSelectorTerms"],
            terms
        );
    }

    #[test]
    fn tolerations_are_added_or_replaced() {
        let keys = |pod: &Value| -> Vec<String> {
            let all = pod["spec"]["tolerations"].as_array().unwrap();
            all.iter()
                .map(|it| it["key"].as_str().unwrap().to_owned())
                .collect()
        };
        let not_ready = json!({
            "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5
        });
        let pod = written(json!({"spec": {"tolerations": [{"key": "mine"}, not_ready]}}));
        assert_eq!(keys(&pod).len(), 7);
        assert_eq!(keys(&pod)[..2], ["mine", "node.kubernetes.io/not-ready"]);
        assert_eq!(pod["spec"]["tolerations"][1].get("tolerationSeconds"), None);
        let pod = written(json!({"spec": {"hostNetwork": true}}));
        assert_eq!(keys(&pod)[6], "node.kubernetes.io/network-unavailable");
    }
}
