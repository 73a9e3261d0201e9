//! Random walks of pods of every kind through exits, probe failures and lost containers. After each step the test
//! checks the invariants.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::{Inputs, PodActions, compute, should_restart_after};
use crate::api::{Container, Pod};
use crate::engine::runtime::{ContainerId, RuntimePodStatus, RuntimeSandboxStatus, RuntimeState};
use crate::fake_runtime::runtime_container_status;
use crate::pods::container_config::spec_hash;
use crate::pods::probe_result::ProbeResult;

/// A Splitmix64 random number generator. Each random walk has its own seed, which names the walk.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 32) % n
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }
}

fn random_pod(dice: &mut Dice) -> Pod {
    let mut containers = |prefix: &str, most: u64, least: u64| -> Vec<Value> {
        (0..least + dice.below(most))
            .map(|n| {
                let policy = dice.one(&[json!(null), json!("Always"), json!("OnFailure"), json!("Never")]);
                let rules = dice.one(&[json!([]), json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [3]}}])]);
                let probe = dice.one(&[json!(null), json!({})]);
                json!({"name": format!("{prefix}{n}"), "restartPolicy": policy, "restartPolicyRules": rules, "livenessProbe": probe, "startupProbe": probe})
            })
            .collect()
    };
    let (init, regular) = (containers("i", 4, 0), containers("c", 3, 1));
    let policy = dice.one(&["Always", "OnFailure", "Never"]);
    let spec = json!({"restartPolicy": policy, "initContainers": init, "containers": regular});
    Pod {
        metadata: Default::default(),
        spec: serde_json::from_value(spec).unwrap(),
        raw: Default::default(),
    }
}

/// A test world: a pod and its containers.
struct World {
    pod: Pod,
    status: RuntimePodStatus,
    liveness: HashMap<ContainerId, ProbeResult>,
    startup: HashMap<ContainerId, ProbeResult>,
    created: u64,
}

impl World {
    fn new(dice: &mut Dice) -> Self {
        Self {
            pod: random_pod(dice),
            status: Default::default(),
            liveness: HashMap::new(),
            startup: HashMap::new(),
            created: 0,
        }
    }

    fn decide(&self) -> PodActions {
        let (liveness, startup) = (
            |id: &ContainerId| self.liveness.get(id).copied(),
            |id: &ContainerId| self.startup.get(id).copied(),
        );
        compute(&Inputs {
            pod: &self.pod,
            status: &self.status,
            liveness: &liveness,
            startup: &startup,
            restart_all: false,
            ended_before: &[],
            asked: &[],
            resized: &[],
            begun: &[],
        })
    }

    fn state(&self, container: &Container) -> Option<RuntimeState> {
        self.status.container(&container.name).map(|s| s.state)
    }

    fn stop(&mut self, wanted: impl Fn(&ContainerId) -> bool) {
        for s in self
            .status
            .containers
            .iter_mut()
            .filter(|s| s.state != RuntimeState::Exited && wanted(&s.id))
        {
            (s.state, s.exit_code) = (RuntimeState::Exited, 137);
        }
    }

    fn start(&mut self, container: &Container) {
        self.created += 1;
        let mut new = runtime_container_status(
            &container.name,
            &self.created.to_string(),
            RuntimeState::Running,
            0,
        );
        new.hash = spec_hash(container);
        self.status.containers.insert(0, new);
    }

    fn carry_out(&mut self, actions: &PodActions) {
        self.stop(|id| actions.kill_pod || actions.kill.iter().any(|k| k.id == *id));
        if actions.kill_pod {
            self.status
                .sandboxes
                .iter_mut()
                .for_each(|s| s.ready = false);
        }
        let spec = self.pod.spec.clone();
        if actions.create_sandbox {
            let init = |name: &str| spec.init_containers.iter().any(|c| c.name == name);
            self.status.containers.retain(|c| !init(&c.name));
            let sandbox = RuntimeSandboxStatus {
                id: format!("sandbox{}", actions.attempt).as_str().into(),
                attempt: actions.attempt,
                ready: true,
                host_network: false,
                created_at: std::time::SystemTime::UNIX_EPOCH,
                ips: vec!["10.0.0.1".parse().unwrap()],
            };
            self.status.sandboxes.insert(0, sandbox);
        }
        actions
            .init_start
            .iter()
            .for_each(|i| self.start(&spec.init_containers[*i]));
        actions
            .start
            .iter()
            .for_each(|i| self.start(&spec.containers[*i]));
    }

    /// Changes one of the newest instances, or marks the sandboxes as not ready.
    fn happen(&mut self, dice: &mut Dice) {
        if dice.below(40) == 0 {
            self.status
                .sandboxes
                .iter_mut()
                .for_each(|s| s.ready = false);
        }
        let names: Vec<String> = self
            .pod
            .spec
            .all_containers()
            .map(|c| c.name.clone())
            .collect();
        let name = dice.one(&names);
        let Some(s) = self
            .status
            .containers
            .iter_mut()
            .find(|s| s.name == name && s.state == RuntimeState::Running)
        else {
            return;
        };
        match dice.below(6) {
            0 | 1 => (s.state, s.exit_code) = (RuntimeState::Exited, dice.one(&[0, 0, 1, 3])),
            2 => s.state = dice.one(&[RuntimeState::Unknown, RuntimeState::Created]),
            3 => drop(self.startup.insert(
                s.id.clone(),
                dice.one(&[
                    ProbeResult::Success,
                    ProbeResult::Success,
                    ProbeResult::Failure,
                ]),
            )),
            4 => drop(self.liveness.insert(
                s.id.clone(),
                dice.one(&[ProbeResult::Success, ProbeResult::Failure]),
            )),
            _ => s.hash = dice.one(&[s.hash, !s.hash]),
        }
    }

