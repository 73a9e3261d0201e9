//! What a step knows of a Job's pods before it decides anything.
//!
//! Invariants: pods that are settled are not counted again. An indexed Job counts a pod without a valid index for
//! nothing.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::JobInput;
use super::end_time::end_time;
use super::failure_policy::{FailureVerdict, failure_verdict};
use super::indexes::Indexes;
use super::job_pod::JobPod;
use super::state::JobState;
use super::wanted;
use crate::api::workload::{FailureAction, JobSpec};

/// The pods of a Job with the counts that follow from them.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    /// Namespace of the Job.
    pub(super) namespace: &'a str,
    /// Spec of the Job.
    pub(super) spec: &'a JobSpec,
    /// True if the Job itself is being deleted.
    pub(super) is_job_deleted: bool,
    /// Time of the step.
    pub(super) now: Timestamp,
    /// All pods of the Job.
    pub(super) pods: Vec<JobPod<'a>>,
    /// Number of pods or indexes that have succeeded, new ones included.
    pub(super) succeeded: i32,
    /// Number of pods that have failed, new ones included.
    pub(super) failed: i32,
    /// Indexes that have succeeded, new ones included.
    pub(super) completed_indexes: Indexes,
    /// Indexes that have failed, new ones included; None if failures do not count per index.
    pub(super) failed_indexes: Option<Indexes>,
    /// Positions of failed pods that are not counted before they are replaced, by their indexes. The replacement takes
    /// the number of failures from the pod.
    pub(super) to_replace: BTreeMap<i32, usize>,
}

impl<'a> Facts<'a> {
    /// Counts the pods.
    pub(super) fn new(input: &JobInput<'a>, state: &JobState) -> Self {
        let pods = input.pods.iter().map(|pod| JobPod::new(pod, state));
        let mut facts = Self {
            namespace: &input.metadata.namespace,
            spec: input.spec,
            is_job_deleted: input.is_deleted,
            now: input.now,
            pods: pods.collect(),
            succeeded: 0,
            failed: 0,
            completed_indexes: Indexes::default(),
            failed_indexes: None,
            to_replace: BTreeMap::new(),
        };
        facts.completed_indexes = facts.find_completed(state);
        facts.failed_indexes = facts.find_failed_indexes(state);
        facts.to_replace = facts.find_to_replace();
        facts.succeeded = facts.count_succeeded(state);
        facts.failed = facts.count_failed(state);
        facts
    }

    /// True if the pods have indexes.
    pub(super) fn is_indexed(&self) -> bool {
        self.spec.is_indexed()
    }

    /// Returns the valid completion index of a pod.
    pub(super) fn index(&self, pod: &JobPod<'_>) -> Option<i32> {
        pod.index_below(wanted::index_count(self.spec))
    }

    /// True if the pod counts as failed.
    pub(super) fn has_failed(&self, pod: &JobPod<'_>) -> bool {
        pod.has_failed(wanted::replaces_only_ended(self.spec))
    }

    /// Returns what the failure of a pod means.
    pub(super) fn verdict(&self, pod: &JobPod<'_>) -> FailureVerdict {
        let policy = self.spec.pod_failure_policy.as_ref();
        failure_verdict(policy, self.namespace, pod.pod)
    }

    /// True if the pod can be counted at all: an indexed Job needs a valid index.
    pub(super) fn is_countable(&self, pod: &JobPod<'_>) -> bool {
        !self.is_indexed() || self.index(pod).is_some()
    }

    /// Returns the active pods with their positions.
    pub(super) fn active(&self) -> impl Iterator<Item = (usize, &JobPod<'a>)> {
        let pods = self.pods.iter().enumerate();
        pods.filter(|(_, pod)| pod.is_active())
    }

    /// Returns the valid and too large indexes of pods. An index beyond the 32 bits of completions is left out.
    pub(super) fn indexes<'b>(pods: impl Iterator<Item = &'b JobPod<'a>>) -> BTreeSet<i32>
    where
        'a: 'b,
    {
        let index = |pod: &JobPod<'_>| i32::try_from(pod.index?).ok();
        pods.filter_map(index).collect()
    }

