use serde_json::{Value, json};

use super::*;
use crate::cli::args::testing;

fn wait(line: &str) -> Wait {
    testing::parse(&VERB, parse, line).unwrap()
}

#[track_caller]
fn check_error(line: &str, expected: &str) {
    assert_eq!(
        testing::parse(&VERB, parse, line),
        Err(expected.into()),
        "{line}"
    );
}

#[test]
fn the_command_line_is_kubectls() {
    let ready = Wait {
        root: "/".into(),
        pods: vec!["web".into()],
        workloads: Vec::new(),
        labels: None,
        namespace: None,
        goal: Goal::Condition("Ready".into(), "True".into()),
        timeout: TIMEOUT,
    };
    for line in [
        "wait web --for=condition=Ready",
        "wait pod/web --for condition=Ready",
        "wait pod web --for=condition=Ready",
    ] {
        assert_eq!(wait(line), ready, "{line}");
    }
    let waits = wait("wait a b -n x --for=condition=ready=false --timeout=1m30s");
    assert_eq!((waits.pods.len(), waits.timeout.as_secs()), (2, 90));
    assert_eq!(waits.goal, Goal::Condition("ready".into(), "false".into()));
    assert_eq!(
        wait("wait a --for=delete --timeout=-1s").timeout,
        MAX_TIMEOUT
    );
    assert_eq!(
        wait("wait a --for=delete --timeout=0").timeout,
        Duration::ZERO
    );
    let web = || Named::of_kind("deploy/web").unwrap();
    for line in [
        "wait deploy web --for=delete",
        "wait deployment.apps/web --for=delete",
        "wait deploy deploy/web --for=delete",
    ] {
        let waits = wait(line);
        assert_eq!(
            (waits.pods, waits.workloads),
            (vec![], vec![web()]),
            "{line}"
        );
    }
    let mixed = wait("wait a deploy/web pod/b job/c --for=delete");
    assert_eq!(mixed.pods, ["a", "b"]);
    assert_eq!(mixed.workloads, [web(), Named::of_kind("job/c").unwrap()]);
    let path = Path::parse("{.a[?(@.b==1)].c}").unwrap();
    assert_eq!(
        wait("wait a --for=jsonpath={.a[?(@.b==1)].c}=x=y").goal,
        Goal::JsonPath(path.clone(), Some("x=y".into()))
    );
    assert_eq!(
        wait("wait a --for=jsonpath={.a[?(@.b==1)].c}").goal,
        Goal::JsonPath(path, None)
    );
}

#[test]
fn what_is_missing_or_wrong_is_said() {
    let usage = "podprobe wait POD… --for=condition=Ready";
    check_error("wait", &format!("'wait' needs a pod: {usage}"));
    check_error(
        "wait web",
        &format!("'wait' needs what to wait for: {usage}"),
    );
    let takes = "--for takes condition=TYPE[=STATUS], delete, or jsonpath='{PATH}'[=VALUE]";
    for goal in ["ready", "condition=", "condition=Ready=", "delete=x"] {
        check_error(
            &format!("wait web --for={goal}"),
            &format!("{takes}, not '{goal}'"),
        );
    }
    check_error(
        "wait web --for=jsonpath={.a",
        "--for: jsonpath, character 4: '}' is missing at the end",
    );
    check_error(
        "wait web --for=delete --timeout=169h",
        "--timeout takes 0s to 168h, not '169h'",
    );
    let error = testing::parse(&VERB, parse, "wait web --for=delete --timeout=5").unwrap_err();
    assert!(error.starts_with("cannot use --timeout: "), "{error}");
}

fn pod(name: &str, uid: &str, ready: &str) -> Value {
    let conditions = json!([{"type": "Ready", "status": ready, "lastTransitionTime": null, "message": "containers with unready status: [c]"}]);
    json!({"object": {"metadata": {"name": format!("{name}-edge"), "namespace": "default", "uid": uid}}, "status": {"phase": "Running", "conditions": conditions},
        "file": format!("/p/{name}.yaml"), "warnings": [], "terminating": false, "logDir": "", "events": []})
}

