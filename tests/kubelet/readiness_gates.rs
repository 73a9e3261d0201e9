//! Readiness gates on a real daemon, and the verb that sets their conditions (kubelet-probes 9.4).

use std::fs;

use podprobe::api::PodCondition;
use podprobe::api::conditions::{ConditionChange, ConditionStatus};
use podprobe::cli::client::Client;
use podprobe::engine::shims::RuntimeChoice;
use serde_json::{Value, json};

use crate::support;
use crate::support::daemon::{Day, FOREVER, NODE, find};

const GATE: &str = "example.com/registered";

/// Its containers are ready as soon as they run, and its file gives it a UID.
fn gated(day: &Day) -> Value {
    let mut pod = day.pod("web", FOREVER, json!({}));
    pod["metadata"]["uid"] = "uid-web".into();
    pod["spec"]["readinessGates"] = json!([{"conditionType": GATE}]);
    pod
}

/// The condition as it is at this moment.
#[track_caller]
fn condition(day: &Day, type_: &str) -> Option<PodCondition> {
    let snapshot = day.snapshot().expect("the daemon answers");
    let pod = find(&snapshot, "web").expect("the pod is there");
    pod.status.condition(type_).cloned()
}

/// Status and message of Ready.
fn ready(day: &Day) -> (String, String) {
    let ready = condition(day, "Ready").expect("the pod has a status");
    (ready.status, ready.message)
}

#[track_caller]
fn wait_until_only_gates_are_closed(day: &Day) {
    day.wait("only the gates to be closed", |s| {
        let status = &find(s, "web")?.status;
        let containers = status.condition("ContainersReady")?.status == "True";
        let gates = status.condition("Ready")?.reason == "ReadinessGatesNotReady";
        (containers && gates).then_some(())
    });
}

/// What `condition` says on stdout; nothing on stderr.
#[track_caller]
fn set(day: &Day, change: &str) -> String {
    let output = day.client(&["condition", "web", change]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""));
    String::from_utf8(output.stdout).unwrap()
}

fn closed(why: &str) -> (String, String) {
    ("False".into(), why.into())
}

fn open() -> (String, String) {
    ("True".into(), String::new())
}

#[test]
fn a_gate_is_opened_by_the_verb_and_stays_as_it_was_set_when_the_daemon_is_killed() {
    support::on(RuntimeChoice::Embedded, |node| {
        let mut day = Day::begin(node);
        day.put("web", gated(&day));
        wait_until_only_gates_are_closed(&day);
        let missing =
            format!("corresponding condition of pod readiness gate \"{GATE}\" does not exist.");
        assert_eq!(ready(&day), closed(&missing));
        let process = day.process("web");

        let said = set(&day, &format!("{GATE}=True"));
        assert_eq!(said, format!("web-{NODE}: {GATE} is True\n"));
        assert_eq!(ready(&day), open());
        let before = condition(&day, GATE);
        day.crash();
        day.wait_ready("web");
        assert_eq!(condition(&day, GATE), before, "with its time");

        set(&day, &format!("{GATE}=False"));
        day.kill9();
        day.start();
        let not_true =
            format!("the status of pod readiness gate \"{GATE}\" is not \"True\", but False");
        wait_until_only_gates_are_closed(&day);
        assert_eq!(ready(&day), closed(&not_true));
        assert_eq!(day.process("web"), process, "no container was touched");

        let described = day.says(&["describe", "pod", "web"]);
        let table =
            format!("Readiness Gates:\n  Type                    Status\n  {GATE}  False\n");
        assert!(described.contains(&table), "{described}");
        let wide = day.says(&["get", "pods", "-o", "wide"]);
        assert!(wide.contains("   0/1   "), "{wide}");

        set(&day, &format!("{GATE}=True"));
        assert_eq!(
            set(&day, &format!("{GATE}-")),
            format!("web-{NODE}: {GATE} removed\n")
        );
        assert_eq!(ready(&day), closed(&missing));
        day.end();
    });
}

#[test]
fn a_condition_outlives_containers_and_goes_with_its_pod() {
    support::on(RuntimeChoice::Embedded, |node| {
        let day = Day::begin(node);
        day.put("web", gated(&day));
        wait_until_only_gates_are_closed(&day);
        set(&day, &format!("{GATE}=True"));
        let before = condition(&day, GATE);
        support::kill9(day.process("web"));
        day.wait("the container to be started again", |s| {
            let status = &find(s, "web")?.status;
            let restarts = status.container_statuses.first()?.restart_count;
            (restarts == 1 && status.is_ready()).then_some(())
        });
        assert_eq!(condition(&day, GATE), before);

        // the same UID, but another pod
        day.delete("web");
        day.wait_gone("web");
        day.put("web", gated(&day));
        wait_until_only_gates_are_closed(&day);
        assert_eq!(condition(&day, GATE), None);
        day.end();
    });
}

#[test]
fn a_condition_that_no_gate_names_changes_nothing_and_podprobe_s_own_are_refused() {
    support::on(RuntimeChoice::Embedded, |node| {
        let day = Day::begin(node);
        day.put("web", gated(&day));
        wait_until_only_gates_are_closed(&day);
        let before = ready(&day);
        let said = day.says(&["condition", "web", "example.com/registerd=True"]);
        let note = format!(
            "note: no readiness gate of web-{NODE} names example.com/registerd, did you mean '{GATE}'?\n"
        );
        assert!(said.contains(&note), "{said}");
        assert_eq!(ready(&day), before);
        let stray = condition(&day, "example.com/registerd").unwrap();
        assert_eq!(stray.status, "True");

        // the daemon does not rely on its clients
        let change = ConditionChange {
            type_: "Ready".into(),
            status: Some(ConditionStatus::True),
            reason: String::new(),
            message: String::new(),
        };
        let mut client = Client::connect(node.layout.root()).unwrap();
        let refused = client.set_condition("uid-web".into(), change).unwrap_err();
        let refused = refused.to_string();
        assert!(
            refused.contains("condition Ready is set by podprobe alone; "),
            "{refused}"
        );
        assert_eq!(ready(&day), before);
        day.end();
    });
}

#[test]
fn a_disk_that_takes_nothing_is_said_and_the_condition_holds_meanwhile() {
    support::on(RuntimeChoice::Embedded, |node| {
        let mut day = Day::begin(node);
        day.put("web", gated(&day));
        wait_until_only_gates_are_closed(&day);
        // in the way of the file that is to become the checkpoint
        let mut obstacle = node.layout.checkpoint().into_os_string();
        obstacle.push(".tmp");
        support::wait_until("the obstacle", || fs::create_dir(&obstacle).is_ok());
        let set_true = format!("{GATE}=True");
        let output = day.client(&["condition", "web", &set_true]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        let start = format!(
            "warning: cannot write {}: ",
            node.layout.checkpoint().display()
        );
        assert!(stderr.starts_with(&start), "{stderr}");
        assert!(
            stderr.ends_with("; this holds until the daemon ends\n"),
            "{stderr}"
        );
        assert_eq!((output.status.code(), ready(&day)), (Some(0), open()));

        fs::remove_dir(&obstacle).unwrap();
        let said = set(&day, &set_true);
        assert_eq!(said, format!("web-{NODE}: {GATE} was True already\n"));
        day.crash();
        day.wait_ready("web");
        day.end();
    });
}
