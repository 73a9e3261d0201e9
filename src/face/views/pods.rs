//! Pods as clients see them: all pods at one moment, and the changes since then.
//!
//! Invariants: a view shares the object, the status and the events with their owners, so that making a view copies
//! almost nothing. An answer contains each status once.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::lazy_object::LazyObject;
use crate::api::validation::probe_field;
use crate::api::{Pod, PodStatus, ProbeType};
use crate::engine::images::ImagePull;
use crate::pods::events::Event;
use crate::pods::prober::pauses::PausedProbe;
use crate::pods::sources::FileProblem;

/// A pod as a client sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodView {
    /// The v1 Pod object, defaults and annotations included, without its live status.
    pub object: Manifest,
    /// The pod's live status.
    pub status: Arc<PodStatus>,
    /// The file that the pod comes from.
    pub file: String,
    /// Warnings about fields of the file that have no effect, and other advice; one sentence each.
    pub warnings: Vec<String>,
    /// The error of the file, if the file has become invalid. In this case the pod is from the last good version of the
    /// file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_error: Option<String>,
    /// True if the pod is being stopped.
    pub terminating: bool,
    /// Directory of the pod's logs. A log is in `<dir>/<container>/<attempt>.log`.
    pub log_dir: String,
    /// The pod's events, oldest first.
    pub events: Vec<Arc<Event>>,
    /// The pod's probes that a person has paused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paused: Vec<PausedProbe>,
    /// The image pulls that the pod's containers wait for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pulls: Vec<ImagePull>,
    /// Features that the pod's network does not have, because the kernel does not support them; one sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub network_lacks: Vec<String>,
}

impl PodView {
    /// Returns a probe as it stands in the object; null if the container has no such probe.
    pub fn probe(&self, container: &str, probe_type: ProbeType) -> &Value {
        let spec = &self.object["spec"];
        let lists = ["initContainers", "containers"].map(|list| spec[list].as_array());
        let mut all = lists.into_iter().flatten().flatten();
        let found = all.find(|c| c["name"] == container);
        found.map_or(&Value::Null, |c| &c[probe_field(probe_type)])
    }

    /// Returns the pod's `metadata.uid`.
    pub fn uid(&self) -> &str {
        self.object["metadata"]["uid"].as_str().unwrap_or_default()
    }

    /// Returns the whole v1 object with its live status, as an API server would give it.
    pub fn v1(&self) -> Value {
        let mut object = Value::clone(&self.object);
        object["status"] = serde_json::to_value(&self.status).unwrap_or_default();
        object
    }

    fn place(&self) -> (&str, &str, &str) {
        let metadata = &self.object["metadata"];
        let text = |key: &str| metadata[key].as_str().unwrap_or_default();
        (text("namespace"), text("name"), text("uid"))
    }
}

/// The object of a pod: the daemon's own object, or an object that was read from JSON.
pub type Manifest = LazyObject<Pod>;

/// Everything that the client verbs show, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// The version of the snapshot, which grows with every change. A client that watches asks for the next version.
    pub version: u64,
    /// The node's name, which is the suffix of every static pod's name.
    pub node_name: String,
    /// The pods, sorted by namespace and name.
    pub pods: Vec<Arc<PodView>>,
    /// The problems of files, sorted by file.
    pub problems: Vec<FileProblem>,
    /// A sentence if the sync loop has stopped, and the snapshot may be out of date. The sentence says since when, and
    /// what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled: Option<String>,
    /// The sentence about the order under which no pod starts; None if pods start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<String>,
}

impl Snapshot {
    /// Returns the snapshot to which `update` leads.
    pub fn updated(&self, update: SnapshotUpdate) -> Self {
        let mut pods = update.pods;
        if !update.complete {
            let replaced = |old: &Arc<PodView>| pods.iter().any(|new| new.uid() == old.uid());
            let gone = |old: &Arc<PodView>| update.gone.iter().any(|uid| uid == old.uid());
            let kept = self.pods.iter().filter(|old| !replaced(old) && !gone(old));
            let kept: Vec<_> = kept.cloned().collect();
            pods.extend(kept);
        }
        pods.sort_by(|a, b| a.place().cmp(&b.place()));
        Self {
            version: update.version,
            node_name: update.node_name,
            pods,
            problems: update.problems.unwrap_or_else(|| self.problems.clone()),
            stalled: update.stalled,
            closed: update.closed,
        }
    }
}

/// The changes of a [`Snapshot`] since an earlier version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotUpdate {
    /// The version of the snapshot after the update.
    pub version: u64,
    /// The node's name, which is the suffix of every static pod's name.
    pub node_name: String,
    /// True if `pods` has all pods. The client must then drop the pods that it had.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub complete: bool,
    /// The pods that are new or have changed.
    pub pods: Vec<Arc<PodView>>,
    /// UIDs of pods that no longer exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<String>,
    /// All problems of files; None if they have not changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problems: Option<Vec<FileProblem>>,
    /// The sentence of the snapshot about a sync loop that has stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled: Option<String>,
    /// The sentence about the order under which no pod starts; None if pods start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<String>,
}

impl From<&Snapshot> for SnapshotUpdate {
    /// Makes the update that leads to this snapshot from any other snapshot.
    fn from(to: &Snapshot) -> Self {
        Self {
            version: to.version,
            node_name: to.node_name.clone(),
            complete: true,
            pods: to.pods.clone(),
            gone: Vec::new(),
            problems: Some(to.problems.clone()),
            stalled: to.stalled.clone(),
            closed: to.closed.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view(name: &str, phase: &str) -> Arc<PodView> {
        let view = json!({"object": {"metadata": {"name": name, "namespace": "default", "uid": name}}, "status": {"phase": phase},
            "file": "", "warnings": [], "terminating": false, "logDir": "", "events": []});
        serde_json::from_value(view).unwrap()
    }

    fn shown(snapshot: &Snapshot) -> Vec<(&str, &str)> {
        let pods = snapshot.pods.iter();
        pods.map(|p| (p.uid(), p.status.phase.as_str())).collect()
    }

    #[test]
    fn an_update_replaces_adds_and_removes() {
        let before = Snapshot {
            pods: ["a", "b", "c"].map(|n| view(n, "Pending")).to_vec(),
            problems: vec![FileProblem {
                file: "f".into(),
                error: "e".into(),
                ..FileProblem::default()
            }],
            ..Default::default()
        };
        let update = SnapshotUpdate {
            version: 7,
            pods: vec![view("d", "Pending"), view("b", "Running")],
            gone: vec!["a".into(), "unknown".into()],
            ..Default::default()
        };
        let read = serde_json::from_str(&serde_json::to_string(&update).unwrap());
        let after = before.updated(read.unwrap());
        let expected = [("b", "Running"), ("c", "Pending"), ("d", "Pending")];
        assert_eq!((after.version, shown(&after)), (7, expected.to_vec()));
        assert_eq!(after.problems, before.problems);
        let all = Snapshot::default().updated(SnapshotUpdate::from(&after));
        assert_eq!(all, after);
        assert_eq!(before.updated(SnapshotUpdate::from(&all)), all);
    }

    #[test]
    fn the_object_of_a_view_has_its_status() {
        let v1 = view("a", "Failed").v1();
        assert_eq!(v1["metadata"]["name"], "a");
        assert_eq!(v1["status"]["phase"], "Failed");
        let written = serde_json::to_string(&view("a", "Failed")).unwrap();
        assert_eq!(written.matches("Failed").count(), 1, "{written}");
    }
}
