//! The labels of the Node object, which people change (`kubectl label node`), and against which pods are admitted.
//!
//! Invariants: labels that were seen are on the disk, so that a start without the link admits the same pods. No new pod is
//! refused for its selector before the Node was read once more: the scheduler may have placed it by a label that the watch of
//! the Node brings later.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::{Pod, PodUid};
use crate::base::clock::Moment;
use crate::base::live::Live;
use crate::base::record_file;
use crate::cluster::exchange::{Answer, BackOff, Method, Request};
use crate::pods::admission::{self, Node};

/// Name of the record of the labels that were seen last.
const RECORD: &str = "labels.json";

type Labels = BTreeMap<String, String>;

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Record {
    node_name: String,
    labels: Labels,
}

/// Returns the labels that the Node of this name had when it was seen last; None if it was not seen, or the record cannot be
/// read.
pub fn last_seen(directory: &Path, node_name: &str) -> Option<Labels> {
    let record: Record = record_file::read(directory, RECORD)?;
    (record.node_name == node_name).then_some(record.labels)
}

/// The labels of the Node, and the new pods that wait until it is read once more.
pub(super) struct NodeLabels {
    /// The node against which pods are admitted.
    node: Live<Node>,
    /// Directory of the record.
    directory: PathBuf,
    /// The labels as the Node had them last; Null before it was seen.
    seen: Value,
    /// New pods whose selectors the labels do not fit.
    waiting: BTreeSet<PodUid>,
    /// The pods that wait for the answer under way.
    asked_for: BTreeSet<PodUid>,
    /// The pods that wait no more: the labels fitted, or the Node was read after they came. If the labels do not fit then,
    /// the pod is refused.
    handed_on: BTreeSet<PodUid>,
    /// The earliest moment of the next reading.
    at: Moment,
    back_off: BackOff,
}

impl NodeLabels {
    pub(super) fn new(node: Live<Node>, directory: PathBuf) -> Self {
        Self {
            node,
            directory,
            seen: Value::Null,
            waiting: BTreeSet::new(),
            asked_for: BTreeSet::new(),
            handed_on: BTreeSet::new(),
            at: Moment::default(),
            back_off: BackOff::default(),
        }
    }

