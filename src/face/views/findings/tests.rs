use serde_json::{Value, json};

use super::*;

fn now() -> Time {
    serde_json::from_value(json!("2026-01-01T01:00:00Z")).unwrap()
}

/// Returns a pod with this status and a readiness probe.
fn pod(status: Value) -> Value {
    let probe = json!({"tcpSocket": {"port": 1}});
    json!({"object": {"metadata": {"name": "web-edge", "namespace": "default", "uid": "u"}, "spec": {"containers": [{"name": "main", "readinessProbe": probe}]}},
        "status": status, "file": "/p/web.yaml", "warnings": [], "terminating": false, "logDir": "", "events": []})
}

fn status(phase: &str, ready: &str, state: Value, last: Value) -> Value {
    json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": null, "message": "containers with unready status: [main]"}],
        "containerStatuses": [{"name": "main", "image": "app:1", "ready": ready == "True", "restartCount": 7, "state": state, "lastState": last}]})
}

fn running(ready: &str) -> Value {
    status(
        "Running",
        ready,
        json!({"running": {"startedAt": null}}),
        json!({}),
    )
}

fn waiting(reason: &str, message: &str, last: Value) -> Value {
    status(
        "Running",
        "False",
        json!({"waiting": {"reason": reason, "message": message}}),
        last,
    )
}

fn snapshot(pods: &[Value], problems: &[(&str, &str)]) -> Snapshot {
    let problem = |(file, error): &(&str, &str)| json!({"file": file, "error": error});
    let problems: Vec<Value> = problems.iter().map(problem).collect();
    snapshot_of(pods, &problems)
}

fn snapshot_of(pods: &[Value], problems: &[Value]) -> Snapshot {
    serde_json::from_value(
        json!({"version": 1, "nodeName": "edge", "pods": pods, "problems": problems}),
    )
    .unwrap()
}

fn said(snapshot: &Snapshot, history: Value, services: &[ServiceView]) -> Vec<String> {
    said_of(snapshot, history, services, &[])
}

fn said_of(
    snapshot: &Snapshot,
    history: Value,
    services: &[ServiceView],
    workloads: &[WorkloadView],
) -> Vec<String> {
    let history: Option<PodHistory> = serde_json::from_value(history).unwrap();
    let facts = Facts {
        snapshot,
        services,
        workloads,
        histories: history.iter().map(|h| ("u", h)).collect(),
        disk: None,
        now: now(),
    };
    let one = |f: Finding| {
        format!(
            "{:?} {}: {} | {}",
            f.severity, f.subject, f.message, f.way_out
        )
    };
    findings(&facts).into_iter().map(one).collect()
}

#[track_caller]
fn check(status: Value, history: Value, expected: &str) {
    let said = said(&snapshot(&[pod(status)], &[]), history, &[]);
    let expected: Vec<&str> = Some(expected)
        .filter(|e| !e.is_empty())
        .into_iter()
        .collect();
    assert_eq!(said, expected);
}

fn runs(probes: &[(&str, &str, &str)]) -> Value {
    let probe = |(probe_type, outcome, output): &(&str, &str, &str)| {
        let good = json!({"time": "2026-01-01T00:59:00Z", "micros": 1, "outcome": "success", "output": "fine"});
        let last = json!({"time": "2026-01-01T00:59:10Z", "micros": 1, "outcome": outcome, "output": output});
        json!({"container": "main", "probeType": probe_type, "runs": [good, last]})
    };
    json!({"probes": probes.iter().map(probe).collect::<Vec<_>>(), "restarts": []})
}

fn restarts(minutes: &[u32], cause: &str) -> Value {
    let restart = |m: &u32| json!({"time": format!("2026-01-01T00:{m:02}:00Z"), "container": "main", "attempt": 1, "cause": cause});
    json!({"probes": [], "restarts": minutes.iter().map(restart).collect::<Vec<_>>()})
}

#[test]
fn what_is_well_is_not_told() {
    check(running("True"), json!(null), "");
    check(running("True"), runs(&[("Readiness", "success", "ok")]), "");
    check(
        status(
            "Succeeded",
            "False",
            json!({"terminated": {"exitCode": 0}}),
            json!({}),
        ),
        json!(null),
        "",
    );
    let mut ending = pod(running("False"));
    ending["terminating"] = true.into();
    let mut deleted = pod(status("Failed", "False", json!({}), json!({})));
    deleted["status"]["reason"] = crate::pods::status::DELETED.into();
    let both = snapshot(&[ending, deleted], &[]);
    assert_eq!(said(&both, json!(null), &[]), [""; 0]);
}

