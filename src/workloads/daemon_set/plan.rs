//! The plan of one step of a DaemonSet: what is known about its pods, and what has been decided so far.
//!
//! Invariants: pure. At most one pod is made in a step, and each pod is deleted at most once.

use std::time::Duration;

use jiff::Timestamp;

use super::failed_pods::FailedPodBackOff;
use super::limits::Limits;
use super::{DaemonSetInput, DaemonSetStage};
use crate::workloads::controller_revisions::{ControllerRevision, revision_label};
use crate::workloads::event::ControllerEvent;
use crate::workloads::observed::ObservedPod;
use crate::workloads::set_actions::{DeletionReason, PodDeletion, SetWait};

/// The plan of one step.
pub(super) struct Plan<'a> {
    pub input: &'a DaemonSetInput<'a>,
    /// Pods that have not both ended and been deleted, oldest first.
    pub here: Vec<&'a ObservedPod>,
    /// Revision that pods are to have.
    pub update: &'a ControllerRevision,
    pub limits: Limits,
    pub stage: DaemonSetStage,
    pub creates: bool,
    pub deletes: Vec<PodDeletion>,
    pub failed_pods: Option<FailedPodBackOff>,
    /// Time at which the back-off after a failed pod is over.
    pub back_off_until: Option<Timestamp>,
    pub events: Vec<ControllerEvent>,
    /// Thing that the set waits for, if a rule had to stop for it.
    pub wait: Option<SetWait>,
    /// Time for which a pod must be ready before it is available.
    pub min_ready: Duration,
}

impl<'a> Plan<'a> {
    /// Begins a plan, or gives None if the set has no revision yet.
    pub fn new(input: &'a DaemonSetInput<'a>) -> Option<Self> {
        let is_gone = |pod: &ObservedPod| pod.phase.is_terminal() && pod.is_deleted;
        let mut here: Vec<_> = input.pods.iter().filter(|it| !is_gone(it)).collect();
        here.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
        let seconds = u64::try_from(input.spec.min_ready_seconds).unwrap_or(0);
        Some(Self {
            input,
            here,
            update: input.state.revisions.newest()?,
            limits: Limits::of(input),
            stage: DaemonSetStage::Manage,
            creates: false,
            deletes: Vec::new(),
            failed_pods: input.state.failed_pods,
            back_off_until: None,
            events: Vec::new(),
            wait: None,
            min_ready: Duration::from_secs(seconds),
        })
    }

    /// True if nothing has been decided yet.
    pub fn is_idle(&self) -> bool {
        !self.creates && self.deletes.is_empty()
    }

    /// True if a person deletes the pods that are to be updated.
    pub fn is_on_delete(&self) -> bool {
        self.input.spec.update_strategy.type_ == "OnDelete"
    }

    /// True if the pod is available.
    pub fn is_available(&self, pod: &ObservedPod) -> bool {
        pod.is_available(self.min_ready, self.input.now)
    }

    /// True if the pod was made from the newest revision.
    pub fn is_updated(&self, pod: &ObservedPod) -> bool {
        revision_label(pod) == self.update.hash
    }

    /// Makes a pod of the newest revision.
    pub fn create(&mut self) {
        self.act(SetWait::PodReady { pod: None });
        self.creates = true;
    }

    /// Deletes a pod.
    pub fn delete(&mut self, pod: &ObservedPod, reason: DeletionReason) {
        self.act(SetWait::PodEnd {
            pod: pod.name.clone(),
        });
        self.deletes.push(PodDeletion {
            pod: pod.name.clone(),
            reason,
        });
    }

    /// Says what the set waits for after an action. The first action counts more than what had to wait before it.
    fn act(&mut self, wait: SetWait) {
        if self.is_idle() {
            self.wait = Some(wait);
        }
    }

    /// Deletes an outdated pod as soon as the images of the newest revision are there. A pod that has ended loses
    /// nothing.
    pub fn delete_outdated(&mut self, pod: &ObservedPod) {
        if self.input.images_ready || pod.phase.is_terminal() {
            return self.delete(pod, DeletionReason::Outdated);
        }
        self.wait_for(SetWait::Images {
            revision: self.update.name.clone(),
            pod: pod.name.clone(),
        });
    }

    /// Says what the set waits for. The first thing counts.
    pub fn wait_for(&mut self, wait: SetWait) {
        self.wait.get_or_insert(wait);
    }
}
