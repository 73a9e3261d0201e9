use serde_json::json;

use super::*;
use crate::every_workload::{every_workload, view};

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
    let text = written(&every_workload());
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
        &written(&every_workload()),
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
    let text = written(&every_workload());
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
        &written(&every_workload()),
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
        &written(&every_workload()),
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