fn snapshot(pods: &[Value], refused: &[&str]) -> Snapshot {
    let problems: Vec<Value> = refused
        .iter()
        .map(|file| json!({"file": file, "error": "no"}))
        .collect();
    serde_json::from_value(
        json!({"version": 1, "nodeName": "edge", "pods": pods, "problems": problems}),
    )
    .unwrap()
}

/// Checks the output of a command line after each snapshot in turn. Then checks the output if the time is over
/// after the last snapshot.
#[track_caller]
fn check(line: &str, snapshots: &[Snapshot], expected: &[&str]) {
    let wait = wait(line);
    let mut waiting = Waiting::new(&wait);
    let mut said = Vec::new();
    for snapshot in snapshots {
        match waiting.step(snapshot) {
            Ok(met) => said.push(met.join(" ")),
            Err(e) => said.push(format!("{e}")),
        }
    }
    if let Some(last) = snapshots.last() {
        said.extend(waiting.gave_up(last));
    }
    assert_eq!(said, expected, "{line}");
}

/// A pod that was deleted counts as gone when its containers have ended, although it stays in the list until
/// its file changes.
#[test]
fn a_pod_that_was_deleted_is_gone_when_its_containers_have_ended() {
    let deleted = |state: Value| {
        let mut pod = pod("a", "1", "False");
        pod["status"]["reason"] = DELETED.into();
        pod["status"]["containerStatuses"] = json!([{"name": "c", "state": state}]);
        snapshot(&[pod], &[])
    };
    let steps = [
        deleted(json!({"running": {"startedAt": null}})),
        deleted(json!({"terminated": {"exitCode": 137}})),
    ];
    check("wait a --for=delete", &steps, &["", "a-edge"]);
}

#[test]
fn each_pod_is_named_once_when_it_is_as_asked() {
    let (no, yes) = (pod("a", "1", "False"), pod("a", "1", "True"));
    let (b, b_ready) = (pod("b", "2", "False"), pod("b", "2", "True"));
    let steps = [
        snapshot(&[no.clone(), b.clone()], &[]),
        snapshot(&[yes.clone(), b.clone()], &[]),
        snapshot(&[no.clone(), b_ready], &[]),
    ];
    check(
        "wait a b --for=condition=Ready",
        &steps,
        &["", "a-edge", "b-edge"],
    );
    check(
        "wait a --for=condition=ready=false",
        &steps[1..],
        &["", "a-edge"],
    );
    check(
        "wait a --for=jsonpath={.status.phase}=Running",
        &steps[..1],
        &["a-edge"],
    );
    check(
        "wait a --for=jsonpath=.status.phase=Running",
        &steps[..1],
        &["a-edge"],
    );
    check(
        "wait a --for=jsonpath={.status.conditions[0].status}=True",
        &steps,
        &["", "a-edge", ""],
    );
    check(
        "wait a --for=jsonpath={.metadata.uid}",
        &steps[..1],
        &["a-edge"],
    );
}

#[test]
fn a_pod_is_gone_also_when_another_has_its_name() {
    let (old, new) = (
        snapshot(&[pod("a", "1", "True")], &[]),
        snapshot(&[pod("a", "2", "True")], &[]),
    );
    let none = snapshot(&[], &["/p/a.yaml"]);
    check(
        "wait a --for=delete",
        &[old.clone(), none.clone()],
        &["", "a-edge"],
    );
    check("wait a --for=delete", &[old.clone(), new], &["", "a-edge"]);
    check("wait a --for=delete", &[none], &["a"]);
    check(
        "wait a --for=delete",
        &[old],
        &[
            "",
            "error: timed out waiting for the condition on pods/a-edge",
        ],
    );
}