#[test]
fn a_crash_loop_says_why_the_last_instance_ended() {
    let loops = |last: Value| waiting("CrashLoopBackOff", "back-off 40s", last);
    let told = |why: &str| {
        format!(
            "CrashLoop pod/web-edge: container main ends again and again, restarted 7 times: {why} | podprobe logs web-edge -c main -p"
        )
    };
    let code = json!({"terminated": {"exitCode": 3, "reason": "Error"}});
    check(loops(code.clone()), json!(null), &told("exit code 3"));
    let cause = "failed liveness probe: HTTP probe failed with statuscode: 500 (exit code 137)";
    check(loops(code), restarts(&[50], cause), &told(cause));
    let oom = json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}});
    let way_out = "| raise resources.limits.memory, or let the program use less; more: podprobe";
    check(
        loops(oom),
        restarts(&[50], "ended by itself"),
        &told("OOMKilled, it reached its memory limit (exit code 137)")
            .replace("| podprobe", way_out),
    );
    // A container that has never run has no log.
    let never = json!({"terminated": {"exitCode": 128, "reason": "StartError", "message": "no"}});
    check(
        loops(never),
        json!(null),
        &told("StartError, exit code 128: no")
            .replace("logs web-edge -c main -p", "describe pod web-edge"),
    );
    let message =
        json!({"terminated": {"exitCode": 1, "reason": "Error", "message": "no\nconfig\u{1b}"}});
    check(
        loops(message),
        json!(null),
        &told("exit code 1: no config^["),
    );
    check(
        loops(json!({})),
        json!(null),
        &told("nothing is known of the instance before"),
    );
}

#[test]
fn a_pod_that_cannot_start_says_what_it_lacks() {
    let way = "podprobe describe pod web-edge";
    check(
        waiting("ErrImagePull", "no such host", json!({})),
        json!(null),
        &format!(
            "CannotStart pod/web-edge: container main has no image app:1: ErrImagePull: no such host | {way}"
        ),
    );
    check(
        waiting("CreateContainerConfigError", "", json!({})),
        json!(null),
        &format!(
            "CannotStart pod/web-edge: container main cannot start: CreateContainerConfigError | {way}"
        ),
    );
    let creating = status(
        "Pending",
        "False",
        json!({"waiting": {"reason": "ContainerCreating"}}),
        json!({}),
    );
    check(
        creating.clone(),
        json!(null),
        &format!("Waiting pod/web-edge: it has not started: ContainerCreating | {way}"),
    );
    let mut warned = pod(creating);
    warned["events"] = json!([{"namespace": "default", "pod": "web-edge", "uid": "u", "fieldPath": "", "type": "Warning", "reason": "FailedMount",
        "message": "no ConfigMap x", "count": 1, "firstTimestamp": now(), "lastTimestamp": now()}]);
    let told = said(&snapshot(&[warned.clone()], &[]), json!(null), &[]);
    assert_eq!(
        told,
        [format!(
            "Waiting pod/web-edge: it has not started: FailedMount: no ConfigMap x | {way}"
        )]
    );
    warned["pulls"] = json!([{"image": "app:1", "stage": {"queued": {"millis": 12_999}}}]);
    let told = said(&snapshot(&[warned], &[]), json!(null), &[]);
    assert_eq!(
        told,
        [format!(
            "Waiting pod/web-edge: it waits for image app:1: waiting for other pulls, 12s | {way}"
        )]
    );
}

#[test]
fn a_pod_that_is_not_ready_has_the_words_of_its_probe() {
    let told = |why: &str| {
        format!("NotReady pod/web-edge: not ready{why} | podprobe describe pod web-edge")
    };
    let condition = told(": containers with unready status: [main]");
    check(running("False"), json!(null), &condition);
    check(
        running("False"),
        runs(&[("Liveness", "success", "")]),
        &condition,
    );
    check(
        running("False"),
        runs(&[
            ("Liveness", "failure", "later"),
            ("Readiness", "failure", " refused\n"),
        ]),
        &told(", the readiness probe of main fails: refused"),
    );
    check(
        running("False"),
        runs(&[
            ("Readiness", "failure", "x"),
            ("Startup", "errored", "no port \"x\""),
        ]),
        &told(", the startup probe of main cannot be run: no port \"x\""),
    );
}

