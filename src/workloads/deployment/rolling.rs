//! A rollout of the strategy RollingUpdate (deployment/rolling.go; workloads 3.4, 3.6, 3.7).
//!
//! Invariants: a step makes the new set larger, or old sets smaller, or neither. Old sets never shrink so far that
//! fewer than replicas - maxUnavailable pods are available, and not at all while a new pod could not start.

use super::SurgeAllowance;
use super::sync::Sync;

impl Sync<'_> {
    /// Makes a step of a rolling update.
    pub(super) fn roll(&mut self) {
        if self.new.is_none() {
            let size = self.size_to_grow_to(0);
            self.create_new_set(size);
        }
        let is_done = self.resize_new_set() || self.shrink_old_sets();
        if !is_done && self.was_complete() {
            self.clean_up();
        }
        self.end_of_rollout();
    }

    /// Changes the size of the new set as far as surge allows (reconcileNewReplicaSet).
    fn resize_new_set(&mut self) -> bool {
        let Some(index) = self.new else {
            return false;
        };
        let size = self.state.sets[index].size;
        let to = match size > self.replicas() {
            true => self.replicas(),
            false => self.size_to_grow_to(size),
        };
        self.scale_set(index, to)
    }

    /// Makes old sets smaller as far as the available pods allow (reconcileOldReplicaSets).
    fn shrink_old_sets(&mut self) -> bool {
        let old = self.active_old_sets();
        if old.is_empty() || self.must_keep_old_pods() {
            return false;
        }
        let min_available = self.min_available();
        let sizes = self.sum_all(|set, _| set.size);
        let room = sizes
            .saturating_sub(min_available)
            .saturating_sub(self.unavailable_new_pods());
        if room <= 0 {
            return false;
        }
        // The pods that were available before this step, as upstream counts them: of the new set and of the old sets
        // that should have pods.
        let counted: Vec<usize> = old.iter().copied().chain(self.new).collect();
        let available = self.sum(&counted, |_, pods| pods.available);
        let cleaned = self.drop_unhealthy(&old, room);
        let shrunk = self.drop_available(&old, available.saturating_sub(min_available));
        cleaned || shrunk
    }

    /// Returns the number of pods that must stay available.
    fn min_available(&self) -> i32 {
        self.replicas().saturating_sub(self.numbers.max_unavailable)
    }

    /// Returns the number of pods that the new set should have and that are not available. They take the room in which
    /// old pods could go (workloads 3.7).
    fn unavailable_new_pods(&self) -> i32 {
        let new = self.new_set();
        new.map_or(0, |set| set.size.saturating_sub(self.pods(set).available))
    }

    /// Takes pods that are not available from old sets, at most `limit` (cleanupUnhealthyReplicas).
    fn drop_unhealthy(&mut self, old: &[usize], limit: i32) -> bool {
        let mut left = limit;
        for index in old {
            let set = &self.state.sets[*index];
            let unhealthy = set.size.saturating_sub(self.pods(set).available).max(0);
            let dropped = unhealthy.min(left);
            let to = set.size.saturating_sub(dropped);
            left = left.saturating_sub(dropped);
            self.scale_set(*index, to);
        }
        left < limit
    }

    /// Takes pods from old sets, at most `limit` (scaleDownOldReplicaSetsForRollingUpdate).
    fn drop_available(&mut self, old: &[usize], limit: i32) -> bool {
        let mut left = limit.max(0);
        for index in old {
            let size = self.state.sets[*index].size;
            let dropped = size.min(left);
            left = left.saturating_sub(dropped);
            self.scale_set(*index, size.saturating_sub(dropped));
        }
        left < limit
    }

    /// True if no old pod may go for the rollout: a new pod does not fit, or its images are not on the node (workloads
    /// 3.21, 3.22). When all new pods are available, nothing is left that could go wrong with them.
    pub(super) fn must_keep_old_pods(&self) -> bool {
        let available = self.new_set().map_or(0, |set| self.pods(set).available);
        let is_rolled_out = available >= self.replicas();
        !is_rolled_out && (self.does_not_fit() || !self.input.node.images.is_ready())
    }

    /// True if a new pod does not fit, even in the place of an old one, and there is an old one to lose.
    pub(super) fn does_not_fit(&self) -> bool {
        let does_not_fit = matches!(self.input.node.surge, SurgeAllowance::DoesNotFit(_));
        does_not_fit && !self.active_old_sets().is_empty()
    }
}
