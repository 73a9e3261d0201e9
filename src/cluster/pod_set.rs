//! The pods of the API server that this node should run (kubelet-probes 6.5, 6.6).
//!
//! Invariants: pure. The set is complete from the first full list on, and a full list of pods that have not changed
//! gives the same set, so no pod is restarted. A pod that cannot be decoded is in no set; if an earlier version of it
//! was in the set, that version stays, with the deletion of the new one. Mirror pods are in no set.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::mirror_pods::MirrorPod;
use super::reflector::Change;
use crate::api::decode::{self, DecodeError};
use crate::api::{Pod, PodRef, PodUid};

/// A pod of the API server that this node cannot run as it is. Nobody else says so: the node posts the phase Failed
/// for it, and deletes it once it has a deletion timestamp.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedPod {
    /// Name, namespace and UID of the pod.
    pub pod: PodRef,
    /// Reason. [`DecodeError::one_line`] is the text for the status.
    pub reason: DecodeError,
    /// True if the pod has a deletion timestamp.
    pub is_deleted: bool,
    /// True if an earlier version of the pod runs on. Then its status is not Failed.
    pub runs_on: bool,
}

/// The consequences of a change of the API server's pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodsChanged {
    /// All pods to run, the oldest first; None if they are as before. This is the full set of the source
    /// [`Api`](crate::api::PodSource::Api).
    pub set: Option<Vec<Arc<Pod>>>,
    /// Pods that are newly refused, or refused for another reason, or newly deleted.
    pub refused: Vec<RefusedPod>,
    /// Warnings about fields that podprobe does not act on, each with its pod. A new version of a pod says no warning again.
    pub warnings: Vec<(PodRef, String)>,
    /// True if a mirror pod has changed.
    pub mirrors: bool,
}

/// A pod as the API server gave it last.
#[derive(Debug)]
struct Known {
    /// Resource version of the object.
    version: String,
    /// Time of creation, as text. Times of the API server sort by their text.
    created: String,
    /// Version of the pod that this node can run.
    pod: Option<Arc<Pod>>,
    refused: Option<RefusedPod>,
    /// Warnings about the last version, which have been said.
    warnings: Vec<String>,
}

/// The pods that are bound to this node.
#[derive(Debug)]
pub struct ApiPods {
    node_name: String,
    is_synced: bool,
    pods: BTreeMap<PodUid, Known>,
    mirrors: BTreeMap<PodUid, MirrorPod>,
}

impl ApiPods {
    /// Makes the pods of a node, of which nothing is known yet.
    pub fn new(node_name: &str) -> Self {
        Self {
            node_name: node_name.to_owned(),
            is_synced: false,
            pods: BTreeMap::new(),
            mirrors: BTreeMap::new(),
        }
    }

    /// Returns the mirror pods of this node's static pods.
    pub fn mirrors(&self) -> impl Iterator<Item = &MirrorPod> {
        self.mirrors.values()
    }

    /// Returns the refused pods.
    pub fn refused(&self) -> impl Iterator<Item = &RefusedPod> {
        self.pods
            .values()
            .filter_map(|known| known.refused.as_ref())
    }

    /// Takes a change that the reflector of the pods has said.
    pub fn apply(&mut self, change: Change) -> PodsChanged {
        let mut changed = PodsChanged::default();
        let has_set = match change {
            Change::Replaced(objects) => {
                // The first full list is a set even if it is empty, because the node waits for it.
                let mut has_set = !std::mem::replace(&mut self.is_synced, true);
                has_set |= self.retain(&objects, &mut changed);
                for object in objects {
                    has_set |= self.put(object, &mut changed);
                }
                has_set
            }
            Change::Added(object) | Change::Modified(object) => self.put(object, &mut changed),
            Change::Deleted(object) => {
                let uid = uid_of(&object);
                changed.mirrors = self.mirrors.remove(&uid).is_some();
                let known = self.pods.remove(&uid);
                known.is_some_and(|known| known.pod.is_some())
            }
        };
        changed.set = has_set.then(|| self.set()).flatten();
        changed
    }

    /// Returns all pods to run, the oldest first; None before the first full list.
    pub fn set(&self) -> Option<Vec<Arc<Pod>>> {
        if !self.is_synced {
            return None;
        }
        let known = self.pods.values();
        let mut pods: Vec<_> = known
            .filter_map(|known| Some((known.created.as_str(), known.pod.as_ref()?)))
            .collect();
        pods.sort_by_key(|(created, _)| *created);
        let pods = pods.into_iter().map(|(_, pod)| Arc::clone(pod));
        Some(pods.collect())
    }

