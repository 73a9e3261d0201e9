//! The metrics of workloads, under the names, types and labels of kube-state-metrics, so that dashboards and rules for
//! kube-state-metrics work.
//!
//! Invariants: pure. A series exists while its workload exists, and a kind without workloads has no family. Every family
//! is a gauge, as in kube-state-metrics. A field that the object does not have gives no series, or the API server's
//! default.

use serde_json::Value;

use super::kube_state::{gauge, more, seconds, truth};
use super::workloads::{condition, kind, name, namespace, number, time};
use crate::api::workload::WorkloadKind::{
    CronJob, DaemonSet, Deployment, Job, ReplicaSet, ReplicationController, StatefulSet,
};
use crate::api::workload::{IntOrPercent, WorkloadKind};
use crate::base::json;
use crate::base::metrics::pairs;
use crate::workloads::view::WorkloadView;

/// A family with the value of one field.
struct Field {
    kinds: &'static [WorkloadKind],
    /// The name after `kube_KIND_`.
    suffix: &'static str,
    help: &'static str,
    /// The JSON pointer of the field.
    pointer: &'static str,
    /// The value of a missing field; None gives no series.
    default: Option<u64>,
}

/// Makes a field that counts as 0 when it is missing.
const fn count(
    kinds: &'static [WorkloadKind],
    suffix: &'static str,
    pointer: &'static str,
    help: &'static str,
) -> Field {
    Field {
        default: Some(0),
        ..known(kinds, suffix, pointer, help)
    }
}

/// Makes a field that gives no series when it is missing.
const fn known(
    kinds: &'static [WorkloadKind],
    suffix: &'static str,
    pointer: &'static str,
    help: &'static str,
) -> Field {
    Field {
        kinds,
        suffix,
        help,
        pointer,
        default: None,
    }
}

/// The kinds whose objects have a generation in kube-state-metrics.
const GENERATIONS: &[WorkloadKind] = &[
    Deployment,
    ReplicaSet,
    ReplicationController,
    DaemonSet,
    StatefulSet,
];
const ROLLOUTS: &[WorkloadKind] = &[Deployment, StatefulSet];
const SETS: &[WorkloadKind] = &[ReplicaSet, ReplicationController];
const REPLICAS: &[WorkloadKind] = &[Deployment, ReplicaSet, ReplicationController, StatefulSet];
const DAEMON_SETS: &[WorkloadKind] = &[DaemonSet];
const JOBS: &[WorkloadKind] = &[Job];
const CRON_JOBS: &[WorkloadKind] = &[CronJob];

