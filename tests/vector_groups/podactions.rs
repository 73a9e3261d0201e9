//! podactions.json: what to start and what to kill, restarts of all containers, back-off (kubelet-probes 8.3, 8.6, 8.7).

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use podprobe::api::pod::{ObjectMeta, PodSpec};
use podprobe::api::{Container, Pod, PodRef};
use podprobe::base::clock::Moment;
use podprobe::engine::runtime::{
    ContainerId, RuntimePodStatus, RuntimeSandboxStatus, RuntimeState,
};
use podprobe::pods::actions::{BackOff, BackOffKey, Held, Inputs, compute, restart_all_wanted};
use podprobe::pods::container_config::spec_hash;
use podprobe::pods::kuberuntime::StartErrorReason;
use serde::Deserialize;
use serde_json::{Value, json};

use super::world::{runtime_container, runtime_state};
use super::{
    AS_TOLD, Cached, Case, Group, Run, Test, Verdict, duration, ensure, group, same, unknown,
};

pub const GROUPS: &[Group] = &[
    group("version", Run::Text),
    group("doc", Run::Text),
    group("restartAllDoc", Run::Text),
    group("cases", Run::Each(case)),
    group("restartAll", Run::Told(RESTART_ALL)),
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
        for container in spec
            .get_mut(list)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
                if container.get(probe) == Some(&true.into()) {
                    container[probe] = json!({});
                }
            }
        }
    }
    let metadata = ObjectMeta {
        deletion_timestamp: deleted.then(|| "2026-01-01T00:00:00Z".into()),
        ..Default::default()
    };
    let mut unread = None;
    let typed: PodSpec = serde_ignored::deserialize(&spec, |path| unread = Some(path.to_string()))
        .map_err(|e| e.to_string())?;
    if let Some(path) = unread {
        return Err(format!("unknown field \"{path}\" of the spec"));
    }
    Ok(Pod {
        metadata,
        spec: typed.into(),
        raw: Default::default(),
    })
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
        ips: if s.ip.is_empty() {
            Vec::new()
        } else {
            vec![
                s.ip.parse()
                    .map_err(|_| format!("unknown address \"{}\"", s.ip))?,
            ]
        },
    };
    Ok(RuntimePodStatus {
        containers,
        sandboxes: if s.present { vec![sandbox] } else { Vec::new() },
        ..Default::default()
    })
}

fn case(case: &Case) -> Verdict {
    let ActionCase { input, mut expect } = case.fields()?;
    let pod = pod(&input.spec, input.deletion_timestamp)?;
    let status = runtime(&input, &pod)?;
    let cached =
        |of: &BTreeMap<String, Cached>, id: &ContainerId| of.get(id.as_str()).map(|c| (*c).into());
    let got = compute(&Inputs {
        pod: &pod,
        status: &status,
        liveness: &|id| cached(&input.liveness, id),
        startup: &|id| cached(&input.startup, id),
        restart_all: input.restart_all,
        ended_before: &[],
        asked: &[],
        resized: &[],
        begun: &[],
    });
    same("removals", 0, got.remove.len())?;
    // Who ends the pod ends each of its containers; whether some were to be ended by themselves too says nothing more.
    let covered = |id: &String| {
        got.kill_pod
            && input
                .statuses
                .iter()
                .any(|s| s.id == *id && s.state != "exited")
    };
    expect.kill.retain(|id| !covered(id));
    let got = Expect {
        kill_pod: got.kill_pod,
        create_sandbox: got.create_sandbox,
        attempt: got.attempt,
        init_start: got.init_start,
        start: got.start,
        kill: got.kill.iter().map(|k| k.id.to_string()).collect(),
    };
    same("actions", expect, got)?;
    AS_TOLD
}

/// What a case of a restart of all expects; its world is told in its note.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RestartAll {
    restart_all: bool,
    expect_reset: Option<Vec<(String, String, bool)>>,
    expect_init_start: Option<Vec<usize>>,
}

