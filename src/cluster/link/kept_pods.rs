//! The pods that the API server has given, kept on the disk for a start without the link.
//!
//! Invariants: a pod is written when its metadata or spec has changed, and when it has ended. It is not written for each
//! other status, which the node knows itself. What cannot be read or written costs only the start without the link, and is said.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::kept::Kept;
use crate::base::json;
use crate::cluster::reflector::Change;
use crate::cluster::status::is_terminal;

/// Fields of the metadata that change with each status, or that nobody here reads.
const LEFT_OUT: [&str; 2] = ["resourceVersion", "managedFields"];

/// A pod as it is kept.
#[derive(Serialize, Deserialize)]
struct KeptPod {
    /// The object as text, which takes less memory than a tree of values.
    object: String,
}

/// All kept pods, by their UIDs.
pub(super) struct KeptPods(Kept<KeptPod>);

impl KeptPods {
    /// Reads the pods that an earlier daemon has kept.
    pub(super) fn open(directory: PathBuf) -> Self {
        let cost = "the pods of the API server start when it can be asked";
        Self(Kept::open(directory, cost))
    }

    /// Returns the kept pods.
    pub(super) fn objects(&self) -> Vec<Value> {
        let records = self.0.all();
        let objects = records.map(|(_, kept)| json::from_slice(kept.object.as_bytes()));
        objects.filter_map(Result::ok).collect()
    }

    /// Takes a change that the watch of the pods has brought.
    pub(super) fn observe(&mut self, change: &Change) {
        match change {
            Change::Added(object) | Change::Modified(object) => self.put(object),
            Change::Deleted(object) => self.0.remove(uid_of(object), "the pod"),
            Change::Replaced(objects) => {
                let is_there = |uid: &str| objects.iter().any(|o| uid_of(o) == uid);
                self.0.retain("the pod", is_there);
                objects.iter().for_each(|object| self.put(object));
            }
        }
    }

    fn put(&mut self, object: &Value) {
        let uid = uid_of(object);
        let object = kept(object).to_string();
        // The UID becomes the name of a file.
        let is_name =
            !uid.is_empty() && uid.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if !is_name || self.0.get(uid).is_some_and(|known| known.object == object) {
            return;
        }
        self.0
            .put(uid, KeptPod { object }, &format!("the pod {uid}"));
    }
}

fn uid_of(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// The part of an object that is kept.
fn kept(object: &Value) -> Value {
    let mut kept = object.clone();
    let has_ended = is_terminal(object["status"].get("phase"));
    if let Some(fields) = kept.as_object_mut().filter(|_| !has_ended) {
        fields.shift_remove("status");
    }
    if let Some(metadata) = kept.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in LEFT_OUT {
            metadata.shift_remove(field);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    fn pod(uid: &str, label: &str, version: u32) -> Value {
        json!({"metadata": {"uid": uid, "labels": {"a": label}, "resourceVersion": version.to_string()},
            "spec": {"nodeName": "edge"}, "status": {"phase": "Running"}})
    }

    fn labels(kept: &KeptPods) -> Vec<String> {
        let objects = kept.objects().into_iter();
        objects
            .map(|o| o["metadata"]["labels"]["a"].as_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn pods_are_found_again_as_they_were_last_and_gone_ones_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        let mut pods = KeptPods::open(path.clone());
        pods.observe(&Change::Replaced(vec![pod("a", "1", 1), pod("b", "1", 1)]));
        pods.observe(&Change::Added(pod("c", "1", 2)));
        pods.observe(&Change::Modified(pod("a", "2", 3)));
        pods.observe(&Change::Deleted(pod("b", "1", 4)));
        assert_eq!(labels(&pods), ["2", "1"]);
        let mut again = KeptPods::open(path.clone());
        assert_eq!(labels(&again), ["2", "1"]);
        again.observe(&Change::Replaced(vec![pod("c", "1", 9)]));
        assert_eq!(labels(&KeptPods::open(path)), ["1"]);
    }

    #[test]
    fn a_status_writes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let mut pods = KeptPods::open(directory.path().to_owned());
        pods.observe(&Change::Added(pod("a", "1", 1)));
        fs::remove_file(directory.path().join("a.json")).unwrap();
        pods.observe(&Change::Modified(pod("a", "1", 2)));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        pods.observe(&Change::Modified(pod("a", "2", 3)));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_pod_that_has_ended_is_kept_with_its_status() {
        let directory = tempfile::tempdir().unwrap();
        let mut pods = KeptPods::open(directory.path().to_owned());
        let mut ended = pod("a", "1", 1);
        pods.observe(&Change::Added(ended.clone()));
        assert_eq!(pods.objects()[0].get("status"), None);
        ended["status"]["phase"] = "Succeeded".into();
        pods.observe(&Change::Modified(ended));
        let again = KeptPods::open(directory.path().to_owned());
        assert_eq!(again.objects()[0]["status"]["phase"], "Succeeded");
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let below = directory.path().join("pods");
        fs::create_dir(&below).unwrap();
        let mut pods = KeptPods::open(below);
        pods.observe(&Change::Added(pod("../a", "1", 1)));
        pods.observe(&Change::Added(pod("", "1", 1)));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        assert_eq!(pods.objects().len(), 0);
    }
}
