//! The groups about Deployments and their sets, each with the function that runs one case through the controllers.
//!
//! A case is read strictly: a field, an operation or a word that nothing here knows fails the case. The rollout group has
//! the small model of pods of the vectors' README; all decisions are the controllers'.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use podprobe::api::PodPhase;
use podprobe::api::workload::{
    DeploymentSpec, DeploymentStrategy, IntOrPercent, LabelSelector, RollingUpdateDeployment,
};
use podprobe::workloads::deployment::{
    Action, DeploymentCondition, DeploymentInput, DeploymentState, DeploymentStatus, Mode,
    NodeFacts, ObservedSet, OnDeadline, Outcome, SetRecord, step,
};
use podprobe::workloads::names::{pod_name_prefix, safe_encode, set_name};
use podprobe::workloads::numbers::Fenceposts;
use podprobe::workloads::ranking::{DELETION_COST, sort_for_deletion};
use podprobe::workloads::replica_set::{PodCounts, ReplacementDelays, SetFailure};
use podprobe::workloads::revisions::{ROLLBACK_TO, last_revision, max_revision, parse};
use podprobe::workloads::{ContainerKind, EventKind, ObservedContainer, ObservedPod};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Runs one case of a group. The error says what was expected and what was got.
type Run = fn(&Value) -> Result<(), String>;

/// The groups of this file.
pub const GROUPS: &[(&str, Run)] = &[
    ("fenceposts", fenceposts),
    ("rolling-step", step_group),
    ("proportional-scale", step_group),
    ("history-cleanup", step_group),
    ("conditions", step_group),
    ("revision", revision),
    ("rollout", rollout),
    ("names", names),
    ("ranking", ranking),
    ("hash", hash),
];

/// Name under which expectations have a set that the controller made.
const NEW: &str = "new";
/// 2026-01-01T00:00:00Z, the present of all cases.
const NOW: i64 = 1_767_225_600;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case<I, E> {
    #[serde(rename = "id")]
    _id: String,
    #[serde(rename = "from")]
    _from: Option<String>,
    #[serde(rename = "note")]
    _note: Option<String>,
    op: String,
    #[serde(rename = "in")]
    input: I,
    expect: E,
}

fn read<I: DeserializeOwned, E: DeserializeOwned>(
    case: &Value,
    op: &str,
) -> Result<Case<I, E>, String> {
    let read: Case<I, E> =
        serde_json::from_value(case.clone()).map_err(|e| format!("cannot read the case: {e}"))?;
    match read.op == op {
        true => Ok(read),
        false => Err(format!("unknown operation {:?}", read.op)),
    }
}

fn op_of(case: &Value) -> &str {
    case["op"].as_str().unwrap_or_default()
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, expected: T, got: T) -> Result<(), String> {
    match expected == got {
        true => Ok(()),
        false => Err(format!("{what}: expected {expected:?}, got {got:?}")),
    }
}

fn at(seconds: i64) -> Result<Timestamp, String> {
    Timestamp::from_second(NOW + seconds).map_err(|e| e.to_string())
}

/// A field that may be null on purpose is none here: a number that is missing has its default.
fn some<'de, D: Deserializer<'de>, T: Deserialize<'de>>(reader: D) -> Result<Option<T>, D::Error> {
    T::deserialize(reader).map(Some)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Deployment {
    replicas: i32,
    #[serde(default, deserialize_with = "some")]
    max_surge: Option<IntOrPercent>,
    #[serde(default, deserialize_with = "some")]
    max_unavailable: Option<IntOrPercent>,
    #[serde(default)]
    strategy: Strategy,
    #[serde(default)]
    paused: bool,
    #[serde(default, deserialize_with = "some")]
    progress_deadline_seconds: Option<i32>,
    #[serde(default, deserialize_with = "some")]
    revision_history_limit: Option<i32>,
    #[serde(default, deserialize_with = "some")]
    rollback_to: Option<i64>,
    #[serde(default)]
    status: StatusBefore,
}

