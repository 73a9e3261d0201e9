//! Facts about the node: what the Node object is made from.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// The facts about the machine and the daemon's configuration that the Node object tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFacts {
    /// The name of the Node: the name in the certificate, `system:node:NAME`.
    pub name: String,
    /// The name of the machine, or its override: the label `kubernetes.io/hostname` and the address `Hostname`.
    pub hostname: String,
    /// The addresses at which the API server reaches the node, the preferred one first.
    pub addresses: Vec<String>,
    /// The operating system in Go's word, `linux`.
    pub operating_system: String,
    /// The architecture in Go's word, such as `amd64`.
    pub architecture: String,
    /// The release of the kernel.
    pub kernel_version: String,
    /// The name of the distribution.
    pub os_image: String,
    /// The id of the installation, from `/etc/machine-id`.
    pub machine_id: String,
    /// The id of the machine, as its firmware or hypervisor gives it.
    pub system_uuid: String,
    /// The id of this boot.
    pub boot_id: String,
    /// The runtime and its version, such as `podprobe://0.1.0`.
    pub container_runtime_version: String,
    /// The version that the cluster takes for the kubelet's, such as `v1.36.2`.
    pub kubelet_version: String,
    /// The port of the server for logs, exec and the like.
    pub port: u16,
    /// The resources of the machine.
    pub capacity: Resources,
    /// The part of the resources that pods may request.
    pub allocatable: Resources,
    /// The images in the store.
    pub images: Vec<NodeImage>,
    /// The features that the node declares, such as [`EXTEND_WEB_SOCKETS`].
    pub declared_features: Vec<String>,
    /// The labels from the configuration (`nodeLabels`).
    pub labels: BTreeMap<String, String>,
    /// The taints from the configuration.
    pub taints: Vec<Taint>,
}

/// The feature by which the API server hands WebSockets of exec and attach on to the node as they are.
pub const EXTEND_WEB_SOCKETS: &str = "ExtendWebSocketsToKubelet";

/// Amounts of what the node has or what pods may request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// Thousandths of a cpu.
    pub cpu_millis: u64,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes on the disk of the daemon.
    pub ephemeral_storage: u64,
    /// Number of pods.
    pub pods: u64,
    /// Bytes in huge pages, by the size of a page in bytes.
    pub huge_pages: BTreeMap<u64, u64>,
}

/// The beginning of the name of a resource of huge pages.
pub(super) const HUGE_PAGES: &str = "hugepages-";

impl Resources {
    /// The amounts as quantities, by the names of the resources.
    pub(super) fn quantities(&self) -> Map<String, Value> {
        let mut all = Map::new();
        let mut add = |name: &str, quantity: String| all.insert(name.to_owned(), quantity.into());
        add("cpu", decimal_millis(self.cpu_millis));
        add("ephemeral-storage", binary(self.ephemeral_storage));
        for (size, bytes) in &self.huge_pages {
            add(&format!("{HUGE_PAGES}{}", binary(*size)), binary(*bytes));
        }
        add("memory", binary(self.memory));
        add("pods", decimal(self.pods));
        all
    }
}

/// An image in the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeImage {
    /// The id of the image.
    pub id: String,
    /// References with a digest.
    pub digests: Vec<String>,
    /// References with a tag.
    pub tags: Vec<String>,
    /// Size in bytes.
    pub size: u64,
}

/// A taint: pods that do not tolerate it are not scheduled to the node, or do not stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// Name of the taint.
    pub key: String,
    /// Value, or empty.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// Writes bytes as the API server does: with the largest of the suffixes Ki, Mi, … that leaves a whole number.
fn binary(bytes: u64) -> String {
    with_suffix(bytes, 1024, &["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"])
}

/// Writes a number as the API server does: with the largest of the suffixes k, M, … that leaves a whole number.
fn decimal(number: u64) -> String {
    with_suffix(number, 1000, &["", "k", "M", "G", "T", "P", "E"])
}

fn decimal_millis(millis: u64) -> String {
    match millis % 1000 {
        0 => decimal(millis / 1000),
        _ => format!("{millis}m"),
    }
}

fn with_suffix(mut number: u64, base: u64, suffixes: &[&str]) -> String {
    let mut step = 0;
    while number != 0 && number.is_multiple_of(base) && step + 1 < suffixes.len() {
        number /= base;
        step += 1;
    }
    format!("{number}{}", suffixes[step])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_written_as_the_api_server_stores_them() {
        let bytes = [0, 1000, 1024, 24_731_272 << 10, 8 << 30, 267_847_642_337];
        assert_eq!(
            bytes.map(binary),
            ["0", "1000", "1Ki", "24731272Ki", "8Gi", "267847642337"]
        );
        assert_eq!([0, 200, 1000].map(decimal), ["0", "200", "1k"]);
        assert_eq!([500, 2000].map(decimal_millis), ["500m", "2"]);
    }
}
