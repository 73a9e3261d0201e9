//! The pods of the soak: 25 × 4 containers × 3 probes. Every kind of handler does every type of probe.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::node::{IMAGE, Node};

pub(crate) const PODS: usize = 25;
pub(crate) const CONTAINERS: usize = 4;
/// Probes, and so workers, when all containers run.
pub(crate) const PROBES: usize = PODS * CONTAINERS * 3;
/// The longest period of a probe here, in seconds.
pub(crate) const LONGEST_PERIOD: u64 = 2;

const KINDS: [&str; 4] = ["exec", "http", "tcp", "grpc"];
/// Probe, what it asks for, and its place among the ports of a container.
const TYPES: [(&str, &str, usize); 3] = [
    ("startupProbe", "start", 0),
    ("readinessProbe", "ready", 1),
    ("livenessProbe", "health", 2),
];

pub(crate) fn pod_name(pod: usize) -> String {
    format!("soak-{pod}")
}

pub(crate) fn container_name(container: usize) -> String {
    format!("c{container}")
}

/// A container's http port; grpc and the three of tcp follow.
pub(crate) fn port(container: usize) -> u16 {
    8080 + 10 * container as u16
}

/// Where a container writes its starts and ends; relative to the node's shared directory.
pub(crate) fn stamps(pod: usize, container: usize) -> String {
    format!("{}-{}", pod_name(pod), container_name(container))
}

/// While it is there, every target behaves.
pub(crate) fn calm_file(node: &Node) -> PathBuf {
    node.shared.join("calm")
}

pub(crate) fn pod(node: &Node, seed: usize, pod: usize) -> Value {
    let containers: Vec<Value> = (0..CONTAINERS).map(|c| container(seed, pod, c)).collect();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod_name(pod)}, "spec": {"terminationGracePeriodSeconds": 1,
        "volumes": [{"name": "bench", "hostPath": {"path": node.shared}}], "containers": containers}})
}

fn container(seed: usize, pod: usize, container: usize) -> Value {
    let port = port(container);
    let [grpc, start, ready, health] = [1, 2, 3, 4].map(|n| (port + n).to_string());
    let chaos = (seed * 1000 + pod * CONTAINERS + container).to_string();
    let stamps = format!("/bench/{}", stamps(pod, container));
    let mut object = json!({"name": container_name(container), "image": IMAGE, "imagePullPolicy": "Never",
        "command": ["/probe-target", "--stamp", stamps, "--port", port.to_string(), "--grpc-port", grpc, "--start-port", start,
            "--ready-port", ready, "--health-port", health, "--chaos", chaos, "--calm", "/bench/calm"],
        "volumeMounts": [{"name": "bench", "mountPath": "/bench"}]});
    for (n, (probe, of, place)) in TYPES.iter().enumerate() {
        object[probe] = merged(
            handler(KINDS[(pod + container + n) % 4], of, port, *place),
            numbers(pod, container, n),
        );
    }
    object
}

fn handler(kind: &str, of: &str, port: u16, place: usize) -> Value {
    let path = ["/startz", "/readyz", "/healthz"][place];
    match kind {
        "exec" => {
            json!({"exec": {"command": ["/probe-target", "--check", path, "--port", port.to_string()]}})
        }
        "http" => json!({"httpGet": {"path": path, "port": port}}),
        "tcp" => json!({"tcpSocket": {"port": port + 2 + place as u16}}),
        _ => json!({"grpc": {"port": port + 1, "service": of}}),
    }
}

/// Of every third pod in milliseconds; thresholds that differ.
fn numbers(pod: usize, container: usize, of: usize) -> Value {
    let mut numbers = match (pod % 3, of) {
        (0, _) => json!({"periodMilliseconds": 700, "timeoutMilliseconds": 500}),
        (1, 2) => json!({"periodSeconds": LONGEST_PERIOD, "timeoutSeconds": 1}),
        _ => json!({"periodSeconds": 1, "timeoutSeconds": 1}),
    };
    numbers["failureThreshold"] = json!([5, 1 + (pod + container) % 3, 2][of]);
    if of == 1 {
        numbers["successThreshold"] = json!(1 + container % 2);
    }
    numbers
}

fn merged(mut a: Value, b: Value) -> Value {
    a.as_object_mut()
        .unwrap()
        .extend(b.as_object().unwrap().clone());
    a
}
