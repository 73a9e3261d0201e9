//! The pod that a word on the command line stands for, where the word may be a workload: `web`, `pod/web` or
//! `deployment/web`. Of a workload it is the pod that kubectl would choose.
//!
//! Invariants: pure, except for [`begun`] and [`resolve`], which ask the daemon.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::args::{Opt, Raw};
use super::client::Client;
use super::columns::string_map;
use super::error::CliError;
use super::workload_names::Named;
use super::{columns, follow, kinds, names};
use crate::api::PodPhase;
use crate::api::workload::LabelSelector;
use crate::base::clock::{Moment, Time, parse_go_duration};
use crate::face::views::workloads::{full_name, namespace, selector, time};
use crate::face::views::{PodView, Snapshot};
use crate::pods::admission::Rejection;
use crate::workloads::view::WorkloadView;

/// A pod or a workload on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The pod of this name.
    Pod(String),
    /// A pod of this workload.
    Workload(Named),
}

impl Target {
    /// Parses `NAME`, `pod/NAME` or `KIND/NAME` with a kind of workload.
    ///
    /// # Errors
    /// Returns a sentence if the word has another kind.
    pub fn parse(word: &str) -> Result<Self, String> {
        match Named::of_kind(word) {
            Some(named) => Ok(Self::Workload(named)),
            None => kinds::pod_name(word).map(Self::Pod),
        }
    }
}

/// Which of several pods of a workload is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The pod that `kubectl logs` chooses (podutils.ByLogging).
    Logs,
    /// The pod that `kubectl exec`, `attach` and `port-forward` choose (podutils.ActivePods, from its end).
    Attach,
}

/// Finds the pod of a target. If a workload has several pods, a line on `err` says which one it is.
///
/// # Errors
/// Returns a [`CliError`] if there is no such pod or workload, or if the daemon cannot be asked.
pub fn resolve<'s>(
    target: &Target,
    choice: Choice,
    client: &mut Client,
    (snapshot, namespace): (&'s Snapshot, Option<&str>),
    err: &mut dyn Write,
) -> Result<&'s PodView, CliError> {
    let named = match target {
        Target::Pod(name) => return Ok(names::resolve(snapshot, namespace, name)?),
        Target::Workload(named) => named,
    };
    let list = client.workloads(None)?;
    let view = named.find(&list.items, namespace);
    let pods = of(view.map_err(CliError::Failed)?, snapshot, choice).map_err(CliError::Failed)?;
    if pods.len() > 1 {
        writeln!(err, "{}", found(&pods))?;
    }
    Ok(pods[0])
}

/// Waits until a pod of the target has begun, at most for `limit`, and returns the pods as they are then. As with kubectl,
/// only a workload is waited for. What may still come is not known of a pod that waits for a reason of its own, so that
/// pod counts as one that has begun.
///
/// # Errors
/// Returns a [`CliError`] if there is no such workload, or if the daemon cannot be asked.
pub fn begun(
    target: &Target,
    limit: Duration,
    client: &mut Client,
    (root, namespace): (&Path, Option<&str>),
) -> Result<Arc<Snapshot>, CliError> {
    let snapshot = client.snapshot()?;
    let Target::Workload(named) = target else {
        return Ok(snapshot);
    };
    let list = client.workloads(None)?;
    let view = named.find(&list.items, namespace);
    let view = view.map_err(CliError::Failed)?;
    let Some(selector) = selector(view) else {
        return Ok(snapshot);
    };
    let has_one = |now: &Snapshot| selected(view, &selector, now).any(has_begun);
    if has_one(&snapshot) {
        return Ok(snapshot);
    }
    follow::pods(root, Moment::now() + limit, &mut |now| Ok(has_one(now)))?;
    Ok(client.snapshot()?)
}

/// The option `--pod-running-timeout`.
pub const RUNNING_TIMEOUT: Opt = Opt::value("pod-running-timeout", None);

/// Parses `--pod-running-timeout`: the longest wait for a pod of a workload.
///
/// # Errors
/// Returns a sentence if the time is not above zero, as kubectl wants it.
pub fn running_timeout(raw: &Raw, default: Duration) -> Result<Duration, String> {
    let Some(text) = raw.text(RUNNING_TIMEOUT.name)? else {
        return Ok(default);
    };
    match parse_go_duration(&text) {
        Ok(time) if !time.is_zero() => Ok(time),
        Ok(_) => Err("--pod-running-timeout must be higher than zero".into()),
        Err(e) => Err(format!("cannot use --pod-running-timeout: {e}")),
    }
}

/// True unless the containers of the pod have yet to be created, without an error so far.
fn has_begun(pod: &PodView) -> bool {
    let status = &pod.status;
    let all = status.init_container_statuses.iter();
    let mut all = all.chain(&status.container_statuses);
    let is_to_come = |reason: &str| matches!(reason, "ContainerCreating" | "PodInitializing");
    status.phase != PodPhase::Pending
        || Rejection::of(status).is_some()
        || all.any(|container| match &container.state.waiting {
            Some(waiting) => !is_to_come(&waiting.reason),
            None => true,
        })
}

