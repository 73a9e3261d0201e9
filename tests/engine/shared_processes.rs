//! Pods whose containers share a process namespace, on each runtime. Needs root, runc and a static busybox.

use std::fs;
use std::time::Duration;

use podprobe::base::cancel::Cancel;
use podprobe::base::sys::cgroup::Cgroups;
use podprobe::engine::runtime::{ExecOutcome, RuntimeState};
use podprobe::engine::shims::RuntimeChoice;
use podprobe::engine::shims::state::{ContainerState, STATE, SandboxState};
use serde_json::json;

use crate::support;
use crate::support::{CEILING, Node, pod, sh, wait_until};

fn on_each(test: impl Fn(&Node)) {
    support::on(RuntimeChoice::Embedded, &test);
    support::on_runc(&test);
}

const LOOP: &str = "echo up; while :; do sleep 1; done";

/// Pids of the node of those whose arguments hold a text.
fn with_argument(text: &str) -> Vec<i32> {
    let pids = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse().ok());
    pids.filter(|p: &i32| {
        fs::read_to_string(format!("/proc/{p}/cmdline"))
            .is_ok_and(|c| c.split('\0').any(|w| w == text))
    })
    .collect()
}

#[test]
fn containers_see_one_another_and_die_alone() {
    on_each(|node| {
        let rt = node.runtime();
        // The second leaves a process in a session of its own, which nobody but its cgroup names.
        let long = support::own_seconds();
        let second = sh(
            "second",
            &format!("setsid sleep {long} & echo up; while :; do sleep 1; done"),
        );
        let pod = pod(
            "shared",
            json!({"shareProcessNamespace": true, "containers": [sh("first", LOOP), second]}),
        );
        let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
        let ids: Vec<_> = (0..2)
            .map(|n| {
                rt.start_container(&pod, &sandbox, &pod.spec.containers[n], 0)
                    .unwrap()
            })
            .collect();
        ids.iter().for_each(|id| node.wait_log(&rt, &pod, id, "up"));
        let say = |script: &str| match rt.exec(
            &ids[0],
            &["/bin/sh".into(), "-c".into(), script.into()],
            CEILING,
            4096,
            None,
        ) {
            Ok(ExecOutcome::Exited { output, .. }) => String::from_utf8_lossy(&output).into_owned(),
            other => panic!("{other:?}"),
        };
        wait_until("the process of the other container", || {
            say("cat /proc/[0-9]*/cmdline 2>/dev/null").contains(&long)
        });
        // Pid 1 is neither's, and nothing of the node can be reached through it.
        assert!(say("cat /proc/1/cmdline").starts_with("podprobe-pause"));
        let first = say("grep -E '^(Uid|CapEff|CapPrm|NoNewPrivs)' /proc/1/status");
        assert_eq!(
            first,
            "Uid:\t65535\t65535\t65535\t65535\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\n"
        );
        for file in ["root", "cwd", "exe", "fd/0"] {
            assert_eq!(
                say(&format!(
                    "ls /proc/1/{file}/ 2>/dev/null; readlink /proc/1/{file}"
                )),
                "",
                "{file}"
            );
        }
        assert_eq!(say("cat /proc/1/environ 2>/dev/null"), "");
        // What is orphaned inside is reaped by it.
        say("(setsid sh -c 'sleep 0.05' &)");
        wait_until("the orphan to be reaped", || {
            !say("grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null").contains("status")
        });
        // The end of one: what it left dies with it, and the other lives.
        rt.stop_container(&ids[1], Duration::ZERO, &Cancel::default())
            .unwrap();
        wait_until("what the container left to die", || {
            with_argument(&long).is_empty()
        });
        let status = rt.pod_status(pod.uid()).unwrap();
        assert_eq!(
            status.container("first").unwrap().state,
            RuntimeState::Running
        );
        assert!(status.container("second").unwrap().signal.is_some());
        // A restart finds the same namespace.
        let again = rt
            .start_container(&pod, &sandbox, &pod.spec.containers[1], 1)
            .unwrap();
        node.wait_log(&rt, &pod, &again, "up");
        let namespace = |id| {
            let process = node.record::<ContainerState>(id, STATE).process.unwrap();
            fs::read_link(format!("/proc/{}/ns/pid", process.pid)).unwrap()
        };
        assert_eq!(namespace(&again), namespace(&ids[0]));
        let namespace = namespace(&ids[0]);
        node.remove_pod(&rt, &pod);
        wait_until("its first process to end", || {
            let mut pids = fs::read_dir("/proc")
                .unwrap()
                .flatten()
                .map(|e| e.path().join("ns/pid"));
            !pids.any(|p| fs::read_link(p).is_ok_and(|n| n == namespace))
        });
    });
}

