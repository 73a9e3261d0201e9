//! Verbs for one pod that take a workload: `logs`, `exec`, `attach`, `cp` and `port-forward`.

use std::process::{Output, Stdio};

use serde_json::{Value, json};

use super::{World, all, pod_of, world};
use crate::cli::{check_output, text, write_log};
use crate::support::wait_until;

/// A world in which the Deployment has two pods, each with a log.
fn two_pods() -> World {
    let world = World::new(vec![], vec![]);
    let pod = |name: &str| with_log(&world, name);
    let (mut first, second) = (pod("web-7b9-a"), pod("web-7b9-b"));
    first["status"]["conditions"][0]["status"] = "False".into();
    world.set(2, vec![first, second], vec![]);
    world.set_workloads(1, &all());
    world
}

/// A pod of the Deployment, with a log.
fn with_log(world: &World, name: &str) -> Value {
    let mut pod = pod_of("ReplicaSet", "web-7b9", name);
    let (root, file) = (world.root.path(), format!("{name}/main/0.log"));
    write_log(root, &file, &format!("F of {name}"));
    pod["logDir"] = root.join("logs").join(name).to_str().unwrap().into();
    pod
}

/// Runs a verb. The root is a variable, because everything after `--` is the command's.
fn run(world: &World, line: &str) -> Output {
    let mut command = world.command(line);
    command.env("PODPROBE_ROOT", world.root.path());
    command.output().unwrap()
}

#[test]
fn logs_of_a_workload_are_those_of_the_pod_that_kubectl_chooses() {
    let world = two_pods();
    let found = "Found 2 pods, using pod/web-7b9-b\n";
    for line in ["logs deploy/web", "logs deployment.apps/web main"] {
        check_output(&world.run(line), 0, "of web-7b9-b\n", found);
    }
    let both = "[pod/web-7b9-b/main] of web-7b9-b\n[pod/web-7b9-a/main] of web-7b9-a\n";
    check_output(&world.run("logs deploy/web --all-pods"), 0, both, "");
    let lacking = format!("{found}container mian is not valid for pod web-7b9-b");
    let error = text(&world.run("logs deploy/web -c mian").stderr);
    assert!(error.starts_with(&lacking), "{error}");
}

#[test]
fn one_pod_of_a_workload_is_not_named() {
    let world = world();
    let error = text(&run(&world, "exec deploy/web -- ls").stderr);
    assert!(
        error.starts_with("podprobe refused the request") && !error.contains("Found"),
        "{error}"
    );
}

/// The daemon that the test makes up has no containers to go into.
#[test]
fn a_command_runs_in_the_pod_that_kubectl_chooses() {
    let world = two_pods();
    for line in [
        "exec deploy/web -- ls",
        "attach deploy/web",
        "cp deploy/web:/etc/hosts -",
    ] {
        let output = run(&world, line);
        let error = text(&output.stderr);
        let found = "Found 2 pods, using pod/web-7b9-b\n";
        assert!(error.starts_with(found), "{line}: {error}");
        assert_eq!(output.status.code(), Some(1), "{line}");
    }
}

#[test]
fn what_has_no_pods_says_so() {
    let world = world();
    let check = |name: &str, why: &str| {
        for verb in ["logs NAME", "exec NAME -- ls", "port-forward NAME 80"] {
            let line = verb.replace("NAME", name);
            check_output(&run(&world, &line), 1, "", &format!("{why}\n"));
        }
    };
    check(
        "deploy/wbe",
        "deployments.apps \"wbe\" not found, did you mean 'web'?",
    );
    check("deploy/x", "deployments.apps \"x\" not found");
    check(
        "cj/backup",
        "cronjob.batch/backup has no pods of its own; name one of its jobs, which 'podprobe get jobs' lists",
    );
    let none = "job.batch/backup-29 has no pods";
    for verb in ["logs job/backup-29", "port-forward job/backup-29 80"] {
        let line = format!("{verb} --pod-running-timeout=50ms");
        world.check_failure(&line, 1, &format!("{none}\n"));
    }
    let line = "exec --pod-running-timeout 50ms job/backup-29 -- ls";
    check_output(&run(&world, line), 1, "", &format!("{none}\n"));
    world.check_failure(
        "logs deploy/web --pod-running-timeout=0s",
        2,
        "podprobe: --pod-running-timeout must be higher than zero\n",
    );
    let wrong = "podprobe: podprobe knows pods only, not 'cm'; write 'pod/web'\n";
    world.check_failure("logs cm/web", 2, wrong);
    check_output(&run(&world, "exec cm/web -- ls"), 2, "", wrong);
}

/// First no pod is there, and then one whose container is still to be created.
#[test]
fn the_first_pod_of_a_workload_is_waited_for() {
    let world = two_pods();
    let begun = with_log(&world, "web-7b9-b");
    let mut creating = begun.clone();
    creating["status"]["phase"] = "Pending".into();
    creating["status"]["containerStatuses"][0]["state"] =
        json!({"waiting": {"reason": "ContainerCreating"}});
    world.set(3, vec![], vec![]);
    let start = |line: &str| {
        let mut command = world.command(line);
        command.env("PODPROBE_ROOT", world.root.path());
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let verbs = [
        "logs deploy/web",
        "exec deploy/web -- ls",
        "attach deploy/web",
        "port-forward deploy/web :x",
    ];
    let children = verbs.map(start);
    let all_wait = |version: u64| {
        wait_until("all verbs to wait", || {
            let watched = world.backend.watched.lock().unwrap();
            watched.iter().filter(|of| **of == version).count() >= verbs.len()
        });
    };
    all_wait(3);
    world.set(4, vec![creating], vec![]);
    all_wait(4);
    world.set(5, vec![begun], vec![]);
    let ends = [
        "of web-7b9-b\n",
        "podprobe refused the request",
        "podprobe refused the request",
        "no container of the pod has a port named \"x\"",
    ];
    for ((child, verb), end) in children.into_iter().zip(verbs).zip(ends) {
        let output = child.wait_with_output().unwrap();
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert!(said.starts_with(end), "{verb}: {said}");
    }
}

/// An ending pod is not chosen while another one is ready, and it is shown as ending.
#[test]
fn a_pod_that_ends_is_shown_as_ending() {
    let world = two_pods();
    let mut ending: Value = pod_of("ReplicaSet", "web-7b9", "web-7b9-c");
    ending["object"]["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z".into();
    world.set(3, vec![ending], vec![]);
    let row = text(&world.run("get pods --no-headers").stdout);
    assert!(row.starts_with("web-7b9-c   1/1   Terminating"), "{row}");
}
