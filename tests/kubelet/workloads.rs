//! Workloads on a real daemon: rollouts, their ways back, Jobs, StatefulSets, with the daemon killed in between.

use std::time::Duration;

use podprobe::face::views::{PodView, Snapshot};
use serde_json::{Value, json};

use crate::support;
use crate::support::Node;
use crate::support::daemon::{Day, FOREVER};

/// What does not depend on the OCI runtime.
macro_rules! on_one {
    ($($name:ident),* $(,)?) => {
        mod embedded {
            $(#[test] fn $name() { crate::support::on(podprobe::engine::shims::RuntimeChoice::Embedded, super::$name) })*
        }
    };
}

on_one![
    a_new_version_takes_over_although_the_daemon_is_killed,
    no_pod_goes_before_the_disk_knows_those_that_serve,
    a_version_that_makes_no_progress_is_rolled_back_and_stays_so,
    a_rollback_goes_on_after_a_power_cut,
    every_kind_of_bad_version_is_rolled_back_and_the_old_one_serves_on,
    a_job_runs_once_although_the_daemon_is_killed,
    each_completion_of_a_job_runs_once_over_many_kills,
    a_stateful_set_keeps_names_and_claims,
    a_deleted_pod_is_replaced_and_a_removed_file_ends_all,
    the_ages_of_a_wait_are_made_anew_while_nothing_changes,
    a_step_that_cannot_be_written_is_told_and_made_later,
];

/// A pod template of the test's own image: its pods note their start under `name`.
fn template(day: &Day, name: &str, script: &str, version: &str, probe: &str) -> Value {
    let more = json!({"env": [{"name": "VERSION", "value": version}],
        "readinessProbe": {"exec": {"command": ["/bin/cat", probe]}, "periodSeconds": 1, "failureThreshold": 1}});
    let mut pod = day.pod(name, script, more);
    json!({"metadata": {"labels": {"app": name}}, "spec": pod["spec"].take()})
}

fn deployment(day: &Day, version: &str, probe: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "annotations": {"podprobe.io/on-progress-deadline": "rollback"}},
        "spec": {"replicas": 1, "progressDeadlineSeconds": 5, "selector": {"matchLabels": {"app": "web"}},
            "template": template(day, "web", FOREVER, version, probe)}})
}

/// The pods of an app that are not ending, each with its version and whether it is ready.
fn pods<'s>(snapshot: &'s Snapshot, app: &str) -> Vec<(&'s PodView, String, bool)> {
    let of_app = |pod: &&std::sync::Arc<PodView>| {
        pod.object["metadata"]["labels"]["app"] == app && !pod.terminating
    };
    let pods = snapshot.pods.iter().filter(of_app);
    pods.map(|pod| {
        let env = &pod.object["spec"]["containers"][0]["env"][0]["value"];
        (
            &**pod,
            env.as_str().unwrap_or_default().to_owned(),
            pod.status.is_ready(),
        )
    })
    .collect()
}

