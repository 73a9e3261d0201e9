//! The server of the real daemon on a node with one pod, whose probe runs once a second: what hostile clients cost everybody
//! else (`CLIENTS`, default 200, for `SECONDS`, default 60), how soon a shell shows a key (`KEYS`, default 500), what a command
//! costs (`EXECS`, default 1000), and a copy of `MEGABYTES` (default 100) beside `cat` through a pipe (`ROUNDS`, default 5).

#[path = "server/beside.rs"]
mod beside;
#[path = "server/copies.rs"]
mod copies;
#[path = "server/hostile.rs"]
mod hostile;
#[path = "server/shell.rs"]
mod shell;
mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::figures::Report;
use support::node::{Node, view};
use support::usage::{self, Holdings, total};
use support::{leftovers, out_dir, program};

const BUSYBOX: &str = "/usr/bin/busybox";
const IMAGE: &str = "bench-shell:latest";
/// The pod, as its file and the verbs name it.
const POD: &str = "web";
/// A directory of the container that is in memory, so that copies do not measure the disk.
const DATA: &str = "/data";

fn main() {
    hostile::role();
    support::begin();
    let mut report = Report::new("server");
    {
        let mut node = start(&json!({}));
        shell::measure(&mut report, &node, support::setting("KEYS", 500));
        commands(&mut report, &node, support::setting("EXECS", 1000));
        let bytes = support::setting("MEGABYTES", 100) << 20;
        copies::measure(&mut report, &node, bytes, support::setting("ROUNDS", 5));
        node.stop();
    }
    let clients = support::setting("CLIENTS", 200);
    let seconds = Duration::from_secs(support::setting("SECONDS", 60) as u64);
    beside::measure(&mut report, clients, seconds);
    report.finish();
}

/// A daemon whose pod is ready.
fn start(config: &Value) -> Node {
    let mut all = json!({"network": "none"});
    let more = config.as_object().unwrap().clone();
    all.as_object_mut().unwrap().extend(more);
    let node = Node::start_with("embedded", &all, &[]);
    import(&node);
    let probe = json!({"exec": {"command": ["true"]}, "periodSeconds": 1});
    let container = json!({"name": "main", "image": IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "100000"],
        "readinessProbe": probe, "volumeMounts": [{"name": "data", "mountPath": DATA}]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD}, "spec": {"terminationGracePeriodSeconds": 0,
        "volumes": [{"name": "data", "emptyDir": {"medium": "Memory"}}], "containers": [container]}});
    node.add(POD, &pod);
    node.watch().until("the pod to be ready", |s| {
        view(s, POD).is_some_and(|v| v.status.is_ready())
    });
    node
}

fn import(node: &Node) {
    let dir = out_dir().join(format!("shell-{}", std::process::id()));
    let bin = dir.join("bin");
    fs::create_dir_all(&bin).unwrap();
    fs::copy(BUSYBOX, bin.join("busybox")).expect("this bench needs a static busybox");
    for name in ["sh", "cat", "sleep", "true"] {
        symlink("busybox", bin.join(name)).unwrap();
    }
    node.import(&dir, IMAGE);
    fs::remove_dir_all(&dir).unwrap();
}

/// A verb of the program that is measured.
fn verb(node: &Node, words: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.arg("--root").arg(node.root()).args(words);
    command
}

/// What is there while nobody asks anything: descriptors and threads of the daemon, and processes of the node.
struct Held {
    daemon: Holdings,
    processes: usize,
}

impl Held {
    fn by(node: &Node) -> Self {
        // A probe that runs has processes of its own.
        let looks = (0..20).map(|_| {
            std::thread::sleep(Duration::from_millis(53));
            leftovers::processes(node.root()).len() + spawners(node.daemon.pid)
        });
        let processes = looks.min().unwrap();
        let daemon = Holdings::at_rest(node.daemon.pid);
        Self { daemon, processes }
    }

    /// Rows with what there is now, which is to be no more than before.
    fn compare(&self, report: &mut Report, after: &str, now: &Self) {
        let of = |held: &Self| {
            let daemon = &held.daemon;
            [
                ("descriptors", total(&daemon.descriptors)),
                ("threads", total(&daemon.threads)),
                ("processes of the node", held.processes),
            ]
        };
        for ((what, before), (_, now)) in of(self).into_iter().zip(of(now)) {
            let (before, now) = (before as f64, now as f64);
            report.add(&format!("{what} before {after}"), "", None, before);
            report.add(&format!("{what} after {after}"), "", Some(before), now);
        }
        let changed = usage::difference(&self.daemon.descriptors, &now.daemon.descriptors);
        if !changed.is_empty() {
            report.note(format!("descriptors after {after}: {changed}"));
        }
    }
}

/// The daemon's children that start commands in containers: they name no root.
fn spawners(daemon: i32) -> usize {
    let tasks = usage::entries(&format!("/proc/{daemon}/task")).into_iter();
    let children = tasks.map(|t| fs::read_to_string(t.join("children")).unwrap_or_default());
    let is_spawner = |pid: &&str| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.ends_with(b"\0nsexec\0"))
    };
    let of_task = |pids: String| pids.split_whitespace().filter(is_spawner).count();
    children.map(of_task).sum()
}

/// Commands by the verb, one after another.
fn commands(report: &mut Report, node: &Node, count: usize) {
    let run = || {
        let output = verb(node, &["exec", POD, "--", "true"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    // What the daemon keeps for commands at the same time is there before.
    for _ in 0..3 {
        std::thread::scope(|s| (0..16).for_each(|_| drop(s.spawn(run))));
    }
    let before = Held::by(node);
    for _ in 0..count {
        let begun = Instant::now();
        run();
        let took = begun.elapsed().as_secs_f64() * 1e3;
        report.add("`podprobe exec POD -- true`", "ms", None, took);
    }
    before.compare(report, &format!("{count} of them"), &Held::by(node));
}
