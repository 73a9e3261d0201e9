//! Scenarios of whole workloads: what people do, and what the pods and the disk are then.

use serde_json::{Value, json};

use super::test_world::{TestWorld, image_of, trusted};
use super::*;
use crate::workloads::change::change;
use crate::workloads::deployment::OnDeadline;
use crate::workloads::view::{Change, ChangeError, ChangeRequest};

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

fn deployment(replicas: i32, image: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template(image),
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600}})
}

/// A Deployment that has rolled out its first version.
fn rolled_out(replicas: i32) -> TestWorld {
    let mut world = TestWorld::new(deployment(replicas, "i:1"));
    world.settle();
    world.ready("i:1");
    world.settle();
    world
}

/// Asks for a change as a verb does.
fn ask(world: &mut TestWorld, asked: Change) -> Result<String, ChangeError> {
    let request = ChangeRequest {
        workload: world.wanted.as_ref().unwrap().workload.key(),
        change: asked,
    };
    let of = World {
        now: world.now,
        wall: trusted(world.now),
        node: &world.node,
        settings: world.settings,
    };
    let made = change(&of, world.wanted.as_ref(), world.state.as_ref(), &request)?;
    world.state = Some(made.state);
    Ok(made.done)
}

#[test]
fn a_new_version_takes_over_when_it_is_ready() {
    let mut world = rolled_out(1);
    assert_eq!(world.count("i:1"), (1, 1));
    world.edit(deployment(1, "i:2"));
    world.settle();
    assert_eq!((world.count("i:1"), world.count("i:2")), ((1, 1), (1, 0)));
    world.ready("i:2");
    world.settle();
    assert_eq!((world.count("i:1"), world.count("i:2")), ((0, 0), (1, 1)));
    world.remove_deleted();
    world.settle();
    let status = &world.object()["status"];
    assert_eq!(
        (&status["availableReplicas"], &status["updatedReplicas"]),
        (&json!(1), &json!(1))
    );
    let rollout = world.last.views[0].rollout.clone().unwrap();
    assert!(
        rollout.is_done && rollout.text.contains("successfully rolled out"),
        "{rollout:?}"
    );
    assert_eq!(world.last.views[0].waiting, None);
    let revisions: Vec<i64> = world.last.views[0]
        .revisions
        .iter()
        .map(|it| it.revision)
        .collect();
    assert_eq!(revisions, [1, 2]);
}

#[test]
fn a_pod_that_the_services_do_not_know_is_not_available() {
    let mut world = rolled_out(1);
    world.edit(deployment(1, "i:2"));
    world.settle();
    world.ready("i:2");
    for pod in world
        .pods
        .values_mut()
        .filter(|pod| image_of(&pod.record) == "i:2")
    {
        pod.observed.is_in_table = false;
    }
    world.settle();
    assert_eq!(world.count("i:1"), (1, 1), "the old one serves on");
}

#[test]
fn no_old_pod_ends_before_the_images_are_there() {
    let mut world = rolled_out(4);
    *world.node.images.borrow_mut() = ImagesState::Failed {
        message: "the registry does not answer".into(),
    };
    world.edit(deployment(4, "i:2"));
    world.settle();
    assert_eq!(
        world.count("i:1"),
        (4, 4),
        "with 25 % of 4 one may be unavailable"
    );
    *world.node.images.borrow_mut() = ImagesState::Ready;
    world.settle();
    assert_eq!(world.count("i:1").0, 3);
}

#[test]
fn a_host_port_makes_the_new_pod_wait_for_the_place_of_the_old_one() {
    let with_port = |image: &str| {
        let mut object = deployment(1, image);
        let ports = json!([{"containerPort": 80, "hostPort": 8080}]);
        object["spec"]["template"]["spec"]["containers"][0]["ports"] = ports;
        object
    };
    let mut world = TestWorld::new(with_port("i:1"));
    world.settle();
    world.ready("i:1");
    world.settle();
    world.edit(with_port("i:2"));
    world.settle();
    assert_eq!(
        world.count("i:1"),
        (0, 0),
        "a gap, because there is no other way"
    );
    let conditions = world.object()["status"]["conditions"].to_string();
    assert!(
        conditions.contains("hostPort 8080 is held by the old pod web-"),
        "{conditions}"
    );
}

