//! The controller of a set of equal pods: a ReplicaSet, a ReplicationController, or a set of a Deployment (workloads
//! 2).
//!
//! Invariants: pure. A plan makes pods or ends pods, never both. A pod that is ending or has ended does not count, so
//! its replacement does not wait for it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::event::ControllerEvent;
use super::observed::{ObservedPod, later};
use super::ranking::sort_for_deletion;
use crate::base::pod_uid::PodUid;

/// Most pods that one plan makes or ends (burstReplicas).
const MOST_PODS: usize = 500;
/// Number of ended pods of a set that are kept for people to look at (workloads 2.5).
const KEPT_ENDED: usize = 3;
/// Delay before the first pod that ended is replaced.
const FIRST_DELAY: Duration = Duration::from_secs(5);
/// Longest delay before a pod that ended is replaced.
const LONGEST_DELAY: Duration = Duration::from_secs(300);
/// Time without an ended pod after which the delay starts from its beginning again.
const CALM: Duration = Duration::from_secs(600);

/// The numbers of a set's pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodCounts {
    /// Pods that have not ended and are not being deleted.
    pub active: i32,
    /// Active pods that are ready.
    pub ready: i32,
    /// Active pods that have been ready for long enough, and that the table of services knows.
    pub available: i32,
    /// Pods that are being deleted and have not ended.
    pub terminating: i32,
    /// Pods that are being deleted and are still on the node, also those that have ended.
    pub leaving: i32,
    /// Earliest time at which a further active pod becomes available.
    pub next_available_at: Option<Timestamp>,
}

impl PodCounts {
    /// Counts the pods of a set. A pod counts as available after `min_ready`.
    pub fn of(pods: &[ObservedPod], min_ready: Duration, now: Timestamp) -> Self {
        let count = |is_counted: &dyn Fn(&ObservedPod) -> bool| {
            let number = pods.iter().filter(|pod| is_counted(pod)).count();
            i32::try_from(number).unwrap_or(i32::MAX)
        };
        let active = || pods.iter().filter(|pod| pod.is_active());
        Self {
            active: count(&ObservedPod::is_active),
            ready: count(&|pod| pod.is_active() && pod.is_ready),
            available: count(&|pod| pod.is_active() && pod.is_available(min_ready, now)),
            terminating: count(&ObservedPod::is_terminating),
            leaving: count(&|pod| pod.is_deleted),
            next_available_at: active()
                .filter_map(|pod| pod.available_at(min_ready))
                .filter(|at| *at > now)
                .min(),
        }
    }
}

/// The pods of a set that must be made, ended and removed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplicaSetPlan {
    /// Number of pods to make.
    pub create: usize,
    /// Pods to end, the first one first.
    pub delete: Vec<PodUid>,
    /// Ended pods to remove from the node, because newer ones are kept.
    pub remove: Vec<PodUid>,
    /// The delays of the set after this plan. They belong into the state.
    pub delays: ReplacementDelays,
    /// Time at which the next plan must be made, if nothing else happens before.
    pub wake_at: Option<Timestamp>,
}

/// The delays before pods that ended by themselves are replaced: 5 s, doubling to 5 min (workloads 2.5).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplacementDelays {
    /// Number of ended pods since the set was last calm.
    in_a_row: u32,
    /// Number of ended pods that have no replacement yet.
    open: usize,
    /// Time at which the last pod ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<Timestamp>,
    /// Ended pods that were counted and are still there.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    counted: BTreeSet<PodUid>,
}

impl ReplacementDelays {
    /// Counts the ended pods that were not counted before.
    fn count(&mut self, ended: &[&ObservedPod], now: Timestamp) {
        let is_calm = self.last.is_some_and(|last| later(last, CALM) < now);
        if is_calm {
            self.in_a_row = 0;
        }
        for pod in ended.iter().filter(|pod| !self.counted.contains(&pod.uid)) {
            self.in_a_row = self.in_a_row.saturating_add(1);
            self.open = self.open.saturating_add(1);
            self.last = self.last.max(Some(ended_at(pod).unwrap_or(now).min(now)));
        }
        self.counted = ended.iter().map(|pod| pod.uid.clone()).collect();
    }

    /// Returns the time until which ended pods are not replaced.
    fn until(&self) -> Option<Timestamp> {
        let doublings = self.in_a_row.saturating_sub(1).min(16);
        let delay = FIRST_DELAY
            .saturating_mul(1 << doublings)
            .min(LONGEST_DELAY);
        self.last.map(|last| later(last, delay))
    }
}

/// Returns the time at which the last container of a pod ended.
fn ended_at(pod: &ObservedPod) -> Option<Timestamp> {
    pod.containers.iter().filter_map(|it| it.finished_at).max()
}

/// Decides which pods a set makes and ends. `replicas` is the wanted number, `pods` are all pods of the set
/// (replica_set.go: manageReplicas).
pub fn plan(
    replicas: i32,
    pods: &[ObservedPod],
    min_ready: Duration,
    delays: &ReplacementDelays,
    now: Timestamp,
) -> ReplicaSetPlan {
    let mut active: Vec<&ObservedPod> = pods.iter().filter(|pod| pod.is_active()).collect();
    let ended = ended_pods(pods);
    let mut plan = ReplicaSetPlan {
        remove: surplus(&ended),
        delays: delays.clone(),
        ..ReplicaSetPlan::default()
    };
    plan.delays.count(&ended, now);
    let wanted = usize::try_from(replicas).unwrap_or_default();
    match wanted.checked_sub(active.len()) {
        Some(missing) => plan.make(missing, now),
        None => {
            sort_for_deletion(&mut active, min_ready, Some(now));
            let surplus = active.len().saturating_sub(wanted).min(MOST_PODS);
            plan.delays.open = 0;
            plan.delete = active[..surplus]
                .iter()
                .map(|pod| pod.uid.clone())
                .collect();
        }
    }
    plan
}

