//! What people ask of the real daemon's pods: `restart`, `delete` and `apply`.

use podprobe::api::PodPhase;
use podprobe::face::views::{PodView, Snapshot};
use serde_json::json;

use crate::support;
use crate::support::Node;
use crate::support::daemon::{Day, FOREVER, find};
use crate::support::on_both;

on_both![
    a_restart_on_request_starts_a_new_instance,
    a_deleted_pod_stays_so_until_its_file_changes,
    a_daemon_that_is_killed_right_after_the_answer_ends_the_pod,
    a_file_is_applied_after_it_was_checked,
];

fn restarts(pod: &PodView) -> u32 {
    pod.status.container_statuses[0].restart_count
}

fn restarted(snapshot: &Snapshot, name: &str, times: u32) -> Option<()> {
    let pod = find(snapshot, name).filter(|pod| pod.status.is_ready())?;
    (restarts(pod) == times).then_some(())
}

fn a_restart_on_request_starts_a_new_instance(node: &Node) {
    let day = Day::begin(node);
    day.put("web", day.pod("web", FOREVER, json!({})));
    let mut once = day.pod("once", FOREVER, json!({}));
    once["spec"]["restartPolicy"] = "Never".into();
    day.put("once", once);
    day.wait_ready("web");
    day.wait_ready("once");
    let before = day.process("web");
    assert_eq!(day.says(&["restart", "web"]), "web-edge/c restarts\n");
    day.wait("the new instance", |s| restarted(s, "web", 1));
    assert!(!before.alive());
    day.check_starts("web", 2);
    // At once again, though it ended a moment ago.
    assert_eq!(day.says(&["restart", "pod/web/c"]), "web-edge/c restarts\n");
    day.wait("the third instance", |s| restarted(s, "web", 2));
    let uid = day.wait("the pod", |s| find(s, "web").map(|p| p.uid().to_owned()));
    let causes = day.history(&uid).restarts;
    assert!(
        causes
            .iter()
            .all(|r| r.cause.starts_with("restart requested (")),
        "{causes:?}"
    );
    assert!(
        day.log()
            .contains(&format!("audit: restart {uid} [c] by uid 0"))
    );

    let refused = day.client(&["restart", "once"]);
    assert_eq!(refused.status.code(), Some(1));
    let why = String::from_utf8(refused.stderr).unwrap();
    assert!(
        why.contains("cannot restart container c: its restartPolicy is Never: it would be killed and not start again"),
        "{why}"
    );
    day.check_starts("once", 1);
    assert!(
        day.says(&["restart", "web/x"])
            .contains("pod web-edge has no container x")
    );
    day.end();
}

fn is_deleted(snapshot: &Snapshot, name: &str) -> Option<()> {
    let pod = find(snapshot, name)?;
    let mut containers = pod.status.container_statuses.iter();
    let is = (pod.status.phase, pod.status.reason.as_str()) == (PodPhase::Failed, "Deleted");
    (is && containers.all(|c| c.state.terminated.is_some())).then_some(())
}

fn a_deleted_pod_stays_so_until_its_file_changes(node: &Node) {
    let mut day = Day::begin(node);
    day.put("web", day.pod("web", FOREVER, json!({})));
    // The same pod whatever its file says.
    let own = |image: &str| {
        let mut pod = day.pod("own", FOREVER, json!({}));
        pod["metadata"]["uid"] = "own-uid".into();
        pod["metadata"]["annotations"] = json!({ "version": image });
        pod
    };
    let (first, second) = (own("1"), own("2"));
    day.put("own", first);
    let witness = |version: &str| {
        let mut pod = day.pod("witness", FOREVER, json!({}));
        pod["metadata"]["uid"] = "witness-uid".into();
        pod["metadata"]["annotations"] = json!({ "version": version });
        let mut before = pod["spec"]["containers"][0].clone();
        before["name"] = "before".into();
        before["command"] = json!(["/bin/sh", "-c", ":"]);
        pod["spec"]["initContainers"] = json!([before]);
        pod
    };
    let (old, new) = (witness("1"), witness("2"));
    day.put("witness", old);
    for name in ["web", "own", "witness"] {
        day.wait_ready(name);
    }
    let said = day.says(&["delete", "web", "--now"]);
    let file = day.file("web").display().to_string();
    assert_eq!(
        said,
        format!("pod \"web-edge\" deleted until its file changes: {file}\n")
    );
    for name in ["own", "witness"] {
        day.says(&["delete", "pod", name, "--now"]);
    }
    for name in ["web", "own", "witness"] {
        day.wait("the pod to be deleted", |s| is_deleted(s, name));
    }
    assert!(day.processes().is_empty());
    day.kill9();
    // The next daemon starts it at its first sync tick, as it would every other whose record says no more that it is deleted. It
    // has a container more to start than they have.
    day.put("witness", new);
    day.start();
    day.wait_ready("witness");
    let snapshot = day.snapshot().unwrap();
    for name in ["web", "own"] {
        assert!(is_deleted(&snapshot, name).is_some(), "{}", day.log());
        day.check_starts(name, 1);
    }
    day.delete("witness");
    day.wait_gone("witness");
    let shown = day.says(&["get", "pods"]);
    assert_eq!(shown.matches(" Deleted ").count(), 2, "{shown}");
    let again = day.client(&["delete", "web"]);
    assert_eq!(again.status.code(), Some(1));
    let why = String::from_utf8(again.stderr).unwrap();
    assert!(why.contains("the pod has ended already (Deleted)"), "{why}");

    day.put("web", day.pod("web", &format!(":\n{FOREVER}"), json!({})));
    day.put("own", second);
    for name in ["web", "own"] {
        day.wait_ready(name);
        support::wait_until("its note", || day.starts(name).len() == 2);
    }
    day.crash();
    for name in ["web", "own"] {
        day.wait_ready(name);
        day.check_starts(name, 2);
    }
    day.end();
}

