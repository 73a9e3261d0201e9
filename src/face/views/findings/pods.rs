//! The problem of a pod that matters most, as one sentence.
//!
//! Invariants: pure.

use super::{Finding, Severity, finding, is_pass};
use crate::api::status::{ContainerStateTerminated, PodPhase};
use crate::api::{ContainerStatus, Probe, ProbeType};
use crate::base::clock::Time;
use crate::base::json;
use crate::engine::images::manager::ImageWaitReason;
use crate::face::views::columns::{self, is_at_work};
use crate::face::views::hints::hint;
use crate::face::views::{PodView, human, pull_text};
use crate::pods::events::EventType;
use crate::pods::history::{MAX_RUNS, PodHistory, ProbeHistory, Run, RunOutcome};

/// Number of restarts within [`LATELY`] from which on the restarts are a finding, even if the container runs now.
const MANY_RESTARTS: usize = 3;
/// Time in seconds for which a restart counts as recent.
const LATELY: i64 = 600;

/// Returns the finding that matters most about a pod, if there is one.
pub fn of_pod(pod: &PodView, history: &PodHistory, now: Time) -> Option<Finding> {
    if !is_at_work(pod) {
        return None;
    }
    let describe = command("describe pod", pod);
    let (severity, message, way_out) = match pod.status.phase {
        PodPhase::Failed => (Severity::Failed, failed(pod), describe),
        _ => match pod
            .status
            .init_container_statuses
            .iter()
            .chain(&pod.status.container_statuses)
            .find_map(held_back)
        {
            Some((c, "CrashLoopBackOff", _)) => {
                let way_out = match ran(c) {
                    true => format!("{} -c {} -p", command("logs", pod), c.name),
                    false => describe,
                };
                (Severity::CrashLoop, crash_loop(c, history), way_out)
            }
            Some((c, reason, why)) => (
                Severity::CannotStart,
                cannot_start(c, reason, why),
                describe,
            ),
            None if pod.status.phase == PodPhase::Pending => {
                (Severity::Waiting, waits(pod, now), describe)
            }
            None if !pod.status.is_ready() => match paused(pod, now) {
                Some((why, resume)) => (Severity::NotReady, why, resume),
                None => (Severity::NotReady, not_ready(pod, history), describe),
            },
            None => {
                let why = flapping(history, now).or_else(|| dying(pod, history))?;
                (Severity::Flapping, why, describe)
            }
        },
    };
    let subject = format!("pod/{}", columns::name(pod));
    let way_out = match hint(&message) {
        Some(hint) => format!("{hint}; more: {way_out}"),
        None => way_out,
    };
    Some(finding(severity, &subject, &message, &way_out))
}

fn command(words: &str, pod: &PodView) -> String {
    let namespace = match columns::namespace(pod) {
        "default" => String::new(),
        other => format!(" -n {other}"),
    };
    format!("podprobe {words} {}{namespace}", columns::name(pod))
}

/// Returns the container, the reason and the message if the container waits because of a problem.
fn held_back(c: &ContainerStatus) -> Option<(&ContainerStatus, &str, &str)> {
    let waiting = c.state.waiting.as_ref()?;
    let is_on_its_way = matches!(
        waiting.reason.as_str(),
        "" | "ContainerCreating" | "PodInitializing"
    );
    (!is_on_its_way).then_some((c, &waiting.reason, &waiting.message))
}

/// Returns true if the last instance of the container ran, and so has a log.
fn ran(c: &ContainerStatus) -> bool {
    let last = c.last_state.terminated.as_ref();
    last.is_none_or(|t| t.reason != "StartError")
}

fn crash_loop(c: &ContainerStatus, history: &PodHistory) -> String {
    let mut restarts = history.restarts.iter().rev();
    let told = restarts
        .find(|r| r.container == c.name)
        .map(|r| r.cause.clone());
    let ended = c.last_state.terminated.as_ref().map(end);
    // The container's status describes its last instance. Only the history knows why that instance was killed.
    let why = match (ended, told) {
        (Some(end), _) if end.starts_with("OOMKilled") => end,
        (_, Some(cause)) => cause,
        (Some(end), None) => end,
        (None, None) => "nothing is known of the instance before".into(),
    };
    let times = if c.restart_count == 1 {
        "once"
    } else {
        &format!("{} times", c.restart_count)
    };
    format!(
        "container {} ends again and again, restarted {times}: {why}",
        c.name
    )
}

fn end(t: &ContainerStateTerminated) -> String {
    let code = format!("exit code {}", t.exit_code);
    let end = match t.reason.as_str() {
        "OOMKilled" => format!("OOMKilled, it reached its memory limit ({code})"),
        "" | "Error" | "Completed" => code,
        reason => format!("{reason}, {code}"),
    };
    match t.message.trim() {
        "" => end,
        said => format!("{end}: {said}"),
    }
}

