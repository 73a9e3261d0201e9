//! `status` of a v1 StatefulSet.
//!
//! Invariants: pure. Pods that a step makes count already.

use serde::{Deserialize, Serialize};

use super::plan::{Plan, count};
use crate::workloads::controller_revisions::revision_label;
use crate::workloads::observed::ObservedPod;

/// `status` of a StatefulSet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetStatus {
    /// Generation of the spec that the last step has seen.
    #[serde(skip_serializing_if = "is_zero_i64")]
    pub observed_generation: i64,
    /// Number of pods that are there.
    pub replicas: i32,
    /// Number of ready pods.
    #[serde(skip_serializing_if = "is_zero")]
    pub ready_replicas: i32,
    /// Number of pods at the current revision.
    #[serde(skip_serializing_if = "is_zero")]
    pub current_replicas: i32,
    /// Number of pods at the update revision.
    #[serde(skip_serializing_if = "is_zero")]
    pub updated_replicas: i32,
    /// Name of the revision that the pods had when the last update was complete.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub current_revision: String,
    /// Name of the revision to which pods are updated.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub update_revision: String,
    /// Number of names of revisions that were taken by another template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
    /// Number of pods that have been ready for `minReadySeconds`.
    pub available_replicas: i32,
}

fn is_zero(number: &i32) -> bool {
    *number == 0
}

fn is_zero_i64(number: &i64) -> bool {
    *number == 0
}

impl StatefulSetStatus {
    /// Computes the status at the end of a step.
    pub(super) fn of(plan: &Plan<'_>) -> Self {
        let revisions = &plan.input.state.revisions;
        let ready = |pod: &ObservedPod| plan.is_ready(pod);
        let current = at_revision(plan, &plan.current.name).saturating_sub(plan.updated);
        let status = Self {
            observed_generation: plan.input.generation,
            replicas: pods(plan, |_| true).saturating_add(count(plan.creates.len())),
            ready_replicas: pods(plan, ready),
            available_replicas: pods(plan, |pod| ready(pod) && plan.is_available(pod)),
            current_replicas: current.max(0),
            updated_replicas: at_revision(plan, &plan.update.name),
            current_revision: plan.current.name.clone(),
            update_revision: plan.update.name.clone(),
            collision_count: Some(revisions.collision_count().unwrap_or(0)),
        };
        status.completed(plan)
    }

    /// Makes the update revision the current one when every pod is at it and ready (completeRollingUpdate).
    fn completed(mut self, plan: &Plan<'_>) -> Self {
        let wanted = plan.input.spec.replicas;
        let numbers = [self.updated_replicas, self.ready_replicas, self.replicas];
        if !plan.is_on_delete() && numbers == [wanted; 3] {
            self.current_replicas = self.updated_replicas;
            self.current_revision = self.update_revision.clone();
        }
        self
    }
}

fn pods(plan: &Plan<'_>, counts: impl Fn(&ObservedPod) -> bool) -> i32 {
    count(plan.members.all().filter(|(_, pod)| counts(pod)).count())
}

fn at_revision(plan: &Plan<'_>, revision: &str) -> i32 {
    let here = pods(plan, |pod| {
        !pod.is_deleted && revision_label(pod) == revision
    });
    let made = plan.creates.iter().filter(|it| it.revision == revision);
    here.saturating_add(count(made.count()))
}
