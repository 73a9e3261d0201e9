//! The pods of a node against recorded events of a real API server.

use std::time::SystemTime;

use serde_json::json;

use super::*;
use crate::api::PodSource;
use crate::api::source::SOURCE_ANNOTATION;
use crate::pods::sources::{PodConfig, PodOperation};

/// Events of a watch of pods, as a kubelet got them: a mirror pod that is deleted, a pod that is edited, and a pod
/// that is deleted with a grace period. The last one is without its token.
const PODS: &str = include_str!("../../../tests/data/cluster/pods.jsonl");

/// Returns the recorded events of a pod.
fn recorded(name: &str) -> Vec<Change> {
    let lines = PODS.lines().map(|line| serde_json::from_str(line).unwrap());
    let of_pod = lines.filter(|e: &Value| e["event"]["object"]["metadata"]["name"] == name);
    of_pod
        .map(|e| {
            let object = e["event"]["object"].clone();
            match e["event"]["type"].as_str().unwrap() {
                "ADDED" => Change::Added(object),
                "MODIFIED" => Change::Modified(object),
                _ => Change::Deleted(object),
            }
        })
        .collect()
}

fn object_of(change: &Change) -> Value {
    match change {
        Change::Added(object) | Change::Modified(object) | Change::Deleted(object) => {
            object.clone()
        }
        Change::Replaced(_) => Value::Null,
    }
}

/// The pods of a node with the merge that they go through.
struct Node {
    pods: ApiPods,
    merge: PodConfig,
}

impl Node {
    /// Returns a node that has had a full list.
    fn synced(objects: Vec<Value>) -> Self {
        let mut node = Self {
            pods: ApiPods::new("node1"),
            merge: PodConfig::new(&[PodSource::Api]),
        };
        node.apply(Change::Replaced(objects));
        node
    }

    /// Applies a change, and returns the operations that reach the sync loop.
    fn apply(&mut self, change: Change) -> Vec<(PodOperation, Vec<Arc<Pod>>)> {
        let changed = self.pods.apply(change);
        let Some(set) = changed.set else {
            return Vec::new();
        };
        let merged = self
            .merge
            .merge(PodSource::Api, set, SystemTime::UNIX_EPOCH);
        assert_eq!(merged.dropped, []);
        merged.updates.into_iter().map(|u| (u.op, u.pods)).collect()
    }

    #[track_caller]
    fn operation(&mut self, change: Change) -> (PodOperation, Arc<Pod>) {
        let mut operations = self.apply(change);
        assert_eq!(operations.len(), 1, "{operations:?}");
        let (operation, pods) = operations.remove(0);
        (operation, Arc::clone(&pods[0]))
    }
}

/// Returns a version of a pod that this node can run.
fn good(name: &str, version: &str) -> Value {
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "rec", "uid": format!("uid-{name}"), "resourceVersion": version, "creationTimestamp": "2026-11-21T23:00:00Z"},
        "spec": {"nodeName": "node1", "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Pending"},
    })
}

/// Returns a version of a pod that no podprobe can run.
fn bad(name: &str, version: &str) -> Value {
    let mut pod = good(name, version);
    pod["spec"]["volumes"] = json!([{"name": "v", "nfs": {"server": "s", "path": "/"}}]);
    pod
}

#[test]
fn a_pod_is_added_edited_and_reconciled_as_the_api_server_says() {
    let mut node = Node::synced(Vec::new());
    let found: Vec<_> = recorded("edit")
        .into_iter()
        .map(|c| node.operation(c))
        .collect();
    let operations: Vec<_> = found.iter().map(|(operation, _)| *operation).collect();
    use PodOperation::{Add, Reconcile, Update};
    assert_eq!(
        operations,
        [Add, Reconcile, Update, Update, Update, Reconcile]
    );
    let pods: Vec<_> = found.iter().map(|(_, pod)| pod).collect();
    assert_eq!(pods[0].metadata.annotations[SOURCE_ANNOTATION], "api");
    assert_eq!(pods[2].metadata.labels["v"], "2");
    assert!(pods[3].spec.containers[0].image.ends_with("nginx:1.27-0"));
    assert_eq!(pods[4].spec.active_deadline_seconds, Some(25));
    assert_eq!(pods[5].raw.value()["status"]["phase"], "Failed");
}

