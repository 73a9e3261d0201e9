//! exec.json: the exec handler, the prober's verdict on a handler's result, command words
//! (kubelet-probes 3.1, 3.2).

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use podprobe::api::expansion::probe_command;
use podprobe::api::pod::{EnvVar, ExecAction};
use podprobe::api::{Container, PodStatus, Probe, ProbeType};
use podprobe::engine::nsexec;
use podprobe::engine::runtime::{ContainerId, ExecOutcome, RuntimeError, RuntimeErrorKind};
use podprobe::pods::events::Recorder;
use podprobe::pods::prober::exec::judge;
use podprobe::pods::prober::outcome::{HandlerResult, Outcome, Phase};
use podprobe::pods::prober::prober::{Memory, Prober, Subject, event, verdict};
use podprobe::pods::prober::worker::Verdict as WorkerVerdict;
use serde::Deserialize;
use serde_json::{Value, json};

use super::world::{Answer, World, pod_of};
use super::{
    AS_TOLD, Case, Group, Run, Verdict, ensure, group, overruled, probe_type, same, unknown,
};
use crate::probed::ProbedRuntime;

pub const GROUPS: &[Group] = &[
    group("version", Run::Text),
    group("execResult", Run::Each(exec_result)),
    group("proberResult", Run::Each(prober_result)),
    group("commandExpansion", Run::Each(command_expansion)),
    group("valueFrom", Run::Told(&[("ce-vf", ce_vf)])),
    group("outputLimit", Run::Each(output_limit)),
    group("events", Run::Told(&[("ev-1", ev_1)])),
    group("construction", Run::Told(&[("construction", construction)])),
];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Runner {
    output: Option<String>,
    output_bytes: Option<usize>,
    exit_code: Option<i32>,
    /// The runtime hands an exit code over as an error; ours has no such form.
    #[serde(rename = "asError")]
    _as_error: Option<bool>,
    error: Option<String>,
    kind: Option<String>,
}

