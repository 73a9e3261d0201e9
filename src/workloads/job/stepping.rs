//! Takes one step of a Job: counts its pods, decides whether it ends, and if not, how many pods it needs (syncJob).

use jiff::Timestamp;

use super::condition::{Condition, ConditionType, JobReason, ensure};
use super::counting::settle;
use super::facts::{Facts, add};
use super::finish::{Outcome, by_indexes, by_limits, deadline, has_completed};
use super::job_pod::JobPod;
use super::pod_count::{Plan, plan};
use super::retention::{removable, removal_time};
use super::state::{DeletionReason, JobState};
use super::status::{JobStatus, PodNumbers};
use super::{JobInput, JobPodName, JobStep, PodCreation, PodDeletion, wanted};
use crate::workloads::ControllerEvent;
use crate::workloads::observed::later;

/// Decides what a Job does next.
pub fn step(input: &JobInput<'_>) -> JobStep {
    let mut state = input.state.clone();
    state.uid = input.metadata.uid.clone();
    state.generation = input.generation;
    state.keep_only(&input.pods.iter().map(|pod| &pod.uid).collect());
    let facts = Facts::new(input, &state);
    let mut step = Stepping::new(input, &facts, state);
    if step.state.is_finished() {
        step.expire();
    } else if wanted::has_unknown_mode(input.spec) {
        step.refuse_mode();
    } else {
        step.go_on();
    }
    step.done()
}

/// A step of a Job that is being decided.
struct Stepping<'a> {
    input: &'a JobInput<'a>,
    facts: &'a Facts<'a>,
    state: JobState,
    numbers: PodNumbers,
    creations: Vec<PodCreation>,
    deletions: Vec<PodDeletion>,
    events: Vec<ControllerEvent>,
    wake_at: Option<Timestamp>,
}

