//! The update of a DaemonSet's pod to the newest revision: the old one goes first, or the new one comes beside it
//! (workloads 4.3, 4.4).
//!
//! Invariants: pure. It comes only after the number of pods is right.

use super::NodeFit;
use super::plan::Plan;
use crate::workloads::observed::ObservedPod;
use crate::workloads::set_actions::DeletionReason;

impl<'a> Plan<'a> {
    /// Decides about the update (daemon/update.go: rollingUpdate). More than one old or new pod is left to the next
    /// step, which deletes the excess.
    pub(super) fn update(&mut self) {
        let (updated, outdated): (Vec<_>, Vec<_>) = self
            .remaining()
            .into_iter()
            .partition(|it| self.is_updated(it));
        match (updated.as_slice(), outdated.as_slice()) {
            ([], [old]) if self.limits.max_surge > 0 => self.surge(old),
            ([], [old]) => self.replace(old),
            ([new], [old]) if self.limits.max_surge > 0 && self.is_available(new) => {
                self.delete_outdated(old);
            }
            _ => {}
        }
    }

    /// Deletes the old pod. One that is not available goes whatever the budget is.
    fn replace(&mut self, old: &ObservedPod) {
        if !self.is_available(old) || self.limits.max_unavailable > 0 {
            self.delete_outdated(old);
        }
    }

    /// Makes a new pod beside the old one. Where none may come, the old pod goes, because no other node needs it.
    fn surge(&mut self, old: &ObservedPod) {
        if self.input.fit == NodeFit::Runs {
            self.create();
        } else {
            self.delete(old, DeletionReason::NodeDoesNotMatch);
        }
    }
}