    /// Tells whether every init container before the one at `index` is done. A plain init container is done when it has
    /// ended with exit code 0. A sidecar is done when it was started. The last sidecar must also have passed its
    /// startup probe. An earlier sidecar that restarts does not delay the container at `index`.
    fn reached(&self, index: usize) -> bool {
        let before = &self.pod.spec.init_containers[..index];
        let passed = |id: &ContainerId, c: &Container| {
            c.startup_probe.is_none() || self.startup.get(id) == Some(&ProbeResult::Success)
        };
        before.iter().enumerate().all(|(at, c)| {
            match (c.always_restarts(), self.status.container(&c.name)) {
                (_, None) => false,
                (true, Some(s)) => {
                    at + 1 < index || (s.state == RuntimeState::Running && passed(&s.id, c))
                }
                (false, Some(s)) => s.state == RuntimeState::Exited && s.exit_code == 0,
            }
        })
    }

    /// Checks the invariants that every decision must keep.
    fn check(&self, actions: &PodActions, seed: u64) {
        let spec = &self.pod.spec;
        let known = |id: &ContainerId| {
            self.status
                .containers
                .iter()
                .find(|s| s.id == *id)
                .unwrap()
                .state
        };
        let only_alive = actions
            .kill
            .iter()
            .all(|k| matches!(known(&k.id), RuntimeState::Running | RuntimeState::Unknown));
        assert!(
            only_alive,
            "seed {seed}: only what runs or is lost is killed"
        );
        assert!(
            !actions.kill_pod || actions.kill.is_empty(),
            "seed {seed}: a pod that is killed has no single kills"
        );
        assert!(
            !actions.create_sandbox || actions.kill_pod,
            "seed {seed}: what is left of the old sandbox goes first"
        );
        assert!(
            [&actions.start, &actions.init_start]
                .iter()
                .all(|list| list.is_sorted_by(|a, b| a < b)),
            "seed {seed}: spec order, once each"
        );
        let starts = actions
            .init_start
            .iter()
            .map(|i| &spec.init_containers[*i])
            .chain(actions.start.iter().map(|i| &spec.containers[*i]));
        for container in starts {
            let newest = self.status.container(&container.name);
            let killed =
                |id: &ContainerId| actions.kill_pod || actions.kill.iter().any(|k| k.id == *id);
            let kept = newest.is_some_and(|s| {
                matches!(s.state, RuntimeState::Running | RuntimeState::Unknown) && !killed(&s.id)
            });
            assert!(!kept, "seed {seed}: {} is started and kept", container.name);
            let for_good = newest.is_some_and(|s| {
                s.state == RuntimeState::Exited
                    && !should_restart_after(spec.restart_policy, container, s.exit_code)
            });
            assert!(
                !for_good || actions.create_sandbox,
                "seed {seed}: {} has ended for good",
                container.name
            );
        }
        self.check_order(actions, seed);
    }

    /// Checks that regular containers start after all init containers, and that each init container starts after the
    /// init container before it.
    fn check_order(&self, actions: &PodActions, seed: u64) {
        let spec = &self.pod.spec;
        if actions.create_sandbox {
            let from_the_first = actions.init_start == [0] && actions.start.is_empty();
            assert!(
                from_the_first || spec.init_containers.is_empty(),
                "seed {seed}: a new sandbox begins with the first init container"
            );
            return;
        }
        let regular_alive = spec.containers.iter().any(|c| {
            matches!(
                self.state(c),
                Some(RuntimeState::Created | RuntimeState::Running)
            )
        });
        if regular_alive {
            let sidecars = actions
                .init_start
                .iter()
                .all(|i| spec.init_containers[*i].always_restarts());
            assert!(
                sidecars,
                "seed {seed}: plain init containers do not run again beside regular ones"
            );
            return;
        }
        let complete = self.reached(spec.init_containers.len());
        assert!(
            actions.start.is_empty() || complete,
            "seed {seed}: regular containers start only when initialisation is complete"
        );
        if let Some(last) = actions.init_start.last() {
            assert!(
                self.reached(*last) || self.state(&spec.init_containers[*last]).is_some(),
                "seed {seed}: init containers start in order"
            );
        }
    }
}

#[test]
fn random_walks_keep_the_invariants() {
    let (mut started, mut killed) = (0, 0);
    for seed in 0..4000 {
        let mut dice = Dice(seed);
        let mut world = World::new(&mut dice);
        for _ in 0..40 {
            let actions = world.decide();
            world.check(&actions, seed);
            started += actions.start.len() + actions.init_start.len();
            killed += actions.kill.len();
            world.carry_out(&actions);
            world.happen(&mut dice);
        }
    }
    assert!(
        started > 10_000 && killed > 1000,
        "the walks do something: {started} starts, {killed} kills"
    );
}
