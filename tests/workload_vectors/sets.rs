//! The vectors of StatefulSets and DaemonSets, through the functions of the daemon.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use podprobe::api::PodPhase;
use podprobe::api::workload::{
    DaemonSetSpec, IntOrPercent, Ordinals, RollingUpdateDaemonSet, RollingUpdateStatefulSet,
    StatefulSetSpec,
};
use podprobe::workloads::controller_revisions::{
    ControllerRevisions, REVISION_LABEL, WantedTemplate,
};
use podprobe::workloads::daemon_set::failed_pods::FailedPodBackOff;
use podprobe::workloads::daemon_set::{
    self, DaemonSetInput, DaemonSetOutput, DaemonSetStage, DaemonSetState, NodeFit,
};
use podprobe::workloads::stateful_set::{
    self, StatefulSetInput, StatefulSetOutput, StatefulSetState, StatefulSetStatus,
};
use podprobe::workloads::{EventKind, ObservedPod};
use serde::Deserialize;
use serde_json::{Value, json};

/// The groups of this file, with the function that runs one case.
pub const GROUPS: &[(&str, super::Run)] = &[
    ("statefulset-step", stateful_set_step),
    ("statefulset-rollout", stateful_set_rollout),
    ("statefulset-max-unavailable", stateful_set_max_unavailable),
    ("daemonset-one-node", daemon_set_one_node),
];

/// A case of any group.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case<I, E> {
    #[serde(rename = "id")]
    _id: String,
    #[serde(rename = "from", default)]
    _from: String,
    #[serde(rename = "note", default)]
    _note: String,
    op: String,
    #[serde(rename = "in")]
    input: I,
    expect: E,
}

fn read<I, E>(case: &Value, op: &str) -> Result<(I, E), String>
where
    I: for<'a> Deserialize<'a>,
    E: for<'a> Deserialize<'a>,
{
    let case: Case<I, E> = Deserialize::deserialize(case).map_err(|e| e.to_string())?;
    if case.op != op {
        return Err(format!("unknown op \"{}\"", case.op));
    }
    Ok((case.input, case.expect))
}

fn same(what: &str, expected: &Value, got: &Value) -> Result<(), String> {
    if expected == got {
        return Ok(());
    }
    Err(format!("{what}: expected {expected}, got {got}"))
}

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().expect("a time")
}

fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

fn phase(word: Option<&str>) -> Result<PodPhase, String> {
    match word {
        None | Some("Running") => Ok(PodPhase::Running),
        Some("Pending") => Ok(PodPhase::Pending),
        Some("Succeeded") => Ok(PodPhase::Succeeded),
        Some("Failed") => Ok(PodPhase::Failed),
        Some(other) => Err(format!("unknown phase \"{other}\"")),
    }
}

/// Revisions whose names and hashes are the given words, oldest first.
fn revisions(names: &[(&str, &str)]) -> Result<ControllerRevisions, String> {
    let mut revisions = ControllerRevisions::default();
    for (workload, hash) in names {
        let wanted = WantedTemplate {
            workload,
            template: hash,
            hash,
            annotations: &BTreeMap::new(),
        };
        let taken = revisions.take_up(&wanted, ago(1000), |_| false);
        taken.map_err(|e| e.to_string())?;
    }
    Ok(revisions)
}