#[test]
fn a_pod_that_fits_in_no_way_costs_no_old_one() {
    let mut world = rolled_out(1);
    *world.node.room.borrow_mut() = Room::Never("Node didn't have enough resource: memory".into());
    world.edit(deployment(1, "i:2"));
    world.settle();
    assert_eq!((world.count("i:1"), world.count("i:2")), ((1, 1), (0, 0)));
    let conditions = world.object()["status"]["conditions"].to_string();
    assert!(
        conditions.contains("DoesNotFit") && conditions.contains("memory"),
        "{conditions}"
    );
    assert!(world.last.waits_for_others);
    *world.node.room.borrow_mut() = Room::Beside;
    world.settle();
    assert_eq!(world.count("i:2").0, 1);
    assert!(!world.last.waits_for_others);
}

#[test]
fn a_version_that_makes_no_progress_is_rolled_back_once_and_the_mark_outlives_restarts() {
    let mut world = rolled_out(1);
    world.settings.on_progress_deadline = OnDeadline::Rollback;
    world.edit(deployment(1, "i:2"));
    world.settle();
    world.pass(601);
    world.settle();
    world.remove_deleted();
    world.settle();
    assert_eq!((world.count("i:1"), world.count("i:2")), ((1, 1), (0, 0)));
    // The state as the next daemon reads it.
    let text = serde_json::to_string(&world.state).unwrap();
    world.state = serde_json::from_str(&text).unwrap();
    world.pass(3600);
    world.settle();
    assert_eq!(
        world.count("i:2"),
        (0, 0),
        "it stays until the file changes"
    );
    assert!(!world.last.views[0].overrides.is_empty());
    assert_eq!(ask(&mut world, Change::Retry).unwrap(), "is tried again");
    world.settle();
    assert_eq!(world.count("i:2").0, 1);
    world.edit(deployment(1, "i:3"));
    world.settle();
    assert_eq!((world.count("i:3").0, world.count("i:2").0), (1, 0));
}

#[test]
fn undo_goes_to_and_fro_and_scaling_stays_over_other_edits() {
    let mut world = rolled_out(1);
    world.edit(deployment(1, "i:2"));
    world.settle();
    world.ready("i:2");
    world.settle();
    world.remove_deleted();
    world.settle();
    let undo = Change::Undo { to_revision: None };
    for image in ["i:1", "i:2", "i:1"] {
        assert_eq!(ask(&mut world, undo.clone()).unwrap(), "rolled back");
        world.settle();
        world.ready(image);
        world.settle();
        world.remove_deleted();
        world.settle();
        assert_eq!(world.count(image), (1, 1), "{image}");
    }
    let scale = Change::Scale {
        replicas: 3,
        current_replicas: None,
    };
    assert_eq!(ask(&mut world, scale).unwrap(), "scaled");
    world.settle();
    assert_eq!(world.count("i:1").0, 3);
    let mut restart = || {
        let done = ask(&mut world, Change::Restart);
        world.pass(1);
        done
    };
    assert_eq!(restart().unwrap(), "restarted");
}

#[test]
fn a_file_that_is_gone_takes_its_pods_and_then_its_state() {
    let mut world = rolled_out(2);
    world.wanted = None;
    world.settle();
    assert_eq!(world.count("i:1"), (0, 0));
    assert!(world.state.is_some() && world.last.views.is_empty());
    world.remove_deleted();
    world.settle();
    assert!(world.state.is_none());
}

