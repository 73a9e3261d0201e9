//! Workloads and what they have made, as people see them.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::Stepping;
use crate::api::raw_object::RawObject;
use crate::api::workload::Workload;
use crate::base::json;
use crate::workloads::controller_revisions::{
    CHANGE_CAUSE, ControllerRevision, ControllerRevisions,
};
use crate::workloads::deployment::SetRecord;
use crate::workloads::observed::ObservedPod;
use crate::workloads::record::{Owner, seconds};
use crate::workloads::replica_set::{PodCounts, ReplicaSetStatus};
use crate::workloads::set_rollout_status::{SetRolloutStatus, SetRolloutStatusError};
use crate::workloads::shown_object::{SetParts, WorkloadParts};
use crate::workloads::state::WorkloadState;
use crate::workloads::template::TEMPLATE_HASH_LABEL;
use crate::workloads::view::{RevisionView, RolloutView, WorkloadView};
use crate::workloads::waiting::{RolloutError, RolloutStatus};

/// The view of a workload in the making.
pub(super) struct Shown {
    pub(super) view: WorkloadView,
    object: WorkloadParts,
}

impl Shown {
    /// Begins the view of the workload of a step. `workload` is the effective one.
    pub(super) fn new(
        stepping: &Stepping<'_>,
        state: &WorkloadState,
        workload: &Arc<Workload>,
    ) -> Self {
        let mut object = WorkloadParts::of(workload.clone());
        object.metadata = vec![
            ("uid", stepping.owner().uid.into()),
            ("generation", state.generation.into()),
            ("creationTimestamp", seconds(state.first_seen).into()),
        ];
        Self {
            view: WorkloadView::of_file(stepping.wanted),
            object,
        }
    }

    /// Sets the status.
    pub(super) fn set_status(&mut self, status: &impl serde::Serialize) {
        self.object.set_status(status);
    }

    /// Sets an annotation of the object.
    pub(super) fn set_annotation(&mut self, key: &'static str, value: String) {
        self.object.annotations.push((key, value));
    }

    /// Returns the view.
    pub(super) fn finish(mut self) -> WorkloadView {
        self.view.object = self.object.into();
        self.view
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

/// Returns a set of a Deployment as a ReplicaSet. `workload` is the effective Deployment, and `owner` and `deployment` are
/// the set and the Deployment as owners.
pub(super) fn replica_set(
    set: &SetRecord,
    (owner, deployment): (Owner, Owner),
    workload: &Arc<Workload>,
    pods: &[ObservedPod],
    now: Timestamp,
) -> WorkloadView {
    let counts = PodCounts::of(pods, set.min_ready(), now);
    // The labels of the template count only where pods may have them.
    let labels = match pods.is_empty() {
        true => BTreeMap::new(),
        false => labels_of(set),
    };
    let parts = SetParts {
        status: ReplicaSetStatus::of(pods, &labels, counts, None, 1),
        set: set.clone(),
        owner,
        deployment,
        workload: workload.clone(),
    };
    WorkloadView {
        object: parts.into(),
        ..WorkloadView::default()
    }
}

/// Returns the labels of the set's pods.
fn labels_of(set: &SetRecord) -> BTreeMap<String, String> {
    let written = set.template.at("/metadata/labels").unwrap_or_default();
    let mut labels: BTreeMap<String, String> = json::from_value(&written).unwrap_or_default();
    labels.insert(TEMPLATE_HASH_LABEL.to_owned(), set.hash.clone());
    labels
}