fn a_daemon_that_is_killed_right_after_the_answer_ends_the_pod(node: &Node) {
    let mut day = Day::begin(node);
    // It does not end before KILL, so that the daemon dies first.
    day.put(
        "web",
        day.pod("web", "trap '' TERM\nwhile :; do sleep 1; done", json!({})),
    );
    day.wait_ready("web");
    let said = day.says(&["delete", "web", "--grace-period", "3"]);
    assert!(said.contains("deleted until its file changes"), "{said}");
    day.crash();
    day.wait("the pod to be deleted", |s| is_deleted(s, "web"));
    assert!(day.processes().is_empty());
    day.check_starts("web", 1);
    // A file that goes takes the deletion with it.
    let pod = std::fs::read_to_string(day.file("web")).unwrap();
    day.delete("web");
    day.wait_gone("web");
    day.put("web", pod);
    day.wait_ready("web");
    day.end();
}

fn apply(day: &Day<'_>, file: &std::path::Path) -> (Option<i32>, String, String) {
    let output = day.client(&["apply", "-f", file.to_str().unwrap()]);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

fn a_file_is_applied_after_it_was_checked(node: &Node) {
    let day = Day::begin(node);
    let file = node.dir.path().join("web.json");
    let write = |pod: &serde_json::Value| std::fs::write(&file, pod.to_string()).unwrap();
    let pod = day.pod("web", FOREVER, json!({}));
    write(&pod);
    let said = |text: &str| (Some(0), text.to_owned(), String::new());
    assert_eq!(apply(&day, &file), said("pod/web created\n"));
    day.wait_ready("web");
    assert_eq!(apply(&day, &file), said("pod/web unchanged\n"));

    let mut bad = pod.clone();
    bad["spec"]["restartPolicy"] = "Sometimes".into();
    write(&bad);
    let (code, out, why) = apply(&day, &file);
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(why.contains("spec.restartPolicy"), "{why}");
    assert_eq!(
        std::fs::read_to_string(day.file("web")).unwrap(),
        pod.to_string()
    );

    let other = node.dir.path().join("other.json");
    std::fs::write(&other, pod.to_string()).unwrap();
    let (code, _, why) = apply(&day, &other);
    let expected = format!("pod/web is in {} already", day.file("web").display());
    assert!(code == Some(1) && why.contains(&expected), "{why}");
    assert!(!day.file("other").exists());

    write(&day.pod("web", &format!(":\n{FOREVER}"), json!({})));
    assert_eq!(apply(&day, &file), said("pod/web configured\n"));
    support::wait_until("the second start", || day.starts("web").len() == 2);
    let left: Vec<_> = std::fs::read_dir(node.layout.pods_dir()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");

    // The pod of a file that somebody has broken runs on.
    std::fs::write(day.file("web"), "{").unwrap();
    write(&day.pod("db", FOREVER, json!({})));
    let (code, _, why) = apply(&day, &file);
    let expected = format!("{} has pod/web too", day.file("web").display());
    assert!(code == Some(1) && why.contains(&expected), "{why}");
    write(&pod);
    assert_eq!(apply(&day, &file), said("pod/web configured\n"));

    day.delete("web");
    day.wait_gone("web");
    let (pods, away) = (node.layout.pods_dir(), node.dir.path().join("away"));
    std::fs::rename(&pods, &away).unwrap();
    let (code, _, why) = apply(&day, &file);
    assert!(
        code == Some(1) && why.contains("make that directory"),
        "{why}"
    );
    std::fs::rename(&away, &pods).unwrap();
    day.end();
}