#[test]
fn a_lost_state_is_rebuilt_from_the_pods_that_run() {
    let mut world = rolled_out(2);
    world.edit(deployment(2, "i:2"));
    world.settle();
    let before: Vec<_> = world.pods.keys().cloned().collect();
    world.state = None;
    world.settle();
    let after: Vec<_> = world.pods.keys().cloned().collect();
    assert_eq!(before, after, "nothing is made twice, and nothing ends");
    world.ready("i:2");
    world.settle();
    world.ready("i:2");
    world.settle();
    assert_eq!((world.count("i:2"), world.count("i:1")), ((2, 2), (0, 0)));
}

#[test]
fn a_state_of_a_newer_podprobe_is_left_alone() {
    let mut world = rolled_out(1);
    world.state.as_mut().unwrap().form += 1;
    world.edit(deployment(1, "i:2"));
    world.settle();
    assert_eq!((world.count("i:1"), world.count("i:2").0), ((1, 1), 0));
    let waiting = world.last.views[0].waiting.clone().unwrap();
    assert!(waiting.contains("a newer podprobe"), "{waiting}");
    assert!(world.last.views[0].is_held);
}

fn stateful_set(replicas: i32, image: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
        "spec": {"replicas": replicas, "serviceName": "db", "selector": {"matchLabels": {"app": "web"}},
            "template": template(image), "podManagementPolicy": "OrderedReady", "revisionHistoryLimit": 10,
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}}]}})
}

#[test]
fn a_stateful_set_starts_in_order_with_claims_and_keeps_them() {
    let mut world = TestWorld::new(stateful_set(2, "i:1"));
    world.settle();
    let names = |world: &TestWorld| -> Vec<String> {
        let mut names: Vec<_> = world
            .pods
            .values()
            .map(|pod| pod.record.name.clone())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(&world), ["db-0"], "the second waits for the first");
    world.ready("i:1");
    world.settle();
    world.ready("i:1");
    world.settle();
    assert_eq!(names(&world), ["db-0", "db-1"]);
    let claims: Vec<_> = world
        .last
        .claims
        .iter()
        .map(|claim| claim.key.name.clone())
        .collect();
    assert_eq!(claims, ["data-db-0", "data-db-1"]);
    let volume = &world.pods.values().next().unwrap().record.object["spec"]["volumes"][0];
    assert!(
        volume["persistentVolumeClaim"]["claimName"]
            .as_str()
            .unwrap()
            .starts_with("data-db-")
    );
    world.edit(stateful_set(1, "i:1"));
    world.settle();
    world.remove_deleted();
    world.settle();
    assert_eq!(
        (names(&world), world.last.claims.len()),
        (vec!["db-0".to_owned()], 2)
    );
}

#[test]
fn the_first_edit_of_a_file_drops_what_a_verb_has_changed() {
    let mut world = TestWorld::new(deployment(2, "i:1"));
    world.settle();
    let scale = Change::Scale {
        replicas: 1,
        current_replicas: None,
    };
    ask(&mut world, scale).unwrap();
    world.settle();
    assert_eq!(world.object()["spec"]["replicas"], 1);
    world.edit(deployment(3, "i:1"));
    world.settle();
    assert_eq!(world.object()["spec"]["replicas"], 3);
    assert!(world.last.views[0].overrides.is_empty());
}

#[test]
fn a_stateful_set_waits_for_a_name_until_the_pod_that_has_it_is_gone() {
    let mut world = TestWorld::new(stateful_set(2, "i:1"));
    world.node.other_pods.borrow_mut().insert("db-0".into());
    world.settle();
    assert!(world.pods.is_empty());
    assert!(world.last.waits_for_others);
    world.node.other_pods.borrow_mut().clear();
    world.settle();
    assert_eq!(world.pods.len(), 1);
    assert!(!world.last.waits_for_others);
    // A name beyond the range is no name that the set needs.
    world.node.other_pods.borrow_mut().insert("db-2".into());
    world.settle();
    assert!(!world.last.waits_for_others);
}