#[test]
fn a_deletion_passes_with_its_grace_period_and_the_end_is_a_removal() {
    let mut node = Node::synced(Vec::new());
    let found: Vec<_> = recorded("web")
        .into_iter()
        .map(|c| node.operation(c))
        .collect();
    let operations: Vec<_> = found.iter().map(|(operation, _)| *operation).collect();
    use PodOperation::{Add, Delete, Remove};
    assert_eq!(operations, [Add, Delete, Delete, Remove]);
    let deletion = |n: usize| {
        let metadata = &found[n].1.metadata;
        let timestamp = metadata.deletion_timestamp.clone().unwrap_or_default();
        (timestamp, metadata.deletion_grace_period_seconds)
    };
    assert_eq!(deletion(1), ("2026-11-21T23:40:39Z".to_owned(), Some(30)));
    assert_eq!(deletion(2), ("2026-11-21T23:40:40Z".to_owned(), Some(0)));
}

#[test]
fn a_mirror_pod_is_never_run() {
    let mut node = Node::synced(vec![good("a", "1")]);
    for change in recorded("st-node1") {
        let is_end = matches!(change, Change::Deleted(_));
        let changed = node.pods.apply(change);
        assert_eq!((changed.set, changed.mirrors), (None, true));
        assert_eq!(node.pods.mirrors().count(), usize::from(!is_end));
    }
    let mirror = object_of(&recorded("st-node1")[0]);
    node.pods.apply(Change::Added(mirror.clone()));
    let changed = node
        .pods
        .apply(Change::Replaced(vec![mirror, good("a", "1")]));
    assert_eq!(changed, PodsChanged::default());
    let changed = node.pods.apply(Change::Replaced(vec![good("a", "1")]));
    assert!(changed.mirrors && changed.set.is_none());
}

#[test]
fn nothing_is_said_before_the_first_full_list_which_may_be_empty() {
    let mut pods = ApiPods::new("node1");
    assert_eq!(pods.apply(Change::Added(good("a", "1"))).set, None);
    let mut pods = ApiPods::new("node1");
    assert_eq!(
        pods.apply(Change::Replaced(Vec::new())).set,
        Some(Vec::new())
    );
    assert_eq!(pods.apply(Change::Replaced(Vec::new())).set, None);
}

#[test]
fn a_list_that_is_read_again_restarts_no_pod() {
    let mut node = Node::synced(vec![good("a", "1"), good("b", "1"), good("c", "1")]);
    let again = vec![good("b", "1"), good("d", "4"), good("a", "9")];
    let operations = node.apply(Change::Replaced(again));
    let names = |(operation, pods): &(PodOperation, Vec<Arc<Pod>>)| {
        (*operation, pods[0].metadata.name.clone(), pods.len())
    };
    assert_eq!(
        operations.iter().map(names).collect::<Vec<_>>(),
        [
            (PodOperation::Remove, "c".to_owned(), 1),
            (PodOperation::Add, "d".to_owned(), 1)
        ],
        "a has a new version, and nothing in it has changed"
    );
    let same = Change::Replaced(vec![good("a", "9"), good("b", "1"), good("d", "4")]);
    assert_eq!(node.pods.apply(same), PodsChanged::default());
}

#[test]
fn a_pod_of_the_same_name_and_another_uid_is_another_pod() {
    let mut node = Node::synced(vec![good("a", "1")]);
    let mut other = good("a", "5");
    other["metadata"]["uid"] = "uid-2".into();
    let operations = node.apply(Change::Replaced(vec![other]));
    let operations: Vec<_> = operations.iter().map(|(operation, _)| *operation).collect();
    assert_eq!(operations, [PodOperation::Remove, PodOperation::Add]);
}

