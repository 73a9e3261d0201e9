//! A step under way: the state that it changes, and the few changes that all ways of a step share.
//!
//! Invariants: a change of a set's size is always an action and an event, and writes down for which replicas it was
//! made.

use jiff::Timestamp;

use super::state::{DeploymentState, SetRecord};
use super::status::HISTORY_LOST;
use super::{Action, DeploymentInput, Mode, NO_DEADLINE, ObservedSet, Outcome, SurgeAllowance};
use crate::api::workload::StrategyType;
use crate::workloads::event::ControllerEvent;
use crate::workloads::numbers::Fenceposts;
use crate::workloads::replica_set::PodCounts;

/// A step under way.
pub(super) struct Sync<'a> {
    pub(super) input: &'a DeploymentInput<'a>,
    /// The state as this step leaves it. Until the end its status has the numbers of the last step.
    pub(super) state: DeploymentState,
    /// Surge and unavailability that this step keeps to.
    pub(super) numbers: Fenceposts,
    /// Index of the new set in the state; None if there is none yet.
    pub(super) new: Option<usize>,
    pub(super) actions: Vec<Action>,
    pub(super) events: Vec<ControllerEvent>,
    pub(super) rolled_back_to: Option<String>,
}

/// Returns the numbers as they are written, or lowered where the node has no room for surge (workloads 3.20, 3.21).
fn effective_numbers(input: &DeploymentInput) -> Fenceposts {
    let written = Fenceposts::of(input.spec);
    let is_rolling = input.spec.strategy.strategy_type() == StrategyType::RollingUpdate;
    match input.node.surge {
        SurgeAllowance::None { .. } if is_rolling => written.without_surge(input.spec.replicas),
        _ => written,
    }
}

impl<'a> Sync<'a> {
    pub(super) fn new(input: &'a DeploymentInput<'a>, state: &DeploymentState) -> Self {
        let mut state = state.clone();
        state.sort();
        let mut sync = Self {
            input,
            state,
            numbers: effective_numbers(input),
            new: None,
            actions: Vec::new(),
            events: Vec::new(),
            rolled_back_to: None,
        };
        sync.find_new_set();
        sync
    }

    /// Decides which way this step takes, and brings the new set's revision and annotations up to date.
    pub(super) fn begin(&mut self) -> Mode {
        self.tell_of_lost_history();
        if self.input.spec.selector.is_empty() {
            return Mode::SelectingAll;
        }
        self.follow_rollbacks();
        if self.input.is_deleted {
            self.renew_new_set();
            return Mode::Deleted;
        }
        self.set_pause_condition();
        self.renew_new_set();
        match self.input.spec.strategy.strategy_type() {
            _ if self.input.spec.paused => Mode::Paused,
            _ if self.wanted_rollback().is_some() => Mode::Rollback,
            _ if self.is_scaling_event() => Mode::Scale,
            StrategyType::RollingUpdate => Mode::Rolling,
            StrategyType::Recreate => Mode::Recreate,
        }
    }

    /// Has an event about a lost history in the first step of the state that was made anew.
    fn tell_of_lost_history(&mut self) {
        let status = &self.state.status;
        let lost = status.condition(HISTORY_LOST);
        if let Some(lost) = lost.filter(|_| status.observed_generation == 0) {
            let event = ControllerEvent::warning(HISTORY_LOST, lost.message.clone());
            self.events.push(event);
        }
    }

    pub(super) fn refuse_empty_selector(&mut self) {
        let message = "This deployment is selecting all pods. A non-empty selector is required.";
        self.events
            .push(ControllerEvent::warning("SelectingAll", message));
        self.state.status.observed_generation = self.input.generation;
    }