    /// Forgets what is not in a full list. Returns true if a pod of the set is gone.
    fn retain(&mut self, objects: &[Value], changed: &mut PodsChanged) -> bool {
        let uids: BTreeSet<PodUid> = objects.iter().map(uid_of).collect();
        let mirrors = self.mirrors.len();
        self.mirrors.retain(|uid, _| uids.contains(uid));
        changed.mirrors |= self.mirrors.len() != mirrors;
        let runs = |pods: &BTreeMap<PodUid, Known>| {
            let pods = pods.values();
            pods.filter(|known| known.pod.is_some()).count()
        };
        let before = runs(&self.pods);
        self.pods.retain(|uid, _| uids.contains(uid));
        runs(&self.pods) != before
    }

    /// Takes a version of a pod. Returns true if the set has changed.
    fn put(&mut self, object: Value, changed: &mut PodsChanged) -> bool {
        let uid = uid_of(&object);
        if let Some(mirror) = MirrorPod::read(&object) {
            changed.mirrors |= self.mirrors.get(&uid) != Some(&mirror);
            self.mirrors.insert(uid.clone(), mirror);
            let known = self.pods.remove(&uid);
            return known.is_some_and(|known| known.pod.is_some());
        }
        changed.mirrors |= self.mirrors.remove(&uid).is_some();
        let text = |field: &str| {
            let text = object["metadata"][field].as_str();
            text.unwrap_or_default().to_owned()
        };
        let (version, created) = (text("resourceVersion"), text("creationTimestamp"));
        let before = self.pods.remove(&uid);
        if let Some(before) = before.as_ref().filter(|b| b.version == version) {
            let same = Known {
                version,
                created,
                pod: before.pod.clone(),
                refused: before.refused.clone(),
                warnings: before.warnings.clone(),
            };
            self.pods.insert(uid, same);
            return false;
        }
        let reference = PodRef {
            namespace: text("namespace").into(),
            name: text("name").into(),
            uid: uid.clone(),
        };
        let (before, was_refused, warned) = before.map_or_else(Default::default, |before| {
            (before.pod, before.refused, before.warnings)
        });
        let mut warnings = Vec::new();
        let deletion = Deletion::of(&object);
        let (pod, refused) = match decode::api_pod(object, &self.node_name) {
            Ok(decoded) => {
                warnings = decoded.warnings;
                let new = warnings.iter().filter(|text| !warned.contains(text));
                let new = new.map(|text| (reference.clone(), text.clone()));
                changed.warnings.extend(new);
                (Some(Arc::new(decoded.pod)), None)
            }
            Err(reason) => {
                let refused = RefusedPod {
                    pod: reference,
                    reason,
                    is_deleted: deletion.timestamp.is_some(),
                    runs_on: before.is_some(),
                };
                (
                    before.as_ref().map(|pod| deletion.put_on(pod)),
                    Some(refused),
                )
            }
        };
        if refused != was_refused {
            changed.refused.extend(refused.clone());
        }
        let has_set = pod.is_some() || before.is_some();
        let known = Known {
            version,
            created,
            pod,
            refused,
            warnings,
        };
        self.pods.insert(uid, known);
        has_set
    }
}

fn uid_of(object: &Value) -> PodUid {
    object["metadata"]["uid"]
        .as_str()
        .unwrap_or_default()
        .into()
}

/// The deletion of a pod, as far as it has begun.
struct Deletion {
    timestamp: Option<String>,
    grace_period_seconds: Option<i64>,
}

impl Deletion {
    fn of(object: &Value) -> Self {
        let metadata = &object["metadata"];
        Self {
            timestamp: metadata["deletionTimestamp"].as_str().map(str::to_owned),
            grace_period_seconds: metadata["deletionGracePeriodSeconds"].as_i64(),
        }
    }

    /// Returns the pod with this deletion.
    fn put_on(self, pod: &Arc<Pod>) -> Arc<Pod> {
        let metadata = &pod.metadata;
        let is_same = metadata.deletion_timestamp == self.timestamp
            && metadata.deletion_grace_period_seconds == self.grace_period_seconds;
        if is_same {
            return Arc::clone(pod);
        }
        let mut pod = Pod::clone(pod);
        pod.raw.edit(|raw| {
            raw["metadata"]["deletionTimestamp"] = self.timestamp.clone().into();
            raw["metadata"]["deletionGracePeriodSeconds"] = self.grace_period_seconds.into();
        });
        pod.metadata.deletion_timestamp = self.timestamp;
        pod.metadata.deletion_grace_period_seconds = self.grace_period_seconds;
        Arc::new(pod)
    }
}

#[cfg(test)]
mod tests;
