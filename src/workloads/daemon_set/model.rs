//! Random steps of a DaemonSet in a small world, with crashes between what is written down and what is done.

use super::tests::{Fixture, at};
use super::*;
use crate::api::PodPhase;
use crate::workloads::controller_revisions::revision_label;
use crate::workloads::set_actions::DeletionReason;
use crate::workloads::test_random::Random;

/// Templates of the world. Pods of the last one never get ready.
const TEMPLATES: [&str; 4] = ["t0", "t1", "t2", "bad"];

struct World {
    set: Fixture,
    random: Random,
    made: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut set = Fixture::new();
        set.now = at(0);
        set.state = DaemonSetState::default();
        if random.once_in(2) {
            set.limits(1, 0);
        }
        if random.once_in(3) {
            set.spec.min_ready_seconds = 10;
        }
        if random.once_in(4) {
            set.surge_blocked = Some("hostPort 80 is held by the old pod");
        }
        set.take_up(TEMPLATES[0]);
        Self {
            set,
            random,
            made: 0,
        }
    }

    fn has_surge(&self) -> bool {
        let settings = self.set.spec.update_strategy.rolling_update.as_ref();
        let surge = settings.unwrap().max_surge.as_ref().unwrap();
        surge.of(1, true) == Some(1) && self.set.surge_blocked.is_none()
    }

    /// Lets something happen that is not the controller's doing.
    fn disturb(&mut self) {
        let reason = "nodeSelector does not match";
        match self.random.below(14) {
            0 | 1 => {
                let template = self.random.below(TEMPLATES.len());
                self.set.take_up(TEMPLATES[template]);
            }
            2 => self.set.images_ready = !self.set.images_ready,
            3 => self.set.fit = NodeFit::Leaves { reason },
            4 | 5 => self.set.fit = NodeFit::Runs,
            6 => self.with_a_pod(|pod, now| set_ready(pod, false, now)),
            7 => self.with_a_pod(|pod, now| {
                set_ready(pod, false, now);
                pod.phase = PodPhase::Failed;
            }),
            8 => self.with_a_pod(|pod, now| {
                set_ready(pod, false, now);
                pod.phase = PodPhase::Succeeded;
            }),
            9 => self.set.generation += 1,
            _ => self.advance_a_pod(),
        }
    }

    fn with_a_pod(&mut self, change: impl Fn(&mut ObservedPod, Timestamp)) {
        if !self.set.pods.is_empty() {
            let at = self.random.below(self.set.pods.len());
            change(&mut self.set.pods[at], self.set.now);
        }
    }

    fn advance_a_pod(&mut self) {
        if !self.set.pods.is_empty() {
            let at = self.random.below(self.set.pods.len());
            self.advance(at);
        }
    }

    /// Takes a pod one step further: to running, to ready, or away.
    fn advance(&mut self, at: usize) {
        let pod = &mut self.set.pods[at];
        if pod.is_deleted {
            self.set.pods.remove(at);
        } else if pod.phase == PodPhase::Pending {
            pod.phase = PodPhase::Running;
        } else if pod.phase == PodPhase::Running && revision_label(pod) != "bad" {
            set_ready(pod, true, self.set.now);
        }
    }

    fn pass_time(&mut self) {
        self.set.now += jiff::SignedDuration::from_secs(1);
    }

    /// Runs a step. A crash loses the state or some of the actions.
    fn step(&mut self, may_crash: bool) -> DaemonSetOutput {
        let output = self.set.step();
        self.check(&output);
        let crashes = may_crash && self.random.once_in(4);
        if crashes && self.random.once_in(3) {
            return output;
        }
        self.set.state = output.state.clone();
        if output.creates && !(crashes && self.random.once_in(2)) {
            self.create();
        }
        for delete in &output.deletes {
            if !(crashes && self.random.once_in(2)) {
                let mut pods = self.set.pods.iter_mut();
                pods.find(|it| it.name == delete.pod).unwrap().is_deleted = true;
            }
        }
        let running = self.set.pods.iter().filter(|it| !it.phase.is_terminal());
        let most = if self.has_surge() { 2 } else { 1 };
        let active = running.clone().filter(|it| !it.is_deleted).count();
        assert!(active <= most, "{:#?}", self.set.pods);
        assert!(running.count() <= 1 || self.has_surge());
        let failed = self.set.pods.iter().filter(|it| it.phase.is_terminal());
        assert!(failed.filter(|it| !it.is_deleted).count() <= 5);
        output
    }

    fn create(&mut self) {
        let revision = self.set.state.revisions.newest().unwrap().hash.clone();
        self.made += 1;
        let (name, now) = (format!("log-{}", self.made), self.set.now);
        let pod = self.set.pod(&revision, false);
        pod.name = name;
        pod.created = now;
        pod.phase = PodPhase::Pending;
        pod.ready_changed = None;
    }

    fn is_available(&self, pod: &ObservedPod) -> bool {
        let seconds = self.set.spec.min_ready_seconds.unsigned_abs().into();
        pod.is_available(std::time::Duration::from_secs(seconds), self.set.now)
    }

    /// Checks a step against the promises of the controller.
    fn check(&self, output: &DaemonSetOutput) {
        if output.creates {
            assert_eq!(self.set.fit, NodeFit::Runs);
        }
        for delete in &output.deletes {
            let mut pods = self.set.pods.iter();
            let pod = pods.find(|it| it.name == delete.pod).unwrap();
            assert!(!pod.is_deleted);
            match delete.reason {
                DeletionReason::Ended => assert!(pod.phase.is_terminal()),
                DeletionReason::Outdated => self.check_replacement(pod),
                DeletionReason::NodeDoesNotMatch => assert_ne!(self.set.fit, NodeFit::Runs),
                DeletionReason::Excess => assert!(self.has_surge()),
                other => panic!("{other:?}"),
            }
        }
    }

    fn check_replacement(&self, old: &ObservedPod) {
        assert!(self.set.images_ready || old.phase.is_terminal());
        let newest = &self.set.state.revisions.newest().unwrap().hash;
        assert_ne!(revision_label(old), newest);
        let is_new = |it: &&ObservedPod| revision_label(it) == newest && !it.is_deleted;
        let mut new = self.set.pods.iter().filter(is_new);
        let is_safe = !old.is_ready || new.any(|it| self.is_available(it));
        assert!(is_safe || !self.has_surge());
    }

    /// Lets everything come to its end: the last template is good, and nothing disturbs it.
    fn settle(&mut self) {
        self.set.take_up(TEMPLATES[0]);
        self.set.images_ready = true;
        self.set.fit = NodeFit::Runs;
        for _ in 0..3000 {
            let output = self.step(false);
            if output.deletes.is_empty() && !output.creates && output.wait == SetWait::Nothing {
                return self.check_end(&output.status);
            }
            for at in (0..self.set.pods.len()).rev() {
                self.advance(at);
            }
            self.pass_time();
        }
        panic!("no end: {:?}\n{:#?}", self.set.step().wait, self.set.pods);
    }

    fn check_end(&self, status: &DaemonSetStatus) {
        assert_eq!(self.set.pods.len(), 1);
        assert_eq!(status.number_available, 1);
        assert_eq!(status.updated_number_scheduled, 1);
        assert_eq!(revision_label(&self.set.pods[0]), "t0");
    }
}

fn set_ready(pod: &mut ObservedPod, is_ready: bool, now: Timestamp) {
    if pod.is_ready != is_ready {
        pod.is_ready = is_ready;
        pod.ready_changed = Some(now);
    }
}

#[test]
fn random_steps_and_crashes_keep_every_promise_and_come_to_an_end() {
    for seed in 1..=400 {
        let mut world = World::new(seed);
        for _ in 0..100 {
            world.pass_time();
            world.disturb();
            if world.random.once_in(2) {
                world.step(true);
            }
        }
        world.settle();
    }
}