#[rustfmt::skip]
const FIELDS: [Field; 39] = [
    known(&WorkloadKind::ALL, "created", "/metadata/creationTimestamp", "When the object was made, in seconds since 1970."),
    count(GENERATIONS, "metadata_generation", "/metadata/generation", "Number of the object's version in the file."),
    count(GENERATIONS, "status_observed_generation", "/status/observedGeneration", "Number of the version that the controller has seen."),
    count(REPLICAS, "status_replicas", "/status/replicas", "Pods that there are."),
    known(&[Deployment, ReplicaSet, ReplicationController], "spec_replicas", "/spec/replicas", "Pods that there should be."),
    known(&[StatefulSet], "replicas", "/spec/replicas", "Pods that there should be."),
    count(ROLLOUTS, "status_replicas_ready", "/status/readyReplicas", "Pods that are ready."),
    count(ROLLOUTS, "status_replicas_available", "/status/availableReplicas", "Pods that have been ready for long enough."),
    count(ROLLOUTS, "status_replicas_updated", "/status/updatedReplicas", "Pods of the newest template."),
    count(&[Deployment], "status_replicas_unavailable", "/status/unavailableReplicas", "Pods that are missing or not available."),
    count(&[Deployment], "spec_paused", "/spec/paused", "Whether rollouts are paused."),
    count(SETS, "status_ready_replicas", "/status/readyReplicas", "Pods that are ready."),
    count(SETS, "status_fully_labeled_replicas", "/status/fullyLabeledReplicas", "Pods with all labels of the template."),
    count(&[ReplicationController], "status_available_replicas", "/status/availableReplicas", "Pods that have been ready for long enough."),
    known(&[ReplicaSet], "status_terminating_replicas", "/status/terminatingReplicas", "Pods that are ending."),
    count(&[StatefulSet], "status_replicas_current", "/status/currentReplicas", "Pods of the template before a rollout."),
    known(&[StatefulSet], "ordinals_start", "/spec/ordinals/start", "Number of the first pod."),
    count(DAEMON_SETS, "status_current_number_scheduled", "/status/currentNumberScheduled", "Nodes that have a pod and should have one: 0 or 1."),
    count(DAEMON_SETS, "status_desired_number_scheduled", "/status/desiredNumberScheduled", "Nodes that should have a pod: 0 or 1."),
    count(DAEMON_SETS, "status_number_available", "/status/numberAvailable", "Nodes whose pod has been ready for long enough: 0 or 1."),
    count(DAEMON_SETS, "status_number_misscheduled", "/status/numberMisscheduled", "Nodes that have a pod and should have none: 0 or 1."),
    count(DAEMON_SETS, "status_number_ready", "/status/numberReady", "Nodes whose pod is ready: 0 or 1."),
    count(DAEMON_SETS, "status_number_unavailable", "/status/numberUnavailable", "Nodes whose pod is missing or not available: 0 or 1."),
    count(DAEMON_SETS, "status_updated_number_scheduled", "/status/updatedNumberScheduled", "Nodes whose pod has the newest template: 0 or 1."),
    known(JOBS, "spec_parallelism", "/spec/parallelism", "Largest number of pods at a time."),
    known(JOBS, "spec_completions", "/spec/completions", "Pods that must succeed."),
    known(JOBS, "spec_active_deadline_seconds", "/spec/activeDeadlineSeconds", "Longest time that the Job may take."),
    count(JOBS, "status_active", "/status/active", "Pods that have not ended."),
    count(JOBS, "status_ready", "/status/ready", "Pods that are ready."),
    count(JOBS, "status_succeeded", "/status/succeeded", "Pods that have succeeded."),
    known(JOBS, "status_start_time", "/status/startTime", "When the Job began, in seconds since 1970."),
    known(JOBS, "status_completion_time", "/status/completionTime", "When the Job was complete, in seconds since 1970."),
    count(CRON_JOBS, "status_active", "/status/active", "Jobs that have not ended."),
    count(CRON_JOBS, "spec_suspend", "/spec/suspend", "Whether no Jobs are started."),
    known(CRON_JOBS, "status_last_schedule_time", "/status/lastScheduleTime", "Scheduled time of the last Job, in seconds since 1970."),
    known(CRON_JOBS, "status_last_successful_time", "/status/lastSuccessfulTime", "When a Job was complete last, in seconds since 1970."),
    known(CRON_JOBS, "spec_starting_deadline_seconds", "/spec/startingDeadlineSeconds", "How late a Job may start."),
    known(CRON_JOBS, "spec_successful_job_history_limit", "/spec/successfulJobsHistoryLimit", "Complete Jobs that are kept."),
    known(CRON_JOBS, "spec_failed_job_history_limit", "/spec/failedJobsHistoryLimit", "Failed Jobs that are kept."),
];

/// The further labels of a series, with a leading comma, and its value.
type Series = (String, u64);

/// A family whose series have labels of their own, or whose value is computed.
struct Listed {
    kinds: &'static [WorkloadKind],
    /// The name after `kube_KIND_`.
    suffix: &'static str,
    help: &'static str,
    series: fn(&WorkloadView) -> Vec<Series>,
}