/// TERM reaches the container's first process, which is not pid 1 here, and a timeout only the command's own.
#[test]
fn signals_go_where_they_should() {
    on_each(|node| {
        let rt = node.runtime();
        let pod = pod(
            "signals",
            json!({"shareProcessNamespace": true, "containers": [sh("first", LOOP), sh("second", LOOP)]}),
        );
        let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
        let ids: Vec<_> = (0..2)
            .map(|n| {
                rt.start_container(&pod, &sandbox, &pod.spec.containers[n], 0)
                    .unwrap()
            })
            .collect();
        ids.iter().for_each(|id| node.wait_log(&rt, &pod, id, "up"));
        let long = support::own_seconds();
        let script = format!("trap '' TERM; setsid sleep {long} & sleep {long}");
        let command = ["/bin/sh", "-c", &script].map(str::to_owned);
        assert_eq!(
            rt.exec(&ids[0], &command, Duration::from_millis(300), 10, None),
            Ok(ExecOutcome::TimedOut { output: vec![] })
        );
        assert_eq!(with_argument(&long), [] as [i32; 0]);
        // Without a handler: only a pid 1 would ignore it.
        rt.stop_container(&ids[0], CEILING, &Cancel::default())
            .unwrap();
        let status = rt.pod_status(pod.uid()).unwrap();
        assert_eq!(status.container("first").unwrap().signal, Some(15));
        assert_eq!(
            status.container("second").unwrap().state,
            RuntimeState::Running
        );
        node.remove_pod(&rt, &pod);
    });
}

/// Signals of real time have no names, and end a process all the same.
#[test]
fn a_container_that_ends_by_a_signal_without_a_name_has_ended() {
    on_each(|node| {
        let rt = node.runtime();
        // An orphan that ends in the same way is reaped with it.
        // Two dollars are one in a command.
        let script = "sh -c 'kill -41 $$$$' & sleep 0.2; kill -40 $$$$";
        let pod = pod(
            "nameless",
            json!({"shareProcessNamespace": true, "containers": [sh("main", script)]}),
        );
        let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
        let id = rt
            .start_container(&pod, &sandbox, &pod.spec.containers[0], 0)
            .unwrap();
        let exit = node.wait_exit(&rt, &pod, &id);
        assert_eq!((exit.exit_code, exit.signal), (168, Some(40)));
        node.remove_pod(&rt, &pod);
    });
}

/// The holder and the pod's first process are one: neither outlives the other.
#[test]
fn the_first_process_and_the_sandbox_end_together() {
    on_each(|node| {
        for kill_first in [true, false] {
            let rt = node.runtime();
            let pod = pod(
                "together",
                json!({"shareProcessNamespace": true, "containers": [sh("main", LOOP)]}),
            );
            let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
            let id = rt
                .start_container(&pod, &sandbox, &pod.spec.containers[0], 0)
                .unwrap();
            let holder: SandboxState = podprobe::engine::shims::state::read(
                &node.layout.sandboxes().join(sandbox.as_str()),
                STATE,
            )
            .unwrap();
            let pid = holder.process.pid;
            let first = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
            let first =
                podprobe::engine::shims::state::Process::of(first.trim().parse().unwrap()).unwrap();
            support::kill9(if kill_first { first } else { holder.process });
            wait_until("both to end", || !first.alive() && !holder.process.alive());
            // And with them every container.
            assert_eq!(node.wait_exit(&rt, &pod, &id).exit_code, 137);
            assert!(!rt.pod_status(pod.uid()).unwrap().sandboxes[0].ready);
            node.remove_pod(&rt, &pod);
        }
    });
}

