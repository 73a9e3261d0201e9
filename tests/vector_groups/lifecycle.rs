//! lifecycle.json: PLEG's table, restarts, grace periods, the condition ContainersReady, crash-loop delays
//! (kubelet-probes 7, 8.2, 8.5, 8.7, 9.4).

use std::collections::BTreeMap;
use std::time::Duration;

use podprobe::api::pod::{ObjectMeta, PodSpec, RestartPolicy};
use podprobe::api::{Container, ContainerStatus, Pod, PodPhase, PodRef, PodStatus};
use podprobe::base::clock::{Moment, go_duration};
use podprobe::engine::runtime::{RuntimePodStatus, RuntimeState};
use podprobe::pods::actions::{
    BackOff, BackOffKey, KillReason, kill_grace_period, should_be_restarted,
};
use podprobe::pods::pleg::diff::events;
use podprobe::pods::pleg::relist;
use podprobe::pods::status::containers_ready;
use serde::Deserialize;
use serde_json::{Value, json};

use super::world::{runtime_container, runtime_state};
use super::{AS_TOLD, Case, Group, Rows, Run, Verdict, duration, fields, group, same, unknown};

pub const GROUPS: &[Group] = &[
    group("version", Run::Text),
    group("pleg", Run::Rows(pleg)),
    group("shouldRestart", Run::Rows(should_restart)),
    group("killGracePeriod", Run::Each(grace)),
    group("containersReady", Run::Each(ready)),
    group("crashLoopDelays", Run::Each(crash_loop)),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pleg {
    #[serde(rename = "upstreamTest")]
    _upstream_test: Option<String>,
    rows: Vec<PlegRow>,
    scenario: Vec<Round>,
    order: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlegRow {
    old: String,
    new: String,
    events: Vec<String>,
    #[serde(rename = "note")]
    _note: Option<String>,
}

/// Pod, event, container.
type PodEventTriple = (String, String, String);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Round {
    /// By pod, by container; or `same`.
    relist: Value,
    events: Vec<PodEventTriple>,
}

fn pleg(value: &Value) -> Result<Rows, String> {
    let told: Pleg = fields(value)?;
    same(
        "order",
        "not fixed across pods or containers",
        told.order.as_str(),
    )?;
    let rows = told
        .rows
        .iter()
        .enumerate()
        .map(|(i, row)| (format!("rows[{i}]"), pleg_row(row)));
    Ok(rows
        .chain([("scenario".to_owned(), scenario(&told.scenario))])
        .collect())
}

/// The states a word stands for; None is `non-existent`. Unknown and created are one state of the table.
fn states(words: &str) -> Result<Vec<Option<RuntimeState>>, String> {
    let mut states = Vec::new();
    for word in words.split(" or ") {
        match word {
            "non-existent" => states.push(None),
            "unknown" => states.extend([Some(RuntimeState::Unknown), Some(RuntimeState::Created)]),
            word => states.push(Some(runtime_state(word)?)),
        }
    }
    Ok(states)
}

fn pod_with(uid: &str, containers: &[(&str, RuntimeState)]) -> RuntimePodStatus {
    let containers = containers
        .iter()
        .map(|(id, state)| runtime_container(id, id, *state, 0))
        .collect();
    RuntimePodStatus {
        uid: uid.into(),
        containers,
        ..Default::default()
    }
}

fn pleg_row(row: &PlegRow) -> Verdict {
    let all = [
        None,
        Some(RuntimeState::Running),
        Some(RuntimeState::Exited),
        Some(RuntimeState::Unknown),
        Some(RuntimeState::Created),
    ];
    let pairs: Vec<_> = match (row.old.as_str(), row.new.as_str()) {
        ("same", "same") => all.iter().map(|s| (*s, *s)).collect(),
        (old, new) => {
            let (old, new) = (states(old)?, states(new)?);
            old.iter()
                .flat_map(|o| new.iter().map(|n| (*o, *n)))
                .collect()
        }
    };
    let status = |state: Option<RuntimeState>| {
        pod_with(
            "1",
            &state.map(|s| ("c", s)).into_iter().collect::<Vec<_>>(),
        )
    };
    for (old, new) in pairs {
        let got = events(&status(old), &status(new))
            .into_iter()
            .map(|e| format!("{:?}", e.kind))
            .collect();
        same(&format!("{old:?} -> {new:?}"), row.events.clone(), got)?;
    }
    AS_TOLD
}

fn scenario(rounds: &[Round]) -> Verdict {
    let (mut records, mut last) = (relist::Records::default(), Vec::new());
    for (i, round) in rounds.iter().enumerate() {
        if round.relist != "same" {
            last.clear();
            for (uid, containers) in
                fields::<BTreeMap<String, BTreeMap<String, String>>>(&round.relist)?
            {
                let mut status = pod_with(&uid, &[]);
                for (id, word) in containers {
                    status
                        .containers
                        .push(runtime_container(&id, &id, runtime_state(&word)?, 0));
                }
                last.push(status);
            }
        }
        let changes = relist::step(&mut records, last.clone());
        let events = changes.into_iter().flat_map(|c| c.events);
        let mut got: Vec<PodEventTriple> = events
            .map(|e| (e.uid.to_string(), format!("{:?}", e.kind), e.id.to_string()))
            .collect();
        let mut expected = round.events.clone();
        got.sort();
        expected.sort();
        same(&format!("events of listing {i}"), expected, got)?;
    }
    AS_TOLD
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ShouldRestart {
    #[serde(rename = "upstreamTest")]
    _upstream_test: Option<String>,
    cols: Vec<String>,
    rows: Vec<Vec<Value>>,
    with_deletion_timestamp: String,
}

fn should_restart(value: &Value) -> Result<Rows, String> {
    let told: ShouldRestart = fields(value)?;
    same(
        "withDeletionTimestamp",
        "always false",
        told.with_deletion_timestamp.as_str(),
    )?;
    same(
        "first column",
        Some("last state"),
        told.cols.first().map(String::as_str),
    )?;
    let policies: Vec<RestartPolicy> = told.cols[1..]
        .iter()
        .map(|c| fields(&c.as_str().into()))
        .collect::<Result<_, _>>()?;
    let one = |row: &Vec<Value>| {
        let name = row
            .first()
            .and_then(Value::as_str)
            .unwrap_or("a row without a name")
            .to_owned();
        let verdict = restart_row(&name, &policies, &row[1..]);
        (name, verdict)
    };
    Ok(told.rows.iter().map(one).collect())
}

fn restart_row(state: &str, policies: &[RestartPolicy], expected: &[Value]) -> Verdict {
    let newest = match state.split_once(' ') {
        _ if state == "no status" => None,
        Some(("exited", code)) => Some((
            RuntimeState::Exited,
            code.parse()
                .map_err(|_| format!("unknown exit code \"{code}\""))?,
        )),
        _ => Some((runtime_state(state)?, 0)),
    };
    let newest = newest.map(|(state, code)| runtime_container("c", "a", state, code));
    same("columns", policies.len(), expected.len())?;
    for (policy, expected) in policies.iter().zip(expected) {
        let got =
            |deleted| should_be_restarted(*policy, &Container::default(), newest.as_ref(), deleted);
        same(&format!("{policy:?}"), expected, &got(false).into())?;
        same(
            &format!("{policy:?} with a deletion timestamp"),
            false,
            got(true),
        )?;
    }
    AS_TOLD
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Grace {
    pod: Option<i64>,
    startup: Option<i64>,
    liveness: Option<i64>,
    deletion_grace_period_seconds: Option<i64>,
    reason: String,
    expect: i64,
}

fn grace(case: &Case) -> Verdict {
    let case: Grace = case.fields()?;
    let reason = match case.reason.as_str() {
        // A hook is no probe, and so has no grace period of its own.
        "" | "None" | "FailedPostStartHook" => KillReason::None,
        "StartupProbe" => KillReason::StartupProbe,
        "LivenessProbe" => KillReason::LivenessProbe,
        "Unknown" => KillReason::Unknown,
        other => return unknown("reason", other),
    };
    let probe = |seconds: Option<i64>| seconds.map(|s| json!({"terminationGracePeriodSeconds": s}));
    let container: Container = fields(
        &json!({"name": "c", "startupProbe": probe(case.startup), "livenessProbe": probe(case.liveness)}),
    )?;
    let metadata = ObjectMeta {
        deletion_grace_period_seconds: case.deletion_grace_period_seconds,
        ..Default::default()
    };
    let spec = PodSpec {
        termination_grace_period_seconds: case.pod,
        containers: vec![container],
        ..Default::default()
    };
    let pod = Pod {
        metadata,
        spec: spec.into(),
        raw: Default::default(),
    };
    same(
        "grace",
        case.expect,
        kill_grace_period(&pod, pod.spec.containers.first(), reason),
    )?;
    AS_TOLD
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ready {
    #[serde(default)]
    sidecars: Vec<String>,
    containers: Vec<String>,
    statuses: Option<BTreeMap<String, bool>>,
    phase: PodPhase,
    status: String,
    reason: String,
    message: String,
}

fn ready(case: &Case) -> Verdict {
    let case: Ready = case.fields()?;
    let named: Vec<Value> = case.containers.iter().map(|n| json!({"name": n})).collect();
    let sidecars: Vec<Value> = case
        .sidecars
        .iter()
        .map(|n| json!({"name": n, "restartPolicy": "Always"}))
        .collect();
    let spec: PodSpec = fields(&json!({"containers": named, "initContainers": sidecars}))?;
    let status = |(name, ready): (String, bool)| ContainerStatus {
        name,
        ready,
        ..Default::default()
    };
    let statuses = case.statuses.map(|s| {
        let (init, regular) = s
            .into_iter()
            .partition(|(name, _)| case.sidecars.contains(name));
        let typed = |statuses: BTreeMap<String, bool>| statuses.into_iter().map(status).collect();
        PodStatus {
            init_container_statuses: typed(init),
            container_statuses: typed(regular),
            ..Default::default()
        }
    });
    let got = containers_ready(&spec, statuses.as_ref(), case.phase);
    same(
        "condition",
        (case.status, case.reason, case.message),
        (got.status, got.reason, got.message),
    )?;
    AS_TOLD
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CrashLoop {
    initial: String,
    max: String,
    expiry: String,
    sequence: Vec<String>,
}

fn crash_loop(case: &Case) -> Verdict {
    let case: CrashLoop = case.fields()?;
    let (initial, max) = (duration(&case.initial)?, duration(&case.max)?);
    // The daemon's first delay is its own, so that is what is looked at when it is the told one.
    let table = || match initial == Duration::from_secs(10) {
        true => BackOff::new(max),
        false => BackOff::with_initial(initial, max),
    };
    let pod = PodRef {
        namespace: "d".into(),
        name: "p".into(),
        uid: "u".into(),
    };
    let key = BackOffKey::new(&pod, &Container::default());
    let mut back_off = table();
    let mut now = Moment::from_boot(Duration::from_secs(1000));
    let mut got = Vec::new();
    for _ in &case.sequence {
        let finished = now;
        if let Err(held) = back_off.start(&key, finished, now) {
            now = held.retry_at;
            same(
                "let go at the end of the delay",
                Ok(()),
                back_off.start(&key, finished, now),
            )?;
        }
        got.push(now.since(finished));
    }
    let expected: Vec<_> = case
        .sequence
        .iter()
        .map(|s| duration(s.split(' ').next().unwrap_or_default()))
        .collect::<Result<_, _>>()?;
    same("delays", expected, got)?;
    let (expiry, words) = case.expiry.split_once(' ').unwrap_or_default();
    same(
        "expiry",
        "after the last advance, measured to the finish time of the container",
        words,
    )?;
    let start = Moment::from_boot(Duration::from_secs(1000));
    for (after, is_forgotten) in [
        (duration(expiry)?, false),
        (duration(expiry)? + Duration::from_secs(1), true),
    ] {
        let mut back_off = table();
        same(
            "the first start",
            Ok(()),
            back_off.start(&key, start, start),
        )?;
        // An end that late, seen at once: held back by the known delay, or let go as a first one.
        let got = back_off.start(&key, start + after, start + after);
        same(
            &format!("forgotten when it ends {} after", go_duration(after)),
            is_forgotten,
            got.is_ok(),
        )?;
    }
    AS_TOLD
}
