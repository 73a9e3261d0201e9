//! podactions.json: what to start and what to kill, restarts of all containers, back-off (kubelet-probes 8.3, 8.6, 8.7).

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use podprobe::api::pod::{ObjectMeta, PodSpec};
use podprobe::api::{Container, Pod, PodRef};
use podprobe::clock::Moment;
use podprobe::pod_actions::{BackOff, BackOffKey, Held, Inputs, compute, spec_hash};
use podprobe::runtime::{ContainerId, RuntimePodStatus, RuntimeSandboxStatus, RuntimeState, StartErrorReason};
use serde::Deserialize;
use serde_json::Value;

use super::world::{runtime_container, runtime_state};
use super::{AS_TOLD, Cached, Case, Group, Passed, Run, Verdict, duration, fields, group, same, unknown};

pub const GROUPS: &[Group] = &[
    group("version", Run::Text),
    group("doc", Run::Text),
    group("restartAllDoc", Run::Text),
    group("cases", Run::Each(case)),
    group("restartAll", Run::Later("restart of all containers")),
    group("backoff", Run::Each(back_off)),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ActionCase {
    input: Input,
    expect: Expect,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Input {
    spec: Value,
    sandbox: Sandbox,
    statuses: Vec<Status>,
    liveness: BTreeMap<String, Cached>,
    startup: BTreeMap<String, Cached>,
    restart_all: bool,
    #[serde(default)]
    deletion_timestamp: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sandbox {
    present: bool,
    #[serde(default)]
    ready: bool,
    #[serde(default)]
    attempt: u32,
    #[serde(default)]
    ip: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Status {
    name: String,
    id: String,
    state: String,
    #[serde(default)]
    exit_code: i32,
    #[serde(default)]
    hash_changed: bool,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Expect {
    kill_pod: bool,
    create_sandbox: bool,
    attempt: u32,
    init_start: Vec<usize>,
    start: Vec<usize>,
    kill: Vec<String>,
}

/// The typed spec: a probe that is only said to be there has its defaults.
fn pod(spec: &Value, deleted: bool) -> Result<Pod, String> {
    let mut spec = spec.clone();
    for list in ["initContainers", "containers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
                if container.get(probe) == Some(&true.into()) {
                    container[probe] = serde_json::json!({});
                }
            }
        }
    }
    let metadata = ObjectMeta { deletion_timestamp: deleted.then(|| "2026-01-01T00:00:00Z".into()), ..Default::default() };
    let typed: PodSpec = fields(&spec)?;
    Ok(Pod { metadata, spec: typed, raw: Value::Null })
}

fn runtime(input: &Input, pod: &Pod) -> Result<RuntimePodStatus, String> {
    let one = |s: &Status| {
        let mut status = runtime_container(&s.name, &s.id, runtime_state(&s.state)?, s.exit_code);
        let hash = pod.container(&s.name).map_or(0, spec_hash);
        status.hash = if s.hash_changed { !hash } else { hash };
        Ok::<_, String>(status)
    };
    let containers = input.statuses.iter().map(one).collect::<Result<_, _>>()?;
    let s = &input.sandbox;
    let sandbox = RuntimeSandboxStatus {
        id: "sandbox".into(),
        attempt: s.attempt,
        ready: s.ready,
        host_network: false,
        created_at: SystemTime::UNIX_EPOCH,
        ips: if s.ip.is_empty() { Vec::new() } else { vec![s.ip.parse().map_err(|_| format!("unknown address \"{}\"", s.ip))?] },
    };
    Ok(RuntimePodStatus { containers, sandboxes: if s.present { vec![sandbox] } else { Vec::new() }, ..Default::default() })
}

fn case(case: &Case) -> Verdict {
    let case: ActionCase = case.fields()?;
    let input = &case.input;
    if input.spec["initContainers"] != serde_json::json!([])
        || input.restart_all
        || input.spec["containers"].to_string().contains("restartPolicy")
    {
        return Ok(Passed::Later("init containers"));
    }
    let pod = pod(&input.spec, input.deletion_timestamp)?;
    let status = runtime(input, &pod)?;
    let cached = |of: &BTreeMap<String, Cached>, id: &ContainerId| of.get(id.as_str()).map(|c| (*c).into());
    let got = compute(&Inputs {
        pod: &pod,
        status: &status,
        liveness: &|id| cached(&input.liveness, id),
        startup: &|id| cached(&input.startup, id),
    });
    let got = Expect {
        kill_pod: got.kill_pod,
        create_sandbox: got.create_sandbox,
        attempt: got.attempt,
        init_start: Vec::new(),
        start: got.start,
        kill: got.kill.iter().map(|k| k.id.to_string()).collect(),
    };
    same("actions", case.expect, got)?;
    AS_TOLD
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct BackOffCase {
    status: String,
    entry: Option<String>,
    initial: Option<String>,
    max: Option<String>,
    expect_in_back_off: bool,
    side_effect: Option<String>,
    error: Option<String>,
    retry_at: Option<String>,
}

fn back_off(case: &Case) -> Verdict {
    let case: BackOffCase = case.fields()?;
    let or = |told: &Option<String>, default: u64| told.as_deref().map_or(Ok(Duration::from_secs(default)), duration);
    let (initial, max) = (or(&case.initial, 10)?, or(&case.max, 300)?);
    let key = BackOffKey::new(&PodRef { namespace: "d".into(), name: "p".into(), uid: "u".into() }, &Container::default());
    let now = Moment::from_boot(Duration::from_secs(1000));
    let mut table = BackOff::with_initial(initial, max);
    match case.entry.as_deref() {
        None => {}
        Some(words) if *words == format!("one earlier advance (delay {})", case.initial.as_deref().unwrap_or("10s")) => {
            same("the earlier start", Ok(()), table.start(&key, now - Duration::from_secs(5), now - Duration::from_secs(5)))?;
        }
        Some(other) => return unknown("entry", other),
    }
    let newest = match case.status.as_str() {
        "running" => runtime_container("c", "a", RuntimeState::Running, 0),
        "exited just now" => {
            let mut status = runtime_container("c", "a", RuntimeState::Exited, 1);
            status.finished = Some(now);
            status
        }
        other => return unknown("status", other),
    };
    let runtime = RuntimePodStatus { containers: vec![newest], ..Default::default() };
    let got = table.start_after(&key, "c", &runtime, now);
    same("in back-off", case.expect_in_back_off, got.is_err())?;
    if let Some(words) = case.side_effect {
        same("sideEffect", "an entry with delay = initial is created", &words)?;
        same("the next start", Err(Held { delay: initial, retry_at: now + initial }), table.start_after(&key, "c", &runtime, now))?;
    }
    if let Some(word) = case.error {
        same("error", word.as_str(), StartErrorReason::CrashLoopBackOff.as_str())?;
    }
    if let Some(words) = case.retry_at {
        let after = duration(words.strip_prefix("finishedAt+").ok_or_else(|| format!("unknown time \"{words}\""))?)?;
        same("retryAt", Err(Held { delay: after, retry_at: now + after }), got)?;
    }
    AS_TOLD
}
