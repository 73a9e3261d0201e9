use serde_json::{Value, json};

use super::*;
use crate::api::decode::made_workload;

fn made(kind: &str, spec: Value) -> Workload {
    let object = json!({"kind": kind, "metadata": {"name": "a"}, "spec": spec});
    made_workload(object).expect("a workload")
}

/// The spec of a set whose selector matches, with further fields.
fn set(more: Value) -> Value {
    let pod = json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
    merged(
        json!({"selector": {"matchLabels": {"app": "a"}}, "template": pod}),
        more,
    )
}

/// The spec of a Job with further fields.
fn job(more: Value) -> Value {
    let pod =
        json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}});
    merged(json!({"template": pod}), more)
}

fn indexed(more: Value) -> Value {
    merged(
        job(json!({"completionMode": "Indexed", "completions": 5})),
        more,
    )
}

fn merged(mut spec: Value, more: Value) -> Value {
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    spec
}

#[track_caller]
fn check(kind: &str, spec: Value, expected: &[&str]) {
    let errors = validate_workload(&made(kind, spec), None);
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(texts, expected);
}

#[track_caller]
fn check_update(kind: &str, old: Value, new: Value, expected: &[&str]) {
    let errors = validate_update(&made(kind, new), &made(kind, old));
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(texts, expected);
}

#[test]
fn a_replication_controller_needs_a_template_and_a_selector() {
    check(
        "ReplicationController",
        json!({}),
        &[
            "spec.selector: Required value",
            "spec.template: Required value",
        ],
    );
    check(
        "ReplicationController",
        json!({"selector": {"app": "a"}, "replicas": -1}),
        &[
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
            "spec.template: Required value",
        ],
    );
    let mut other = set(json!({"selector": {"app": "b"}}));
    other["template"]["spec"]["activeDeadlineSeconds"] = 5.into();
    check(
        "ReplicationController",
        other,
        &[
            "spec.template.metadata.labels: Invalid value: {\"app\":\"a\"}: `selector` does not match template `labels`",
            "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicationController is not Supported",
        ],
    );
}