#[rustfmt::skip]
const LISTED: [Listed; 14] = [
    Listed { kinds: &[ReplicaSet, ReplicationController, Job], suffix: "owner", help: "The object that has made this one.", series: owners },
    Listed { kinds: &[Deployment], suffix: "status_condition", help: "Conditions, and why they are so.", series: conditions },
    Listed { kinds: &[Deployment], suffix: "spec_strategy_rollingupdate_max_unavailable", help: "Pods that may be missing in a rollout.", series: |v| limit(v, "maxUnavailable", false) },
    Listed { kinds: &[Deployment], suffix: "spec_strategy_rollingupdate_max_surge", help: "Pods that a rollout may have above the replicas.", series: |v| limit(v, "maxSurge", true) },
    Listed { kinds: &[StatefulSet], suffix: "status_current_revision", help: "Revision of the template before a rollout.", series: |v| revision(v, "currentRevision") },
    Listed { kinds: &[StatefulSet], suffix: "status_update_revision", help: "Revision of the newest template.", series: |v| revision(v, "updateRevision") },
    Listed { kinds: &[StatefulSet], suffix: "persistentvolumeclaim_retention_policy", help: "What becomes of claims.", series: claim_policy },
    Listed { kinds: JOBS, suffix: "info", help: "The Job.", series: |_| one(String::new(), 1) },
    Listed { kinds: JOBS, suffix: "complete", help: "Whether the Job is complete.", series: |v| of_job(v, "Complete") },
    Listed { kinds: JOBS, suffix: "failed", help: "Whether the Job has failed.", series: |v| of_job(v, "Failed") },
    Listed { kinds: JOBS, suffix: "status_failed", help: "Pods that have failed; with a reason, whether the Job failed for it.", series: failures },
    Listed { kinds: JOBS, suffix: "status_suspended", help: "Whether the Job is suspended.", series: suspended },
    Listed { kinds: CRON_JOBS, suffix: "info", help: "The CronJob and its schedule.", series: schedule },
    Listed { kinds: CRON_JOBS, suffix: "next_schedule_time", help: "Time for which the next Job is due, in seconds since 1970; in the past if it is late.", series: next_time },
];

/// Appends the metric families of all workloads.
pub fn write_workloads(all: &[WorkloadView], out: &mut String) {
    for of_kind in WorkloadKind::ALL {
        let views = all.iter().filter(|view| kind(view) == Some(of_kind));
        let views: Vec<(String, &WorkloadView)> = views.map(|v| (labels(of_kind, v), v)).collect();
        if views.is_empty() {
            continue;
        }
        let prefix = format!("kube_{}_", of_kind.resource());
        for field in FIELDS.iter().filter(|f| f.kinds.contains(&of_kind)) {
            let name = format!("{prefix}{}", field.suffix);
            let mut family = gauge(out, &name, field.help);
            for (labels, view) in &views {
                let value = view.object.pointer(field.pointer).and_then(value_of);
                if let Some(value) = value.or(field.default) {
                    family.value_of(&[labels], value);
                }
            }
        }
        for listed in LISTED.iter().filter(|f| f.kinds.contains(&of_kind)) {
            let name = format!("{prefix}{}", listed.suffix);
            let mut family = gauge(out, &name, listed.help);
            for (labels, view) in &views {
                for (further, value) in (listed.series)(view) {
                    family.value_of(&[labels, &further], value);
                }
            }
        }
    }
}

/// Returns the labels of a workload: `deployment="web",namespace="default"`. A Job's label is `job_name`, because
/// Prometheus itself sets `job`.
fn labels(kind: WorkloadKind, view: &WorkloadView) -> String {
    let label = match kind {
        Job => "job_name",
        other => other.resource(),
    };
    pairs(&[("namespace", namespace(view)), (label, name(view))])
}

/// Returns the value of a field: a number, 1 for true, the length of a list, or a time in seconds since 1970.
fn value_of(value: &Value) -> Option<u64> {
    match value {
        Value::Bool(is) => Some((*is).into()),
        Value::Array(all) => Some(all.len() as u64),
        Value::String(_) => time(value).map(seconds),
        _ => value.as_u64(),
    }
}

fn one(labels: String, value: u64) -> Vec<Series> {
    vec![(labels, value)]
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns a series for each owner. An object without an owner has one series with empty labels.
fn owners(view: &WorkloadView) -> Vec<Series> {
    let owners = view.object["metadata"]["ownerReferences"].as_array();
    match owners.filter(|all| !all.is_empty()) {
        Some(all) => all.iter().map(owner).collect(),
        None => one(owner_labels("", "", ""), 1),
    }
}

fn owner(reference: &Value) -> Series {
    let is_controller = truth(reference["controller"] == true);
    let (kind, name) = (text(&reference["kind"]), text(&reference["name"]));
    (owner_labels(is_controller, kind, name), 1)
}

/// Returns the labels of an owner, with a leading comma.
fn owner_labels(is_controller: &str, kind: &str, name: &str) -> String {
    more(&[
        ("owner_is_controller", is_controller),
        ("owner_kind", kind),
        ("owner_name", name),
    ])
}

/// Returns the three series of a condition, of which the one with its status is 1.
fn statuses<'a>(
    condition: &'a Value,
    label: &'a str,
    others: &'a [(&'a str, &'a str)],
) -> impl Iterator<Item = Series> + 'a {
    let status = text(&condition["status"]);
    ["true", "false", "unknown"].into_iter().map(move |answer| {
        let labels = [others, &[(label, answer)]].concat();
        let is = status.eq_ignore_ascii_case(answer);
        (more(&labels), is.into())
    })
}

