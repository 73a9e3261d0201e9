//! The verbs of workloads: Deployments, ReplicaSets, DaemonSets, StatefulSets, Jobs and CronJobs as an API server would
//! show them, with a daemon that the test makes up.

mod apply;
mod delete;
mod describe;
mod get;
mod pods;
mod rollout;
mod wait;

use serde_json::{Value, json};

use crate::cli::{DAY, World, ago, pod};

/// A template with one container.
fn template() -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "app:2"}]}})
}

/// An object of a kind, created two days ago.
fn object(kind: &str, name: &str, spec: Value, status: Value) -> Value {
    let version = match kind {
        "Job" | "CronJob" => "batch/v1",
        "ReplicationController" => "v1",
        _ => "apps/v1",
    };
    let metadata = json!({"name": name, "namespace": "default", "uid": format!("uid-{name}"),
        "creationTimestamp": ago(2 * DAY), "labels": {"app": name}, "generation": 1});
    let mut object = json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec, "status": status});
    let spec = &mut object["spec"];
    match kind {
        "CronJob" => spec["jobTemplate"] = json!({"spec": {"template": template()}}),
        _ => spec["template"] = template(),
    }
    match kind {
        "CronJob" => {}
        "ReplicationController" => spec["selector"] = json!({"app": "web"}),
        _ => spec["selector"] = json!({"matchLabels": {"app": "web"}}),
    }
    object
}

/// The view of a workload in a file.
fn view(object: Value) -> Value {
    let name = object["metadata"]["name"].as_str().unwrap();
    json!({"file": format!("/pods/{name}.yaml"), "object": object})
}

/// Lets a workload or a pod belong to a controller.
fn owned(mut object: Value, kind: &str, name: &str) -> Value {
    object["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": format!("uid-{name}"),
            "controller": true, "blockOwnerDeletion": true}]);
    object
}

/// A Deployment with three pods, of which two are ready, at revision 4.
fn web() -> Value {
    let status = json!({"observedGeneration": 1, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 2,
        "availableReplicas": 2, "unavailableReplicas": 1, "conditions": [
            {"type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable"},
            {"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated"}]});
    let update = json!({"maxSurge": "25%", "maxUnavailable": 0});
    let spec = json!({"replicas": 3, "minReadySeconds": 5, "strategy": {"type": "RollingUpdate", "rollingUpdate": update}});
    let mut object = object("Deployment", "web", spec, status);
    object["metadata"]["annotations"] = json!({"deployment.kubernetes.io/revision": "4"});
    view(object)
}

/// A ReplicaSet of that Deployment.
fn set(name: &str, revision: &str, replicas: i64, ready: i64) -> Value {
    let status = json!({"replicas": replicas, "readyReplicas": ready, "observedGeneration": 1});
    let mut object = object("ReplicaSet", name, json!({"replicas": replicas}), status);
    let hash = name.rsplit_once('-').unwrap().1;
    object["metadata"]["annotations"] = json!({"deployment.kubernetes.io/revision": revision});
    object["metadata"]["labels"] = json!({"app": "web", "pod-template-hash": hash});
    object["spec"]["selector"] = json!({"matchLabels": {"app": "web", "pod-template-hash": hash}});
    json!({"object": owned(object, "Deployment", "web")})
}

/// A pod of a controller. Its phase is Running, and it is ready.
fn pod_of(kind: &str, controller: &str, name: &str) -> Value {
    let mut view = pod("default", name);
    let mut object = owned(view["object"].take(), kind, controller);
    object["metadata"]["name"] = name.into();
    object["metadata"]["labels"] = json!({"app": "web"});
    view["object"] = object;
    view
}

fn daemon_set() -> Value {
    let status = json!({"desiredNumberScheduled": 1, "currentNumberScheduled": 1, "numberReady": 1,
        "updatedNumberScheduled": 1, "numberAvailable": 1, "numberMisscheduled": 0, "observedGeneration": 1});
    let mut object = object("DaemonSet", "agent", json!({}), status);
    object["spec"]["template"]["spec"]["nodeSelector"] = json!({"disk": "ssd"});
    view(object)
}

fn stateful_set() -> Value {
    let status = json!({"replicas": 2, "readyReplicas": 1, "observedGeneration": 1});
    let claims = json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}}]);
    let update = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 1}});
    view(object(
        "StatefulSet",
        "db",
        json!({"replicas": 2, "updateStrategy": update, "volumeClaimTemplates": claims}),
        status,
    ))
}

/// A Job that a CronJob has made, which has ended after 90 s.
fn job() -> Value {
    let status = json!({"startTime": "2026-01-02T03:04:05Z", "completionTime": "2026-01-02T03:05:35Z", "active": 0,
        "succeeded": 2, "failed": 1, "ready": 0, "completedIndexes": "0,1",
        "conditions": [{"type": "Complete", "status": "True"}]});
    let spec = json!({"completions": 2, "parallelism": 1, "backoffLimit": 6, "completionMode": "Indexed", "suspend": false,
        "activeDeadlineSeconds": 600});
    let mut object = object("Job", "backup-29", spec, status);
    object["spec"]["selector"] =
        json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "uid-backup-29"}});
    json!({"object": owned(object, "CronJob", "backup")})
}

fn cron_job() -> Value {
    let status = json!({"lastScheduleTime": ago(20 * 60 + 5), "active": [{"name": "backup-30"}, {"name": "backup-31"}]});
    let spec = json!({"schedule": "*/5 * * * *", "timeZone": "Europe/Berlin", "suspend": false, "concurrencyPolicy": "Forbid",
        "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1});
    view(object("CronJob", "backup", spec, status))
}

fn controller() -> Value {
    let status = json!({"replicas": 1, "readyReplicas": 1});
    view(object(
        "ReplicationController",
        "old",
        json!({"replicas": 1}),
        status,
    ))
}

/// A daemon that shows one workload of each kind, and two sets of the Deployment.
fn world() -> World {
    let pods = vec![
        pod_of("ReplicaSet", "web-7b9", "web-7b9-abcde"),
        pod("default", "alone"),
    ];
    let world = World::new(pods, vec![]);
    world.set_workloads(1, &all());
    world
}

fn all() -> Vec<Value> {
    vec![
        web(),
        set("web-5f4", "3", 0, 0),
        set("web-7b9", "4", 3, 2),
        controller(),
        daemon_set(),
        stateful_set(),
        cron_job(),
        job(),
    ]
}
