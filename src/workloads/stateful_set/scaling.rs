//! Which pods of a StatefulSet are made because they are missing, and which ones go because they are beyond the range
//! (workloads 5.4, 5.5, 5.7).
//!
//! Invariants: pure. With OrderedReady at most one pod is made or deleted in a step.

use super::ordinals::pod_name;
use super::plan::{Plan, Walk};
use crate::workloads::controller_revisions::ControllerRevision;
use crate::workloads::event::ControllerEvent;
use crate::workloads::observed::ObservedPod;
use crate::workloads::set_actions::{DeletionReason, SetWait};

/// Most pods that are made in one step (workloads 1.8).
const MOST_CREATES: usize = 500;

impl<'a> Plan<'a> {
    /// Makes the pods that are missing and deletes those that have ended, lowest number first
    /// (stateful_set_control.go: processReplica). With OrderedReady the walk ends at the first pod that is not
    /// available.
    pub(super) fn start_pods(&mut self) -> Walk {
        for ordinal in self.members.range.clone() {
            if self.creates.len() == MOST_CREATES {
                break;
            }
            match self.members.get(ordinal) {
                None => self.start_missing(ordinal)?,
                Some(pod) => self.start_pod(ordinal, pod)?,
            }
        }
        Walk::Continue(())
    }

    fn start_missing(&mut self, ordinal: i32) -> Walk {
        let name = pod_name(self.input.name, ordinal);
        if self.input.taken_names.contains(&name) {
            self.wait_for(SetWait::NameTaken { pod: name });
        } else {
            self.create(ordinal, self.revision_for(ordinal));
        }
        self.stop_if_ordered()
    }

    fn start_pod(&mut self, ordinal: i32, pod: &'a ObservedPod) -> Walk {
        if pod.phase.is_terminal() {
            if !pod.is_deleted {
                self.delete(pod, DeletionReason::Ended);
            }
            return self.stop_if_ordered();
        }
        if !self.is_ordered() || (self.is_ready(pod) && !self.is_unavailable(pod)) {
            return Walk::Continue(());
        }
        if self.is_stuck(ordinal, pod) {
            self.mend(pod);
        }
        self.wait_for_pod(pod)
    }

    fn stop_if_ordered(&self) -> Walk {
        if self.is_ordered() {
            return Walk::Break(());
        }
        Walk::Continue(())
    }

    /// Returns the revision from which a missing pod is made (stateful_set_utils.go: newVersionedStatefulSetPod).
    fn revision_for(&self, ordinal: i32) -> &'a ControllerRevision {
        let settings = &self.input.spec.update_strategy.rolling_update;
        let is_kept = match settings {
            Some(_) => ordinal < self.first_updated(),
            None => {
                let current = self.input.state.current_replicas;
                !self.is_on_delete() && ordinal < self.members.range.start.saturating_add(current)
            }
        };
        if is_kept { self.current } else { self.update }
    }

    /// True if the update would replace the pod, and the pod has not been ready since the newest revision exists. With
    /// OrderedReady the update would never come to it (workloads 5.7).
    fn is_stuck(&self, ordinal: i32, pod: &ObservedPod) -> bool {
        let was_ready = pod
            .ready_changed
            .is_some_and(|at| at > self.update.taken_up);
        self.input.mends_stuck_pods
            && !self.is_on_delete()
            && !pod.is_deleted
            && !pod.is_ready
            && !was_ready
            && self.is_outdated(pod)
            && ordinal >= self.first_updated()
    }

    fn mend(&mut self, pod: &'a ObservedPod) {
        if !self.input.images_ready {
            return self.wait_for_images(pod);
        }
        self.delete_outdated(pod, DeletionReason::Stuck);
        let message = format!(
            "Pod {} in StatefulSet {} has not been ready since revision {} exists: replacing it before the others",
            pod.name, self.input.name, self.update.name
        );
        let event = ControllerEvent::normal("ReplacingStuckPod", message);
        self.events.push(event);
    }

    /// Deletes pods beyond the range, highest number first (processCondemned). With OrderedReady each pod must have
    /// gone before the next one is deleted.
    pub(super) fn scale_down(&mut self) -> Walk {
        let condemned: Vec<&ObservedPod> =
            self.members.condemned().rev().map(|(_, pod)| pod).collect();
        if !self.is_ordered() {
            for pod in condemned.into_iter().filter(|it| !it.is_deleted) {
                self.delete(pod, DeletionReason::ScaledDown);
            }
            return Walk::Continue(());
        }
        let Some(highest) = condemned.first() else {
            return Walk::Continue(());
        };
        if highest.is_deleted {
            return self.wait_for_pod(highest);
        }
        let lowest_unavailable = condemned.iter().rev().find(|it| self.is_unavailable(it));
        match lowest_unavailable {
            Some(other) if self.holds_up(highest, other) => self.wait_for_pod(other),
            _ => {
                self.delete(highest, DeletionReason::ScaledDown);
                Walk::Break(())
            }
        }
    }

    /// True if a pod beyond the range that is not available waits for another one that is not available either. Both
    /// are to go, so two pods that are never ready do not wait for each other where stuck pods are mended.
    fn holds_up(&self, highest: &ObservedPod, lowest_unavailable: &ObservedPod) -> bool {
        let is_well = self.is_ready(highest) && self.is_available(highest);
        !is_well && highest.name != lowest_unavailable.name && !self.input.mends_stuck_pods
    }
}