const RESTART_ALL: &[Test] = &[
    ("ra-01", |c| {
        restart_all(c, REGULAR, &running(REGULAR), None)
    }),
    ("ra-02", |c| {
        restart_all(c, REGULAR, &running(REGULAR), None)
    }),
    ("ra-03", |c| {
        restart_all(
            c,
            PLAIN_INIT,
            &[
                "init1 initid1 exited 0",
                "init2 initid2 exited 0",
                "init3 initid3 exited 0",
            ],
            None,
        )
    }),
    ("ra-04", |c| {
        restart_all(c, SIDECARS, &running(SIDECARS), None)
    }),
    ("ra-05", |c| {
        let init = &[
            "init1 initid1 init",
            "init2 initid2 sidecar",
            "init3 initid3 init",
        ];
        restart_all(
            c,
            init,
            &[
                "init1 initid1 exited 0",
                "init2 initid2 running 0",
                "init3 initid3 exited 1",
            ],
            Some("init3"),
        )
    }),
    ("ra-06", |c| {
        let mut statuses = running(&SIDECARS[..2]);
        statuses.extend(
            ["restartable-init-3 initid3 exited 1", "foo1 id1 running 0"].map(String::from),
        );
        restart_all(
            c,
            &[SIDECARS, &REGULAR[..1]].concat(),
            &statuses,
            Some("restartable-init-3"),
        )
    }),
    ("ra-07", |c| {
        let mut statuses = running(&[SIDECARS, &REGULAR[..2]].concat());
        statuses.push("foo3 id3 exited 1".into());
        restart_all(c, &[SIDECARS, REGULAR].concat(), &statuses, Some("foo3"))
    }),
    ("ra-08", |c| {
        let newest = [
            "foo1 id1 running 0",
            "foo2 id2 running 0",
            "foo3 id3 exited 1",
        ];
        let past = [
            "foo1 id1-past exited 0",
            "foo2 id2-past exited 0",
            "foo3 id3-past exited 0",
        ];
        restart_all(c, REGULAR, &[newest, past].concat(), Some("foo3"))
    }),
    ("ra-09", |c| {
        restart_all(c, &[PLAIN_INIT, REGULAR].concat(), &[] as &[&str], None)
    }),
];

/// Name, id, kind.
const REGULAR: &[&str] = &["foo1 id1 regular", "foo2 id2 regular", "foo3 id3 regular"];
const PLAIN_INIT: &[&str] = &[
    "init1 initid1 init",
    "init2 initid2 init",
    "init3 initid3 init",
];
const SIDECARS: &[&str] = &[
    "restartable-init-1 initid1 sidecar",
    "restartable-init-2 initid2 sidecar",
    "restartable-init-3 initid3 sidecar",
];

/// One running instance of each.
fn running(containers: &[&str]) -> Vec<String> {
    containers
        .iter()
        .filter_map(|c| c.rsplit_once(' '))
        .map(|(named, _)| format!("{named} running 0"))
        .collect()
}

/// `containers`: name, id, kind. `statuses`: name, id, state, exit code. The trigger has the rule for its exit.
fn restart_all(
    case: &Case,
    containers: &[&str],
    statuses: &[impl AsRef<str>],
    trigger: Option<&str>,
) -> Verdict {
    let case: RestartAll = case.fields()?;
    let spec = restart_all_spec(containers, trigger)?;
    let pod = pod(&spec, false)?;
    let statuses = statuses
        .iter()
        .map(|s| status_in_words(s.as_ref()))
        .collect::<Result<Vec<_>, _>>()?;
    let sandbox = Sandbox {
        present: true,
        ready: true,
        attempt: 0,
        ip: "10.0.0.1".into(),
    };
    let none = BTreeMap::new;
    let input = Input {
        spec,
        sandbox,
        statuses,
        liveness: none(),
        startup: none(),
        restart_all: case.restart_all,
        deletion_timestamp: false,
    };
    let status = runtime(&input, &pod)?;
    same(
        "asked for by the statuses",
        trigger.is_some(),
        restart_all_wanted(&pod, &status),
    )?;
    let got = compute(&Inputs {
        pod: &pod,
        status: &status,
        liveness: &|_| None,
        startup: &|_| None,
        restart_all: case.restart_all,
        ended_before: &[],
        asked: &[],
        resized: &[],
        begun: &[],
    });
    if let Some(expected) = case.expect_reset {
        same(
            "resets",
            expected,
            got.remove
                .iter()
                .map(|r| (r.name.clone(), r.id.to_string(), r.kill))
                .collect(),
        )?;
    }
    if let Some(expected) = case.expect_init_start {
        same("init containers to start", expected, got.init_start.clone())?;
    }
    if case.restart_all {
        let nothing_else = !got.kill_pod
            && !got.create_sandbox
            && got.kill.is_empty()
            && got.start.is_empty()
            && got.init_start.is_empty();
        ensure(nothing_else, &format!("nothing else is done: {got:?}"))?;
    }
    AS_TOLD
}

