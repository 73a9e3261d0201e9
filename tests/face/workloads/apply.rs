//! `apply` of workloads: it returns when the daemon has read them, and with `--wait` when they are ready.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use podprobe::api::PodOrigin;
use podprobe::api::decode::{Decoded, objects};
use podprobe::net::services::view::ServiceView;
use podprobe::workloads::state::object_hash;
use serde_json::{Value, json};

use super::{World, web};
use crate::cli::{check_output, pod, text};
use crate::terminal::Killed;

const SERVICE: &str =
    "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: 80}]}\n";
const POD: &str =
    "apiVersion: v1\nkind: Pod\nmetadata: {name: one}\nspec: {containers: [{name: c, image: i}]}\n";

fn deployment(image: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}}\nspec:\n  selector: {{matchLabels: {{app: web}}}}\n  template:\n    metadata: {{labels: {{app: web}}}}\n    spec: {{containers: [{{name: c, image: {image}}}]}}\n"
    )
}

/// A daemon that watches a directory below its root.
fn node() -> (World, PathBuf) {
    let world = World::new(vec![], vec![]);
    let dir = world.root.path().join("pods");
    std::fs::create_dir(&dir).unwrap();
    let config = json!({"nodeName": "edge", "staticPodPath": dir, "fileCheckFrequency": "20s"});
    *world.backend.config.lock().unwrap() = config;
    (world, dir)
}

fn decoded(file: &Path, text: &str) -> Decoded {
    let origin = PodOrigin::File {
        node_name: "edge",
        path: file,
    };
    objects(text.as_bytes(), &origin).unwrap()
}

/// The Deployment as the daemon shows it when it has read this text.
fn read(text: &str, rollout: Value) -> Value {
    let found = decoded(Path::new("/"), text);
    let mut view = web();
    view["fileHash"] = object_hash(&found.workloads[0].workload).into();
    view["rollout"] = rollout;
    view
}

fn going_on() -> Value {
    json!({"text": "Waiting for deployment \"web\" rollout to finish: 1 old replicas are pending termination...", "isDone": false})
}

fn done() -> Value {
    json!({"text": "deployment \"web\" successfully rolled out", "isDone": true})
}

/// Writes the file that is to be applied, and returns the command line.
fn apply(world: &World, text: &str) -> String {
    let file = world.root.path().join("web.yaml");
    std::fs::write(&file, text).unwrap();
    format!("apply -f {}", file.display())
}

#[test]
fn a_workload_is_created_configured_and_unchanged() {
    let (world, dir) = node();
    for (image, said) in [("a", "created"), ("a", "unchanged"), ("b", "configured")] {
        let text = deployment(image);
        world.set_workloads(1, &[read(&text, going_on())]);
        let output = world.run(&apply(&world, &text));
        check_output(&output, 0, &format!("deployment.apps/web {said}\n"), "");
        assert_eq!(std::fs::read_to_string(dir.join("web.yaml")).unwrap(), text);
    }
}

/// The daemon of the test shows the old version all the time.
#[test]
fn a_workload_that_the_daemon_has_not_read_is_said() {
    let (world, dir) = node();
    world.set_workloads(1, &[read(&deployment("a"), done())]);
    let output = world.run(&apply(&world, &deployment("b")));
    let late = format!(
        "podprobe has not read it yet; it looks into {} every 20s\n",
        dir.display()
    );
    check_output(&output, 0, "deployment.apps/web created\n", &late);
}

