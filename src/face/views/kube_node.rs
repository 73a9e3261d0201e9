//! The metrics of the node, under the names of kube-state-metrics.
//!
//! Invariants: pure. An unknown value has no series.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::base::metrics::{Family, Kind, pairs};

/// The facts about the node for its metrics.
#[derive(Clone, Debug)]
pub struct NodeState<'a> {
    /// The node's name.
    pub name: &'a str,
    /// The node's address, which pods with hostNetwork have too.
    pub ip: IpAddr,
    /// The kernel's release, as `uname -r` prints it.
    pub kernel: &'a str,
    /// The value of `PRETTY_NAME` in os-release.
    pub os: &'a str,
    /// True if pods can be run and restarted on the node.
    pub is_ready: bool,
    /// True if no new pods start on the node.
    pub is_unschedulable: bool,
    /// Processors of the node in thousandths of a processor; 0 means unknown.
    pub cpu_milli: i64,
    /// Memory of the node in bytes, huge pages included; 0 means unknown.
    pub memory: i64,
    /// Huge pages of the node in bytes, by resource.
    pub huge_pages: &'a BTreeMap<String, i64>,
    /// Size in bytes of the file system with volumes and containers; None if it is unknown.
    pub disk: Option<u64>,
    /// The value of `maxPods`.
    pub max_pods: usize,
}

/// Appends the metric families of the node.
pub fn write_node(node: &NodeState<'_>, out: &mut String) {
    let version = concat!("v", env!("CARGO_PKG_VERSION"));
    let ip = node.ip.to_string();
    let runtime = concat!("podprobe://", env!("CARGO_PKG_VERSION"));
    gauge(out, "kube_node_info", "Information about a cluster node.").value(
        &[
            ("container_runtime_version", runtime),
            ("internal_ip", &ip),
            ("kernel_version", node.kernel),
            ("kubelet_version", version),
            ("node", node.name),
            ("os_image", node.os),
        ],
        1,
    );
    let help = "Whether a node can schedule new pods.";
    gauge(out, "kube_node_spec_unschedulable", help)
        .value(&[("node", node.name)], node.is_unschedulable.into());
    let help = "The condition of a cluster node.";
    let mut family = gauge(out, "kube_node_status_condition", help);
    for (status, is) in [
        ("true", node.is_ready),
        ("false", !node.is_ready),
        ("unknown", false),
    ] {
        let labels = [
            ("condition", "Ready"),
            ("node", node.name),
            ("status", status),
        ];
        family.value(&labels, is.into());
    }
    let pages = node.huge_pages.values();
    let pages = pages.fold(0, |all: i64, size| all.saturating_add(*size));
    let allocatable = node.memory.saturating_sub(pages).max(0);
    let help = "The total amount of resources available for a node.";
    write_resources("kube_node_status_capacity", help, node, node.memory, out);
    let help =
        "The amount of resources allocatable for pods (after reserving some for system daemons).";
    write_resources("kube_node_status_allocatable", help, node, allocatable, out);
}

fn gauge<'a>(out: &'a mut String, name: &'a str, help: &'a str) -> Family<'a> {
    Family::new(out, name, Kind::Gauge, help)
}

fn write_resources(name: &str, help: &str, node: &NodeState<'_>, memory: i64, out: &mut String) {
    let mut family = gauge(out, name, help);
    let mut write = |resource: &str, unit: &str, amount: f64| {
        let labels = [("node", node.name), ("resource", resource), ("unit", unit)];
        family.real_of(&[&pairs(&labels)], amount);
    };
    if node.cpu_milli > 0 {
        write("cpu", "core", node.cpu_milli as f64 / 1000.0);
    }
    if let Some(disk) = node.disk {
        write("ephemeral_storage", "byte", disk as f64);
    }
    for (resource, bytes) in node.huge_pages {
        write(&resource.replace('-', "_"), "byte", *bytes as f64);
    }
    if node.memory > 0 {
        write("memory", "byte", memory as f64);
    }
    write("pods", "integer", node.max_pods as f64);
}

/// Returns the value of `PRETTY_NAME` in /etc/os-release; empty if the file has no such value.
pub fn os_name(os_release: &str) -> &str {
    let mut lines = os_release.lines();
    let value = lines.find_map(|line| line.strip_prefix("PRETTY_NAME="));
    value.unwrap_or_default().trim().trim_matches('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_is_written_as_kube_state_metrics_does() {
        let huge_pages = BTreeMap::from([("hugepages-2Mi".to_owned(), 4 << 20)]);
        let node = NodeState {
            name: "edge",
            ip: [192, 0, 2, 1].into(),
            kernel: "6.1.0",
            os: os_name("ID=x\nPRETTY_NAME=\"Some Linux 1\"\n"),
            is_ready: true,
            is_unschedulable: false,
            cpu_milli: 1500,
            memory: 64 << 20,
            huge_pages: &huge_pages,
            disk: Some(1 << 30),
            max_pods: 110,
        };
        let mut out = String::new();
        write_node(&node, &mut out);
        let version = env!("CARGO_PKG_VERSION");
        for line in [
            &*format!(
                "kube_node_info{{container_runtime_version=\"podprobe://{version}\",internal_ip=\"192.0.2.1\",kernel_version=\"6.1.0\",\
                 kubelet_version=\"v{version}\",node=\"edge\",os_image=\"Some Linux 1\"}} 1"
            ),
            "kube_node_spec_unschedulable{node=\"edge\"} 0",
            "kube_node_status_condition{condition=\"Ready\",node=\"edge\",status=\"true\"} 1",
            "kube_node_status_condition{condition=\"Ready\",node=\"edge\",status=\"false\"} 0",
            "kube_node_status_capacity{node=\"edge\",resource=\"cpu\",unit=\"core\"} 1.5",
            "kube_node_status_capacity{node=\"edge\",resource=\"memory\",unit=\"byte\"} 67108864",
            "kube_node_status_allocatable{node=\"edge\",resource=\"memory\",unit=\"byte\"} 62914560",
            "kube_node_status_allocatable{node=\"edge\",resource=\"hugepages_2Mi\",unit=\"byte\"} 4194304",
            "kube_node_status_allocatable{node=\"edge\",resource=\"ephemeral_storage\",unit=\"byte\"} 1073741824",
            "kube_node_status_allocatable{node=\"edge\",resource=\"pods\",unit=\"integer\"} 110",
        ] {
            assert!(out.lines().any(|l| l == line), "{line} in\n{out}");
        }
        let unknown = NodeState {
            cpu_milli: 0,
            memory: 0,
            disk: None,
            is_ready: false,
            is_unschedulable: true,
            ..node
        };
        let mut out = String::new();
        write_node(&unknown, &mut out);
        assert!(!out.contains("resource=\"cpu\"") && !out.contains("resource=\"memory\""));
        assert!(out.contains("condition=\"Ready\",node=\"edge\",status=\"false\"} 1"));
        assert!(out.contains("kube_node_spec_unschedulable{node=\"edge\"} 1"));
    }
}
