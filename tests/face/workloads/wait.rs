//! `wait` for workloads, and for what labels choose.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use super::{World, all, web, world};
use crate::cli::{check_output, text};
use crate::terminal::Killed;

fn available(status: &str) -> Value {
    let mut view = web();
    view["object"]["status"]["conditions"][0] =
        json!({"type": "Available", "status": status, "message": "too few"});
    view
}

#[test]
fn a_condition_that_is_there_is_met_at_once() {
    let world = world();
    let met = "job.batch/backup-29 condition met\n";
    world.check("wait job/backup-29 --for=condition=Complete", met);
    world.check("wait jobs.batch backup-29 --for=condition=complete", met);
    world.check(
        "wait job/backup-29 deploy/web pod/alone --for=jsonpath={.metadata.namespace}",
        "pod/alone-edge condition met\njob.batch/backup-29 condition met\ndeployment.apps/web condition met\n",
    );
    let line = "wait sts/db --for=jsonpath={.status.readyReplicas}=1";
    world.check(line, "statefulset.apps/db condition met\n");
}

#[test]
fn a_condition_is_waited_for_until_it_is_met() {
    let world = World::new(vec![], vec![]);
    world.set_workloads(1, &[available("False")]);
    let mut command = world.command("wait deploy/web --for=condition=Available --timeout=60s");
    let mut child = Killed(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    world.set_workloads(2, &[available("True")]);
    let met = "deployment.apps/web condition met";
    assert_eq!(lines.next().unwrap().unwrap(), met);
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
}

#[test]
fn when_the_time_is_over_the_verb_ends_with_1_and_says_why() {
    let world = World::new(vec![], vec![]);
    world.set_workloads(1, &[available("False")]);
    let late = "error: timed out waiting for the condition on deployments/web\ndeployment.apps/web: Available is False: too few\n";
    for time in ["0", "300ms"] {
        let line = format!("wait deploy/web --for=condition=Available --timeout={time}");
        world.check_failure(&line, 1, late);
    }
    let gone = "error: timed out waiting for the condition on deployments/web\n";
    world.check_failure("wait deploy/web --for=delete --timeout=0", 1, gone);
    let missing = "error: timed out waiting for the condition on deployments/x\ndeployments.apps \"x\" not found\n";
    let line = "wait deploy/x --for=condition=Available --timeout=0";
    world.check_failure(line, 1, missing);
    let complete = "job.batch/backup-29 is complete\n";
    world.set_workloads(2, &all());
    world.check_failure("wait job/backup-29 --for=condition=Failed", 1, complete);
    let wrong = "podprobe: podprobe knows pods only, not 'svc'; write 'pod/web'\n";
    world.check_failure("wait svc/web --for=condition=Ready", 2, wrong);
}

#[test]
fn labels_choose_what_there_is_now() {
    let world = world();
    let line = "wait deploy,job -l app=web --for=jsonpath={.status.readyReplicas}=2";
    world.check(line, "deployment.apps/web condition met\n");
    let line = "wait -l app=web --for=condition=Ready";
    world.check(line, "pod/web-7b9-abcde condition met\n");
    let line = "wait pods -l app=web --for=condition=Ready";
    world.check(line, "pod/web-7b9-abcde condition met\n");
    let none = "error: no matching resources found\n";
    world.check_failure("wait ds -l app=x --for=condition=Ready", 1, none);
    world.check("wait ds -l app=x --for=delete", "");
    let output = world.run("wait deploy web -l app=web --for=delete");
    let both = "podprobe: -l and names exclude each other\n";
    check_output(&output, 2, "", both);
    let output = world.run("wait svc -l app=web --for=delete");
    assert!(text(&output.stderr).contains("takes pods and kinds of workloads, not 'svc'"));
}