/// Returns the pods that a workload selects.
fn selected<'s>(
    view: &WorkloadView,
    selector: &LabelSelector,
    snapshot: &'s Snapshot,
) -> impl Iterator<Item = &'s PodView> {
    let is_selected = move |pod: &&PodView| {
        let labels = string_map(&pod.object["metadata"]["labels"]);
        let owned = |(k, v): (&str, &str)| (k.to_owned(), v.to_owned());
        let labels: BTreeMap<String, String> = labels.into_iter().map(owned).collect();
        columns::namespace(pod) == namespace(view) && selector.matches(&labels)
    };
    snapshot.pods.iter().map(AsRef::as_ref).filter(is_selected)
}

/// Returns kubectl's sentence about the pod that was chosen.
pub fn found(pods: &[&PodView]) -> String {
    let name = pods.first().map_or("", |pod| columns::name(pod));
    format!("Found {} pods, using pod/{name}", pods.len())
}

/// Returns the pods that the workload selects, the chosen one first. The list is never empty.
///
/// # Errors
/// Returns a sentence if the workload has no pods.
pub fn of<'s>(
    view: &WorkloadView,
    snapshot: &'s Snapshot,
    choice: Choice,
) -> Result<Vec<&'s PodView>, String> {
    let name = full_name(view);
    let Some(selector) = selector(view) else {
        return Err(format!(
            "{name} has no pods of its own; name one of its jobs, which 'podprobe get jobs' lists"
        ));
    };
    let mut pods: Vec<&PodView> = selected(view, &selector, snapshot).collect();
    pods.sort_by(|a, b| match choice {
        Choice::Logs => by_logging(a, b),
        Choice::Attach => by_activity(a, b),
    });
    match (pods.is_empty(), &view.waiting) {
        (false, _) => Ok(pods),
        (true, Some(waiting)) => Err(format!("{name} has no pods: {waiting}")),
        (true, None) => Err(format!("{name} has no pods")),
    }
}

/// Orders pods for `logs`. As with kubectl, a pod that has ended ranks as one that runs.
fn by_logging(a: &PodView, b: &PodView) -> Ordering {
    let phase = |pod: &PodView| match pod.status.phase {
        PodPhase::Pending => 2,
        PodPhase::Unknown => 1,
        _ => 0,
    };
    let key = |pod: &PodView| (phase(pod), Reverse(pod.status.is_ready()), ready_since(pod));
    let later = |pod: &PodView| (Reverse(restarts(pod)), created(pod));
    key(a).cmp(&key(b)).then_with(|| later(a).cmp(&later(b)))
}

/// Orders pods for `exec` and its like: a running and ready pod that is not being deleted, the longest ready one first.
fn by_activity(a: &PodView, b: &PodView) -> Ordering {
    let phase = |pod: &PodView| match pod.status.phase {
        PodPhase::Running => 0,
        PodPhase::Unknown => 1,
        _ => 2,
    };
    let deleted = |pod: &PodView| {
        let at = time(&pod.object["metadata"]["deletionTimestamp"]);
        (columns::is_terminating(pod), Reverse(at))
    };
    let key = |pod: &PodView| {
        let is_ready = Reverse(pod.status.is_ready());
        (phase(pod), is_ready, deleted(pod), ready_since(pod))
    };
    let later = |pod: &PodView| (restarts(pod), created(pod));
    key(a).cmp(&key(b)).then_with(|| later(a).cmp(&later(b)))
}

/// Returns a sort key that is smaller for a pod that has been ready for longer, and greatest for an unknown time.
fn ready_since(pod: &PodView) -> (bool, Option<Time>) {
    let condition = pod.status.condition("Ready");
    let ready = condition.filter(|c| c.status == "True");
    let since = ready.and_then(|c| c.last_transition_time);
    (since.is_none(), since)
}

/// Returns the restarts of the worst container and of the worst sidecar.
fn restarts(pod: &PodView) -> (u32, u32) {
    let sidecars = pod.object["spec"]["initContainers"].as_array();
    let is_sidecar = |name: &str| {
        let mut all = sidecars.into_iter().flatten();
        all.any(|c| c["name"] == name && c["restartPolicy"] == "Always")
    };
    let regular = pod.status.container_statuses.iter();
    let init = pod.status.init_container_statuses.iter();
    let worst_regular = regular.map(|c| c.restart_count).max();
    let worst_sidecar = init
        .filter(|c| is_sidecar(&c.name))
        .map(|c| c.restart_count)
        .max();
    (
        worst_regular.unwrap_or_default(),
        worst_sidecar.unwrap_or_default(),
    )
}