/// A change of a pod's file replaces the pod. The old and the new pod share the name until the old pod
/// has ended.
#[test]
fn while_a_pod_is_replaced_the_new_one_is_waited_for() {
    let mut old = pod("a", "1", "True");
    old["terminating"] = true.into();
    let new = |ready| pod("a", "2", ready);
    let steps = [
        snapshot(&[old.clone(), new("False")], &[]),
        snapshot(&[new("True")], &[]),
    ];
    check("wait a --for=condition=Ready", &steps, &["", "a-edge"]);
    check("wait a --for=delete", &steps, &["", "a-edge"]);
}

#[test]
fn a_rejected_pod_is_waited_for_while_room_would_mend_it_and_the_reason_is_told() {
    let rejected = |phase: &str, reason: &str, start: &str| {
        let mut pod = pod("a", "1", "False");
        let message = format!("{start}: no more");
        pod["status"] = json!({"phase": phase, "reason": reason, "message": message});
        snapshot(&[pod], &[])
    };
    let refused = "Pod was rejected";
    let no_room = rejected("Failed", "OutOfmemory", refused);
    let ready = snapshot(&[pod("a", "1", "True")], &[]);
    let line = "wait a --for=condition=Ready";
    check(line, &[no_room.clone(), ready], &["", "a-edge"]);
    let timed_out = "error: timed out waiting for the condition on pods/a-edge";
    let why = "a-edge was rejected: OutOfmemory: no more";
    check(line, std::slice::from_ref(&no_room), &["", timed_out, why]);
    let path = "wait a --for=jsonpath={.status.podIP}";
    check(path, std::slice::from_ref(&no_room), &["", timed_out, why]);
    let ending = "Pod waits until other pods have ended";
    let soon = "a-edge waits until other pods have ended: OutOfmemory: no more";
    check(
        line,
        &[rejected("Pending", "OutOfmemory", ending)],
        &["", timed_out, soon],
    );

    let for_good = rejected("Failed", "NodeAffinity", refused);
    let mut waiting = wait(line);
    let step = |wait: &Wait| {
        Waiting::new(wait)
            .step(&for_good)
            .map_err(|e| e.to_string())
    };
    let why = "a-edge was rejected: NodeAffinity: no more";
    assert_eq!(step(&waiting), Err(why.to_owned()));
    waiting.goal = Goal::Delete;
    assert_eq!(step(&waiting), Ok(vec![]));
    let path = wait("wait a --for=jsonpath={.status.phase}=Failed");
    assert_eq!(step(&path), Ok(vec!["a-edge".to_owned()]));
}

#[test]
fn a_pod_that_is_not_there_is_waited_for_unless_its_file_is_refused() {
    let there = snapshot(&[pod("a", "1", "True")], &["/p/other.yaml"]);
    let none = snapshot(&[pod("b", "2", "True")], &["/p/other.yaml"]);
    check(
        "wait a --for=condition=Ready",
        &[none.clone(), there],
        &["", "a-edge"],
    );
    let gave_up = [
        "",
        "error: timed out waiting for the condition on pods/x",
        "pods \"x\" not found",
    ];
    check("wait x --for=condition=Ready", &[none], &gave_up);
    let refused = snapshot(&[], &["/p/a.yaml"]);
    let said = wait("wait a --for=condition=Ready");
    let error = Waiting::new(&said).step(&refused).unwrap_err();
    assert_eq!(error.to_string(), "/p/a.yaml: not in use: no");
}

#[test]
fn when_the_time_is_over_the_condition_says_why() {
    let no = snapshot(&[pod("a", "1", "False")], &[]);
    let timed_out = "error: timed out waiting for the condition on pods/a-edge";
    let why = "a-edge is Running, Ready is False: containers with unready status: [c]";
    check(
        "wait a --for=condition=ready",
        std::slice::from_ref(&no),
        &["", timed_out, why],
    );
    check(
        "wait a --for=condition=lb",
        &[no],
        &["", timed_out, "a-edge has no condition lb"],
    );
}
