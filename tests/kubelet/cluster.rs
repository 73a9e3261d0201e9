//! A real daemon as a node of a cluster: its Node, Lease, pods, mirror pods, statuses and events, with an API server that
//! refuses what the real one refuses, and breaks (kubelet-probes 6.5, 9.7–9.11).

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use podprobe::engine::shims::RuntimeChoice;
use serde_json::{Value, json};

use crate::support;
use crate::support::api_server::{ApiServer, Fault};
use crate::support::daemon::{Day, FOREVER, NODE};
use crate::support::{Node, wait_until};

/// A script that ends at TERM.
const HEEDS_TERM: &str = "trap 'exit 0' TERM; while :; do sleep 0.05; done";

/// Runs a test with an API server and a daemon that is its node.
fn in_a_cluster(test: impl FnOnce(&ApiServer, Day<'_>)) {
    support::on(RuntimeChoice::Embedded, |node| {
        let server = ApiServer::start();
        join(node, &server);
        let day = Day::begin(node);
        test(&server, day);
    });
}

fn join(node: &Node, server: &ApiServer) {
    let config = json!({"healthzBindAddress": "", "healthzPort": 0, "nodeIP": "127.0.0.1",
        "kubeconfig": server.kubeconfig_with_token(),
        "registerWithTaints": [{"key": "edge", "value": "yes", "effect": "NoSchedule"}]});
    fs::write(node.layout.config_file(), config.to_string()).unwrap();
}

/// Creates a pod of the API that notes its starts and then runs `script`.
fn create(server: &ApiServer, day: &Day<'_>, name: &str, script: &str) -> Value {
    server.create_pod(name, day.pod(name, script, json!({}))["spec"].clone())
}

fn condition<'v>(object: &'v Value, type_: &str) -> &'v Value {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions
        .find(|c| c["type"] == type_)
        .unwrap_or(&Value::Null)
}

fn is_ready(object: &Value) -> bool {
    condition(object, "Ready")["status"] == "True"
}

#[track_caller]
fn wait_ready(server: &ApiServer, name: &str) -> Value {
    server.wait_for_pod(name, is_ready)
}

/// Removes all pods of the API, and ends the day.
fn end(server: &ApiServer, day: Day<'_>) {
    let pods = server.all("pods");
    let of_api = pods
        .iter()
        .filter(|p| p["metadata"]["annotations"].is_null());
    for pod in of_api {
        let name = pod["metadata"]["name"].as_str().unwrap();
        if pod["metadata"]["deletionTimestamp"].is_null() {
            server.delete_pod(name, 1);
        }
        server.wait_until_gone(name);
    }
    day.end();
}

#[test]
fn a_node_registers_and_keeps_its_lease() {
    in_a_cluster(|server, day| {
        wait_until("the node to be ready", || {
            server
                .get("nodes", "", NODE)
                .is_some_and(|node| is_ready(&node))
        });
        let node = server.get("nodes", "", NODE).unwrap();
        assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], NODE);
        assert_eq!(node["spec"]["taints"][0]["key"], "edge");
        let address = json!({"type": "InternalIP", "address": "127.0.0.1"});
        assert_eq!(node["status"]["addresses"][0], address);
        let lease = || server.get("leases", "kube-node-lease", NODE);
        wait_until("the lease", || lease().is_some());
        let lease = lease().unwrap();
        assert_eq!(lease["spec"]["holderIdentity"], NODE);
        assert_eq!(
            lease["metadata"]["ownerReferences"][0]["uid"],
            node["metadata"]["uid"]
        );

        server.remove("nodes", "", NODE);
        wait_until("the node to be registered again", || {
            server
                .get("nodes", "", NODE)
                .is_some_and(|node| is_ready(&node))
        });
        end(server, day);
    });
}

#[test]
fn a_pod_of_the_api_server_runs_is_told_of_and_ends() {
    in_a_cluster(|server, day| {
        create(server, &day, "web", HEEDS_TERM);
        let pod = wait_ready(server, "web");
        let status = &pod["status"];
        assert_eq!(status["phase"], "Running");
        assert_eq!(status["hostIP"], "127.0.0.1");
        assert_eq!(status["containerStatuses"][0]["restartCount"], 0);
        assert_eq!(condition(&pod, "PodScheduled")["status"], "True");
        let events = || -> BTreeSet<String> {
            let reasons = server.all("events").into_iter();
            reasons
                .map(|e| e["reason"].as_str().unwrap().to_owned())
                .collect()
        };
        wait_until("the event Started", || events().contains("Started"));

        server.delete_pod("web", 30);
        server.wait_until_gone("web");
        day.check_starts("web", 1);
        let deleted = server.asked().into_iter().filter(|a| a.method == "DELETE");
        let deleted: Vec<_> = deleted.collect();
        assert_eq!(deleted.len(), 1);
        assert_eq!(
            deleted[0].body["preconditions"]["uid"],
            pod["metadata"]["uid"]
        );
        let last = server
            .asked()
            .into_iter()
            .filter(|a| a.method == "PATCH" && a.path.contains("/pods/web/"));
        let last = last.last().unwrap();
        assert_eq!(last.body["status"]["phase"], "Succeeded");
        end(server, day);
    });
}

