//! What idle pods cost: memory of the daemon, of each shim and of each sandbox holder, and processor time of all of them
//! over a quiet window. `PODS` pods (default 10) whose one process sleeps, without probes; `WINDOW` seconds (default 20).

mod support;

use std::time::{Duration, Instant};

use podprobe::runtime::state::Process;
use serde_json::json;
use support::figures::Report;
use support::node::{Node, pod};
use support::usage::{Memory, cpu, memory};

fn main() {
    support::begin();
    let (pods, window) = (support::setting("PODS", 10), Duration::from_secs(support::setting("WINDOW", 20) as u64));
    let node = Node::start("embedded");
    let mut watch = node.watch();
    for n in 0..pods {
        let name = format!("idle-{n}");
        node.add(&name, &pod(&node, &name, &["--port", "0"], json!({})));
    }
    watch.until("every pod to run", |s| s.pods.len() == pods && s.pods.iter().all(|p| p.status.is_ready()));
    drop(watch);
    // What starting has left (a last sync, the checkpoint) is over by then.
    std::thread::sleep(Duration::from_secs(3));
    let mut report = Report::new("idle");
    let [shims, _, holders] = node.processes();
    assert_eq!((shims.len(), holders.len()), (pods, pods));
    measure_cpu(&mut report, &node, &shims, &holders, window);
    // After the window: what the daemon touches each second is in memory then.
    let daemon_limit = if pods <= 10 { 8192.0 } else { 15360.0 };
    let roles = [("daemon", vec![node.daemon], daemon_limit), ("shim", shims, 1024.0), ("holder", holders, f64::INFINITY)];
    for (role, processes, target) in roles {
        processes.iter().map(|p| memory(p.pid)).for_each(|m| add_memory(&mut report, role, m, target));
    }
    report.note(format!("{pods} pods, {} s", window.as_secs()));
    report.finish();
}

fn add_memory(report: &mut Report, role: &str, m: Memory, target: f64) {
    let target = Some(target).filter(|t| t.is_finite());
    report.add(&format!("{role}: PSS"), "kB", target, m.pss as f64);
    report.add(&format!("{role}: private"), "kB", None, m.private as f64);
    report.add(&format!("{role}: RSS"), "kB", None, m.rss as f64);
}

fn measure_cpu(report: &mut Report, node: &Node, shims: &[Process], holders: &[Process], window: Duration) {
    let roles: [(&str, Vec<i32>); 3] = [("daemon", vec![node.daemon.pid]), ("shims", pids(shims)), ("holders", pids(holders))];
    let read = || roles.each_ref().map(|(_, pids)| pids.iter().map(|p| cpu(*p)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1)));
    let (begun, before) = (Instant::now(), read());
    std::thread::sleep(window);
    let (seconds, after) = (begun.elapsed().as_secs_f64(), read());
    // Thousandths of a core.
    let cores = |n: usize| (after[n].0 - before[n].0) as f64 / 1e6 / seconds;
    report.add("daemon and shims: processor", "mcore", Some(10.0), cores(0) + cores(1));
    for (n, (role, _)) in roles.iter().enumerate() {
        report.add(&format!("{role}: processor"), "mcore", None, cores(n));
        report.add(&format!("{role}: wake-ups a second"), "1/s", None, (after[n].1 - before[n].1) as f64 / seconds);
    }
}

fn pids(processes: &[Process]) -> Vec<i32> {
    processes.iter().map(|p| p.pid).collect()
}
