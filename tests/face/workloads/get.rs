//! `get` of workloads.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use podprobe::net::services::view::ServiceView;
use serde_json::{Value, json};

use super::{all, cron_job, object, view, web, world};
use crate::cli::{HOUR, World, check_output, text};
use crate::terminal::Killed;

#[test]
fn the_columns_are_kubectls() {
    let world = world();
    for (line, expected) in [
        (
            "get deploy",
            "NAME   READY   UP-TO-DATE   AVAILABLE   AGE\nweb    2/3     3            2           2d\n",
        ),
        (
            "get rs",
            "NAME      DESIRED   CURRENT   READY   AGE\nweb-5f4   0         0         0       2d\nweb-7b9   3         3         2       2d\n",
        ),
        (
            "get rc",
            "NAME   DESIRED   CURRENT   READY   AGE\nold    1         1         1       2d\n",
        ),
        (
            "get ds",
            "NAME    DESIRED   CURRENT   READY   UP-TO-DATE   AVAILABLE   NODE SELECTOR   AGE\nagent   1         1         1       1            1           disk=ssd        2d\n",
        ),
        ("get sts", "NAME   READY   AGE\ndb     1/2     2d\n"),
        (
            "get jobs",
            "NAME        STATUS     COMPLETIONS   DURATION   AGE\nbackup-29   Complete   2/2           90s        2d\n",
        ),
        (
            "get cj",
            "NAME     SCHEDULE      TIMEZONE        SUSPEND   ACTIVE   LAST SCHEDULE   AGE\nbackup   */5 * * * *   Europe/Berlin   False     2        20m             2d\n",
        ),
    ] {
        world.check(line, expected);
    }
}

#[test]
fn wide_adds_containers_images_selector_and_file() {
    let world = world();
    world.check(
        "get deployments.apps -o wide",
        "NAME   READY   UP-TO-DATE   AVAILABLE   AGE   CONTAINERS   IMAGES   SELECTOR   FILE\n\
         web    2/3     3            2           2d    main         app:2    app=web    /pods/web.yaml\n",
    );
    world.check(
        "get rs web-7b9 -o wide --no-headers",
        "web-7b9   3     3     2     2d    main   app:2   app=web,pod-template-hash=7b9   <none>\n",
    );
    world.check(
        "get sts -o wide --no-headers",
        "db    1/2   2d    main   app:2   /pods/db.yaml\n",
    );
    world.check(
        "get rc -o wide --no-headers",
        "old   1     1     1     2d    main   app:2   app=web   /pods/old.yaml\n",
    );
    let wide = text(&world.run("get cj -o wide --no-headers").stdout);
    assert!(
        wide.ends_with("   main   app:2   <none>   /pods/backup.yaml\n"),
        "{wide}"
    );
}

#[test]
fn a_job_has_run_for_no_time_before_it_starts() {
    let world = World::new(vec![], vec![]);
    let spec = json!({"parallelism": 3});
    world.set_workloads(1, &[view(object("Job", "new", spec, json!({"active": 3})))]);
    world.check(
        "get job --no-headers",
        "new   Running   0/1 of 3         2d\n",
    );
}

#[test]
fn the_forms_and_selections_are_those_of_pods() {
    let world = world();
    world.check("get deploy -o name", "deployment.apps/web\n");
    world.check("get rc,sts,cj,job -o name", "replicationcontroller/old\nstatefulset.apps/db\ncronjob.batch/backup\njob.batch/backup-29\n");
    world.check(
        "get rs -l pod-template-hash=5f4 -o name",
        "replicaset.apps/web-5f4\n",
    );
    world.check(
        "get deploy/web sts/db -o name",
        "deployment.apps/web\nstatefulset.apps/db\n",
    );
    world.check("get deploy web -o jsonpath={.status.readyReplicas}", "2");
    world.check(
        "get rs -o custom-columns=NAME:.metadata.name,N:.spec.replicas --sort-by .spec.replicas --no-headers",
        "web-5f4   0\nweb-7b9   3\n",
    );
    let one: Value = serde_json::from_slice(&world.run("get deploy web -o json").stdout).unwrap();
    assert_eq!(
        (&one["kind"], &one["apiVersion"]),
        (&json!("Deployment"), &json!("apps/v1"))
    );
    let list: Value = serde_json::from_slice(&world.run("get rs -o json").stdout).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    assert!(
        text(&world.run("get job backup-29 -o yaml").stdout)
            .starts_with("apiVersion: batch/v1\nkind: Job\n")
    );
    world.check(
        "get deploy -A",
        "NAMESPACE   NAME   READY   UP-TO-DATE   AVAILABLE   AGE\ndefault     web    2/3     3            2           2d\n",
    );
    world.check_failure(
        "get deploy -n shop",
        0,
        "No resources found in shop namespace.\n",
    );
    world.check_failure(
        "get deploy wbe",
        1,
        "deployments.apps \"wbe\" not found, did you mean 'web'?\n",
    );
    world.check_failure(
        "get sts db2",
        1,
        "statefulsets.apps \"db2\" not found, did you mean 'db'?\n",
    );
}

