//! Exec probes of the real daemon: `PODS` pods (default 10), whose readiness probes together run 50 and then 20 times a second,
//! beside `LOAD` processes that keep a processor busy each (default none).
//!
//! The daemon is in a cgroup of its own and all containers are below one; what both used over a window, of which the
//! window without probes (paused) is taken away, is what the probes cost: daemon, shims, runtime, command.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use podprobe::api::PodUid;
use podprobe::base::sys::cgroup::Cgroups;
use podprobe::face::server::protocol::PauseTarget;
use serde_json::{Value, json};

use super::host;
use super::support::figures::{Report, median, quantile};
use super::support::node::Node;
use super::support::usage::own_cpu_us;
use super::support::{Guard, out_dir, setting};

const IMAGE: &str = "bench-busybox:latest";
/// Probes a second of all pods together, and what one of them may cost at most, as a multiple of posix_spawn. After a longer
/// sleep the processor's caches hold less of the daemon.
const RATES: [(usize, f64); 2] = [(50, 1.5), (20, 1.8)];
/// What a probe may cost at most beside `LOAD` busy processes, at either rate.
const BESIDE_WORK: f64 = 2.2;
/// Runs on the host in each window, for the floor.
const HOST_RUNS: usize = 50;

pub(super) fn measure(report: &mut Report) {
    let load: Vec<Guard> = (0..setting("LOAD", 0)).map(|_| busy()).collect();
    for (rate, most) in RATES {
        let [cpu, floor] = at_rate(report, rate);
        let name = format!("cpu, {rate} probes a second of the daemon / posix_spawn between");
        let most = if load.is_empty() { most } else { BESIDE_WORK };
        report.ratio(&name, &cpu, &floor, Some(most));
    }
    if !load.is_empty() {
        report.note(format!("daemon: beside {} busy processes", load.len()));
    }
}

/// A process that computes until it is dropped.
fn busy() -> Guard {
    let script = "while :; do :; done";
    let mut child = Command::new(super::BUSYBOX)
        .args(["sh", "-c", script])
        .spawn()
        .unwrap();
    Guard::new(move || {
        let _ = child.kill();
        let _ = child.wait();
    })
}

/// The names of the rows: what a probe costs, and the floor.
fn at_rate(report: &mut Report, rate: usize) -> [String; 2] {
    let row = |what: &str| format!("daemon, {rate} exec probes a second: {what}");
    let (pods, windows) = (setting("PODS", 10), setting("WINDOWS", 5));
    let node = Node::start("embedded");
    let usage = Usage::of(&node);
    import(&node);
    let names: Vec<String> = (0..pods).map(|n| format!("exec-{n}")).collect();
    for name in &names {
        node.add(name, &pod(name, pods, rate));
    }
    let mut watch = node.watch();
    let (snapshot, _) = watch.until("every pod to be ready", |s| {
        s.pods.len() == pods && s.pods.iter().all(|p| p.status.is_ready())
    });
    let uids: Vec<PodUid> = snapshot
        .pods
        .iter()
        .map(|p| p.object["metadata"]["uid"].as_str().unwrap().into())
        .collect();
    let target = |uid: &PodUid| PauseTarget {
        uid: uid.clone(),
        container: None,
        probe_type: None,
    };
    for uid in &uids {
        let length = Duration::from_secs(600);
        node.client().pause(target(uid), length).unwrap();
    }
    let idle = usage.over(&node, Duration::from_secs(3)).0 / 3.0;
    for uid in &uids {
        node.client().resume(target(uid)).unwrap();
    }
    let mut latencies = Vec::new();
    for _ in 0..windows {
        let window = Duration::from_secs(6);
        let (cpu, runs) = usage.over(&node, window);
        let of_probes = cpu - idle * window.as_secs_f64();
        report.add(&row("cpu a probe"), "µs", None, of_probes / runs as f64);
        uids.iter()
            .for_each(|uid| latencies.extend(last_runs(&node, uid)));
        report.add(&row("cpu of posix_spawn between"), "µs", None, floor(rate));
    }
    let good: Vec<f64> = latencies.iter().copied().flatten().collect();
    let [median, late] = [0.5, 0.99].map(|part| quantile(&good, part) / 1e3);
    let failed = (latencies.len() - good.len()) as f64;
    report.add(&row("latency, median"), "ms", Some(2.0), median);
    report.add(&row("latency, p99"), "ms", Some(10.0), late);
    report.add(&row("not successful"), "", Some(0.0), failed);
    report.note(format!(
        "daemon, {rate} a second: {pods} pods, {} runs; {idle:.0} µs a second without probes, not counted",
        latencies.len()
    ));
    ["cpu a probe", "cpu of posix_spawn between"].map(row)
}