// StatefulSets.

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct StatefulSetCase {
    replicas: i32,
    #[serde(default)]
    policy: String,
    #[serde(default)]
    strategy: Option<String>,
    #[serde(default)]
    partition: Option<i32>,
    #[serde(default)]
    no_rolling_update: bool,
    #[serde(default)]
    start: Option<i32>,
    #[serde(default)]
    min_ready_seconds: i32,
    #[serde(default)]
    max_unavailable: Option<IntOrPercent>,
    #[serde(default)]
    max_unavailable_gate: bool,
    #[serde(default)]
    deleting: bool,
    #[serde(default)]
    current_replicas: i32,
    #[serde(default)]
    pods: Vec<StatefulPod>,
    #[serde(default)]
    never_ready: bool,
    #[serde(default)]
    max_ticks: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct StatefulPod {
    ordinal: i32,
    revision: String,
    ready: bool,
    #[serde(default)]
    ready_ago: i64,
    #[serde(default)]
    terminating: bool,
    #[serde(default)]
    phase: Option<String>,
}

impl StatefulSetCase {
    fn spec(&self) -> Result<StatefulSetSpec, String> {
        let mut spec = StatefulSetSpec {
            replicas: self.replicas,
            pod_management_policy: self.policy.clone(),
            min_ready_seconds: self.min_ready_seconds,
            revision_history_limit: 10,
            ordinals: self.start.map(|start| Ordinals { start }),
            ..StatefulSetSpec::default()
        };
        if !["", "OrderedReady", "Parallel"].contains(&&*self.policy) {
            return Err(format!("unknown policy \"{}\"", self.policy));
        }
        let strategy = self.strategy.as_deref().unwrap_or("RollingUpdate");
        if !["RollingUpdate", "OnDelete"].contains(&strategy) {
            return Err(format!("unknown strategy \"{strategy}\""));
        }
        spec.update_strategy.type_ = strategy.to_owned();
        if strategy == "RollingUpdate" && !self.no_rolling_update {
            spec.update_strategy.rolling_update = Some(RollingUpdateStatefulSet {
                partition: Some(self.partition.unwrap_or(0)),
                max_unavailable: self.max_unavailable.clone(),
            });
        }
        Ok(spec)
    }

    fn state(&self) -> Result<StatefulSetState, String> {
        Ok(StatefulSetState {
            revisions: revisions(&[("db", "current"), ("db", "update")])?,
            current_revision: "db-current".to_owned(),
            current_replicas: self.current_replicas,
            ..StatefulSetState::default()
        })
    }
}

impl StatefulPod {
    fn observed(&self) -> Result<ObservedPod, String> {
        if !["current", "update"].contains(&&*self.revision) {
            return Err(format!("unknown revision \"{}\"", self.revision));
        }
        let revision = format!("db-{}", self.revision);
        Ok(ObservedPod {
            name: format!("db-{}", self.ordinal),
            labels: BTreeMap::from([(REVISION_LABEL.to_owned(), revision)]),
            phase: phase(self.phase.as_deref())?,
            is_deleted: self.terminating,
            is_ready: self.ready,
            ready_changed: Some(ago(self.ready_ago)),
            is_in_table: true,
            ..ObservedPod::default()
        })
    }
}

fn run_step(
    case: &StatefulSetCase,
    spec: &StatefulSetSpec,
    state: &StatefulSetState,
    pods: &[ObservedPod],
) -> StatefulSetOutput {
    stateful_set::step(&StatefulSetInput {
        name: "db",
        spec,
        generation: 1,
        is_deleted: case.deleting,
        state,
        pods,
        taken_names: &BTreeSet::new(),
        claims: &BTreeSet::new(),
        images_ready: true,
        mends_stuck_pods: false,
        max_unavailable_gate: case.max_unavailable_gate,
        now: now(),
    })
}

/// The actions in upstream's words. Those of Parallel are sorted, because upstream takes them at the same time.
fn actions(case: &StatefulSetCase, output: &StatefulSetOutput) -> Vec<String> {
    let creates = output.creates.iter().map(|it| {
        let revision = it.revision.trim_start_matches("db-");
        format!("create {} at {revision}", it.identity.name)
    });
    let deletes = output.deletes.iter().map(|it| format!("delete {}", it.pod));
    let mut actions: Vec<String> = creates.chain(deletes).collect();
    if case.policy == "Parallel" {
        actions.sort();
    }
    actions
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepExpect {
    actions: Value,
    status: Value,
}

fn step_status(status: &StatefulSetStatus) -> Value {
    json!({
        "available": status.available_replicas,
        "complete": status.current_revision == status.update_revision,
        "current": status.current_replicas,
        "ready": status.ready_replicas,
        "replicas": status.replicas,
        "updated": status.updated_replicas,
    })
}

fn stateful_set_step(case: &Value) -> Result<(), String> {
    let (input, expect): (StatefulSetCase, StepExpect) = read(case, "step")?;
    if input.never_ready || input.max_ticks.is_some() {
        return Err("a step has no ticks".to_owned());
    }
    let pods: Result<Vec<_>, _> = input.pods.iter().map(StatefulPod::observed).collect();
    let output = run_step(&input, &input.spec()?, &input.state()?, &pods?);
    same("actions", &expect.actions, &json!(actions(&input, &output)))?;
    same("status", &expect.status, &step_status(&output.status))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RolloutExpect {
    ticks: Vec<Value>,
}

/// The pods between two ticks: a deleted pod is gone at the next tick, a new one is ready at the tick after the next.
struct RolloutModel {
    pods: Vec<ObservedPod>,
    /// Pods that become ready, with the tick at which they do.
    starting: Vec<(String, usize)>,
    never_ready: bool,
}

impl RolloutModel {
    fn begin_tick(&mut self, tick: usize) {
        for pod in &mut self.pods {
            let starts = |it: &(String, usize)| it.0 == pod.name && it.1 == tick;
            if !self.never_ready && self.starting.iter().any(starts) {
                pod.is_ready = true;
                pod.ready_changed = Some(now());
            }
        }
        self.starting.retain(|it| it.1 > tick);
    }

    fn apply(&mut self, output: &StatefulSetOutput, tick: usize) {
        let is_deleted = |pod: &ObservedPod| output.deletes.iter().any(|it| it.pod == pod.name);
        self.pods.retain(|it| !is_deleted(it));
        for create in &output.creates {
            let name = &create.identity.name;
            self.starting.push((name.clone(), tick + 2));
            self.pods.push(ObservedPod {
                name: name.clone(),
                labels: create.identity.labels.clone(),
                phase: PodPhase::Running,
                is_in_table: true,
                ..ObservedPod::default()
            });
        }
    }
}

fn stateful_set_rollout(case: &Value) -> Result<(), String> {
    let (input, expect): (StatefulSetCase, RolloutExpect) = read(case, "rollout")?;
    let pods: Result<Vec<_>, _> = input.pods.iter().map(StatefulPod::observed).collect();
    let mut model = RolloutModel {
        pods: pods?,
        starting: Vec::new(),
        never_ready: input.never_ready,
    };
    let (spec, mut state) = (input.spec()?, input.state()?);
    let mut ticks: Vec<Value> = Vec::new();
    let most = input.max_ticks.unwrap_or(100);
    let is_end = |ticks: &[Value]| ticks.ends_with(&[json!([]), json!([])]);
    while ticks.len() < most && !is_end(&ticks) {
        model.begin_tick(ticks.len());
        let output = run_step(&input, &spec, &state, &model.pods);
        model.apply(&output, ticks.len());
        ticks.push(json!(actions(&input, &output)));
        state = output.state;
    }
    same("ticks", &json!(expect.ticks), &json!(ticks))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct MaxUnavailableCase {
    replicas: i32,
    #[serde(default)]
    max_unavailable: Option<IntOrPercent>,
}

fn stateful_set_max_unavailable(case: &Value) -> Result<(), String> {
    let (input, expect): (MaxUnavailableCase, Value) = read(case, "maxUnavailable")?;
    let got = stateful_set::max_unavailable(input.max_unavailable.as_ref(), input.replicas);
    same("result", &expect, &json!({"maxUnavailable": got}))
}

// DaemonSets.

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct DaemonSetCase {
    pods: Vec<DaemonPod>,
    #[serde(default)]
    strategy: Option<String>,
    #[serde(default)]
    max_surge: Option<IntOrPercent>,
    #[serde(default)]
    max_unavailable: Option<IntOrPercent>,
    #[serde(default)]
    min_ready_seconds: i32,
    #[serde(default = "yes")]
    should_run: bool,
    #[serde(default = "yes")]
    should_continue: bool,
    #[serde(default)]
    back_off: bool,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct DaemonPod {
    name: String,
    new: bool,
    ready: bool,
    #[serde(default)]
    created_ago: i64,
    #[serde(default)]
    ready_ago: i64,
    #[serde(default)]
    terminating: bool,
    #[serde(default)]
    phase: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DaemonSetExpect {
    manage: Value,
    #[serde(default)]
    update: Option<Value>,
    #[serde(default)]
    events: Vec<String>,
}

impl DaemonSetCase {
    fn spec(&self) -> Result<DaemonSetSpec, String> {
        let strategy = self.strategy.as_deref().unwrap_or("RollingUpdate");
        let mut spec = DaemonSetSpec {
            min_ready_seconds: self.min_ready_seconds,
            revision_history_limit: 10,
            ..DaemonSetSpec::default()
        };
        strategy.clone_into(&mut spec.update_strategy.type_);
        match strategy {
            "OnDelete" => {}
            "RollingUpdate" => {
                let default = |written: &Option<IntOrPercent>, number| {
                    Some(written.clone().unwrap_or(IntOrPercent::Int(number)))
                };
                spec.update_strategy.rolling_update = Some(RollingUpdateDaemonSet {
                    max_unavailable: default(&self.max_unavailable, 1),
                    max_surge: default(&self.max_surge, 0),
                });
            }
            other => return Err(format!("unknown strategy \"{other}\"")),
        }
        Ok(spec)
    }

    fn fit(&self) -> Result<NodeFit<'static>, String> {
        let reason = "nodeSelector does not match";
        match (self.should_run, self.should_continue) {
            (true, true) => Ok(NodeFit::Runs),
            (false, true) => Ok(NodeFit::Stays { reason }),
            (false, false) => Ok(NodeFit::Leaves { reason }),
            (true, false) => Err("a node that is to run a pod lets it go on".to_owned()),
        }
    }

    fn state(&self) -> Result<DaemonSetState, String> {
        let failed_pods = FailedPodBackOff::next(None, 1, now());
        Ok(DaemonSetState {
            revisions: revisions(&[("log", "old"), ("log", "new")])?,
            failed_pods: self.back_off.then_some(failed_pods),
        })
    }
}

impl DaemonPod {
    fn observed(&self) -> Result<ObservedPod, String> {
        let revision = if self.new { "new" } else { "old" };
        Ok(ObservedPod {
            name: self.name.clone(),
            labels: BTreeMap::from([(REVISION_LABEL.to_owned(), revision.to_owned())]),
            created: ago(self.created_ago),
            phase: phase(self.phase.as_deref())?,
            is_deleted: self.terminating,
            is_ready: self.ready,
            ready_changed: Some(ago(self.ready_ago)),
            is_in_table: true,
            ..ObservedPod::default()
        })
    }
}

/// The actions of a stage. Deletions are sorted, because upstream takes them at the same time.
fn stage(output: &DaemonSetOutput) -> Value {
    let mut deletes: Vec<&str> = output.deletes.iter().map(|it| it.pod.as_str()).collect();
    deletes.sort_unstable();
    json!({"create": u8::from(output.creates), "delete": deletes})
}

fn events(output: &DaemonSetOutput) -> Vec<String> {
    let kind = |kind| match kind {
        EventKind::Normal => "Normal",
        EventKind::Warning => "Warning",
    };
    let all = output.events.iter();
    all.map(|it| format!("{} {} {}", kind(it.kind), it.reason, it.message))
        .collect()
}

fn daemon_set_one_node(case: &Value) -> Result<(), String> {
    let (input, mut expect): (DaemonSetCase, DaemonSetExpect) = read(case, "node")?;
    let pods: Result<Vec<_>, _> = input.pods.iter().map(DaemonPod::observed).collect();
    let output = daemon_set::step(&DaemonSetInput {
        namespace: "",
        node: "edge",
        spec: &input.spec()?,
        generation: 1,
        fit: input.fit()?,
        state: &input.state()?,
        pods: &pods?,
        surge_blocked: None,
        images_ready: true,
        now: now(),
    });
    for stage in [Some(&mut expect.manage), expect.update.as_mut()] {
        let deletes = stage.and_then(|it| it.get_mut("delete"));
        if let Some(deletes) = deletes.and_then(Value::as_array_mut) {
            deletes.sort_by_key(Value::to_string);
        }
    }
    let idle = json!({"create": 0, "delete": []});
    let (manage, update) = match output.stage {
        DaemonSetStage::Manage => (stage(&output), None),
        DaemonSetStage::Update => (idle, Some(stage(&output))),
    };
    same("manage", &expect.manage, &manage)?;
    same("update", &json!(expect.update), &json!(update))?;
    same("events", &json!(expect.events), &json!(events(&output)))
}
