//! manager.json: the probe manager with its threads, and the result caches (kubelet-probes 4).

use std::collections::HashSet;

use crossbeam_channel::bounded;
use podprobe::api::{PodStatus, PodUid};
use podprobe::engine::runtime::ContainerId;
use podprobe::pods::prober::results::{Manager, ProbeResult};
use serde::Deserialize;
use serde_json::{Value, json};

use super::world::{Answer, Daemon, api_state, entry, pod_of, until};
use super::{
    AS_TOLD, Cached, Case, Group, Run, Verdict, ensure, fields, group, probe_type, same, unknown,
};

pub const GROUPS: &[Group] = &[
    group("version", Run::Text),
    group(
        "addRemove",
        Run::Told(&[
            ("m-1", m_1),
            ("m-2", m_2),
            ("m-3", m_3),
            ("m-4", m_4),
            ("m-5", m_5),
            ("m-6", m_6),
        ]),
    ),
    group("updatePodStatus", Run::Each(update_pod_status)),
    group("updatePodStatusInit", Run::Each(update_pod_status_init)),
    group("updateReadiness", Run::Told(&[("ur-1", ur_1)])),
    group("resultsCache", Run::Each(results_cache)),
    group("resultNumbers", Run::Each(result_numbers)),
    group("resultText", Run::Each(result_text)),
];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AddRemove {
    #[serde(rename = "pod")]
    _pod: Option<Value>,
    workers_after_add: Option<Vec<(String, String)>>,
    #[serde(rename = "then")]
    _then: Option<Vec<String>>,
    #[serde(rename = "pods")]
    _pods: Option<Value>,
    #[serde(rename = "desired")]
    _desired: Option<Vec<String>>,
    #[serde(rename = "expect")]
    _expect: Option<String>,
}

/// An exec probe that never runs during a test: its worker waits out its first period.
fn probe() -> Value {
    json!({"exec": {"command": ["true"]}, "periodSeconds": 1000})
}

fn probed(name: &str, probes: &[&str]) -> Value {
    let mut container = json!({"name": name});
    for which in probes {
        container[format!("{which}Probe")] = probe();
    }
    container
}

/// Container and probe type of each worker, sorted.
fn workers(daemon: &Daemon) -> Vec<(String, String)> {
    let mut names: Vec<_> = daemon
        .manager
        .workers()
        .into_iter()
        .map(|(_, container, t)| (container, t.as_str().to_lowercase()))
        .collect();
    names.sort();
    names
}

fn sorted(told: Option<Vec<(String, String)>>) -> Vec<(String, String)> {
    let mut told = told.unwrap_or_default();
    told.sort();
    told
}