fn conditions(view: &WorkloadView) -> Vec<Series> {
    let mut found = Vec::new();
    let all = view.object["status"]["conditions"].as_array();
    for condition in all.into_iter().flatten() {
        let others = [
            ("condition", text(&condition["type"])),
            ("reason", text(&condition["reason"])),
        ];
        found.extend(statuses(condition, "status", &others));
    }
    found
}

/// Returns the number of pods that `maxSurge` or `maxUnavailable` of a rolling update is.
fn limit(view: &WorkloadView, field: &str, round_up: bool) -> Vec<Series> {
    let spec = &view.object["spec"];
    let written = &spec["strategy"]["rollingUpdate"][field];
    let replicas = i32::try_from(number(&spec["replicas"])).unwrap_or(i32::MAX);
    let limit: Option<IntOrPercent> = json::from_value(written).ok();
    let limit = limit.and_then(|limit| limit.of(replicas, round_up));
    let limit = limit.and_then(|limit| u64::try_from(limit).ok());
    limit.map_or_else(Vec::new, |limit| one(String::new(), limit))
}

fn revision(view: &WorkloadView, field: &str) -> Vec<Series> {
    let revision = text(&view.object["status"][field]);
    one(more(&[("revision", revision)]), 1)
}

fn claim_policy(view: &WorkloadView) -> Vec<Series> {
    let policy = &view.object["spec"]["persistentVolumeClaimRetentionPolicy"];
    let labels = [
        ("when_deleted", text(&policy["whenDeleted"])),
        ("when_scaled", text(&policy["whenScaled"])),
    ];
    match policy.is_object() {
        true => one(more(&labels), 1),
        false => Vec::new(),
    }
}

fn of_job(view: &WorkloadView, type_: &str) -> Vec<Series> {
    let condition = condition(&view.object, type_);
    condition.map_or_else(Vec::new, |c| statuses(c, "condition", &[]).collect())
}

/// The reasons of a failed Job that have a series of their own.
const REASONS: [&str; 3] = ["BackoffLimitExceeded", "DeadlineExceeded", "Evicted"];

fn failures(view: &WorkloadView) -> Vec<Series> {
    let failed = u64::try_from(number(&view.object["status"]["failed"])).unwrap_or(0);
    let reason = condition(&view.object, "Failed").map(|c| text(&c["reason"]));
    match reason {
        _ if failed == 0 => one(String::new(), 0),
        Some(known) if REASONS.contains(&known) => REASONS
            .map(|reason| (more(&[("reason", reason)]), (reason == known).into()))
            .into(),
        _ => one(more(&[("reason", "")]), failed),
    }
}

fn suspended(view: &WorkloadView) -> Vec<Series> {
    let condition = condition(&view.object, "Suspended");
    condition.map_or_else(Vec::new, |c| {
        one(String::new(), (c["status"] == "True").into())
    })
}

fn schedule(view: &WorkloadView) -> Vec<Series> {
    let spec = &view.object["spec"];
    let labels = [
        ("concurrency_policy", text(&spec["concurrencyPolicy"])),
        ("schedule", text(&spec["schedule"])),
        ("timezone", spec["timeZone"].as_str().unwrap_or("local")),
    ];
    one(more(&labels), 1)
}

fn next_time(view: &WorkloadView) -> Vec<Series> {
    let next = view.next_schedule_time.as_deref().map(Value::from);
    let next = next.as_ref().and_then(value_of);
    next.map_or_else(Vec::new, |next| one(String::new(), next))
}

#[cfg(test)]
mod tests;
