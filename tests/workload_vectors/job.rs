//! The groups of Jobs: back-off, indexes, the two policies, and whole steps (workloads 6).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Display};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use podprobe::api::PodPhase;
use podprobe::api::pod::ObjectMeta;
use podprobe::api::workload::{JobSpec, PodFailurePolicy, SuccessPolicy};
use podprobe::workloads::job::{
    BackOff, COMPLETION_INDEX, Condition, ConditionType, DeletionReason, INDEX_FAILURE_COUNT,
    Indexes, JobInput, JobReason, JobState, JobStep, PodCreation, end_time, failure_verdict,
    first_pending, indexed_name_prefix, met_rule, step,
};
use podprobe::workloads::{
    ContainerKind, ControllerEvent, EventKind, ObservedContainer, ObservedPod,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The groups of this file, each with the function that runs one case.
pub const GROUPS: &[(&str, Run)] = &[
    ("job-backoff", back_off),
    ("job-indexes", indexes),
    ("success-policy", success_policy),
    ("pod-failure-policy", failure_policy),
    ("job-sync", sync),
];

/// A function that runs one case, and returns what differs.
type Run = fn(&Value) -> Result<(), String>;

/// 2026-01-01T00:00:00Z, the present of all cases.
const NOW: i64 = 1_767_225_600;

/// A case of a group. `id`, `from` and `note` are for people.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Case<I, E> {
    #[serde(rename = "id")]
    _id: String,
    #[serde(rename = "from")]
    _from: Option<String>,
    #[serde(rename = "note")]
    _note: Option<String>,
    op: String,
    #[serde(rename = "in")]
    given: I,
    expect: E,
}

/// Reads the case with the types of its `op`. A field that no type reads is an error.
fn read<I: DeserializeOwned, E: DeserializeOwned>(
    case: &Value,
    op: &str,
) -> Result<(I, E), String> {
    let mut ignored = Vec::new();
    let read: Case<I, E> = serde_ignored::deserialize(case, |path| ignored.push(path.to_string()))
        .map_err(|error| error.to_string())?;
    if !ignored.is_empty() {
        return Err(format!("unknown fields {ignored:?}"));
    }
    same("op", op, read.op.as_str())?;
    Ok((read.given, read.expect))
}

fn op(case: &Value) -> &str {
    case.get("op").and_then(Value::as_str).unwrap_or_default()
}

fn same<T: PartialEq + Debug>(what: &str, expected: T, got: T) -> Result<(), String> {
    if expected == got {
        Ok(())
    } else {
        Err(format!("{what}: expected {expected:?}, got {got:?}"))
    }
}

fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap_or_default()
}

fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

