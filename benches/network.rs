//! Network probes beside their floor: podprobe's workers and a bare loop of sockets do the same work against one server,
//! each in a process of its own, round by round in one run. `WORKERS` (default 10,100,300,1000), `ROUNDS` (default 2),
//! `WINDOW` (default 4 s).
//!
//! podprobe is its probe manager with everything a worker touches, and not the whole daemon: the floor and the kubelet's
//! figures (its prober alone) are of the same kind, and 500 containers on two processors would measure PLEG and the shims.

#[path = "network/ours.rs"]
mod ours;
#[path = "network/plot.rs"]
mod plot;
#[path = "../tests/support/probed.rs"]
mod probed;
#[path = "../tests/support/raw_h2.rs"]
mod raw_h2;
#[path = "network/roles.rs"]
mod roles;
mod support;
#[path = "network/wire.rs"]
mod wire;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use podprobe::face::views::lateness::{Counts, quantile};
use serde_json::Value;
use support::figures::Report;
use support::usage::memory;

/// Of every worker.
const PERIOD: Duration = Duration::from_secs(1);
/// After the start: threads come, first connections, page faults.
const WARM_UP: Duration = Duration::from_secs(2);
const KINDS: [&str; 2] = ["bare", "podprobe"];

fn main() {
    roles::play();
    support::begin();
    let sizes = support::settings("WORKERS", &[10, 100, 300, 1000]);
    let rounds = support::setting("ROUNDS", 2);
    let window = Duration::from_secs(support::setting("WINDOW", 4) as u64);
    let mut server = Role::start(&["server"]);
    let ports: Vec<u16> = serde_json::from_value(server.line()).unwrap();
    let mut report = Report::of_itself("network");
    for n in 0..rounds {
        for workers in &sizes {
            for (handler, port) in wire::HANDLERS.into_iter().zip(&ports) {
                let mut kinds = KINDS;
                // Neither is always the one that finds the caches warm.
                kinds.rotate_left(n % 2);
                let cost =
                    kinds.map(|kind| measure(&mut report, kind, handler, *workers, *port, window));
                // Of neighbours in time: what else the machine does changes from minute to minute.
                let [bare, ours] =
                    KINDS.map(|kind| cost[kinds.iter().position(|k| *k == kind).unwrap()]);
                report.add(
                    &ratio_row(handler, *workers),
                    "×",
                    limit(handler, *workers),
                    ours / bare,
                );
            }
        }
    }
    growth(&mut report, &sizes);
    report.note(format!(
        "{rounds} rounds of {} s, period {} s",
        window.as_secs(),
        PERIOD.as_secs()
    ));
    plot::write(&report, &sizes);
    report.finish();
}

/// The name of a row.
fn row(handler: &str, workers: usize, kind: &str, what: &str) -> String {
    format!("{handler} {workers:>4} {kind}: {what}")
}

const CPU: &str = "CPU-s per 1000";

fn ratio_row(handler: &str, workers: usize) -> String {
    format!("{handler} {workers:>4}: CPU, podprobe / bare")
}

/// What that ratio may be.
fn limit(handler: &str, workers: usize) -> Option<f64> {
    match (handler, workers) {
        ("http", 1000) => Some(1.8),
        ("tcp", 1000) => Some(1.2),
        _ => None,
    }
}

/// One process of one kind; its processor time for 1,000 probes.
fn measure(
    report: &mut Report,
    kind: &str,
    handler: &str,
    workers: usize,
    port: u16,
    window: Duration,
) -> f64 {
    let stacks = kernel_stacks();
    let mut role = Role::start(&[kind, handler, &workers.to_string(), &port.to_string()]);
    assert_eq!(role.line()["workers"], workers);
    std::thread::sleep(WARM_UP);
    let before = role.ask();
    std::thread::sleep(window);
    let after = role.ask();
    let grown = |key: &str| after[key].as_u64().unwrap() - before[key].as_u64().unwrap();
    let (probes, failed) = (grown("probes"), grown("failed"));
    let expected = workers as f64 * window.as_secs_f64() / PERIOD.as_secs_f64();
    assert!(
        failed == 0 && probes as f64 >= expected * 0.9,
        "{kind} {handler}: {probes} of {expected} probes, {failed} failed"
    );
    let late = late_between(&before, &after);
    let target = |of: &str, limit: f64| {
        (kind == "podprobe" && workers == 1000 && handler.starts_with(of)).then_some(limit)
    };
    let mut add = |what: &str, unit, target, value| {
        report.add(&row(handler, workers, kind, what), unit, target, value)
    };
    // From the end of the first report to the beginning of the second.
    let cpu = after["cpu"][0].as_u64().unwrap() - before["cpu"][1].as_u64().unwrap();
    let cost = cpu as f64 / 1e6 / probes as f64;
    add(CPU, "s", target("grpc", 0.25), cost);
    add("lateness p50", "ms", None, quantile(&late, 0.5) * 1e3);
    add(
        "lateness p99",
        "ms",
        target("", 5.0),
        quantile(&late, 0.99) * 1e3,
    );
    if let Some(scrape) = after["scrape"].as_f64() {
        add("scrape", "ms", target("", 5.0), scrape);
    }
    let memory = memory(role.pid());
    add(
        "RSS",
        "MB",
        target("http", 20.0),
        memory.rss as f64 / 1024.0,
    );
    add("PSS", "MB", None, memory.pss as f64 / 1024.0);
    add(
        "kernel stacks",
        "MB",
        None,
        kernel_stacks().saturating_sub(stacks) as f64 / 1024.0,
    );
    cost
}

fn late_between(before: &Value, after: &Value) -> Counts {
    let of = |v: &Value| -> Counts { serde_json::from_value(v["lateness"].clone()).unwrap() };
    let (before, mut after) = (of(before), of(after));
    after.iter_mut().zip(before).for_each(|(n, old)| *n -= old);
    after
}

/// Of the whole machine, in kB.
fn kernel_stacks() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    text.lines()
        .find_map(|l| l.strip_prefix("KernelStack:"))
        .and_then(|l| l.trim().split(' ').next()?.parse().ok())
        .unwrap_or(0)
}

/// Ten times the workers are ten times the cost.
fn growth(report: &mut Report, sizes: &[usize]) {
    if sizes.contains(&100) && sizes.contains(&1000) {
        for handler in wire::HANDLERS {
            for kind in KINDS {
                let of = |workers| row(handler, workers, kind, CPU);
                let limit = (kind == "podprobe").then_some(1.1);
                report.ratio(
                    &format!("{handler} {kind}: CPU of a probe, 1000 / 100 workers"),
                    &of(1000),
                    &of(100),
                    limit,
                );
            }
        }
    }
}

/// This program in a role; ends with the value.
struct Role {
    child: Child,
    ask: Option<ChildStdin>,
    said: BufReader<ChildStdout>,
}

impl Role {
    fn start(args: &[&str]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let mut child = command
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (ask, said) = (
            child.stdin.take(),
            BufReader::new(child.stdout.take().unwrap()),
        );
        Self { child, ask, said }
    }

    fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}"))
    }

    fn ask(&mut self) -> Value {
        writeln!(self.ask.as_mut().unwrap()).unwrap();
        self.line()
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        drop(self.ask.take());
        let _ = self.child.wait();
    }
}
