//! The file of a pod with a host port is changed → the new container runs → the port leads to it; the file of the one pod of a full
//! node is renamed → the pod with the new name runs. On the bridge. `RUNS` samples each (default 20).
//!
//! Both wait until what was there before is gone: its port and its place on the node are needed. A changed pod is to be back within
//! two seconds, every time; the room of a pod that has gone is given away by the next housekeeping, within two seconds more.

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
/// Seconds until a changed pod is back, and one with another name runs.
const LIMITS: [f64; 2] = [2.0, 4.0];

fn main() {
    support::begin();
    let runs = support::setting("RUNS", 20);
    let mut report = Report::new("edits");
    // A node with room for one pod.
    let config = json!({"maxPods": 1, "podCIDR": "10.249.0.0/24"});
    let node = Node::start_with("embedded", &config, &[]);
    edit(&mut Report::new("the first start"), &node, 0);
    let (mut edited, mut renamed) = (Vec::new(), Vec::new());
    for n in 1..=runs {
        edited.push(edit(&mut report, &node, n));
    }
    let mut name = "edited".to_owned();
    for n in 1..=runs {
        let to = format!("renamed-{n}");
        renamed.push(rename(&mut report, &node, &name, &to));
        name = to;
    }
    for (what, times, limit) in [
        ("edits of a pod with a host port", edited, LIMITS[0]),
        ("renames on a full node", renamed, LIMITS[1]),
    ] {
        let in_time = times.iter().filter(|ms| **ms <= 1000.0 * limit).count();
        let longest = times.iter().copied().fold(0.0, f64::max);
        let found =
            format!("{in_time} of {runs} within {limit} s; the longest took {longest:.0} ms");
        report.check(what, in_time == runs, found);
    }
    report.finish();
    assert!(report.all_hold());
}

/// A pod with the host port, whose container writes that file.
fn with_port(node: &Node, name: &str, stamps: &str) -> Value {
    let mut pod = pod(node, stamps, &[], json!({}));
    pod["metadata"]["name"] = name.into();
    let ports = json!([{"containerPort": 8080, "hostPort": PORT}]);
    pod["spec"]["containers"][0]["ports"] = ports;
    pod
}

/// Waits until the container has started and listens: before, it would not heed the end of the next sample.
fn wait_for_target(node: &Node, stamps: &str) {
    wait_until("the new container", || {
        !node.stamps(stamps, "start").is_empty()
    });
    wait_until("the host port", || {
        let at = SocketAddr::from((GATEWAY, PORT));
        TcpStream::connect_timeout(&at, Duration::from_millis(100)).is_ok()
    });
}

/// Milliseconds until the port leads to the new container.
fn edit(report: &mut Report, node: &Node, n: usize) -> f64 {
    let stamps = format!("edit-{n}");
    let begun = node.add("edited", &with_port(node, "edited", &stamps));
    wait_for_target(node, &stamps);
    let answered = ms_between(begun, unix_ns());
    let runs = ms_between(begun, node.stamps(&stamps, "start")[0]);
    report.add("host port: file changed → runs", "ms", None, runs);
    report.add("host port: file changed → answers", "ms", None, answered);
    answered
}

/// Milliseconds until the pod with the new name runs.
fn rename(report: &mut Report, node: &Node, from: &str, to: &str) -> f64 {
    let pods = node.layout.pods_dir();
    fs::remove_file(pods.join(format!("{from}.json"))).unwrap();
    let begun = node.add(to, &with_port(node, to, to));
    wait_for_target(node, to);
    let runs = ms_between(begun, node.stamps(to, "start")[0]);
    report.add("full node: file renamed → runs", "ms", None, runs);
    runs
}