/// The finding names a paused probe that keeps a pod unready. The last result of a paused probe stays in force, so
/// nothing else can make the pod ready.
#[test]
fn a_paused_probe_that_keeps_a_pod_unready_is_named() {
    let mut unready = pod(running("False"));
    let paused = |probe_type: &str| json!([{"container": "main", "probeType": probe_type, "until": "2026-01-01T01:30:00Z"}]);
    unready["paused"] = paused("Readiness");
    let of =
        |pod: &Value, history: Value| said(&snapshot(std::slice::from_ref(pod), &[]), history, &[]);
    let told = "NotReady pod/web-edge: not ready: the readiness probe of main is paused for another 30m | podprobe resume web-edge/main readiness";
    assert_eq!(of(&unready, json!(null)), [told]);
    let failed = runs(&[("Readiness", "failure", "of before")]);
    assert_eq!(of(&unready, failed), [told]);
    unready["paused"] = paused("Liveness");
    assert!(!of(&unready, json!(null))[0].contains("paused"));
    let mut ready = pod(running("True"));
    ready["paused"] = paused("Readiness");
    assert_eq!(of(&ready, json!(null)), [""; 0]);
}

#[test]
fn a_ready_pod_that_was_restarted_often_is_told_of() {
    let told = "Flapping pod/web-edge: container main was restarted 3 times in 10 minutes: out of luck | podprobe describe pod web-edge";
    check(
        running("True"),
        restarts(&[10, 50, 55, 58], "out of luck"),
        told,
    );
    check(
        running("True"),
        restarts(&[10, 20, 55, 58], "out of luck"),
        "",
    );
}

/// The finding names a liveness probe that is about to kill its container, although the container stays ready during
/// its grace period.
#[test]
fn a_liveness_probe_that_has_failed_often_enough_is_told_of() {
    let told = |outcomes: &[&str], limit: Value| {
        let run = |outcome: &&str| json!({"time": "2026-01-01T00:59:00Z", "micros": 1, "outcome": outcome, "output": "dial: connect: connection refused"});
        let runs: Vec<Value> = outcomes.iter().map(run).collect();
        let history = json!({"probes": [{"container": "main", "probeType": "Liveness", "runs": runs}], "restarts": []});
        let mut pod = pod(running("True"));
        pod["object"]["spec"]["containers"][0]["livenessProbe"] = limit;
        said(&snapshot(&[pod], &[]), history, &[])
    };
    let expected = "Flapping pod/web-edge: the liveness probe of main fails, so it is killed: dial: connect: connection refused | \
        nothing listens on that port: give a program that starts slowly a startupProbe, or correct the port; more: podprobe describe pod web-edge";
    let by_default = || json!({"tcpSocket": {"port": 1}});
    assert_eq!(told(&["failure"; 3], by_default()), [expected]);
    assert_eq!(told(&["failure"; 2], by_default()), [""; 0]);
    let again = ["failure", "success", "failure", "failure"];
    assert_eq!(told(&again, by_default()), [""; 0]);
    let two = json!({"tcpSocket": {"port": 1}, "failureThreshold": 2});
    assert_eq!(told(&again, two), [expected]);
    let more_than_are_kept = json!({"tcpSocket": {"port": 1}, "failureThreshold": 100});
    assert_eq!(
        told(&["failure"; 32], more_than_are_kept.clone()),
        [expected]
    );
    assert_eq!(told(&["failure"; 31], more_than_are_kept), [""; 0]);
}

#[test]
fn a_failed_pod_says_why() {
    let ended = json!({"terminated": {"exitCode": 2, "reason": "Error"}});
    let mut failed = status("Failed", "False", ended, json!({}));
    let told = |why: &str| format!("Failed pod/web-edge: {why} | podprobe describe pod web-edge");
    check(
        failed.clone(),
        json!(null),
        &told("container main has failed: exit code 2"),
    );
    failed["reason"] = "Evicted".into();
    check(failed.clone(), json!(null), &told("Evicted"));
    failed["message"] = "volume x is full".into();
    check(failed, json!(null), &told("Evicted: volume x is full"));
}

