//! The pure state machine of one probe worker. It decides what a step does before and after its handler
//! (kubelet-probes 2.3–2.5).
//!
//! Invariants: the state machine uses no thread, clock, lock or channel. Changes of the cache are returned as data. A
//! result is set only for the container id that the worker holds. While a worker is on hold, no handler runs until
//! there is a new container id. With a new container id every count of equal results starts again (lessons
//! A6; v1.36 carries a readiness streak over). Delays are counted on the boot clock (lessons B5).

use std::time::Duration;

use super::container_view::{ContainerView, Instance};
use crate::api::{Probe, ProbeType};
use crate::base::clock::Moment;
use crate::engine::runtime::ContainerId;
use crate::pods::prober::results::ProbeResult;

/// The margin for [`is_older`]: a container is older than the manager if it started more than this time before the
/// manager (kubelet-probes 2.4).
pub const OLDER_MARGIN: Duration = Duration::from_secs(10);

/// The inputs of a worker's step.
pub struct StepInputs<'a> {
    /// The container in the pod's stored API status.
    pub container: &'a ContainerView,
    /// True if the worker's pod object has a deletion timestamp.
    pub deletion_timestamp: bool,
    /// The time at which the manager was made.
    pub manager_started: Moment,
    /// Returns the time at which a running container started, or `None` while the time is unknown. A known time never
    /// changes.
    pub container_started: &'a dyn Fn(&ContainerId) -> Option<Moment>,
    /// Tells whether Ready and Started of this container were restored from an earlier daemon. Such a container is
    /// older than the manager.
    pub restored: &'a dyn Fn(&ContainerId) -> bool,
}

/// A change of the result cache. A worker does not set the same value again for the same instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Stores the value, and sends it if it has changed.
    Set(ContainerId, ProbeResult),
    /// Removes the value.
    Remove(ContainerId),
}

/// The worker's next move after the first half of a step, which ends before the handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The worker waits for the next tick.
    Continue,
    /// The worker waits for the end of the initial delay (row 8).
    Delayed(Moment),
    /// The worker ends.
    Exit,
    /// The handler must run against this instance. After the handler, call [`Worker::after`].
    Probe(ContainerId),
}

/// The outcome of the first half of a step, which ends before the handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Before {
    /// The changes of the cache, in order.
    pub actions: Vec<Action>,
    /// True if the worker has just begun to watch another instance.
    pub adopted: bool,
    /// The worker's next move.
    pub next: Next,
}

impl Before {
    fn only(next: Next) -> Self {
        Self {
            actions: Vec::new(),
            adopted: false,
            next,
        }
    }
}

/// The result of a handler. [`Verdict::Error`] changes nothing (row 11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The prober returned Success or Warning, without an error.
    Success,
    /// The prober returned Failure or Unknown, without an error.
    Failure,
    /// The probe did not work and has no result.
    Error,
}

/// Equal results in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streak {
    /// The result: Success or Failure.
    pub result: ProbeResult,
    /// The number of results.
    pub run: u32,
}

/// A worker's state (kubelet-probes 2.1).
#[derive(Clone, Debug)]
pub struct Worker {
    probe_type: ProbeType,
    initial_delay: Duration,
    /// True if the age of a container counts in whole seconds (row 8). False if the delay is given in milliseconds.
    whole_seconds: bool,
    success_threshold: u32,
    failure_threshold: u32,
    id: Option<ContainerId>,
    /// The time at which the worker first saw this instance. This time replaces an unknown start time.
    seen: Moment,
    /// The time at which this instance started, once that is known.
    started: Option<Moment>,
    last: ProbeResult,
    run: u32,
    on_hold: bool,
    /// The last value that the worker has set for this instance.
    set: Option<ProbeResult>,
}

/// The initial result of a new container (kubelet-probes 2.1).
pub fn initial_value(probe_type: ProbeType) -> ProbeResult {
    match probe_type {
        ProbeType::Liveness => ProbeResult::Success,
        ProbeType::Readiness => ProbeResult::Failure,
        ProbeType::Startup => ProbeResult::Unknown,
    }
}

