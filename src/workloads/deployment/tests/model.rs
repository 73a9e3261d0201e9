//! A model test: a Deployment under random edits, undos, scalings, crashes and weather.
//!
//! What must hold: a rollout never takes an available pod where too few would be left; the sets are never larger than
//! the replicas and the surge; a place that is needed is free before a pod is made for it; no old pod goes for a new
//! one that cannot start; a template of the file is rolled back by itself at most once; and whatever happened,
//! everything comes to its end when the weather is fine.

use std::collections::BTreeMap;

use super::world::{File, World, image};
use crate::api::PodPhase;
use crate::api::workload::IntOrPercent;
use crate::workloads::deployment::{
    DeploymentState, ImagesState, Mode, NodeFacts, OnDeadline, Outcome, SurgeAllowance,
    SurgeReason, undo_target,
};
use crate::workloads::numbers::Fenceposts;
use crate::workloads::observed::ObservedPod;

/// Random numbers that a seed repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn one_of(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }

    fn number(&mut self, limit: u64) -> i32 {
        i32::try_from(self.below(limit)).unwrap()
    }
}

struct Model {
    world: World,
    random: Random,
    /// Number of rollbacks by itself since the file's template changed, or a person had a say.
    rollbacks: u32,
    /// True if sizes were written that are not carried out yet and that say nothing about the pods of today: those of a
    /// scaling, and those from before a crash.
    has_other_sizes: bool,
    templates: u32,
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut world = World::new(File {
            replicas: random.number(5),
            recreate: random.one_of(6),
            deadline: 60,
            history: random.number(3),
            min_ready: random.number(2) * 5,
            ..File::default()
        });
        if random.one_of(2) {
            world.on_deadline = OnDeadline::Rollback;
        }
        let mut model = Self {
            world,
            random,
            rollbacks: 0,
            has_other_sizes: false,
            templates: 0,
        };
        model.new_limits();
        model
    }

    fn new_limits(&mut self) {
        let surge = self.random.number(3);
        let unavailable = self.random.number(3).max(i32::from(surge == 0));
        self.world.edit(|file| {
            file.surge = IntOrPercent::Int(surge);
            file.unavailable = IntOrPercent::Int(unavailable);
        });
    }

    fn new_template(&mut self) {
        self.rollbacks = 0;
        self.templates += 1;
        let word = if self.random.one_of(3) { "bad" } else { "good" };
        // An old template comes back now and then.
        let number = match self.random.one_of(4) {
            true => self.random.below(u64::from(self.templates)),
            false => u64::from(self.templates),
        };
        self.world
            .edit(|file| file.template = format!("{word}{number}"));
    }

    /// Somebody does something.
    fn person(&mut self) {
        let now = self.world.now;
        match self.random.below(9) {
            0 | 1 => self.new_template(),
            2 => self.new_limits(),
            3 => {
                let replicas = self.random.number(6);
                self.world.edit(|file| file.replicas = replicas);
            }
            4 => {
                let replicas = self.random.number(6);
                self.world.state.overrides.scale(replicas, now).unwrap();
                self.world.generation += 1;
            }
            5 => self.undo(),
            6 => {
                let paused = self.world.spec().paused;
                self.world
                    .state
                    .overrides
                    .pause(!paused, paused, now)
                    .unwrap();
                self.world.generation += 1;
            }
            7 => {
                let paused = self.world.spec().paused;
                if self.world.state.overrides.restart(paused, now).is_ok() {
                    self.world.generation += 1;
                }
            }
            _ => {
                if self.world.state.retry().is_ok() {
                    self.rollbacks = 0;
                    self.world.generation += 1;
                }
            }
        }
    }

    fn undo(&mut self) {
        let spec = self.world.spec();
        let sets = self.world.observe(&spec);
        let current = sets
            .iter()
            .find(|set| set.is_current)
            .map(|set| set.name.as_str());
        let (state, now) = (&self.world.state, self.world.now);
        if let Ok(target) = undo_target("web", state, spec.paused, current, 0, now) {
            self.world.state.overrides.undo(target.undo);
            self.world.generation += 1;
            self.rollbacks = 0;
        }
    }

    /// The weather changes.
    fn weather(&mut self) {
        self.world.node = NodeFacts {
            surge: match self.random.below(6) {
                0 | 1 => SurgeAllowance::None {
                    reason: SurgeReason::NoRoom,
                    message: "no memory".into(),
                },
                2 => SurgeAllowance::DoesNotFit("no memory at all".into()),
                _ => SurgeAllowance::AsWritten,
            },
            images: match self.random.below(6) {
                0 => ImagesState::Pulling {
                    progressed_at: self.random.one_of(2).then_some(self.world.now),
                },
                1 => ImagesState::Failed {
                    message: "no network".into(),
                    progressed_at: None,
                },
                _ => ImagesState::Ready,
            },
            is_closed: self.random.below(8) == 0,
        };
    }

    /// Pods get on: they become ready, stop being ready, end, or go.
    fn pods(&mut self) {
        let now = self.world.now;
        let sets = &self.world.state.sets;
        let is_good: BTreeMap<String, bool> = sets
            .iter()
            .map(|set| (set.name.clone(), !image(&set.template).starts_with("bad")))
            .collect();
        for (set, pods) in &mut self.world.pods {
            for pod in pods.iter_mut() {
                Self::pod(pod, is_good.get(set) == Some(&true), &mut self.random, now);
            }
            pods.retain(|pod| {
                !(pod.is_deleted && pod.phase.is_terminal() && now.as_second() % 2 == 0)
            });
        }
    }

    fn pod(pod: &mut ObservedPod, is_good: bool, random: &mut Random, now: jiff::Timestamp) {
        match pod.is_deleted {
            true if random.one_of(3) => pod.phase = PodPhase::Succeeded,
            true => {}
            false if random.one_of(60) => {
                pod.phase = PodPhase::Failed;
                pod.is_ready = false;
            }
            false if pod.is_ready && random.one_of(30) => pod.is_ready = false,
            false if !pod.is_ready && is_good && random.one_of(3) && pod.is_active() => {
                World::make_ready(pod, now);
            }
            false => {}
        }
    }

    /// A step, which a crash may cut off before its state is written, or before it is carried out.
    fn step(&mut self) -> Outcome {
        let before = self.world.clone();
        let outcome = self.world.look();
        let is_written = !self.random.one_of(10);
        if is_written {
            self.check_decision(&before.state, &outcome);
            self.world.state = outcome.state.clone();
            self.has_other_sizes |= matches!(outcome.mode, Mode::Scale | Mode::Paused);
            self.note_rollback(&outcome);
            if self.random.one_of(10) {
                self.has_other_sizes = true;
                self.world.restart();
                return outcome;
            }
        }
        let available = self.world.available();
        self.world.apply();
        self.check_pods(available, &outcome);
        self.has_other_sizes = false;
        outcome
    }

    fn note_rollback(&mut self, outcome: &Outcome) {
        if outcome.rolled_back_to.is_some() {
            self.rollbacks += 1;
            let bad = outcome.state.overrides.bad();
            assert!(bad.is_some(), "a rollback by itself marks what it leaves");
        }
        assert!(self.rollbacks <= 1, "a second rollback by itself");
    }

    fn numbers(&mut self) -> Fenceposts {
        let spec = self.world.spec();
        let written = Fenceposts::of(&spec);
        match self.world.node.surge {
            SurgeAllowance::None { .. } if !self.world.file.recreate => {
                written.without_surge(spec.replicas)
            }
            _ => written,
        }
    }

    /// Checks the sizes that a rollout decided.
    fn check_decision(&mut self, before: &DeploymentState, outcome: &Outcome) {
        if !matches!(outcome.mode, Mode::Rolling | Mode::Recreate) {
            return;
        }
        let spec = self.world.spec();
        let numbers = self.numbers();
        let total =
            |state: &DeploymentState| -> i32 { state.sets.iter().map(|set| set.size).sum() };
        let (was, is) = (total(before), total(&outcome.state));
        let most = numbers.most_pods(spec.replicas);
        assert!(
            is <= was.max(most),
            "{was} pods became {is}, at most {most}: {outcome:#?}"
        );
        let is_grown = is > was;
        let needs_a_place = matches!(self.world.node.surge, SurgeAllowance::None { .. });
        if is_grown && needs_a_place && outcome.mode == Mode::Rolling {
            let leaving = self
                .world
                .pods
                .values()
                .flatten()
                .filter(|pod| pod.is_deleted)
                .count();
            let places = is + i32::try_from(leaving).unwrap();
            assert!(places <= spec.replicas, "{places} places: {outcome:#?}");
        }
        self.check_old_sets(before, outcome);
    }

    /// Checks that no old set shrinks for a new pod that cannot start.
    fn check_old_sets(&mut self, before: &DeploymentState, outcome: &Outcome) {
        let spec = self.world.spec();
        let observed = self.world.observe(&spec);
        let new = observed.iter().find(|set| set.is_current);
        let available = new.map_or(0, |set| set.pods.available);
        let is_held = !self.world.node.images.is_ready()
            || matches!(self.world.node.surge, SurgeAllowance::DoesNotFit(_));
        if !is_held || available >= spec.replicas {
            return;
        }
        for set in &before.sets {
            let is_new = new.is_some_and(|new| new.name == set.name);
            let is = outcome.state.set(&set.name).map_or(0, |set| set.size);
            assert!(
                is_new || is >= set.size,
                "{} shrank: {outcome:#?}",
                set.name
            );
        }
    }

    /// Checks the pods that were ended for the sizes.
    fn check_pods(&mut self, was: i32, outcome: &Outcome) {
        if self.has_other_sizes || outcome.mode != Mode::Rolling || self.world.file.recreate {
            return;
        }
        let replicas = self.world.spec().replicas;
        let least = replicas - self.numbers().max_unavailable;
        let is = self.world.available();
        assert!(
            is >= was.min(least),
            "{was} available became {is}, at least {least}: {outcome:#?}"
        );
    }

    fn tick(&mut self) {
        if self.random.one_of(12) {
            self.person();
        }
        if self.random.one_of(12) {
            self.weather();
        }
        self.pods();
        for _ in 0..=self.random.below(4) {
            self.step();
        }
        let seconds = 1 + self.random.below(10);
        self.world.pass(seconds);
    }

    /// Fine weather and a good template: all must come to an end.
    fn finish(&mut self) {
        self.world.node = NodeFacts::default();
        self.world.edit(|file| {
            file.template = "good-last".into();
            file.paused = false;
        });
        if self.world.spec().paused {
            let now = self.world.now;
            self.world.state.overrides.pause(false, true, now).unwrap();
            self.world.generation += 1;
        }
        for pods in self.world.pods.values_mut() {
            pods.retain(|pod| pod.is_active());
        }
        // Delays before pods that ended are replaced.
        self.world.pass(300);
        self.world.roll_out();
        self.world.pass(10);
        self.world.roll_out();
        let outcome = self.world.settle();
        assert_eq!(outcome.wake_at, None, "{outcome:#?}");
        let replicas = usize::try_from(self.world.spec().replicas).unwrap();
        assert_eq!(
            self.world.active("good-last"),
            replicas,
            "{:#?}",
            self.world.state
        );
        assert!(
            self.world.state.sets.len() <= 1 + usize::try_from(self.world.file.history).unwrap()
        );
    }
}

#[test]
fn everything_holds_and_comes_to_its_end() {
    let rounds = std::env::var("PODPROBE_MODEL_ROUNDS").ok();
    let rounds = rounds.and_then(|it| it.parse().ok()).unwrap_or(12);
    let first = std::env::var("PODPROBE_MODEL_FIRST")
        .ok()
        .and_then(|it| it.parse().ok())
        .unwrap_or(1);
    for seed in first..=rounds {
        let run = std::panic::catch_unwind(|| {
            let mut model = Model::new(seed);
            for _ in 0..60 {
                model.tick();
            }
            model.finish();
        });
        assert!(run.is_ok(), "seed {seed}");
    }
}