/// The same command on the host, as often as the probes, from a processor that slept before each: microseconds a run.
fn floor(rate: usize) -> f64 {
    let run = |_| {
        std::thread::sleep(Duration::from_millis(1000 / rate as u64));
        let before = own_cpu_us();
        host();
        (own_cpu_us() - before) as f64
    };
    median(&(0..HOST_RUNS).map(run).collect::<Vec<_>>())
}

/// A pod that sleeps, with a readiness probe that runs `/bin/true`.
fn pod(name: &str, pods: usize, rate: usize) -> Value {
    let probe = json!({"exec": {"command": ["/bin/true"]}, "periodMilliseconds": 1000 * pods / rate, "timeoutSeconds": 5});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"terminationGracePeriodSeconds": 0, "containers": [
        {"name": "main", "image": IMAGE, "imagePullPolicy": "Never", "command": ["/bin/sleep", "100000"], "readinessProbe": probe}]}})
}

fn import(node: &Node) {
    let dir = out_dir().join(format!("rootfs-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    super::fill(&dir);
    node.import(&dir, IMAGE);
    fs::remove_dir_all(&dir).unwrap();
}

/// Where the processor time of the daemon and of its containers is counted.
struct Usage {
    daemon: PathBuf,
    containers: PathBuf,
    _guard: Guard,
}

impl Usage {
    fn of(node: &Node) -> Self {
        let all = Cgroups::detect().unwrap();
        let counts = |d: &PathBuf| d.join("cpuacct.usage").exists() || d.join("cpu.stat").exists();
        let root = all
            .dirs("/")
            .into_iter()
            .find(|d| d.join("cpuacct.usage").exists())
            .or_else(|| all.dirs("/").into_iter().find(counts));
        let root = root.expect("a hierarchy that counts processor time");
        let daemon = root.join(format!("bench-exec-{}", std::process::id()));
        fs::create_dir(&daemon).unwrap();
        let (guard, procs) = (
            Guard::new({
                let (root, daemon) = (root.clone(), daemon.clone());
                move || leave(&root, &daemon)
            }),
            daemon.join("cgroup.procs"),
        );
        fs::write(procs, node.daemon.pid.to_string()).unwrap();
        Self {
            daemon,
            containers: root.join(node.layout.id()),
            _guard: guard,
        }
    }

    /// Microseconds that were used in that time, and how many probes were successful.
    fn over(&self, node: &Node, window: Duration) -> (f64, u64) {
        let read = || (used(&self.daemon) + used(&self.containers), successes(node));
        let before = read();
        std::thread::sleep(window);
        let after = read();
        (after.0 - before.0, after.1 - before.1)
    }
}

/// Gives the processes back to the hierarchy's root and removes the cgroup.
fn leave(root: &Path, dir: &Path) {
    for pid in fs::read_to_string(dir.join("cgroup.procs"))
        .unwrap_or_default()
        .lines()
    {
        let _ = fs::write(root.join("cgroup.procs"), pid);
    }
    let _ = fs::remove_dir(dir);
}

/// Microseconds.
fn used(dir: &Path) -> f64 {
    if let Ok(text) = fs::read_to_string(dir.join("cpuacct.usage")) {
        return text.trim().parse::<f64>().unwrap() / 1e3;
    }
    let text = fs::read_to_string(dir.join("cpu.stat")).unwrap();
    text.lines()
        .find_map(|l| l.strip_prefix("usage_usec "))
        .unwrap()
        .parse()
        .unwrap()
}

fn successes(node: &Node) -> u64 {
    let text = node.client().metrics().unwrap();
    let counts = text
        .lines()
        .filter(|l| l.starts_with("prober_probe_total{") && l.contains("result=\"successful\""));
    counts
        .map(|l| l.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap() as u64)
        .sum()
}

/// Microseconds of each of the last seconds' probes; None for one that was not successful.
fn last_runs(node: &Node, uid: &PodUid) -> Vec<Option<f64>> {
    let history = node.client().history(uid.clone()).unwrap();
    let runs = history.probes.into_iter().flat_map(|p| p.runs);
    runs.map(|r| {
        (r.outcome == podprobe::pods::history::RunOutcome::Success).then_some(r.micros as f64)
    })
    .collect()
}