#[test]
fn a_refused_file_matters_more_when_nothing_of_it_runs() {
    let problem = |file: &str, error: &str, last_good_runs: bool| json!({"file": file, "error": error, "lastGoodRuns": last_good_runs});
    let problems = [
        problem("/p/a.yaml", "/p/a.yaml:3:1: no", false),
        problem("/p/web.yaml", "bad", true),
        problem("/p/two.yaml", "same pod", false),
        problem("/p/cron.yaml", "/p/cron.yaml:2:1: no", true),
    ];
    let valid = json!({"file": "/p/valid.yaml", "error": "field is immutable", "lastGoodRuns": true, "isValid": true});
    let problems = [problems.to_vec(), vec![valid]].concat();
    let (web, mut two) = (pod(running("True")), pod(running("True")));
    two["file"] = "/p/two.yaml".into();
    let snapshot = snapshot_of(&[web, two], &problems);
    let expected = [
        "Refused /p/a.yaml:3:1: not in use: no | podprobe validate /p/a.yaml",
        "Outdated /p/web.yaml: last good version runs: bad | podprobe validate /p/web.yaml",
        "Outdated /p/two.yaml: not in use: same pod | podprobe validate /p/two.yaml",
        "Outdated /p/cron.yaml:2:1: last good version runs: no | podprobe validate /p/cron.yaml",
        // The error has the way out, and `validate` would find nothing.
        "Outdated /p/valid.yaml: last good version runs: field is immutable | ",
    ];
    assert_eq!(said(&snapshot, json!(null), &[]), expected);
}

fn service(namespace: &str, extra: Value) -> ServiceView {
    let mut value = json!({"namespace": namespace, "name": "web", "type": "ClusterIP", "ports": [{"port": 80, "protocol": "TCP"}]});
    value
        .as_object_mut()
        .unwrap()
        .extend(extra.as_object().unwrap().clone());
    serde_json::from_value(value).unwrap()
}

#[test]
fn a_service_that_leads_nowhere_says_why() {
    let check = |service: ServiceView, expected: &[&str]| {
        assert_eq!(said(&snapshot(&[], &[]), json!(null), &[service]), expected);
    };
    check(
        service(
            "default",
            json!({"ports": [{"port": 80, "endpoints": ["10.0.0.1:80"]}]}),
        ),
        &[],
    );
    check(service("default", json!({"type": "ExternalName"})), &[]);
    check(service("default", json!({"ports": []})), &[]);
    let nowhere = "Service service/web: its clients are sent nowhere";
    let way = "podprobe describe service web";
    check(
        service("shop", json!({})),
        &[&format!("{nowhere}: it has no endpoints | {way} -n shop")],
    );
    check(
        service("default", json!({"note": "no pod has the labels app=web"})),
        &[&format!("{nowhere}: no pod has the labels app=web | {way}")],
    );
    let pods = json!([{"namespace": "default", "name": "web-edge", "gets_traffic": false, "why": ["not ready", "x"]}]);
    check(
        service("default", json!({"pods": pods})),
        &[&format!("{nowhere}: web-edge: not ready; x | {way}")],
    );
    check(
        service("default", json!({"problems": ["port 80 is taken"]})),
        &[&format!("Service service/web: port 80 is taken | {way}")],
    );
}

#[test]
fn what_matters_most_comes_first() {
    let mut snapshot = snapshot(
        &[
            pod(running("False")),
            pod(waiting("CrashLoopBackOff", "", json!({}))),
        ],
        &[("/p/a.yaml", "no")],
    );
    snapshot.stalled = Some("the sync loop stands".into());
    let facts = Facts {
        snapshot: &snapshot,
        services: &[service("default", json!({}))],
        workloads: &[],
        histories: HashMap::new(),
        disk: Some("/var has 0B left".into()),
        now: now(),
    };
    let order: Vec<Severity> = findings(&facts).iter().map(|f| f.severity).collect();
    assert_eq!(
        order,
        [
            Severity::Stalled,
            Severity::DiskFull,
            Severity::CrashLoop,
            Severity::Refused,
            Severity::NotReady,
            Severity::Service
        ]
    );
}

#[test]
fn a_service_without_endpoints_is_no_other_thing_than_its_pods() {
    let service = |pods: Value| {
        service(
            "default",
            json!({"pods": pods, "ports": [{"port": 80, "endpoints": []}]}),
        )
    };
    let of_pod = |name: &str| json!({"namespace": "default", "name": name, "gets_traffic": false, "getsTraffic": false, "why": ["not ready"]});
    let unready = snapshot(&[pod(running("False"))], &[]);
    let count = |pods: Value| said(&unready, json!(null), &[service(pods)]).len();
    assert_eq!(count(json!([of_pod("web-edge")])), 1);
    assert_eq!(
        count(json!([of_pod("web-edge"), of_pod("well-edge")])),
        2,
        "one of its pods is well"
    );
    assert_eq!(count(json!([])), 2, "it has no pods");
}

