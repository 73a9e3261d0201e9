use serde_json::json;

use super::*;

fn view(kind: &str, object: Value) -> WorkloadView {
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

/// Returns the metrics of workloads that have every family.
pub(crate) fn everything() -> String {
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
    written(&all)
}

fn written(all: &[WorkloadView]) -> String {
    let mut out = String::new();
    write_workloads(all, &mut out);
    out
}

#[track_caller]
fn has(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|l| l == *line), "{line} in\n{text}");
    }
}

#[test]
fn every_family_of_the_tables_is_written_with_a_help_text() {
    let text = everything();
    let count = |of: &str| text.lines().filter(|l| l.starts_with(of)).count();
    let rows = FIELDS.iter().map(|f| f.kinds.len()).sum::<usize>();
    let rows = rows + LISTED.iter().map(|f| f.kinds.len()).sum::<usize>();
    assert_eq!(count("# HELP "), rows, "{text}");
    assert_eq!(count("# TYPE "), rows);
    assert!(
        text.lines()
            .all(|l| !l.starts_with("# TYPE ") || l.ends_with(" gauge"))
    );
}

#[test]
fn a_node_without_workloads_has_no_family() {
    assert_eq!(written(&[]), "");
    let text = written(&[view("Deployment", json!({}))]);
    assert!(text.contains("kube_deployment_created"));
    assert!(
        !text.contains("kube_job") && !text.contains("kube_statefulset"),
        "{text}"
    );
}

