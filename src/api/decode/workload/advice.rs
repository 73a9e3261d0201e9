//! Warnings for the person who wrote a workload that may run, but perhaps not as the person meant.

use jiff::Timestamp;
use serde_json::Value;

use crate::api::field::{FieldError, FieldErrorKind};
use crate::api::validation::SELECTOR_MISSES_TEMPLATE;
use crate::api::workload::{CronJobSpec, StatefulSetSpec, Workload, WorkloadSpec};
use crate::base::cron::{Schedule, Zones};

/// 1 January 2024, in seconds since 1970.
const LEAP_YEAR: i64 = 1_704_067_200;

/// Shortest deadline in seconds that a late look at the clock does not miss.
const SAFE_DEADLINE: i64 = 10;

/// Returns a warning for each field of the template's metadata that has no effect on its pods (workloads 1.4).
pub(super) fn template_identity(template: &Value) -> Vec<String> {
    let fields = ["name", "generateName", "namespace", "uid"];
    let is_given = |field: &&str| !template["metadata"][*field].is_null();
    let text = |field: &str| {
        format!(
            "metadata.{field}: not acted on: pods get their name and namespace from the workload"
        )
    };
    fields.into_iter().filter(is_given).map(text).collect()
}

/// Adds what to write to an error whose text does not say it.
pub(super) fn with_way_out(error: FieldError, workload: &Workload) -> FieldError {
    let has_selector = || workload.raw.at("/spec/selector").is_some();
    let way_out = match (error.path.as_str(), error.kind) {
        ("spec.selector", FieldErrorKind::Required) => {
            "write matchLabels with labels of the template"
        }
        (_, FieldErrorKind::Invalid) if error.detail == SELECTOR_MISSES_TEMPLATE => {
            match has_selector() {
                true => "give the template the labels of spec.selector",
                false => "write spec.selector with labels of the template",
            }
        }
        _ => return error,
    };
    let detail = match error.detail.as_str() {
        "" => way_out.to_owned(),
        detail => format!("{detail}; {way_out}"),
    };
    FieldError { detail, ..error }
}

/// Returns advice on a valid workload.
pub(super) fn workload(workload: &Workload) -> Vec<String> {
    let mut warnings = match &workload.spec {
        WorkloadSpec::StatefulSet(spec) => stateful_set(spec),
        WorkloadSpec::CronJob(spec) => cron_job(spec),
        _ => Vec::new(),
    };
    warnings.extend(one_port_for_many(workload));
    warnings
}

/// Returns a warning for several pods that all need the same port of the node (workloads 3.20).
fn one_port_for_many(workload: &Workload) -> Option<String> {
    let replicas = match &workload.spec {
        WorkloadSpec::Deployment(spec) => spec.replicas,
        WorkloadSpec::ReplicaSet(spec) | WorkloadSpec::ReplicationController(spec) => spec.replicas,
        WorkloadSpec::StatefulSet(spec) => spec.replicas,
        _ => return None,
    };
    let containers = &workload.template().spec.containers;
    let mut ports = containers.iter().flat_map(|container| &container.ports);
    let port = ports.find(|port| port.host_port > 0)?.host_port;
    let waiting = replicas.saturating_sub(1);
    (waiting > 0).then(|| {
        format!("spec.replicas: hostPort {port} has room for one pod on this node; {waiting} of {replicas} pods will wait")
    })
}

fn stateful_set(spec: &StatefulSetSpec) -> Vec<String> {
    let rolling = spec.update_strategy.rolling_update.as_ref();
    let limit = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
    let warning = limit.map(|_| {
        "spec.updateStrategy.rollingUpdate.maxUnavailable: not acted on: one pod is updated at a time, as in Kubernetes without the feature gate MaxUnavailableStatefulSet".to_owned()
    });
    warning.into_iter().collect()
}

fn cron_job(spec: &CronJobSpec) -> Vec<String> {
    let deadline = spec.starting_deadline_seconds;
    let short = deadline.filter(|seconds| (0..SAFE_DEADLINE).contains(seconds));
    let warning = short.map(|seconds| {
        format!("spec.startingDeadlineSeconds: {seconds} s is short: a Job that the node cannot start within it is skipped")
    });
    warning.into_iter().chain(never_comes(spec)).collect()
}

/// Returns a warning for a schedule that names a day that does not exist, such as the 30th of February (workloads 7.6).
/// The years from 2024 on are searched, of which the first has the 29th of February.
fn never_comes(spec: &CronJobSpec) -> Option<String> {
    let schedule = Schedule::parse(&spec.schedule, &Zones::of_node()).ok()?;
    let from = Timestamp::from_second(LEAP_YEAR).ok()?;
    schedule.never_comes(from).then(|| {
        format!(
            "spec.schedule: no day matches {:?}: the Job never runs",
            spec.schedule
        )
    })
}
