//! Objects in files of a real daemon, and the pods that refer to them.

use std::fs;
use std::process::Command;

use podprobe::engine::shims::RuntimeChoice;
use serde_json::json;

use crate::support;
use crate::support::daemon::{Day, FOREVER, find};

const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\n";

/// A pod that writes the variable `V` at each start; it comes from the ConfigMap.
fn reader(day: &Day, name: &str) -> String {
    let starts = day.node.dir.path().join("starts");
    let script = format!("echo \"$V from $WHO\" >>/starts/{name}; {FOREVER}");
    let script = script.replace('\n', "\n      ");
    format!(
        "apiVersion: v1
kind: Pod
metadata:
  name: {name}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: busybox:test
    imagePullPolicy: Never
    command: [/bin/sh, -c]
    args:
    - |
      {script}
    envFrom:
    - configMapRef: {{name: settings}}
    env:
    - name: WHO
      valueFrom:
        fieldRef: {{fieldPath: metadata.name}}
    volumeMounts:
    - {{name: starts, mountPath: /starts}}
  volumes:
  - name: starts
    hostPath: {{path: {}, type: Directory}}
",
        starts.display()
    )
}

/// What the container of the pod waits for.
#[track_caller]
fn wait_for(day: &Day, name: &str, message: &str) {
    day.wait(&format!("{name} to wait: {message}"), |s| {
        let status = find(s, name)?.status.container_statuses.first()?.clone();
        let waiting = status.state.waiting?;
        let as_told = waiting.reason == "CreateContainerConfigError" && waiting.message == message;
        as_told.then_some(())
    });
}

#[track_caller]
fn wait_for_start(day: &Day, name: &str, line: &str) {
    support::wait_until(&format!("{name} to write {line:?}"), || {
        day.starts(name) == [line]
    });
}

#[test]
fn a_pod_waits_for_its_object_and_starts_when_it_comes() {
    support::on(RuntimeChoice::Embedded, |node| {
        let day = Day::begin(node);
        day.put("web", reader(&day, "web"));
        wait_for(&day, "web", "configmap \"settings\" not found");
        let event = day.wait_event("web", "Failed");
        assert_eq!(event, "Error: configmap \"settings\" not found");
        day.put("settings", format!("{MAP}data:\n  V: \"7\"\n"));
        wait_for_start(&day, "web", "7 from web-edge");
        day.end();
    });
}

#[test]
fn one_file_holds_a_pod_its_object_and_what_is_skipped() {
    support::on(RuntimeChoice::Embedded, |node| {
        let day = Day::begin(node);
        let web = reader(&day, "web");
        let ingress = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: d}\n";
        day.put(
            "all",
            format!("{MAP}data: {{V: one}}\n---\n{ingress}---\n{web}"),
        );
        wait_for_start(&day, "web", "one from web-edge");
        let described = day.says(&["describe", "pod", "web"]);
        assert!(
            described.contains("Ingress \"d\": not run here: a Service of type NodePort"),
            "{described}"
        );
        let file = day.file("all");
        let verdict = day.says(&["validate", file.to_str().unwrap()]);
        assert!(
            verdict.contains("ok (pod web") && verdict.contains("ConfigMap default/settings"),
            "{verdict}"
        );
        day.end();
    });
}

