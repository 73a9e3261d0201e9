//! Random steps of a StatefulSet in a small world, with crashes between what is written down and what is done.

use std::collections::BTreeMap;

use super::tests::{Fixture, words};
use super::*;
use crate::api::PodPhase;
use crate::workloads::controller_revisions::{WantedTemplate, revision_label};
use crate::workloads::set_actions::DeletionReason;
use crate::workloads::test_random::Random;

/// Templates of the world. Pods of the last one never get ready.
const TEMPLATES: [&str; 4] = ["t0", "t1", "t2", "bad"];

struct World {
    set: Fixture,
    random: Random,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut set = Fixture::new(3);
        if random.once_in(2) {
            set.spec.pod_management_policy = "Parallel".to_owned();
        }
        if random.once_in(3) {
            set.spec.min_ready_seconds = 10;
        }
        set.state = StatefulSetState::default();
        let mut world = Self { set, random };
        world.change_template(0);
        world
    }

    fn is_ordered(&self) -> bool {
        self.set.spec.pod_management_policy.is_empty()
    }

    fn change_template(&mut self, template: usize) {
        let template = TEMPLATES[template];
        let wanted = WantedTemplate {
            workload: "db",
            template,
            hash: template,
            annotations: &BTreeMap::new(),
        };
        let revisions = &mut self.set.state.revisions;
        revisions
            .take_up(&wanted, self.set.now, |it| it == template)
            .unwrap();
    }

    /// Lets something happen that is not the controller's doing.
    fn disturb(&mut self) {
        match self.random.below(12) {
            0 => {
                let template = self.random.below(TEMPLATES.len());
                self.change_template(template);
            }
            1 => self.set.spec.replicas = self.random.below(5) as i32,
            2 => {
                let partition = self.random.below(3) as i32;
                self.set.partition(partition);
            }
            3 => self.set.images_ready = !self.set.images_ready,
            4 => self.with_a_pod(|pod, now| set_ready(pod, false, now)),
            5 => self.with_a_pod(|pod, now| {
                set_ready(pod, false, now);
                pod.phase = PodPhase::Failed;
            }),
            6 => self.with_a_pod(|pod, now| {
                set_ready(pod, false, now);
                pod.phase = PodPhase::Succeeded;
            }),
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
        } else if pod.phase == PodPhase::Running && revision_label(pod) != "db-bad" {
            set_ready(pod, true, self.set.now);
        }
    }

    fn pass_time(&mut self) {
        self.set.now += jiff::SignedDuration::from_secs(1);
    }

    /// Runs a step. A crash loses the state or some of the actions.
    fn step(&mut self, may_crash: bool) -> StatefulSetOutput {
        let output = self.set.step();
        self.check(&output);
        let crashes = may_crash && self.random.once_in(4);
        if crashes && self.random.once_in(3) {
            return output;
        }
        self.set.state = output.state.clone();
        for create in &output.creates {
            if !(crashes && self.random.once_in(2)) {
                self.create(create);
            }
        }
        for delete in &output.deletes {
            if !(crashes && self.random.once_in(2)) {
                let mut pods = self.set.pods.iter_mut();
                pods.find(|it| it.name == delete.pod).unwrap().is_deleted = true;
            }
        }
        output
    }

    fn create(&mut self, create: &PodCreation) {
        let name = &create.identity.name;
        assert!(
            self.set.pods.iter().all(|it| it.name != *name),
            "{name} is there already"
        );
        self.set.pods.push(ObservedPod {
            name: name.clone(),
            labels: create.identity.labels.clone(),
            is_in_table: true,
            ..ObservedPod::default()
        });
    }

    fn is_well(&self, ordinal: i32) -> bool {
        let name = ordinals::pod_name("db", ordinal);
        let pod = self.set.pods.iter().find(|it| it.name == name);
        pod.is_some_and(|it| {
            let seconds = self.set.spec.min_ready_seconds.unsigned_abs().into();
            it.is_available(std::time::Duration::from_secs(seconds), self.set.now) && it.is_active()
        })
    }

    /// Checks a step against the promises of the controller.
    fn check(&self, output: &StatefulSetOutput) {
        let range = ordinals::ordinals(&self.set.spec);
        let actions = output.creates.len() + output.deletes.len();
        assert!(actions <= 1 || !self.is_ordered(), "{:?}", words(output));
        for create in &output.creates {
            assert!(range.contains(&create.ordinal));
            assert!(self.set.state.revisions.named(&create.revision).is_some());
            let mut below = range.start..create.ordinal;
            assert!(!self.is_ordered() || below.all(|it| self.is_well(it)));
        }
        for delete in &output.deletes {
            let mut pods = self.set.pods.iter();
            let pod = pods.find(|it| it.name == delete.pod).unwrap();
            assert!(!pod.is_deleted);
            let ordinal = ordinals::ordinal_of("db", &pod.name).unwrap();
            self.check_deletion(pod, ordinal, delete.reason);
        }
    }

    fn check_deletion(&self, pod: &ObservedPod, ordinal: i32, reason: DeletionReason) {
        let range = ordinals::ordinals(&self.set.spec);
        let mut above = ordinal + 1..range.end;
        match reason {
            DeletionReason::Ended => assert!(pod.phase.is_terminal()),
            DeletionReason::ScaledDown => assert!(!range.contains(&ordinal)),
            DeletionReason::Outdated => {
                assert!(self.set.images_ready);
                assert!(above.all(|it| self.is_well(it)), "{}", pod.name);
                assert!(!self.is_ordered() || range.clone().all(|it| self.is_well(it)));
            }
            DeletionReason::Stuck => assert!(self.set.images_ready && !pod.is_ready),
            other => panic!("{other:?}"),
        }
    }

    /// Lets everything come to its end: the last template is good, and nothing disturbs it.
    fn settle(&mut self) {
        self.change_template(0);
        self.set.partition(0);
        self.set.images_ready = true;
        for _ in 0..300 {
            let output = self.step(false);
            let is_idle = output.creates.is_empty() && output.deletes.is_empty();
            if is_idle && output.wait == SetWait::Nothing {
                return self.check_end(&output.status);
            }
            for at in (0..self.set.pods.len()).rev() {
                self.advance(at);
            }
            self.pass_time();
        }
        panic!("no end: {:?}\n{:#?}", self.set.step().wait, self.set.pods);
    }

    fn check_end(&self, status: &StatefulSetStatus) {
        let replicas = self.set.spec.replicas;
        assert_eq!(status.replicas, replicas);
        assert_eq!(status.available_replicas, replicas);
        assert_eq!(status.updated_replicas, replicas);
        assert_eq!(status.current_revision, "db-t0");
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