#[derive(Clone, Copy, Default, Deserialize)]
enum Strategy {
    #[default]
    RollingUpdate,
    Recreate,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct StatusBefore {
    replicas: i32,
    updated: i32,
    ready: i32,
    available: i32,
    progressing: Option<ProgressingBefore>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ProgressingBefore {
    reason: String,
    status: String,
    seconds_ago: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Set {
    name: String,
    replicas: i32,
    #[serde(default)]
    created: i64,
    #[serde(default, deserialize_with = "some")]
    actual: Option<i32>,
    #[serde(default, deserialize_with = "some")]
    ready: Option<i32>,
    #[serde(default, deserialize_with = "some")]
    available: Option<i32>,
    #[serde(default)]
    current: bool,
    #[serde(default)]
    deleting: bool,
    #[serde(default)]
    revision: String,
    #[serde(default)]
    history: String,
    #[serde(default, deserialize_with = "some")]
    desired_annotation: Option<i32>,
    #[serde(default, deserialize_with = "some")]
    max_annotation: Option<i32>,
    #[serde(default, deserialize_with = "some")]
    replica_failure: Option<String>,
}

impl Deployment {
    fn spec(&self) -> DeploymentSpec {
        let or_quarter = |number: &Option<IntOrPercent>| {
            let quarter = || IntOrPercent::Text("25%".into());
            Some(number.clone().unwrap_or_else(quarter))
        };
        let strategy = match self.strategy {
            Strategy::Recreate => DeploymentStrategy {
                type_: "Recreate".into(),
                rolling_update: None,
            },
            Strategy::RollingUpdate => DeploymentStrategy {
                type_: "RollingUpdate".into(),
                rolling_update: Some(RollingUpdateDeployment {
                    max_surge: or_quarter(&self.max_surge),
                    max_unavailable: or_quarter(&self.max_unavailable),
                }),
            },
        };
        DeploymentSpec {
            replicas: self.replicas,
            selector: LabelSelector {
                match_labels: BTreeMap::from([("app".into(), "web".into())]),
                ..LabelSelector::default()
            },
            strategy,
            paused: self.paused,
            revision_history_limit: self.revision_history_limit.unwrap_or(i32::MAX),
            progress_deadline_seconds: self.progress_deadline_seconds.unwrap_or(i32::MAX),
            ..DeploymentSpec::default()
        }
    }

    fn annotations(&self) -> BTreeMap<String, String> {
        let rollback = self
            .rollback_to
            .map(|to| (ROLLBACK_TO.to_owned(), to.to_string()));
        rollback.into_iter().collect()
    }

    fn status(&self) -> Result<DeploymentStatus, String> {
        let before = &self.status;
        let progressing = |it: &ProgressingBefore| {
            let time = at(-it.seconds_ago)?;
            Ok::<_, String>(DeploymentCondition::new(
                "Progressing",
                &it.status,
                &it.reason,
                "",
                time,
            ))
        };
        Ok(DeploymentStatus {
            replicas: before.replicas,
            updated_replicas: before.updated,
            ready_replicas: before.ready,
            available_replicas: before.available,
            conditions: before
                .progressing
                .iter()
                .map(progressing)
                .collect::<Result<_, _>>()?,
            ..DeploymentStatus::default()
        })
    }
}

impl Set {
    fn record(&self) -> Result<SetRecord, String> {
        let revision = parse(&self.revision);
        Ok(SetRecord {
            name: self.name.clone(),
            hash: self.name.clone(),
            revision: revision.ok_or_else(|| format!("revision {:?}", self.revision))?,
            history: self.history.clone(),
            template: Arc::default(),
            size: self.replicas,
            desired: self.desired_annotation,
            max: self.max_annotation,
            min_ready_seconds: 0,
            annotations: BTreeMap::new(),
            created: at(self.created)?,
            delays: ReplacementDelays::default(),
        })
    }

    fn observed(&self) -> Result<ObservedSet, String> {
        let available = self.available.unwrap_or(self.replicas);
        let failure = |reason: &String| {
            Ok::<_, String>(SetFailure {
                reason: reason.clone(),
                message: "cannot".into(),
                since: at(0)?,
            })
        };
        Ok(ObservedSet {
            name: self.name.clone(),
            is_current: self.current,
            is_deleted: self.deleting,
            pods: PodCounts {
                active: self.actual.unwrap_or(self.replicas),
                ready: self.ready.unwrap_or(available),
                available,
                ..PodCounts::default()
            },
            failure: self.replica_failure.as_ref().map(failure).transpose()?,
        })
    }
}

/// A Deployment with its sets, as the controller sees them.
struct World {
    spec: DeploymentSpec,
    annotations: BTreeMap<String, String>,
    state: DeploymentState,
    observed: Vec<ObservedSet>,
}

impl World {
    fn new(deployment: &Deployment, sets: &[Set]) -> Result<Self, String> {
        let mut state = DeploymentState::default();
        state.sets = sets.iter().map(Set::record).collect::<Result<_, _>>()?;
        state.status = deployment.status()?;
        Ok(Self {
            spec: deployment.spec(),
            annotations: deployment.annotations(),
            state,
            observed: sets.iter().map(Set::observed).collect::<Result<_, _>>()?,
        })
    }

    fn step(&self) -> Result<Outcome, String> {
        let node = NodeFacts::default();
        let input = DeploymentInput {
            name: "web",
            generation: 0,
            is_deleted: false,
            annotations: &self.annotations,
            spec: &self.spec,
            canonical_template: "{}",
            sets: &self.observed,
            taken_names: &[],
            node: &node,
            on_deadline: OnDeadline::Report,
            now: at(0)?,
        };
        Ok(step(&input, &self.state))
    }
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Condition {
    reason: String,
    status: String,
}

type Conditions = BTreeMap<String, Condition>;

fn conditions_of(status: &DeploymentStatus) -> Conditions {
    let conditions = status.conditions.iter().map(|it| {
        let condition = Condition {
            reason: it.reason.clone(),
            status: it.status.clone(),
        };
        (it.type_.clone(), condition)
    });
    conditions.collect()
}

/// An action as the vectors have it.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(untagged)]
enum ExpectedAction {
    Create(ExpectedCreate),
    Scale(ExpectedScale),
    SetRevision(ExpectedRevision),
    Delete(ExpectedDelete),
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct ExpectedCreate {
    create: String,
    replicas: i32,
    revision: String,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct ExpectedScale {
    scale: String,
    from: i32,
    to: i32,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ExpectedRevision {
    set_revision: String,
    revision: String,
    history: String,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct ExpectedDelete {
    delete: String,
}

/// Returns the name of a set in the vectors: its own, or "new" for one that the controller made.
fn told_name(name: &str, sets: &[Set]) -> String {
    match sets.iter().any(|set| set.name == name) {
        true => name.to_owned(),
        false => NEW.to_owned(),
    }
}

fn told(action: &Action, sets: &[Set]) -> Result<ExpectedAction, String> {
    let name = |set: &String| told_name(set, sets);
    Ok(match action {
        Action::Create {
            set,
            revision,
            replicas,
        } => ExpectedAction::Create(ExpectedCreate {
            create: name(set),
            replicas: *replicas,
            revision: revision.to_string(),
        }),
        Action::Scale { set, from, to } => ExpectedAction::Scale(ExpectedScale {
            scale: name(set),
            from: *from,
            to: *to,
        }),
        Action::SetRevision {
            set,
            revision,
            history,
        } => ExpectedAction::SetRevision(ExpectedRevision {
            set_revision: name(set),
            revision: revision.to_string(),
            history: history.clone(),
        }),
        Action::Delete { set } => ExpectedAction::Delete(ExpectedDelete { delete: name(set) }),
        Action::Annotate { set } => return Err(format!("{set} got new annotations")),
    })
}

fn told_all(actions: &[Action], sets: &[Set]) -> Result<Vec<ExpectedAction>, String> {
    actions.iter().map(|action| told(action, sets)).collect()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StepInput {
    deployment: Deployment,
    #[serde(default)]
    sets: Vec<Set>,
    #[serde(default)]
    running_pods_of_old_sets: i32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StepExpect {
    mode: String,
    actions: Vec<ExpectedAction>,
    conditions: Conditions,
    #[serde(default)]
    events: Vec<String>,
    rolled_back_to_template_of: Option<String>,
}

fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::SelectingAll => "selectingAll",
        Mode::Deleted => "deleted",
        Mode::Paused => "paused",
        Mode::Rollback => "rollback",
        Mode::Scale => "scale",
        Mode::Rolling => "rolling",
        Mode::Recreate => "recreate",
    }
}

fn step_group(case: &Value) -> Result<(), String> {
    let case: Case<StepInput, StepExpect> = read(case, "step")?;
    let (input, expect) = (case.input, case.expect);
    let mut world = World::new(&input.deployment, &input.sets)?;
    if input.running_pods_of_old_sets > 0 {
        let old = world.observed.iter_mut().find(|set| !set.is_current);
        let old = old.ok_or("there is no old set whose pods could run")?;
        old.pods.terminating = input.running_pods_of_old_sets;
        old.pods.leaving = input.running_pods_of_old_sets;
    }
    let outcome = world.step()?;
    same("mode", expect.mode.as_str(), mode_word(outcome.mode))?;
    let actions = told_all(&outcome.actions, &input.sets)?;
    same("actions", expect.actions, actions)?;
    same(
        "conditions",
        expect.conditions,
        conditions_of(outcome.status()),
    )?;
    let event = |it: &podprobe::workloads::ControllerEvent| match it.kind {
        EventKind::Normal => format!("Normal {}", it.reason),
        EventKind::Warning => format!("Warning {}", it.reason),
    };
    let events: Vec<String> = outcome.events.iter().map(event).collect();
    same("events", expect.events, events)?;
    let rolled_back = match (outcome.mode, outcome.rolled_back_to) {
        (Mode::Rollback, set) => Some(set.unwrap_or_else(|| "current".into())),
        (_, set) => set,
    };
    same("template", expect.rolled_back_to_template_of, rolled_back)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NumbersInput {
    deployment: Deployment,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NumbersExpect {
    max_surge: i32,
    max_unavailable: i32,
    min_available: i32,
}

fn fenceposts(case: &Value) -> Result<(), String> {
    let case: Case<NumbersInput, NumbersExpect> = read(case, "fenceposts")?;
    let spec = case.input.deployment.spec();
    let numbers = Fenceposts::of(&spec);
    let got = NumbersExpect {
        max_surge: numbers.max_surge,
        max_unavailable: numbers.max_unavailable,
        min_available: numbers.min_available(&spec),
    };
    same("numbers", case.expect, got)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RevisionInput {
    #[serde(rename = "deployment")]
    _deployment: Deployment,
    sets: Vec<Set>,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct RevisionExpect {
    max: i64,
    revision: i64,
}

fn revision(case: &Value) -> Result<(), String> {
    if op_of(case) != "lastRevision" {
        return step_group(case);
    }
    let case: Case<RevisionInput, RevisionExpect> = read(case, "lastRevision")?;
    let numbers = || {
        case.input
            .sets
            .iter()
            .filter_map(|set| parse(&set.revision))
    };
    let got = RevisionExpect {
        max: max_revision(numbers()),
        revision: last_revision(numbers()),
    };
    same("revisions", case.expect, got)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RolloutInput {
    deployment: Deployment,
    sets: Vec<Set>,
    ready_per_tick: i32,
    max_ticks: usize,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct RolloutExpect {
    ticks: Vec<Tick>,
    conditions: Conditions,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Tick {
    actions: Vec<ExpectedAction>,
    sets: BTreeMap<String, Size>,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Size {
    replicas: i32,
    available: i32,
}

impl World {
    /// Gives each set the pods of its size at once. Pods that are not available leave first.
    fn take_effect(&mut self) {
        for set in &self.state.sets {
            if !self.observed.iter().any(|it| it.name == set.name) {
                self.observed.push(ObservedSet {
                    name: set.name.clone(),
                    is_current: true,
                    ..ObservedSet::default()
                });
            }
        }
        for observed in &mut self.observed {
            let size = self.state.set(&observed.name).map_or(0, |set| set.size);
            observed.pods.active = size;
            observed.pods.available = observed.pods.available.min(size);
            observed.pods.ready = observed.pods.available;
        }
    }

    fn sizes(&self, sets: &[Set]) -> BTreeMap<String, Size> {
        let size = |it: &ObservedSet| Size {
            replicas: it.pods.active,
            available: it.pods.available,
        };
        let all = self
            .observed
            .iter()
            .map(|it| (told_name(&it.name, sets), size(it)));
        all.collect()
    }

    /// Lets pods of the new set become available, at most `limit`. Returns how many did.
    fn become_available(&mut self, limit: i32) -> i32 {
        let new = self.observed.iter_mut().find(|set| set.is_current);
        new.map_or(0, |set| {
            let number = limit.min(set.pods.active - set.pods.available);
            set.pods.available += number;
            set.pods.ready = set.pods.available;
            number
        })
    }
}

fn rollout(case: &Value) -> Result<(), String> {
    let case: Case<RolloutInput, RolloutExpect> = read(case, "rollout")?;
    let input = case.input;
    let mut world = World::new(&input.deployment, &input.sets)?;
    let mut ticks = Vec::new();
    for _ in 0..input.max_ticks {
        let mut actions = Vec::new();
        loop {
            let outcome = world.step()?;
            actions.extend(told_all(&outcome.actions, &input.sets)?);
            world.state = outcome.state;
            world.take_effect();
            if !outcome.is_changed {
                break;
            }
        }
        ticks.push(Tick {
            actions,
            sets: world.sizes(&input.sets),
        });
        if world.become_available(input.ready_per_tick) == 0 {
            break;
        }
    }
    let got = RolloutExpect {
        ticks,
        conditions: conditions_of(&world.state.status),
    };
    same("rollout", case.expect, got)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamesInput {
    name: Option<String>,
    hash: Option<String>,
    text: Option<String>,
}

#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct NamesExpect {
    name: Option<String>,
    prefix: Option<String>,
    text: Option<String>,
}

fn names(case: &Value) -> Result<(), String> {
    let op = op_of(case).to_owned();
    let case: Case<NamesInput, NamesExpect> = read(case, &op)?;
    let mut got = NamesExpect::default();
    let NamesInput { name, hash, text } = case.input;
    match (op.as_str(), name, hash, text) {
        ("setName", Some(name), Some(hash), None) => got.name = Some(set_name(&name, &hash)),
        ("podPrefix", Some(name), None, None) => got.prefix = Some(pod_name_prefix(&name)),
        ("safeEncode", None, None, Some(text)) => got.text = Some(safe_encode(&text)),
        (op, ..) => return Err(format!("operation {op:?} has other fields")),
    }
    same("name", case.expect, got)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RankingInput {
    pods: Vec<RankedPod>,
    now_seconds: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RankedPod {
    name: String,
    uid: String,
    node: String,
    phase: PodPhase,
    #[serde(default)]
    ready: bool,
    #[serde(default, deserialize_with = "some")]
    ready_at: Option<i64>,
    created_at: i64,
    #[serde(default, deserialize_with = "some")]
    deletion_cost: Option<String>,
    #[serde(default)]
    restarts: i32,
    #[serde(default)]
    sidecar_restarts: i32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RankingExpect {
    order: Vec<String>,
}

impl RankedPod {
    fn observed(&self) -> Result<ObservedPod, String> {
        let cost = self
            .deletion_cost
            .iter()
            .map(|it| (DELETION_COST.to_owned(), it.clone()));
        let container = |kind, restarts| ObservedContainer {
            kind,
            restarts,
            ..ObservedContainer::default()
        };
        Ok(ObservedPod {
            name: self.name.clone(),
            uid: self.uid.as_str().into(),
            annotations: cost.collect(),
            created: at(self.created_at)?,
            phase: self.phase,
            waits_for_room: self.node.is_empty(),
            is_ready: self.ready,
            ready_changed: self.ready_at.map(at).transpose()?,
            is_in_table: true,
            containers: vec![
                container(ContainerKind::Regular, self.restarts),
                container(ContainerKind::Sidecar, self.sidecar_restarts),
            ],
            ..ObservedPod::default()
        })
    }
}

fn ranking(case: &Value) -> Result<(), String> {
    let case: Case<RankingInput, RankingExpect> = read(case, "rank")?;
    let pods = case.input.pods.iter().map(RankedPod::observed);
    let pods: Vec<ObservedPod> = pods.collect::<Result<_, _>>()?;
    let now = match case.input.now_seconds {
        0 => None,
        seconds => Some(at(seconds)?),
    };
    let mut sorted: Vec<&ObservedPod> = pods.iter().collect();
    sort_for_deletion(&mut sorted, Duration::ZERO, now);
    let names = sorted.iter().map(|pod| pod.name.clone()).collect();
    same("order", case.expect.order, names)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct HashInput {
    template: Value,
    #[serde(default, deserialize_with = "some")]
    collision_count: Option<i32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HashExpect {
    hash: String,
}

/// Upstream's hashes are for information, because they are of a dump of Go structs (workloads 1.6). A case only has to be
/// readable.
fn hash(case: &Value) -> Result<(), String> {
    let case: Case<HashInput, HashExpect> = read(case, "hash")?;
    let is_counted = case.input.collision_count.is_none_or(|count| count >= 0);
    match case.input.template.is_object() && is_counted && !case.expect.hash.is_empty() {
        true => Ok(()),
        false => Err("no template, or no hash".into()),
    }
}