/// Returns a sort key that is smaller for an older pod, and greatest for an unknown age.
fn created(pod: &PodView) -> (bool, Option<Time>) {
    let at = time(&pod.object["metadata"]["creationTimestamp"]).or(pod.status.start_time);
    (at.is_none(), at)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A pod with labels that the workload selects. `ready` is the minute since which it is ready.
    fn pod(name: &str, phase: &str, ready: Option<u8>, restarts: u32, created: u8) -> Value {
        let status = if ready.is_some() { "True" } else { "False" };
        let at = |minute: u8| format!("2026-01-01T00:{minute:02}:00Z");
        let condition =
            json!({"type": "Ready", "status": status, "lastTransitionTime": ready.map(at)});
        json!({"object": {"metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": "web"},
                "creationTimestamp": at(created)}},
            "status": {"phase": phase, "conditions": [condition],
                "containerStatuses": [{"name": "c", "restartCount": restarts}]},
            "file": "", "warnings": [], "terminating": false, "logDir": "", "events": []})
    }

    fn workload(kind: &str) -> WorkloadView {
        let mut object = json!({"kind": kind, "metadata": {"name": "web"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}}});
        if kind == "CronJob" {
            object["spec"] = json!({});
        }
        WorkloadView {
            object: object.into(),
            ..WorkloadView::default()
        }
    }

    #[track_caller]
    fn check(pods: &[Value], choice: Choice, expected: &[&str]) {
        let snapshot = json!({"version": 1, "nodeName": "edge", "pods": pods, "problems": []});
        let snapshot: Snapshot = serde_json::from_value(snapshot).unwrap();
        let pods = of(&workload("Deployment"), &snapshot, choice).unwrap();
        let names: Vec<&str> = pods.iter().map(|pod| columns::name(pod)).collect();
        assert_eq!(names, expected);
    }

    #[test]
    fn a_pod_has_begun_when_a_container_of_it_runs_or_cannot_be_created() {
        #[track_caller]
        fn check(phase: &str, state: Value, expected: bool) {
            let mut pod = pod("a", phase, None, 0, 1);
            pod["status"]["containerStatuses"][0]["state"] = state;
            let pod: PodView = serde_json::from_value(pod).unwrap();
            assert_eq!(has_begun(&pod), expected);
        }
        let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
        check("Pending", waiting("ContainerCreating"), false);
        check("Pending", waiting("PodInitializing"), false);
        check("Pending", waiting("ImagePullBackOff"), true);
        check("Pending", json!({"running": {"startedAt": null}}), true);
        check("Running", waiting("ContainerCreating"), true);
    }

    #[test]
    fn the_first_pod_is_the_one_that_kubectl_chooses() {
        let both = |pods: &[Value], expected: &[&str]| {
            check(pods, Choice::Logs, expected);
            check(pods, Choice::Attach, expected);
        };
        let pending = pod("pending", "Pending", None, 0, 1);
        let unready = pod("unready", "Running", None, 0, 1);
        let ready = pod("ready", "Running", Some(5), 0, 5);
        both(
            &[pending, unready.clone(), ready.clone()],
            &["ready", "unready", "pending"],
        );
        let longer = pod("longer", "Running", Some(3), 0, 5);
        both(&[ready.clone(), longer], &["longer", "ready"]);
        let older = pod("older", "Running", Some(5), 0, 2);
        both(&[ready.clone(), older], &["older", "ready"]);
        // The two orders differ: logs are most interesting where something went wrong.
        let restarted = pod("restarted", "Running", Some(5), 3, 5);
        let two = [ready.clone(), restarted];
        check(&two, Choice::Logs, &["restarted", "ready"]);
        check(&two, Choice::Attach, &["ready", "restarted"]);
        let ended = pod("ended", "Failed", None, 0, 1);
        let two = [pod("unknown", "Unknown", None, 0, 1), ended];
        check(&two, Choice::Logs, &["ended", "unknown"]);
        check(&two, Choice::Attach, &["unknown", "ended"]);
        let mut leaving = pod("leaving", "Running", Some(1), 0, 1);
        leaving["terminating"] = true.into();
        check(&[leaving, ready], Choice::Attach, &["ready", "leaving"]);
    }

    #[test]
    fn only_pods_that_are_selected_count() {
        let mut elsewhere = pod("elsewhere", "Running", Some(1), 0, 1);
        elsewhere["object"]["metadata"]["namespace"] = "shop".into();
        let mut other = pod("other", "Running", Some(1), 0, 1);
        other["object"]["metadata"]["labels"] = json!({"app": "db"});
        let own = pod("own", "Running", Some(1), 0, 1);
        check(&[elsewhere, other, own], Choice::Logs, &["own"]);
        let none = Snapshot::default();
        let why = |view: &WorkloadView| of(view, &none, Choice::Logs).unwrap_err();
        let mut view = workload("Deployment");
        assert_eq!(why(&view), "deployment.apps/web has no pods");
        view.waiting = Some("no room".into());
        assert_eq!(why(&view), "deployment.apps/web has no pods: no room");
        let jobs = "cronjob.batch/web has no pods of its own; name one of its jobs, which 'podprobe get jobs' lists";
        assert_eq!(why(&workload("CronJob")), jobs);
    }
}
