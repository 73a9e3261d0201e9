//! A real daemon as a node of a cluster: its Node, Lease, pods, mirror pods, statuses and events, with an API server that
//! refuses what the real one refuses, and breaks (kubelet-probes 6.5, 9.7–9.11).

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use podprobe::engine::shims::RuntimeChoice;
use serde_json::{Value, json};

use crate::support;
use crate::support::api_server::{ApiServer, Fault};
use crate::support::daemon::{Day, FOREVER, NODE, find};
use crate::support::{Node, wait_until};

/// A script that ends at TERM.
pub(crate) const HEEDS_TERM: &str = "trap 'exit 0' TERM; while :; do sleep 0.05; done";

/// Runs a test with an API server and a daemon that is its node.
pub(crate) fn in_a_cluster(test: impl FnOnce(&ApiServer, Day<'_>)) {
    in_a_cluster_with(|_| json!({}), test);
}

/// Runs a test with an API server and a daemon that is its node, with more keys in its configuration.
pub(crate) fn in_a_cluster_with(
    more: impl FnOnce(&ApiServer) -> Value,
    test: impl FnOnce(&ApiServer, Day<'_>),
) {
    support::on(RuntimeChoice::Embedded, |node| {
        let Some(server) = ApiServer::start() else {
            return;
        };
        join(node, &server, more(&server));
        let day = Day::begin(node);
        test(&server, day);
    });
}

fn join(node: &Node, server: &ApiServer, more: Value) {
    let mut config = json!({"healthzBindAddress": "", "healthzPort": 0, "nodeIP": "127.0.0.1",
        "kubeconfig": server.kubeconfig_with_token(),
        "registerWithTaints": [{"key": "edge", "value": "yes", "effect": "NoSchedule"}]});
    let (Some(all), Value::Object(more)) = (config.as_object_mut(), more) else {
        unreachable!("both are objects");
    };
    all.extend(more);
    fs::write(node.layout.config_file(), config.to_string()).unwrap();
}

/// Creates a pod of the API that notes its starts and then runs `script`.
pub(crate) fn create(server: &ApiServer, day: &Day<'_>, name: &str, script: &str) -> Value {
    server.create_pod(name, day.pod(name, script, json!({}))["spec"].clone())
}

fn condition<'v>(object: &'v Value, type_: &str) -> &'v Value {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions
        .find(|c| c["type"] == type_)
        .unwrap_or(&Value::Null)
}

pub(crate) fn is_ready(object: &Value) -> bool {
    condition(object, "Ready")["status"] == "True"
}

#[track_caller]
pub(crate) fn wait_ready(server: &ApiServer, name: &str) -> Value {
    server.wait_for_pod(name, is_ready)
}

/// Removes all pods of the API, and ends the day.
pub(crate) fn end(server: &ApiServer, day: Day<'_>) {
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
    check_history(server);
    day.end();
}

/// The API server takes almost every status. These would mislead the control plane: a phase that says that the pod has ended
/// while a container runs, and a pod that has ended and runs again.
#[track_caller]
fn check_history(server: &ApiServer) {
    let mut ended = BTreeSet::new();
    for pod in server.history("pods") {
        let phase = pod["status"]["phase"].as_str().unwrap_or_default();
        let is_terminal = ["Succeeded", "Failed"].contains(&phase);
        let containers = pod["status"]["containerStatuses"].as_array();
        let mut containers = containers.into_iter().flatten();
        let runs = containers.any(|c| c["state"].get("running").is_some());
        assert!(!(is_terminal && runs), "it has ended and runs: {pod:#}");
        let uid = pod["metadata"]["uid"].to_string();
        // A static pod that was rejected starts when the reason goes.
        let is_mirror = pod["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_string();
        assert!(
            is_terminal || is_mirror || !ended.contains(&uid),
            "it had ended: {pod:#}"
        );
        if is_terminal {
            ended.insert(uid);
        }
    }
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
        for pressure in ["MemoryPressure", "DiskPressure", "PIDPressure"] {
            assert_eq!(condition(&node, pressure)["status"], "False");
        }
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
        let mut last = server
            .asked()
            .into_iter()
            .filter(|a| a.method == "PATCH" && a.path.contains("/pods/web/"));
        let last = last.next_back().unwrap();
        assert_eq!(last.body["status"]["phase"], "Succeeded");
        end(server, day);
    });
}