fn m_1(case: &Case) -> Verdict {
    let case: AddRemove = case.fields()?;
    let daemon = Daemon::new();
    daemon.manager.add_pod(&pod_of(
        "p",
        json!({"containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}),
    ));
    same("workers", sorted(case.workers_after_add), workers(&daemon))?;
    daemon.end()?;
    AS_TOLD
}

/// Six containers, every second one with the probe of its name.
fn six() -> Value {
    let plain = |name: &str| json!({"name": name});
    json!({"containers": [plain("a"), probed("readiness", &["readiness"]), plain("b"), probed("liveness", &["liveness"]), plain("c"),
        probed("startup", &["startup"])]})
}

fn m_2(case: &Case) -> Verdict {
    let case: AddRemove = case.fields()?;
    let daemon = Daemon::new();
    let (plain, probed) = (
        pod_of("plain", json!({"containers": [{"name": "x"}]})),
        pod_of("p", six()),
    );
    daemon.manager.add_pod(&plain);
    daemon.manager.add_pod(&probed);
    let expected = sorted(case.workers_after_add);
    same("workers", expected.clone(), workers(&daemon))?;
    daemon.manager.remove_pod(&plain);
    same(
        "workers after the removal of the other pod",
        expected,
        workers(&daemon),
    )?;
    daemon.manager.remove_pod(&probed);
    until("the end of all three", || workers(&daemon).is_empty())?;
    daemon.manager.remove_pod(&probed);
    same(
        "workers after a second removal",
        Vec::new(),
        workers(&daemon),
    )?;
    daemon.end()?;
    AS_TOLD
}

/// A plain init container, and one with all three probes that may be a sidecar.
fn with_init(policy: Option<&str>) -> Value {
    let mut restartable = probed("restartable-init", &["liveness", "readiness", "startup"]);
    restartable["restartPolicy"] = policy.into();
    json!({"initContainers": [{"name": "init"}, restartable], "containers": [{"name": "main"}]})
}

fn m_3(case: &Case) -> Verdict {
    let case: AddRemove = case.fields()?;
    let daemon = Daemon::new();
    daemon.manager.add_pod(&pod_of("p", with_init(None)));
    same("workers", sorted(case.workers_after_add), workers(&daemon))?;
    daemon.end()?;
    AS_TOLD
}

fn m_4(case: &Case) -> Verdict {
    let case: AddRemove = case.fields()?;
    let daemon = Daemon::new();
    let pod = pod_of("p", with_init(Some("Always")));
    daemon.manager.add_pod(&pod);
    same("workers", sorted(case.workers_after_add), workers(&daemon))?;
    daemon.manager.remove_pod(&pod);
    until("the end of all three", || workers(&daemon).is_empty())?;
    daemon.manager.remove_pod(&pod);
    same(
        "workers after a second removal",
        Vec::new(),
        workers(&daemon),
    )?;
    daemon.end()?;
    AS_TOLD
}

fn m_5(case: &Case) -> Verdict {
    case.has_only(&["pods", "desired", "expect"])?;
    let daemon = Daemon::new();
    let (gone, kept) = (pod_of("pod_cleanup", six()), pod_of("pod_keep", six()));
    daemon.manager.add_pod(&gone);
    daemon.manager.add_pod(&kept);
    same("workers", 6, daemon.manager.worker_count())?;
    daemon
        .manager
        .clean_up(&HashSet::from([kept.uid().clone()]));
    until("three workers are left", || {
        daemon.manager.worker_count() == 3
    })?;
    ensure(
        daemon
            .manager
            .workers()
            .iter()
            .all(|(uid, _, _)| uid == kept.uid()),
        "only the workers of pod_keep",
    )?;
    daemon.end()?;
    AS_TOLD
}

fn m_6(case: &Case) -> Verdict {
    case.has_only(&["pods", "expect"])?;
    let daemon = Daemon::new();
    for i in 0..100 {
        daemon.manager.add_pod(&pod_of(
            &format!("p{i}"),
            json!({"containers": [probed("c", &["liveness", "readiness", "startup"])]}),
        ));
    }
    same("workers", 300, daemon.manager.worker_count())?;
    for _ in 0..10 {
        daemon.manager.clean_up(&HashSet::new());
    }
    until("the end of all", || daemon.manager.worker_count() == 0)?;
    daemon.end()?;
    AS_TOLD
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct UpdatePodStatus {
    /// Says in words what the other fields say.
    #[serde(rename = "container")]
    _container: String,
    state: String,
    workers: Vec<String>,
    readiness_cache: Option<Cached>,
    startup_cache: Option<Cached>,
    ready: bool,
    started: bool,
}

fn update_pod_status(case: &Case) -> Verdict {
    let case: UpdatePodStatus = case.fields()?;
    let daemon = Daemon::new();
    let types = case
        .workers
        .iter()
        .map(|w| probe_type(w).map(|_| w.as_str()))
        .collect::<Result<Vec<_>, _>>()?;
    let pod = pod_of("p", json!({"containers": [probed("c", &types)]}));
    let (id, uid) = (ContainerId::from("a"), pod.uid().clone());
    for (cache, cached) in [
        (&daemon.results.readiness, case.readiness_cache),
        (&daemon.results.startup, case.startup_cache),
    ] {
        cached.map(|c| cache.set(&id, c.into(), &uid));
    }
    daemon.manager.add_pod(&pod);
    same("workers", types.len(), daemon.manager.worker_count())?;
    let status = daemon.store(
        &pod,
        vec![entry("c", "a", api_state(&case.state, 0, "")?, None)],
    );
    let got = &status.container_statuses[0];
    same("ready", case.ready, got.ready)?;
    same("started", Some(case.started), got.started)?;
    daemon.end()?;
    AS_TOLD
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct UpdatePodStatusInit {
    restart_policy_always: bool,
    rows: Vec<(String, bool, bool)>,
    cols: Vec<String>,
}

fn update_pod_status_init(case: &Case) -> Verdict {
    let case: UpdatePodStatusInit = case.fields()?;
    same(
        "cols",
        vec!["case", "started", "ready"],
        case.cols.iter().map(String::as_str).collect(),
    )?;
    for (words, started, ready) in &case.rows {
        let (startup, cached, state) = match words.split_once(", ") {
            Some(("startup worker", "no result, running")) => {
                (true, None, api_state("running", 0, "")?)
            }
            Some(("startup worker", rest)) if rest.ends_with(", running") => {
                let result = result_of(rest.trim_end_matches(", running"))?;
                (true, Some(result), api_state("running", 0, "")?)
            }
            None if words == "running" => (false, None, api_state("running", 0, "")?),
            _ => match words.strip_prefix("terminated exit ").map(str::parse) {
                Some(Ok(code)) => (false, None, api_state("terminated", code, "")?),
                _ => return unknown("row", words),
            },
        };
        let daemon = Daemon::new();
        let mut init = probed("c", if startup { &["startup"] } else { &[] });
        init["restartPolicy"] = case.restart_policy_always.then_some("Always").into();
        let pod = pod_of(
            "p",
            json!({"initContainers": [init], "containers": [{"name": "main"}]}),
        );
        cached.map(|c| {
            daemon
                .results
                .startup
                .set(&ContainerId::from("a"), c, pod.uid())
        });
        let mut fresh = PodStatus {
            init_container_statuses: vec![entry("c", "a", state, None)],
            ..Default::default()
        };
        daemon.manager.update_pod_status(&pod, &mut fresh);
        let got = &fresh.init_container_statuses[0];
        same(words, (Some(*started), *ready), (got.started, got.ready))?;
        daemon.end()?;
    }
    AS_TOLD
}

/// The stored container turns ready with the handler's success and unready with its failure.
fn ur_1(case: &Case) -> Verdict {
    case.has_only(&["expect"])?;
    let daemon = Daemon::new();
    let probe = json!({"exec": {"command": ["true"]}, "periodSeconds": 1, "failureThreshold": 1});
    let pod = pod_of(
        "p",
        json!({"containers": [{"name": "c", "readinessProbe": probe}]}),
    );
    let store = || {
        daemon
            .store(
                &pod,
                vec![entry(
                    "c",
                    "a",
                    json!({"running": {"startedAt": null}}),
                    None,
                )],
            )
            .container_statuses[0]
            .ready
    };
    ensure(!store(), "not ready before the first probe")?;
    daemon.manager.add_pod(&pod);
    until("ready after a success", store)?;
    *daemon.world.answer.lock().unwrap() = Answer::Code(1);
    until("unready after a failure", || !store())?;
    daemon.end()?;
    AS_TOLD
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ops {
    ops: Vec<Vec<Value>>,
}

fn results_cache(case: &Case) -> Verdict {
    let case: Ops = case.fields()?;
    let (tx, updates) = bounded(100);
    let (cache, uid) = (Manager::new(tx), PodUid::from("p"));
    for op in &case.ops {
        let word = |i: usize| op.get(i).and_then(Value::as_str);
        let id = ContainerId::from(word(1).ok_or("an operation without a container")?);
        let result = || {
            op.get(2)
                .map_or(Ok(None), fields::<Option<Cached>>)
                .map(|c| c.map(ProbeResult::from))
        };
        match (word(0), op.len()) {
            (Some("get"), 3) => same(&format!("{op:?}"), result()?, cache.get(&id))?,
            (Some("remove"), 2) => cache.remove(&id),
            (Some("set"), 3 | 4) => {
                cache.set(&id, result()?.ok_or("a set without a result")?, &uid);
            }
            _ => return Err(format!("unknown operation {op:?}")),
        }
        let sent = updates
            .try_iter()
            .map(|u| (u.container, Some(u.result), u.pod))
            .collect::<Vec<_>>();
        match word(3) {
            Some("update") => same(&format!("{op:?}"), vec![(id, result()?, uid.clone())], sent)?,
            Some("no update") => same(&format!("{op:?}"), vec![], sent)?,
            Some(other) => return unknown("effect", other),
            None => {}
        }
    }
    AS_TOLD
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rows {
    rows: Vec<(String, Value)>,
}

/// A value that is none of the two is our Unknown, whatever its number.
fn result_of(word: &str) -> Result<ProbeResult, String> {
    match word {
        "Success" => Ok(ProbeResult::Success),
        "Failure" => Ok(ProbeResult::Failure),
        other if other.starts_with("other (") => Ok(ProbeResult::Unknown),
        other => unknown("result", other),
    }
}

fn result_numbers(case: &Case) -> Verdict {
    for (word, number) in case.fields::<Rows>()?.rows {
        same(&word, number, result_of(&word)?.as_number().into())?;
    }
    AS_TOLD
}

fn result_text(case: &Case) -> Verdict {
    for (word, text) in case.fields::<Rows>()?.rows {
        same(&word, text, result_of(&word)?.to_string().into())?;
    }
    AS_TOLD
}