/// Tells whether a container that started at `started` is older than the manager (kubelet-probes 2.4, 4.4).
pub fn is_older(started: Moment, manager_started: Moment) -> bool {
    started + OLDER_MARGIN < manager_started
}

impl Worker {
    /// Makes a worker for one probe of one container. The numbers in the probe do not change any more.
    pub fn new(probe_type: ProbeType, probe: &Probe) -> Self {
        Self {
            probe_type,
            initial_delay: probe.initial_delay(),
            whole_seconds: probe.initial_delay_milliseconds.is_none(),
            success_threshold: probe.success_threshold.max(1) as u32,
            failure_threshold: probe.failure_threshold.max(1) as u32,
            id: None,
            seen: Moment::default(),
            started: None,
            last: ProbeResult::Success,
            run: 0,
            on_hold: false,
            set: None,
        }
    }

    /// Returns the id of the instance that the worker watches.
    pub fn container_id(&self) -> Option<&ContainerId> {
        self.id.as_ref()
    }

    /// True if the worker waits for a new instance.
    pub fn on_hold(&self) -> bool {
        self.on_hold
    }

    /// Returns the number of equal results in a row.
    pub fn run(&self) -> u32 {
        self.run
    }

    /// Returns the equal results in a row, if they are too few to change the value in force.
    pub fn open_streak(&self) -> Option<Streak> {
        let is_open = self.run > 0 && !self.on_hold && self.set != Some(self.last);
        is_open.then_some(Streak {
            result: self.last,
            run: self.run,
        })
    }

    /// Goes on with the results of an earlier daemon. Call this function only after the worker has begun to watch the
    /// instance of these results.
    pub fn go_on(&mut self, streak: Streak) {
        (self.last, self.run) = (streak.result, streak.run);
    }

    /// Decides the first half of a step, before the handler, by rows 1–10 of kubelet-probes 2.3.
    pub fn before(&mut self, now: Moment, inputs: &StepInputs<'_>) -> Before {
        let instance = match inputs.container {
            ContainerView::NoInstance => return Before::only(Next::Continue),
            ContainerView::PodEnded => return Before::only(Next::Exit),
            ContainerView::Instance(instance) => instance,
        };
        let mut actions = Vec::new();
        let adopted = self.id.as_ref() != Some(&instance.id);
        if adopted {
            self.adopt(instance, now, inputs, &mut actions);
        }
        let next = self.look(now, instance, inputs, &mut actions);
        Before {
            actions,
            adopted,
            next,
        }
    }

    /// Decides the first half of a step by the state of the instance (rows 5–10).
    fn look(
        &mut self,
        now: Moment,
        instance: &Instance,
        inputs: &StepInputs<'_>,
        actions: &mut Vec<Action>,
    ) -> Next {
        if self.on_hold {
            return Next::Continue;
        }
        if !instance.running {
            actions.extend(self.set(ProbeResult::Failure));
            return if instance.over {
                Next::Exit
            } else {
                Next::Continue
            };
        }
        if inputs.deletion_timestamp && self.probe_type != ProbeType::Readiness {
            actions.extend(self.set(ProbeResult::Success));
            return Next::Exit;
        }
        if let Some(end) = self.end_of_delay(now, inputs) {
            return Next::Delayed(end);
        }
        match (instance.started, self.probe_type) {
            (true, ProbeType::Startup) => Next::Continue,
            (false, ProbeType::Liveness | ProbeType::Readiness) => Next::Continue,
            _ => Next::Probe(instance.id.clone()),
        }
    }

    /// Returns the end of the initial delay, or `None` if the delay is over (row 8).
    fn end_of_delay(&mut self, now: Moment, inputs: &StepInputs<'_>) -> Option<Moment> {
        if self.initial_delay.is_zero() {
            return None;
        }
        self.started = self
            .started
            .or_else(|| (inputs.container_started)(self.id.as_ref()?));
        let started = self.started.unwrap_or(self.seen);
        let age = now.since(started);
        let age = if self.whole_seconds {
            Duration::from_secs(age.as_secs())
        } else {
            age
        };
        (self.initial_delay > age).then(|| started + self.initial_delay)
    }

