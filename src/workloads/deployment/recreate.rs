//! A rollout of the strategy Recreate (deployment/recreate.go; workloads 3.8).
//!
//! Invariants: no new pod is made before every old one has ended. No old pod ends before a new one could start.

use super::sync::Sync;

impl Sync<'_> {
    /// Makes a step of a rollout that ends all old pods first.
    pub(super) fn recreate(&mut self) {
        if self.must_keep_old_pods() && !self.active_old_sets().is_empty() {
            self.announce_new_set();
        } else if !self.end_old_sets() && !self.has_old_pods() {
            self.start_new_set();
            if self.was_complete() {
                self.clean_up();
            }
        }
        self.end_of_rollout();
    }

    /// Makes the new set without pods. The set has a revision and a progress deadline while its images are pulled
    /// (workloads 3.22).
    fn announce_new_set(&mut self) {
        if self.new.is_none() {
            self.create_new_set(0);
        }
    }

    fn end_old_sets(&mut self) -> bool {
        let old = self.active_old_sets();
        old.iter().for_each(|index| {
            self.scale_set(*index, 0);
        });
        !old.is_empty()
    }

    /// True if a pod of an old set has not ended yet, or an old set counts one (oldPodsRunning).
    fn has_old_pods(&self) -> bool {
        self.old_pods_not_ended() > 0
    }

    /// Returns the number of pods of old sets that have not ended.
    pub(super) fn old_pods_not_ended(&self) -> i32 {
        self.sum(&self.old_sets(), |_, pods| {
            pods.active.saturating_add(pods.terminating)
        })
    }

    fn start_new_set(&mut self) {
        match self.new {
            None => self.create_new_set(self.replicas()),
            Some(index) => {
                self.scale_set(index, self.replicas());
            }
        }
    }
}