    /// Takes the Node as the API server has it. Returns true if its labels are others than before.
    pub(super) fn observe(&mut self, node: &Value) -> bool {
        let labels = &node["metadata"]["labels"];
        if self.seen == *labels {
            return false;
        }
        self.seen = labels.clone();
        let fields = labels.as_object().into_iter().flatten();
        let labels = fields.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.into())));
        let labels: Labels = labels.collect();
        if let Err(e) = self.keep(&labels) {
            log::warn!("cannot keep the node's labels for a start without the API server: {e}");
        }
        self.node.update(|node| {
            node.labels = labels;
            node.awaits_labels = false;
        });
        true
    }

    fn keep(&self, labels: &Labels) -> io::Result<()> {
        let node_name = self.node.get().name;
        if last_seen(&self.directory, &node_name).as_ref() == Some(labels) {
            return Ok(());
        }
        fs::create_dir_all(&self.directory)?;
        let labels = labels.clone();
        record_file::write(&self.directory, RECORD, &Record { node_name, labels }, true)
    }

    /// Removes from `set` the new pods that must wait until the Node is read. `is_known` is true for a pod that the node has
    /// begun to run.
    pub(super) fn hold(&mut self, set: &mut Vec<Arc<Pod>>, is_known: impl Fn(&Pod) -> bool) {
        let node = self.node.get();
        let waits = |pod: &Pod| {
            pod.metadata.deletion_timestamp.is_none()
                && !self.handed_on.contains(pod.uid())
                && !admission::is_selected(&pod.spec, &node)
                && !is_known(pod)
        };
        let waiting = set.iter().filter(|pod| waits(pod));
        self.waiting = waiting.map(|pod| pod.uid().clone()).collect();
        set.retain(|pod| !self.waiting.contains(pod.uid()));
        self.handed_on = set.iter().map(|pod| pod.uid().clone()).collect();
    }

    /// True if pods wait for a look at the Node.
    pub(super) fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns the request that reads the Node, if it is due.
    pub(super) fn next(&mut self, now: Moment) -> Option<Request> {
        if !self.is_waited_for() || now < self.at {
            return None;
        }
        self.asked_for = self.waiting.clone();
        Some(Request {
            method: Method::Get,
            path: format!("/api/v1/nodes/{}", self.node.get().name),
            body: None,
        })
    }

    /// Takes the answer to the request. If it has the Node, the pods for which it was asked do not wait any more: returns
    /// true. A pod that has come since then waits for another answer.
    pub(super) fn answered(&mut self, now: Moment, answer: &Answer) -> bool {
        if answer.object().is_some() {
            self.back_off.reset();
            self.at = now;
            self.handed_on.append(&mut self.asked_for);
            return true;
        }
        if self.back_off == BackOff::default() && answer.code() != 0 {
            let (code, message) = (answer.code(), answer.message());
            log::warn!(
                "cannot read the labels of the node, for which {} pods wait: {code} {message}; trying again",
                self.waiting.len()
            );
        }
        self.at = now + self.back_off.next(answer.retry_after());
        false
    }

    /// Returns the moment at which the Node is read.
    pub(super) fn deadline(&self) -> Option<Moment> {
        self.is_waited_for().then_some(self.at)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::test_pods;

    fn labels_of(directory: &Path) -> NodeLabels {
        let node = Node {
            name: "edge".into(),
            ..Node::default()
        };
        NodeLabels::new(Live::new(node), directory.to_owned())
    }

    fn node(disk: Value) -> Value {
        json!({"metadata": {"name": "edge", "labels": {"disk": disk}}})
    }

    fn set() -> Vec<Arc<Pod>> {
        let wants = |disk: &str| json!({"nodeSelector": {"disk": disk}});
        let pod = |uid: &str, spec| test_pods::pod(uid).uid(uid).spec(spec).arc();
        vec![
            pod("any", json!({})),
            pod("ssd", wants("ssd")),
            pod("tape", wants("tape")),
        ]
    }

    fn held(labels: &mut NodeLabels, is_known: bool) -> Vec<String> {
        let mut set = set();
        labels.hold(&mut set, |_| is_known);
        let names = set.iter().map(|pod| pod.metadata.name.to_string());
        names.collect()
    }

    #[test]
    fn a_new_pod_waits_once_for_the_labels_and_a_known_one_never() {
        let directory = tempfile::tempdir().unwrap();
        let mut labels = labels_of(directory.path());
        let now = Moment::default();
        assert!(labels.observe(&node(json!("hdd"))));
        assert_eq!(held(&mut labels, true), ["any", "ssd", "tape"]);
        assert_eq!((labels.next(now), labels.deadline()), (None, None));

        labels = labels_of(directory.path());
        assert_eq!(held(&mut labels, false), ["any"]);
        assert_eq!(labels.next(now).unwrap().path, "/api/v1/nodes/edge");
        assert!(!labels.answered(now, &Answer::new(500, Value::Null)));
        assert_eq!(labels.next(now), None);
        let later = labels.deadline().unwrap();
        assert!(later > now && labels.next(later).is_some());
        assert_eq!(held(&mut labels, false), ["any"]);
        assert!(labels.answered(later, &Answer::new(200, node(json!("ssd")))));
        // The last one is refused, which its controller must see.
        assert_eq!(held(&mut labels, false), ["any", "ssd", "tape"]);
        assert_eq!(labels.deadline(), None);
        // What was handed on once stays in the set, whatever the labels are.
        labels.observe(&node(json!("hdd")));
        assert_eq!(held(&mut labels, false), ["any", "ssd", "tape"]);
    }

    #[test]
    fn a_pod_that_comes_while_the_node_is_read_waits_for_another_reading() {
        let directory = tempfile::tempdir().unwrap();
        let mut labels = labels_of(directory.path());
        let now = Moment::default();
        let node = Answer::new(200, node(json!("hdd")));
        let mut first = vec![set()[1].clone()];
        labels.hold(&mut first, |_| false);
        assert!(first.is_empty() && labels.next(now).is_some());
        assert_eq!(held(&mut labels, false), ["any"]);
        assert!(labels.answered(now, &node));
        assert_eq!(held(&mut labels, false), ["any", "ssd"]);
        assert!(labels.next(now).is_some() && labels.answered(now, &node));
        assert_eq!(held(&mut labels, false), ["any", "ssd", "tape"]);
    }

    #[test]
    fn a_pod_that_is_gone_is_forgotten_and_one_that_is_deleted_does_not_wait() {
        let directory = tempfile::tempdir().unwrap();
        let mut labels = labels_of(directory.path());
        held(&mut labels, true);
        labels.hold(&mut Vec::new(), |_| false);
        assert_eq!(held(&mut labels, false), ["any"]);
        labels.hold(&mut Vec::new(), |_| false);
        assert!(!labels.is_waited_for());
        let mut deleted = Pod::clone(&set()[1]);
        deleted.metadata.deletion_timestamp = Some("2026-01-01T00:00:00Z".parse().unwrap());
        let mut set = vec![Arc::new(deleted)];
        labels.hold(&mut set, |_| false);
        assert_eq!(set.len(), 1);
    }

    #[test]
    fn labels_are_kept_as_they_were_seen_last() {
        let directory = tempfile::tempdir().unwrap();
        let below = directory.path().join("cluster");
        let mut labels = labels_of(&below);
        labels.node.update(|node| node.awaits_labels = true);
        assert_eq!(last_seen(&below, "edge"), None);
        for (disk, is_new) in [("ssd", true), ("ssd", false), ("hdd", true)] {
            assert_eq!(labels.observe(&node(json!(disk))), is_new);
            let kept = last_seen(&below, "edge");
            assert_eq!(kept, Some([("disk".to_owned(), disk.to_owned())].into()));
            assert_eq!(Some(labels.node.get().labels), kept);
            assert!(!labels.node.get().awaits_labels);
        }
        assert_eq!(last_seen(&below, "another"), None);
    }
}