/// Where `/proc/PID/root` of a process leads, the hunter goes, and it reads the environment of each. It may trace whatever it
/// sees.
#[test]
fn no_process_with_the_node_s_root_is_ever_seen_by_a_container() {
    support::on(RuntimeChoice::Embedded, |node| {
        let rt = node.runtime();
        let marker = node.dir.path().join("of-the-node");
        fs::write(&marker, "").unwrap();
        let hunt = format!(
            "echo up; while :; do for p in /proc/[0-9]*; do [ -e $p/root{} ] && echo $p >>/tmp/found; \
             [ -e $p/cwd/etc/fstab ] && echo $p cwd >>/tmp/found; done; \
             grep -l CARGO_MANIFEST_DIR /proc/[0-9]*/environ >>/tmp/found 2>/dev/null; done",
            marker.display()
        );
        let mut hunter = sh("hunter", &hunt);
        hunter["securityContext"] = json!({"capabilities": {"add": ["SYS_PTRACE"]}});
        let pod = pod(
            "hunted",
            json!({"shareProcessNamespace": true, "containers": [hunter, sh("sibling", LOOP)]}),
        );
        let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
        let start = |n: usize, attempt| {
            rt.start_container(&pod, &sandbox, &pod.spec.containers[n], attempt)
                .unwrap()
        };
        let hunter = start(0, 0);
        node.wait_log(&rt, &pod, &hunter, "up");
        let say = |script: &str| match rt.exec(
            &hunter,
            &["/bin/sh".into(), "-c".into(), script.into()],
            CEILING,
            4096,
            None,
        ) {
            Ok(ExecOutcome::Exited { output, .. }) => String::from_utf8_lossy(&output).into_owned(),
            other => panic!("{other:?}"),
        };
        // What starts the pods has it.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        // It can look into its own pod.
        assert_eq!(say("ls /proc/1/root/ && echo looked"), "looked\n");
        for attempt in 0..20 {
            let sibling = start(1, attempt);
            node.wait_log(&rt, &pod, &sibling, "up");
            rt.stop_container(&sibling, Duration::ZERO, &Cancel::default())
                .unwrap();
        }
        assert_eq!(say("cat /tmp/found 2>/dev/null"), "");
        node.remove_pod(&rt, &pod);
    });
}

/// What enters has all dropped before, also the calls that its profile forbids: one that forbids clone keeps it outside.
#[test]
fn the_first_process_of_a_container_enters_the_namespace_of_its_pod_under_its_filter() {
    support::on(RuntimeChoice::Embedded, |node| {
        let rt = node.runtime();
        let profile = json!({
            "defaultAction": "SCMP_ACT_ALLOW",
            "syscalls": [{"names": ["clone"], "action": "SCMP_ACT_ERRNO"}],
        });
        fs::create_dir_all(node.layout.seccomp()).unwrap();
        fs::write(
            node.layout.seccomp().join("no-clone.json"),
            profile.to_string(),
        )
        .unwrap();
        let mut filtered = sh("main", LOOP);
        filtered["securityContext"] =
            json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "no-clone.json"}});
        let pod = pod(
            "filtered",
            json!({"shareProcessNamespace": true, "containers": [filtered]}),
        );
        let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
        let e = rt
            .start_container(&pod, &sandbox, &pod.spec.containers[0], 0)
            .unwrap_err();
        let why = "start a process in its process namespace (its seccomp profile must allow clone)";
        assert!(e.message.contains(why), "{e}");
        node.remove_pod(&rt, &pod);
    });
}

/// A container that may trace it can have it do what it likes, so it has what a container has.
#[test]
fn the_first_process_of_a_pod_stands_in_the_pod_s_cgroup_and_under_a_filter() {
    on_each(|node| {
        let rt = node.runtime();
        let pod = pod(
            "paused",
            json!({"shareProcessNamespace": true, "containers": [sh("main", LOOP)]}),
        );
        let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
        let holder: SandboxState = podprobe::engine::shims::state::read(
            &node.layout.sandboxes().join(sandbox.as_str()),
            STATE,
        )
        .unwrap();
        let pid = holder.process.pid;
        let first = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let of_first =
            |file: &str| fs::read_to_string(format!("/proc/{}/{file}", first.trim())).unwrap();
        assert!(
            of_first("status").contains("\nSeccomp:\t2\n"),
            "{}",
            of_first("status")
        );
        let cgroups = of_first("cgroup");
        for controller in ["memory", "pids"] {
            let mut lines = cgroups.lines();
            let line =
                lines.find(|l| l.contains(&format!(":{controller}:")) || l.starts_with("0::"));
            assert!(line.unwrap().ends_with("/uid-paused/pause"), "{cgroups}");
        }
        let dirs = Cgroups::detect()
            .unwrap()
            .dirs(&format!("{}/pause", node.layout.pod_cgroup(pod.uid())));
        let limit = |file: &str| {
            dirs.iter()
                .find_map(|d| fs::read_to_string(d.join(file)).ok())
        };
        let memory = limit("memory.max").or_else(|| limit("memory.limit_in_bytes"));
        assert_eq!(memory.as_deref(), Some("8388608\n"));
        assert_eq!(limit("pids.max").as_deref(), Some("1\n"));
        node.remove_pod(&rt, &pod);
    });
}