#[test]
fn a_deployment_has_its_numbers_limits_and_conditions() {
    let of = r#"deployment="web",namespace="shop""#;
    let condition = format!(
        r#"kube_deployment_status_condition{{{of},condition="Progressing",reason="ProgressDeadlineExceeded""#
    );
    has(
        &everything(),
        &[
            &format!("kube_deployment_created{{{of}}} 60"),
            &format!("kube_deployment_metadata_generation{{{of}}} 2"),
            &format!("kube_deployment_status_observed_generation{{{of}}} 1"),
            &format!("kube_deployment_spec_replicas{{{of}}} 3"),
            &format!("kube_deployment_spec_paused{{{of}}} 1"),
            &format!("kube_deployment_status_replicas{{{of}}} 4"),
            &format!("kube_deployment_status_replicas_ready{{{of}}} 2"),
            &format!("kube_deployment_status_replicas_available{{{of}}} 0"),
            &format!("kube_deployment_status_replicas_updated{{{of}}} 1"),
            &format!("kube_deployment_status_replicas_unavailable{{{of}}} 2"),
            // a quarter of three pods, rounded down and up
            &format!("kube_deployment_spec_strategy_rollingupdate_max_unavailable{{{of}}} 0"),
            &format!("kube_deployment_spec_strategy_rollingupdate_max_surge{{{of}}} 1"),
            &format!(r#"{condition},status="true"}} 0"#),
            &format!(r#"{condition},status="false"}} 1"#),
            &format!(r#"{condition},status="unknown"}} 0"#),
        ],
    );
    let text = written(&[view(
        "Deployment",
        json!({"spec": {"strategy": {"type": "Recreate"}}}),
    )]);
    assert!(!text.contains("rollingupdate"), "{text}");
}

#[test]
fn sets_have_their_owner_and_their_revisions() {
    let text = everything();
    has(
        &text,
        &[
            r#"kube_replicaset_owner{namespace="shop",replicaset="web",owner_is_controller="true",owner_kind="Deployment",owner_name="web"} 1"#,
            r#"kube_replicaset_status_ready_replicas{namespace="shop",replicaset="web"} 2"#,
            r#"kube_replicaset_status_terminating_replicas{namespace="shop",replicaset="web"} 1"#,
            r#"kube_replicationcontroller_owner{namespace="shop",replicationcontroller="web",owner_is_controller="",owner_kind="",owner_name=""} 1"#,
            r#"kube_replicationcontroller_status_available_replicas{namespace="shop",replicationcontroller="web"} 1"#,
            r#"kube_daemonset_status_desired_number_scheduled{daemonset="web",namespace="shop"} 1"#,
            r#"kube_daemonset_status_updated_number_scheduled{daemonset="web",namespace="shop"} 0"#,
            r#"kube_statefulset_replicas{namespace="shop",statefulset="web"} 2"#,
            r#"kube_statefulset_ordinals_start{namespace="shop",statefulset="web"} 5"#,
            r#"kube_statefulset_status_current_revision{namespace="shop",statefulset="web",revision="web-1"} 1"#,
            r#"kube_statefulset_status_update_revision{namespace="shop",statefulset="web",revision="web-2"} 1"#,
            r#"kube_statefulset_persistentvolumeclaim_retention_policy{namespace="shop",statefulset="web",when_deleted="Retain",when_scaled="Delete"} 1"#,
        ],
    );
}

#[track_caller]
fn check_failures(status: Value, expected: &[(&str, u64)]) {
    let series = failures(&view("Job", json!({"status": status})));
    let expected = expected
        .iter()
        .map(|(labels, n)| ((*labels).to_owned(), *n));
    assert_eq!(series, expected.collect::<Vec<_>>());
}

#[test]
fn a_job_says_how_it_ended() {
    let of = r#"job_name="web",namespace="shop""#;
    has(
        &everything(),
        &[
            &format!("kube_job_info{{{of}}} 1"),
            &format!(r#"kube_job_failed{{{of},condition="true"}} 1"#),
            &format!(r#"kube_job_failed{{{of},condition="false"}} 0"#),
            &format!(r#"kube_job_complete{{{of},condition="true"}} 0"#),
            &format!("kube_job_status_suspended{{{of}}} 0"),
            &format!("kube_job_status_active{{{of}}} 1"),
            &format!("kube_job_status_succeeded{{{of}}} 2"),
            &format!("kube_job_status_start_time{{{of}}} 120"),
            &format!("kube_job_status_completion_time{{{of}}} 180"),
            &format!("kube_job_spec_completions{{{of}}} 4"),
        ],
    );
    let running = written(&[view("Job", json!({"spec": {"parallelism": 1}}))]);
    for absent in [
        "kube_job_failed",
        "kube_job_complete",
        "spec_completions",
        "_time{",
    ] {
        assert!(!running.contains(absent), "{absent} in\n{running}");
    }
    check_failures(json!({}), &[("", 0)]);
    check_failures(json!({"failed": 2}), &[(r#",reason="""#, 2)]);
    let ended = |reason| json!([{"type": "Failed", "status": "True", "reason": reason}]);
    check_failures(
        json!({"failed": 2, "conditions": ended("DeadlineExceeded")}),
        &[
            (r#",reason="BackoffLimitExceeded""#, 0),
            (r#",reason="DeadlineExceeded""#, 1),
            (r#",reason="Evicted""#, 0),
        ],
    );
    check_failures(
        json!({"failed": 2, "conditions": ended("PodFailurePolicy")}),
        &[(r#",reason="""#, 2)],
    );
}

#[test]
fn a_cron_job_has_its_schedule_and_its_times() {
    let of = r#"cronjob="web",namespace="shop""#;
    has(
        &everything(),
        &[
            &format!(
                r#"kube_cronjob_info{{{of},concurrency_policy="Forbid",schedule="0 3 * * *",timezone="local"}} 1"#
            ),
            &format!("kube_cronjob_status_active{{{of}}} 2"),
            &format!("kube_cronjob_spec_suspend{{{of}}} 0"),
            &format!("kube_cronjob_status_last_schedule_time{{{of}}} 240"),
            &format!("kube_cronjob_status_last_successful_time{{{of}}} 300"),
            &format!("kube_cronjob_next_schedule_time{{{of}}} 360"),
            &format!("kube_cronjob_spec_failed_job_history_limit{{{of}}} 1"),
        ],
    );
    let text = written(&[view("CronJob", json!({"spec": {"timeZone": "Etc/UTC"}}))]);
    assert!(text.contains(r#"timezone="Etc/UTC""#), "{text}");
    assert!(!text.contains("next_schedule_time"), "{text}");
}