#[test]
fn a_status_says_of_which_generation_it_is() {
    in_a_cluster(|server, day| {
        create(server, &day, "web", HEEDS_TERM);
        let first = wait_ready(server, "web");
        assert_eq!(first["status"]["observedGeneration"], 1);
        assert_eq!(condition(&first, "Ready")["observedGeneration"], 1);
        server.edit_pod("web", |pod| {
            pod["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
        });
        let second = server.wait_for_pod("web", |pod| pod["status"]["observedGeneration"] == 2);
        assert!(is_ready(&second));
        day.check_starts("web", 1);
        end(server, day);
    });
}

#[test]
fn a_readiness_gate_is_what_the_api_server_says() {
    in_a_cluster(|server, day| {
        let mut spec = day.pod("web", HEEDS_TERM, json!({}))["spec"].clone();
        spec["readinessGates"] = json!([{"conditionType": "example.com/registered"}]);
        server.create_pod("web", spec);
        server.wait_for_pod("web", |pod| {
            condition(pod, "ContainersReady")["status"] == "True"
        });
        let gate = |status: &str| {
            let mut pod = server.pod("web").unwrap();
            let conditions = pod["status"]["conditions"].as_array_mut().unwrap();
            conditions.retain(|c| c["type"] != "example.com/registered");
            conditions.push(json!({"type": "example.com/registered", "status": status}));
            server.put("pods", pod);
        };
        assert!(!is_ready(&server.pod("web").unwrap()));
        gate("True");
        wait_ready(server, "web");
        gate("False");
        let pod = server.wait_for_pod("web", |pod| !is_ready(pod));
        assert_eq!(condition(&pod, "Ready")["reason"], "ReadinessGatesNotReady");
        assert_eq!(condition(&pod, "example.com/registered")["status"], "False");
        day.check_starts("web", 1);
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
            ("PATCH", "/leases/", Fault::Status(409, "conflict", None)),
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
        let Some(server) = ApiServer::start() else {
            return;
        };
        server.without_watch_list();
        join(node, &server, json!({}));
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

/// A controller has made another pod in its place by then.
#[test]
fn an_evicted_pod_stays_as_it_ended() {
    in_a_cluster(|server, mut day| {
        let greedy = format!("head -c 3000000 /dev/zero >/v/big\n{FOREVER}");
        let mut spec = day.pod("greedy", &greedy, json!({}))["spec"].clone();
        let volumes = spec["volumes"].as_array_mut().unwrap();
        volumes.push(json!({"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}));
        let mounts = spec["containers"][0]["volumeMounts"]
            .as_array_mut()
            .unwrap();
        mounts.push(json!({"name": "v", "mountPath": "/v"}));
        server.create_pod("greedy", spec);
        let pod = server.wait_for_phase("greedy", "Failed");
        assert_eq!(pod["status"]["reason"], "Evicted");
        day.crash();
        // The pod's wait for a new start would be over.
        create(server, &day, "other", FOREVER);
        wait_ready(server, "other");
        day.check_starts("greedy", 1);
        end(server, day);
    });
}

/// Pods of the API server end as a kubelet ends them, and static ones come back. A cordon is the scheduler's.
#[test]
fn a_shutdown_fails_the_pods_of_the_api_server_and_the_node_is_not_ready() {
    in_a_cluster(|server, mut day| {
        create(server, &day, "app", HEEDS_TERM);
        day.put("agent", day.pod("agent", FOREVER, json!({})));
        wait_ready(server, "app");
        day.wait_ready("agent");
        for verb in ["cordon", "drain", "uncordon"] {
            let said = day.says(&[verb]);
            let way_out =
                format!("the node belongs to a cluster; ask there: kubectl {verb} {NODE}");
            assert!(said.contains(&way_out), "{said}");
        }
        let said = day.says(&["drain", "--for-shutdown"]);
        assert!(said.ends_with("node/edge drained\n"), "{said}");
        let app = server.wait_for_pod("app", |pod| pod["status"]["phase"] == "Failed");
        assert_eq!(app["status"]["reason"], "Terminated");
        let message = "Pod was terminated in response to imminent node shutdown.";
        assert_eq!(app["status"]["message"], message);
        let disrupted = condition(&app, "DisruptionTarget");
        assert_eq!(
            (&disrupted["status"], &disrupted["reason"]),
            (&json!("True"), &json!("TerminationByKubelet"))
        );
        wait_until("the node to be not ready", || {
            let node = server.get("nodes", "", NODE).unwrap();
            let ready = condition(&node, "Ready");
            ready["status"] == "False" && ready["message"] == "node is shutting down"
        });
        day.cut_power();
        day.start();
        day.wait_ready("agent");
        wait_until("the node to be ready", || {
            is_ready(&server.get("nodes", "", NODE).unwrap())
        });
        day.check_starts("app", 1);
        end(server, day);
    });
}

#[test]
fn a_pod_over_its_deadline_fails_when_nothing_of_it_runs_any_more() {
    in_a_cluster(|server, day| {
        let mut spec = day.pod("late", FOREVER, json!({}))["spec"].clone();
        spec["activeDeadlineSeconds"] = 2.into();
        server.create_pod("late", spec);
        let pod = server.wait_for_phase("late", "Failed");
        assert_eq!(pod["status"]["reason"], "DeadlineExceeded");
        day.check_starts("late", 1);
        end(server, day);
    });
}

#[test]
fn a_deleted_pod_ends_with_the_phase_of_its_exit_codes() {
    in_a_cluster(|server, day| {
        for (name, code, phase) in [("good", 0, "Succeeded"), ("bad", 3, "Failed")] {
            let script = format!("trap 'exit {code}' TERM; while :; do sleep 0.05; done");
            create(server, &day, name, &script);
            wait_ready(server, name);
            server.delete_pod(name, 30);
            server.wait_until_gone(name);
            let versions = server.history("pods").into_iter();
            let mut versions = versions.filter(|pod| pod["metadata"]["name"] == name);
            let last = versions.next_back().unwrap();
            assert_eq!(last["status"]["phase"], phase);
            assert_eq!(last["status"]["reason"], Value::Null);
        }
        end(server, day);
    });
}

#[test]
fn a_pod_that_is_deleted_by_force_is_killed() {
    in_a_cluster(|server, day| {
        create(server, &day, "web", HEEDS_TERM);
        wait_ready(server, "web");
        let process = day.processes().into_values().next().unwrap();
        server.delete_pod("web", 0);
        wait_until("the process to be gone", || {
            day.processes().values().all(|p| *p != process)
        });
        assert_eq!(server.count("DELETE", "/pods/"), 0, "it is gone already");
        end(server, day);
    });
}

#[test]
fn a_verb_does_not_delete_what_the_api_server_wants() {
    in_a_cluster(|server, day| {
        create(server, &day, "web", HEEDS_TERM);
        wait_ready(server, "web");
        let said = day.says(&["delete", "pod", "web"]);
        assert!(said.contains("kubectl delete pod -n default web"), "{said}");
        end(server, day);
    });
}

#[test]
fn a_node_that_boots_without_the_link_starts_its_pods() {
    in_a_cluster(|server, mut day| {
        create(server, &day, "web", FOREVER);
        let mut once = day.pod("once", "true", json!({}))["spec"].clone();
        once["restartPolicy"] = "Never".into();
        server.create_pod("once", once);
        wait_ready(server, "web");
        let ended = server.wait_for_phase("once", "Succeeded");
        let uid = ended["metadata"]["uid"].as_str().unwrap();
        let record = day.node.layout.kept_pods().join(format!("{uid}.json"));
        wait_until("the end to be kept", || {
            fs::read_to_string(&record).unwrap().contains("Succeeded")
        });
        server.down();
        day.cut_power();
        day.start();
        day.check_starts("web", 2);
        server.up();
        server.wait_for_pod("web", |pod| {
            is_ready(pod) && pod["status"]["containerStatuses"][0]["restartCount"] == 1
        });
        day.check_starts("web", 2);
        day.check_starts("once", 1);
        end(server, day);
    });
}

/// Its disk was replaced, say.
#[test]
fn a_pod_that_has_ended_does_not_run_again_on_a_node_that_has_forgotten_it() {
    in_a_cluster(|server, mut day| {
        let mut spec = day.pod("once", "true", json!({}))["spec"].clone();
        spec["restartPolicy"] = "Never".into();
        server.create_pod("once", spec);
        let before = server.wait_for_phase("once", "Succeeded");
        day.cut_power();
        fs::remove_file(day.node.layout.checkpoint()).unwrap();
        fs::remove_dir_all(day.node.layout.kept_pods()).unwrap();
        day.start();
        create(server, &day, "other", FOREVER);
        wait_ready(server, "other");
        day.check_starts("once", 1);
        assert_eq!(server.pod("once").unwrap()["status"], before["status"]);
        end(server, day);
    });
}

/// Its controller makes another one, which the scheduler may bind to another node.
#[test]
fn a_pod_that_finds_no_room_fails_for_good() {
    in_a_cluster(|server, day| {
        wait_until("the node", || server.get("nodes", "", NODE).is_some());
        let node = server.get("nodes", "", NODE).unwrap();
        let all = node["status"]["allocatable"]["cpu"].clone();
        let greedy = |name: &str| {
            let resources = json!({"resources": {"requests": {"cpu": all}}});
            let pod = day.pod(name, HEEDS_TERM, resources);
            server.create_pod(name, pod["spec"].clone());
        };
        greedy("first");
        wait_ready(server, "first");
        greedy("second");
        let pod = server.wait_for_phase("second", "Failed");
        assert_eq!(pod["status"]["reason"], "OutOfcpu");
        server.edit_pod("second", |pod| {
            pod["metadata"]["labels"]["new"] = "yes".into()
        });
        server.delete_pod("first", 30);
        server.wait_until_gone("first");
        greedy("third");
        wait_ready(server, "third");
        assert_eq!(server.pod("second").unwrap()["status"]["phase"], "Failed");
        day.check_starts("second", 0);
        end(server, day);
    });
}

/// Gives the Node the label `disk` beside its own, as `kubectl label node` does.
pub(crate) fn label_node(server: &ApiServer, disk: &str) {
    wait_until("the node to be ready", || {
        server
            .get("nodes", "", NODE)
            .is_some_and(|node| is_ready(&node))
    });
    server.edit("nodes", "", NODE, |node| {
        node["metadata"]["labels"]["disk"] = disk.into();
    });
}

/// Waits until the node knows that its label `disk` is this one.
pub(crate) fn wait_for_label(day: &Day<'_>, disk: &str) {
    let record = day.node.layout.cluster().join("labels.json");
    wait_until("the node to hear of its label", || {
        let record = fs::read_to_string(&record).unwrap_or_default();
        record.contains(&format!("\"disk\":\"{disk}\""))
    });
}

/// Creates a pod of the API that wants the node to have this label.
fn create_for(server: &ApiServer, day: &Day<'_>, name: &str, disk: &str) {
    let mut spec = day.pod(name, FOREVER, json!({}))["spec"].clone();
    spec["nodeSelector"] = json!({"disk": disk});
    server.create_pod(name, spec);
}

/// They hold over a daemon that is killed and a boot without the link, and a pod that runs does not ask for them again.
#[test]
fn pods_are_admitted_by_the_labels_that_the_node_has_in_the_cluster() {
    in_a_cluster(|server, mut day| {
        label_node(server, "ssd");
        create_for(server, &day, "web", "ssd");
        wait_ready(server, "web");
        create_for(server, &day, "picky", "tape");
        let picky = server.wait_for_phase("picky", "Failed");
        assert_eq!(picky["status"]["reason"], "NodeAffinity");
        day.check_starts("web", 1);

        server.down();
        day.cut_power();
        // Nothing else says that the pod had its place.
        fs::remove_file(day.node.layout.checkpoint()).unwrap();
        day.start();
        day.check_starts("web", 2);
        server.up();
        wait_ready(server, "web");
        label_node(server, "hdd");
        wait_for_label(&day, "hdd");
        create_for(server, &day, "late", "ssd");
        server.wait_for_phase("late", "Failed");
        let process = day.process("web");
        day.crash();
        create(server, &day, "other", FOREVER);
        wait_ready(server, "other");
        assert_eq!(day.process("web"), process);
        wait_ready(server, "web");
        day.check_starts("web", 2);
        end(server, day);
    });
}

/// The scheduler knows a label before the node's watch brings it.
#[test]
fn a_new_pod_is_not_refused_for_a_label_that_the_node_has_not_heard_of() {
    in_a_cluster(|server, day| {
        create(server, &day, "first", FOREVER);
        wait_ready(server, "first");
        let watch = "/api/v1/nodes?";
        server.fail("GET", watch, 1000, Fault::Status(500, "no watch", None));
        server.cut();
        wait_until("the watch to be away", || server.count("GET", watch) > 1);
        label_node(server, "ssd");
        let one = "/api/v1/nodes/edge";
        server.fail("GET", one, 1, Fault::Status(500, "no etcd", None));
        create_for(server, &day, "web", "ssd");
        wait_ready(server, "web");
        assert!(server.count("GET", one) >= 2, "it was read");
        day.check_starts("web", 1);
        end(server, day);
    });
}

/// What files ask for follows the labels too, and does not need the daemon to start again.
#[test]
fn a_daemon_set_and_a_static_pod_come_with_a_label_of_the_node() {
    in_a_cluster(|server, mut day| {
        let wanting = |name: &str| {
            let mut pod = day.pod(name, HEEDS_TERM, json!({}));
            pod["spec"]["nodeSelector"] = json!({"disk": "ssd"});
            pod
        };
        day.put("static", wanting("static"));
        let template =
            json!({"metadata": {"labels": {"app": "agent"}}, "spec": wanting("agent")["spec"]});
        let set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"},
            "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": template}});
        day.put("agent", set);
        day.wait("the static pod to be refused", |s| {
            let pod = find(s, "static")?;
            (pod.status.reason == "NodeAffinity").then_some(())
        });
        label_node(server, "ssd");
        day.wait_ready("static");
        let agents = || {
            let names = day.processes().into_keys();
            names.filter(|name| name.starts_with("agent-")).count()
        };
        wait_until("the agent", || agents() == 1);

        label_node(server, "hdd");
        wait_until("the agent to go", || agents() == 0);
        let process = day.process("static");
        day.crash();
        create(server, &day, "other", FOREVER);
        wait_ready(server, "other");
        assert_eq!(day.process("static"), process);
        day.wait_ready("static");
        day.delete("static");
        day.delete("agent");
        day.wait_gone("static");
        end(server, day);
    });
}

#[test]
fn a_deployment_from_a_file_runs_on_and_its_pods_have_mirror_pods() {
    in_a_cluster(|server, day| {
        let template = day.pod("web", HEEDS_TERM, json!({}));
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {
                    "containers": template["spec"]["containers"], "volumes": template["spec"]["volumes"]}}}});
        day.put("web", deployment);
        let ready = || {
            server
                .all("pods")
                .iter()
                .filter(|pod| is_ready(pod))
                .count()
        };
        wait_until("both mirror pods to be ready", || ready() == 2);
        day.delete("web");
        wait_until("both mirror pods to be gone", || {
            server.all("pods").is_empty()
        });
        end(server, day);
    });
}