impl<'a> Stepping<'a> {
    fn new(input: &'a JobInput<'a>, facts: &'a Facts<'a>, state: JobState) -> Self {
        let redo = |pod: &JobPod<'_>| {
            Some(PodDeletion {
                pod: JobPodName::new(pod.pod),
                reason: pod.undone_deletion()?,
            })
        };
        let ready = facts.active().filter(|(_, pod)| pod.pod.is_ready);
        let terminating = facts.pods.iter().filter(|pod| pod.is_terminating());
        Self {
            input,
            facts,
            state,
            numbers: PodNumbers {
                active: add(0, facts.active().count()),
                ready: add(0, ready.count()),
                terminating: add(0, terminating.count()),
            },
            creations: Vec::new(),
            deletions: facts.pods.iter().filter_map(redo).collect(),
            events: Vec::new(),
            wake_at: None,
        }
    }

    /// Takes a step of a Job that is not finished.
    fn go_on(&mut self) {
        if !self.input.spec.is_suspended() {
            self.state.start.get_or_insert(self.input.now);
        }
        // Failures per index have back-offs of their own, and their pods stay uncounted until they are replaced.
        if self.facts.failed_indexes.is_none() {
            let (succeeded, failed) = self.facts.new_ends();
            self.state.back_off = self.state.back_off.after(&succeeded, &failed);
        }
        let outcome = match self.outcome() {
            Some(outcome) => Some(self.end_pods(outcome)),
            None => self.adjust_pods(),
        };
        settle(self.facts, outcome.as_ref(), &mut self.state);
        if self.input.is_deleted {
            self.delete_active(DeletionReason::JobDeleted);
        }
        if let Some(outcome) = outcome {
            self.conclude(outcome);
        }
    }

    /// Returns how the Job ends, before the number of pods is looked at. Upstream looks again at the deadline even if
    /// the Job ends in this step for another reason, which does no harm.
    fn outcome(&mut self) -> Option<Outcome> {
        let decided = by_limits(self.facts, &self.state);
        if decided.is_none() {
            self.wake(deadline(self.facts, &self.state));
        }
        decided.or_else(|| by_indexes(self.facts))
    }

    /// Ends the active pods of a Job that ends.
    fn end_pods(&mut self, outcome: Outcome) -> Outcome {
        self.delete_active(if outcome.is_success {
            DeletionReason::JobSucceeded
        } else {
            DeletionReason::JobFailed
        });
        outcome
    }

    /// Makes or deletes pods, and returns the outcome if the completions are reached.
    fn adjust_pods(&mut self) -> Option<Outcome> {
        if !self.input.is_deleted {
            self.follow(plan(self.facts, self.state.back_off));
        }
        if has_completed(self.facts, self.numbers.active) {
            return Some(Outcome::completed());
        }
        if !self.input.is_deleted {
            self.note_suspension();
        }
        None
    }

    fn follow(&mut self, plan: Plan) {
        match plan {
            Plan::Delete(pods) => {
                for (position, reason) in pods {
                    self.delete(position, reason);
                }
            }
            Plan::Create(pods) => {
                self.numbers.active = add(self.numbers.active, pods.len());
                self.creations = pods;
            }
            Plan::Wait(left) => {
                self.wake(Some(later(self.input.now, left)));
                // Quirk of upstream: a Job that waits shows no active pod.
                self.numbers.active = 0;
            }
        }
    }

    fn delete_active(&mut self, reason: DeletionReason) {
        let active = self.facts.active().map(|(position, _)| position);
        for position in active.collect::<Vec<_>>() {
            self.delete(position, reason);
        }
    }

    /// Deletes an active pod, unless this step deletes it already. The pod is settled with the deletion.
    fn delete(&mut self, position: usize, reason: DeletionReason) {
        let Some(pod) = self.facts.pods.get(position).map(|pod| pod.pod) else {
            return;
        };
        if self.state.deletions.contains_key(&pod.uid) {
            return;
        }
        self.state.deletions.insert(pod.uid.clone(), reason);
        self.deletions.push(PodDeletion {
            pod: JobPodName::new(pod),
            reason,
        });
        self.numbers.active = self.numbers.active.saturating_sub(1);
        self.numbers.ready = self.numbers.ready.saturating_sub(pod.is_ready.into());
        self.numbers.terminating = self.numbers.terminating.saturating_add(1);
    }

    /// Writes down that the Job was suspended or resumed. The deadline counts from the resumption (workloads 6.10).
    fn note_suspension(&mut self) {
        let is_suspended = self.input.spec.is_suspended();
        let (reason, message, event) = if is_suspended {
            (JobReason::JobSuspended, "Job suspended", "Suspended")
        } else {
            (JobReason::JobResumed, "Job resumed", "Resumed")
        };
        if self.ensure(ConditionType::Suspended, is_suspended, reason, message) {
            self.events.push(ControllerEvent::normal(event, message));
            self.state.start = (!is_suspended).then_some(self.input.now);
        }
    }

    /// Writes down how the Job ends. It is finished when no pod is left that has not ended (workloads 6.8).
    fn conclude(&mut self, outcome: Outcome) {
        let (before, last) = if outcome.is_success {
            (ConditionType::SuccessCriteriaMet, ConditionType::Complete)
        } else {
            (ConditionType::FailureTarget, ConditionType::Failed)
        };
        self.ensure(before, true, outcome.reason, &outcome.message);
        if self.numbers.terminating > 0 {
            return;
        }
        self.ensure(last, true, outcome.reason, &outcome.message);
        self.state.completion = outcome.is_success.then_some(self.input.now);
        self.tell_end(outcome);
        self.wake(removal_time(
            self.input.spec.ttl_seconds_after_finished,
            &self.state,
        ));
    }

    fn tell_end(&mut self, outcome: Outcome) {
        if !outcome.is_success {
            let reason = outcome.reason.as_str();
            let event = ControllerEvent::warning(reason, outcome.message);
            self.events.push(event);
            return;
        }
        let completions = wanted::completions(self.input.spec);
        if completions.is_some_and(|it| self.state.succeeded > it) {
            self.events.push(ControllerEvent::warning(
                "TooManySucceededPods",
                "Too many succeeded pods running after completion count reached",
            ));
        }
        let event = ControllerEvent::normal("Completed", "Job completed");
        self.events.push(event);
    }

    /// Takes a step of a finished Job: it waits for its removal.
    fn expire(&mut self) {
        self.state.settled.clear();
        if self.input.is_deleted {
            self.delete_active(DeletionReason::JobDeleted);
            return;
        }
        self.numbers = PodNumbers::default();
        let ttl = self.input.spec.ttl_seconds_after_finished;
        match removal_time(ttl, &self.state).filter(|_| !self.state.is_removed) {
            Some(time) if time <= self.input.now => self.state.is_removed = true,
            time => self.wake(time),
        }
    }

    fn refuse_mode(&mut self) {
        self.events.push(ControllerEvent::warning(
            "UnknownCompletionMode",
            "Skipped Job sync because completion mode is unknown",
        ));
    }

    fn ensure(
        &mut self,
        type_: ConditionType,
        is_true: bool,
        reason: JobReason,
        message: &str,
    ) -> bool {
        let condition = Condition {
            type_,
            is_true,
            reason,
            message: message.to_owned(),
            changed: self.input.now,
        };
        ensure(&mut self.state.conditions, condition)
    }

    fn wake(&mut self, time: Option<Timestamp>) {
        self.wake_at = self.wake_at.into_iter().chain(time).min();
    }

    fn done(mut self) -> JobStep {
        let decided = self.state.deletions.keys().cloned();
        if !self.state.is_finished() {
            self.state.settled.extend(decided);
        }
        JobStep {
            removable: removable(self.input, &self.state)
                .map(JobPodName::new)
                .collect(),
            status: JobStatus::new(&self.state, self.numbers),
            state: self.state,
            creations: self.creations,
            deletions: self.deletions,
            events: self.events,
            wake_at: self.wake_at,
        }
    }
}