fn seconds_ago(time: Timestamp) -> i64 {
    now().duration_since(time).as_secs()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Record {
    failures: i32,
    last_failure_ago: Option<i64>,
}

impl Record {
    fn typed(&self) -> BackOff {
        BackOff {
            failures: self.failures,
            last_failure: self.last_failure_ago.map(ago),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Seconds {
    seconds: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ends {
    backoff: Option<Record>,
    succeeded: Vec<i64>,
    failed: Vec<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pods {
    pods: Vec<Pod>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ago {
    ago: i64,
}

fn back_off(case: &Value) -> Result<(), String> {
    match op(case) {
        "remaining" => {
            let (given, expected): (Record, Seconds) = read(case, "remaining")?;
            let left = given.typed().remaining(now());
            same("remaining", Duration::from_secs(expected.seconds), left)
        }
        "record" => {
            let (given, expected): (Ends, Record) = read(case, "record")?;
            let before = given.backoff.map(|it| it.typed()).unwrap_or_default();
            let times = |agos: &[i64]| agos.iter().copied().map(ago).collect::<Vec<_>>();
            let after = before.after(&times(&given.succeeded), &times(&given.failed));
            same("record", expected.typed(), after)
        }
        "finished" => {
            let (given, expected): (Pods, Ago) = read(case, "finished")?;
            let pod = only(&given.pods)?;
            same("ago", expected.ago, seconds_ago(end_time(&pod)))
        }
        other => Err(format!("unknown op {other:?}")),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Numbers {
    indexes: Option<Vec<i32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    text: String,
    completions: Option<i32>,
    total: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Pending {
    succeeded_text: String,
    failed_text: String,
    active: BTreeSet<i32>,
    count: usize,
    completions: i32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Name {
    name: String,
    index: i32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Prefix {
    prefix: String,
}

fn indexes(case: &Value) -> Result<(), String> {
    match op(case) {
        "indexFormat" => {
            let (given, expected): (Numbers, Text) = read(case, "indexFormat")?;
            let numbers = given.indexes.into_iter().flatten().collect();
            let text = Indexes::default().with(&numbers).to_string();
            same("text", expected.text, text)
        }
        "indexParse" => {
            let (given, expected): (Text, Text) = read(case, "indexParse")?;
            let completions = given.completions.ok_or("no completions")?;
            let found = Indexes::parse(&given.text, completions);
            same("text", expected.text, found.to_string())?;
            same("total", expected.total, Some(found.total()))
        }
        "firstPending" => {
            let (given, expected): (Pending, Numbers) = read(case, "firstPending")?;
            let set = |text: &str| Indexes::parse(text, given.completions);
            let failed = set(&given.failed_text);
            let found = first_pending(
                &set(&given.succeeded_text),
                Some(&failed),
                &given.active,
                given.count,
                given.completions,
            );
            same("indexes", expected.indexes.unwrap_or_default(), found)
        }
        "podName" => {
            let (given, expected): (Name, Prefix) = read(case, "podName")?;
            let prefix = indexed_name_prefix(&given.name, given.index);
            same("prefix", expected.prefix, prefix)
        }
        other => Err(format!("unknown op {other:?}")),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Succeeded {
    policy: Option<SuccessPolicy>,
    completions: i32,
    succeeded_text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Met {
    met: bool,
    message: Option<String>,
}

fn success_policy(case: &Value) -> Result<(), String> {
    let (given, expected): (Succeeded, Met) = read(case, "success")?;
    let succeeded = Indexes::parse(&given.succeeded_text, given.completions);
    let found = met_rule(given.policy.as_ref(), given.completions, &succeeded);
    same("met", expected.met, found.is_some())?;
    same("message", expected.message, found)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Failed {
    policy: Option<PodFailurePolicy>,
    pods: Vec<Pod>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Meaning {
    action: Option<String>,
    counted: bool,
    message: Option<String>,
}

fn failure_policy(case: &Value) -> Result<(), String> {
    let (given, expected): (Failed, Meaning) = read(case, "policy")?;
    let pod = only(&given.pods)?;
    let found = failure_verdict(given.policy.as_ref(), "default", &pod);
    let action = found.action.map(|action| format!("{action:?}"));
    same("counted", expected.counted, found.is_counted())?;
    same("action", expected.action, action)?;
    same("message", expected.message, found.message)
}

/// A pod of a case.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[derive(Default)]
struct Pod {
    name: String,
    phase: PodPhase,
    created_ago: Option<i64>,
    finished_ago: Option<i64>,
    ready: bool,
    ready_false_ago: Option<i64>,
    terminating: bool,
    deleted_ago: Option<i64>,
    grace_seconds: Option<i64>,
    exits: Vec<Exit>,
    conditions: Vec<PodCondition>,
    restarts: i32,
    init_restarts: i32,
    index: Option<String>,
    failure_count: Option<String>,
    counted: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exit {
    name: String,
    code: i32,
    #[serde(default)]
    init: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PodCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

/// Makes the pods of a case. UIDs are in the order of the case, so that pods that are equal stay in it.
fn observed(pods: &[Pod]) -> Vec<ObservedPod> {
    let numbered = pods.iter().enumerate();
    let made = numbered.map(|(number, pod)| pod.observed(format!("uid-{number:03}")));
    made.collect()
}

/// Makes the one pod of a case.
fn only(pods: &[Pod]) -> Result<ObservedPod, String> {
    match pods {
        [pod] => Ok(pod.observed("uid".into())),
        _ => Err(format!("expected one pod, got {}", pods.len())),
    }
}

impl Pod {
    fn observed(&self, uid: String) -> ObservedPod {
        // `deletionTimestamp` is the end of the grace period.
        let after = self.deleted_ago.unwrap_or_default();
        let deleted = after + self.grace_seconds.unwrap_or_default();
        let pairs = self.conditions.iter();
        ObservedPod {
            name: self.name.clone(),
            uid: uid.as_str().into(),
            annotations: self.annotations(),
            created: self.created_ago.map(ago).unwrap_or_default(),
            phase: self.phase,
            is_deleted: self.terminating,
            deleted_at: self.terminating.then(|| ago(deleted)),
            is_ready: self.ready,
            ready_changed: self.ready_false_ago.map(ago),
            containers: self.containers(),
            conditions: pairs
                .map(|it| (it.type_.clone(), it.status.clone()))
                .collect(),
            ..Default::default()
        }
    }

    fn annotations(&self) -> BTreeMap<String, String> {
        let index = self.index.iter().map(|text| (COMPLETION_INDEX, text));
        let failures = self
            .failure_count
            .iter()
            .map(|it| (INDEX_FAILURE_COUNT, it));
        let all = index.chain(failures);
        all.map(|(key, text)| (key.into(), text.clone())).collect()
    }

    fn containers(&self) -> Vec<ObservedContainer> {
        let finished_at = self.finished_ago.map(ago);
        let ended = |exit: &Exit| ObservedContainer {
            name: exit.name.clone(),
            kind: if exit.init {
                ContainerKind::Init
            } else {
                ContainerKind::Regular
            },
            exit_code: Some(exit.code),
            finished_at,
            ..Default::default()
        };
        let mut containers: Vec<ObservedContainer> = self.exits.iter().map(ended).collect();
        if containers.is_empty() && (finished_at.is_some() || self.restarts > 0) {
            containers.push(ObservedContainer {
                name: "c".into(),
                restarts: self.restarts,
                exit_code: finished_at.map(|_| 0),
                finished_at,
                ..Default::default()
            });
        }
        if self.init_restarts > 0 {
            containers.push(ObservedContainer {
                name: "i".into(),
                kind: ContainerKind::Init,
                restarts: self.init_restarts,
                ..Default::default()
            });
        }
        containers
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SyncIn {
    spec: JobSpec,
    status: StatusIn,
    pods: Vec<Pod>,
    backoff: Option<Record>,
    #[serde(default)]
    deleting: bool,
}

/// The status before a step. Numbers of pods that run follow from the pods.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StatusIn {
    started_ago: Option<i64>,
    #[serde(rename = "active")]
    _active: Option<i32>,
    #[serde(rename = "ready")]
    _ready: Option<i32>,
    #[serde(rename = "terminating")]
    _terminating: Option<i32>,
    #[serde(default)]
    succeeded: i32,
    #[serde(default)]
    failed: i32,
    #[serde(default)]
    completed_indexes: Indexes,
    failed_indexes: Option<Indexes>,
    #[serde(default)]
    conditions: Vec<ConditionText>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConditionText {
    #[serde(rename = "type")]
    type_: ConditionType,
    status: String,
    reason: JobReason,
    message: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SyncOut {
    create: usize,
    #[serde(default)]
    create_indexes: Vec<String>,
    delete: Vec<String>,
    #[serde(default)]
    events: Vec<String>,
    status: StatusOut,
    sync_again_in_seconds: Option<i64>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StatusOut {
    active: i32,
    ready: i32,
    terminating: i32,
    succeeded: i32,
    failed: i32,
    started_ago: Option<i64>,
    #[serde(default)]
    completed_indexes: String,
    failed_indexes: Option<String>,
    conditions: Vec<ConditionText>,
}

fn sync(case: &Value) -> Result<(), String> {
    let (given, expected): (SyncIn, SyncOut) = read(case, "sync")?;
    let metadata = ObjectMeta {
        name: "job".into(),
        namespace: "default".into(),
        ..Default::default()
    };
    let pods = observed(&given.pods);
    let state = given.state(&pods)?;
    let done = step(&JobInput {
        metadata: &metadata,
        generation: 1,
        spec: &given.spec,
        is_deleted: given.deleting,
        state: &state,
        pods: &pods,
        now: now(),
    });
    same("create", expected.create, done.creations.len())?;
    same("createIndexes", expected.create_indexes, created(&done))?;
    same("delete", sorted(expected.delete), sorted(deleted(&done)))?;
    let events = done.events.iter().map(event).collect();
    same("events", expected.events, events)?;
    same("status", expected.status, status(&done))?;
    let again = done.wake_at.map(|time| -seconds_ago(time));
    same("syncAgainInSeconds", expected.sync_again_in_seconds, again)
}

impl SyncIn {
    fn state(&self, pods: &[ObservedPod]) -> Result<JobState, String> {
        let pairs = self.pods.iter().zip(pods);
        let counted = pairs.filter(|(given, _)| given.counted);
        let conditions = self.status.conditions.iter().map(ConditionText::typed);
        Ok(JobState {
            start: self.status.started_ago.map(ago),
            succeeded: self.status.succeeded,
            failed: self.status.failed,
            completed_indexes: self.status.completed_indexes.clone(),
            failed_indexes: self.status.failed_indexes.clone(),
            settled: counted.map(|(_, pod)| pod.uid.clone()).collect(),
            back_off: self.backoff.as_ref().map(Record::typed).unwrap_or_default(),
            conditions: conditions.collect::<Result<_, _>>()?,
            ..Default::default()
        })
    }
}

impl ConditionText {
    fn typed(&self) -> Result<Condition, String> {
        Ok(Condition {
            type_: self.type_,
            is_true: match self.status.as_str() {
                "True" => true,
                "False" => false,
                other => return Err(format!("unknown status {other:?}")),
            },
            reason: self.reason,
            message: self.message.clone(),
            changed: now(),
        })
    }
}

fn created(step: &JobStep) -> Vec<String> {
    let text = |pod: &PodCreation| {
        let index = pod.index?;
        Some(match pod.failures {
            None => index.to_string(),
            Some(it) if it.ignored == 0 => format!("{index} failures={}", it.counted),
            Some(it) => format!("{index} failures={} ignored={}", it.counted, it.ignored),
        })
    };
    step.creations.iter().filter_map(text).collect()
}

/// The pods that the Job's controller deletes. Upstream's garbage collector deletes those of a deleted Job.
fn deleted(step: &JobStep) -> Vec<String> {
    let own = |reason| reason != DeletionReason::JobDeleted;
    let deletions = step.deletions.iter().filter(|it| own(it.reason));
    deletions.map(|it| it.pod.name.clone()).collect()
}

fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort();
    list
}

fn event(event: &ControllerEvent) -> String {
    let kind: &dyn Display = match event.kind {
        EventKind::Normal => &"Normal",
        EventKind::Warning => &"Warning",
    };
    format!("{kind} {} {}", event.reason, event.message)
}

fn status(step: &JobStep) -> StatusOut {
    let status = &step.status;
    let condition = |it: &podprobe::workloads::job::JobCondition| ConditionText {
        type_: it.type_,
        status: it.status.clone(),
        reason: it.reason,
        message: it.message.clone(),
    };
    StatusOut {
        active: status.active,
        ready: status.ready,
        terminating: status.terminating,
        succeeded: status.succeeded,
        failed: status.failed,
        started_ago: status.start_time.map(|it| NOW - it.unix_seconds()),
        completed_indexes: status.completed_indexes.clone(),
        failed_indexes: status.failed_indexes.clone(),
        conditions: status.conditions.iter().map(condition).collect(),
    }
}