#[test]
fn a_pod_that_is_done_says_how() {
    in_a_cluster(|server, day| {
        for (name, code, phase) in [("good", 0, "Succeeded"), ("bad", 3, "Failed")] {
            let mut spec = day.pod(name, &format!("exit {code}"), json!({}))["spec"].clone();
            spec["restartPolicy"] = "Never".into();
            server.create_pod(name, spec);
            let pod = server.wait_for_phase(name, phase);
            let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
            assert_eq!(ended["exitCode"], code);
        }
        end(server, day);
    });
}

#[test]
fn a_static_pod_has_a_mirror_pod_that_comes_back_and_goes_with_it() {
    in_a_cluster(|server, day| {
        let mirror = format!("web-{NODE}");
        day.put("web", day.pod("web", HEEDS_TERM, json!({})));
        let first = wait_ready(server, &mirror);
        assert_eq!(first["status"]["phase"], "Running");
        server.remove("pods", "default", &mirror);
        let second = server.wait_for_pod(&mirror, |pod| {
            is_ready(pod) && pod["metadata"]["uid"] != first["metadata"]["uid"]
        });
        assert_eq!(
            second["metadata"]["annotations"],
            first["metadata"]["annotations"]
        );
        day.check_starts("web", 1);
        day.delete("web");
        server.wait_until_gone(&mirror);
        end(server, day);
    });
}

#[test]
fn a_link_that_is_cut_costs_no_pod_anything() {
    in_a_cluster(|server, mut day| {
        create(server, &day, "stays", FOREVER);
        create(server, &day, "goes", HEEDS_TERM);
        wait_ready(server, "stays");
        wait_ready(server, "goes");
        server.down();
        day.crash();
        server.delete_pod("goes", 1);
        create(server, &day, "comes", FOREVER);
        server.edit_pod("stays", |pod| {
            pod["metadata"]["labels"]["new"] = "yes".into()
        });
        server.compact();
        server.up();
        server.wait_until_gone("goes");
        wait_ready(server, "comes");
        wait_ready(server, "stays");
        day.check_starts("stays", 1);
        day.check_starts("comes", 1);
        end(server, day);
    });
}

#[test]
fn faults_of_the_api_server_delay_and_lose_nothing() {
    in_a_cluster(|server, day| {
        wait_until("the node", || server.get("nodes", "", NODE).is_some());
        for (method, path, fault) in [
            ("PATCH", "/pods/", Fault::Status(409, "conflict", None)),
            ("PATCH", "/pods/", Fault::Status(500, "etcd is away", None)),
            ("GET", "/pods/web", Fault::Status(429, "slow down", Some(1))),
            ("GET", "/pods/web", Fault::Garbage),
            ("GET", "/pods/web", Fault::Reset),
            ("GET", "/pods/web", Fault::Late(Duration::from_millis(300))),
            ("POST", "/events", Fault::Status(500, "etcd is away", None)),
            ("PUT", "/leases/", Fault::Status(409, "conflict", None)),
        ] {
            server.fail(method, path, 1, fault);
        }
        create(server, &day, "web", FOREVER);
        wait_ready(server, "web");
        server.compact();
        server.cut();
        let events = || server.all("events").len();
        wait_until("the events", || events() >= 3);
        create(server, &day, "next", FOREVER);
        wait_ready(server, "next");
        day.check_starts("web", 1);
        end(server, day);
    });
}

#[test]
fn an_api_server_without_initial_lists_is_listed() {
    support::on(RuntimeChoice::Embedded, |node| {
        let server = ApiServer::start();
        server.without_watch_list();
        join(node, &server);
        let day = Day::begin(node);
        create(&server, &day, "web", FOREVER);
        wait_ready(&server, "web");
        end(&server, day);
    });
}

#[test]
fn a_token_that_is_rotated_is_read_again() {
    in_a_cluster(|server, day| {
        wait_until("the node", || server.get("nodes", "", NODE).is_some());
        let file = server.authority.path("token");
        fs::write(file, "the-next-token").unwrap();
        server.change_token("the-next-token");
        // A new connection reads the credentials; without one, they are read within a minute.
        server.cut();
        create(server, &day, "web", FOREVER);
        wait_ready(server, "web");
        end(server, day);
    });
}

#[test]
fn a_pod_that_the_node_cannot_run_fails_and_can_be_deleted() {
    in_a_cluster(|server, day| {
        let mut spec = day.pod("web", FOREVER, json!({}))["spec"].clone();
        spec["volumes"] = json!([{"name": "starts", "nfs": {"server": "h", "path": "/"}}]);
        server.create_pod("web", spec);
        let pod = server.wait_for_phase("web", "Failed");
        assert_eq!(pod["status"]["reason"], "UnsupportedPod");
        let message = pod["status"]["message"].as_str().unwrap();
        assert!(message.contains("nfs"), "{message}");
        end(server, day);
    });
}
