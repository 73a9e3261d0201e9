//! The StatefulSet controller: which numbered pods are made, which ones are deleted, and at which revision (workloads
//! 5).
//!
//! Invariants: pure. There is never more than one pod of a number. With OrderedReady, a pod is made only when all pods
//! with lower numbers are available. A second call with the same input gives the same answer, and the answer does not
//! depend on whether the actions of an earlier step were carried out.

pub mod claims;
mod events;
pub mod identity;
#[cfg(test)]
mod model;
pub mod ordinals;
mod outcome;
mod plan;
mod scaling;
mod status;
#[cfg(test)]
mod tests;
mod update;
pub mod warnings;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use self::claims::{ClaimCreation, ClaimOwner};
pub use self::events::{claim_event, creation_event, deletion_event};
use self::identity::PodIdentity;
use self::plan::Plan;
pub use self::status::StatefulSetStatus;
pub use self::update::max_unavailable;
use super::controller_revisions::ControllerRevisions;
use super::event::ControllerEvent;
use super::observed::ObservedPod;
use super::set_actions::{PodDeletion, SetWait};
use crate::api::workload::StatefulSetSpec;

/// Everything on which a step of a StatefulSet depends.
#[derive(Clone, Copy, Debug)]
pub struct StatefulSetInput<'a> {
    /// Name of the StatefulSet.
    pub name: &'a str,
    /// Spec of the StatefulSet.
    pub spec: &'a StatefulSetSpec,
    /// `metadata.generation`, which the status repeats.
    pub generation: i64,
    /// True if the StatefulSet is being deleted. The caller ends its pods (workloads 8.2).
    pub is_deleted: bool,
    /// State that the last step wrote down. The wanted template must have been taken up into its revisions.
    pub state: &'a StatefulSetState,
    /// Pods that belong to the StatefulSet.
    pub pods: &'a [ObservedPod],
    /// Names in the namespace that pods of others have. A pod of the set cannot be made under them.
    pub taken_names: &'a BTreeSet<String>,
    /// Names of the claims that are there in the namespace.
    pub claims: &'a BTreeSet<String>,
    /// True if the images of the newest revision are on the node (workloads 3.22).
    pub images_ready: bool,
    /// True in production: an outdated pod that holds up the update that would mend it is deleted (workloads 5.7).
    pub mends_stuck_pods: bool,
    /// False in production: `maxUnavailable` counts only with this feature gate (workloads 5.8).
    pub max_unavailable_gate: bool,
    /// Current time.
    pub now: Timestamp,
}

/// The state of a StatefulSet, which is kept on the disk (workloads 9.2).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetState {
    /// Revisions of the template. The newest is the update revision.
    pub revisions: ControllerRevisions,
    /// Name of the revision that the pods had when the last update was complete.
    pub current_revision: String,
    /// Number of pods at the current revision after the last step.
    pub current_replicas: i32,
    /// Owners of claims, by the number of the pod.
    pub claim_owners: BTreeMap<i32, ClaimOwner>,
}

/// A pod that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodCreation {
    /// Number of the pod.
    pub ordinal: i32,
    /// Name of the revision whose template the pod is made from.
    pub revision: String,
    /// Parts of the pod that are not in the template.
    pub identity: PodIdentity,
}

/// The decisions of one step of a StatefulSet. The caller writes the state, then makes claims, makes pods, deletes pods,
/// and removes claims.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatefulSetOutput {
    /// State to write before anything else is done.
    pub state: StatefulSetState,
    /// Claims that pods need.
    pub claims_to_make: Vec<ClaimCreation>,
    /// Pods to make, in this order.
    pub creates: Vec<PodCreation>,
    /// Pods to delete, in this order.
    pub deletes: Vec<PodDeletion>,
    /// Names of the claims to take out of the store of objects.
    pub claims_to_remove: Vec<String>,
    /// Status of the StatefulSet, with the pods that are made now.
    pub status: StatefulSetStatus,
    /// Thing that the StatefulSet waits for.
    pub wait: SetWait,
    /// Events about decisions. [`creation_event`] and its like give the events about actions.
    pub events: Vec<ControllerEvent>,
    /// Time at which the next step is due if nothing changes before; None if none is due.
    pub wake_at: Option<Timestamp>,
}

/// Decides what a StatefulSet does next (stateful_set_control.go: UpdateStatefulSet). Nothing is decided for a set
/// without revisions.
pub fn step(input: &StatefulSetInput<'_>) -> StatefulSetOutput {
    let Some(mut plan) = Plan::new(input) else {
        return StatefulSetOutput {
            state: input.state.clone(),
            ..StatefulSetOutput::default()
        };
    };
    if input.is_deleted {
        plan.wait_for(SetWait::Deletion);
    } else {
        // A break only says that the step ends here.
        let _ = plan.run();
    }
    plan.finish()
}