#[test]
fn a_stateful_set_restarts_and_goes_back() {
    let mut world = TestWorld::new(stateful_set(1, "i:1"));
    let go = |world: &mut TestWorld| {
        for _ in 0..4 {
            world.settle();
            world.remove_deleted();
            world.ready("i:1");
            world.ready("i:2");
        }
    };
    go(&mut world);
    let first = world.pods.keys().next().cloned();
    assert_eq!(ask(&mut world, Change::Restart).unwrap(), "restarted");
    go(&mut world);
    assert_ne!(world.pods.keys().next().cloned(), first);
    world.edit(stateful_set(1, "i:2"));
    go(&mut world);
    assert_eq!(world.count("i:2"), (1, 1));
    let undo = Change::Undo {
        to_revision: Some(1),
    };
    assert_eq!(ask(&mut world, undo).unwrap(), "rolled back");
    go(&mut world);
    assert_eq!(world.count("i:1"), (1, 1));
    assert!(
        ask(&mut world, Change::Pause).is_err(),
        "only Deployments pause"
    );
}

fn daemon_set(image: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template(image), "revisionHistoryLimit": 10,
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}}})
}

#[test]
fn a_daemon_set_has_one_pod_and_replaces_it_in_its_place() {
    let mut world = TestWorld::new(daemon_set("i:1"));
    world.settle();
    world.ready("i:1");
    world.settle();
    assert_eq!(world.count("i:1"), (1, 1));
    world.edit(daemon_set("i:2"));
    world.settle();
    assert_eq!((world.count("i:1").0, world.count("i:2").0), (0, 0));
    world.remove_deleted();
    world.settle();
    assert_eq!(world.count("i:2").0, 1);
    // Labels that are not known yet cost no pod.
    world.node.is_selected.set(None);
    world.settle();
    world.remove_deleted();
    assert_eq!(world.count("i:2").0, 1);
    world.node.is_selected.set(Some(false));
    world.settle();
    world.remove_deleted();
    world.settle();
    assert_eq!(world.count("i:2").0, 0);
    let waiting = world.last.views[0].waiting.clone().unwrap();
    assert!(waiting.contains("does not match"), "{waiting}");
}

fn job(image: &str) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"},
        "spec": {"completions": 1, "parallelism": 1, "backoffLimit": 6, "completionMode": "NonIndexed",
            "template": {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": image}]}}}})
}

#[test]
fn a_job_runs_once_whatever_happens_to_the_daemon() {
    // The daemon is killed after each number of writes, until it survives a whole run.
    for writes in 0..12 {
        let mut world = TestWorld::new(job("i:1"));
        world.step_once(writes);
        world.settle();
        assert_eq!(world.count("i:1").0, 1, "killed after {writes} writes");
        world.end(0);
        world.step_once(writes);
        world.settle();
        world.pass(3600);
        world.settle();
        assert_eq!(world.count("i:1").0, 0, "killed after {writes} writes");
        let status = &world.object()["status"];
        assert_eq!(
            status["succeeded"], 1,
            "killed after {writes} writes: {status}"
        );
        assert_eq!(world.pods.len(), 1, "the pod stays for its log");
    }
}

#[test]
fn a_job_whose_state_is_lost_waits_for_a_person() {
    let mut world = TestWorld::new(job("i:1"));
    world.settle();
    let pods = Vec::new();
    let of = World {
        now: world.now,
        wall: trusted(world.now),
        node: &world.node,
        settings: world.settings,
    };
    let key = world.wanted.as_ref().unwrap().workload.key();
    let made = step(&of, &key, world.wanted.as_ref(), LastState::Lost, &pods);
    assert!(made.create.is_empty());
    let waiting = made.views[0].waiting.clone().unwrap();
    assert!(waiting.contains("podprobe rerun job/once"), "{waiting}");
    world.state = made.state;
    world.pods.clear();
    world.settle();
    assert!(world.pods.is_empty());
    assert_eq!(ask(&mut world, Change::Rerun).unwrap(), "runs again");
    world.settle();
    assert_eq!(world.count("i:1").0, 1);
}

fn cron_job(schedule: &str) -> Value {
    let spec = job("i:1")["spec"].clone();
    json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "tick"},
        "spec": {"schedule": schedule, "concurrencyPolicy": "Allow", "successfulJobsHistoryLimit": 1,
            "failedJobsHistoryLimit": 1, "jobTemplate": {"spec": spec}}})
}

