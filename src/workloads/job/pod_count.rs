//! Decides how many pods of a Job are made or deleted (workloads 6.1, 6.11).
//!
//! Invariants: a step never both makes and deletes pods; deletion goes first. The number of active pods never exceeds
//! `parallelism`, nor what is missing to the completions.

use std::collections::BTreeSet;
use std::time::Duration;

use super::back_off::{BackOff, remaining};
use super::end_time::end_time;
use super::facts::Facts;
use super::indexes::Indexes;
use super::job_pod::JobPod;
use super::state::DeletionReason;
use super::wanted;

/// The largest number of pods that a step makes or deletes (MaxPodCreateDeletePerSync).
const PODS_A_STEP: usize = 500;

/// A change of the number of pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// The pods at these positions are deleted.
    Delete(Vec<(usize, DeletionReason)>),
    /// Pods are made.
    Create(Vec<PodCreation>),
    /// Pods are missing, and none may be made before this time has passed.
    Wait(Duration),
}

/// A pod that is to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodCreation {
    /// Index of the pod; None for pods without indexes.
    pub index: Option<i32>,
    /// Failures that the index had before; None if failures do not count per index.
    pub failures: Option<IndexFailures>,
}

/// The failures that an index had before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexFailures {
    /// Number of failures that count.
    pub counted: i32,
    /// Number of failures that a rule ignores.
    pub ignored: i32,
}

/// Returns the change of the number of pods (manageJob).
pub(super) fn plan(facts: &Facts<'_>, back_off: BackOff) -> Plan {
    let active = facts.active().count();
    if facts.spec.is_suspended() {
        let all = facts.active().map(|(position, _)| position);
        return Plan::Delete(all.map(|it| (it, DeletionReason::Suspended)).collect());
    }
    let wanted = wanted_active(facts, active);
    let mut superfluous = superfluous(facts, active.saturating_sub(wanted));
    superfluous.truncate(PODS_A_STEP);
    if !superfluous.is_empty() {
        return Plan::Delete(superfluous);
    }
    match missing(facts, wanted, active) {
        0 => Plan::Create(Vec::new()),
        missing => creation(facts, back_off, missing.min(PODS_A_STEP)),
    }
}

/// Returns the number of pods that should be active.
fn wanted_active(facts: &Facts<'_>, active: usize) -> usize {
    let parallelism = wanted::parallelism(facts.spec);
    let wanted = match wanted::completions(facts.spec) {
        // A work queue that has seen a success starts nothing more.
        None if facts.succeeded > 0 => return active,
        None => parallelism,
        Some(completions) => parallelism.min(completions.saturating_sub(facts.succeeded)),
    };
    usize::try_from(wanted).unwrap_or_default()
}

/// Returns the number of pods to make. Terminating pods take places if only pods that have ended are replaced.
fn missing(facts: &Facts<'_>, wanted: usize, active: usize) -> usize {
    let terminating = facts.pods.iter().filter(|pod| pod.is_terminating());
    let taken = if wanted::replaces_only_ended(facts.spec) {
        active.saturating_add(terminating.count())
    } else {
        active
    };
    wanted.saturating_sub(taken)
}