#[test]
fn the_oldest_pods_come_first() {
    let mut young = good("a", "2");
    young["metadata"]["creationTimestamp"] = "2026-11-22T00:00:00Z".into();
    let mut pods = ApiPods::new("node1");
    let set = pods
        .apply(Change::Replaced(vec![young, good("b", "1")]))
        .set
        .unwrap();
    let names: Vec<_> = set.iter().map(|pod| pod.metadata.name.as_str()).collect();
    assert_eq!(names, ["b", "a"]);
}

#[test]
fn a_pod_that_cannot_be_run_is_named_with_its_reason() {
    let mut pods = ApiPods::new("node1");
    let changed = pods.apply(Change::Replaced(vec![bad("a", "1"), good("b", "1")]));
    assert_eq!(changed.set.unwrap().len(), 1);
    let refused = &changed.refused[0];
    assert_eq!(refused.pod.to_string(), "a_rec(uid-a)");
    assert!(!refused.is_deleted && !refused.runs_on);
    let reason = refused.reason.one_line();
    assert!(
        reason.starts_with("invalid pod: spec.volumes[0].nfs: Forbidden: "),
        "{reason}"
    );
    let changed = pods.apply(Change::Modified(bad("a", "2")));
    assert_eq!(changed, PodsChanged::default(), "said once");
    let mut deleted = bad("a", "3");
    deleted["metadata"]["deletionTimestamp"] = "2026-11-21T23:40:39Z".into();
    let changed = pods.apply(Change::Modified(deleted.clone()));
    assert!(changed.refused[0].is_deleted);
    assert_eq!(pods.refused().count(), 1);
    assert_eq!(pods.apply(Change::Deleted(deleted)).set, None);
    assert_eq!(pods.refused().count(), 0);
}

#[test]
fn a_pod_that_runs_goes_on_after_an_edit_that_cannot_be_run_and_can_be_deleted() {
    let mut node = Node::synced(vec![good("a", "1")]);
    let changed = node.pods.apply(Change::Modified(bad("a", "2")));
    assert!(changed.refused[0].runs_on);
    assert_eq!(changed.set.unwrap().len(), 1);
    let mut deleted = bad("a", "3");
    deleted["metadata"]["deletionTimestamp"] = "2026-11-21T23:40:39Z".into();
    deleted["metadata"]["deletionGracePeriodSeconds"] = 7.into();
    let (operation, pod) = node.operation(Change::Modified(deleted));
    assert_eq!(operation, PodOperation::Delete);
    assert_eq!(pod.metadata.deletion_grace_period_seconds, Some(7));
    assert_eq!(pod.raw.value()["metadata"]["deletionGracePeriodSeconds"], 7);
    let changed = node.pods.apply(Change::Modified(good("a", "4")));
    assert_eq!((changed.refused.len(), node.pods.refused().count()), (0, 0));
}

#[test]
fn a_warning_is_said_once_and_not_about_what_the_control_plane_acts_on() {
    let version = |version: &str, protocol: &str| {
        let mut pod = good("a", version);
        pod["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
        pod["spec"]["priority"] = 7.into();
        pod["spec"]["priorityClassName"] = "high".into();
        pod["spec"]["containers"][0]["ports"] =
            json!([{"containerPort": 80, "hostPort": 80, "protocol": protocol}]);
        pod
    };
    let mut pods = ApiPods::new("node1");
    let mut warnings = |change| pods.apply(change).warnings.len();
    assert_eq!(warnings(Change::Replaced(vec![version("1", "SCTP")])), 1);
    assert_eq!(warnings(Change::Modified(version("2", "SCTP"))), 0);
    assert_eq!(warnings(Change::Modified(version("3", "TCP"))), 0);
    assert_eq!(warnings(Change::Modified(version("4", "SCTP"))), 1);
}
