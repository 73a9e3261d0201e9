//! What a container may do with devices on a node whose only cgroups are of version 2, and that a command in it has the rights
//! of its first process, there and here. Needs root and a static busybox; runc for one test.

use std::fs;

use nix::libc;
use podprobe::engine::shims::RuntimeChoice;
use serde_json::{Value, json};

use crate::support;
use crate::support::daemon::{Day, FOREVER};
use crate::support::forbidding::forbidding;
use crate::support::{Node, with_v2_alone};

fn on_pure_v2(test: impl Fn(&Node) + Send + Sync) {
    support::on(RuntimeChoice::Embedded, |node| with_v2_alone(|| test(node)));
}

/// Has a device node that it made itself opened, and those that every container has.
const TRY_DEVICES: &str = "mknod /dev/own b 7 250 && mknod /tmp/log c 1 11 && mknod /dev/log c 1 11; \
    for d in /dev/own /tmp/log /dev/log /dev/null /dev/zero /dev/urandom; do \
    (: <$d) 2>/tmp/why && echo $d opened || echo $d $(sed 's/.*: //' /tmp/why); done; rm -f /dev/own /tmp/log /dev/log";

/// The root is mounted without devices, which says something else than the filter.
const REFUSED: &str = "/dev/own Operation not permitted\n/tmp/log Permission denied\n\
    /dev/log Operation not permitted\n/dev/null opened\n/dev/zero opened\n/dev/urandom opened\n";

fn exec(day: &Day<'_>, pod: &str, script: &str) -> String {
    day.says(&["exec", pod, "--", "/bin/sh", "-c", script])
}

fn logs(day: &Day<'_>, pod: &str) -> String {
    day.says(&["logs", pod])
}

/// A container and a command in it make nodes, as under containerd, and open none but their own.
#[test]
fn neither_a_container_nor_a_command_in_it_opens_a_device_of_the_node() {
    on_pure_v2(|node| {
        let day = Day::begin(node);
        let script = format!("{TRY_DEVICES}; echo done; {FOREVER}");
        day.put("try", day.pod("try", &script, json!({})));
        day.wait_ready("try");
        support::wait_until("the script to be done", || {
            logs(&day, "try").contains("done")
        });
        assert_eq!(logs(&day, "try"), format!("{REFUSED}done\n"));
        assert_eq!(exec(&day, "try", TRY_DEVICES), REFUSED);
        day.end();
    });
}

/// Devices of the node as volumes, at their own place and below /dev.
#[test]
fn a_device_that_is_mounted_into_a_container_is_for_a_privileged_one() {
    on_pure_v2(|node| {
        let day = Day::begin(node);
        let script = "for d in /log /devices/kmsg /devices/null; do \
            (: <$d) 2>/tmp/why && echo $d opened || echo $d $(sed 's/.*: //' /tmp/why); done";
        // Without the capability the kernel's log is refused by itself.
        let plain = json!({"capabilities": {"add": ["SYSLOG"]}});
        let privileged = json!({"privileged": true});
        for (name, context, of_node) in [
            ("plain", plain, "Operation not permitted"),
            ("privileged", privileged, "opened"),
        ] {
            let mut pod = day.pod(name, FOREVER, json!({"securityContext": context}));
            let spec = &mut pod["spec"];
            let volumes = spec["volumes"].as_array_mut().unwrap();
            volumes.push(
                json!({"name": "log", "hostPath": {"path": "/dev/kmsg", "type": "CharDevice"}}),
            );
            volumes.push(json!({"name": "devices", "hostPath": {"path": "/dev"}}));
            let mounts = spec["containers"][0]["volumeMounts"]
                .as_array_mut()
                .unwrap();
            mounts.push(json!({"name": "log", "mountPath": "/log"}));
            mounts.push(json!({"name": "devices", "mountPath": "/devices"}));
            day.put(name, pod);
            day.wait_ready(name);
            assert_eq!(
                exec(&day, name, script),
                format!("/log {of_node}\n/devices/kmsg {of_node}\n/devices/null opened\n")
            );
        }
        day.end();
    });
}

