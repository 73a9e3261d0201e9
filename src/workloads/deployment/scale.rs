//! Scaling: the replicas of a Deployment have changed, or it is paused (sync.go: sync, scale, isScalingEvent; workloads
//! 3.10 to 3.12, 3.14).
//!
//! Invariants: no set gets less than 0 pods. Sets that have pods keep their proportions as far as whole pods allow.

use std::cmp::Reverse;

use super::state::SetRecord;
use super::sync::Sync;
use crate::api::workload::StrategyType;

impl Sync<'_> {
    /// True if a set that should have pods was scaled for another number of replicas.
    pub(super) fn is_scaling_event(&self) -> bool {
        let differs = |set: &SetRecord| set.desired.is_some_and(|it| it != self.replicas());
        self.state
            .sets
            .iter()
            .any(|set| set.size > 0 && differs(set))
    }

    /// Scales the sets of a paused Deployment, and cleans up its history.
    pub(super) fn scale_paused(&mut self) {
        self.scale_sets();
        if self.wanted_rollback().is_none() {
            self.clean_up();
        }
        self.renew_status();
    }

    /// Scales the sets of a Deployment whose replicas have changed.
    pub(super) fn scale(&mut self) {
        self.scale_sets();
        self.renew_status();
    }

    fn scale_sets(&mut self) {
        let mut active = self.active_old_sets();
        active.extend(self.new.filter(|index| self.state.sets[*index].size > 0));
        let newest = self.new.or_else(|| self.old_sets().pop());
        match (active.as_slice(), newest) {
            ([], None) => {}
            ([], Some(only)) | (&[only], _) => self.scale_only(only),
            _ if self.is_saturated() => self.end_old_sets_of_saturated(),
            _ if self.input.spec.strategy.strategy_type() == StrategyType::RollingUpdate => {
                self.scale_in_proportion(active);
            }
            // Upstream does nothing here and finds the same scaling event for ever. The rollout sets the sizes.
            _ => active
                .into_iter()
                .for_each(|index| self.note_replicas(index)),
        }
    }

    /// Gives the only set that should have pods all of them.
    fn scale_only(&mut self, index: usize) {
        self.scale_set(index, self.replicas());
        // A set that has the right size already must be noted too. Upstream does not, finds the same scaling event for
        // ever, and the rollout never goes on.
        if self.state.sets[index].size > 0 {
            self.note_replicas(index);
        }
    }

    /// True if the new set has all pods, was scaled for them, and all are available (IsSaturated).
    fn is_saturated(&self) -> bool {
        self.new_set().is_some_and(|set| {
            let available = self.pods(set).available;
            [set.size, set.desired.unwrap_or(-1), available] == [self.replicas(); 3]
        })
    }

    fn end_old_sets_of_saturated(&mut self) {
        for index in self.active_old_sets() {
            self.scale_set(index, 0);
        }
    }

    /// Gives each set its part of the pods that must come or go. What is left over goes to the largest set.
    fn scale_in_proportion(&mut self, mut sets: Vec<usize>) {
        let allowed = match self.replicas() {
            ..=0 => 0,
            _ => self.max_replicas(),
        };
        let to_add = i64::from(allowed) - i64::from(self.sum(&sets, |set, _| set.size));
        self.sort_by_size(&mut sets, to_add);
        let mut left = to_add;
        let mut parts = Vec::new();
        for index in &sets {
            let part = self.part(&self.state.sets[*index], left);
            left -= part;
            parts.push(part);
        }
        if let Some(first) = parts.first_mut() {
            *first += left;
        }
        for (index, part) in sets.into_iter().zip(parts) {
            let size = i64::from(self.state.sets[index].size) + part;
            self.scale_set(index, i32::try_from(size.max(0)).unwrap_or(i32::MAX));
            self.note_replicas(index);
        }
    }

    /// Sorts sets by size, the larger first. Of equal sets the newer grows first, and the older shrinks first.
    fn sort_by_size(&self, sets: &mut [usize], to_add: i64) {
        let size = |index: &usize| Reverse(self.state.sets[*index].size);
        match to_add {
            ..=-1 => sets.sort_by_key(|index| (size(index), *index)),
            0 => {}
            1.. => sets.sort_by_key(|index| (size(index), Reverse(*index))),
        }
    }

    /// Returns the number of pods that a set gets of the `left` ones, or loses (GetReplicaSetProportion).
    fn part(&self, set: &SetRecord, left: i64) -> i64 {
        match left {
            0 => 0,
            ..=-1 => self.fraction(set).max(left),
            1.. => self.fraction(set).min(left),
        }
    }

    /// Returns the difference between the size that a set would have in its old proportion, and its size. Halves round
    /// away from zero (getReplicaSetFraction).
    fn fraction(&self, set: &SetRecord) -> i64 {
        let size = i64::from(set.size);
        if self.replicas() == 0 {
            return -size;
        }
        let status = self.state.status.replicas;
        match i64::from(set.max.filter(|max| *max > 0).unwrap_or(status)) {
            0 => 0,
            before => {
                let now = i64::from(self.max_replicas());
                (2 * size * now + before) / (2 * before) - size
            }
        }
    }
}
