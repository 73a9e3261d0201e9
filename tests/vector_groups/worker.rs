//! worker.json: the steps of a probe worker and its cache (kubelet-probes 2.3 to 2.6).

use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use podprobe::api::pod::RestartPolicy;
use podprobe::api::{Pod, PodPhase, PodStatus, PodUid, Probe, ProbeType};
use podprobe::base::clock::Moment;
use podprobe::engine::runtime::ContainerId;
use podprobe::pods::prober::container_view::ContainerView;
use podprobe::pods::prober::results::{Manager, ProbeResult, Update};
use podprobe::pods::prober::worker::{Action, Next, StepInputs, Verdict as Handled, Worker};
use serde::Deserialize;
use serde_json::{Value, json};

use super::world::{Daemon, api_state, entry, pod_of, until};
use super::{
    AS_TOLD, Cached, Case, Group, PerType, Run, Verdict, duration, ensure, fields, group,
    overruled, probe_type, same, unknown,
};

pub const GROUPS: &[Group] = &[
    group("version", Run::Text),
    group("doc", Run::Text),
    group("kubeletRestartDoc", Run::Text),
    group("step", Run::Each(step)),
    group("restartRules", Run::Each(restart_rules)),
    group(
        "restartAll",
        Run::Told(&[("wa-1", wa_1), ("wa-2", wa_2), ("wa-3", wa_3)]),
    ),
    group("initialDelay", Run::Each(initial_delay)),
    group("sequences", Run::Each(sequence)),
    group("cleanup", Run::Told(&[("wc-1", wc_1)])),
    group("kubeletRestart", Run::Each(kubelet_restart)),
];

const MANAGER: Moment = Moment::from_boot(Duration::from_secs(10_000));

/// The fixture: one pod of one container, one worker of it, its cache, and the world as it looks.
struct World {
    worker: Worker,
    cache: Manager,
    updates: Receiver<Update>,
    pod: std::sync::Arc<Pod>,
    status: Option<PodStatus>,
    deleting: bool,
    started: Option<Moment>,
    now: Moment,
    id: String,
    /// How often the handler ran.
    runs: usize,
}

impl World {
    fn new(probe_type: ProbeType, probe: Probe, spec: Value) -> Self {
        let (tx, updates) = bounded(1000);
        let mut world = Self {
            worker: Worker::new(probe_type, &probe),
            cache: Manager::new(tx),
            updates,
            pod: pod_of("p", spec),
            status: None,
            deleting: false,
            started: Some(MANAGER + Duration::from_secs(1)),
            now: MANAGER + Duration::from_secs(2000),
            id: "a".into(),
            runs: 0,
        };
        world
            .is("running", 0, probe_type != ProbeType::Startup)
            .expect("a known state");
        world
    }

    /// restartPolicy Never, nothing else.
    fn plain(probe_type: ProbeType, success: i32, failure: i32) -> Self {
        let probe = Probe {
            success_threshold: success,
            failure_threshold: failure,
            ..probe()
        };
        Self::new(
            probe_type,
            probe,
            json!({"restartPolicy": "Never", "containers": [{"name": "c"}]}),
        )
    }

    /// The stored status: this container in that state.
    fn is(&mut self, state: &str, exit_code: i32, started: bool) -> Result<(), String> {
        let entries = vec![entry(
            "c",
            &self.id,
            api_state(state, exit_code, "")?,
            Some(started),
        )];
        let (init, regular) = if self.pod.spec.init_containers.is_empty() {
            (vec![], entries)
        } else {
            (entries, vec![])
        };
        let statuses = PodStatus {
            init_container_statuses: init,
            container_statuses: regular,
            ..Default::default()
        };
        self.status = Some(PodStatus {
            phase: PodPhase::Running,
            ..statuses
        });
        Ok(())
    }

    /// The container is an init container that always restarts; its status stands among those of init containers.
    fn make_sidecar(&mut self) {
        let mut pod = Pod::clone(&self.pod);
        let spec = pod.spec_mut();
        spec.init_containers = std::mem::take(&mut spec.containers);
        pod.spec_mut()
            .init_containers
            .iter_mut()
            .for_each(|c| c.restart_policy = Some(RestartPolicy::Always));
        self.pod = pod.into();
    }

