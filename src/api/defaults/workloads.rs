//! The defaults of workloads (pkg/apis/apps/v1/defaults.go, pkg/apis/batch/v1/defaults.go).
//!
//! Invariant: the defaults of a CronJob leave the fields of its Jobs alone, as upstream does: a Job gets its defaults
//! when it is made.

use serde_json::{Value, json};

use super::{Object, default_text, objects, spec_of};
use crate::api::workload::WorkloadKind;

/// Number of failures of a Job whose indexes have limits of their own, which means no limit.
const NO_BACKOFF_LIMIT: i32 = i32::MAX;

/// Adds the defaults to a workload, except the defaults of its pod template.
pub fn apply_to_workload(kind: WorkloadKind, object: &mut Value) {
    inherit_labels(kind, object);
    let Some(spec) = spec_of(object) else {
        return;
    };
    match kind {
        WorkloadKind::Deployment => deployment(spec),
        WorkloadKind::ReplicaSet | WorkloadKind::ReplicationController => {
            number(spec, "replicas", 1)
        }
        WorkloadKind::DaemonSet => daemon_set(spec),
        WorkloadKind::StatefulSet => stateful_set(spec),
        WorkloadKind::Job => job(spec),
        WorkloadKind::CronJob => cron_job(spec),
    }
}

fn deployment(spec: &mut Object) {
    number(spec, "replicas", 1);
    rolling_update(
        spec,
        "strategy",
        [("maxUnavailable", json!("25%")), ("maxSurge", json!("25%"))],
    );
    number(spec, "revisionHistoryLimit", 10);
    number(spec, "progressDeadlineSeconds", 600);
}

fn daemon_set(spec: &mut Object) {
    rolling_update(
        spec,
        "updateStrategy",
        [("maxUnavailable", json!(1)), ("maxSurge", json!(0))],
    );
    number(spec, "revisionHistoryLimit", 10);
}

/// Adds the defaults of a strategy: the type, and the limits of a rolling update.
fn rolling_update(spec: &mut Object, strategy: &str, limits: [(&str, Value); 2]) {
    let Some(strategy) = object_in(spec, strategy) else {
        return;
    };
    default_text(strategy, "type", "RollingUpdate");
    if strategy["type"] != "RollingUpdate" {
        return;
    }
    if let Some(rolling) = object_in(strategy, "rollingUpdate") {
        for (limit, value) in limits {
            rolling.entry(limit).or_insert(value);
        }
    }
}

fn stateful_set(spec: &mut Object) {
    default_text(spec, "podManagementPolicy", "OrderedReady");
    if let Some(strategy) = object_in(spec, "updateStrategy") {
        let has_type = strategy.get("type").is_some_and(|text| text != "");
        default_text(strategy, "type", "RollingUpdate");
        if !has_type {
            strategy.entry("rollingUpdate").or_insert_with(|| json!({}));
        }
        // A type that is written without `rollingUpdate` gets no partition.
        let is_rolling = strategy["type"] == "RollingUpdate";
        let rolling = strategy.get_mut("rollingUpdate").filter(|_| is_rolling);
        if let Some(rolling) = rolling.and_then(Value::as_object_mut) {
            number(rolling, "partition", 0);
        }
    }
    if let Some(retention) = object_in(spec, "persistentVolumeClaimRetentionPolicy") {
        default_text(retention, "whenDeleted", "Retain");
        default_text(retention, "whenScaled", "Retain");
    }
    number(spec, "replicas", 1);
    number(spec, "revisionHistoryLimit", 10);
}

fn job(spec: &mut Object) {
    if !spec.contains_key("completions") && !spec.contains_key("parallelism") {
        number(spec, "completions", 1);
    }
    number(spec, "parallelism", 1);
    let limit = match spec.contains_key("backoffLimitPerIndex") {
        true => NO_BACKOFF_LIMIT,
        false => 6,
    };
    number(spec, "backoffLimit", limit);
    spec.entry("completionMode").or_insert(json!("NonIndexed"));
    spec.entry("suspend").or_insert(json!(false));
    let replacement = match spec.contains_key("podFailurePolicy") {
        true => "Failed",
        false => "TerminatingOrFailed",
    };
    spec.entry("podReplacementPolicy")
        .or_insert(json!(replacement));
    spec.entry("manualSelector").or_insert(json!(false));
    condition_patterns(spec);
}

fn cron_job(spec: &mut Object) {
    default_text(spec, "concurrencyPolicy", "Allow");
    spec.entry("suspend").or_insert(json!(false));
    number(spec, "successfulJobsHistoryLimit", 3);
    number(spec, "failedJobsHistoryLimit", 1);
    let job = spec
        .get_mut("jobTemplate")
        .and_then(|job| job.get_mut("spec"));
    if let Some(job) = job.and_then(Value::as_object_mut) {
        condition_patterns(job);
    }
}

