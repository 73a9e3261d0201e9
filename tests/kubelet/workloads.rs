//! Workloads on a real daemon: rollouts, their ways back, Jobs, StatefulSets, with the daemon killed in between.

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
    a_version_that_makes_no_progress_is_rolled_back_and_stays_so,
    a_job_runs_once_although_the_daemon_is_killed,
    a_stateful_set_keeps_names_and_claims,
    a_deleted_pod_is_replaced_and_a_removed_file_ends_all,
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
