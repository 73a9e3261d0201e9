//! The problems of the node and their causes: sentences sorted by how much they matter, each with its way out.
//!
//! Invariants: pure. A pod has one sentence, about the problem that matters most. A pod that is being stopped or has
//! done its work has no problem.

mod pods;
mod workloads;

use std::collections::{HashMap, HashSet};

use serde::Serialize;

pub use self::pods::of_pod;
use super::{Snapshot, columns};
use crate::base::clock::Time;
use crate::base::text::visible::one_line;
use crate::net::services::explain::PodTraffic;
use crate::net::services::view::ServiceView;
use crate::pods::history::{PodHistory, RunOutcome};
use crate::pods::sources::FileProblem;
use crate::workloads::view::WorkloadView;

/// How much a finding matters. The first severity matters most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Severity {
    /// The daemon no longer makes progress, so the shown state may be old.
    Stalled,
    /// The disk with the daemon's files is full.
    DiskFull,
    /// No pod starts on the node, by an order.
    Closed,
    /// A container ends again and again.
    CrashLoop,
    /// A file is refused, and no pod from it runs.
    Refused,
    /// A pod has failed for good.
    Failed,
    /// A container cannot be created or started, or has no image.
    CannotStart,
    /// A pod runs, but is not ready.
    NotReady,
    /// A pod is ready, but was restarted often in the last minutes, or is about to be killed by its liveness probe.
    Flapping,
    /// A file is refused, and its last good version runs.
    Outdated,
    /// A pod has not started yet.
    Waiting,
    /// A rollout made no progress until its deadline or fits in no way, a Job has failed, or a controller leaves its
    /// workload as it is.
    Workload,
    /// A service has no endpoints, or differs from what its file asks for.
    Service,
    /// A file is in use, but also has objects of a kind that podprobe does not run.
    NotRun,
}

/// A problem, as a sentence with a way out.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// How much the finding matters.
    pub severity: Severity,
    /// The object with the problem: `pod/NAME`, `service/NAME`, `deployment/NAME`, `job/NAME`, a file, or `podprobe`.
    pub subject: String,
    /// The problem and its cause.
    pub message: String,
    /// The remedy, or the command that shows more; empty if the message has it.
    pub way_out: String,
}

/// Everything from which findings are made.
pub struct Facts<'a> {
    /// The pods and files as they are now.
    pub snapshot: &'a Snapshot,
    /// The services as they are now.
    pub services: &'a [ServiceView],
    /// The workloads as they are now.
    pub workloads: &'a [WorkloadView],
    /// The histories of pods by UID; a pod without probes and restarts may be missing.
    pub histories: HashMap<&'a str, &'a PodHistory>,
    /// The sentence about a full disk; None if the disk is not full.
    pub disk: Option<String>,
    /// The time at which the facts were collected.
    pub now: Time,
}

/// Returns the findings, the worst first.
pub fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let snapshot = facts.snapshot;
    let stalled = snapshot
        .stalled
        .iter()
        .map(|why| finding(Severity::Stalled, "podprobe", why, ""));
    let disk = facts.disk.iter().map(|why| {
        finding(
            Severity::DiskFull,
            "podprobe",
            why,
            "podprobe image list shows what takes room; remove something",
        )
    });
    let closed = snapshot.closed.iter();
    // The sentence has the way out.
    let closed = closed.map(|why| finding(Severity::Closed, "podprobe", why, ""));
    let files = snapshot.problems.iter().map(|p| file(snapshot, p));
    let none = PodHistory::default();
    let mut wrong_pods: HashSet<(&str, &str)> = HashSet::new();
    let mut pods = Vec::new();
    for pod in &snapshot.pods {
        let history = facts.histories.get(pod.uid()).copied().unwrap_or(&none);
        if let Some(finding) = of_pod(pod, history, facts.now) {
            wrong_pods.insert((columns::namespace(pod), columns::name(pod)));
            pods.push(finding);
        }
    }
    // A service without endpoints is left out if all its pods have findings: the problem of the pods is the cause.
    let is_of_pods = |service: &&ServiceView| {
        let told = |pod: &PodTraffic| wrong_pods.contains(&(&pod.namespace, &pod.name));
        let has_own = !service.problems.is_empty() || service.pods.is_empty();
        !has_own && service.pods.iter().all(told)
    };
    let services = facts.services.iter().filter(|s| !is_of_pods(s));
    let services = services.filter_map(of_service);
    let mut all: Vec<Finding> = stalled
        .chain(disk)
        .chain(closed)
        .chain(files)
        .chain(pods)
        .chain(facts.workloads.iter().filter_map(workloads::of_workload))
        .chain(services)
        .collect();
    all.sort_by_key(|f| f.severity);
    all
}

fn finding(severity: Severity, subject: &str, message: &str, way_out: &str) -> Finding {
    Finding {
        severity,
        subject: one_line(subject),
        message: one_line(message.trim()),
        way_out: one_line(way_out),
    }
}

/// Returns the finding about a file. The subject of the finding has the place in the file.
fn file(snapshot: &Snapshot, problem: &FileProblem) -> Finding {
    if problem.is_in_use {
        // The error text has the way out.
        return finding(Severity::NotRun, &problem.file, &problem.error, "");
    }
    let has_pods = || snapshot.pods.iter().any(|p| p.file == problem.file);
    let severity = match problem.last_good_runs || has_pods() {
        true => Severity::Outdated,
        false => Severity::Refused,
    };
    let (line, what) = (problem.line(), problem.word());
    let parts = line.split_once(&format!(": {what}: "));
    let (place, error) = parts.unwrap_or((&problem.file, &problem.error));
    let way_out = match problem.is_valid {
        true => String::new(),
        false => format!("podprobe validate {}", problem.file),
    };
    finding(severity, place, &format!("{what}: {error}"), &way_out)
}

fn of_service(service: &ServiceView) -> Option<Finding> {
    let message = match service.problems.first() {
        Some(problem) => problem.clone(),
        None if !leads_nowhere(service) => return None,
        None => format!("its clients are sent nowhere: {}", why_nowhere(service)),
    };
    let way_out = describe("service", &service.namespace, &service.name);
    Some(finding(
        Severity::Service,
        &format!("service/{}", service.name),
        &message,
        &way_out,
    ))
}

/// Returns the command that shows more of an object.
fn describe(kind: &str, namespace: &str, name: &str) -> String {
    let namespace = match namespace {
        "default" => String::new(),
        other => format!(" -n {other}"),
    };
    format!("podprobe describe {kind} {name}{namespace}")
}

/// Returns true if the service has ports, but no port has an endpoint. Always false for a service of type
/// ExternalName.
pub fn leads_nowhere(service: &ServiceView) -> bool {
    let is_elsewhere = service.type_ == "ExternalName" || service.ports.is_empty();
    !is_elsewhere && service.ports.iter().all(|p| p.endpoints.is_empty())
}

fn why_nowhere(service: &ServiceView) -> String {
    let why = service.pods.iter().find(|p| !p.why.is_empty());
    match why {
        Some(pod) => format!("{}: {}", pod.name, pod.why.join("; ")),
        None if service.note.is_empty() => "it has no endpoints".into(),
        None => service.note.clone(),
    }
}

/// Returns true if a probe's run counts as good.
pub fn is_pass(outcome: RunOutcome) -> bool {
    matches!(outcome, RunOutcome::Success | RunOutcome::Warning)
}

#[cfg(test)]
mod tests;
