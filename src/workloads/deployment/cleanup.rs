//! The history of a Deployment: which old sets go (sync.go: cleanupDeployment; workloads 3.19).
//!
//! Invariants: a set that should have pods, or still has pods that have not gone, stays. It counts against the limit.

use super::Action;
use super::sync::Sync;

/// Value of `revisionHistoryLimit` that keeps all sets.
const NO_LIMIT: i32 = i32::MAX;

impl Sync<'_> {
    /// Deletes old sets beyond `revisionHistoryLimit`, the lowest revision first.
    pub(super) fn clean_up(&mut self) {
        let limit = self.input.spec.revision_history_limit;
        if limit == NO_LIMIT {
            return;
        }
        let mut sets = self.old_sets();
        sets.retain(|index| !self.is_being_deleted(*index));
        // Sets are in the order of their creation, and the sort is stable.
        sets.sort_by_key(|index| self.state.sets[*index].revision);
        let surplus = sets
            .len()
            .saturating_sub(usize::try_from(limit).unwrap_or_default());
        sets.truncate(surplus);
        sets.retain(|index| self.may_go(*index));
        self.delete(&sets);
    }

    fn is_being_deleted(&self, index: usize) -> bool {
        self.observed(&self.state.sets[index])
            .is_some_and(|it| it.is_deleted)
    }

    fn may_go(&self, index: usize) -> bool {
        let set = &self.state.sets[index];
        let pods = self.pods(set);
        [set.size, pods.active, pods.terminating, pods.leaving] == [0; 4]
    }

    fn delete(&mut self, sets: &[usize]) {
        let names: Vec<String> = sets
            .iter()
            .map(|index| self.state.sets[*index].name.clone())
            .collect();
        let new = self.new_set().map(|set| set.name.clone());
        self.state.sets.retain(|set| !names.contains(&set.name));
        self.new = new.and_then(|new| self.state.sets.iter().position(|set| set.name == new));
        self.actions
            .extend(names.into_iter().map(|set| Action::Delete { set }));
    }
}
