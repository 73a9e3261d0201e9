//! Random lives of Jobs: pods end as they like, people delete pods, scale and suspend, and the daemon crashes after it
//! has written a state and before it has done all that the step says.
//!
//! What must always hold: no pod and no index is counted twice, never more pods are active than `parallelism`, no index
//! has two active pods, counts never go down, a finished Job starts nothing, and each Job comes to an end.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::test_node::{TestNode, indexed};
use super::{DeletionReason, JobStep};
use crate::api::PodUid;
use crate::api::workload::PodReplacementPolicy;
use crate::workloads::ObservedPod;

/// Numbers that look random and are the same in every run (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(end.max(1)).unwrap()).unwrap()
    }

    fn one_in(&mut self, chance: usize) -> bool {
        self.below(chance) == 0
    }
}

/// A life of a Job.
struct Life {
    node: TestNode,
    random: Random,
    /// Chance in ten that a pod succeeds.
    succeeds: usize,
    /// Pods that succeeded before anybody deleted them, by UID, with the index.
    successes: BTreeMap<PodUid, Option<String>>,
    /// Pods that the Job deleted without counting them.
    released: BTreeSet<PodUid>,
    /// Pods that were settled at some time.
    settled: BTreeSet<PodUid>,
}

impl Life {
    fn new(spec: Value, seed: u64, succeeds: usize) -> Self {
        Self {
            node: TestNode::new(spec),
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            succeeds,
            successes: BTreeMap::new(),
            released: BTreeSet::new(),
            settled: BTreeSet::new(),
        }
    }

    /// Lives until the Job is finished and no pod is left, and returns the last step.
    #[track_caller]
    fn run(mut self) -> Self {
        for round in 0..1_000 {
            // Trouble ends at some time, so that each Job can.
            if round < 100 {
                self.trouble();
            } else {
                self.node.spec.suspend = None;
            }
            let step = self.step();
            if self.node.state.is_finished() {
                self.check_end(&step);
                return self;
            }
            self.world(&step);
        }
        panic!("no end: {:#?}", self.node.state);
    }

    /// People scale, suspend and delete.
    fn trouble(&mut self) {
        if self.random.one_in(20) {
            self.node.spec.suspend = Some(self.random.one_in(2));
        }
        if self.random.one_in(20) && self.node.spec.completions.is_some() {
            let parallelism = i32::try_from(self.random.below(5)).unwrap();
            self.node.spec.parallelism = Some(parallelism);
        }
        if self.random.one_in(20) {
            let active = self.node.active();
            if let Some(name) = active.get(self.random.below(active.len())) {
                self.node.delete(name);
            }
        }
        if parallelism(self.node.spec.parallelism) == 0 && self.random.one_in(3) {
            self.node.spec.parallelism = Some(2);
        }
    }

    /// Takes a step. Sometimes the daemon crashes on the way: then the state is written and only some of the actions
    /// are done.
    fn step(&mut self) -> JobStep {
        let step = self.node.decide();
        let crashes = self.random.one_in(4);
        if crashes && self.random.one_in(3) {
            return self.node.decide();
        }
        self.check(&step);
        self.node.write(&step);
        for deletion in &step.deletions {
            if deletion.reason != DeletionReason::JobFailed {
                self.released.insert(deletion.pod.uid.clone());
            }
            if !crashes || self.random.one_in(2) {
                self.node.delete(&deletion.pod.name);
            }
        }
        for creation in &step.creations {
            if !crashes || self.random.one_in(2) {
                self.node.create(creation);
            }
        }
        if !crashes || self.random.one_in(2) {
            self.node.remove(&step.removable);
        }
        self.check_active();
        if !step.creations.is_empty() {
            self.check_room();
        }
        step
    }

    /// Lets time pass and pods end.
    fn world(&mut self, step: &JobStep) {
        match step.wake_at.filter(|_| self.random.one_in(2)) {
            Some(time) => self.node.now = self.node.now.max(time),
            None => self.node.wait(u64::try_from(self.random.below(5)).unwrap()),
        }
        let running = |pod: &&ObservedPod| !pod.phase.is_terminal();
        let pods = self.node.pods.iter().filter(running);
        let names: Vec<String> = pods.map(|pod| pod.name.clone()).collect();
        for name in names {
            if self.random.one_in(3) {
                self.end(&name);
            }
        }
    }

    fn end(&mut self, name: &str) {
        let code = if self.random.below(10) < self.succeeds {
            0
        } else {
            1
        };
        self.node.end(name, code);
        let pod = self.node.pod(name).clone();
        // A success counts unless the Job has given the pod up, or has counted it as failed because it was deleted.
        let state = &self.node.state;
        let is_open = !state.settled.contains(&pod.uid) && !self.released.contains(&pod.uid);
        if code == 0 && is_open {
            let index = pod.annotations.get(super::COMPLETION_INDEX).cloned();
            self.successes.insert(pod.uid, index);
        }
    }

    fn check(&mut self, step: &JobStep) {
        assert!(step.creations.is_empty() || step.deletions.iter().all(|it| self.is_redone(it)));
        let indexes: BTreeSet<_> = self.successes.values().flatten().collect();
        let expected = if self.node.spec.is_indexed() {
            indexes.len()
        } else {
            self.successes.len()
        };
        let succeeded = usize::try_from(step.status.succeeded).unwrap();
        assert_eq!(succeeded, expected, "successes");
        self.check_settled(step);
        for pod in &step.removable {
            let settled = step.state.settled.contains(&pod.uid) || step.state.is_finished();
            assert!(settled, "{pod:?} is removed before it is counted");
        }
    }

