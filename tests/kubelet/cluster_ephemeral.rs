//! Ephemeral containers of pods of an API server (`kubectl debug`) on a real daemon (kubelet-probes 8.3, 9.3).

use serde_json::{Value, json};

use crate::cluster::{HEEDS_TERM, create, end, in_a_cluster, is_ready, wait_ready};
use crate::support::api_server::ApiServer;

/// Adds an ephemeral container to a pod, as `kubectl debug` does.
fn add(server: &ApiServer, pod: &str, name: &str, script: &str, more: Value) {
    let mut container = json!({"name": name, "image": "busybox:test", "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", script], "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File", "resources": {}});
    let fields = more.as_object().unwrap().clone();
    container.as_object_mut().unwrap().extend(fields);
    server.edit_pod(pod, |pod| {
        let spec = pod["spec"].as_object_mut().unwrap();
        let list = spec.entry("ephemeralContainers").or_insert(json!([]));
        list.as_array_mut().unwrap().push(container);
    });
}

fn status<'p>(pod: &'p Value, name: &str) -> &'p Value {
    let all = pod["status"]["ephemeralContainerStatuses"].as_array();
    let found = all.into_iter().flatten().find(|s| s["name"] == name);
    found.unwrap_or(&Value::Null)
}

fn runs(pod: &Value, name: &str) -> bool {
    status(pod, name)["state"].get("running").is_some()
}

#[test]
fn an_ephemeral_container_joins_a_running_pod_and_restarts_nothing() {
    in_a_cluster(|server, day| {
        create(server, &day, "web", HEEDS_TERM);
        let before = wait_ready(server, "web");
        add(
            server,
            "web",
            "look",
            "echo hello; sleep 100000",
            json!({"stdin": true}),
        );
        let pod = server.wait_for_pod("web", |pod| runs(pod, "look"));
        assert!(is_ready(&pod));
        assert_eq!(pod["status"]["phase"], "Running");
        assert_eq!(status(&pod, "look")["restartCount"], 0);
        assert_eq!(status(&pod, "look")["ready"], false);
        let id = |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"].clone();
        assert_eq!(id(&pod), id(&before));
        assert_eq!(day.says(&["logs", "web", "-c", "look"]), "hello\n");
        let own = day.says(&["exec", "web", "-c", "look", "--", "cat", "/proc/1/cmdline"]);
        assert!(!own.contains("/starts/web"), "{own:?}");
        let shown = day.says(&["describe", "pod", "web"]);
        assert!(
            shown.contains("\nEphemeral Containers:\n  look:\n"),
            "{shown}"
        );
        // A second one, and an edit of something else, change nothing for the first.
        add(server, "web", "again", "exit 3", json!({}));
        let ended = |pod: &Value| status(pod, "again")["state"]["terminated"]["exitCode"] == 3;
        let pod = server.wait_for_pod("web", ended);
        assert!(runs(&pod, "look") && is_ready(&pod));
        day.check_starts("web", 1);
        end(server, day);
    });
}

#[test]
fn an_ephemeral_container_sees_the_processes_of_its_target() {
    in_a_cluster(|server, day| {
        create(server, &day, "web", HEEDS_TERM);
        wait_ready(server, "web");
        let target = json!({"targetContainerName": "c"});
        let script = "tr '\\0' ' ' </proc/1/cmdline; echo; echo own pid $$; sleep 100000";
        add(server, "web", "look", script, target.clone());
        server.wait_for_pod("web", |pod| runs(pod, "look"));
        crate::support::wait_until("the pids", || {
            day.says(&["logs", "web", "-c", "look"]).contains("own pid")
        });
        let said = day.says(&["logs", "web", "-c", "look"]);
        assert!(said.contains("/starts/web"), "{said}");
        assert!(
            !said.contains("own pid 1\n"),
            "it has a namespace of its own: {said}"
        );
        let unknown = json!({"targetContainerName": "none"});
        add(server, "web", "lost", "true", unknown);
        let waits = |pod: &Value| {
            let waiting = &status(pod, "lost")["state"]["waiting"];
            waiting["reason"] == "CreateContainerConfigError"
                && waiting["message"] == "unable to find target container \"none\""
        };
        server.wait_for_pod("web", waits);
        end(server, day);
    });
}

#[test]
fn an_ephemeral_container_runs_once_over_the_death_of_the_daemon_and_goes_with_the_pod() {
    in_a_cluster(|server, mut day| {
        create(server, &day, "web", HEEDS_TERM);
        wait_ready(server, "web");
        let mount = json!({"volumeMounts": [{"name": "starts", "mountPath": "/starts"}]});
        add(server, "web", "once", "echo >>/starts/once", mount.clone());
        add(
            server,
            "web",
            "stays",
            "echo >>/starts/stays; sleep 100000",
            mount,
        );
        let is_done = |pod: &Value| {
            status(pod, "once")["state"].get("terminated").is_some() && runs(pod, "stays")
        };
        server.wait_for_pod("web", is_done);
        day.kill9();
        day.start();
        server.edit_pod("web", |pod| {
            pod["metadata"]["labels"] = json!({"seen": "yes"});
        });
        let after = server.wait_for_pod("web", |pod| {
            pod["status"]["observedGeneration"] == pod["metadata"]["generation"]
        });
        assert!(is_done(&after));
        for name in ["web", "once", "stays"] {
            day.check_starts(name, 1);
        }
        end(server, day);
    });
}
