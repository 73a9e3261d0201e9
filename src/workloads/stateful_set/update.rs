//! Which outdated pods of a StatefulSet are deleted, so that they come again at the newest revision (workloads 5.6,
//! 5.8).
//!
//! Invariants: pure. No pod is deleted before the images of the newest revision are on the node.

use super::plan::{Plan, Walk, count};
use crate::api::workload::IntOrPercent;
use crate::workloads::observed::ObservedPod;
use crate::workloads::set_actions::DeletionReason;

/// Returns the number of pods that may be unavailable while the feature gate is on. Percentages are rounded down, to
/// at least 1 (stateful_set_utils.go: getStatefulSetMaxUnavailable).
pub fn max_unavailable(written: Option<&IntOrPercent>, replicas: i32) -> i32 {
    let number = written.and_then(|it| it.of(replicas, false));
    number.unwrap_or(1).max(1)
}

impl<'a> Plan<'a> {
    /// Deletes outdated pods, highest number first, down to the partition.
    pub(super) fn update_pods(&mut self) -> Walk {
        if self.is_on_delete() {
            return Walk::Continue(());
        }
        if self.input.max_unavailable_gate {
            self.update_within_budget();
            return Walk::Continue(());
        }
        let updated = self.first_updated()..self.members.range.end;
        for ordinal in updated.rev() {
            self.update_pod(ordinal)?;
        }
        Walk::Continue(())
    }

    /// Deletes the pod if it is outdated. A pod that is deleted, missing or not available ends the walk.
    fn update_pod(&mut self, ordinal: i32) -> Walk {
        // A pod that is not there, or is only made now, is not available.
        let Some(pod) = self.members.get(ordinal) else {
            return Walk::Break(());
        };
        if self.is_outdated(pod) && !pod.is_deleted {
            self.replace(pod);
            return Walk::Break(());
        }
        if self.is_unavailable(pod) {
            return self.wait_for_pod(pod);
        }
        Walk::Continue(())
    }

    /// Deletes as many outdated pods as may be unavailable beside those that are (updateStatefulSetAfterInvariant-
    /// Established).
    fn update_within_budget(&mut self) {
        let settings = self.input.spec.update_strategy.rolling_update.as_ref();
        let written = settings.and_then(|it| it.max_unavailable.as_ref());
        let replicas = self.input.spec.replicas.max(0);
        let well = self.members.wanted();
        let well = well.filter(|(_, pod)| !self.is_unavailable(pod)).count();
        let unavailable = replicas.saturating_sub(count(well));
        let budget = max_unavailable(written, replicas).saturating_sub(unavailable);
        let first = self.first_updated();
        let outdated = self.members.wanted().rev();
        let outdated = outdated
            .filter(|(ordinal, pod)| *ordinal >= first && self.is_outdated(pod) && !pod.is_deleted);
        let budget = usize::try_from(budget).unwrap_or(0);
        let outdated: Vec<&ObservedPod> = outdated.map(|(_, pod)| pod).take(budget).collect();
        for pod in outdated {
            self.replace(pod);
        }
    }

    fn replace(&mut self, pod: &'a ObservedPod) {
        if self.input.images_ready {
            self.delete_outdated(pod, DeletionReason::Outdated);
        } else {
            self.wait_for_images(pod);
        }
    }

    /// Deletes a pod for the update.
    pub(super) fn delete_outdated(&mut self, pod: &'a ObservedPod, reason: DeletionReason) {
        self.delete(pod, reason);
        self.updated = self.updated.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_of_the_replicas_is_rounded_down_to_at_least_one() {
        #[track_caller]
        fn check(written: &str, replicas: i32, expected: i32) {
            let written = IntOrPercent::Text(written.to_owned());
            assert_eq!(max_unavailable(Some(&written), replicas), expected);
        }
        check("50%", 5, 2);
        check("1%", 5, 1);
        check("100%", 5, 5);
        check("many", 5, 1);
        assert_eq!(max_unavailable(None, 5), 1);
        assert_eq!(max_unavailable(Some(&IntOrPercent::Int(7)), 5), 7);
    }
}
