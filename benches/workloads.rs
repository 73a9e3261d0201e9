//! What controllers cost: 50 Deployments of 2 pods beside the same 100 pods as files: time and processor time until all run,
//! memory of the daemon, processor time and wake-ups over a quiet window. And one step of a Deployment alone.
//! `DEPLOYMENTS` (default 50), `WINDOW` seconds (default 15), `ROUNDS` of both (default 3).

#[path = "workloads/steps.rs"]
mod steps;
mod support;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::figures::Report;
use support::node::{IMAGE, Node};
use support::usage::{cpu, memory};
use support::{setting, wait_until};

/// A step of a Deployment is to take at most this.
const STEP_MILLISECONDS: f64 = 1.0;
/// What starting has left, such as the last write of statuses, is over by then.
const QUIET: Duration = Duration::from_secs(3);

fn main() {
    support::begin();
    let deployments = setting("DEPLOYMENTS", 50);
    let window = Duration::from_secs(setting("WINDOW", 15) as u64);
    let mut report = Report::new("workloads");
    for (what, took) in steps::times() {
        report.add(&what, "ms", Some(STEP_MILLISECONDS), took);
    }
    for _ in 0..setting("ROUNDS", 3) {
        for kind in ["files", "Deployments"] {
            measure(&mut report, kind, deployments, window);
        }
    }
    for what in [
        "until all run",
        "processor time until all run",
        "PSS",
        "private",
    ] {
        let [files, deployments] = ["files", "Deployments"].map(|kind| format!("{kind}: {what}"));
        let name = format!("{what}: Deployments / files");
        report.ratio(&name, &deployments, &files, None);
    }
    report.finish();
}

fn measure(report: &mut Report, kind: &str, deployments: usize, window: Duration) {
    let node = Node::start("embedded");
    let begun = Instant::now();
    for n in 0..deployments {
        let name = format!("web-{n}");
        if kind == "Deployments" {
            node.add(&name, &deployment(&name));
            continue;
        }
        for copy in ["a", "b"] {
            let name = format!("{name}-{copy}");
            let spec = pod_spec();
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
            node.add(&name, &pod);
        }
    }
    wait_until("all pods to run", || {
        // A client that watches would be a part of the daemon's time.
        std::thread::sleep(Duration::from_millis(200));
        let snapshot = node.snapshot();
        let ready = snapshot.pods.iter().filter(|pod| pod.status.is_ready());
        ready.count() == 2 * deployments
    });
    let pid = node.daemon.pid;
    let mut add =
        |what: &str, unit, value| report.add(&format!("{kind}: {what}"), unit, None, value);
    add("until all run", "s", begun.elapsed().as_secs_f64());
    add("processor time until all run", "s", cpu(pid).0 as f64 / 1e9);
    std::thread::sleep(QUIET);
    let (begun, before) = (Instant::now(), cpu(pid));
    std::thread::sleep(window);
    let (seconds, after) = (begun.elapsed().as_secs_f64(), cpu(pid));
    let cores = (after.0 - before.0) as f64 / 1e6 / seconds;
    add("processor", "mcore", cores);
    let wake_ups = (after.1 - before.1) as f64 / seconds;
    add("wake-ups a second", "1/s", wake_ups);
    let memory = memory(pid);
    add("PSS", "kB", memory.pss as f64);
    add("private", "kB", memory.private as f64);
}

fn pod_spec() -> Value {
    json!({"terminationGracePeriodSeconds": 1,
        "containers": [{"name": "target", "image": IMAGE, "imagePullPolicy": "Never", "command": ["/probe-target"]}]})
}

fn deployment(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod_spec()}}})
}