impl Runner {
    fn answer(self) -> Result<Result<ExecOutcome, RuntimeError>, String> {
        let output = match (self.output, self.output_bytes) {
            (text, None) => text.unwrap_or_default().into_bytes(),
            (None, Some(n)) => vec![b'x'; n],
            _ => return Err("expected either output or outputBytes".into()),
        };
        Ok(match (self.kind.as_deref(), self.error) {
            (None, None) => Ok(ExecOutcome::Exited {
                code: self.exit_code.unwrap_or(0),
                output,
            }),
            (None, Some(text)) => Err(RuntimeError::new(RuntimeErrorKind::Failed, text)),
            (Some("timeout"), _) => Ok(ExecOutcome::TimedOut { output }),
            (Some(other), _) => return unknown("kind of error", other),
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ExecResult {
    runner: Runner,
    result: String,
    output: Option<String>,
    output_bytes: Option<usize>,
    err: bool,
}

fn exec_result(case: &Case) -> Verdict {
    let case: ExecResult = case.fields()?;
    let told = case.runner.error.clone();
    let got = judge(
        case.runner.answer()?,
        &["sleep".into(), "9".into()],
        Duration::from_secs(1),
    );
    same("result", case.result, got.result.to_string())?;
    same("err", case.err, got.error.is_some())?;
    match case.output.as_deref() {
        Some("<the error text>") => {
            let told = told.unwrap_or_default();
            let start = told.split('<').next().unwrap_or_default();
            ensure(
                got.output.starts_with(start) && got.output.len() > start.len(),
                &format!("the error text in {:?}", got.output),
            )?;
        }
        Some(output) => same("output", output, &got.output)?,
        None => {}
    }
    case.output_bytes
        .map_or(Ok(()), |n| same("outputBytes", n, got.output.len()))?;
    AS_TOLD
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ProberResult {
    #[serde(rename = "for")]
    types: Vec<String>,
    /// Null: the container has no such probe.
    #[serde(default, deserialize_with = "present")]
    probe: Option<Option<String>>,
    handler_result: Option<String>,
    handler_err: Option<bool>,
    probe_type: Option<String>,
    result: String,
    err: bool,
}

/// Tells a null from a field that is not there.
fn present<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(d).map(Some)
}

fn prober_result(case: &Case) -> Verdict {
    let case: ProberResult = case.fields()?;
    if let Some(word) = &case.probe_type {
        ensure(
            probe_type(word).is_err(),
            "a probe type that is none of the three",
        )?;
        same("told", ("Failure", true), (case.result.as_str(), case.err))?;
        return Ok(overruled(
            "a probe type is one of an enum's three: a fourth cannot be written, so nothing has to answer it",
        ));
    }
    for word in &case.types {
        let probe_type = probe_type(word)?;
        let got = match (&case.probe, &case.handler_result) {
            (Some(None), None) => run(probe_type, None, Answer::Code(0)),
            (Some(Some(words)), None) if words == "no handler" => {
                run(probe_type, Some(Probe::default()), Answer::Code(0))
            }
            (None, Some(handler)) => {
                handled(probe_type, handler, case.handler_err.unwrap_or(false))?
            }
            other => return Err(format!("unknown probe {other:?}")),
        };
        let got = match got {
            WorkerVerdict::Success => ("Success", false),
            WorkerVerdict::Failure => ("Failure", false),
            // The kubelet says Failure and an error, and its worker throws that away.
            WorkerVerdict::Error => ("Failure", true),
        };
        same("result and err", (case.result.as_str(), case.err), got)?;
    }
    AS_TOLD
}

/// A run through the prober with its retries and events.
fn run(probe_type: ProbeType, probe: Option<Probe>, answer: Answer) -> WorkerVerdict {
    let world = World::new(answer);
    let prober = Prober::new(
        Arc::new(ProbedRuntime(world)),
        Arc::new(Recorder::default()),
        Vec::new(),
    );
    let mut container = Container {
        name: "c".into(),
        ..Default::default()
    };
    *match probe_type {
        ProbeType::Startup => &mut container.startup_probe,
        ProbeType::Readiness => &mut container.readiness_probe,
        ProbeType::Liveness => &mut container.liveness_probe,
    } = probe;
    let (mut pod, id) = (
        (*pod_of("p", json!({"containers": [{"name": "c"}]}))).clone(),
        ContainerId::from("x"),
    );
    pod.spec_mut().containers = vec![container];
    let subject = Subject {
        pod: &pod,
        status: &PodStatus::default(),
        container: "c",
        id: &id,
    };
    prober.probe(probe_type, subject, &mut Memory::default()).0
}

/// A handler's word as it is judged, and through an exec probe where one can say it.
fn handled(probe_type: ProbeType, word: &str, is_error: bool) -> Result<WorkerVerdict, String> {
    let all = [
        HandlerResult::Success,
        HandlerResult::Warning,
        HandlerResult::Failure,
        HandlerResult::Unknown,
    ];
    let Some(result) = all.into_iter().find(|r| r.to_string() == word) else {
        return unknown("handler result", word);
    };
    let error = is_error.then(|| "told".to_owned());
    let judged = verdict(&Outcome {
        error,
        ..Outcome::new(result, "", Phase::Run)
    });
    let answer = match (result, is_error) {
        (HandlerResult::Success, false) => Answer::Code(0),
        (HandlerResult::Failure, false) => Answer::Code(1),
        (HandlerResult::Unknown, true) => Answer::Error,
        _ => return Ok(judged),
    };
    let probe = Probe {
        exec: Some(ExecAction {
            command: vec!["true".into()],
        }),
        ..Default::default()
    };
    let run = run(probe_type, Some(probe), answer);
    same("the exec probe and the judgement", judged, run)?;
    Ok(run)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expansion {
    command: Vec<String>,
    env: Vec<(String, String)>,
    expect: Vec<String>,
}

fn command_expansion(case: &Case) -> Verdict {
    let case: Expansion = case.fields()?;
    let env: Vec<_> = case
        .env
        .into_iter()
        .map(|(name, value)| EnvVar {
            name,
            value,
            ..EnvVar::default()
        })
        .collect();
    same("words", case.expect, probe_command(&case.command, &env))?;
    AS_TOLD
}

/// An env entry that uses valueFrom contributes its empty literal value.
fn ce_vf(case: &Case) -> Verdict {
    case.has_only(&["rule"])?;
    let env: EnvVar = super::fields(&json!({"name": "P"}))?;
    let from: Value =
        json!({"name": "P", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}});
    let from: EnvVar = serde_json::from_value(from).map_err(|e| e.to_string())?;
    for entry in [env, from] {
        same(
            "words",
            vec!["<>".to_owned()],
            probe_command(&["<$(P)>".to_owned()], &[entry]),
        )?;
    }
    AS_TOLD
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OutputLimit {
    stdout: Option<String>,
    stdout_bytes: Option<usize>,
    run_error: Option<String>,
    limit: usize,
    expect: Option<String>,
    expect_bytes: Option<usize>,
    err: Option<String>,
}

fn output_limit(case: &Case) -> Verdict {
    let case: OutputLimit = case.fields()?;
    if let Some(error) = case.run_error {
        let got = judge(
            Err(RuntimeError::new(RuntimeErrorKind::Failed, error)),
            &[],
            Duration::from_secs(1),
        );
        same("err", case.err, got.error)?;
        same("told", case.stdout, case.expect)?;
        return Ok(overruled(
            "the error is as told; a run that says nothing of the container brings no output with it (kubelet-probes 3.2, last row)",
        ));
    }
    same("err", None, case.err)?;
    let command = match (case.stdout, case.stdout_bytes) {
        (Some(text), None) => vec!["printf".to_owned(), "%s".into(), text],
        (None, Some(n)) => vec![
            "head".into(),
            "-c".into(),
            n.to_string(),
            "/dev/zero".into(),
        ],
        _ => return Err("expected either stdout or stdoutBytes".into()),
    };
    if !nix::unistd::geteuid().is_root() {
        ensure(std::env::var("CI").as_deref() != Ok("true"), "root in CI")?;
        return Ok(super::Passed::Skipped("a real exec needs root"));
    }
    let (code, output) = exec(&command, case.limit)?;
    same("exit code", 0, code)?;
    case.expect.map_or(Ok(()), |text| {
        same(
            "output",
            text,
            String::from_utf8_lossy(&output).into_owned(),
        )
    })?;
    case.expect_bytes
        .map_or(Ok(()), |n| same("output bytes", n, output.len()))?;
    AS_TOLD
}

/// Killed and waited for when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the command beside a process of ours, as it is run in a container.
fn exec(command: &[String], limit: usize) -> Result<(i32, Vec<u8>), String> {
    let child = Command::new("sleep")
        .arg("1000")
        .stdin(Stdio::null())
        .spawn()
        .map_err(|e| e.to_string())?;
    let process = Process(child);
    let pid = process.0.id() as i32;
    let start_time = podprobe::base::sys::task::start_time(pid).ok_or("no start time")?;
    let config = serde_json::from_value(json!({"ociVersion": "1.0.2", "root": {"path": "/"}, "linux": {"namespaces": []},
        "process": {"user": {"uid": 0, "gid": 0}, "cwd": "/", "args": ["sleep"], "env": ["PATH=/usr/bin:/bin"]}}))
    .map_err(|e| e.to_string())?;
    let target = nsexec::Target {
        pid,
        start_time,
        config: &config,
        cgroup: "",
    };
    let options = nsexec::Options {
        helper: env!("CARGO_BIN_EXE_podprobe").into(),
        interrupt: None,
        cancel: None,
    };
    match nsexec::exec_with(&options, &target, command, Duration::from_secs(20), limit) {
        Ok(ExecOutcome::Exited { code, output }) => Ok((code, output)),
        other => Err(format!("expected an exit, got {other:?}")),
    }
}

/// Type, reason and text reach the recorder unchanged, for each of the three names.
fn ev_1(case: &Case) -> Verdict {
    case.has_only(&[])?;
    for (probe_type, name) in [
        (ProbeType::Readiness, "Readiness"),
        (ProbeType::Liveness, "Liveness"),
        (ProbeType::Startup, "Startup"),
    ] {
        let world = World::new(Answer::Code(1));
        let recorder = Arc::new(Recorder::default());
        let prober = Prober::new(Arc::new(ProbedRuntime(world)), recorder.clone(), Vec::new());
        let probe = json!({"exec": {"command": ["false"]}});
        let pod = pod_of(
            "p",
            json!({"containers": [{"name": "c", "startupProbe": probe, "readinessProbe": probe, "livenessProbe": probe}]}),
        );
        let (status, id) = (PodStatus::default(), ContainerId::from("x"));
        let subject = Subject {
            pod: &pod,
            status: &status,
            container: "c",
            id: &id,
        };
        let (_, outcome) = prober.probe(probe_type, subject, &mut Memory::default());
        let expected = (
            format!("{name} probe failed: {}", outcome.output),
            "Unhealthy",
        );
        let got = event(probe_type, &outcome).ok_or("no event")?;
        same("event", expected.clone(), (got.1, got.0))?;
        let events = recorder.list();
        same("events", 1, events.len())?;
        same(
            "recorded",
            expected,
            (events[0].message.clone(), events[0].reason.as_str()),
        )?;
    }
    AS_TOLD
}

/// A prober cannot be made without its parts: what is left to show is that each kind of handler is there.
fn construction(case: &Case) -> Verdict {
    case.has_only(&["expect"])?;
    for probe in [
        json!({"exec": {"command": ["true"]}}),
        json!({"httpGet": {"port": 1, "path": "/", "scheme": "HTTP"}}),
        json!({"tcpSocket": {"port": 1}}),
        json!({"grpc": {"port": 1}}),
    ] {
        let shown = probe.to_string();
        let probe: Probe = serde_json::from_value(probe).map_err(|e| e.to_string())?;
        let got = run(ProbeType::Liveness, Some(probe), Answer::Code(0));
        ensure(
            got != WorkerVerdict::Error,
            &format!("a handler for {shown}"),
        )?;
    }
    AS_TOLD
}
