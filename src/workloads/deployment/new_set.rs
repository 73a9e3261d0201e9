//! The new set of a Deployment: which it is, its revision and annotations, and how it is made (workloads 3.2, 3.3, 3.6,
//! 3.16, 3.17).
//!
//! Invariants: the new set is the oldest whose template is the spec's. Its revision number is the highest, and is only
//! ever raised. No two sets have the same name.

use std::sync::Arc;

use super::state::SetRecord;
use super::status::{DeploymentCondition, PROGRESSING};
use super::sync::Sync;
use super::{Action, SurgeAllowance};
use crate::api::workload::StrategyType;
use crate::workloads::event::ControllerEvent;
use crate::workloads::names::{set_name, template_hash};
use crate::workloads::revisions::{copy_annotations, history_with, max_revision};

/// Number of collisions in a row after which a name is taken as it is. Only a Deployment with more sets could need
/// more.
const MOST_COLLISIONS: usize = 1000;

impl Sync<'_> {
    /// Finds the oldest set whose template is the spec's (FindNewReplicaSet).
    pub(super) fn find_new_set(&mut self) {
        let is_current = |set: &SetRecord| self.observed(set).is_some_and(|it| it.is_current);
        self.new = self.state.sets.iter().position(is_current);
    }

    /// Brings revision, annotations and `minReadySeconds` of an existing new set up to date (sync.go:
    /// getNewReplicaSet).
    pub(super) fn renew_new_set(&mut self) {
        let next = self.next_revision();
        let Some(set) = self.new.and_then(|index| self.state.sets.get_mut(index)) else {
            return;
        };
        let is_renewed = set.renew(self.input.annotations, self.input.spec.min_ready_seconds);
        let (name, revision) = (set.name.clone(), set.revision);
        if revision < next {
            set.raise_revision(next);
            let history = set.history.clone();
            self.actions.push(Action::SetRevision {
                set: name.clone(),
                revision: next,
                history,
            });
        } else if is_renewed {
            self.actions.push(Action::Annotate { set: name.clone() });
        }
        self.state.revision = revision.max(next);
        let before = self.state.rollout_of.replace(name.clone());
        // The progress of another set says nothing about this one. Upstream keeps the condition, so an old set that is
        // taken up again can be late at once, or never.
        if before.is_some_and(|before| before != name) && !self.input.spec.paused {
            self.state.forget_progress();
        }
        if self.has_deadline() && self.state.status.condition(PROGRESSING).is_none() {
            let message = format!("Found new replica set \"{name}\"");
            self.set_progressing("True", "FoundNewReplicaSet", message);
        }
    }

    /// Returns the revision number that a new set must have at least.
    fn next_revision(&self) -> i64 {
        let old = self.old_sets();
        let numbers = old.iter().map(|index| self.state.sets[*index].revision);
        max_revision(numbers).saturating_add(1)
    }

    /// Makes the new set with this number of pods.
    pub(super) fn create_new_set(&mut self, size: i32) {
        let hash = self.free_hash();
        let set = SetRecord {
            name: set_name(self.input.name, &hash),
            hash,
            revision: self.next_revision(),
            history: String::new(),
            template: Arc::clone(&self.input.spec.template.written),
            size,
            desired: Some(self.replicas()),
            max: Some(self.max_replicas()),
            min_ready_seconds: self.input.spec.min_ready_seconds,
            annotations: Default::default(),
            created: self.time_of_new_set(),
            delays: Default::default(),
        };
        self.add(set);
    }

    /// Returns a time for a new set that makes it the newest, even if the clock stood still.
    fn time_of_new_set(&self) -> jiff::Timestamp {
        let newest = self.state.sets.iter().map(|set| set.created).max();
        let after = |newest: jiff::Timestamp| {
            newest
                .checked_add(jiff::SignedDuration::from_nanos(1))
                .unwrap_or(newest)
        };
        newest
            .map(after)
            .map_or(self.input.now, |at| at.max(self.input.now))
    }

    fn add(&mut self, mut set: SetRecord) {
        copy_annotations(self.input.annotations, &mut set.annotations);
        let (name, size, revision) = (set.name.clone(), set.size, set.revision);
        if size > 0 {
            let message = format!("Scaled up replica set {name} from 0 to {size}");
            self.events
                .push(ControllerEvent::normal("ScalingReplicaSet", message));
        }
        if self.has_deadline() {
            let (reason, now) = ("NewReplicaSetCreated", self.input.now);
            let message = format!("Created new replica set \"{name}\"");
            // Upstream leaves the condition of a set that was created before and never got on, and its time with it.
            let condition = DeploymentCondition::new(PROGRESSING, "True", reason, message, now);
            self.state.status.replace(condition);
        }
        self.state.rollout_of = Some(name.clone());
        self.state.pull = None;
        self.actions.push(Action::Create {
            set: name,
            revision,
            replicas: size,
        });
        self.state.revision = revision;
        self.state.sets.push(set);
        self.new = self.state.sets.len().checked_sub(1);
    }

    /// Returns a hash whose name is free. A taken name has another template, and the number of collisions makes another
    /// hash (workloads 3.3).
    fn free_hash(&mut self) -> String {
        let mut hash = self.hash();
        for _ in 0..MOST_COLLISIONS {
            if !self.is_taken(&set_name(self.input.name, &hash)) {
                break;
            }
            let count = self.state.status.collision_count.unwrap_or_default();
            self.state.status.collision_count = Some(count.saturating_add(1));
            hash = self.hash();
        }
        hash
    }

    fn hash(&self) -> String {
        template_hash(
            self.input.canonical_template,
            self.state.status.collision_count,
        )
    }

    fn is_taken(&self, name: &str) -> bool {
        self.state.set(name).is_some() || self.input.taken_names.iter().any(|it| it == name)
    }

    /// Returns the size to which a new set of this size may grow (NewRSNewReplicas). Without surge a pod that is
    /// leaving still has the place that the new one needs (workloads 3.24).
    pub(super) fn size_to_grow_to(&self, size: i32) -> i32 {
        if self.input.spec.strategy.strategy_type() == StrategyType::Recreate {
            return self.replicas();
        }
        if self.does_not_fit() {
            return size;
        }
        let needs_a_place = matches!(self.input.node.surge, SurgeAllowance::None { .. });
        let total = self.sum_all(|set, pods| match needs_a_place {
            true => set.size.saturating_add(pods.leaving),
            false => set.size,
        });
        let room = self.max_replicas().saturating_sub(total).max(0);
        size.saturating_add(room.min(self.replicas().saturating_sub(size)))
    }

    /// Writes a condition Progressing that begins now, if status or reason differ.
    pub(super) fn set_progressing(&mut self, status: &str, reason: &str, message: String) {
        let now = self.input.now;
        let condition = DeploymentCondition::new(PROGRESSING, status, reason, message, now);
        self.state.status.set(condition);
    }
}

impl SetRecord {
    /// Takes over annotations and `minReadySeconds` of the Deployment. Returns true if this changed something.
    fn renew(
        &mut self,
        annotations: &std::collections::BTreeMap<String, String>,
        min_ready_seconds: i32,
    ) -> bool {
        let is_annotated = copy_annotations(annotations, &mut self.annotations);
        let is_slower = self.min_ready_seconds != min_ready_seconds;
        self.min_ready_seconds = min_ready_seconds;
        is_annotated || is_slower
    }

    /// Gives the set a higher revision number. A number from before goes into the history.
    fn raise_revision(&mut self, to: i64) {
        if self.revision > 0 {
            self.history = history_with(&self.history, self.revision);
        }
        self.revision = to;
    }
}