#[test]
fn a_selector_must_be_one() {
    let expression = |operator: &str, values: Value| {
        set(
            json!({"selector": {"matchExpressions": [{"key": "app", "operator": operator, "values": values}]}}),
        )
    };
    check(
        "ReplicaSet",
        expression("Exists", json!(["a"])),
        &[
            "spec.selector.matchExpressions[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            "spec.selector: Invalid value: {\"matchExpressions\":[{\"key\":\"app\",\"operator\":\"Exists\",\"values\":[\"a\"]}]}: invalid label selector",
        ],
    );
    check("ReplicaSet", expression("Exists", json!([])), &[]);
    check(
        "ReplicaSet",
        set(json!({"selector": {}})),
        &["spec.selector: Invalid value: {}: empty selector is invalid for deployment"],
    );
    check(
        "DaemonSet",
        merged(set(json!({})), json!({"selector": null})),
        &[
            "spec.template.metadata.labels: Invalid value: {\"app\":\"a\"}: `selector` does not match template `labels`",
        ],
    );
    let mut odd = set(json!({"selector": {"matchLabels": {"app": "-"}}}));
    odd["template"]["spec"]["containers"] = json!([]);
    let errors = validate_workload(&made("StatefulSet", odd), None);
    let paths: Vec<&str> = errors.iter().map(|error| error.path.as_str()).collect();
    assert_eq!(
        paths,
        ["spec.selector.matchLabels", "spec.selector"],
        "the template is not looked at"
    );
}

#[test]
fn labels_of_a_template_are_checked() {
    let mut spec = set(json!({}));
    spec["template"]["metadata"]["labels"]["x"] = "a b".into();
    let errors = validate_workload(&made("Deployment", spec), None);
    assert_eq!(errors[0].path, "spec.template.metadata.labels");
}

#[test]
fn limits_of_updates_are_checked() {
    let surge = |surge: Value| {
        set(json!({"updateStrategy": {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": 0}}}))
    };
    check(
        "DaemonSet",
        surge(json!("99999999999999999999%")),
        &[
            "spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: \"99999999999999999999%\": must not be greater than 100%",
        ],
    );
    check("DaemonSet", surge(json!("000000000000000000100%")), &[]);
    let zero = set(json!({"strategy": {"rollingUpdate": {"maxSurge": "x", "maxUnavailable": 0}}}));
    let errors = validate_workload(&made("Deployment", zero), None);
    assert_eq!(
        errors.len(),
        2,
        "a text that is no number counts as 0: {errors:?}"
    );
}

#[test]
fn claims_are_checked_as_in_a_cluster() {
    let claims = |spec: Value| {
        set(json!({"volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": spec}]}))
    };
    check(
        "StatefulSet",
        claims(json!({})),
        &[
            "spec.volumeClaimTemplates[0].spec.accessModes: Required value: at least 1 access mode is required",
            "spec.volumeClaimTemplates[0].spec.resources[storage]: Required value",
        ],
    );
    let good = |more: Value| {
        claims(merged(
            json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}),
            more,
        ))
    };
    check(
        "StatefulSet",
        good(json!({"volumeMode": "Filesystem", "storageClassName": "fast"})),
        &[],
    );
    check(
        "StatefulSet",
        good(json!({"resources": {"requests": {"storage": 0}}})),
        &[
            "spec.volumeClaimTemplates[0].spec.resources[storage]: Invalid value: \"0\": must be greater than zero",
        ],
    );
    check(
        "StatefulSet",
        good(json!({"accessModes": ["ReadWriteOncePod", "ReadOnlyMany", "Any"]})),
        &[
            "spec.volumeClaimTemplates[0].spec.accessModes: Unsupported value: \"Any\": supported values: \"ReadOnlyMany\", \"ReadWriteMany\", \"ReadWriteOnce\", \"ReadWriteOncePod\"",
            "spec.volumeClaimTemplates[0].spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes",
        ],
    );
    let errors = validate_workload(
        &made("StatefulSet", good(json!({"volumeMode": "Block"}))),
        None,
    );
    assert_eq!(
        errors[0].path,
        "spec.volumeClaimTemplates[0].spec.volumeMode"
    );
}

#[test]
fn an_indexed_job_has_its_limits() {
    let at = |more: Value| made("Job", indexed(more));
    let paths = |more: Value| {
        let errors = validate_workload(&at(more), None);
        errors
            .into_iter()
            .map(|error| error.path)
            .collect::<Vec<_>>()
    };
    assert_eq!(paths(json!({"parallelism": 100_001})), ["spec.parallelism"]);
    assert_eq!(
        paths(json!({"completions": null, "parallelism": 1})),
        ["spec.completions"]
    );
    let many = |more: Value| {
        merged(
            json!({"completions": 100_001, "backoffLimitPerIndex": 1}),
            more,
        )
    };
    assert_eq!(paths(many(json!({}))), ["spec.maxFailedIndexes"]);
    let both = many(json!({"maxFailedIndexes": 10_001, "parallelism": 10_001}));
    assert_eq!(paths(both), ["spec.parallelism", "spec.maxFailedIndexes"]);
    assert_eq!(paths(many(json!({"maxFailedIndexes": 10_000}))), [""; 0]);
    assert_eq!(
        paths(json!({"completionMode": "Other"})),
        ["spec.completionMode"]
    );
}

#[test]
fn the_pods_of_an_indexed_job_have_its_name_as_host_name() {
    let errors = |spec: Value| {
        let object = json!({"kind": "Job", "metadata": {"name": "a.b"}, "spec": spec});
        validate_workload(&made_workload(object).unwrap(), None).len()
    };
    assert_eq!(errors(indexed(json!({}))), 1);
    assert_eq!(errors(job(json!({"completions": 5}))), 0);
}

#[test]
fn the_count_of_a_success_rule_has_its_limits() {
    let rule = |rule: Value| indexed(json!({"successPolicy": {"rules": [rule]}}));
    check(
        "Job",
        rule(json!({"succeededCount": 6})),
        &[
            "spec.successPolicy.rules[0].succeededCount: Invalid value: 6: must be less than or equal to 5 (the number of specified completions)",
        ],
    );
    check(
        "Job",
        rule(json!({"succeededIndexes": "1-2", "succeededCount": 3})),
        &[
            "spec.successPolicy.rules[0].succeededCount: Invalid value: 3: must be less than or equal to 2 (the number of indexes in the specified succeededIndexes field)",
        ],
    );
    check(
        "Job",
        rule(json!({"succeededCount": -1})),
        &[
            "spec.successPolicy.rules[0].succeededCount: Invalid value: -1: must be greater than or equal to 0",
        ],
    );
    check(
        "Job",
        rule(json!({})),
        &[
            "spec.successPolicy.rules[0]: Required value: at least one of succeededCount or succeededIndexes must be specified",
        ],
    );
}

#[test]
fn a_failure_rule_must_be_complete() {
    let rule = |rule: Value| job(json!({"podFailurePolicy": {"rules": [rule]}}));
    check(
        "Job",
        rule(json!({"onExitCodes": {}})),
        &[
            "spec.podFailurePolicy.rules[0].action: Required value: valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]",
            "spec.podFailurePolicy.rules[0].onExitCodes.operator: Required value: valid values: [\"In\" \"NotIn\"]",
            "spec.podFailurePolicy.rules[0].onExitCodes.values: Invalid value: []: at least one value is required",
        ],
    );
    let values: Vec<i32> = (1..=256).collect();
    check(
        "Job",
        rule(json!({"action": "Count", "onExitCodes": {"operator": "NotIn", "values": values}})),
        &[
            "spec.podFailurePolicy.rules[0].onExitCodes.values: Too many: 256: must have at most 255 items",
        ],
    );
    check(
        "Job",
        rule(json!({"action": "Count", "onPodConditions": [{"type": "X"}]})),
        &[],
    );
    let not_zero = json!({"operator": "NotIn", "values": [0]});
    check(
        "Job",
        rule(json!({"action": "Count", "onExitCodes": not_zero})),
        &[],
    );
}

#[test]
fn a_manager_has_a_domain() {
    let paths =
        |name: &str| validate_workload(&made("Job", job(json!({ "managedBy": name }))), None).len();
    assert_eq!(paths("acme.io/a"), 0);
    assert_eq!(paths("acme.io/a b"), 1);
    assert_eq!(paths("A/b"), 1);
    assert_eq!(paths(""), 1);
    assert_eq!(paths(&format!("acme.io/{}", "a".repeat(60))), 1);
}

#[test]
fn a_schedule_with_a_zone_may_stay_if_it_was_there() {
    let cron = |schedule: &str, zone: Option<&str>| {
        let spec = json!({"schedule": schedule, "timeZone": zone, "jobTemplate": {"spec": job(json!({}))}});
        made("CronJob", spec)
    };
    let old = cron("TZ=UTC 0 * * * *", None);
    assert!(validate_workload(&cron("TZ=UTC 1 * * * *", None), Some(&old)).is_empty());
    assert_eq!(
        validate_workload(&cron("TZ=UTC 1 * * * *", None), None).len(),
        1
    );
    assert_eq!(
        validate_workload(&cron("TZ=UTC 1 * * * *", Some("UTC")), Some(&old)).len(),
        1
    );
    // A zone that is the same as before is not looked at again.
    let odd = cron("0 * * * *", Some("../x"));
    assert_eq!(validate_workload(&odd, None).len(), 1);
    assert!(validate_workload(&odd, Some(&odd)).is_empty());
}

#[test]
fn a_selector_never_changes_but_that_of_a_replication_controller() {
    let other = json!({"selector": {"matchLabels": {"app": "b"}}});
    for kind in ["Deployment", "ReplicaSet", "DaemonSet"] {
        check_update(
            kind,
            set(json!({})),
            set(other.clone()),
            &[
                "spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"b\"}}: field is immutable",
            ],
        );
        check_update(
            kind,
            set(json!({})),
            set(json!({"replicas": 3, "minReadySeconds": 1})),
            &[],
        );
    }
    let map = |app: &str| set(json!({"selector": {"app": app}}));
    check_update("ReplicationController", map("a"), map("b"), &[]);
}

#[test]
fn a_stateful_set_names_what_may_not_change() {
    let claims = |more: Value| {
        json!([merged(
            json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}),
            more
        )])
    };
    let with = |more: Value| set(json!({"volumeClaimTemplates": claims(more), "serviceName": "a"}));
    let same = json!({"status": {"phase": "Pending"}, "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem"},
        "metadata": {"name": "data", "creationTimestamp": "x", "labels": {}}});
    check_update("StatefulSet", with(json!({})), with(same), &[]);
    let errors = validate_update(
        &made(
            "StatefulSet",
            merged(with(json!({"spec": {}})), json!({"serviceName": "b"})),
        ),
        &made("StatefulSet", with(json!({}))),
    );
    let detail = &errors[0].detail;
    assert!(
        detail.ends_with("are forbidden; changed: 'serviceName', 'volumeClaimTemplates'"),
        "{detail}"
    );
}

#[test]
fn a_suspended_job_may_get_another_template() {
    let mut other = job(json!({}));
    other["template"]["spec"]["containers"][0]["image"] = "i:2".into();
    let errors = validate_update(&made("Job", other.clone()), &made("Job", job(json!({}))));
    assert_eq!(errors[0].path, "spec.template");
    check_update("Job", job(json!({"suspend": true})), other, &[]);
    check_update(
        "Job",
        indexed(json!({"parallelism": 5})),
        indexed(json!({"completions": 6, "parallelism": 5})),
        &[
            "spec.completions: Invalid value: 6: can only be modified in tandem with spec.parallelism",
        ],
    );
}
