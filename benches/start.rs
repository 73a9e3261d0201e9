//! A pod file is renamed into place → its container runs → it is ready; beside runc's own create and start of an equal
//! bundle. Then: a liveness probe fails → the new container runs. `RUNS` samples each (default 8), interleaved.
//!
//! The container's first act is to write down the time, so "runs" is the first instruction of its own program (and not
//! what anybody says of it). "ready" is the arrival of the first snapshot with `Ready` True at a watching client. "fails"
//! is the moment the target answers the probe with 500.

mod support;

use std::fs;
use std::path::Path;

use podprobe::face::views::PodView;
use serde_json::{Value, json};
use support::figures::Report;
use support::node::{Node, pod, set_target, target_rootfs, view};
use support::runc::{self, Container};
use support::{ms_between, unix_ns};

fn main() {
    support::begin();
    let runs = support::setting("RUNS", 8);
    let runc = runc::find("runc");
    let mut nodes = vec![("embedded", Node::start("embedded"))];
    if let Some(path) = &runc {
        nodes.push(("on runc", Node::start(path.to_str().unwrap())));
    }
    let template = running_template(&nodes[0].1);
    let mut report = Report::new("start");
    for n in 0..=runs {
        // The first round warms the page cache and counts for nothing.
        let mut sink = Report::new("warm-up");
        let into = if n == 0 { &mut sink } else { &mut report };
        nodes
            .iter()
            .for_each(|(name, node)| start_one(into, name, node, n));
        if let Some(runtime) = &runc {
            start_bare(into, runtime, &nodes[0].1, &template, n);
        }
        nodes
            .iter()
            .for_each(|(name, node)| fail_one(into, name, node, n));
    }
    if runc.is_some() {
        report.ratio(
            "runs, embedded / runc create+start",
            "embedded: file renamed → runs",
            "runc create+start → runs",
            None,
        );
        report.ratio(
            "runs, on runc / runc create+start",
            "on runc: file renamed → runs",
            "runc create+start → runs",
            None,
        );
        report.ratio(
            "ready, embedded / runc create+start",
            "embedded: file renamed → ready",
            "runc create+start → runs",
            None,
        );
    } else {
        report.note("runc is not installed: nothing to compare with".into());
    }
    report.finish();
}

/// With a timeout so long that a busy machine is no failure.
fn http(path: &str) -> Value {
    json!({"httpGet": {"path": path, "port": 8080}, "periodSeconds": 1, "timeoutSeconds": 20, "failureThreshold": 1})
}

fn start_one(report: &mut Report, on: &str, node: &Node, n: usize) {
    let name = format!("start-{n}");
    let mut watch = node.watch();
    watch.until("the first snapshot", |_| true);
    let begun = node.add(
        &name,
        &pod(node, &name, &[], json!({"readinessProbe": http("/readyz")})),
    );
    let (_, ready) = watch.until("the pod to be ready", |s| {
        view(s, &name).is_some_and(|v| v.status.is_ready())
    });
    let runs = node.stamps(&name, "start")[0];
    report.add(
        &format!("{on}: file renamed → runs"),
        "ms",
        Some(60.0),
        ms_between(begun, runs),
    );
    report.add(
        &format!("{on}: file renamed → ready"),
        "ms",
        Some(100.0),
        ms_between(begun, ready),
    );
    node.remove(&name);
}

fn fail_one(report: &mut Report, on: &str, node: &Node, n: usize) {
    let name = format!("fail-{n}");
    let mut watch = node.watch();
    let mut liveness = http("/healthz");
    // The first probe must not be there before the target listens: one refusal is a restart.
    liveness["initialDelaySeconds"] = json!(1);
    node.add(
        &name,
        &pod(
            node,
            &name,
            &[],
            json!({"readinessProbe": http("/readyz"), "livenessProbe": liveness}),
        ),
    );
    let (snapshot, _) = watch.until("the pod to be ready", |s| {
        view(s, &name).is_some_and(|v| v.status.is_ready())
    });
    let (_, state) = node.container(view(&snapshot, &name).unwrap());
    set_target(state.process.unwrap(), "health=fail");
    let restarted =
        |v: &PodView| v.status.is_ready() && v.status.container_statuses[0].restart_count > 0;
    let (snapshot, _) = watch.until("the restart", |s| view(s, &name).is_some_and(restarted));
    let (failed, again) = (node.stamps(&name, "fail"), node.stamps(&name, "start"));
    let events = || serde_json::to_string(&view(&snapshot, &name).unwrap().events).unwrap();
    assert!(
        failed.len() == 1 && again.len() == 2,
        "it was not restarted because it answered 500: {}",
        events()
    );
    report.add(
        &format!("{on}: liveness fails → new container runs"),
        "ms",
        Some(50.0),
        ms_between(failed[0], again[1]),
    );
    node.remove(&name);
}

/// The configuration of a container of ours, for runc to make one like it. The pod stays, and with it the files that are
/// mounted.
fn running_template(node: &Node) -> Value {
    node.add("template", &pod(node, "template", &[], json!({})));
    let (snapshot, _) = node.watch().until("the template to run", |s| {
        view(s, "template").is_some_and(|v| v.status.is_ready())
    });
    let (dir, _) = node.container(view(&snapshot, "template").unwrap());
    let mut config: Value =
        serde_json::from_slice(&fs::read(dir.join("bundle/config.json")).unwrap()).unwrap();
    for namespace in config["linux"]["namespaces"].as_array_mut().unwrap() {
        namespace.as_object_mut().unwrap().remove("path");
    }
    config
}

fn start_bare(report: &mut Report, runtime: &Path, node: &Node, template: &Value, n: usize) {
    let name = format!("bare-{n}");
    let text = template
        .to_string()
        .replace("/bench/template", &format!("/bench/{name}"));
    let copy = |root: &Path| {
        fs::copy(
            target_rootfs().join("probe-target"),
            root.join("probe-target"),
        )
        .unwrap();
    };
    let container = Container::new(runtime, &name, serde_json::from_str(&text).unwrap(), copy);
    let begun = unix_ns();
    container.start().unwrap();
    let started = unix_ns();
    support::wait_until("the container's first act", || {
        !node.stamps(&name, "start").is_empty()
    });
    report.add(
        "runc create+start → runs",
        "ms",
        None,
        ms_between(begun, node.stamps(&name, "start")[0]),
    );
    report.add(
        "runc create+start → returns",
        "ms",
        None,
        ms_between(begun, started),
    );
}