#[test]
fn a_cron_job_runs_at_its_times_and_by_hand_and_keeps_one() {
    let mut world = TestWorld::new(cron_job("* * * * *"));
    world.settle();
    assert_eq!(world.pods.len(), 0);
    for _ in 0..3 {
        world.pass(60);
        world.settle();
        assert_eq!(world.count("i:1").0, 1);
        world.end(0);
        world.settle();
        world.remove_deleted();
        world.settle();
    }
    let jobs = |world: &TestWorld| world.last.views.len() - 1;
    assert_eq!(jobs(&world), 1, "history of one: {:?}", world.last.views);
    let name = "by-hand".to_owned();
    let create = Change::CreateJob { name: name.clone() };
    assert_eq!(ask(&mut world, create.clone()).unwrap(), "created");
    assert!(
        ask(&mut world, create).is_err(),
        "there is one of that name"
    );
    world.settle();
    assert_eq!(world.count("i:1").0, 1);
    assert_eq!(
        ask(&mut world, Change::DeleteJob { name }).unwrap(),
        "deleted"
    );
    world.settle();
    world.remove_deleted();
    world.settle();
    assert_eq!(jobs(&world), 1);
}

/// After a night on a drained node the new version stays, and has its whole time.
#[test]
fn a_drain_in_the_middle_of_a_rollout_rolls_nothing_back() {
    let mut world = rolled_out(1);
    world.settings.on_progress_deadline = OnDeadline::Rollback;
    world.edit(deployment(1, "i:2"));
    world.settle();
    world.node.takes_pods.set(false);
    world.settle();
    for _ in 0..3 {
        world.pass(700);
        world.settle();
    }
    world.node.takes_pods.set(true);
    world.settle();
    world.pass(599);
    world.settle();
    assert_eq!((world.count("i:1"), world.count("i:2")), ((1, 1), (1, 0)));
}

/// After a night on a drained node one Job is made, and not one for each minute of it.
#[test]
fn a_cron_job_makes_no_jobs_for_a_node_that_takes_no_pods() {
    let mut world = TestWorld::new(cron_job("* * * * *"));
    let jobs = |world: &TestWorld| world.last.views.len() - 1;
    world.settle();
    world.node.takes_pods.set(false);
    for _ in 0..3 {
        world.pass(60);
        world.settle();
        assert_eq!(jobs(&world), 0);
        let view = &world.last.views[0];
        assert_eq!(view.waiting.as_deref(), Some("the node takes no pods"));
        assert_eq!(
            world.last.look_at,
            Some(world.now + std::time::Duration::from_secs(30))
        );
    }
    world.node.takes_pods.set(true);
    world.settle();
    assert_eq!(jobs(&world), 1);
}

#[test]
fn the_next_time_of_a_cron_job_counts_from_its_last_job_and_a_suspended_one_has_none() {
    let mut world = TestWorld::new(cron_job("* * * * *"));
    world.settle();
    let next = |world: &TestWorld| -> Option<Timestamp> {
        let time = world.last.views[0].next_schedule_time.clone();
        time.map(|time| time.parse().unwrap())
    };
    let first = next(&world).unwrap();
    assert!(first > world.now && first.as_second() % 60 == 0, "{first}");
    world.pass(60);
    world.settle();
    assert_eq!(next(&world).unwrap().as_second(), first.as_second() + 60);
    let mut suspended = cron_job("* * * * *");
    suspended["spec"]["suspend"] = true.into();
    let mut world = TestWorld::new(suspended);
    world.settle();
    assert_eq!(next(&world), None);
}