    /// Returns the ends of new succeeded pods and of new failed pods, for the back-off.
    pub(super) fn new_ends(&self) -> (Vec<Timestamp>, Vec<Timestamp>) {
        let ends = |pods: Vec<&JobPod<'_>>| pods.iter().map(|it| end_time(it.pod)).collect();
        let succeeded = self.unsettled().filter(|pod| pod.has_succeeded()).collect();
        let failed = self
            .unsettled()
            .filter(|pod| self.has_failed(pod))
            .collect();
        (ends(succeeded), ends(failed))
    }

    /// Returns the pods that can be counted and are not.
    fn unsettled(&self) -> impl Iterator<Item = &JobPod<'a>> {
        let pods = self.pods.iter();
        pods.filter(|pod| !pod.is_settled && self.is_countable(pod))
    }

    fn find_completed(&self, state: &JobState) -> Indexes {
        if !self.is_indexed() {
            return Indexes::default();
        }
        let succeeded = self.unsettled().filter(|pod| pod.has_succeeded());
        let new = succeeded.filter_map(|pod| self.index(pod)).collect();
        let before = state
            .completed_indexes
            .below(wanted::index_count(self.spec));
        before.with(&new)
    }

    fn find_failed_indexes(&self, state: &JobState) -> Option<Indexes> {
        let limit = wanted::limit_per_index(self.spec)?;
        let failed = self.unsettled().filter(|pod| self.fails_index(pod, limit));
        let new = failed.filter_map(|pod| self.index(pod)).collect();
        let before = state.failed_indexes.clone().unwrap_or_default();
        Some(before.below(wanted::index_count(self.spec)).with(&new))
    }

    /// True if the failure of the pod is the last one that its index may have.
    fn fails_index(&self, pod: &JobPod<'_>, limit: i32) -> bool {
        let verdict = self.verdict(pod);
        let is_last = verdict.is_counted() && pod.index_failures() >= limit;
        self.has_failed(pod) && (verdict.action == Some(FailureAction::FailIndex) || is_last)
    }

    fn find_to_replace(&self) -> BTreeMap<i32, usize> {
        let mut chosen = BTreeMap::new();
        let Some(failed_indexes) = &self.failed_indexes else {
            return chosen;
        };
        let active = Self::indexes(self.active().map(|(_, pod)| pod));
        for (position, pod) in self.pods.iter().enumerate() {
            let Some(index) = self.index(pod) else {
                continue;
            };
            let is_decided = self.completed_indexes.has(index) || failed_indexes.has(index);
            let is_open = !is_decided && !active.contains(&index);
            let before = chosen
                .get(&index)
                .and_then(|&it| self.pods.get::<usize>(it));
            if self.has_failed(pod) && !pod.is_settled && is_open && comes_after(pod, before) {
                chosen.insert(index, position);
            }
        }
        chosen
    }

    fn count_succeeded(&self, state: &JobState) -> i32 {
        if self.is_indexed() {
            return i32::try_from(self.completed_indexes.total()).unwrap_or(i32::MAX);
        }
        let new = self.unsettled().filter(|pod| pod.has_succeeded()).count();
        add(state.succeeded, new)
    }

    fn count_failed(&self, state: &JobState) -> i32 {
        let failed = self.unsettled().filter(|pod| self.has_failed(pod));
        let counted = failed.filter(|pod| self.verdict(pod).is_counted());
        add(state.failed, counted.count())
    }
}

/// True if a failed pod is a later one of its index than the one before it in the list.
fn comes_after(pod: &JobPod<'_>, before: Option<&JobPod<'_>>) -> bool {
    before.is_none_or(|before| {
        before.all_index_failures() <= pod.all_index_failures()
            && end_time(before.pod) <= end_time(pod.pod)
    })
}

/// Adds a number of pods to a count.
pub(super) fn add(count: i32, pods: usize) -> i32 {
    count.saturating_add(i32::try_from(pods).unwrap_or(i32::MAX))
}
