//! Many pods of one file each come at once and go at once: processor time of the daemon, and of the daemon with all the
//! processes that it has waited for, beside a fourth of the pods. `PODS` is the largest number (default 800; `PODS=80` for a
//! quick look); a half, a fourth and an eighth of it are measured before it. First with a loopback interface only, then on the
//! bridge.
//!
//! What is done for one pod must not grow with the number of all: four times the pods are to cost less than five times.

mod support;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use support::figures::Report;
use support::node::{Node, pod};

const NETWORKS: [&str; 2] = ["none", "bridge"];
/// For a step of the largest number.
const CEILING: Duration = Duration::from_secs(900);

fn main() {
    support::begin_in_memory();
    let most = support::setting("PODS", 800);
    let counts = [8, 4, 2, 1].map(|part| most / part);
    let mut report = Report::new("many");
    for network in NETWORKS {
        for count in counts {
            measure(&mut report, network, count);
        }
        for what in ["start", "removal"] {
            for of in ["daemon", "all"] {
                let row = |count: usize| row(network, what, count, of);
                let name = format!(
                    "{network}: {what}, {of}: {} / {} pods",
                    counts[3], counts[1]
                );
                report.ratio(&name, &row(counts[3]), &row(counts[1]), Some(5.0));
            }
        }
    }
    report.finish();
}

fn row(network: &str, what: &str, count: usize, of: &str) -> String {
    format!("{network}: {what} of {count} pods, {of}")
}

fn measure(report: &mut Report, network: &str, count: usize) {
    let config = json!({"maxPods": count + 1, "network": network, "podCIDR": "10.248.0.0/20"});
    let node = Node::start_with("embedded", &config, &[]);
    let name = |n: usize| format!("many-{n}");
    let mut at = times(node.daemon.pid);
    let mut step = |what: &str| {
        // Processes that have ended are waited for within a second.
        std::thread::sleep(Duration::from_secs(3));
        let now = times(node.daemon.pid);
        for (of, seconds) in [("daemon", now.0 - at.0), ("all", now.1 - at.1)] {
            let row = row(network, what, count, of);
            report.add(&row, "s", None, seconds);
        }
        at = now;
    };
    for n in 0..count {
        node.add(&name(n), &pod(&node, &name(n), &[], json!({})));
    }
    until("all pods to run", || entries(&node.shared) == count);
    step("start");
    for n in 0..count {
        let file = format!("{}.json", name(n));
        fs::remove_file(node.layout.pods_dir().join(file)).unwrap();
    }
    let pods = node.layout.lib_dir().join("pods");
    until("all pods to go", || {
        entries(&node.layout.sandboxes()) + entries(&pods) == 0
    });
    step("removal");
}

/// No client of the daemon watches: that would be a part of its time.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + CEILING;
    while !is_so() {
        assert!(Instant::now() < end, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn entries(dir: &Path) -> usize {
    fs::read_dir(dir).map_or(0, Iterator::count)
}

/// Seconds of processor time: of the process with all the threads that it has had, and with all children that it has
/// waited for.
fn times(pid: i32) -> (f64, f64) {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = text.rsplit_once(')').unwrap();
    let ticks: Vec<f64> = fields
        .split_whitespace()
        .skip(11)
        .take(4)
        .map(|ticks| ticks.parse().unwrap())
        .collect();
    let a_second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK);
    let a_second = a_second.ok().flatten().unwrap_or(100) as f64;
    let own = ticks[0] + ticks[1];
    (own / a_second, (own + ticks[2] + ticks[3]) / a_second)
}