fn restart_all_spec(containers: &[&str], trigger: Option<&str>) -> Result<Value, String> {
    let mut spec = json!({"restartPolicy": "Never", "initContainers": [], "containers": []});
    for words in containers {
        let mut container = json!({"name": words.split(' ').next()});
        let list = match words.split(' ').nth(2) {
            Some("regular") => "containers",
            Some("init") => "initContainers",
            Some("sidecar") => {
                container["restartPolicy"] = "Always".into();
                "initContainers"
            }
            other => return Err(format!("unknown kind {other:?}")),
        };
        if container["name"].as_str() == trigger {
            if container["restartPolicy"].is_null() {
                container["restartPolicy"] = "Never".into();
            }
            container["restartPolicyRules"] = json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}]);
        }
        spec[list].as_array_mut().ok_or("a list")?.push(container);
    }
    Ok(spec)
}

fn status_in_words(words: &str) -> Result<Status, String> {
    let [name, id, state, code] = words.split(' ').collect::<Vec<_>>()[..] else {
        return unknown("status", words);
    };
    let exit_code = code
        .parse()
        .map_err(|_| format!("unknown exit code \"{code}\""))?;
    Ok(Status {
        name: name.into(),
        id: id.into(),
        state: state.into(),
        exit_code,
        hash_changed: false,
    })
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
    let or = |told: &Option<String>, default: u64| {
        told.as_deref()
            .map_or(Ok(Duration::from_secs(default)), duration)
    };
    let (initial, max) = (or(&case.initial, 10)?, or(&case.max, 300)?);
    let pod = PodRef {
        namespace: "d".into(),
        name: "p".into(),
        uid: "u".into(),
    };
    let container = Container {
        name: "c".into(),
        ..Default::default()
    };
    let key = BackOffKey::new(&pod, &container);
    let now = Moment::from_boot(Duration::from_secs(1000));
    let mut table = BackOff::with_initial(initial, max);
    match case.entry.as_deref() {
        None => {}
        Some(words)
            if *words
                == format!(
                    "one earlier advance (delay {})",
                    case.initial.as_deref().unwrap_or("10s")
                ) =>
        {
            same(
                "the earlier start",
                Ok(()),
                table.start(
                    &key,
                    now - Duration::from_secs(5),
                    now - Duration::from_secs(5),
                ),
            )?;
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
    let runtime = RuntimePodStatus {
        containers: vec![newest],
        ..Default::default()
    };
    let got = table.check(&pod, &container, &runtime, now);
    same("in back-off", case.expect_in_back_off, got.is_err())?;
    if let Some(words) = case.side_effect {
        same(
            "sideEffect",
            "an entry with delay = initial is created",
            &words,
        )?;
        same(
            "the next start",
            Err(Held {
                delay: initial,
                retry_at: now + initial,
            }),
            table.check(&pod, &container, &runtime, now),
        )?;
    }
    if let Some(word) = case.error {
        same(
            "error",
            word.as_str(),
            StartErrorReason::CrashLoopBackOff.as_str(),
        )?;
    }
    if let Some(words) = case.retry_at {
        let after = duration(
            words
                .strip_prefix("finishedAt+")
                .ok_or_else(|| format!("unknown time \"{words}\""))?,
        )?;
        same(
            "retryAt",
            Err(Held {
                delay: after,
                retry_at: now + after,
            }),
            got,
        )?;
    }
    AS_TOLD
}
