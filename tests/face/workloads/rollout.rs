//! `rollout`, `scale`, `create job` and `rerun`.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use podprobe::api::workload::{WorkloadKey, WorkloadKind};
use podprobe::workloads::view::{Change, ChangeError, ChangeRequest, Changed};
use serde_json::{Value, json};

use super::{World, all, job, object, view, web, world};
use crate::cli::check_output;
use crate::terminal::Killed;

fn rolling(text: &str, is_done: bool) -> Value {
    let mut view = web();
    view["rollout"] = json!({"text": text, "isDone": is_done});
    view
}

/// The verb's lines and exit code, while the daemon shows these workloads one after the other.
#[track_caller]
fn check_status(line: &str, steps: &[Vec<Value>], stdout: &[&str], stderr: &str, code: i32) {
    let world = World::new(vec![], vec![]);
    world.set_workloads(1, &steps[0]);
    let mut command = world.command(line);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Killed(command.spawn().unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    for (step, expected) in stdout.iter().enumerate() {
        assert_eq!(lines.next().unwrap().unwrap(), *expected);
        let version = u64::try_from(step).unwrap() + 2;
        if let Some(next) = steps.get(step + 1) {
            world.set_workloads(version, next);
        }
    }
    assert!(lines.next().is_none());
    let mut said = String::new();
    let mut pipe = child.0.stderr.take().unwrap();
    pipe.read_to_string(&mut said).unwrap();
    let ended = child.0.wait().unwrap().code();
    assert_eq!((said.as_str(), ended), (stderr, Some(code)));
}

const WAITING: &str = "Waiting for deployment \"web\" rollout to finish: 1 out of 3 new replicas have been updated...";
const DONE: &str = "deployment \"web\" successfully rolled out";

#[test]
fn a_rollout_is_followed_to_its_end() {
    let steps = [vec![rolling(WAITING, false)], vec![rolling(DONE, true)]];
    let line = "rollout status deployment/web --timeout=1m";
    check_status(line, &steps, &[WAITING, DONE], "", 0);
    check_status("rollout status deploy web", &steps[1..], &[DONE], "", 0);
    let once = "rollout status deploy/web --watch=false";
    check_status(once, &steps[..1], &[WAITING], "", 0);
    check_status(
        "rollout status deploy -l app=web",
        &steps,
        &[WAITING, DONE],
        "",
        0,
    );
}

#[test]
fn a_rollout_beyond_its_deadline_ends_the_verb_with_1() {
    let mut late = rolling(WAITING, false);
    late["rollout"]["error"] = "deployment \"web\" exceeded its progress deadline".into();
    let steps = [vec![rolling(WAITING, false)], vec![late]];
    let error = "error: deployment \"web\" exceeded its progress deadline\n";
    check_status("rollout status deploy/web", &steps, &[WAITING], error, 1);
    let gone = [vec![rolling(WAITING, false)], vec![]];
    let error = "error: object has been deleted\n";
    check_status("rollout status deploy/web", &gone, &[WAITING], error, 1);
    let waiting = &steps[..1];
    let error = "error: timed out waiting for the condition\n";
    let line = "rollout status deploy/web --timeout=300ms";
    check_status(line, waiting, &[WAITING], error, 1);
    let error = "error: desired revision (3) is different from the running revision (4)\n";
    check_status(
        "rollout status deploy/web --revision=3",
        waiting,
        &[],
        error,
        1,
    );
    let line = "rollout status deploy/web --revision=4 --watch=false";
    check_status(line, waiting, &[WAITING], "", 0);
    let error = "error: no status viewer has been implemented for Job.batch\n";
    check_status(
        "rollout status job/backup-29",
        &[vec![job()]],
        &[],
        error,
        1,
    );
    let error = "deployments.apps \"x\" not found\n";
    check_status("rollout status deploy/x", waiting, &[], error, 1);
}

fn with_revisions() -> World {
    let template = |image: &str| json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": image}]}});
    let mut view = web();
    view["revisions"] = json!([
        {"revision": 4, "changeCause": "image 2", "template": template("app:2")},
        {"revision": 3, "changeCause": "", "template": template("app:1")},
    ]);
    let world = World::new(vec![], vec![]);
    world.set_workloads(1, &[view, super::stateful_set(), job()]);
    world
}

#[test]
fn the_history_is_kubectls() {
    let world = with_revisions();
    let table =
        "deployment.apps/web \nREVISION  CHANGE-CAUSE\n3         <none>\n4         image 2\n\n";
    world.check("rollout history deploy/web", table);
    let none = "statefulset.apps/db \nNo rollout history found.\n";
    world.check("rollout history sts/db", none);
    let template = |number: u8, image: &str, annotations: &str| {
        format!(
            "deployment.apps/web with revision #{number}\nPod Template:\n  Labels:\tapp=web\n{annotations}  Containers:\n   main:\n    Image:\t{image}\n    Port:\t<none>\n    Host Port:\t<none>\n    Environment:\t<none>\n    Mounts:\t<none>\n  Volumes:\t<none>\n  Node-Selectors:\t<none>\n  Tolerations:\t<none>\n\n"
        )
    };
    world.check(
        "rollout history deploy/web --revision=3",
        &template(3, "app:1", ""),
    );
    let cause = "  Annotations:\tkubernetes.io/change-cause: image 2\n";
    world.check(
        "rollout history deploy/web --revision=4",
        &template(4, "app:2", cause),
    );
    let missing = "error: unable to find the specified revision\n";
    world.check_failure("rollout history deploy/web --revision=9", 1, missing);
    let job = "error: no history viewer has been implemented for \"Job.batch\"\n";
    world.check_failure("rollout history job/backup-29", 1, job);
}

#[test]
fn the_history_says_that_revisions_were_lost() {
    let mut lost = web();
    lost["object"]["status"]["conditions"] =
        json!([{"type": "HistoryLost", "status": "True", "message": "the others are gone"}]);
    let world = World::new(vec![], vec![]);
    world.set_workloads(1, &[lost]);
    let said = world.run("rollout history deploy/web");
    let none = "deployment.apps/web \nNo rollout history found.\n";
    let lost = "deployment.apps/web: the others are gone\n";
    check_output(&said, 0, none, lost);
}

pub(super) fn key(kind: WorkloadKind, name: &str) -> WorkloadKey {
    WorkloadKey {
        kind,
        namespace: "default".into(),
        name: name.into(),
    }
}

/// Checks what is printed when the daemon says `done`, and what it was asked for.
#[track_caller]
fn check_change(line: &str, done: &str, printed: &str, workload: WorkloadKey, change: Change) {
    let world = world();
    let of_file = view(object("Job", "load", json!({}), json!({})));
    world.set_workloads(2, &[all(), vec![of_file]].concat());
    let answer = Changed { done: done.into() };
    world.backend.answers.lock().unwrap().push(Ok(answer));
    world.check(line, printed);
    let asked = world.backend.changes.lock().unwrap().clone();
    assert_eq!(asked, [ChangeRequest { workload, change }]);
}

#[test]
fn changes_are_asked_for_and_said_in_kubectls_words() {
    let web = || key(WorkloadKind::Deployment, "web");
    let of_web = |line: &str, done: &str, change| {
        check_change(
            line,
            done,
            &format!("deployment.apps/web {done}\n"),
            web(),
            change,
        );
    };
    of_web("rollout restart deploy/web", "restarted", Change::Restart);
    of_web("rollout pause deploy/web", "paused", Change::Pause);
    of_web("rollout resume deploy/web", "resumed", Change::Resume);
    of_web("rollout retry deploy/web", "tried again", Change::Retry);
    let undo = |to_revision| Change::Undo { to_revision };
    of_web("rollout undo deploy/web", "rolled back", undo(None));
    let skipped = "skipped rollback (current template already matches revision 4)";
    of_web(
        "rollout undo deploy/web --to-revision=4",
        skipped,
        undo(Some(4)),
    );
    let scale = |current_replicas| Change::Scale {
        replicas: 5,
        current_replicas,
    };
    of_web("scale --replicas=5 deployment/web", "scaled", scale(None));
    of_web(
        "scale deploy web --replicas=5 --current-replicas=3",
        "scaled",
        scale(Some(3)),
    );
    check_change(
        "create job now --from=cronjob/backup",
        "created",
        "job.batch/now created\n",
        key(WorkloadKind::CronJob, "backup"),
        Change::CreateJob { name: "now".into() },
    );
    check_change(
        "rerun load",
        "runs again",
        "job.batch/load runs again\n",
        key(WorkloadKind::Job, "load"),
        Change::Rerun,
    );
}

#[test]
fn what_the_daemon_refuses_is_kubectls_error() {
    let check = |line: &str, refused: &str, expected: &str| {
        let world = world();
        let refused = ChangeError::Refused(refused.into());
        world.backend.answers.lock().unwrap().push(Err(refused));
        world.check_failure(line, 1, expected);
    };
    let paused = "can't restart paused deployment (run rollout resume first)";
    let named = |why: &str| format!("error: deployments.apps \"web\" {why}\n");
    check("rollout restart deploy/web", paused, &named(paused));
    let already = "is already paused";
    check("rollout pause deploy/web", already, &named(already));
    check(
        "rollout resume deploy/web",
        "is not paused",
        &named("is not paused"),
    );
    let nothing = "nothing was rolled back, so there is nothing to try again";
    check(
        "rollout retry deploy/web",
        nothing,
        &format!("error: {nothing}\n"),
    );
    let unknown = "unable to find specified revision 9 in history";
    check(
        "rollout undo deploy/web --to-revision=9",
        unknown,
        &format!("error: {unknown}\n"),
    );
    let expected = "Expected replicas to be 2, was 3";
    check(
        "scale deploy/web --replicas=1 --current-replicas=2",
        expected,
        &format!("error: {expected}\n"),
    );
    let exists = "jobs.batch \"now\" already exists";
    check(
        "create job now --from=cj/backup",
        exists,
        &format!("error: failed to create job: {exists}\n"),
    );
}

/// The daemon is not asked for what the kind does not have, nor about what a controller has made.
#[test]
fn what_a_workload_does_not_allow_is_refused_in_kubectls_words() {
    let world = world();
    for (line, error) in [
        (
            "rollout pause ds/agent",
            "daemonsets.apps \"agent\" pausing is not supported",
        ),
        (
            "rollout resume sts/db",
            "statefulsets.apps \"db\" resuming is not supported",
        ),
        (
            "rollout restart rs/web-7b9",
            "replicasets.apps \"web-7b9\" restarting is not supported",
        ),
        (
            "rollout undo job/backup-29",
            "no rollbacker has been implemented for \"Job.batch\"",
        ),
        (
            "rollout retry sts/db",
            "statefulsets.apps \"db\" is never rolled back by itself",
        ),
        (
            "scale ds/agent --replicas=2",
            "daemonsets.apps \"agent\" cannot be scaled: it has one pod on the node",
        ),
        (
            "scale cj/backup --replicas=2",
            "cronjobs.batch \"backup\" cannot be scaled: change its template in its file",
        ),
        (
            "scale rs/web-7b9 --replicas=2",
            "replicasets.apps \"web-7b9\" belongs to deployment.apps/web: scale that",
        ),
        (
            "rerun backup-29",
            "jobs.batch \"backup-29\" belongs to cronjob.batch/backup: podprobe create job NAME --from=cronjob/backup runs another",
        ),
    ] {
        world.check_failure(line, 1, &format!("error: {error}\n"));
    }
    world.check_failure(
        "create job a --from=cj/x",
        1,
        "cronjobs.batch \"x\" not found\n",
    );
    assert_eq!(*world.backend.changes.lock().unwrap(), []);
}

#[test]
fn what_is_possible_is_done_also_when_another_is_not() {
    let world = world();
    let done = |done: &str| Ok(Changed { done: done.into() });
    let answers = vec![done("restarted"), Err(ChangeError::NoAnswer)];
    *world.backend.answers.lock().unwrap() = answers;
    let output = world.run("rollout restart deploy/web sts/db job/x");
    let errors = "error: the controllers do not answer; try again\njobs.batch \"x\" not found\n";
    check_output(&output, 1, "statefulset.apps/db restarted\n", errors);
}

#[test]
fn a_name_in_two_namespaces_needs_a_choice() {
    let world = world();
    let mut elsewhere = web();
    elsewhere["object"]["metadata"]["namespace"] = "shop".into();
    let both = [all(), vec![elsewhere]].concat();
    world.set_workloads(2, &both);
    world.check_failure(
        "rollout restart deploy/web",
        1,
        "deployments.apps \"web\" is in several namespaces: default, shop; choose one with -n\n",
    );
    let answer = Changed {
        done: "restarted".into(),
    };
    world.backend.answers.lock().unwrap().push(Ok(answer));
    world.check(
        "rollout restart deploy/web -n shop",
        "deployment.apps/web restarted\n",
    );
    let asked = world.backend.changes.lock().unwrap().clone();
    assert_eq!(asked[0].workload.namespace, "shop");
}

#[test]
fn status_tells_of_a_rollout_that_was_rolled_back_though_its_pods_are_well() {
    let waiting = "revision 2 made no progress and was rolled back to revision 1";
    let mut view = web();
    view["rollout"] = json!({"error": "deployment \"web\" exceeded its progress deadline"});
    view["waiting"] = waiting.into();
    let world = World::new(vec![], vec![]);
    world.set_workloads(1, &[view]);
    let status = world.run("status");
    let said = String::from_utf8(status.stdout).unwrap();
    assert_eq!(status.status.code(), Some(1), "{said}");
    let expected = format!("deployment/web: {waiting}\n    podprobe describe deployment web\n");
    assert!(said.contains(&expected), "{said}");
    world.set_workloads(2, &[rolling(DONE, true)]);
    assert_eq!(world.run("status").status.code(), Some(0));
}
