//! The plan of one step of a StatefulSet: what is known about the pods, and what has been decided so far.
//!
//! Invariants: pure. A pod is made only for a number that has no pod, and each pod is deleted at most once.

use std::ops::ControlFlow;
use std::time::Duration;

use super::identity::PodIdentity;
use super::ordinals::Members;
use super::{PodCreation, StatefulSetInput};
use crate::api::PodPhase;
use crate::api::workload::PodManagement;
use crate::workloads::controller_revisions::{ControllerRevision, revision_label};
use crate::workloads::event::ControllerEvent;
use crate::workloads::observed::ObservedPod;
use crate::workloads::set_actions::{DeletionReason, PodDeletion, SetWait};

/// A break ends the step: nothing further is done until something changes.
pub(super) type Walk = ControlFlow<()>;

/// The plan of one step.
pub(super) struct Plan<'a> {
    pub input: &'a StatefulSetInput<'a>,
    pub members: Members<'a>,
    /// Revision to which pods are updated.
    pub update: &'a ControllerRevision,
    /// Revision that the pods had when the last update was complete.
    pub current: &'a ControllerRevision,
    pub creates: Vec<PodCreation>,
    pub deletes: Vec<PodDeletion>,
    /// Number of pods that are deleted because of the update. They count no more as current.
    pub updated: i32,
    pub events: Vec<ControllerEvent>,
    /// Thing that the set waits for, if a rule had to stop for it.
    pub wait: Option<SetWait>,
    /// Time for which a pod must be ready before it is available.
    pub min_ready: Duration,
}

impl<'a> Plan<'a> {
    /// Begins a plan, or gives None if the set has no revision yet. A current revision that is not there any more is
    /// the newest one.
    pub fn new(input: &'a StatefulSetInput<'a>) -> Option<Self> {
        let revisions = &input.state.revisions;
        let update = revisions.newest()?;
        let seconds = u64::try_from(input.spec.min_ready_seconds).unwrap_or(0);
        Some(Self {
            input,
            members: Members::new(input.name, input.spec, input.pods),
            update,
            current: revisions
                .named(&input.state.current_revision)
                .unwrap_or(update),
            creates: Vec::new(),
            deletes: Vec::new(),
            updated: 0,
            events: Vec::new(),
            wait: None,
            min_ready: Duration::from_secs(seconds),
        })
    }

    /// Decides in upstream's order: the pods within the range, then those beyond it, then the update.
    pub fn run(&mut self) -> Walk {
        self.start_pods()?;
        self.scale_down()?;
        self.update_pods()
    }

    /// True if each pod waits for its neighbours.
    pub fn is_ordered(&self) -> bool {
        self.input.spec.pod_management() == PodManagement::OrderedReady
    }

    /// True if a person deletes the pods that are to be updated.
    pub fn is_on_delete(&self) -> bool {
        self.input.spec.update_strategy.type_ == "OnDelete"
    }

    /// Returns the number of the first pod that may be updated.
    pub fn first_updated(&self) -> i32 {
        let settings = self.input.spec.update_strategy.rolling_update.as_ref();
        let partition = settings.and_then(|it| it.partition).unwrap_or(0).max(0);
        self.members.range.start.saturating_add(partition)
    }

    /// True if the pod is ready and its containers run.
    pub fn is_ready(&self, pod: &ObservedPod) -> bool {
        pod.phase == PodPhase::Running && pod.is_ready
    }

    /// True if the pod is available, even if it is being deleted.
    pub fn is_available(&self, pod: &ObservedPod) -> bool {
        pod.is_available(self.min_ready, self.input.now)
    }

    /// True if the pod is not available or is being deleted.
    pub fn is_unavailable(&self, pod: &ObservedPod) -> bool {
        !self.is_available(pod) || pod.is_deleted
    }

    /// True if the pod was not made from the newest revision.
    pub fn is_outdated(&self, pod: &ObservedPod) -> bool {
        revision_label(pod) != self.update.name
    }

    /// Makes the pod with this number from a revision.
    pub fn create(&mut self, ordinal: i32, revision: &ControllerRevision) {
        let (set, spec) = (self.input.name, self.input.spec);
        let identity = PodIdentity::new(set, spec, ordinal, &revision.name);
        self.wait_for(SetWait::PodReady {
            pod: Some(identity.name.clone()),
        });
        self.creates.push(PodCreation {
            ordinal,
            revision: revision.name.clone(),
            identity,
        });
    }

    /// Deletes a pod. A pod that goes already is not deleted again.
    pub fn delete(&mut self, pod: &ObservedPod, reason: DeletionReason) {
        self.wait_for(SetWait::PodEnd {
            pod: pod.name.clone(),
        });
        if self.deletes.iter().all(|it| it.pod != pod.name) {
            self.deletes.push(PodDeletion {
                pod: pod.name.clone(),
                reason,
            });
        }
    }

    /// Says what the set waits for. The first thing counts.
    pub fn wait_for(&mut self, wait: SetWait) {
        self.wait.get_or_insert(wait);
    }

    /// Says that the set waits for a pod that is not available, and ends the step.
    pub fn wait_for_pod(&mut self, pod: &ObservedPod) -> Walk {
        self.wait_for(SetWait::for_pod(pod, pod.available_at(self.min_ready)));
        Walk::Break(())
    }

    /// Says that a pod stays until the images of the newest revision are there.
    pub fn wait_for_images(&mut self, pod: &ObservedPod) {
        self.wait_for(SetWait::Images {
            revision: self.update.name.clone(),
            pod: pod.name.clone(),
        });
    }
}

/// Returns a number of pods as the API has it.
pub(super) fn count(pods: usize) -> i32 {
    i32::try_from(pods).unwrap_or(i32::MAX)
}
