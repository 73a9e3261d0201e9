//! The number of a DaemonSet's pods on the node: a missing pod is made, pods that have ended and pods too many are
//! deleted (workloads 4.2, 4.4).
//!
//! Invariants: pure.

use super::failed_pods::FailedPodBackOff;
use super::plan::Plan;
use super::{DaemonSetInput, NodeFit};
use crate::api::PodPhase;
use crate::workloads::event::ControllerEvent;
use crate::workloads::observed::ObservedPod;
use crate::workloads::set_actions::{DeletionReason, SetWait};

/// Most failed pods that are kept while new ones are made beside them (workloads 2.5).
const MOST_FAILED: usize = 3;

impl<'a> Plan<'a> {
    /// Decides about the number of pods (daemon_controller.go: podsShouldBeOnNode).
    pub(super) fn manage(&mut self) {
        match self.input.fit {
            NodeFit::Runs if self.here.is_empty() => self.create(),
            NodeFit::Runs | NodeFit::Stays { .. } => self.manage_pods(),
            NodeFit::Leaves { .. } => {
                for pod in self.remaining() {
                    self.delete(pod, DeletionReason::NodeDoesNotMatch);
                }
            }
        }
    }

    /// Returns the pods that are not being deleted, oldest first.
    pub(super) fn remaining(&self) -> Vec<&'a ObservedPod> {
        let here = self.here.iter().copied();
        here.filter(|it| !it.is_deleted).collect()
    }

    fn manage_pods(&mut self) {
        let (ended, running): (Vec<_>, Vec<_>) = self
            .remaining()
            .into_iter()
            .partition(|it| it.phase.is_terminal());
        for pod in &ended {
            self.delete_ended(pod);
        }
        match running.as_slice() {
            [] => self.replace_ended(&ended),
            [_] => {}
            _ if self.limits.allows_surge => self.keep_old_and_new(&running),
            [_, others @ ..] => {
                for pod in others {
                    self.delete(pod, DeletionReason::Excess);
                }
            }
        }
    }

    fn delete_ended(&mut self, pod: &ObservedPod) {
        let DaemonSetInput {
            generation, now, ..
        } = *self.input;
        if pod.phase == PodPhase::Succeeded {
            self.events.push(succeeded(self.input, pod));
            return self.delete(pod, DeletionReason::Ended);
        }
        let before = self.failed_pods;
        if let Some(until) = before.and_then(|it| it.until(generation, now)) {
            self.back_off_until = Some(until);
            let pod = pod.name.clone();
            return self.wait_for(SetWait::BackOff { pod, until });
        }
        self.failed_pods = Some(FailedPodBackOff::next(before, generation, now));
        self.events.push(failed(self.input, pod));
        self.delete(pod, DeletionReason::Ended);
    }

    /// Makes a pod beside those that have ended or are being deleted, which only surge allows. Failed pods that stay
    /// because of the back-off are limited: else each new failure would leave one more behind.
    fn replace_ended(&mut self, ended: &[&ObservedPod]) {
        let kept = ended.len().saturating_sub(self.deletes.len());
        let is_wanted = self.limits.allows_surge && self.input.fit == NodeFit::Runs;
        if is_wanted && kept < MOST_FAILED {
            self.create();
        }
    }

    /// Keeps the oldest pod of the newest revision and the oldest other one. The other one goes when it is not ready
    /// or the new one is available.
    fn keep_old_and_new(&mut self, running: &[&'a ObservedPod]) {
        let running = running.iter().copied();
        let (updated, outdated): (Vec<_>, Vec<_>) = running.partition(|it| self.is_updated(it));
        for pod in updated.iter().skip(1).chain(outdated.iter().skip(1)) {
            self.delete(pod, DeletionReason::Excess);
        }
        if let (Some(new), Some(old)) = (updated.first(), outdated.first())
            && (!old.is_ready || self.is_available(new))
        {
            self.delete_outdated(old);
        }
    }
}

fn failed(input: &DaemonSetInput<'_>, pod: &ObservedPod) -> ControllerEvent {
    let message = format!(
        "Found failed daemon pod {}/{} on node {}, will try to kill it",
        input.namespace, pod.name, input.node
    );
    ControllerEvent::warning("FailedDaemonPod", message)
}

fn succeeded(input: &DaemonSetInput<'_>, pod: &ObservedPod) -> ControllerEvent {
    let message = format!(
        "Found succeeded daemon pod {}/{} on node {}, will try to delete it",
        input.namespace, pod.name, input.node
    );
    ControllerEvent::normal("SucceededDaemonPod", message)
}