/// A field that may not change is found by the daemon alone, which knows the last good version.
#[test]
fn a_version_that_the_daemon_refuses_is_an_error() {
    let (world, dir) = node();
    world.set_workloads(1, &[read(&deployment("a"), done())]);
    let file = dir.join("web.yaml");
    let error = "spec.selector: Invalid value: {}: field is immutable";
    let mut command = world.command(&apply(&world, &deployment("b")));
    let spawned = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = Killed(spawned.unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    assert_eq!(
        lines.next().unwrap().unwrap(),
        "deployment.apps/web created"
    );
    world.set(2, vec![], vec![json!({"file": file, "error": error})]);
    let mut said = String::new();
    let mut pipe = child.0.stderr.take().unwrap();
    pipe.read_to_string(&mut said).unwrap();
    assert_eq!(said, format!("{}: not in use: {error}\n", file.display()));
    assert_eq!(child.0.wait().unwrap().code(), Some(1));
}

/// Checks what `apply --wait` says while the daemon shows these rollouts of the new version, one after the other.
#[track_caller]
fn check_wait(options: &str, rollouts: &[Value], stdout: &str, stderr: &str, code: i32) {
    let (world, _) = node();
    let text = deployment("a");
    let other = deployment("b");
    let line = format!("{} --wait {options}", apply(&world, &text));
    let shown = |rollout: &Value| [read(&text, rollout.clone())];
    // The version before is ready, which does not count.
    world.set_workloads(1, &[read(&other, done())]);
    let mut command = world.command(&line);
    let spawned = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = Killed(spawned.unwrap());
    let mut out = BufReader::new(child.0.stdout.take().unwrap());
    let mut said = String::new();
    out.read_line(&mut said).unwrap();
    for (version, rollout) in (2..).zip(rollouts) {
        world.set_workloads(version, &shown(rollout));
    }
    out.read_to_string(&mut said).unwrap();
    let mut errors = String::new();
    let mut pipe = child.0.stderr.take().unwrap();
    pipe.read_to_string(&mut errors).unwrap();
    let ended = child.0.wait().unwrap().code();
    let created = format!("deployment.apps/web created\n{stdout}");
    assert_eq!(
        (said, errors.as_str(), ended),
        (created, stderr, Some(code))
    );
}

#[test]
fn with_wait_it_returns_when_the_rollout_is_complete() {
    let ready = "deployment.apps/web is ready\n";
    check_wait("--timeout=20s", &[going_on(), done()], ready, "", 0);
    let mut late = going_on();
    late["error"] = "deployment \"web\" exceeded its progress deadline".into();
    let error = "error: deployment \"web\" exceeded its progress deadline\n";
    check_wait("--timeout=20s", &[going_on(), late], "", error, 1);
    let error = "error: timed out waiting for the condition on deployments/web\n\
        deployment.apps/web: Waiting for deployment \"web\" rollout to finish: 1 old replicas are pending termination...\n";
    check_wait("--timeout=500ms", &[going_on()], "", error, 1);
}

#[test]
fn a_directory_may_have_workloads_beside_pods_and_services() {
    let (world, dir) = node();
    let from = world.root.path().join("mine");
    std::fs::create_dir(&from).unwrap();
    let both = format!("{}---\n{SERVICE}", deployment("a"));
    std::fs::write(from.join("web.yaml"), &both).unwrap();
    std::fs::write(from.join("one.yaml"), POD).unwrap();
    let ready = read(&deployment("a"), done());
    world.set_workloads(1, &[ready]);
    let service = ServiceView {
        namespace: "default".into(),
        name: "web".into(),
        ..ServiceView::default()
    };
    *world.backend.services.lock().unwrap() = vec![service];
    let mut shown = pod("default", "one");
    shown["object"] = decoded(&dir.join("one.yaml"), POD).pods[0].pod.raw.value();
    world.set(2, vec![shown], vec![]);
    let output = world.run(&format!("apply -f {} --wait", from.display()));
    let created = "pod/one created\ndeployment.apps/web created\nservice/web created\n";
    let waited = "pod/one-edge is ready\ndeployment.apps/web is ready\n";
    check_output(&output, 0, &format!("{created}{waited}"), "");
    let again = format!(
        "apply -f {} -f {}",
        from.join("web.yaml").display(),
        from.join("one.yaml").display()
    );
    let unchanged = "deployment.apps/web unchanged\nservice/web unchanged\npod/one unchanged\n";
    check_output(&world.run(&again), 0, unchanged, "");
    // One that would be lost keeps the file.
    let alone = apply(&world, &deployment("b"));
    let error = text(&world.run(&alone).stderr);
    assert!(
        error.contains("has service/web too, which would be gone"),
        "{error}"
    );
}