/// Adds the default of each pattern of a pod condition: its status is True.
fn condition_patterns(job: &mut Object) {
    let policy = job
        .get_mut("podFailurePolicy")
        .and_then(Value::as_object_mut);
    let Some(policy) = policy else {
        return;
    };
    for rule in objects(policy, "rules") {
        objects(rule, "onPodConditions")
            .for_each(|pattern| default_text(pattern, "status", "True"));
    }
}

/// Gives a Job or a ReplicationController without labels the labels of its template. A ReplicationController without a
/// selector gets them as its selector too.
fn inherit_labels(kind: WorkloadKind, object: &mut Value) {
    if !matches!(
        kind,
        WorkloadKind::Job | WorkloadKind::ReplicationController
    ) {
        return;
    }
    let labels = object.pointer("/spec/template/metadata/labels").cloned();
    let Some(labels) = labels.filter(Value::is_object) else {
        return;
    };
    let is_empty =
        |value: Option<&Value>| value.is_none_or(|it| it.as_object().is_some_and(Object::is_empty));
    if is_empty(object.pointer("/metadata/labels"))
        && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.insert("labels".into(), labels.clone());
    }
    let is_controller = kind == WorkloadKind::ReplicationController;
    if is_controller
        && is_empty(object.pointer("/spec/selector"))
        && let Some(spec) = spec_of(object)
    {
        spec.insert("selector".into(), labels);
    }
}

fn number(owner: &mut Object, key: &str, number: i32) {
    owner.entry(key).or_insert(json!(number));
}

fn object_in<'o>(owner: &'o mut Object, key: &str) -> Option<&'o mut Object> {
    owner
        .entry(key)
        .or_insert_with(|| json!({}))
        .as_object_mut()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kind: WorkloadKind, given: Value, pointer: &str, expected: Value) {
        let mut object = given;
        apply_to_workload(kind, &mut object);
        let found = object.pointer(pointer);
        assert_eq!(
            found,
            Some(&expected).filter(|it| !it.is_null()),
            "{pointer}"
        );
        let once = object.clone();
        apply_to_workload(kind, &mut object);
        assert_eq!(object, once, "twice is once");
    }

    #[test]
    fn jobs_and_controllers_inherit_the_labels_of_their_template() {
        let template = json!({"metadata": {"labels": {"app": "a"}}});
        let given = json!({"metadata": {}, "spec": {"template": template}});
        let labels = json!({"app": "a"});
        let controller = WorkloadKind::ReplicationController;
        check(
            controller,
            given.clone(),
            "/metadata/labels",
            labels.clone(),
        );
        check(controller, given.clone(), "/spec/selector", labels.clone());
        check(WorkloadKind::Job, given.clone(), "/metadata/labels", labels);
        check(
            WorkloadKind::Job,
            given.clone(),
            "/spec/selector",
            Value::Null,
        );
        check(
            WorkloadKind::Deployment,
            given,
            "/metadata/labels",
            Value::Null,
        );
        let own = json!({"metadata": {"labels": {"x": "y"}}, "spec": {"template": template}});
        check(controller, own, "/metadata/labels", json!({"x": "y"}));
    }

    #[test]
    fn a_pattern_of_a_condition_means_true_in_jobs_and_their_templates() {
        let job = json!({"podFailurePolicy": {"rules": [{"onPodConditions": [{"type": "X"}]}]}});
        let at = "podFailurePolicy/rules/0/onPodConditions/0/status";
        let given = json!({ "spec": job });
        check(
            WorkloadKind::Job,
            given,
            &format!("/spec/{at}"),
            json!("True"),
        );
        let given = json!({"spec": {"jobTemplate": {"spec": job}}});
        let pointer = format!("/spec/jobTemplate/spec/{at}");
        check(
            WorkloadKind::CronJob,
            given.clone(),
            &pointer,
            json!("True"),
        );
        let limit = "/spec/jobTemplate/spec/backoffLimit";
        check(WorkloadKind::CronJob, given, limit, Value::Null);
    }

    #[test]
    fn a_wrong_shape_is_left_alone() {
        for wrong in [
            json!(3),
            json!({"spec": 5}),
            json!({"spec": {"strategy": 1, "updateStrategy": []}}),
        ] {
            for kind in WorkloadKind::ALL {
                apply_to_workload(kind, &mut wrong.clone());
            }
        }
    }
}