    /// One step; whether the worker goes on.
    fn step(&mut self, handled: Handled) -> bool {
        let started = self.started;
        let inputs = StepInputs {
            container: &ContainerView::of(self.status.as_ref(), &self.pod.spec, "c"),
            deletion_timestamp: self.deleting,
            manager_started: MANAGER,
            container_started: &|_| started,
            restored: &|_| false,
        };
        let before = self.worker.before(self.now, &inputs);
        before.actions.into_iter().for_each(|a| self.apply(a));
        if matches!(before.next, Next::Probe(_)) {
            self.runs += 1;
            if let Some(action) = self.worker.after(handled) {
                self.apply(action);
            }
        }
        before.next != Next::Exit
    }

    fn apply(&self, action: Action) {
        match action {
            Action::Set(id, result) => drop(self.cache.set(&id, result, self.pod.uid())),
            Action::Remove(id) => self.cache.remove(&id),
        }
    }

    fn cached(&self) -> Option<ProbeResult> {
        self.cache.get(&ContainerId::from(self.id.as_str()))
    }
}

/// All numbers 1, no delay.
fn probe() -> Probe {
    Probe {
        timeout_seconds: 1,
        period_seconds: 1,
        success_threshold: 1,
        failure_threshold: 1,
        ..Default::default()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Step {
    status: Option<String>,
    cont: PerType<bool>,
    cached: Option<PerType<Cached>>,
    #[serde(default)]
    deletion_timestamp: bool,
    #[serde(default)]
    initial_delay_seconds: i32,
    probe: Option<String>,
}

fn step(case: &Case) -> Verdict {
    let case: Step = case.fields()?;
    let types = case
        .probe
        .as_deref()
        .map(|w| probe_type(w).map(|t| vec![t]))
        .transpose()?;
    for probe_type in types.unwrap_or(ProbeType::ALL.to_vec()) {
        let probe = Probe {
            initial_delay_seconds: case.initial_delay_seconds,
            ..probe()
        };
        let mut world = World::new(
            probe_type,
            probe,
            json!({"restartPolicy": "Never", "containers": [{"name": "c"}]}),
        );
        world.deleting = case.deletion_timestamp;
        set(&mut world, case.status.as_deref())?;
        let expected = case.cont.of(probe_type).ok_or("no cont for this type")?;
        same(
            &format!("cont of {probe_type}"),
            expected,
            world.step(Handled::Success),
        )?;
        same(
            &format!("cached of {probe_type}"),
            case.cached.and_then(|c| c.of(probe_type)).map(Into::into),
            world.cached(),
        )?;
        // Nothing for another container id either.
        ensure(
            case.cached.is_some() || world.updates.is_empty(),
            "nothing is cached at all",
        )?;
    }
    AS_TOLD
}

/// Puts the world as the words of a step's status tell.
fn set(world: &mut World, words: Option<&str>) -> Result<(), String> {
    let Some(words) = words else {
        world.status = None;
        return Ok(());
    };
    let with_policy = |world: &mut World, policy: &str| -> Result<(), String> {
        let mut pod = Pod::clone(&world.pod);
        pod.spec_mut().restart_policy = fields(&policy.into())?;
        world.pod = pod.into();
        Ok(())
    };
    if let Some(phase) = words.strip_prefix("pod phase ") {
        let phase = fields(&phase.into())?;
        world.status.iter_mut().for_each(|s| s.phase = phase);
    } else if let Some((code, policy)) = words
        .strip_prefix("terminated exit ")
        .and_then(|w| w.split_once(", pod policy "))
    {
        with_policy(world, policy)?;
        world.is(
            "terminated",
            code.parse()
                .map_err(|_| format!("unknown exit code \"{code}\""))?,
            true,
        )?;
    } else if let Some(rest) = words.strip_prefix("regular container terminated, pod ") {
        with_policy(
            world,
            rest.strip_suffix(", no container policy")
                .ok_or("unknown end of the status")?,
        )?;
        world.is("terminated", 0, true)?;
    } else if let Some(policy) = words.strip_prefix("sidecar terminated, pod ") {
        with_policy(world, policy)?;
        world.make_sidecar();
        world.is("terminated", 0, true)?;
    } else {
        match words {
            "running" => {}
            "only another container has a status" => world
                .status
                .iter_mut()
                .for_each(|s| s.container_statuses[0].name = "other".into()),
            "container neither running nor terminated (waiting) with an id" => {
                world.is("waiting", 0, true)?
            }
            other => return unknown("status", other),
        }
    }
    Ok(())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RestartRule {
    action: String,
    operator: String,
    values: Vec<i32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RestartRules {
    #[serde(rename = "for")]
    types: Vec<String>,
    pod_restart_policy: String,
    container_restart_policy: Option<String>,
    rules: Vec<RestartRule>,
    exit_code: i32,
    cont: bool,
}

fn restart_rules(case: &Case) -> Verdict {
    let case: RestartRules = case.fields()?;
    let rules = case.rules.iter().map(
        |r| json!({"action": r.action, "exitCodes": {"operator": r.operator, "values": r.values}}),
    );
    let container = json!({"name": "c", "restartPolicy": case.container_restart_policy, "restartPolicyRules": rules.collect::<Vec<_>>()});
    let spec = json!({"restartPolicy": case.pod_restart_policy, "containers": [container]});
    for word in &case.types {
        let mut world = World::new(probe_type(word)?, probe(), spec.clone());
        world.is("terminated", case.exit_code, true)?;
        same(
            &format!("cont of {word}"),
            case.cont,
            world.step(Handled::Success),
        )?;
    }
    AS_TOLD
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RestartAll {
    #[serde(rename = "for")]
    types: Vec<String>,
    #[serde(rename = "case")]
    _case: String,
    cont: bool,
}

/// A container policy Never with the rule for exit code 1.
fn restarts_all(name: &str) -> Value {
    json!({"name": name, "restartPolicy": "Never",
        "restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}]})
}

/// The probed container exited 1 and has the rule.
fn wa_1(case: &Case) -> Verdict {
    let case: RestartAll = case.fields()?;
    for word in &case.types {
        let mut world = World::new(
            probe_type(word)?,
            probe(),
            json!({"restartPolicy": "Never", "containers": [restarts_all("c")]}),
        );
        world.is("terminated", 1, true)?;
        same("cont", case.cont, world.step(Handled::Success))?;
    }
    AS_TOLD
}

/// The probed container exited 1, and another one with the rule did too.
fn wa_2(case: &Case) -> Verdict {
    let case: RestartAll = case.fields()?;
    for word in &case.types {
        let spec =
            json!({"restartPolicy": "Never", "containers": [{"name": "c"}, restarts_all("other")]});
        for (code, cont) in [(1, case.cont), (0, false)] {
            let mut world = World::new(probe_type(word)?, probe(), spec.clone());
            world.is("terminated", 1, true)?;
            let other = entry("other", "b", api_state("terminated", code, "")?, Some(true));
            world
                .status
                .iter_mut()
                .for_each(|s| s.container_statuses.push(other.clone()));
            same(
                &format!("cont when the other exited {code}"),
                cont,
                world.step(Handled::Success),
            )?;
        }
    }
    AS_TOLD
}

/// The probed container waits for its next instance, and the pod is Pending.
fn wa_3(case: &Case) -> Verdict {
    let case: RestartAll = case.fields()?;
    for word in &case.types {
        let mut world = World::plain(probe_type(word)?, 1, 1);
        world.is("waiting", 0, false)?;
        world
            .status
            .iter_mut()
            .for_each(|s| s.phase = PodPhase::Pending);
        same("cont", case.cont, world.step(Handled::Success))?;
    }
    AS_TOLD
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct InitialDelay {
    initial_delay_seconds: i32,
    started_ago: String,
    cached: PerType<Cached>,
    cont: bool,
}

fn initial_delay(case: &Case) -> Verdict {
    let case: InitialDelay = case.fields()?;
    for probe_type in ProbeType::ALL {
        let probe = Probe {
            initial_delay_seconds: case.initial_delay_seconds,
            ..probe()
        };
        let mut world = World::new(
            probe_type,
            probe,
            json!({"restartPolicy": "Never", "containers": [{"name": "c"}]}),
        );
        world.started = Some(world.now - duration(&case.started_ago)?);
        same(
            &format!("cont of {probe_type}"),
            case.cont,
            world.step(Handled::Success),
        )?;
        let expected = case
            .cached
            .of(probe_type)
            .ok_or("no cached for this type")?;
        same(
            &format!("cached of {probe_type}"),
            Some(expected.into()),
            world.cached(),
        )?;
    }
    AS_TOLD
}

/// What the handler says: Success, Failure, an error.
#[derive(Clone, Copy, Deserialize)]
enum Says {
    S,
    F,
    E,
}

impl From<Says> for Handled {
    fn from(s: Says) -> Self {
        match s {
            Says::S => Self::Success,
            Says::F => Self::Failure,
            Says::E => Self::Error,
        }
    }
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SequenceStep {
    handler: Says,
    cached: Option<PerType<Cached>>,
    run: Option<u32>,
    on_hold: Option<PerType<bool>>,
    started: Option<bool>,
    #[serde(default, rename = "newContainerID")]
    new_container_id: bool,
    /// Only `handler not called` means something to a machine.
    note: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Sequence {
    probe: Option<String>,
    #[serde(rename = "for", default)]
    types: Vec<String>,
    #[serde(default = "one")]
    success_threshold: i32,
    #[serde(default = "one")]
    failure_threshold: i32,
    preset: Option<Cached>,
    repeat: Option<usize>,
    #[serde(default)]
    handler: Vec<Says>,
    #[serde(default)]
    cached: Vec<Cached>,
    #[serde(default)]
    run: Vec<u32>,
    #[serde(default)]
    on_hold_after: Vec<bool>,
    after_on_hold: Option<bool>,
    after_run: Option<u32>,
    #[serde(default)]
    steps: Vec<SequenceStep>,
}

fn one() -> i32 {
    1
}

impl Sequence {
    /// Both forms as steps.
    fn steps(&self) -> Result<Vec<SequenceStep>, String> {
        ensure(
            self.handler.is_empty() != self.steps.is_empty(),
            "either handler or steps",
        )?;
        for (what, n) in [
            ("cached", self.cached.len()),
            ("run", self.run.len()),
            ("onHoldAfter", self.on_hold_after.len()),
        ] {
            ensure(
                n == self.handler.len() || n == 0,
                &format!("as many {what} as handler runs"),
            )?;
        }
        let told = self
            .handler
            .iter()
            .enumerate()
            .map(|(i, handler)| SequenceStep {
                handler: *handler,
                cached: self.cached.get(i).copied().map(PerType::One),
                run: self.run.get(i).copied(),
                on_hold: self.on_hold_after.get(i).copied().map(PerType::One),
                started: None,
                new_container_id: false,
                note: None,
            });
        let once: Vec<_> = told.chain(self.steps.iter().cloned()).collect();
        Ok(std::iter::repeat_n(once, self.repeat.unwrap_or(1))
            .flatten()
            .collect())
    }
}

fn sequence(case: &Case) -> Verdict {
    let case: Sequence = case.fields()?;
    let words = case.probe.iter().chain(&case.types).collect::<Vec<_>>();
    ensure(!words.is_empty(), "a probe type")?;
    let mut carried_over = false;
    for word in words {
        carried_over |= run_sequence(&case, probe_type(word)?)?;
    }
    match carried_over {
        true => Ok(overruled(
            "told is a run carried over to a new container id: every run length starts anew with it (lessons A6)",
        )),
        false => AS_TOLD,
    }
}

/// The run length of a kubelet, which a new container id does not end.
#[derive(Default)]
struct Carried {
    last: Option<ProbeResult>,
    run: u32,
    crossed: bool,
}

impl Carried {
    /// After a run of the handler; the result that is cached then, if it changes.
    fn step(&mut self, says: Says, case: &Sequence, on_hold_after: bool) -> Option<ProbeResult> {
        let (result, threshold) = match says {
            Says::S => (ProbeResult::Success, case.success_threshold),
            Says::F => (ProbeResult::Failure, case.failure_threshold),
            Says::E => return None,
        };
        self.run = if self.last.replace(result) == Some(result) {
            self.run + 1
        } else {
            1
        };
        let reached = i64::from(self.run) >= i64::from(threshold);
        if on_hold_after {
            self.run = 0;
        }
        reached.then_some(result)
    }
}

/// True when it is as told up to where what is told comes of a run that was carried over, which it need not follow.
fn run_sequence(case: &Sequence, probe_type: ProbeType) -> Result<bool, String> {
    let mut carried = Carried::default();
    let mut world = World::plain(probe_type, case.success_threshold, case.failure_threshold);
    if let Some(preset) = case.preset {
        world.cache.set(
            &ContainerId::from(world.id.as_str()),
            preset.into(),
            &PodUid::from("p"),
        );
    }
    let (mut started, mut instance) = (probe_type != ProbeType::Startup, 0);
    for (i, step) in case.steps()?.into_iter().enumerate() {
        let at = |what: &str| format!("{what} of {probe_type} after step {i}");
        if step.new_container_id {
            instance += 1;
            world.id = format!("a{instance}");
        }
        started = step.started.unwrap_or(started);
        world.is("running", 0, started)?;
        let (runs, sent) = (world.runs, world.updates.len());
        ensure(world.step(step.handler.into()), "the worker goes on")?;
        let of_carried = if world.runs > runs {
            carried.step(step.handler, case, world.worker.on_hold())
        } else {
            None
        };
        carried.crossed |= step.new_container_id && carried.run > world.worker.run();
        let cached = step
            .cached
            .as_ref()
            .and_then(|c| c.of(probe_type))
            .map(ProbeResult::from);
        let differs = step.run.is_some_and(|r| r != world.worker.run())
            || cached.is_some_and(|c| Some(c) != world.cached());
        if carried.crossed
            && differs
            && step.run.is_none_or(|r| r == carried.run)
            && cached.is_none_or(|c| [of_carried, world.cached()].contains(&Some(c)))
        {
            return Ok(true);
        }
        cached.map_or(Ok(()), |expected| {
            same(&at("cached"), Some(expected), world.cached())
        })?;
        step.run.map_or(Ok(()), |expected| {
            same(&at("run"), expected, world.worker.run())
        })?;
        if let Some(expected) = step.on_hold.as_ref().and_then(|o| o.of(probe_type)) {
            same(&at("on hold"), expected, world.worker.on_hold())?;
        }
        match step.note.as_deref() {
            Some("handler not called") => same(&at("handler runs"), runs, world.runs)?,
            Some(other) => return unknown("note of a step", other),
            None => {}
        }
        if step.new_container_id {
            // One update for the seed; another only when the first result changes it.
            let changes = world.updates.len() - sent;
            let seed = podprobe::pods::prober::worker::initial_value(probe_type);
            same(
                &at("updates"),
                1 + usize::from(world.cached() != Some(seed)),
                changes,
            )?;
        }
    }
    case.after_on_hold.map_or(Ok(()), |expected| {
        same("on hold at the end", expected, world.worker.on_hold())
    })?;
    case.after_run.map_or(Ok(()), |expected| {
        same("run at the end", expected, world.worker.run())
    })?;
    Ok(false)
}

/// Stopping ten times in a row is harmless; the worker exits, its cached result and its entry are gone.
fn wc_1(case: &Case) -> Verdict {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Fields {
        #[serde(rename = "for")]
        types: Vec<String>,
        #[serde(rename = "expect")]
        _expect: String,
    }
    let case: Fields = case.fields()?;
    for word in &case.types {
        let probe_type = probe_type(word)?;
        let daemon = Daemon::new();
        let probe = json!({"exec": {"command": ["true"]}, "periodSeconds": 1});
        let pod = pod_of(
            "p",
            json!({"containers": [{"name": "c", format!("{word}Probe"): probe}]}),
        );
        daemon.store(
            &pod,
            vec![entry("c", "a", api_state("running", 0, "")?, None)],
        );
        daemon.manager.add_pod(&pod);
        let id = ContainerId::from("a");
        until("a cached Success", || {
            daemon.results.of(probe_type).get(&id) == Some(ProbeResult::Success)
        })?;
        for _ in 0..10 {
            daemon.manager.remove_pod(&pod);
        }
        until("the end of the worker", || {
            daemon.manager.worker_count() == 0
        })?;
        same("cached", None, daemon.results.of(probe_type).get(&id))?;
        daemon.end()?;
    }
    AS_TOLD
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct KubeletRestart {
    #[serde(rename = "gateChangeContainerStatusOnKubeletRestart")]
    gate: bool,
    #[serde(rename = "containerOlderThanKubelet")]
    older: bool,
    sidecar: bool,
    probe: String,
    started: bool,
    cached: Option<Cached>,
}

fn kubelet_restart(case: &Case) -> Verdict {
    let case: KubeletRestart = case.fields()?;
    let probe_type = probe_type(&case.probe)?;
    let probe = Probe {
        initial_delay_seconds: 1000,
        ..probe()
    };
    let mut world = World::new(
        probe_type,
        probe,
        json!({"restartPolicy": "Never", "containers": [{"name": "c"}]}),
    );
    if case.sidecar {
        world.make_sidecar();
    }
    let five_minutes = Duration::from_secs(300);
    world.started = Some(if case.older {
        MANAGER - five_minutes
    } else {
        MANAGER + five_minutes
    });
    world.now = MANAGER + five_minutes + Duration::from_secs(1);
    world.is("running", 0, case.started)?;
    ensure(world.step(Handled::Success), "the worker goes on")?;
    same("handler runs", 0, world.runs)?;
    if case.gate && case.older {
        let kept =
            (case.sidecar && probe_type == ProbeType::Startup).then_some(ProbeResult::Success);
        same("cached", kept, world.cached())?;
        same(
            "told",
            case.cached.map(Into::into),
            Some(podprobe::pods::prober::worker::initial_value(probe_type)),
        )?;
        return Ok(overruled(
            "the gate is off, as it is by default: seeding an older container anew would flip its readiness (lessons A7, 15 O14)",
        ));
    }
    same("cached", case.cached.map(Into::into), world.cached())?;
    AS_TOLD
}
