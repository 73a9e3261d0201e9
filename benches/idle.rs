//! What pods cost: memory of the daemon, of each shim and of each sandbox holder, and processor time of all of them over a
//! quiet window. Daemons with `PODS` pods (default 10,50,110) whose one process sleeps: each number once without probes,
//! and once, for memory alone, with two probes each whose history is full. `WINDOW` seconds (default 15).

mod support;

use std::time::{Duration, Instant};

use podprobe::engine::shims::state::Process;
use podprobe::face::views::Snapshot;
use podprobe::net::proxyd::home::Record;
use podprobe::pods::history::MAX_RUNS;
use serde_json::{Value, json};
use support::CEILING;
use support::figures::Report;
use support::node::{Node, pod};
use support::usage::{Memory, cpu, memory};

/// Time enough for more runs than a history keeps.
const FILL: Duration = Duration::from_secs(10);
const PERIOD_MILLISECONDS: u64 = 200;

fn main() {
    support::begin();
    let window = Duration::from_secs(support::setting("WINDOW", 15) as u64);
    let mut report = Report::new("idle");
    let sizes = support::settings("PODS", &[10, 50, 110]);
    for pods in &sizes {
        let unwatched = without_probes(&mut report, *pods, window);
        watched(&mut report, *pods, unwatched);
        with_probes(&mut report, *pods);
    }
    report.note(format!(
        "{sizes:?} pods, {} s; histories of {MAX_RUNS} runs",
        window.as_secs()
    ));
    report.finish();
}

/// A daemon whose pods are all ready. Nobody watches them start, for that leaves memory behind: it is asked once a second.
fn start(pods: usize, port: &str, probes: &Value) -> Node {
    let node = Node::start("embedded");
    add(&node, pods, port, probes);
    let begun = Instant::now();
    while !all_ready(pods, &node.snapshot()) {
        assert!(
            begun.elapsed() < CEILING,
            "not every pod runs:\n{}",
            node.log()
        );
        std::thread::sleep(Duration::from_secs(1));
    }
    node
}

fn add(node: &Node, pods: usize, port: &str, probes: &Value) {
    for n in 0..pods {
        let name = format!("idle-{n}");
        node.add(&name, &pod(node, &name, &["--port", port], probes.clone()));
    }
}

fn all_ready(pods: usize, s: &Snapshot) -> bool {
    s.pods.len() == pods && s.pods.iter().all(|p| p.status.is_ready())
}

/// What a client leaves in the daemon's memory that watches all pods start; `unwatched` is that of one nobody watches.
fn watched(report: &mut Report, pods: usize, unwatched: u64) {
    let node = Node::start("embedded");
    let mut watch = node.watch();
    watch.until("the first snapshot", |_| true);
    add(&node, pods, "0", &json!({}));
    watch.until("every pod to run", |s| all_ready(pods, s));
    drop(watch);
    std::thread::sleep(Duration::from_secs(3));
    report.add(
        &format!("{pods:>3} pods: daemon: left by a watcher"),
        "kB",
        Some(300.0),
        memory(node.daemon.pid).private as f64 - unwatched as f64,
    );
}

/// Gives the daemon's private memory in kB.
fn without_probes(report: &mut Report, pods: usize, window: Duration) -> u64 {
    let node = start(pods, "0", &json!({}));
    // What starting has left (a last sync, the checkpoint) is over by then.
    std::thread::sleep(Duration::from_secs(3));
    let [shims, _, holders] = node.processes();
    assert_eq!((shims.len(), holders.len()), (pods, pods));
    let title = format!("{pods:>3} pods");
    // None where pods have loopback only.
    let proxy = Record::running(&node.layout.proxy_dir());
    let proxy: Vec<Process> = proxy.map(|r| r.process).into_iter().collect();
    let roles = [
        ("daemon", vec![node.daemon.pid]),
        ("shims", pids(&shims)),
        ("holders", pids(&holders)),
        ("proxy", pids(&proxy)),
    ];
    measure_cpu(report, &title, &roles, window);
    // After the window: what the daemon touches each second is in memory then.
    let daemon_limit = if pods <= 10 { 8192.0 } else { 15360.0 };
    let roles = [
        ("daemon", vec![node.daemon], daemon_limit),
        ("shim", shims, 1024.0),
        ("holder", holders, f64::INFINITY),
        ("proxy", proxy, 4096.0),
    ];
    for (role, processes, target) in roles {
        processes
            .iter()
            .map(|p| memory(p.pid))
            .for_each(|m| add_memory(report, &format!("{title}: {role}"), m, target));
    }
    memory(node.daemon.pid).private
}

fn with_probes(report: &mut Report, pods: usize) {
    let probe = |action: Value| {
        let mut probe = json!({"periodMilliseconds": PERIOD_MILLISECONDS, "timeoutSeconds": 10});
        probe
            .as_object_mut()
            .unwrap()
            .extend(action.as_object().unwrap().clone());
        probe
    };
    let http = probe(json!({"httpGet": {"path": "/healthz", "port": 8080}}));
    let tcp = probe(json!({"tcpSocket": {"port": 8080}}));
    let node = start(
        pods,
        "8080",
        &json!({"readinessProbe": http, "livenessProbe": tcp}),
    );
    std::thread::sleep(FILL);
    add_memory(
        report,
        &format!("{pods:>3} pods, 2 probes each: daemon"),
        memory(node.daemon.pid),
        15360.0,
    );
}

fn add_memory(report: &mut Report, whose: &str, m: Memory, target: f64) {
    let target = Some(target).filter(|t| t.is_finite());
    // What one more costs.
    let private = whose.ends_with("shim").then_some(614.0);
    report.add(&format!("{whose}: PSS"), "kB", target, m.pss as f64);
    report.add(
        &format!("{whose}: private"),
        "kB",
        private,
        m.private as f64,
    );
    report.add(&format!("{whose}: RSS"), "kB", None, m.rss as f64);
}

fn measure_cpu(report: &mut Report, title: &str, roles: &[(&str, Vec<i32>); 4], window: Duration) {
    let read = || {
        roles.each_ref().map(|(_, pids)| {
            pids.iter()
                .map(|p| cpu(*p))
                .fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
        })
    };
    let (begun, before) = (Instant::now(), read());
    std::thread::sleep(window);
    let (seconds, after) = (begun.elapsed().as_secs_f64(), read());
    // Thousandths of a core.
    let cores = |n: usize| (after[n].0 - before[n].0) as f64 / 1e6 / seconds;
    report.add(
        &format!("{title}: daemon, shims and proxy: processor"),
        "mcore",
        Some(10.0),
        cores(0) + cores(1) + cores(3),
    );
    for (n, (role, _)) in roles.iter().enumerate() {
        report.add(
            &format!("{title}: {role}: processor"),
            "mcore",
            None,
            cores(n),
        );
        report.add(
            &format!("{title}: {role}: wake-ups a second"),
            "1/s",
            None,
            (after[n].1 - before[n].1) as f64 / seconds,
        );
    }
}

fn pids(processes: &[Process]) -> Vec<i32> {
    processes.iter().map(|p| p.pid).collect()
}