#[test]
fn a_bad_version_leaves_the_last_good_one_also_over_the_death_of_the_daemon() {
    support::on(RuntimeChoice::Embedded, |node| {
        let mut day = Day::begin(node);
        day.put("settings", format!("{MAP}data: {{V: good}}\n"));
        day.put("first", reader(&day, "first"));
        wait_for_start(&day, "first", "good from first-edge");
        let process = day.process("first");
        day.put("settings", format!("{MAP}data: {{V: [bad]}}\n"));
        let told = |day: &Day, hint: &str| {
            day.wait(&format!("the problem {hint}"), |s| {
                let hit = s.problems.iter().any(|p| p.error.contains(hint));
                hit.then_some(())
            });
        };
        told(
            &day,
            "settings.json:5:8: data[V]: Invalid value: must be a text",
        );
        day.crash();
        day.put("second", reader(&day, "second"));
        wait_for_start(&day, "second", "good from second-edge");

        day.put(
            "settings",
            format!("{MAP}data: {{V: fixed}}\nimmutable: true\n"),
        );
        day.wait("the problem to go", |s| s.problems.is_empty().then_some(()));
        day.put(
            "settings",
            format!("{MAP}data: {{V: other}}\nimmutable: true\n"),
        );
        told(
            &day,
            "data: Forbidden: field is immutable when `immutable` is set",
        );
        day.put("copy", format!("{MAP}data: {{V: copy}}\n"));
        told(&day, "ConfigMap default/settings in ");
        day.put("third", reader(&day, "third"));
        wait_for_start(&day, "third", "fixed from third-edge");
        day.delete("copy");

        day.delete("settings");
        let kept = || fs::read_dir(node.layout.last_good()).unwrap().count();
        support::wait_until("the file to be gone for good", || kept() == 3);
        day.put("fourth", reader(&day, "fourth"));
        wait_for(&day, "fourth", "configmap \"settings\" not found");
        assert_eq!(day.process("first"), process, "what runs goes on");
        day.end();
    });
}

/// Nobody is told that an object is not there by a daemon that has just started and has not read its file yet.
#[test]
fn an_object_is_found_as_soon_as_the_daemon_answers() {
    support::on(RuntimeChoice::Embedded, |node| {
        let mut day = Day::begin(node);
        // The name says when each file is read, and the size how long that takes.
        for number in 0..100 {
            let name = format!("a{number}");
            let data = json!({"V": "x".repeat(100_000)});
            day.put(&name, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}));
        }
        let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}});
        day.put("z", json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "z"}, "spec": claim}));
        let mut ask = Command::new(support::PROGRAM);
        ask.args(["get", "pvc", "z", "--root"])
            .arg(node.layout.root());
        let mut first = || {
            let mut said = String::new();
            support::wait_until("an answer", || {
                let answer = ask.output().unwrap();
                said =
                    String::from_utf8_lossy(&[answer.stdout, answer.stderr].concat()).into_owned();
                said.contains(" Bound ") || said.contains("not found")
            });
            said
        };
        for _ in 0..3 {
            day.kill9();
            let said = std::thread::scope(|scope| {
                let said = scope.spawn(&mut first);
                day.start();
                said.join().unwrap()
            });
            assert!(said.contains(" Bound "), "{said}");
        }
        day.end();
    });
}

/// Neither the log nor what clients read nor any file but the source and its last good copy holds
/// what is in a Secret.
#[test]
fn a_secret_is_told_to_its_container_alone() {
    support::on(RuntimeChoice::Embedded, |node| {
        let day = Day::begin(node);
        let secret = |data: &str| {
            format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: login}}\nstringData: {data}\n")
        };
        day.put("login", secret("{V: hunter-two}"));
        let web = reader(&day, "web")
            .replace("configMapRef: {name: settings}", "secretRef: {name: login}");
        day.put("web", web);
        wait_for_start(&day, "web", "hunter-two from web-edge");
        day.put("login", secret("{V: [hunter-two]}"));
        day.wait("the problem", |s| (!s.problems.is_empty()).then_some(()));
        for words in [
            &["describe", "pod", "web"][..],
            &["get", "pods", "-o", "json"],
            &["get", "events"],
        ] {
            let said = day.says(words);
            assert!(!said.contains("hunter"), "{said}");
        }
        assert!(!day.log().contains("hunter"), "{}", day.log());
        let checkpoint = fs::read_to_string(node.layout.checkpoint()).unwrap_or_default();
        assert!(!checkpoint.contains("hunter"), "{checkpoint}");
        day.end();
    });
}
