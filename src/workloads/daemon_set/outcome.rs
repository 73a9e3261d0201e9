//! The end of a step of a DaemonSet: its status, what is written down, and what it waits for.
//!
//! Invariants: pure. Nothing is decided about pods any more.

use jiff::Timestamp;

use super::plan::Plan;
use super::status::DaemonSetStatus;
use super::{DaemonSetOutput, DaemonSetState, NodeFit};
use crate::workloads::controller_revisions::{ControllerRevision, revision_label};
use crate::workloads::observed::ObservedPod;
use crate::workloads::set_actions::SetWait;

impl Plan<'_> {
    /// Ends the plan: status, and what is written down.
    pub(super) fn finish(self) -> DaemonSetOutput {
        DaemonSetOutput {
            state: self.state(),
            status: DaemonSetStatus::of(&self),
            wait: self.final_wait(),
            wake_at: self.wake_at(),
            stage: self.stage,
            creates: self.creates,
            deletes: self.deletes,
            surge_note: self.limits.surge_note,
            events: self.events,
        }
    }

    fn state(&self) -> DaemonSetState {
        let mut revisions = self.input.state.revisions.clone();
        let limit = self.input.spec.revision_history_limit;
        let in_use = |it: &ControllerRevision| {
            let mut pods = self.input.pods.iter();
            pods.any(|pod| revision_label(pod) == it.hash)
        };
        revisions.truncate_old(limit, in_use);
        DaemonSetState {
            revisions,
            failed_pods: self.failed_pods,
        }
    }

    /// Returns what the set waits for, also where no rule had to stop for it.
    fn final_wait(&self) -> SetWait {
        if let Some(wait) = &self.wait {
            return wait.clone();
        }
        let mut pods = self.here.iter();
        let is_well = |pod: &ObservedPod| self.is_available(pod) && !pod.is_deleted;
        if let Some(pod) = pods.find(|it| !is_well(it)) {
            return SetWait::for_pod(pod, pod.available_at(self.min_ready));
        }
        if let NodeFit::Stays { reason } | NodeFit::Leaves { reason } = self.input.fit
            && self.here.is_empty()
        {
            return SetWait::Node {
                reason: reason.to_owned(),
            };
        }
        let outdated = self.here.iter().filter(|it| !self.is_updated(it));
        match outdated.count() {
            pods if pods > 0 && self.is_on_delete() => SetWait::Person { pods },
            _ => SetWait::Nothing,
        }
    }

    /// Returns the earliest time at which a ready pod becomes available or the back-off is over.
    fn wake_at(&self) -> Option<Timestamp> {
        let pods = self.here.iter();
        let available = pods.filter_map(|pod| pod.available_at(self.min_ready));
        let later = available.filter(|at| *at > self.input.now);
        later.chain(self.back_off_until).min()
    }
}
