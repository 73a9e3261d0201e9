//! The DaemonSet controller on one node: whether its pod is made, replaced or deleted (workloads 4).
//!
//! Invariants: pure. Without surge there is never more than one pod that has not ended. With surge an old pod that is
//! ready goes only when the new one is available. A second call with the same input gives the same answer.

mod events;
pub mod failed_pods;
mod limits;
mod manage;
#[cfg(test)]
mod model;
mod outcome;
mod plan;
pub mod pod;
mod status;
#[cfg(test)]
mod tests;
mod update;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::events::{creation_event, deletion_event};
use self::failed_pods::FailedPodBackOff;
use self::plan::Plan;
pub use self::status::DaemonSetStatus;
use super::controller_revisions::ControllerRevisions;
use super::event::ControllerEvent;
use super::observed::ObservedPod;
use super::set_actions::{PodDeletion, SetWait};
use crate::api::workload::DaemonSetSpec;

/// A node's relation to the pods of a DaemonSet (workloads 4.1). The reasons are for a person, such as "nodeSelector does
/// not match".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeFit<'a> {
    /// The node is to have a pod.
    Runs,
    /// A pod that is there may stay, but no new one may come.
    Stays {
        /// Reason for which no new pod may come.
        reason: &'a str,
    },
    /// The node may have no pod.
    Leaves {
        /// Reason for which the node may have no pod.
        reason: &'a str,
    },
}

/// Everything on which a step of a DaemonSet depends.
#[derive(Clone, Copy, Debug)]
pub struct DaemonSetInput<'a> {
    /// Namespace of the DaemonSet, for events.
    pub namespace: &'a str,
    /// Name of the node, for events.
    pub node: &'a str,
    /// Spec of the DaemonSet.
    pub spec: &'a DaemonSetSpec,
    /// `metadata.generation`, which the status repeats.
    pub generation: i64,
    /// Relation of the node to the pods.
    pub fit: NodeFit<'a>,
    /// State that the last step wrote down. The wanted template must have been taken up into its revisions.
    pub state: &'a DaemonSetState,
    /// Pods that belong to the DaemonSet.
    pub pods: &'a [ObservedPod],
    /// Reason for which no new pod can start beside the old one, such as "hostPort 80 is held by the old pod" (workloads
    /// 4.4); None if it can.
    pub surge_blocked: Option<&'a str>,
    /// True if the images of the newest revision are on the node (workloads 3.22).
    pub images_ready: bool,
    /// Current time.
    pub now: Timestamp,
}

/// The state of a DaemonSet, which is kept on the disk (workloads 9.2).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSetState {
    /// Revisions of the template. Pods are to have the newest one.
    pub revisions: ControllerRevisions,
    /// Back-off between deletions of failed pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_pods: Option<FailedPodBackOff>,
}

/// The part of the controller that had the last word in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DaemonSetStage {
    /// The number of pods and those that have ended.
    #[default]
    Manage,
    /// The update to the newest revision, which comes only when the first part had nothing to do.
    Update,
}

/// The decisions of one step of a DaemonSet. The caller writes the state, then makes a pod and deletes pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DaemonSetOutput {
    /// State to write before anything else is done.
    pub state: DaemonSetState,
    /// The part of the controller that had the last word.
    pub stage: DaemonSetStage,
    /// True if a pod of the newest revision is to be made.
    pub creates: bool,
    /// Pods to delete, in this order.
    pub deletes: Vec<PodDeletion>,
    /// Status of the DaemonSet before the actions of this step.
    pub status: DaemonSetStatus,
    /// Thing that the DaemonSet waits for.
    pub wait: SetWait,
    /// Reason for which the update has a gap although the spec asks for surge, for `describe`.
    pub surge_note: Option<String>,
    /// Events about decisions. [`creation_event`] and [`deletion_event`] give the events about actions.
    pub events: Vec<ControllerEvent>,
    /// Time at which the next step is due if nothing changes before; None if none is due.
    pub wake_at: Option<Timestamp>,
}

/// Decides what a DaemonSet does next on this node (daemon_controller.go: updateDaemonSet). Nothing is decided for a
/// set without revisions.
pub fn step(input: &DaemonSetInput<'_>) -> DaemonSetOutput {
    let Some(mut plan) = Plan::new(input) else {
        return DaemonSetOutput {
            state: input.state.clone(),
            ..DaemonSetOutput::default()
        };
    };
    plan.manage();
    if plan.is_idle() && !plan.is_on_delete() {
        plan.stage = DaemonSetStage::Update;
        plan.update();
    }
    plan.finish()
}