    /// Checks that each pod is settled once, and that each new count is that of a pod settled with it.
    fn check_settled(&mut self, step: &JobStep) {
        let before = &self.node.state;
        let new: Vec<&PodUid> = step.state.settled.difference(&before.settled).collect();
        let is_known = |uid: &&&PodUid| self.settled.contains(**uid);
        assert_eq!(new.iter().find(is_known), None, "settled twice");
        let failed = step.state.failed - before.failed;
        let succeeded = if self.node.spec.is_indexed() {
            0
        } else {
            step.state.succeeded - before.succeeded
        };
        assert!(failed >= 0 && succeeded >= 0);
        assert!(usize::try_from(failed + succeeded).unwrap() <= new.len());
        self.settled.extend(new.into_iter().cloned());
    }

    fn is_redone(&self, deletion: &super::PodDeletion) -> bool {
        self.node.state.deletions.contains_key(&deletion.pod.uid)
    }

    fn check_active(&self) {
        let written = &self.node.state.deletions;
        let pods = self.node.pods.iter().filter(|pod| pod.is_active());
        let wanted: Vec<_> = pods.filter(|pod| !written.contains_key(&pod.uid)).collect();
        let most = usize::try_from(parallelism(self.node.spec.parallelism)).unwrap();
        assert!(wanted.len() <= most, "{wanted:#?}");
        let index = |pod: &&ObservedPod| pod.annotations.get(super::COMPLETION_INDEX).cloned();
        let indexes: Vec<String> = wanted.iter().filter_map(index).collect();
        let different: BTreeSet<&String> = indexes.iter().collect();
        assert_eq!(different.len(), indexes.len(), "{indexes:?}");
    }

    /// Checks that a pod is made only when there is room for it, also beside pods that end if these are waited for.
    fn check_room(&self) {
        let spec = &self.node.spec;
        if spec.replacement() == PodReplacementPolicy::Failed {
            let pods = self.node.pods.iter().filter(|pod| !pod.phase.is_terminal());
            let most = usize::try_from(parallelism(spec.parallelism)).unwrap();
            assert!(pods.count() <= most);
        }
    }

    fn check_end(&mut self, step: &JobStep) {
        let left = self.node.pods.iter().filter(|pod| !pod.phase.is_terminal());
        assert_eq!(left.count(), 0, "a finished Job has no pod that goes on");
        assert_eq!((step.status.active, step.status.terminating), (0, 0));
        self.node.wait(100_000);
        let after = self.node.step();
        assert!(after.creations.is_empty() && after.deletions.is_empty());
        assert_eq!(after.status, step.status);
    }
}

fn parallelism(parallelism: Option<i32>) -> i32 {
    parallelism.unwrap_or(1)
}

/// Runs many lives of a spec, with pods that succeed so many times in ten.
#[track_caller]
fn check(spec: &Value, succeeds: usize) {
    for seed in 1..=12 {
        Life::new(spec.clone(), seed, succeeds).run();
    }
}

fn check_all(spec: Value) {
    for succeeds in [0, 3, 7, 10] {
        check(&spec, succeeds);
    }
}

#[test]
fn jobs_with_completions_end() {
    check_all(json!({"parallelism": 3, "completions": 6}));
    check_all(json!({"parallelism": 3, "completions": 6, "podReplacementPolicy": "Failed"}));
    check_all(json!({"parallelism": 2, "completions": 4, "backoffLimit": 30}));
}

#[test]
fn work_queues_end() {
    check_all(json!({"parallelism": 3}));
}

#[test]
fn jobs_with_a_deadline_end() {
    check_all(json!({"parallelism": 3, "completions": 30, "activeDeadlineSeconds": 60}));
}

#[test]
fn indexed_jobs_end() {
    check_all(indexed(3, 6, json!({})));
    check_all(indexed(3, 6, json!({"podReplacementPolicy": "Failed"})));
    let policy =
        json!({"successPolicy": {"rules": [{"succeededIndexes": "0-3", "succeededCount": 2}]}});
    check_all(indexed(3, 6, policy));
}

#[test]
fn jobs_with_a_limit_per_index_end() {
    check_all(indexed(3, 6, json!({"backoffLimitPerIndex": 1})));
    check_all(indexed(
        3,
        6,
        json!({"backoffLimitPerIndex": 2, "maxFailedIndexes": 1}),
    ));
    let policy = json!({"backoffLimitPerIndex": 2, "podReplacementPolicy": "Failed"});
    check_all(indexed(3, 6, policy));
}

#[test]
fn jobs_with_a_failure_policy_end() {
    let policy = json!({"rules": [
        {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [1]}},
    ]});
    check_all(indexed(
        3,
        6,
        json!({"backoffLimitPerIndex": 9, "podFailurePolicy": policy}),
    ));
    let policy = json!({"rules": [
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}},
    ]});
    check_all(json!({"parallelism": 3, "completions": 6, "podFailurePolicy": policy}));
}
