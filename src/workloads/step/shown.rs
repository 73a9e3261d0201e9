//! Workloads and what they have made, as people see them.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::Stepping;
use crate::api::raw_object::RawObject;
use crate::api::workload::{LabelSelector, Workload};
use crate::workloads::controller_revisions::{
    CHANGE_CAUSE, ControllerRevision, ControllerRevisions,
};
use crate::workloads::deployment::SetRecord;
use crate::workloads::observed::ObservedPod;
use crate::workloads::record::{Owner, seconds};
use crate::workloads::replica_set::{PodCounts, ReplicaSetStatus};
use crate::workloads::set_rollout_status::{SetRolloutStatus, SetRolloutStatusError};
use crate::workloads::state::WorkloadState;
use crate::workloads::template;
use crate::workloads::view::{RevisionView, RolloutView, WorkloadView};
use crate::workloads::waiting::{RolloutError, RolloutStatus};

/// The view of a workload in the making.
pub(super) struct Shown {
    pub(super) view: WorkloadView,
}

impl Shown {
    /// Begins the view of the workload of a step. `workload` is the effective one.
    pub(super) fn new(stepping: &Stepping<'_>, state: &WorkloadState, workload: &Workload) -> Self {
        let wanted = stepping.wanted;
        let mut object = workload.raw.value();
        let owner = stepping.owner();
        edit(&mut object, "metadata", |metadata| {
            metadata.insert("uid".into(), owner.uid.as_str().into());
            metadata.insert("generation".into(), state.generation.into());
            let created = seconds(state.first_seen);
            metadata.insert("creationTimestamp".into(), created.into());
        });
        Self {
            view: WorkloadView::of_file(wanted, object),
        }
    }

    /// Sets the status.
    pub(super) fn set_status(&mut self, status: &impl serde::Serialize) {
        self.view.object["status"] = serde_json::to_value(status).unwrap_or_default();
    }

    /// Sets an annotation of the object.
    pub(super) fn set_annotation(&mut self, key: &str, value: String) {
        edit(&mut self.view.object, "metadata", |metadata| {
            let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
            if let Some(annotations) = annotations.as_object_mut() {
                annotations.insert(key.to_owned(), value.into());
            }
        });
    }
}

/// Changes a member of an object, if it is an object.
pub(super) fn edit(object: &mut Value, member: &str, change: impl FnOnce(&mut Map<String, Value>)) {
    if let Some(member) = object.get_mut(member).and_then(Value::as_object_mut) {
        change(member);
    }
}

/// Returns the revision of a set, for `rollout history`. A set without a number is not shown.
pub(super) fn revision_of_set(set: &SetRecord) -> Option<RevisionView> {
    (set.revision > 0).then(|| RevisionView {
        revision: set.revision,
        change_cause: change_cause(&set.annotations),
        template: set.template.clone(),
    })
}

fn change_cause(annotations: &BTreeMap<String, String>) -> String {
    annotations.get(CHANGE_CAUSE).cloned().unwrap_or_default()
}

/// Returns the revisions of a StatefulSet or a DaemonSet.
pub(super) fn controller_revisions(revisions: &ControllerRevisions) -> Vec<RevisionView> {
    let view = |it: &ControllerRevision| RevisionView {
        revision: it.revision,
        change_cause: it.change_cause().to_owned(),
        template: Arc::new(RawObject::of_text(it.template.as_str())),
    };
    revisions.all().iter().map(view).collect()
}

/// Returns the state of a Deployment's rollout.
pub(super) fn deployment_rollout(rollout: Result<RolloutStatus, RolloutError>) -> RolloutView {
    match rollout {
        Ok(status) => RolloutView {
            text: status.text,
            is_done: status.is_done,
            error: None,
        },
        Err(why) => failed_rollout(&why),
    }
}

/// Returns the state of the rollout of a StatefulSet or a DaemonSet.
pub(super) fn set_rollout(rollout: Result<SetRolloutStatus, SetRolloutStatusError>) -> RolloutView {
    match rollout {
        Ok(status) => RolloutView {
            text: status.message,
            is_done: status.is_done,
            error: None,
        },
        Err(why) => failed_rollout(&why),
    }
}

fn failed_rollout(why: &dyn std::error::Error) -> RolloutView {
    RolloutView {
        error: Some(why.to_string()),
        ..RolloutView::default()
    }
}

/// A set of a Deployment that is shown as a ReplicaSet.
pub(super) struct ShownSet<'a> {
    /// The set.
    pub(super) set: &'a SetRecord,
    /// The set as an owner of pods, with its namespace and UID.
    pub(super) owner: Owner,
    /// The Deployment.
    pub(super) deployment: &'a Owner,
    /// Labels of the Deployment's selector.
    pub(super) selector: &'a LabelSelector,
    /// Pods of the set.
    pub(super) pods: &'a [ObservedPod],
    /// Time of the step.
    pub(super) now: Timestamp,
}

/// Returns a set of a Deployment as a ReplicaSet.
pub(super) fn replica_set(shown: &ShownSet<'_>) -> WorkloadView {
    let ShownSet { set, owner, .. } = shown;
    let hash = json!({ template::TEMPLATE_HASH_LABEL: set.hash });
    let mut template = template::with_defaults(&set.template.value());
    edit_in(&mut template, "/metadata/labels", &hash);
    let mut selector = json!(shown.selector);
    edit_in(&mut selector, "/matchLabels", &hash);
    let counts = PodCounts::of(shown.pods, set.min_ready(), shown.now);
    let labels = template["metadata"]["labels"].clone();
    let typed: BTreeMap<String, String> =
        serde_json::from_value(labels.clone()).unwrap_or_default();
    let status = ReplicaSetStatus::of(shown.pods, &typed, counts, None, 1);
    let mut annotations = json!(set.annotations);
    let numbers = [
        ("deployment.kubernetes.io/revision", Some(set.revision)),
        (
            "deployment.kubernetes.io/desired-replicas",
            set.desired.map(i64::from),
        ),
        (
            "deployment.kubernetes.io/max-replicas",
            set.max.map(i64::from),
        ),
    ];
    for (key, number) in numbers {
        if let Some(number) = number {
            annotations[key] = number.to_string().into();
        }
    }
    if !set.history.is_empty() {
        annotations["deployment.kubernetes.io/revision-history"] = set.history.as_str().into();
    }
    let mut object = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": set.name, "namespace": owner.namespace, "uid": owner.uid, "generation": 1,
            "creationTimestamp": seconds(set.created), "labels": labels, "annotations": annotations,
            "ownerReferences": [template::reference(shown.deployment)]},
        "spec": {"replicas": set.size, "selector": selector, "template": template},
        "status": status});
    if set.min_ready_seconds > 0 {
        object["spec"]["minReadySeconds"] = set.min_ready_seconds.into();
    }
    WorkloadView {
        object,
        ..WorkloadView::default()
    }
}

/// Adds entries to the map at a pointer, which is made if its parent is there.
fn edit_in(object: &mut Value, pointer: &str, added: &Value) {
    let Some((parent, key)) = pointer.rsplit_once('/') else {
        return;
    };
    let parent = object.pointer_mut(parent).and_then(Value::as_object_mut);
    let map = parent.map(|parent| parent.entry(key).or_insert_with(|| json!({})));
    if let Some((map, added)) = map.and_then(Value::as_object_mut).zip(added.as_object()) {
        map.extend(added.clone());
    }
}