fn name(pod: &PodView) -> &str {
    pod.object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Waits until the app has one pod, ready and of this version. Returns its name.
#[track_caller]
fn wait_version(day: &Day, app: &str, version: &str) -> String {
    day.wait(
        &format!("{app} to be at version {version} alone"),
        |snapshot| match &pods(snapshot, app)[..] {
            [(pod, of, true)] if of == version => Some(name(pod).to_owned()),
            _ => None,
        },
    )
}

/// The daemon is killed while the new pod starts: the old one serves until the new one is ready, and no third pod
/// appears.
fn a_new_version_takes_over_although_the_daemon_is_killed(node: &Node) {
    let mut day = Day::begin(node);
    day.put("web", deployment(&day, "1", "/tmp/noted"));
    let first = wait_version(&day, "web", "1");
    day.put("web", deployment(&day, "2", "/tmp/noted"));
    day.wait("the new pod to be made", |snapshot| {
        (pods(snapshot, "web").len() == 2).then_some(())
    });
    day.crash();
    let second = wait_version(&day, "web", "2");
    assert_ne!(first, second);
    day.check_starts("web", 2);
    day.crash();
    assert_eq!(wait_version(&day, "web", "2"), second);
    day.check_starts("web", 2);
    day.end();
}

/// Many statuses change in a rollout, and the file of statuses has a pace. When an old pod begins to go, the file must
/// have the readiness of the new ones: a daemon that is killed then sends its clients to them at once.
fn no_pod_goes_before_the_disk_knows_those_that_serve(node: &Node) {
    const REPLICAS: usize = 6;
    let day = Day::begin(node);
    let version = |version: &str| {
        let mut made = deployment(&day, version, "/tmp/noted");
        made["spec"]["replicas"] = REPLICAS.into();
        made["spec"]["strategy"] =
            json!({"rollingUpdate": {"maxSurge": "100%", "maxUnavailable": 0}});
        made
    };
    let wait_all = |version: &str| {
        day.wait("all replicas", |snapshot| {
            let all = pods(snapshot, "web");
            let are_good = all.iter().all(|(_, of, ready)| of == version && *ready);
            (all.len() == REPLICAS && are_good).then_some(())
        });
    };
    // A pod whose readiness changes all the time, so that the file is not written at once any more.
    let toggle = "rm /tmp/is-ready || { touch /tmp/is-ready; false; }";
    let probe = json!({"exec": {"command": ["/bin/sh", "-c", toggle]}, "periodMilliseconds": 50, "failureThreshold": 1,
        "timeoutSeconds": 5});
    day.put(
        "flaps",
        day.pod("flaps", FOREVER, json!({"readinessProbe": probe})),
    );
    day.put("web", version("1"));
    wait_all("1");
    support::wait_until("the pace of the file", || {
        let file = std::fs::metadata(node.layout.checkpoint()).unwrap();
        file.modified().unwrap().elapsed().unwrap() > Duration::from_secs(1)
    });
    for next in ["2", "3"] {
        day.put("web", version(next));
        support::wait_until("the first old pod to be deleted", || {
            records(node)
                .iter()
                .any(|record| !record["deletedAt"].is_null())
        });
        // The records first: a pod that is deleted after this look has its successors in a checkpoint that is written before.
        let records = records(node);
        let checkpoint = std::fs::read(node.layout.checkpoint()).unwrap();
        let checkpoint: Value = serde_json::from_slice(&checkpoint).unwrap();
        let staying = records
            .iter()
            .filter(|record| record["deletedAt"].is_null());
        let serving = staying.filter(|record| {
            let status = &checkpoint["statuses"][record["uid"].as_str().unwrap()];
            status["containerStatuses"][0]["ready"] == true
        });
        assert!(serving.count() >= REPLICAS, "{checkpoint:#}");
        wait_all(next);
    }
    day.end();
}

/// The records of pods that controllers have made.
fn records(node: &Node) -> Vec<Value> {
    let files = std::fs::read_dir(node.layout.made_pods());
    // A record may go in the meantime.
    let texts = files.into_iter().flatten().flatten();
    let texts = texts.filter_map(|file| std::fs::read(file.path()).ok());
    texts
        .filter_map(|text| serde_json::from_slice::<Value>(&text).ok())
        .map(|file| file.get("record").cloned().unwrap_or(file))
        .collect()
}

/// The power goes while the bad version is tried, and again after the way back.
fn a_rollback_goes_on_after_a_power_cut(node: &Node) {
    let mut day = Day::begin(node);
    day.put("web", deployment(&day, "1", "/tmp/noted"));
    let first = wait_version(&day, "web", "1");
    day.put("web", deployment(&day, "2", "/no/such/file"));
    day.wait("the bad version to run", |snapshot| {
        let all = pods(snapshot, "web");
        let is_running = |(pod, _, _): &(&PodView, String, bool)| {
            pod.status
                .container_statuses
                .iter()
                .any(|c| c.state.running.is_some())
        };
        (all.len() == 2 && all.iter().all(is_running)).then_some(())
    });
    day.check_starts("web", 2);
    day.cut_power();
    day.start();
    assert_eq!(wait_version(&day, "web", "1"), first);
    let said = day.log_with(&["made no progress"]);
    assert!(said.contains("was rolled back to revision 1"), "{said}");
    day.check_starts("web", 4);
    day.cut_power();
    day.start();
    assert_eq!(wait_version(&day, "web", "1"), first);
    day.check_starts("web", 5);
    let said = day.says(&["rollout", "history", "deploy/web"]);
    assert!(said.contains("deployment.apps/web"), "{said}");
    day.put("web", deployment(&day, "3", "/tmp/noted"));
    wait_version(&day, "web", "3");
    day.end();
}

/// Makes a version of a container bad.
type Spoil = fn(&mut Value);

/// A version that does not start, whose image is missing or whose registry is dead, or that crashes before it counts as
/// available costs no old pod.
fn every_kind_of_bad_version_is_rolled_back_and_the_old_one_serves_on(node: &Node) {
    let bad: [(&str, Spoil); 4] = [
        ("no-start", |container| {
            container["command"] = json!(["/no/such/program"]);
        }),
        ("no-image", |container| {
            container["image"] = "busybox:never-built".into();
        }),
        ("no-registry", |container| {
            container["image"] = "127.0.0.1:1/web:2".into();
            container["imagePullPolicy"] = "Always".into();
        }),
        ("crash", |container| {
            let script = container["command"][2].as_str().unwrap();
            let script = script.replace(FOREVER, "sleep 1; exit 3");
            container["command"][2] = script.into();
        }),
    ];
    let day = Day::begin(node);
    let version = |name: &str, version: &str| {
        let mut made = deployment(&day, version, "/tmp/noted");
        made["metadata"]["name"] = name.into();
        made["spec"]["minReadySeconds"] = 3.into();
        made["spec"]["selector"]["matchLabels"]["app"] = name.into();
        made["spec"]["template"] = template(&day, name, FOREVER, version, "/tmp/noted");
        made
    };
    for (name, _) in bad {
        day.put(name, version(name, "1"));
    }
    let firsts = bad.map(|(name, _)| {
        let first = wait_version(&day, name, "1");
        // Only a complete revision is one to go back to.
        let said = day.says(&[
            "rollout",
            "status",
            &format!("deploy/{name}"),
            "--timeout=60s",
        ]);
        assert!(said.contains("successfully rolled out"), "{said}");
        first
    });
    for (name, spoil) in bad {
        let mut second = version(name, "2");
        spoil(&mut second["spec"]["template"]["spec"]["containers"][0]);
        day.put(name, second);
    }
    for (name, _) in bad {
        let end = format!("Deployment default/{name} ");
        support::wait_until("the way back", || {
            let log = day.log();
            let mut lines = log.lines();
            lines.any(|line| line.contains(&end) && line.contains("was rolled back to revision 1"))
        });
    }
    for ((name, _), first) in bad.iter().zip(firsts) {
        assert_eq!(wait_version(&day, name, "1"), first, "{name}");
    }
    day.end();
}

/// A bad version never becomes ready: the old pod serves on, the Deployment goes back by itself, and neither a kill of
/// the daemon nor its restart tries the bad version again until the file changes.
fn a_version_that_makes_no_progress_is_rolled_back_and_stays_so(node: &Node) {
    let mut day = Day::begin(node);
    day.put("web", deployment(&day, "1", "/tmp/noted"));
    let first = wait_version(&day, "web", "1");
    day.put("web", deployment(&day, "2", "/no/such/file"));
    day.wait("the bad version to be tried", |snapshot| {
        (pods(snapshot, "web").len() == 2).then_some(())
    });
    assert_eq!(
        wait_version(&day, "web", "1"),
        first,
        "the old pod serves on"
    );
    let said = day.log_with(&["made no progress"]);
    assert!(said.contains("was rolled back to revision 1"), "{said}");
    day.check_starts("web", 2);
    day.crash();
    assert_eq!(wait_version(&day, "web", "1"), first);
    day.check_starts("web", 2);
    day.put("web", deployment(&day, "3", "/tmp/noted"));
    wait_version(&day, "web", "3");
    day.end();
}

/// The daemon is killed while the Job runs and after its end.
fn a_job_runs_once_although_the_daemon_is_killed(node: &Node) {
    let mut day = Day::begin(node);
    let script = "while [ ! -e /starts/go ]; do sleep 0.1; done";
    let mut template = template(&day, "once", script, "1", "/tmp/noted");
    template["spec"]["restartPolicy"] = "Never".into();
    day.put(
        "once",
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"},
            "spec": {"template": template}}),
    );
    day.wait("the job to run", |snapshot| {
        pods(snapshot, "once")
            .iter()
            .any(|(_, _, ready)| *ready)
            .then_some(())
    });
    day.crash();
    std::fs::write(node.dir.path().join("starts/go"), "").unwrap();
    let is_complete = |day: &Day| {
        support::wait_until("the job to be complete", || {
            day.says(&["get", "job", "once", "-o", "jsonpath={.status.succeeded}"])
                .trim()
                == "1"
        });
    };
    is_complete(&day);
    day.crash();
    is_complete(&day);
    day.check_starts("once", 1);
    day.end();
}