    /// Takes over a new container id (row 4, kubelet-probes 2.4).
    fn adopt(
        &mut self,
        instance: &Instance,
        now: Moment,
        inputs: &StepInputs<'_>,
        actions: &mut Vec<Action>,
    ) {
        let id = instance.id.clone();
        if let Some(old) = self.id.replace(id.clone()) {
            actions.push(Action::Remove(old));
        }
        self.set = None;
        self.started = (inputs.container_started)(&id);
        let older = instance.running
            && ((inputs.restored)(&id)
                || self
                    .started
                    .is_some_and(|s| is_older(s, inputs.manager_started)));
        // A sidecar that has started still counts as started, because the containers after it may have to restart
        // (lessons A2).
        if instance.sidecar && self.probe_type == ProbeType::Startup && instance.started {
            actions.extend(self.set(ProbeResult::Success));
        }
        if !older {
            actions.extend(self.set(initial_value(self.probe_type)));
        }
        self.seen = now;
        self.on_hold = false;
        self.run = 0;
    }

    /// Applies the handler's verdict (rows 11–16 of kubelet-probes 2.3). Call this function only after [`Next::Probe`].
    pub fn after(&mut self, verdict: Verdict) -> Option<Action> {
        let (result, threshold) = match verdict {
            Verdict::Success => (ProbeResult::Success, self.success_threshold),
            Verdict::Failure => (ProbeResult::Failure, self.failure_threshold),
            Verdict::Error => return None,
        };
        self.run = if result == self.last {
            self.run.saturating_add(1)
        } else {
            1
        };
        self.last = result;
        if self.run < threshold {
            return None;
        }
        let failed_liveness =
            self.probe_type == ProbeType::Liveness && result == ProbeResult::Failure;
        if failed_liveness || self.probe_type == ProbeType::Startup {
            self.on_hold = true;
            self.run = 0;
        }
        self.set(result)
    }