/// Returns the pods that must go: those with repeated or invalid indexes, then the others, until `at_least` are found
/// (activePodsForRemoval).
fn superfluous(facts: &Facts<'_>, at_least: usize) -> Vec<(usize, DeletionReason)> {
    let mut active: Vec<(usize, &JobPod<'_>)> = facts.active().collect();
    active.sort_by_cached_key(|(_, pod)| pod.removal_key());
    let mut removed = if facts.is_indexed() {
        wrongly_indexed(facts, &active)
    } else {
        Vec::new()
    };
    for (position, _) in active {
        if removed.len() >= at_least {
            break;
        }
        if removed.iter().all(|(it, _)| *it != position) {
            removed.push((position, DeletionReason::TooMany));
        }
    }
    removed
}

/// Returns the active pods without a valid index, and all but the last of those with the same index. `active` is in
/// the order of removal.
fn wrongly_indexed(
    facts: &Facts<'_>,
    active: &[(usize, &JobPod<'_>)],
) -> Vec<(usize, DeletionReason)> {
    let reason = |number: usize, pod: &JobPod<'_>| {
        let Some(index) = facts.index(pod) else {
            return Some(DeletionReason::InvalidIndex);
        };
        let mut later = active.iter().skip(number.saturating_add(1));
        let is_repeated = later.any(|(_, it)| facts.index(it) == Some(index));
        is_repeated.then_some(DeletionReason::RepeatedIndex)
    };
    let numbered = active.iter().enumerate();
    let wrong = numbered.filter_map(|(number, (it, pod))| Some((*it, reason(number, pod)?)));
    wrong.collect()
}

fn creation(facts: &Facts<'_>, back_off: BackOff, missing: usize) -> Plan {
    if facts.failed_indexes.is_some() {
        return indexed_creation(facts, missing);
    }
    let left = back_off.remaining(facts.now);
    if !left.is_zero() {
        return Plan::Wait(left);
    }
    let pods = if facts.is_indexed() {
        pending(facts, missing).into_iter().map(indexed).collect()
    } else {
        vec![PodCreation::default(); missing]
    };
    Plan::Create(pods)
}

fn indexed(index: i32) -> PodCreation {
    PodCreation {
        index: Some(index),
        failures: None,
    }
}

/// Makes pods for the indexes whose own back-off has passed. If none has, the shortest wait counts
/// (getPodCreationInfoForIndependentIndexes).
fn indexed_creation(facts: &Facts<'_>, missing: usize) -> Plan {
    let mut pods = Vec::new();
    let mut shortest: Option<Duration> = None;
    for index in pending(facts, missing) {
        let failed = facts.to_replace.get(&index);
        let failed = failed.and_then(|&it| facts.pods.get(it));
        let left = failed.map_or(Duration::ZERO, |pod| left_for_index(facts, pod));
        if left.is_zero() {
            let failures = failed.map(|pod| failures_with(facts, pod));
            pods.push(PodCreation {
                index: Some(index),
                failures: Some(failures.unwrap_or_default()),
            });
        } else {
            shortest = Some(shortest.map_or(left, |it| it.min(left)));
        }
    }
    match shortest {
        Some(left) if pods.is_empty() => Plan::Wait(left),
        _ => Plan::Create(pods),
    }
}

/// Returns the time that is left until the index of a failed pod may be tried again. Ignored failures count here.
fn left_for_index(facts: &Facts<'_>, failed: &JobPod<'_>) -> Duration {
    let failures = failed.all_index_failures().saturating_add(1);
    remaining(failures, end_time(failed.pod), facts.now)
}

/// Returns the failures of an index with the failure of this pod.
fn failures_with(facts: &Facts<'_>, failed: &JobPod<'_>) -> IndexFailures {
    let is_counted = facts.verdict(failed).is_counted();
    let counted = failed.index_failures();
    let ignored = failed.ignored_index_failures();
    IndexFailures {
        counted: counted.saturating_add(is_counted.into()),
        ignored: ignored.saturating_add((!is_counted).into()),
    }
}

/// Returns the first indexes that are neither decided nor taken by a pod.
fn pending(facts: &Facts<'_>, count: usize) -> Vec<i32> {
    let takes = |pod: &&JobPod<'_>| {
        let waits = wanted::replaces_only_ended(facts.spec) && pod.is_terminating();
        pod.is_active() || waits
    };
    let taken = Facts::indexes(facts.pods.iter().filter(takes));
    let failed = facts.failed_indexes.as_ref();
    let completions = wanted::index_count(facts.spec);
    let succeeded = &facts.completed_indexes;
    first_pending(succeeded, failed, &taken, count, completions)
}

/// Returns the `count` smallest indexes below `completions` that have neither succeeded nor failed and are not taken
/// (firstPendingIndexes).
pub fn first_pending(
    succeeded: &Indexes,
    failed: Option<&Indexes>,
    taken: &BTreeSet<i32>,
    count: usize,
    completions: i32,
) -> Vec<i32> {
    let decided = match failed {
        Some(failed) => succeeded.merge(failed),
        None => succeeded.clone(),
    };
    decided.with(taken).first_missing(count, completions)
}
