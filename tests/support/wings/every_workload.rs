//! Views of a workload of each kind.
#![allow(dead_code, reason = "each wing takes what it needs")]

use serde_json::{Value, json};

use crate::workloads::view::WorkloadView;

/// Returns the view of a workload of a kind, with the name, the namespace and the times of all of them.
pub(crate) fn view(kind: &str, object: Value) -> WorkloadView {
    let mut object = object;
    object["kind"] = kind.into();
    let metadata = json!({"name": "web", "namespace": "shop", "generation": 2,
        "creationTimestamp": "1970-01-01T00:01:00Z"});
    let given = object["metadata"].take();
    object["metadata"] = metadata;
    for (key, value) in given.as_object().into_iter().flatten() {
        object["metadata"][key] = value.clone();
    }
    WorkloadView {
        object: object.into(),
        ..WorkloadView::default()
    }
}

/// Returns a workload of each kind. Together they have every family of metrics.
pub(crate) fn every_workload() -> [WorkloadView; 7] {
    let conditions =
        json!([{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]);
    let update = json!({"maxSurge": "25%", "maxUnavailable": "25%"});
    let deployment = json!({"spec": {"replicas": 3, "paused": true, "strategy": {"rollingUpdate": update}},
        "status": {"observedGeneration": 1, "replicas": 4, "readyReplicas": 2, "updatedReplicas": 1,
            "unavailableReplicas": 2, "conditions": conditions}});
    let owner =
        json!({"ownerReferences": [{"kind": "Deployment", "name": "web", "controller": true}]});
    let set = json!({"metadata": owner, "spec": {"replicas": 3},
        "status": {"replicas": 3, "fullyLabeledReplicas": 3, "readyReplicas": 2, "terminatingReplicas": 1}});
    let old = json!({"spec": {"replicas": 1}, "status": {"availableReplicas": 1}});
    let daemon_set = json!({"status": {"desiredNumberScheduled": 1, "numberMisscheduled": 0}});
    let policy = json!({"whenDeleted": "Retain", "whenScaled": "Delete"});
    let stateful_set = json!({
        "spec": {"replicas": 2, "ordinals": {"start": 5}, "persistentVolumeClaimRetentionPolicy": policy},
        "status": {"currentRevision": "web-1", "updateRevision": "web-2", "currentReplicas": 1}});
    let failed = json!([{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"},
        {"type": "Complete", "status": "False"}, {"type": "Suspended", "status": "False"}]);
    let job = json!({"spec": {"parallelism": 1, "completions": 4, "activeDeadlineSeconds": 90},
        "status": {"active": 1, "succeeded": 2, "failed": 3, "startTime": "1970-01-01T00:02:00Z",
            "completionTime": "1970-01-01T00:03:00Z", "conditions": failed}});
    let cron_job = json!({
        "spec": {"schedule": "0 3 * * *", "concurrencyPolicy": "Forbid", "suspend": false,
            "startingDeadlineSeconds": 60, "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1},
        "status": {"active": [{}, {}], "lastScheduleTime": "1970-01-01T00:04:00Z",
            "lastSuccessfulTime": "1970-01-01T00:05:00Z"}});
    let mut all = [
        ("Deployment", deployment),
        ("ReplicaSet", set),
        ("ReplicationController", old),
        ("DaemonSet", daemon_set),
        ("StatefulSet", stateful_set),
        ("Job", job),
        ("CronJob", cron_job),
    ]
    .map(|(kind, object)| view(kind, object));
    all[6].next_schedule_time = Some("1970-01-01T00:06:00Z".into());
    all
}
