//! A new configuration for the real daemon while its pods run.

use std::fs;
use std::path::PathBuf;

use podprobe::api::PodPhase;
use podprobe::engine::shims::RuntimeChoice;
use podprobe::engine::shims::state::{self, CONTAINER, ContainerRecord, ContainerState, STATE};
use serde_json::{Value, json};

use crate::support::daemon::{Day, FOREVER, find};
use crate::support::{Node, on};

/// What a command hears while `enableDebuggingHandlers` is false.
const CLOSED: &str = "podprobe refused the request: Debug endpoints are disabled.\n";

/// Writes the configuration of the node.
pub(crate) fn configure(node: &Node, more: &Value) {
    let mut all = json!({"healthzBindAddress": "", "healthzPort": 0});
    let more = more.as_object().unwrap().clone();
    all.as_object_mut().unwrap().extend(more);
    let file = node.layout.config_file();
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, all.to_string()).unwrap();
}

/// Lets the daemon read its configuration, and returns the lines after the first.
fn reload(day: &Day) -> Vec<String> {
    let said = day.says(&["config", "reload"]);
    let mut lines = said.lines().map(str::to_owned);
    let file = day.node.layout.config_file();
    let first = lines.next().unwrap();
    assert!(
        first.starts_with(&format!("{}: ", file.display())),
        "{said}"
    );
    lines.collect()
}

/// Runs a command in a pod, and returns what it has written or why it does not run.
fn exec(day: &Day) -> String {
    day.says(&["exec", "first", "--", "/bin/sh", "-c", "echo it runs"])
}

/// Returns the size at which the log of a container that runs is rotated.
fn log_size(day: &Day, name: &str) -> u64 {
    let process = Some(day.process(name));
    let dirs = fs::read_dir(day.node.layout.containers()).unwrap();
    let mut dirs = dirs.flatten().map(|entry| entry.path());
    let is_it = |dir: &PathBuf| {
        let state = state::read::<ContainerState>(dir, STATE);
        state.is_some_and(|state| state.process == process)
    };
    let record: ContainerRecord = state::read(&dirs.find(is_it).unwrap(), CONTAINER).unwrap();
    record.log_max_size
}

#[test]
fn what_begins_after_a_new_configuration_follows_it() {
    on(RuntimeChoice::Embedded, |node| {
        configure(node, &json!({}));
        let day = Day::begin(node);
        day.put("first", day.pod("first", FOREVER, json!({})));
        day.wait_ready("first");
        configure(
            node,
            &json!({"containerLogMaxSize": "1Mi", "registries": {"pull": false}}),
        );
        assert_eq!(
            reload(&day),
            [
                "containerLogMaxSize: \"10Mi\" -> \"1Mi\", in force",
                "registries: {} -> {\"pull\":false}, in force",
            ]
        );
        day.put("second", day.pod("second", FOREVER, json!({})));
        day.wait_ready("second");
        assert_eq!(
            (log_size(&day, "first"), log_size(&day, "second")),
            (10 << 20, 1 << 20)
        );
        let missing = json!({"image": "127.0.0.1:1/none:1", "imagePullPolicy": "IfNotPresent"});
        day.put("third", day.pod("third", FOREVER, missing));
        day.wait("the pod that nothing is pulled for", |s| {
            let status = find(s, "third")?.status.container_statuses.first()?.clone();
            (status.state.waiting?.reason == "ErrImageNeverPull").then_some(())
        });
        day.end();
    });
}

#[test]
fn a_new_configuration_is_in_force_at_once_or_named() {
    on(RuntimeChoice::Embedded, |node| {
        configure(node, &json!({"maxPods": 1}));
        let day = Day::begin(node);
        day.put("first", day.pod("first", FOREVER, json!({})));
        day.wait_ready("first");
        let first = day.process("first");
        day.put("second", day.pod("second", FOREVER, json!({})));
        day.wait("the node to be full", |s| {
            let status = &find(s, "second")?.status;
            (status.reason == "OutOfpods" && status.phase == PodPhase::Failed).then_some(())
        });
        assert!(reload(&day).is_empty());
        assert_eq!(exec(&day), "it runs\n");

        configure(
            node,
            &json!({"maxPods": 2, "enableDebuggingHandlers": false, "serviceCIDR": "10.97.0.0/16"}),
        );
        assert_eq!(
            reload(&day),
            [
                "serviceCIDR: \"10.96.0.0/16\" -> \"10.97.0.0/16\", after a restart",
                "enableDebuggingHandlers: true -> false, in force",
                "maxPods: 1 -> 2, in force",
            ]
        );
        day.wait_ready("second");
        assert_eq!(day.process("first"), first);
        assert_eq!(exec(&day), CLOSED);

        // A file that cannot be used changes nothing.
        configure(
            node,
            &json!({"maxPods": 0, "enableDebuggingHandlers": true}),
        );
        let refused = day.client(&["config", "reload"]);
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(78), "{said}");
        for part in ["maxPods", "the configuration that is in force stays"] {
            assert!(said.contains(part), "{said}");
        }
        let metrics = day.says(&["metrics"]);
        let max_pods =
            "kube_node_status_capacity{node=\"edge\",resource=\"pods\",unit=\"integer\"} 2";
        assert!(metrics.contains(max_pods), "{metrics}");
        assert!(
            !day.client(&["exec", "first", "--", "true"])
                .status
                .success()
        );

        configure(node, &json!({"maxPods": 2}));
        assert_eq!(
            reload(&day),
            ["enableDebuggingHandlers: false -> true, in force"]
        );
        assert_eq!(exec(&day), "it runs\n");
        assert_eq!(day.process("first"), first);
        day.end();
    });
}