/// The daemon is killed each time another pod of the Job has started, and in the middle of what follows.
fn each_completion_of_a_job_runs_once_over_many_kills(node: &Node) {
    const COMPLETIONS: usize = 6;
    let mut day = Day::begin(node);
    let mut template = template(&day, "many", "sleep 0.2", "1", "/tmp/noted");
    template["spec"]["restartPolicy"] = "Never".into();
    day.put(
        "many",
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "many"},
            "spec": {"completions": COMPLETIONS, "parallelism": 2, "completionMode": "Indexed", "template": template}}),
    );
    for started in 1..=COMPLETIONS {
        support::wait_until("another pod to start", || {
            day.starts("many").len() >= started
        });
        // Each kill comes a little later after the start than the one before.
        std::thread::sleep(Duration::from_millis(40 * started as u64));
        day.crash();
    }
    support::wait_until("the job to be complete", || {
        let succeeded = ["get", "job", "many", "-o", "jsonpath={.status.succeeded}"];
        day.says(&succeeded).trim() == COMPLETIONS.to_string()
    });
    day.check_starts("many", COMPLETIONS);
    day.end();
}

/// The pods of a StatefulSet have its names; a pod that is replaced finds its claim as it left it.
fn a_stateful_set_keeps_names_and_claims(node: &Node) {
    let mut day = Day::begin(node);
    let set = |version: &str| {
        let mut template = template(&day, "db", FOREVER, version, "/tmp/noted");
        let mounts = &mut template["spec"]["containers"][0]["volumeMounts"];
        let claim = json!({"name": "data", "mountPath": "/data"});
        mounts.as_array_mut().unwrap().push(claim);
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
            "spec": {"replicas": 1, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": template,
                "volumeClaimTemplates": [{"metadata": {"name": "data"},
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]}})
    };
    let (one, two) = (set("1"), set("2"));
    day.put("db", one);
    assert_eq!(wait_version(&day, "db", "1"), "db-0");
    let claim = node.layout.claims().join("default/data-db-0");
    std::fs::write(claim.join("kept"), "").unwrap();
    day.put("db", two);
    assert_eq!(wait_version(&day, "db", "2"), "db-0");
    assert!(claim.join("kept").exists());
    day.crash();
    assert_eq!(wait_version(&day, "db", "2"), "db-0");
    day.check_starts("db", 2);
    day.end();
}