impl ReplicaSetPlan {
    /// Makes the missing pods, apart from those that must wait.
    fn make(&mut self, missing: usize, now: Timestamp) {
        let until = self.delays.until().filter(|until| *until > now);
        self.delays.open = match until {
            Some(_) => self.delays.open.min(missing),
            None => 0,
        };
        self.wake_at = until.filter(|_| self.delays.open > 0);
        self.create = missing.saturating_sub(self.delays.open).min(MOST_PODS);
    }
}

/// Returns the pods that have ended by themselves, the newest first.
fn ended_pods(pods: &[ObservedPod]) -> Vec<&ObservedPod> {
    let has_ended = |pod: &&ObservedPod| pod.phase.is_terminal() && !pod.is_deleted;
    let mut ended: Vec<&ObservedPod> = pods.iter().filter(has_ended).collect();
    ended.sort_by(|a, b| (b.created, &b.uid).cmp(&(a.created, &a.uid)));
    ended
}

fn surplus(ended: &[&ObservedPod]) -> Vec<PodUid> {
    ended
        .iter()
        .skip(KEPT_ENDED)
        .map(|pod| pod.uid.clone())
        .collect()
}

/// The error that came up when the last plan was carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetFailure {
    /// `FailedCreate` or `FailedDelete`.
    pub reason: String,
    /// The error, such as the words with which admission refused a pod.
    pub message: String,
    /// Time at which it went wrong first.
    pub since: Timestamp,
}

impl SetFailure {
    /// Returns the failure of a set after a plan was carried out with this error, or without one. The first error stays
    /// until a plan succeeds (replica_set_utils.go: calculateStatus).
    pub fn after(
        before: Option<Self>,
        plan: &ReplicaSetPlan,
        error: Option<&str>,
        now: Timestamp,
    ) -> Option<Self> {
        let message = error?;
        before.or_else(|| {
            let reason = match plan.delete.is_empty() {
                true => "FailedCreate",
                false => "FailedDelete",
            };
            Some(Self {
                reason: reason.into(),
                message: message.into(),
                since: now,
            })
        })
    }
}

/// `status` of a ReplicaSet or a ReplicationController (workloads 2.4).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaSetStatus {
    /// Number of pods that have not ended and are not ending.
    pub replicas: i32,
    /// Number of these pods that have all labels of the template.
    #[serde(skip_serializing_if = "is_zero")]
    pub fully_labeled_replicas: i32,
    /// Number of these pods that are ready.
    #[serde(skip_serializing_if = "is_zero")]
    pub ready_replicas: i32,
    /// Number of these pods that have been ready for long enough.
    #[serde(skip_serializing_if = "is_zero")]
    pub available_replicas: i32,
    /// Number of pods that are ending. A ReplicationController has no such number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating_replicas: Option<i32>,
    /// Generation of the set that the last plan saw.
    pub observed_generation: i64,
    /// Conditions: ReplicaFailure, or none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<ReplicaSetCondition>,
}

fn is_zero(number: &i32) -> bool {
    *number == 0
}

/// A condition of a ReplicaSet or a ReplicationController.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaSetCondition {
    /// Type of the condition: `ReplicaFailure`.
    #[serde(rename = "type")]
    pub type_: String,
    /// Status of the condition.
    pub status: String,
    /// Time at which `status` changed last.
    pub last_transition_time: Timestamp,
    /// Reason of the condition's status, one word.
    pub reason: String,
    /// Message about the condition, a sentence.
    pub message: String,
}

impl ReplicaSetStatus {
    /// Returns the status of a set with these pods, whose template has these labels.
    pub fn of(
        pods: &[ObservedPod],
        template_labels: &BTreeMap<String, String>,
        counts: PodCounts,
        failure: Option<&SetFailure>,
        generation: i64,
    ) -> Self {
        let has_all = |pod: &&ObservedPod| {
            let mut labels = template_labels.iter();
            pod.is_active() && labels.all(|(key, value)| pod.labels.get(key) == Some(value))
        };
        let labeled = pods.iter().filter(has_all).count();
        Self {
            replicas: counts.active,
            fully_labeled_replicas: i32::try_from(labeled).unwrap_or(i32::MAX),
            ready_replicas: counts.ready,
            available_replicas: counts.available,
            terminating_replicas: Some(counts.terminating),
            observed_generation: generation,
            conditions: failure.map(SetFailure::condition).into_iter().collect(),
        }
    }
}

impl SetFailure {
    fn condition(&self) -> ReplicaSetCondition {
        ReplicaSetCondition {
            type_: "ReplicaFailure".into(),
            status: "True".into(),
            last_transition_time: self.since,
            reason: self.reason.clone(),
            message: self.message.clone(),
        }
    }
}

/// Returns the event of a pod that was made.
pub fn created_event(pod: &str) -> ControllerEvent {
    ControllerEvent::normal("SuccessfulCreate", format!("Created pod: {pod}"))
}

/// Returns the event of a pod that was ended.
pub fn deleted_event(pod: &str) -> ControllerEvent {
    ControllerEvent::normal("SuccessfulDelete", format!("Deleted pod: {pod}"))
}

/// Returns the event of a pod that could not be made.
pub fn create_failed_event(error: &str) -> ControllerEvent {
    ControllerEvent::warning("FailedCreate", format!("Error creating: {error}"))
}

/// Returns the event of a pod that could not be ended.
pub fn delete_failed_event(error: &str) -> ControllerEvent {
    ControllerEvent::warning("FailedDelete", format!("Error deleting: {error}"))
}

#[cfg(test)]
mod tests;
