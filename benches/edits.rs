//! The file of a pod with a host port is changed → the new container runs → the port leads to it; the file of the one pod of a full
//! node is renamed → the pod with the new name runs. On the bridge. `RUNS` samples each (default 20).
//!
//! Both wait until what was there before is gone: its port and its place on the node are needed. Each is to come back within two
//! seconds, every time.

mod support;

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};
use support::figures::Report;
use support::node::{Node, pod};
use support::{ms_between, unix_ns, wait_until};

const PORT: u16 = 18_080;
/// The node's own address in podCIDR.
const GATEWAY: [u8; 4] = [10, 249, 0, 1];
/// Milliseconds.
const LIMIT: f64 = 2000.0;

fn main() {
    support::begin();
    let runs = support::setting("RUNS", 20);
    let mut report = Report::new("edits");
    // A node with room for one pod.
    let config = json!({"maxPods": 1, "podCIDR": "10.249.0.0/24"});
    let node = Node::start_with("embedded", &config, &[]);
    let at = SocketAddr::from((GATEWAY, PORT));
    edit(&mut Report::new("the first start"), &node, 0, at);
    let (mut edited, mut renamed) = (Vec::new(), Vec::new());
    for n in 1..=runs {
        edited.push(edit(&mut report, &node, n, at));
    }
    let mut name = "edited".to_owned();
    for n in 1..=runs {
        let to = format!("renamed-{n}");
        renamed.push(rename(&mut report, &node, &name, &to));
        name = to;
    }
    for (what, times) in [
        ("edits of a pod with a host port", edited),
        ("renames", renamed),
    ] {
        let in_time = times.iter().filter(|ms| **ms <= LIMIT).count();
        let longest = times.iter().copied().fold(0.0, f64::max);
        let found = format!("{in_time} of {runs} within 2 s; the longest took {longest:.0} ms");
        report.check(what, in_time == runs, found);
    }
    report.finish();
    assert!(report.all_hold());
}

/// The pod, whose container of this number writes a file of its own.
fn with_port(node: &Node, n: usize) -> Value {
    let mut pod = pod(node, &stamped(n), &[], json!({}));
    pod["metadata"]["name"] = "edited".into();
    let ports = json!([{"containerPort": 8080, "hostPort": PORT}]);
    pod["spec"]["containers"][0]["ports"] = ports;
    pod
}

fn stamped(n: usize) -> String {
    format!("edit-{n}")
}

/// Milliseconds until the port leads to the new container.
fn edit(report: &mut Report, node: &Node, n: usize, at: SocketAddr) -> f64 {
    let begun = node.add("edited", &with_port(node, n));
    let starts = || node.stamps(&stamped(n), "start");
    wait_until("the new container", || !starts().is_empty());
    wait_until("the host port", || {
        TcpStream::connect_timeout(&at, Duration::from_millis(100)).is_ok()
    });
    let answered = ms_between(begun, unix_ns());
    let runs = ms_between(begun, starts()[0]);
    report.add("host port: file changed → runs", "ms", None, runs);
    report.add("host port: file changed → answers", "ms", None, answered);
    answered
}

/// Milliseconds until the pod with the new name runs.
fn rename(report: &mut Report, node: &Node, from: &str, to: &str) -> f64 {
    let pods = node.layout.pods_dir();
    fs::remove_file(pods.join(format!("{from}.json"))).unwrap();
    let begun = node.add(to, &pod(node, to, &[], json!({})));
    let starts = || node.stamps(to, "start");
    wait_until("the pod with the new name", || !starts().is_empty());
    let runs = ms_between(begun, starts()[0]);
    report.add("full node: file renamed → runs", "ms", None, runs);
    runs
}
