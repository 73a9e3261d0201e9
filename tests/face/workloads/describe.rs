//! `describe` of workloads: the layout is kubectl's, with podprobe's lines before the events.

use std::path::Path;

use serde_json::{Value, json};

use super::{
    World, controller, cron_job, daemon_set, job, pod_of, set, stateful_set, template, web, world,
};
use crate::cli::{HOUR, ago, pod, text};

const CREATED: &str = "2026-01-02T03:04:05Z";

fn created(mut view: Value) -> Value {
    view["object"]["metadata"]["creationTimestamp"] = CREATED.into();
    view
}

/// A Deployment with a template that has something of everything.
fn rich() -> Value {
    let mut view = created(web());
    let mut template = template();
    template["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/restartedAt": CREATED});
    template["spec"] = json!({
        "containers": [{"name": "main", "image": "app:2", "command": ["/app"],
            "ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 443, "protocol": "TCP"}],
            "resources": {"limits": {"memory": "64Mi"}}, "env": [{"name": "A", "value": "b"}],
            "readinessProbe": {"tcpSocket": {"port": 80}},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
        "volumes": [{"name": "data", "emptyDir": {}}],
        "tolerations": [{"key": "k", "operator": "Exists"}],
    });
    view["object"]["spec"]["template"] = template;
    view["waiting"] = "1 of 3 new pods to be ready, for 40 s of 600 s".into();
    view["overrides"] = json!(["replicas is 3 (scale), the file says 2", "paused"]);
    view["warnings"] = json!(["spec.x has no effect"]);
    view["fileError"] = "line 3: no\nline 4: no".into();
    view
}

fn event(kind: &str, name: &str, message: &str) -> Value {
    json!({"kind": kind, "namespace": "default", "pod": name, "uid": "u", "fieldPath": "", "type": "Normal",
        "reason": "ScalingReplicaSet", "message": message, "count": 1, "firstTimestamp": ago(HOUR), "lastTimestamp": ago(HOUR)})
}

/// Checks a description against its file in tests/golden. With `PODPROBE_WRITE_DOCS=1` the file is written instead.
#[track_caller]
fn check(views: &[Value], pods: Vec<Value>, line: &str, golden: &str) {
    let world = World::new(pods, vec![]);
    world.set_workloads(1, views);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{golden}.txt"));
    if std::env::var_os("PODPROBE_WRITE_DOCS").is_some() {
        std::fs::write(&file, world.run(line).stdout).unwrap();
    }
    world.check(line, &std::fs::read_to_string(file).unwrap());
}

#[test]
fn a_deployment_is_described_in_kubectls_layout() {
    let mut with_events = pod("default", "x");
    with_events["events"] = json!([
        event(
            "Deployment",
            "web",
            "Scaled up replica set web-7b9 from 0 to 3"
        ),
        event("Deployment", "other", "not this one"),
        event("Pod", "web", "nor this one"),
    ]);
    let sets = [rich(), set("web-5f4", "3", 0, 0), set("web-7b9", "4", 3, 2)];
    let expected = "describe-deployment";
    check(&sets, vec![with_events], "describe deploy web", expected);
}

#[test]
fn a_replica_set_is_described_in_kubectls_layout() {
    let mut failing = set("web-7b9", "4", 3, 2);
    failing["object"]["status"]["conditions"] =
        json!([{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}]);
    let in_phase = |name: &str, phase: &str| {
        let mut pod = pod_of("ReplicaSet", "web-7b9", name);
        pod["status"]["phase"] = phase.into();
        pod
    };
    let pods = vec![
        in_phase("a", "Running"),
        in_phase("b", "Running"),
        in_phase("c", "Pending"),
        in_phase("d", "Failed"),
        in_phase("e", "Succeeded"),
        pod_of("ReplicaSet", "web-5f4", "f"),
    ];
    let expected = "describe-replicaset";
    check(&[failing], pods, "describe rs/web-7b9", expected);
}

#[test]
fn the_other_kinds_are_described_in_kubectls_layout() {
    let check = |view: Value, line: &str, expected: &str| check(&[view], vec![], line, expected);
    check(
        controller(),
        "describe rc",
        "describe-replicationcontroller",
    );
    check(daemon_set(), "describe ds agent", "describe-daemonset");
    check(
        created(stateful_set()),
        "describe sts db",
        "describe-statefulset",
    );
    check(job(), "describe job backup-29", "describe-job");
    let mut cron = cron_job();
    cron["object"]["status"]["lastScheduleTime"] = CREATED.into();
    check(cron, "describe cj backup", "describe-cronjob");
}

#[test]
fn several_workloads_are_described_by_name_kind_or_labels() {
    let world = world();
    let names = |line: &str| {
        let output = world.run(line);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let shown = text(&output.stdout);
        let lines = shown.lines().filter_map(|l| l.strip_prefix("Name: "));
        lines.map(|l| l.trim().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names("describe deploy/web sts/db"), ["web", "db"]);
    assert_eq!(names("describe rs"), ["web-5f4", "web-7b9"]);
    assert_eq!(names("describe rs -l pod-template-hash=7b9"), ["web-7b9"]);
    let missing = "deployments.apps \"wbe\" not found, did you mean 'web'?\n";
    world.check_failure("describe deploy wbe", 1, missing);
    world.check_failure("describe deploy -n shop", 0, "No resources found\n");
    let labels = "podprobe: -l goes with pods and what makes pods, such as 'describe deployment'\n";
    world.check_failure("describe svc -l a=b", 2, labels);
    assert_eq!(names("describe pod -l app=web"), ["web-7b9-abcde"]);
    world.check_failure("describe pod -l app=db", 0, "No resources found\n");
    let both = "podprobe: -l and names exclude each other\n";
    world.check_failure("describe pod web -l app=web", 2, both);
    let problem = json!({"file": "/pods/wbe.yaml", "error": "line 3: no"});
    world.set(2, vec![], vec![problem]);
    let refused = format!("{missing}/pods/wbe.yaml: not in use: line 3: no\n");
    world.check_failure("describe deploy wbe", 1, &refused);
}