    /// Ends the step.
    pub(super) fn outcome(self, mode: Mode, before: &DeploymentState) -> Outcome {
        let is_changed = self.state != *before;
        let wake_at = match is_changed {
            true => Some(self.input.now),
            false => self.next_wake(mode),
        };
        Outcome {
            mode,
            actions: self.actions,
            state: self.state,
            is_changed,
            events: self.events,
            rolled_back_to: self.rolled_back_to,
            wake_at,
        }
    }

    /// Returns the earliest time at which something happens by itself.
    fn next_wake(&self, mode: Mode) -> Option<Timestamp> {
        let available = self
            .input
            .sets
            .iter()
            .filter_map(|set| set.pods.next_available_at);
        let deadline = match mode {
            Mode::Rolling | Mode::Recreate | Mode::Scale => self.deadline_passes_at(),
            _ => None,
        };
        available
            .chain(deadline)
            .filter(|at| *at > self.input.now)
            .min()
    }

    pub(super) fn replicas(&self) -> i32 {
        self.input.spec.replicas
    }

    pub(super) fn has_deadline(&self) -> bool {
        self.input.spec.progress_deadline_seconds != NO_DEADLINE
    }

    /// Returns the largest number of pods that the Deployment may have.
    pub(super) fn max_replicas(&self) -> i32 {
        self.numbers.most_pods(self.replicas())
    }

    pub(super) fn observed(&self, set: &SetRecord) -> Option<&'a ObservedSet> {
        self.input.sets.iter().find(|it| it.name == set.name)
    }

    pub(super) fn pods(&self, set: &SetRecord) -> PodCounts {
        self.observed(set).map(|it| it.pods).unwrap_or_default()
    }

    pub(super) fn new_set(&self) -> Option<&SetRecord> {
        self.state.sets.get(self.new?)
    }

    /// Returns the indices of all old sets, the oldest first.
    pub(super) fn old_sets(&self) -> Vec<usize> {
        (0..self.state.sets.len())
            .filter(|index| Some(*index) != self.new)
            .collect()
    }

    /// Returns the indices of the old sets that should have pods, the oldest first.
    pub(super) fn active_old_sets(&self) -> Vec<usize> {
        let is_active = |index: &usize| self.state.sets[*index].size > 0;
        self.old_sets().into_iter().filter(is_active).collect()
    }

    /// Returns the sum of a number over some sets.
    pub(super) fn sum(&self, sets: &[usize], number: impl Fn(&SetRecord, PodCounts) -> i32) -> i32 {
        let sets = sets.iter().filter_map(|index| self.state.sets.get(*index));
        sets.fold(0, |sum: i32, set| {
            sum.saturating_add(number(set, self.pods(set)))
        })
    }

    /// Returns the sum of a number over all sets.
    pub(super) fn sum_all(&self, number: impl Fn(&SetRecord, PodCounts) -> i32) -> i32 {
        let all: Vec<usize> = (0..self.state.sets.len()).collect();
        self.sum(&all, number)
    }

    /// Changes the size of a set. Returns false if it has this size already (sync.go: scaleReplicaSet).
    pub(super) fn scale_set(&mut self, index: usize, to: i32) -> bool {
        let Some(set) = self.state.sets.get(index) else {
            return false;
        };
        let (from, name) = (set.size, set.name.clone());
        if from == to {
            return false;
        }
        self.note_replicas(index);
        self.state.sets[index].size = to;
        let way = if from < to { "up" } else { "down" };
        let message = format!("Scaled {way} replica set {name} from {from} to {to}");
        self.events
            .push(ControllerEvent::normal("ScalingReplicaSet", message));
        self.actions.push(Action::Scale {
            set: name,
            from,
            to,
        });
        true
    }

    /// Writes down with a set for which replicas and which surge it was scaled (SetReplicasAnnotations).
    pub(super) fn note_replicas(&mut self, index: usize) {
        let (desired, max) = (self.replicas(), self.max_replicas());
        if let Some(set) = self.state.sets.get_mut(index) {
            (set.desired, set.max) = (Some(desired), Some(max));
        }
    }
}