/// Has bpf(2) fail in the calling thread and in what it starts, for good, as it does in many containers.
fn forbid_bpf() {
    let filter = forbidding(libc::SYS_bpf, libc::EPERM);
    podprobe::base::sys::process::apply_seccomp(&filter, 0).unwrap();
}

#[test]
fn where_devices_cannot_be_filtered_only_privileged_containers_run_unless_the_node_says_so() {
    on_pure_v2(|node| {
        forbid_bpf();
        let mut day = Day::begin(node);
        for (name, privileged) in [("plain", false), ("privileged", true)] {
            let context = json!({"securityContext": {"privileged": privileged}});
            day.put(name, day.pod(name, FOREVER, context));
        }
        day.wait_ready("privileged");
        let said = day.wait_event("plain", "Failed");
        let why = "cannot filter the container's devices: Operation not permitted";
        assert!(said.contains(why), "{said}");
        assert_eq!(day.starts("plain"), [] as [&str; 0]);
        day.kill9();
        let file = node.layout.config_file();
        let mut config: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        config["allowUnfilteredDevices"] = json!(true);
        fs::write(&file, config.to_string()).unwrap();
        day.start();
        day.wait_ready("plain");
        day.end();
    });
}

/// What a process can tell of its rights, but what differs by nature: a command has a cgroup of its own below the
/// container's.
const RIGHTS: &str = "grep -E '^(Uid|Gid|Groups|Cap|NoNewPrivs|Seccomp:|Seccomp_filters)' /proc/self/status; \
    cat /proc/self/limits; umask; cat /proc/self/attr/current 2>/dev/null; cat /proc/self/oom_score_adj; \
    cut -d' ' -f19 /proc/self/stat; cat /proc/self/mountinfo; for n in /proc/self/ns/*; do readlink $n; done";

fn a_command_has_the_rights_of_the_first_process(node: &Node) {
    let day = Day::begin(node);
    let restricted = json!({
        "runAsUser": 1000, "runAsGroup": 2000, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
    });
    let contexts: [(&str, Value); 4] = [
        ("default", json!({})),
        (
            "filtered",
            json!({"seccompProfile": {"type": "RuntimeDefault"}, "capabilities": {"add": ["SYS_PTRACE"]}}),
        ),
        ("restricted", restricted),
        ("privileged", json!({"privileged": true})),
    ];
    for (name, context) in contexts {
        let script = format!("{{ {RIGHTS}; }} 2>&1; echo done; {FOREVER}");
        let mut pod = day.pod(name, &script, json!({"securityContext": context}));
        // It notes no start: its root may be read-only.
        let command = json!(["/bin/sh", "-c", script]);
        pod["spec"]["containers"][0]["command"] = command;
        day.put(name, pod);
        day.wait_ready(name);
        support::wait_until("the script to be done", || {
            logs(&day, name).ends_with("done\n")
        });
        let first = logs(&day, name).replace("done\n", "");
        let command = exec(&day, name, &format!("{{ {RIGHTS}; }} 2>&1"));
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let (command, first_lines) = (lines(&command), lines(&first));
        let differ: Vec<_> = first_lines
            .iter()
            .zip(&command)
            .filter(|(a, b)| a != b)
            .collect();
        assert!(differ.is_empty(), "{name}: {differ:#?}");
        assert_eq!(first_lines.len(), command.len(), "{name}: {command:#?}");
        assert!(
            first.contains("CapBnd") && first.contains(" /proc "),
            "{first}"
        );
    }
    day.end();
}

#[test]
fn on_v2_a_command_has_the_rights_of_the_first_process() {
    on_pure_v2(a_command_has_the_rights_of_the_first_process);
}

#[test]
fn a_command_has_the_rights_of_the_first_process_here_and_on_runc() {
    support::on(
        RuntimeChoice::Embedded,
        a_command_has_the_rights_of_the_first_process,
    );
    support::on_runc(a_command_has_the_rights_of_the_first_process);
}
