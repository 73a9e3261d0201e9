//! Days in the life of the real binary: pods come, change, break and go while the daemon is killed,
//! stopped and started. The first process of a container (pid and start time) shows that it was not
//! restarted; its own output at each start shows that it was started exactly once.

use std::collections::HashSet;
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use podprobe::api::PodUid;
use podprobe::base::sys::cgroup;
use podprobe::base::sys::mountinfo;
use podprobe::face::views::Snapshot;
use serde_json::{Value, json};

use crate::support;
use crate::support::Node;
use crate::support::daemon::{Day, FOREVER, NODE, Watcher, find};
use crate::support::on_both;
use crate::support::oom_score::{lowest_oom_score, oom_score};

/// What does not depend on the OCI runtime.
macro_rules! on_one {
    ($($name:ident),* $(,)?) => { $(#[test] fn $name() { support::on(podprobe::engine::shims::RuntimeChoice::Embedded, tests::$name) })* };
}

on_both![
    a_scripted_day,
    a_daemon_killed_at_once_after_each_change,
    readiness_and_restart_counts_survive_a_daemon,
    a_killed_shim_costs_its_own_container_only,
    what_ends_the_daemon_s_cgroup_ends_no_pod,
    run_is_cleared_away_under_the_daemon,
];

on_one![
    sigterm_ends_the_daemon_and_no_container,
    one_daemon_a_root_and_roots_do_not_meet,
    liveness_failures_restart_with_back_off,
    failures_in_a_row_count_on_when_daemons_are_killed,
    readiness_leaves_and_returns,
    a_job_completes_and_its_log_stays,
    the_data_of_a_job_that_completed_before_a_reboot_goes_with_its_file,
    a_missing_image_is_said_and_its_import_is_enough,
    pods_that_cannot_start_say_why_and_harm_no_other,
    bad_files_say_why_and_harm_no_pod,
    what_is_over_is_no_warning,
    a_killed_shim_is_said_once,
    a_read_only_var_keeps_no_daemon_from_its_containers,
    without_a_process_left_no_pod_is_lost,
    a_renamed_pod_starts_on_a_full_node_also_under_the_next_daemon,
];

/// Ready while a file exists.
fn gate(file: &str) -> Value {
    json!({"readinessProbe": {"exec": {"command": ["/bin/cat", file]}, "periodSeconds": 1, "failureThreshold": 1}})
}

/// Ready once it has noted its start.
fn steady(day: &Day, name: &str) -> Value {
    day.pod(name, FOREVER, gate("/tmp/noted"))
}

pub(crate) fn restarts(snapshot: &Snapshot, name: &str) -> Option<u32> {
    Some(
        find(snapshot, name)?
            .status
            .container_statuses
            .first()?
            .restart_count,
    )
}

/// The pod as v2: another environment is another container.
fn edited(day: &Day, name: &str, version: &str) -> Value {
    let mut pod = steady(day, name);
    pod["spec"]["containers"][0]["env"] = json!([{"name": "VERSION", "value": version}]);
    pod
}

fn version(day: &Day, name: &str) -> String {
    let environ =
        fs::read_to_string(format!("/proc/{}/environ", day.process(name).pid)).unwrap_or_default();
    environ
        .split('\0')
        .find_map(|e| e.strip_prefix("VERSION="))
        .unwrap_or("none")
        .to_owned()
}

/// Waits until the subject runs that version, and a kill of the daemon changes nothing of any container.
#[track_caller]
fn settle(day: &mut Day, wanted: &str, starts: usize) {
    day.wait(&format!("version {wanted} to be ready"), |s| {
        let pod = find(s, "subject").filter(|p| p.status.is_ready() && !p.terminating)?;
        let env = &pod.object["spec"]["containers"][0]["env"][0]["value"];
        (env.as_str().unwrap_or("none") == wanted).then_some(())
    });
    let before = day.processes();
    day.crash();
    day.wait_ready("subject");
    day.wait_ready("bystander");
    assert_eq!(day.processes(), before, "{}", day.log());
    day.check_starts("subject", starts);
    assert_eq!(version(day, "subject"), wanted, "{}", day.log());
    day.check_starts("bystander", 1);
}

fn a_scripted_day(node: &Node) {
    let mut day = Day::begin(node);
    day.put("bystander", steady(&day, "bystander"));
    day.put("subject", steady(&day, "subject"));
    day.wait_ready("bystander");
    // The kernel kills a pod before the daemon and what it runs.
    let scores = [day.pid(), day.shim("bystander").pid].map(oom_score);
    assert_eq!(scores, [lowest_oom_score(); 2]);
    let bystander = day.process("bystander");
    settle(&mut day, "none", 1);

    day.put("subject", edited(&day, "subject", "2"));
    settle(&mut day, "2", 2);

    day.put(
        "subject",
        "{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {",
    );
    let why = day.wait("the broken file to be said", |s| {
        find(s, "subject")?.file_error.clone()
    });
    assert!(why.contains("subject.json:1:49: not JSON"), "{why}");
    settle(&mut day, "2", 2);
    day.wait("it to be said also after a restart", |s| {
        find(s, "subject")?.file_error.clone()
    });
    assert!(
        day.says(&["describe", "pod", "subject"]).contains(&why),
        "{}",
        day.says(&["describe", "pod", "subject"])
    );

    day.put("subject", edited(&day, "subject", "2"));
    day.wait("the mended file to be taken", |s| {
        find(s, "subject")
            .filter(|p| p.file_error.is_none())
            .map(drop)
    });
    settle(&mut day, "2", 2);

    day.put("subject", edited(&day, "subject", "3"));
    settle(&mut day, "3", 3);

    day.delete("subject");
    day.wait_gone("subject");
    assert_eq!(
        day.processes().into_iter().collect::<Vec<_>>(),
        [("bystander".to_owned(), bystander)]
    );
    day.crash();
    day.wait_ready("bystander");
    assert_eq!(
        (day.process("bystander"), day.processes().len()),
        (bystander, 1)
    );
    assert_eq!(
        (day.starts("bystander").len(), day.starts("subject").len()),
        (1, 3)
    );
    day.end();
}

fn a_daemon_killed_at_once_after_each_change(node: &Node) {
    let mut day = Day::begin(node);
    day.put("bystander", steady(&day, "bystander"));
    day.wait_ready("bystander");
    let bystander = day.process("bystander");
    // what a daemon leaves that is killed between the last record of a pod and its last directory
    let left = [
        node.layout.pod_data(&"half-removed".into()).join("volumes"),
        node.layout
            .logs_dir()
            .join("default_gone-edge_half-removed/c"),
    ];
    left.iter().for_each(|dir| fs::create_dir_all(dir).unwrap());
    // at no delay, and while the change is being carried out
    for (i, delay) in [0, 40, 100].into_iter().enumerate() {
        let kill_after_a_moment = |day: &mut Day| {
            std::thread::sleep(Duration::from_millis(delay));
            day.crash();
        };
        day.put("subject", edited(&day, "subject", "1"));
        kill_after_a_moment(&mut day);
        settle(&mut day, "1", 3 * i + 1);
        day.put("subject", edited(&day, "subject", "2"));
        kill_after_a_moment(&mut day);
        settle(&mut day, "2", 3 * i + 2);
        day.put("subject", edited(&day, "subject", "3"));
        settle(&mut day, "3", 3 * i + 3);
        day.delete("subject");
        kill_after_a_moment(&mut day);
        day.wait_gone("subject");
        support::wait_until("its container to be gone", || day.processes().len() == 1);
        assert_eq!(day.process("bystander"), bystander);
    }
    let pod_data = left[0].parent().unwrap();
    support::wait_until("what is left of a removed pod to go", || {
        !pod_data.exists() && !left[1].parent().unwrap().exists()
    });
    day.end();
}

fn readiness_and_restart_counts_survive_a_daemon(node: &Node) {
    let mut day = Day::begin(node);
    // ends once with an error, then runs
    let twice = format!("[ $(wc -l </starts/twice) -ge 2 ] || exit 3\n{FOREVER}");
    day.put("twice", day.pod("twice", &twice, gate("/etc/passwd")));
    day.put("unready", day.pod("unready", FOREVER, gate("/tmp/no")));
    day.put("plain", day.pod("plain", FOREVER, json!({})));
    day.wait_event("unready", "Unhealthy");
    day.wait("the restart", |s| {
        (restarts(s, "twice") == Some(1)).then_some(())
    });
    ["twice", "plain"]
        .into_iter()
        .for_each(|p| day.wait_ready(p));
    let before = day.processes();
    // the checkpoint is written within two seconds of a change
    support::wait_until("the checkpoint to hold it", || {
        let text = fs::read_to_string(day.node.layout.checkpoint()).unwrap_or_default();
        text.contains("\"restartCount\":1")
            && text
                .matches("\"type\":\"Ready\",\"status\":\"True\"")
                .count()
                == 2
    });
    for _ in 0..3 {
        let watcher = Watcher::spawn(&day);
        day.crash();
        let events = day.wait_event("unready", "Unhealthy");
        assert!(events.contains("Readiness"), "{events}");
        for snapshot in watcher.seen() {
            for pod in &snapshot.pods {
                let name = pod.object["metadata"]["name"].as_str().unwrap();
                let expected = !name.starts_with("unready");
                assert_eq!(
                    pod.status.is_ready(),
                    expected,
                    "{name}: {:#?}\n{}",
                    pod.status,
                    day.log()
                );
            }
            assert!(
                restarts(&snapshot, "twice").is_none_or(|n| n == 1),
                "{:#?}",
                snapshot.pods
            );
        }
        assert_eq!(day.processes(), before);
    }
    day.end();
}

fn a_killed_shim_costs_its_own_container_only(node: &Node) {
    let mut day = Day::begin(node);
    for name in ["bystander", "subject"] {
        day.put(name, steady(&day, name));
        day.wait_ready(name);
    }
    let bystander = day.process("bystander");
    for instance in 1..=2 {
        let subject = day.process("subject");
        support::kill9(day.shim("subject"));
        // Without its shim a container runs on, is probed and is found by the next daemon …
        day.crash();
        day.wait_ready("subject");
        assert_eq!(
            (day.process("subject"), day.starts("subject").len()),
            (subject, instance)
        );
        // … and its end is seen, the second time by a daemon that comes later.
        if instance == 2 {
            day.kill9();
        }
        support::kill9(subject);
        if instance == 2 {
            day.start();
        }
        support::wait_until("the next instance", || {
            day.starts("subject").len() == instance + 1
        });
        let wanted = u32::try_from(instance).unwrap();
        day.wait("the restart", |s| {
            (restarts(s, "subject") == Some(wanted)).then_some(())
        });
        day.wait_ready("subject");
        assert_ne!(day.process("subject"), subject);
    }
    assert_eq!(
        (
            day.process("bystander"),
            day.starts("bystander").len(),
            day.starts("subject").len()
        ),
        (bystander, 1, 3)
    );
    day.end();
}

/// A systemd unit with the default KillMode, stopped and started: everything in the cgroup of the service is killed.
fn what_ends_the_daemon_s_cgroup_ends_no_pod(node: &Node) {
    let name = format!("{}.service", node.layout.id());
    let mounts = mountinfo::read().unwrap().into_iter();
    let dirs: Vec<_> = mounts
        .filter(|m| {
            let of_v1 = |name: &str| m.kind == "cgroup" && m.options.iter().any(|o| o == name);
            m.kind == "cgroup2" || of_v1("name=systemd") || of_v1("memory")
        })
        .map(|m| m.at.join(&name))
        .collect();
    assert!(!dirs.is_empty());
    let service = Service::new(dirs);
    let mut day = Day::begin_in(node, &service.0);
    let mut subject = steady(&day, "subject");
    subject["spec"]["shareProcessNamespace"] = true.into();
    day.put("subject", subject);
    day.wait_ready("subject");
    let (process, shim) = (day.process("subject"), day.shim("subject"));
    for pid in [process.pid, shim.pid] {
        let own = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        assert!(!own.contains(&name), "{own}");
    }
    let daemon = fs::read_to_string(format!("/proc/{}/cgroup", day.pid())).unwrap();
    assert!(daemon.contains(&name), "{daemon}");
    day.kill_all_in(&service.0);
    day.start();
    day.wait_ready("subject");
    assert_eq!(
        (day.process("subject"), day.shim("subject")),
        (process, shim),
        "{}",
        day.log()
    );
    assert!(!day.log().contains("KillMode"), "{}", day.log());
    day.end();
}

/// systemd's RuntimeDirectory=, a tidy operator: everything below /run/podprobe goes while pods run.
fn run_is_cleared_away_under_the_daemon(node: &Node) {
    let mut day = Day::begin(node);
    day.put(
        "subject",
        day.pod("subject", FOREVER, gate("/starts/ready")),
    );
    let gate = node.dir.path().join("starts/ready");
    fs::write(&gate, "").unwrap();
    day.wait_ready("subject");
    let (process, shim) = (day.process("subject"), day.shim("subject"));

    // In one step: a daemon that sees half of the records gone writes them again twice.
    let aside = node.dir.path().join("removed");
    fs::rename(node.layout.run_dir(), &aside).unwrap();
    let _ = fs::remove_dir_all(&aside);
    let second = day.command().output().unwrap();
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(
        !second.status.success() && said.contains("another podprobe daemon already runs"),
        "{said}"
    );
    support::wait_until("clients to be answered", || day.snapshot().is_some());
    support::wait_until("the records", || {
        day.processes().get("subject") == Some(&process)
    });
    let said_once = |day: &Day| {
        let log = day.log_with(&["were removed by"]);
        let lines = log
            .lines()
            .filter(|l| l.contains("were removed by"))
            .count();
        assert_eq!((lines, log.matches(" ERROR ").count()), (1, 0), "{log}");
    };
    for gate_is_there in [false, true] {
        match gate_is_there {
            true => fs::write(&gate, "").unwrap(),
            false => fs::remove_file(&gate).unwrap(),
        }
        day.wait("the probe to see the gate", |s| {
            let ready = find(s, "subject")?.status.is_ready();
            (ready == gate_is_there).then_some(())
        });
        said_once(&day);
        day.crash();
    }
    day.wait_ready("subject");
    assert_eq!(
        (day.process("subject"), day.shim("subject")),
        (process, shim)
    );
    day.check_starts("subject", 1);
    // Its end is recorded, and so is the next instance.
    support::kill9(process);
    day.wait("the restart", |s| {
        (restarts(s, "subject") == Some(1)).then_some(())
    });
    let ended = day.wait("how it ended", |s| {
        let c = find(s, "subject")?.status.container_statuses.first()?;
        c.last_state.terminated.as_ref().map(|t| t.exit_code)
    });
    assert_eq!(ended, 137);
    day.end();
}

/// The cgroups of a service, removed in the end.
struct Service(Vec<PathBuf>);

impl Service {
    fn new(dirs: Vec<PathBuf>) -> Self {
        dirs.iter().for_each(|d| fs::create_dir_all(d).unwrap());
        Self(dirs)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        cgroup::kill_until_empty(&self.0);
        for dir in &self.0 {
            let _ = cgroup::remove_tree(dir);
        }
    }
}

mod tests {
    use super::*;

    pub(crate) fn what_is_over_is_no_warning(node: &Node) {
        let day = Day::begin(node);
        let archive = node.layout.image_drop().join("bad.tar");
        fs::create_dir_all(node.layout.image_drop()).unwrap();
        fs::write(&archive, "no archive").unwrap();
        day.put("bad", "{");
        let levels = |words: &str| -> Vec<String> {
            let lines = ["bad.json: ", "bad.json:1:", "bad.tar: "];
            let log = day.log();
            let about = log.lines().filter(|l| {
                lines.iter().any(|file| l.contains(file))
                    && l.contains("no problem any more") == words.is_empty()
            });
            about
                .map(|l| l.split(' ').nth(1).unwrap_or_default().to_owned())
                .collect()
        };
        support::wait_until("both to be told of", || levels("wrong").len() >= 2);
        fs::remove_file(archive).unwrap();
        day.delete("bad");
        support::wait_until("both to be over", || levels("").len() >= 2);
        assert_eq!(
            (levels("wrong"), levels("")),
            (vec!["WARN".to_owned(); 2], vec!["INFO".to_owned(); 2]),
            "{}",
            day.log()
        );
        day.end();
    }

    /// A mount, taken away in the end.
    struct ReadOnly(PathBuf);

    impl ReadOnly {
        fn over(dir: PathBuf) -> Self {
            let remount = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
            for flags in [MsFlags::MS_BIND, remount] {
                mount(Some(&dir), &dir, None::<&str>, flags, None::<&str>).unwrap();
            }
            Self(dir)
        }
    }

    impl Drop for ReadOnly {
        fn drop(&mut self) {
            let _ = umount2(&self.0, MntFlags::MNT_DETACH);
        }
    }

    /// A disk with an error is mounted read-only by the kernel.
    pub(crate) fn a_read_only_var_keeps_no_daemon_from_its_containers(node: &Node) {
        let mut day = Day::begin(node);
        day.put("subject", steady(&day, "subject"));
        day.wait_ready("subject");
        let process = day.process("subject");
        let read_only = ReadOnly::over(node.layout.root().join("var"));
        day.crash();
        day.wait_ready("subject");
        assert_eq!(day.process("subject"), process, "{}", day.log());
        drop(read_only);
        day.crash();
        day.wait_ready("subject");
        assert_eq!(day.process("subject"), process, "{}", day.log());
        day.end();
    }

    /// The service manager's limit is reached, or the kernel's.
    pub(crate) fn without_a_process_left_no_pod_is_lost(node: &Node) {
        let name = format!("{}.service", node.layout.id());
        let mounts = mountinfo::read().unwrap().into_iter();
        let counts = |m: &mountinfo::Mount| {
            m.kind == "cgroup2" || m.kind == "cgroup" && m.options.iter().any(|o| o == "pids")
        };
        let service = Service::new(mounts.filter(counts).map(|m| m.at.join(&name)).collect());
        let day = Day::begin_in(node, &service.0);
        let healthy = json!({"livenessProbe": {"exec": {"command": ["/bin/sh", "-c", "exit 0"]}, "periodSeconds": 1, "failureThreshold": 1},
                             "readinessProbe": {"exec": {"command": ["/bin/cat", "/tmp/noted"]}, "periodSeconds": 1}});
        for name in ["subject", "victim"] {
            day.put(name, day.pod(name, FOREVER, healthy.clone()));
            day.wait_ready(name);
        }
        let subject = day.process("subject");
        let limits = service.0.iter().map(|dir| dir.join("pids.max"));
        let limit = limits.into_iter().find(|f| f.exists()).unwrap();
        fs::write(&limit, "1").unwrap();

        let refused = day.client(&["get", "pods"]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success(), "{said}");
        assert!(said.contains("the node has no thread left"), "{said}");
        support::kill9(day.process("victim"));
        day.put("late", day.pod("late", FOREVER, healthy));
        let mut told = vec!["cannot start a shim: ", "cannot start the worker of pod "];
        // With one hierarchy a command is born in the container's cgroup, where processes are left.
        if !mountinfo::read()
            .unwrap()
            .iter()
            .any(|m| m.at.ends_with("sys/fs/cgroup") && m.kind == "cgroup2")
        {
            told.push("liveness probe of subject-edge/c cannot be run: cannot start process in container: no process is left");
        }
        day.log_with(&told);
        fs::write(&limit, "max").unwrap();

        support::wait_until("the daemon to answer", || day.snapshot().is_some());
        for name in ["subject", "victim", "late"] {
            day.wait_ready(name);
        }
        assert_eq!(day.process("subject"), subject, "{}", day.log());
        for (name, starts) in [("subject", 1), ("victim", 2), ("late", 1)] {
            day.check_starts(name, starts);
        }
        let snapshot = day.snapshot().expect("the daemon answers");
        let restarts = ["subject", "victim", "late"].map(|name| restarts(&snapshot, name));
        assert_eq!(restarts, [Some(0), Some(1), Some(0)], "{}", day.log());
        day.end();
    }

    pub(crate) fn a_killed_shim_is_said_once(node: &Node) {
        let mut day = Day::begin(node);
        let said = |day: &Day, name: &str| {
            day.log()
                .matches(&format!(
                    "the shim of container c of pod default/{name}-{NODE} "
                ))
                .count()
        };
        for name in ["first", "second", "whole"] {
            day.put(name, steady(&day, name));
            day.wait_ready(name);
        }
        // the second is told of by a later look: the first has been looked at twice by then
        for name in ["first", "second"] {
            support::kill9(day.shim(name));
            support::wait_until("the loss to be told of", || said(&day, name) > 0);
        }
        assert_eq!(
            ["first", "second", "whole"].map(|name| said(&day, name)),
            [1, 1, 0],
            "{}",
            day.log()
        );
        day.crash();
        support::wait_until("the next daemon to tell of both", || {
            said(&day, "first") > 1 && said(&day, "second") > 1
        });
        let noted = |name: &str| {
            let logs = day.says(&["logs", &format!("{name}-{NODE}")]);
            logs.matches("from here on is lost").count()
        };
        assert_eq!(["first", "second", "whole"].map(noted), [1, 1, 0]);
        assert_eq!(
            ["first", "second", "whole"].map(|name| said(&day, name)),
            [2, 2, 0],
            "{}",
            day.log()
        );
        day.end();
    }

    pub(crate) fn sigterm_ends_the_daemon_and_no_container(node: &Node) {
        let mut day = Day::begin(node);
        for i in 0..3 {
            let name = format!("p{i}");
            // a probe that waits for its answer is no excuse
            let handler = [
                json!({"command": ["/bin/sleep", "61.25"]}),
                json!({"command": ["/bin/sh", "-c", "trap '' TERM; sleep 61.25 & wait"]}),
                json!({"port": 8080}),
            ];
            let kind = ["exec", "exec", "httpGet"][i];
            let hangs = json!({"livenessProbe": {kind: handler[i], "timeoutSeconds": 50, "periodSeconds": 1}});
            // accepts, and never answers
            let script = format!("busybox nc -ll -p 8080 -e sleep 100000 &\n{FOREVER}");
            day.put(&name, day.pod(&name, &script, hangs));
        }
        day.wait("three to run", |s| {
            (s.pods.iter().filter(|p| p.status.is_ready()).count() == 3).then_some(())
        });
        // every probe is on its way
        support::wait_until("the probes to run", || {
            support::processes_naming("/bin/sleep 61.25").len()
                + support::processes_naming("sleep 61.25 &").len()
                == 2
        });
        let before = day.processes();
        let (status, took) = day.terminate();
        assert!(
            status.success() && took < Duration::from_secs(5),
            "{status} after {took:?}: {}",
            day.log()
        );
        assert_eq!((day.processes(), before.len()), (before, 3));
        day.log_with(&["containers go on running"]);
        assert_eq!(
            support::processes_naming("sleep 61.25"),
            [""; 0],
            "a probe's command outlives the daemon"
        );
        day.start();
        day.wait("three to run", |s| {
            (s.pods.iter().filter(|p| p.status.is_ready()).count() == 3).then_some(())
        });
        assert!(
            (0..3).all(|i| day.starts(&format!("p{i}")).len() == 1),
            "{}",
            day.log()
        );
        day.end();
    }

    pub(crate) fn one_daemon_a_root_and_roots_do_not_meet(node: &Node) {
        let day = Day::begin(node);
        day.put("same", steady(&day, "same"));
        day.wait_ready("same");
        let process = day.process("same");
        let second = day.command().output().unwrap();
        let (code, why) = (
            second.status.code(),
            String::from_utf8(second.stderr).unwrap(),
        );
        let root = node.layout.root().display();
        let sentence = format!(
            "another podprobe daemon already runs with root {root}; stop it, or give this one another --root"
        );
        assert!(
            code == Some(69) && why.contains(&sentence),
            "{code:?} {why}"
        );

        support::on(podprobe::engine::shims::RuntimeChoice::Embedded, |other| {
            let there = Day::begin(other);
            there.put("same", steady(&there, "same"));
            there.wait_ready("same");
            assert_ne!(there.process("same"), process);
            assert!(
                there.says(&["get", "pods", "-o", "wide"]).lines().count() == 2,
                "{}",
                there.says(&["get", "pods"])
            );
            there.end();
        });
        assert_eq!(
            (day.process("same"), day.starts("same").len()),
            (process, 1)
        );
        day.end();
    }

    /// Five failures in a row restart the container. No daemon lives for more than one that it counts.
    pub(crate) fn failures_in_a_row_count_on_when_daemons_are_killed(node: &Node) {
        let mut day = Day::begin(node);
        let tries = node.dir.path().join("starts/tries-1");
        // Each instance counts its own tries.
        let script = format!("wc -l </starts/app >/tmp/instance\n{FOREVER}");
        let probe = "echo >>/starts/tries-$(cat /tmp/instance); exit 1";
        let liveness = json!({"exec": {"command": ["/bin/sh", "-c", probe]},
            "periodSeconds": 2, "failureThreshold": 5, "initialDelaySeconds": 1});
        let pod = day.pod("app", &script, json!({"livenessProbe": liveness}));
        day.put("app", pod);
        let counted = |day: &Day| {
            let dirs = fs::read_dir(day.node.layout.containers());
            let records = dirs.into_iter().flatten().filter_map(|dir| {
                let text = fs::read(dir.ok()?.path().join("probe-liveness.json")).ok()?;
                serde_json::from_slice::<Value>(&text).ok()?["content"]["run"].as_u64()
            });
            records.max().unwrap_or(0)
        };
        let (mut seen, mut kills) = (0, 0);
        support::wait_until("the restart", || {
            let now = counted(&day);
            if now > seen && day.starts("app").len() == 1 {
                (seen, kills) = (now, kills + 1);
                day.kill9();
                day.start();
            }
            day.starts("app").len() == 2
        });
        let tries = fs::read_to_string(tries).unwrap().lines().count();
        // Each kill may cost one that was not counted. Counted anew by each daemon they would be 1 + 2 + 3 + 4 + 5.
        assert!(
            kills > 0 && tries <= 5 + kills,
            "{kills} {tries}: {}",
            day.log()
        );
        // Also under daemons that follow quickly, failures that count together are a period apart.
        let uptime = |line: &String| line.split(' ').next().unwrap().parse::<f64>().unwrap();
        let starts: Vec<f64> = day.starts("app").iter().map(uptime).collect();
        assert!(starts[1] - starts[0] >= 4.0 * 2.0, "{starts:?}");
        day.end();
    }

    /// Seconds of the boot clock at which the pod's containers started.
    fn start_seconds(day: &Day, name: &str) -> Vec<f64> {
        day.starts(name)
            .iter()
            .map(|l| l.split(' ').next().unwrap().parse().unwrap())
            .collect()
    }

    pub(crate) fn liveness_failures_restart_with_back_off(node: &Node) {
        let day = Day::begin(node);
        // It fails only when the trap is set: without one the first process ignores TERM.
        let trapped = ["/bin/sh", "-c", "[ ! -e /tmp/trapped ]"];
        let fails = json!({"livenessProbe": {"exec": {"command": trapped}, "periodSeconds": 1, "failureThreshold": 1}});
        let script = "trap 'cat /proc/uptime >>/starts/ends; exit 0' TERM\n: >/tmp/trapped\nsleep 100000 & wait";
        day.put("bystander", steady(&day, "bystander"));
        day.put("sick", day.pod("sick", script, fails));
        let why = day.wait_event("sick", "Killing");
        assert_eq!(why, "Container c failed liveness probe, will be restarted");
        day.wait_event("sick", "BackOff");
        // The event comes a moment before the status.
        support::wait_until("the row to say so", || {
            let row = day.says(&["get", "pods", "sick"]);
            row.contains("CrashLoopBackOff")
        });
        day.wait("the second restart", |s| {
            (restarts(s, "sick") == Some(2)).then_some(())
        });
        support::wait_until("the third instance", || day.starts("sick").len() == 3);
        let (starts, ends) = (start_seconds(&day, "sick"), start_seconds(&day, "ends"));
        let (first, second) = (starts[1] - ends[0], starts[2] - ends[1]);
        assert!(
            (0.0..5.0).contains(&first) && (10.0..15.0).contains(&second),
            "starts {starts:?}, ends {ends:?}"
        );
        day.check_starts("bystander", 1);
        day.end();
    }

    pub(crate) fn readiness_leaves_and_returns(node: &Node) {
        let day = Day::begin(node);
        day.put("flapper", day.pod("flapper", FOREVER, gate("/starts/gate")));
        let ready = |wanted: bool| {
            day.wait(&format!("Ready to be {wanted}"), |s| {
                find(s, "flapper")
                    .filter(|p| {
                        p.status
                            .condition("Ready")
                            .is_some_and(|c| c.status == if wanted { "True" } else { "False" })
                    })
                    .map(drop)
            });
        };
        let gate = node.dir.path().join("starts/gate");
        day.wait_event("flapper", "Unhealthy");
        for _ in 0..2 {
            ready(false);
            fs::write(&gate, "").unwrap();
            ready(true);
            fs::remove_file(&gate).unwrap();
        }
        ready(false);
        // Readiness restarts nothing.
        day.check_starts("flapper", 1);
        day.end();
    }

    pub(crate) fn a_job_completes_and_its_log_stays(node: &Node) {
        let mut day = Day::begin(node);
        let mut job = day.pod("job", "echo forty-two; echo wrong >&2", json!({}));
        job["spec"]["restartPolicy"] = "OnFailure".into();
        day.put("job", job);
        for _ in 0..2 {
            day.wait("the job to complete", |s| {
                find(s, "job")
                    .filter(|p| p.status.phase.as_str() == "Succeeded")
                    .map(drop)
            });
            let row = day.says(&["get", "pods", "job"]);
            assert!(row.contains("Completed") && row.contains("0/1"), "{row}");
            let log = day.says(&["logs", "job"]);
            assert!(
                log.contains("forty-two\n") && log.contains("wrong\n"),
                "{log}"
            );
            day.check_starts("job", 1);
            day.crash();
        }
        day.end();
    }

    /// The runtime knows nothing of such a pod, so only the directory tells of it.
    pub(crate) fn the_data_of_a_job_that_completed_before_a_reboot_goes_with_its_file(node: &Node) {
        let mut day = Day::begin(node);
        let mut job = day.pod("job", "", json!({}));
        job["spec"]["restartPolicy"] = "Never".into();
        day.put("job", job);
        let completed = |day: &Day| {
            day.wait("the job to complete", |s| {
                find(s, "job")
                    .filter(|p| p.status.phase.as_str() == "Succeeded")
                    .map(|p| p.status.phase)
            })
        };
        completed(&day);
        let checkpoint = || fs::read_to_string(node.layout.checkpoint()).unwrap_or_default();
        support::wait_until("the end in the checkpoint", || {
            checkpoint().contains("Succeeded")
        });
        day.kill9();
        node.kill_everything();
        fs::remove_dir_all(node.layout.run_dir()).unwrap();
        let boot = podprobe::base::clock::boot_id();
        let rebooted = checkpoint().replace(&boot, "another-boot");
        fs::write(node.layout.checkpoint(), rebooted).unwrap();
        let of_no_pod = node.layout.pod_data(&PodUid::from("of-no-pod"));
        fs::create_dir(&of_no_pod).unwrap();

        day.start();
        completed(&day);
        support::wait_until("the first housekeeping to have ended", || {
            !of_no_pod.exists()
        });
        let data = fs::read_dir(node.layout.lib_dir().join("pods")).unwrap();
        assert_eq!(data.count(), 1);
        day.check_starts("job", 1);
        day.end();
    }

    pub(crate) fn a_missing_image_is_said_and_its_import_is_enough(node: &Node) {
        let day = Day::begin(node);
        day.put("bystander", steady(&day, "bystander"));
        day.put(
            "later",
            day.pod("later", FOREVER, json!({"image": "later:1"})),
        );
        let message = day.wait("ErrImageNeverPull", |s| {
            let state = find(s, "later")?
                .status
                .container_statuses
                .first()?
                .state
                .waiting
                .clone()?;
            (state.reason == "ErrImageNeverPull").then_some(state.message)
        });
        assert!(
            message.contains("later:1") && message.contains("podprobe image"),
            "{message}"
        );
        assert!(day.says(&["describe", "pod", "later"]).contains(&message));
        assert!(day.says(&["get", "pods"]).contains("ErrImageNeverPull"));
        let import = day.client(&[
            "image",
            "import",
            node.dir.path().join("image").to_str().unwrap(),
            "later:1",
        ]);
        assert!(import.status.success(), "{import:?}");
        day.wait_ready("later");
        day.wait_ready("bystander");
        // it has no readiness probe: it is ready a moment before it has noted its start
        support::wait_until("its own note of its start", || {
            !day.starts("later").is_empty()
        });
        assert_eq!(
            (day.starts("later").len(), day.starts("bystander").len()),
            (1, 1)
        );
        day.end();
    }

    pub(crate) fn pods_that_cannot_start_say_why_and_harm_no_other(node: &Node) {
        let day = Day::begin(node);
        day.put("bystander", steady(&day, "bystander"));
        day.wait_ready("bystander");
        let bystander = day.process("bystander");

        let mut no_binary = day.pod("no-binary", FOREVER, json!({}));
        no_binary["spec"]["containers"][0]["command"] = json!(["/bin/nowhere"]);
        day.put("no-binary", no_binary);
        let state = |name: &'static str, reason: &'static str| {
            day.wait(&format!("{reason} of {name}"), move |s| {
                let c = find(s, name)?.status.container_statuses.first()?.clone();
                let waiting = c.state.waiting.map(|w| (w.reason, w.message));
                let ended = [c.state.terminated, c.last_state.terminated]
                    .into_iter()
                    .flatten()
                    .map(|t| (t.reason, t.message));
                waiting
                    .into_iter()
                    .chain(ended)
                    .find(|(r, _)| r == reason)
                    .map(|(_, m)| m)
            })
        };
        let why = state("no-binary", "RunContainerError");
        assert!(why.contains("/bin/nowhere") && !why.contains('\n'), "{why}");

        // one host port for two pods: the second is not admitted
        let port = json!({"ports": [{"containerPort": 80, "hostPort": 39_181}]});
        day.put("port-a", day.pod("port-a", FOREVER, port.clone()));
        day.wait_ready("port-a");
        day.put("port-b", day.pod("port-b", FOREVER, port));
        let (reason, message) = day.wait("port-b to be rejected", |s| {
            let status = &find(s, "port-b")?.status;
            (status.phase.as_str() == "Failed")
                .then(|| (status.reason.clone(), status.message.clone()))
        });
        assert_eq!(
            (reason.as_str(), day.starts("port-b").len()),
            ("NodePorts", 0),
            "{message}"
        );
        assert!(
            message.contains("39181") || message.contains("free ports"),
            "{message}"
        );

        // a port that another process of the node holds
        let holder = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = holder.local_addr().unwrap().port();
        let mut server = day.pod(
            "taken",
            &format!("exec busybox httpd -f -p 127.0.0.1:{taken}"),
            json!({}),
        );
        server["spec"]["hostNetwork"] = true.into();
        day.put("taken", server);
        state("taken", "CrashLoopBackOff");
        let log = day.says(&["logs", "taken"]);
        assert!(log.contains("in use"), "{log}");

        assert_eq!(
            (
                day.process("bystander"),
                day.starts("bystander").len(),
                day.starts("port-a").len()
            ),
            (bystander, 1, 1)
        );
        day.end();
    }

    /// Host ports stand for all that a node may be full of.
    pub(crate) fn a_renamed_pod_starts_on_a_full_node_also_under_the_next_daemon(node: &Node) {
        let mut day = Day::begin(node);
        let port = json!({"ports": [{"containerPort": 80, "hostPort": 39_182}]});
        let full = |day: &Day, name: &str| day.pod(name, FOREVER, port.clone());
        let rejected = |day: &Day, name: &'static str| {
            day.wait(&format!("{name} to be rejected"), move |s| {
                let status = &find(s, name)?.status;
                (status.reason == "NodePorts" && status.phase.as_str() == "Failed").then_some(())
            });
        };
        day.put("one", full(&day, "one"));
        day.wait_ready("one");

        // the file is moved, and its pod has another name
        day.delete("one");
        day.put("two", full(&day, "two"));
        day.wait_ready("two");
        day.wait_gone("one");

        // the new file comes first, as git may write it
        day.put("three", full(&day, "three"));
        rejected(&day, "three");
        day.crash();
        day.wait_ready("two");
        rejected(&day, "three");
        day.delete("two");
        day.wait_ready("three");
        for name in ["one", "two", "three"] {
            day.check_starts(name, 1);
        }
        day.end();
    }

    pub(crate) fn bad_files_say_why_and_harm_no_pod(node: &Node) {
        let day = Day::begin(node);
        for name in ["one", "two"] {
            day.put(name, steady(&day, name));
            day.wait_ready(name);
        }
        let before = day.processes();
        let mut typo = steady(&day, "typo");
        let probe = typo["spec"]["containers"][0]["readinessProbe"].take();
        typo["spec"]["containers"][0]["readynessProbe"] = probe;
        let cases = [
            (
                "broken",
                "{\"apiVersion\": \"v1\",\n \"kind\": \"Pod\" \"metadata\"".to_owned(),
                "broken.json:2:16: ",
            ),
            (
                "kind",
                json!({"apiVersion": "v1", "kind": "Ingress", "metadata": {"name": "d"}})
                    .to_string(),
                "Ingress",
            ),
            (
                "again",
                steady(&day, "one").to_string(),
                "one.json has the same pod and comes first",
            ),
            ("empty", String::new(), "empty"),
            (
                "typo",
                typo.to_string(),
                "readynessProbe: unknown field: did you mean \"readinessProbe\"?",
            ),
        ];
        for (name, content, hint) in cases {
            day.put(name, content);
            let file = day.file(name).display().to_string();
            let why = day.wait(&format!("{name} to be said"), |s| {
                s.problems
                    .iter()
                    .find(|p| p.file == file)
                    .map(|p| p.error.clone())
            });
            assert!(why.contains(hint), "{name}: {why}");
            let listed = day.says(&["get", "pods"]);
            assert!(listed.contains(&format!("{name}.json")), "{listed}");
        }
        assert_eq!(day.processes(), before);
        let names: HashSet<_> = day
            .snapshot()
            .unwrap()
            .pods
            .iter()
            .map(|p| p.object["metadata"]["name"].to_string())
            .collect();
        assert_eq!(
            names,
            ["one", "two"].map(|n| format!("\"{n}-{NODE}\"")).into()
        );
        day.end();
    }
}