#[test]
fn all_is_grouped_as_kubectl_groups_it() {
    let world = world();
    let service = ServiceView {
        namespace: "default".into(),
        name: "web".into(),
        type_: "ClusterIP".into(),
        ..ServiceView::default()
    };
    *world.backend.services.lock().unwrap() = vec![service];
    let table = text(&world.run("get all").stdout);
    let names: Vec<&str> = table
        .lines()
        .filter(|line| !line.starts_with("NAME") && !line.is_empty())
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    let expected = [
        "pod/web-7b9-abcde",
        "pod/alone-edge",
        "replicationcontroller/old",
        "service/web",
        "daemonset.apps/agent",
        "deployment.apps/web",
        "replicaset.apps/web-5f4",
        "replicaset.apps/web-7b9",
        "statefulset.apps/db",
        "cronjob.batch/backup",
        "job.batch/backup-29",
    ];
    assert_eq!(names, expected, "{table}");
}

/// Standard output stays kubectl's. What a script must not miss is said beside it.
#[test]
fn what_differs_from_the_file_is_said_below_the_table() {
    let mut changed = web();
    changed["overrides"] = json!(["replicas is 3 (scale), the file says 2"]);
    let mut bad = view(object(
        "Deployment",
        "db",
        json!({"replicas": 1}),
        json!({}),
    ));
    bad["fileError"] = "line 3: no".into();
    let problems = vec![
        json!({"file": "/pods/db.yaml", "error": "line 3: no"}),
        json!({"file": "/pods/new.yaml", "error": "what is this"}),
    ];
    let world = World::new(vec![], problems);
    world.set_workloads(1, &[changed, bad]);
    let expected = "deployment.apps/web: replicas is 3 (scale), the file says 2\n\
                    /pods/db.yaml: last good version runs: line 3: no\n";
    let refused = "/pods/new.yaml: not in use: what is this\n";
    let output = world.run("get deploy");
    assert_eq!(text(&output.stderr), format!("{expected}{refused}"));
    assert_eq!(output.status.code(), Some(0));
    let of_one = world.run("get deploy web");
    assert_eq!(
        text(&of_one.stderr),
        "deployment.apps/web: replicas is 3 (scale), the file says 2\n"
    );
    let json = world.run("get deploy web -o name");
    check_output(&json, 0, "deployment.apps/web\n", "");
}

#[test]
fn every_verb_has_the_same_words_for_a_workload_whose_file_has_become_bad() {
    let mut bad = cron_job();
    bad["fileError"] = "line 3: no".into();
    let problem = json!({"file": "/pods/backup.yaml", "error": "line 3: no", "lastGoodRuns": true});
    let world = World::new(vec![], vec![problem]);
    world.set_workloads(1, &[bad]);
    let said = "/pods/backup.yaml: last good version runs: line 3: no\n";
    for verb in ["get cronjobs", "get pods", "describe pod"] {
        let output = world.run(verb);
        assert!(text(&output.stderr).ends_with(said), "{verb}");
        assert!(!text(&output.stdout).contains("Refused"), "{verb}");
    }
    let status = text(&world.run("status").stdout);
    assert!(status.contains(&format!("\n{said}")), "{status}");
}

#[test]
fn a_watch_prints_each_change_and_what_goes() {
    let world = world();
    let mut child = Killed(
        world
            .command("get deploy -w")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut lines = BufReader::new(child.0.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    assert!(lines.next().unwrap().starts_with("NAME"));
    assert_eq!(
        lines.next().unwrap(),
        "web    2/3     3            2           2d"
    );
    let mut ready = all();
    ready[0]["object"]["status"]["readyReplicas"] = 3.into();
    world.set_workloads(2, &ready);
    assert_eq!(
        lines.next().unwrap(),
        "web    3/3     3            2           2d"
    );
    // A change of another kind is none of this kind.
    ready[4]["object"]["status"]["numberReady"] = 0.into();
    world.set_workloads(3, &ready);
    ready.remove(0);
    world.set_workloads(4, &ready);
    assert_eq!(
        lines.next().unwrap(),
        "web    3/3     3            2           2d"
    );
}

#[test]
fn events_of_workloads_are_listed_with_their_kind() {
    let mut with_event = super::pod("default", "web");
    let of = |kind: &str, name: &str| {
        json!({"kind": kind, "namespace": "default", "pod": name, "uid": "u", "fieldPath": "", "type": "Normal",
            "reason": "ScalingReplicaSet", "message": format!("of {name}"), "count": 1,
            "firstTimestamp": super::ago(3 * HOUR), "lastTimestamp": super::ago(3 * HOUR)})
    };
    with_event["events"] = json!([of("Deployment", "web"), of("Pod", "web-edge")]);
    let world = World::new(vec![with_event], vec![]);
    world.set_workloads(1, &[web()]);
    let row = "3h    Normal   ScalingReplicaSet   deployment/web   of web\n";
    world.check("get events deploy/web --no-headers", row);
    world.check("events --for deployment/web --no-headers", row);
    world.check(
        "events --for web --no-headers",
        "3h    Normal   ScalingReplicaSet   pod/web-edge   of web-edge\n",
    );
    world.check_failure("events --for job/x", 1, "jobs.batch \"x\" not found\n");
}
