//! `status` of a v1 DaemonSet on one node: all numbers are 0 or 1 (workloads 4.6).
//!
//! Invariants: pure. Only the oldest pod counts, so an update with surge shows its progress when the old pod has gone.

use serde::{Deserialize, Serialize};

use super::NodeFit;
use super::plan::Plan;

/// `status` of a DaemonSet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSetStatus {
    /// Number of nodes that are to have a pod and have one.
    pub current_number_scheduled: i32,
    /// Number of nodes that have a pod although they may have none.
    pub number_misscheduled: i32,
    /// Number of nodes that are to have a pod.
    pub desired_number_scheduled: i32,
    /// Number of nodes with a ready pod.
    pub number_ready: i32,
    /// Generation of the spec that the last step has seen.
    #[serde(skip_serializing_if = "is_zero_i64")]
    pub observed_generation: i64,
    /// Number of nodes with a pod of the newest revision.
    #[serde(skip_serializing_if = "is_zero")]
    pub updated_number_scheduled: i32,
    /// Number of nodes with a pod that has been ready for `minReadySeconds`.
    #[serde(skip_serializing_if = "is_zero")]
    pub number_available: i32,
    /// Number of nodes that are to have a pod and have none that is available.
    #[serde(skip_serializing_if = "is_zero")]
    pub number_unavailable: i32,
    /// Number of names of revisions that were taken by another template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
}

fn is_zero(number: &i32) -> bool {
    *number == 0
}

fn is_zero_i64(number: &i64) -> bool {
    *number == 0
}

impl DaemonSetStatus {
    /// Computes the status (daemon_controller.go: updateDaemonSetStatus).
    pub(super) fn of(plan: &Plan<'_>) -> Self {
        let is_desired = plan.input.fit == NodeFit::Runs;
        let oldest = plan.here.first().filter(|_| is_desired);
        let is_ready = oldest.is_some_and(|it| it.is_ready);
        let is_available = is_ready && oldest.is_some_and(|it| plan.is_available(it));
        let is_updated = oldest.is_some_and(|it| plan.is_updated(it));
        Self {
            current_number_scheduled: oldest.is_some().into(),
            number_misscheduled: (!is_desired && !plan.here.is_empty()).into(),
            desired_number_scheduled: is_desired.into(),
            number_ready: is_ready.into(),
            observed_generation: plan.input.generation,
            updated_number_scheduled: is_updated.into(),
            number_available: is_available.into(),
            number_unavailable: (is_desired && !is_available).into(),
            collision_count: plan.input.state.revisions.collision_count(),
        }
    }
}