fn failed(pod: &PodView) -> String {
    let (reason, message) = (pod.status.reason.as_str(), pod.status.message.as_str());
    let statuses = || {
        pod.status
            .init_container_statuses
            .iter()
            .chain(&pod.status.container_statuses)
    };
    let ended = || {
        statuses()
            .find_map(|c| Some((c, c.state.terminated.as_ref().filter(|t| t.exit_code != 0)?)))
    };
    match (reason, message, ended()) {
        ("", "", Some((c, t))) => format!("container {} has failed: {}", c.name, end(t)),
        ("", "", None) => "it has failed".into(),
        ("", message, _) => message.into(),
        (reason, "", _) => reason.into(),
        (reason, message, _) => format!("{reason}: {message}"),
    }
}

fn cannot_start(c: &ContainerStatus, reason: &str, why: &str) -> String {
    let is_of_image = ImageWaitReason::ALL.iter().any(|r| r.as_str() == reason);
    let what = match is_of_image {
        true => format!("container {} has no image {}", c.name, c.image),
        false => format!("container {} cannot start", c.name),
    };
    match why.trim() {
        "" => format!("{what}: {reason}"),
        why => format!("{what}: {reason}: {why}"),
    }
}

/// Returns why a pod has not started: an image pull that is running, or the last warning, or else the pod's status
/// word.
fn waits(pod: &PodView, now: Time) -> String {
    if let Some(pull) = pod.pulls.first() {
        return format!(
            "it waits for image {}: {}",
            pull.image,
            pull_text::stage(pull, now)
        );
    }
    let warning = pod
        .events
        .iter()
        .rev()
        .find(|e| e.type_ == EventType::Warning);
    match warning {
        Some(e) => format!("it has not started: {}: {}", e.reason, e.message),
        None => format!("it has not started: {}", columns::status_word(pod)),
    }
}

/// Returns the sentence about a paused probe that keeps a container unready, and the command that resumes the probe.
/// Only the paused probe could make the container ready.
fn paused(pod: &PodView, now: Time) -> Option<(String, String)> {
    let is_unready = |name: &str| !pod.status.container(name).is_some_and(|c| c.ready);
    let mut all = pod.paused.iter();
    let held = all.find(|p| p.probe_type != ProbeType::Liveness && is_unready(&p.container))?;
    let (container, what) = (&held.container, held.probe_type.word());
    let left = human::since(Some(now), held.until);
    let why = format!("not ready: the {what} probe of {container} is paused for another {left}");
    let namespace = match columns::namespace(pod) {
        "default" => String::new(),
        other => format!(" -n {other}"),
    };
    let name = columns::name(pod);
    let resume = format!("podprobe resume {name}/{container} {what}{namespace}");
    Some((why, resume))
}

fn not_ready(pod: &PodView, history: &PodHistory) -> String {
    let fails = |p: &&ProbeHistory| p.runs.back().is_some_and(|r| !is_pass(r.outcome));
    let unready = |name: &str| !pod.status.container(name).is_some_and(|c| c.ready);
    let mut probes: Vec<&ProbeHistory> = history
        .probes
        .iter()
        .filter(|p| unready(&p.container))
        .filter(fails)
        .collect();
    // A container that has not passed its startup probe runs no other probe.
    probes.sort_by_key(|p| match p.probe_type {
        ProbeType::Startup => 0,
        ProbeType::Readiness => 1,
        ProbeType::Liveness => 2,
    });
    let said = probes.first().and_then(|p| Some((p, p.runs.back()?)));
    match (said, pod.status.condition("Ready")) {
        (Some((p, run)), _) => {
            let what = p.probe_type.word();
            let verb = if run.outcome == RunOutcome::Errored {
                "cannot be run"
            } else {
                "fails"
            };
            format!(
                "not ready, the {what} probe of {} {verb}: {}",
                p.container,
                run.output.trim()
            )
        }
        (None, Some(ready)) if !ready.message.is_empty() => format!("not ready: {}", ready.message),
        _ => "not ready".into(),
    }
}

fn flapping(history: &PodHistory, now: Time) -> Option<String> {
    let is_late = |then: Time| now.unix_seconds() - then.unix_seconds() <= LATELY;
    let last = history.restarts.back()?;
    let same = history
        .restarts
        .iter()
        .filter(|r| r.container == last.container);
    let times = same.filter(|r| is_late(r.time)).count();
    (times >= MANY_RESTARTS).then(|| {
        format!(
            "container {} was restarted {times} times in 10 minutes: {}",
            last.container, last.cause
        )
    })
}

/// Returns the sentence about a liveness probe that has failed often enough to kill its container. Such a container
/// stays ready until it has ended, and its next instance may be ready at once.
fn dying(pod: &PodView, history: &PodHistory) -> Option<String> {
    let is_liveness = |p: &&ProbeHistory| p.probe_type == ProbeType::Liveness;
    let mut probes = history.probes.iter().filter(is_liveness);
    let probe = probes.find(|p| {
        let written = pod.probe(&p.container, p.probe_type).clone();
        let limit = json::from_value::<Probe>(&written).map_or(0, |p| p.failure_threshold);
        let limit = usize::try_from(limit).unwrap_or(0).clamp(1, MAX_RUNS);
        let failed = |r: &&Run| r.outcome == RunOutcome::Failure;
        p.runs.iter().rev().take_while(failed).count() >= limit
    })?;
    let said = probe.runs.back()?.output.trim();
    Some(format!(
        "the liveness probe of {} fails, so it is killed: {said}",
        probe.container
    ))
}