    /// Returns the action that sets a value, or `None` if the worker has already set the same value. Once a worker has
    /// set a value for an instance's id, no other code sets a value for this id.
    fn set(&mut self, result: ProbeResult) -> Option<Action> {
        if self.set.replace(result) == Some(result) {
            return None;
        }
        self.id.clone().map(|id| Action::Set(id, result))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::pod::{PodSpec, RestartPolicy};
    use crate::api::status::{
        ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    };
    use crate::api::{Container, ContainerStatus, PodPhase, PodStatus};

    const MANAGER: Moment = Moment::from_boot(Duration::from_secs(1000));

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum State {
        Running,
        Waiting,
        Ended(i32),
    }

    fn status(id: &str, state: State, started: bool) -> PodStatus {
        let state = match state {
            State::Running => ContainerState {
                running: Some(ContainerStateRunning { started_at: None }),
                ..Default::default()
            },
            State::Waiting => ContainerState {
                waiting: Some(ContainerStateWaiting::default()),
                ..Default::default()
            },
            State::Ended(exit_code) => ContainerState {
                terminated: Some(ContainerStateTerminated {
                    exit_code,
                    ..Default::default()
                }),
                ..Default::default()
            },
        };
        let entry = ContainerStatus {
            name: "c".into(),
            container_id: id.into(),
            state,
            started: Some(started),
            ..Default::default()
        };
        PodStatus {
            phase: PodPhase::Running,
            container_statuses: vec![entry],
            ..Default::default()
        }
    }

    fn spec(policy: RestartPolicy) -> PodSpec {
        let container = Container {
            name: "c".into(),
            ..Default::default()
        };
        PodSpec {
            restart_policy: policy,
            containers: vec![container],
            ..Default::default()
        }
    }

    /// A test world: one worker, its cache, and the pod that it looks at.
    struct World {
        worker: Worker,
        cache: std::collections::BTreeMap<ContainerId, ProbeResult>,
        status: Option<PodStatus>,
        spec: PodSpec,
        deleting: bool,
        started: Option<Moment>,
        restored: bool,
        now: Moment,
    }

    impl World {
        fn new(kind: ProbeType, success: i32, failure: i32, delay: i32) -> Self {
            let probe = Probe {
                success_threshold: success,
                failure_threshold: failure,
                initial_delay_seconds: delay,
                ..Default::default()
            };
            Self {
                worker: Worker::new(kind, &probe),
                cache: Default::default(),
                status: Some(status("a", State::Running, kind != ProbeType::Startup)),
                spec: spec(RestartPolicy::Never),
                deleting: false,
                started: Some(MANAGER + Duration::from_secs(1)),
                restored: false,
                now: MANAGER + Duration::from_secs(100),
            }
        }

        /// Runs one step and applies its actions to the cache. Returns the move after the first half of the step.
        fn step(&mut self, verdict: Verdict) -> Next {
            let (started, restored) = (self.started, self.restored);
            let inputs = StepInputs {
                container: &ContainerView::of(self.status.as_ref(), &self.spec, "c"),
                deletion_timestamp: self.deleting,
                manager_started: MANAGER,
                container_started: &|_| started,
                restored: &|_| restored,
            };
            let before = self.worker.before(self.now, &inputs);
            let probed = matches!(before.next, Next::Probe(_));
            let more = if probed {
                self.worker.after(verdict)
            } else {
                None
            };
            for action in before.actions.into_iter().chain(more) {
                match action {
                    Action::Set(id, result) => drop(self.cache.insert(id, result)),
                    Action::Remove(id) => drop(self.cache.remove(&id)),
                }
            }
            before.next
        }

        fn cached(&self, id: &str) -> Option<ProbeResult> {
            self.cache.get(&ContainerId::from(id)).copied()
        }
    }

    const S: Verdict = Verdict::Success;
    const F: Verdict = Verdict::Failure;
    const E: Verdict = Verdict::Error;

    /// Runs a step, and returns the number of equal results that have not changed the value.
    fn open_after(w: &mut World, verdict: Verdict) -> Option<(ProbeResult, u32)> {
        w.step(verdict);
        w.worker.open_streak().map(|s| (s.result, s.run))
    }

    #[test]
    fn results_in_a_row_are_open_until_they_change_the_value() {
        let failed = |run| Some((ProbeResult::Failure, run));
        let mut w = World::new(ProbeType::Liveness, 1, 3, 0);
        assert_eq!(open_after(&mut w, S), None);
        assert_eq!(open_after(&mut w, F), failed(1));
        assert_eq!(open_after(&mut w, E), failed(1));
        assert_eq!(open_after(&mut w, F), failed(2));
        assert_eq!(open_after(&mut w, S), None);
        assert_eq!(open_after(&mut w, F), failed(1));
        assert_eq!(open_after(&mut w, F), failed(2));
        assert_eq!(open_after(&mut w, F), None, "the container is killed");
        let mut w = World::new(ProbeType::Readiness, 2, 2, 0);
        assert_eq!(open_after(&mut w, S), Some((ProbeResult::Success, 1)));
        assert_eq!(open_after(&mut w, S), None);
        assert_eq!(open_after(&mut w, F), failed(1));
        assert_eq!(open_after(&mut w, F), None);
        assert_eq!(open_after(&mut w, F), None);
        let mut w = World::new(ProbeType::Startup, 1, 2, 0);
        assert_eq!(open_after(&mut w, F), failed(1));
        assert_eq!(open_after(&mut w, F), None);
    }

    #[test]
    fn a_worker_goes_on_with_the_results_of_an_earlier_one() {
        for kind in [ProbeType::Liveness, ProbeType::Startup] {
            let mut w = World::new(kind, 1, 3, 0);
            w.restored = true;
            w.worker.before(
                w.now,
                &StepInputs {
                    container: &ContainerView::of(w.status.as_ref(), &w.spec, "c"),
                    deletion_timestamp: false,
                    manager_started: MANAGER,
                    container_started: &|_| None,
                    restored: &|_| true,
                },
            );
            w.worker.go_on(Streak {
                result: ProbeResult::Failure,
                run: 2,
            });
            w.step(F);
            assert_eq!(w.cached("a"), Some(ProbeResult::Failure), "{kind}");
        }
    }

    #[track_caller]
    fn check_step(change: impl Fn(&mut World), goes_on: [bool; 3], cached: Option<ProbeResult>) {
        for (kind, goes_on) in ProbeType::ALL.into_iter().zip(goes_on) {
            let mut w = World::new(kind, 1, 1, 0);
            change(&mut w);
            assert_eq!(w.step(S) != Next::Exit, goes_on, "{kind}");
            assert_eq!(w.cached("a"), cached, "{kind}");
            assert!(
                cached.is_some() || w.cache.is_empty(),
                "{kind}: nothing under another id either"
            );
        }
    }

    #[test]
    fn each_row_of_a_step() {
        use ProbeResult::{Failure, Success};
        let all = [true; 3];
        let state = |s| move |w: &mut World| w.status = Some(status("a", s, false));
        check_step(|w| w.status = None, all, None);
        check_step(
            |w| w.status.as_mut().unwrap().phase = PodPhase::Failed,
            [false; 3],
            None,
        );
        check_step(
            |w| w.status.as_mut().unwrap().phase = PodPhase::Succeeded,
            [false; 3],
            None,
        );
        check_step(
            |w| w.status.as_mut().unwrap().container_statuses[0].name = "other".into(),
            all,
            None,
        );
        check_step(
            |w| w.status.as_mut().unwrap().container_statuses[0].container_id = "".into(),
            all,
            None,
        );
        check_step(state(State::Waiting), all, Some(Failure));
        check_step(state(State::Ended(0)), [false; 3], Some(Failure));
        check_step(|w| w.deleting = true, [false, true, false], Some(Success));
        check_step(|_| (), all, Some(Success));
    }

    #[test]
    fn a_container_that_will_restart_keeps_its_worker() {
        for (policy, code, goes_on) in [
            (RestartPolicy::Always, 0, true),
            (RestartPolicy::OnFailure, 0, false),
            (RestartPolicy::OnFailure, 1, true),
            (RestartPolicy::Never, 1, false),
        ] {
            let change = |w: &mut World| {
                (w.spec, w.status) = (spec(policy), Some(status("a", State::Ended(code), true)))
            };
            check_step(change, [goes_on; 3], Some(ProbeResult::Failure));
        }
    }

    /// Covers two cases that worker.json does not have: the condition alone, and an exit with another code.
    #[test]
    fn a_restart_of_all_containers_keeps_every_worker() {
        let rule = json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}]);
        let spec = || -> PodSpec {
            let asks =
                json!({"name": "other", "restartPolicy": "Never", "restartPolicyRules": rule});
            serde_json::from_value(
                json!({"restartPolicy": "Never", "containers": [{"name": "c"}, asks]}),
            )
            .unwrap()
        };
        let with_other = |code: i32| {
            let mut both = status("a", State::Ended(1), true);
            let other = status("b", State::Ended(code), true)
                .container_statuses
                .remove(0);
            both.container_statuses.push(ContainerStatus {
                name: "other".into(),
                ..other
            });
            both
        };
        let mut going_on = status("a", State::Ended(1), true);
        going_on.conditions.push(
            serde_json::from_value(json!({"type": "AllContainersRestarting", "status": "True", "lastTransitionTime": null})).unwrap(),
        );
        for (status, goes_on) in [(going_on, true), (with_other(2), false)] {
            let change = |w: &mut World| (w.spec, w.status) = (spec(), Some(status.clone()));
            check_step(change, [goes_on; 3], Some(ProbeResult::Failure));
        }
    }

    /// Checks kubelet-probes 2.4 step 3: the initial result of a sidecar that has already started.
    #[test]
    fn a2_a_started_sidecar_older_than_the_daemon_is_seeded_as_started() {
        let sidecar: PodSpec = serde_json::from_value(
            json!({"initContainers": [{"name": "c", "restartPolicy": "Always"}]}),
        )
        .unwrap();
        for (spec, started, seed) in [
            (sidecar.clone(), true, Some(ProbeResult::Success)),
            (sidecar, false, None),
            (spec(RestartPolicy::Always), true, None),
        ] {
            let mut w = World::new(ProbeType::Startup, 1, 3, 0);
            (w.spec, w.status, w.started) = (
                spec,
                Some(status("a", State::Running, started)),
                Some(Moment::from_boot(Duration::from_secs(1))),
            );
            w.step(E);
            assert_eq!(w.cached("a"), seed);
        }
    }

    #[track_caller]
    fn check_run(
        kind: ProbeType,
        thresholds: (i32, i32),
        verdicts: &[Verdict],
        cached: &[ProbeResult],
        runs: &[u32],
    ) {
        let mut w = World::new(kind, thresholds.0, thresholds.1, 0);
        for (i, verdict) in verdicts.iter().enumerate() {
            w.step(*verdict);
            assert_eq!(w.cached("a"), Some(cached[i]), "after step {i}");
            assert!(
                runs.is_empty() || w.worker.run() == runs[i],
                "run {} after step {i}",
                w.worker.run()
            );
        }
    }

    #[test]
    fn thresholds_count_runs_of_equal_results() {
        use ProbeResult::{Failure, Success, Unknown};
        let (startup, readiness, liveness) = (
            ProbeType::Startup,
            ProbeType::Readiness,
            ProbeType::Liveness,
        );
        check_run(
            readiness,
            (3, 1),
            &[S, S, S, S, S, F],
            &[Failure, Failure, Success, Success, Success, Failure],
            &[],
        );
        check_run(
            readiness,
            (1, 3),
            &[S, F, F, S, F, F, F],
            &[
                Success, Success, Success, Success, Success, Success, Failure,
            ],
            &[],
        );
        check_run(
            startup,
            (1, 3),
            &[F, F, F],
            &[Unknown, Unknown, Failure],
            &[1, 2, 0],
        );
        check_run(startup, (1, 3), &[S], &[Success], &[0]);
        check_run(
            liveness,
            (1, 3),
            &[F, F, E, F],
            &[Success, Success, Success, Failure],
            &[1, 2, 2, 0],
        );
    }

    #[test]
    fn c4_a_kill_decision_holds_the_worker_until_a_new_instance() {
        for (kind, held_after) in [(ProbeType::Liveness, false), (ProbeType::Startup, true)] {
            let mut w = World::new(kind, 1, 1, 0);
            w.step(F);
            assert!(w.worker.on_hold());
            assert_eq!(w.step(S), Next::Continue, "the handler does not run");
            assert_eq!(w.cached("a"), Some(ProbeResult::Failure));
            w.status = Some(status("b", State::Running, kind != ProbeType::Startup));
            w.step(S);
            assert_eq!(
                (w.cached("a"), w.cached("b"), w.worker.on_hold()),
                (None, Some(ProbeResult::Success), held_after)
            );
        }
    }

    /// Lessons A5: a startup result does not count for the next instance.
    #[test]
    fn a5_each_instance_passes_its_own_startup_probe() {
        let mut w = World::new(ProbeType::Startup, 1, 3, 0);
        for id in ["a", "b", "c"] {
            w.status = Some(status(id, State::Running, false));
            assert_eq!(
                (w.step(F), w.cached(id)),
                (Next::Probe(id.into()), Some(ProbeResult::Unknown))
            );
            assert_eq!(
                (w.step(S), w.cached(id)),
                (Next::Probe(id.into()), Some(ProbeResult::Success))
            );
            w.status = Some(status(id, State::Running, true));
            assert_eq!(w.step(F), Next::Continue, "its work is done");
        }
    }

    #[test]
    fn a6_a_new_instance_starts_a_new_count() {
        let mut w = World::new(ProbeType::Readiness, 1, 3, 0);
        [S, F, F].into_iter().for_each(|v| drop(w.step(v)));
        assert_eq!(w.worker.run(), 2);
        w.status = Some(status("b", State::Running, true));
        w.step(F);
        assert_eq!(w.worker.run(), 1);
    }

    #[test]
    fn startup_gates_the_others() {
        let mut w = World::new(ProbeType::Liveness, 1, 1, 0);
        w.status = Some(status("a", State::Running, false));
        assert_eq!(
            (w.step(F), w.cached("a")),
            (Next::Continue, Some(ProbeResult::Success))
        );
        w.status = Some(status("a", State::Running, true));
        w.step(F);
        assert_eq!(w.cached("a"), Some(ProbeResult::Failure));
        let mut w = World::new(ProbeType::Startup, 1, 2, 0);
        w.status = Some(status("a", State::Running, true));
        assert_eq!(
            (w.step(F), w.cached("a")),
            (Next::Continue, Some(ProbeResult::Unknown))
        );
    }

    #[track_caller]
    fn check_delay(since_start_ms: u64, expected: bool) {
        for kind in ProbeType::ALL {
            let mut w = World::new(kind, 1, 1, 10);
            let start = w.started.unwrap();
            w.now = start + Duration::from_millis(since_start_ms);
            let next = w.step(S);
            assert_eq!(matches!(next, Next::Probe(_)), expected, "{kind}");
            assert!(expected || next == Next::Delayed(start + Duration::from_secs(10)));
            assert!(expected || w.cached("a") == Some(initial_value(kind)));
        }
    }

    #[test]
    fn the_initial_delay_counts_whole_seconds_of_the_boot_clock() {
        check_delay(0, false);
        check_delay(9_999, false);
        check_delay(10_000, true);
        check_delay(100_000, true);
    }

    /// Lessons B5: a change of the wall clock does not move any probe.
    #[test]
    fn b5_the_initial_delay_does_not_ask_the_wall_clock() {
        for started_at in ["2001-01-01T00:00:00Z", "2199-01-01T00:00:00Z"] {
            for (age, probed) in [(9_999, false), (10_000, true)] {
                let mut w = World::new(ProbeType::Liveness, 1, 1, 10);
                let running = json!({"running": {"startedAt": started_at}});
                w.status.as_mut().unwrap().container_statuses[0].state =
                    serde_json::from_value(running).unwrap();
                w.now = w.started.unwrap() + Duration::from_millis(age);
                let next = w.step(S);
                assert_eq!(
                    matches!(next, Next::Probe(_)),
                    probed,
                    "{started_at}, {age} ms: {next:?}"
                );
            }
        }
    }

    #[test]
    fn a_delay_in_milliseconds_counts_milliseconds() {
        let probe = Probe {
            initial_delay_seconds: 9,
            initial_delay_milliseconds: Some(1250),
            ..Default::default()
        };
        for (age, probed) in [
            (0, false),
            (1000, false),
            (1249, false),
            (1250, true),
            (9000, true),
        ] {
            let mut w = World::new(ProbeType::Liveness, 1, 1, 0);
            w.worker = Worker::new(ProbeType::Liveness, &probe);
            w.started = Some(w.now - Duration::from_millis(age));
            let next = w.step(S);
            assert_eq!(matches!(next, Next::Probe(_)), probed, "{age} ms: {next:?}");
        }
    }

    #[test]
    fn without_a_start_time_the_delay_counts_from_the_first_look() {
        let mut w = World::new(ProbeType::Liveness, 1, 1, 10);
        w.started = None;
        let end = w.now + Duration::from_secs(10);
        assert_eq!(w.step(S), Next::Delayed(end));
        w.now = end;
        assert!(matches!(w.step(S), Next::Probe(_)));
    }

    #[track_caller]
    fn check_seed(started: Duration, restored: bool, seeded: bool) {
        for kind in ProbeType::ALL {
            let mut w = World::new(kind, 1, 1, 1000);
            (w.started, w.restored, w.now) = (
                Some(Moment::from_boot(started)),
                restored,
                Moment::from_boot(started),
            );
            w.step(S);
            assert_eq!(w.cached("a"), seeded.then(|| initial_value(kind)), "{kind}");
        }
    }

    #[test]
    fn an_instance_from_before_the_daemon_is_not_seeded() {
        check_seed(Duration::from_secs(700), false, false);
        check_seed(Duration::from_secs(1300), false, true);
        check_seed(Duration::from_secs(990), false, true);
        check_seed(Duration::from_millis(989_999), false, false);
        check_seed(Duration::from_secs(995), true, false);
    }

    /// A Splitmix64 random number generator. Each random walk has its own seed, which names the walk.
    struct Walk(u64);

    impl Walk {
        fn below(&mut self, n: u64) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            ((z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 32) % n
        }
    }

    #[test]
    fn what_was_set_is_set_again_only_for_a_new_instance() {
        let mut w = World::new(ProbeType::Liveness, 1, 2, 0);
        w.step(S);
        w.cache.clear();
        w.step(S);
        assert_eq!(w.cached("a"), None, "once");
        w.status = Some(status("b", State::Running, true));
        w.step(S);
        assert_eq!(w.cached("b"), Some(ProbeResult::Success));
    }

    #[test]
    fn random_walks_keep_the_invariants() {
        for seed in 0..3000 {
            let mut walk = Walk(seed);
            let kind = ProbeType::ALL[walk.below(3) as usize];
            let success = if kind == ProbeType::Readiness {
                1 + walk.below(3) as i32
            } else {
                1
            };
            let failure = 1 + walk.below(3) as i32;
            let mut w = World::new(kind, success, failure, walk.below(3) as i32 * 5);
            w.spec = spec(RestartPolicy::Always);
            // Counts the verdicts of handler runs on the present instance, independently of the worker.
            let (mut instance, mut streak) = (0, Vec::new());
            for _ in 0..60 {
                let held = w.worker.on_hold();
                let new = walk.below(6) == 0;
                if new {
                    instance += 1;
                    streak.clear();
                    w.started = Some(w.now);
                }
                let state = [
                    State::Running,
                    State::Running,
                    State::Running,
                    State::Waiting,
                    State::Ended(1),
                ][walk.below(5) as usize];
                let id = format!("i{instance}");
                w.status = (walk.below(10) != 0).then(|| status(&id, state, walk.below(2) == 0));
                w.now = w.now + Duration::from_millis(walk.below(4000));
                let verdict = [S, F, E][walk.below(3) as usize];
                let before = w.cached(&id);
                let seen = w.worker.container_id().cloned();
                let next = w.step(verdict);
                let changed_id = w.worker.container_id() != seen.as_ref();
                let Next::Probe(probed) = &next else {
                    assert!(
                        w.cache.len() <= 1,
                        "seed {seed}: results of dead instances are removed"
                    );
                    continue;
                };
                assert_eq!(
                    probed.as_str(),
                    id,
                    "seed {seed}: only the present instance is probed"
                );
                assert_eq!(state, State::Running, "seed {seed}");
                assert!(!held || changed_id, "seed {seed}: on hold no handler runs");
                assert!(
                    w.now.since(w.started.unwrap()).as_secs() >= w.worker.initial_delay.as_secs(),
                    "seed {seed}: the delay is kept"
                );
                if verdict == E {
                    assert!(
                        changed_id || w.cached(&id) == before,
                        "seed {seed}: an error changes nothing"
                    );
                    continue;
                }
                if streak.last() != Some(&verdict) {
                    streak.clear();
                }
                streak.push(verdict);
                let (threshold, result) = if verdict == S {
                    (success, ProbeResult::Success)
                } else {
                    (failure, ProbeResult::Failure)
                };
                if streak.len() >= threshold as usize {
                    assert_eq!(w.cached(&id), Some(result), "seed {seed}: at the threshold");
                    assert_eq!(
                        w.worker.on_hold(),
                        kind == ProbeType::Startup || (kind == ProbeType::Liveness && verdict == F)
                    );
                } else {
                    assert!(
                        changed_id || w.cached(&id) == before,
                        "seed {seed}: below the threshold"
                    );
                }
            }
        }
    }
}