fn a_deleted_pod_is_replaced_and_a_removed_file_ends_all(node: &Node) {
    let day = Day::begin(node);
    day.put("web", deployment(&day, "1", "/tmp/noted"));
    let first = wait_version(&day, "web", "1");
    day.says(&["delete", "pod", &first]);
    day.wait("another pod", |snapshot| match &pods(snapshot, "web")[..] {
        [(pod, _, true)] if name(pod) != first => Some(()),
        _ => None,
    });
    day.delete("web");
    day.wait("no pod to be left", |snapshot| {
        snapshot.pods.is_empty().then_some(())
    });
    let records = std::fs::read_dir(node.layout.made_pods()).unwrap();
    assert_eq!(records.count(), 0);
    day.end();
}

/// The new version never becomes ready, and nothing else happens: the sentence about the wait grows older all the same.
fn the_ages_of_a_wait_are_made_anew_while_nothing_changes(node: &Node) {
    let day = Day::begin(node);
    let version = |version: &str, probe: &str| {
        let mut made = deployment(&day, version, probe);
        made["metadata"]["annotations"] = json!({});
        made["spec"]["progressDeadlineSeconds"] = 600.into();
        made
    };
    day.put("web", version("1", "/tmp/noted"));
    wait_version(&day, "web", "1");
    day.put("web", version("2", "/no/such/file"));
    let age = || {
        let said = day.says(&["describe", "deploy/web"]);
        let (_, after) = said.split_once("0 of 1 new pods ready for ")?;
        after.split_once(" s of 600 s")?.0.parse::<u64>().ok()
    };
    for seconds in [3, 6, 9] {
        support::wait_until("the sentence to be made anew", || {
            age().is_some_and(|age| age >= seconds)
        });
    }
    day.end();
}

/// The place of the states is taken by a file, so that nothing can be written there.
fn a_step_that_cannot_be_written_is_told_and_made_later(node: &Node) {
    let day = Day::begin(node);
    day.put("web", deployment(&day, "1", "/tmp/noted"));
    let first = wait_version(&day, "web", "1");
    let (states, away) = (
        node.layout.workloads(),
        node.layout.root().join("states-away"),
    );
    std::fs::rename(&states, &away).unwrap();
    std::fs::write(&states, "").unwrap();
    day.put("web", deployment(&day, "2", "/tmp/noted"));
    let why = format!(
        "it stays as it is, because what it needs next cannot be written below {}: ",
        states.display()
    );
    support::wait_until("people to be told", || {
        day.says(&["describe", "deploy/web"]).contains(&why)
    });
    let status = day.client(&["status"]);
    let status = String::from_utf8(status.stdout).unwrap();
    let told = format!("deployment/web: {why}");
    assert!(status.contains(&told), "{status}");
    assert_eq!(wait_version(&day, "web", "1"), first);
    std::fs::remove_file(&states).unwrap();
    std::fs::rename(&away, &states).unwrap();
    wait_version(&day, "web", "2");
    day.end();
}