#[test]
fn what_is_not_run_of_a_file_is_told_last() {
    let mut with = snapshot(
        &[pod(running("False"))],
        &[("/p/shop.yaml", "NetworkPolicy")],
    );
    with.problems[0].is_in_use = true;
    let told = said(&with, json!(null), &[]);
    assert_eq!(told.len(), 2);
    assert_eq!(told[1], "NotRun /p/shop.yaml: NetworkPolicy | ");
}

/// Checks the findings of a workload whose pods are well.
#[track_caller]
fn check_workload(view: Value, expected: &[&str]) {
    let views = [serde_json::from_value(view).unwrap()];
    let said = said_of(&snapshot(&[], &[]), json!(null), &[], &views);
    assert_eq!(said, expected);
}

#[test]
fn a_rollout_that_made_no_progress_is_told_of_though_its_old_pods_are_well() {
    let deployment = |namespace: &str| json!({"kind": "Deployment", "metadata": {"name": "web", "namespace": namespace}});
    let stuck = json!({"error": "deployment \"web\" exceeded its progress deadline"});
    let waiting = "images of the new pods cannot be pulled: no such image";
    check_workload(
        json!({"object": deployment("shop"), "rollout": stuck, "waiting": waiting}),
        &[
            "Workload deployment/web: images of the new pods cannot be pulled: no such image | podprobe describe deployment web -n shop",
        ],
    );
    check_workload(
        json!({"object": deployment("default"), "rollout": stuck}),
        &[
            "Workload deployment/web: deployment \"web\" exceeded its progress deadline | podprobe describe deployment web",
        ],
    );
    let going_on = json!({"text": "Waiting for deployment"});
    check_workload(
        json!({"object": deployment("default"), "rollout": going_on, "waiting": waiting}),
        &[],
    );
    // kubectl's word for a strategy without rollouts is no problem
    let object = json!({"kind": "StatefulSet", "metadata": {"name": "db"}});
    let on_delete =
        json!({"error": "rollout status is only available for RollingUpdate strategy type"});
    check_workload(json!({"object": object, "rollout": on_delete}), &[]);
}

#[test]
fn a_workload_that_is_left_as_it_is_and_a_version_that_fits_in_no_way_are_told_of() {
    let object = json!({"kind": "DaemonSet", "metadata": {"name": "agent"}});
    let why = "a newer podprobe has written its state";
    check_workload(
        json!({"object": object, "waiting": why, "isHeld": true}),
        &[
            "Workload daemonset/agent: a newer podprobe has written its state | podprobe describe daemonset agent",
        ],
    );
    check_workload(json!({"object": object, "waiting": why}), &[]);
    let progressing = |reason: &str| {
        json!({"object": {"kind": "Deployment", "metadata": {"name": "web"},
                "status": {"conditions": [{"type": "Progressing", "status": "True", "reason": reason}]}},
            "waiting": "a new pod does not fit: memory"})
    };
    check_workload(
        progressing("DoesNotFit"),
        &[
            "Workload deployment/web: a new pod does not fit: memory | podprobe describe deployment web",
        ],
    );
    check_workload(progressing("ReplicaSetUpdated"), &[]);
}

#[test]
fn a_job_that_has_failed_is_told_of_and_those_of_a_cron_job_are_not() {
    let failed = |status: &str, owners: Value| {
        let condition = json!([{"type": "Failed", "status": status, "reason": "DeadlineExceeded",
            "message": "Job was active longer than specified deadline"}]);
        json!({"object": {"kind": "Job", "metadata": {"name": "once", "namespace": "default", "ownerReferences": owners},
            "status": {"conditions": condition}}})
    };
    check_workload(
        failed("True", json!([])),
        &[
            "Workload job/once: it has failed: DeadlineExceeded: Job was active longer than specified deadline | podprobe describe job once",
        ],
    );
    check_workload(failed("False", json!([])), &[]);
    let owner = json!([{"kind": "CronJob", "name": "tick", "controller": true}]);
    check_workload(failed("True", owner), &[]);
}
