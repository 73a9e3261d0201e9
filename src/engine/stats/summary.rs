//! Makes the object of `/stats/summary`: the kubelet's `v1alpha1` Summary, with the kubelet's names of fields.
//!
//! Invariants: pure. Unknown figures are left out. Volumes, file systems of containers and ephemeral storage are left
//! out too, because they would have to be counted file by file.

use std::collections::HashMap;
use std::time::SystemTime;

use serde::Serialize;

use super::parse::{Cpu, Interface, Memory};
use super::{ContainerUsage, Disk, Figures, NodeUsage, PodUsage, Usage};
use crate::base::clock::Time;

/// Facts about the node that [`Figures`] does not hold.
#[derive(Clone, Debug, Default)]
pub struct NodeFacts {
    /// Name of the node (`nodeName`).
    pub name: String,
    /// File system that holds /var/lib/podprobe.
    pub fs: Option<Disk>,
    /// Size of all images in bytes. The images lie on the file system `fs`.
    pub images: Option<u64>,
    /// File system that holds the logs of containers.
    pub logs: Option<Disk>,
    /// Size in bytes of each container's logs. The key is the id of the container's instance.
    pub log_bytes: HashMap<String, u64>,
}

/// The Summary object, ready to be written as JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    node: NodeStats,
    pods: Vec<PodStats>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeStats {
    node_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_time: Option<Time>,
    #[serde(flatten)]
    usage: UsageStats,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<NetworkStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fs: Option<FsStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    runtime: Option<RuntimeStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rlimit: Option<RlimitStats>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RuntimeStats {
    image_fs: FsStats,
}

#[derive(Clone, Debug, Serialize)]
struct RlimitStats {
    time: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    maxpid: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    curproc: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PodStats {
    pod_ref: PodReference,
    start_time: Time,
    containers: Vec<ContainerStats>,
    #[serde(flatten)]
    usage: UsageStats,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<NetworkStats>,
}

#[derive(Clone, Debug, Serialize)]
struct PodReference {
    name: String,
    namespace: String,
    uid: String,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ContainerStats {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_time: Option<Time>,
    #[serde(flatten)]
    usage: UsageStats,
    #[serde(skip_serializing_if = "Option::is_none")]
    logs: Option<FsStats>,
}

#[derive(Clone, Debug, Serialize)]
struct UsageStats {
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<CpuStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<MemoryStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    swap: Option<SwapStats>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CpuStats {
    time: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage_nano_cores: Option<u64>,
    usage_core_nano_seconds: u64,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct MemoryStats {
    time: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    available_bytes: Option<u64>,
    usage_bytes: u64,
    working_set_bytes: u64,
    rss_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    page_faults: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    major_page_faults: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SwapStats {
    time: Time,
    swap_usage_bytes: u64,
}

#[derive(Clone, Debug, Serialize)]
struct NetworkStats {
    time: Time,
    #[serde(flatten)]
    default: InterfaceStats,
    interfaces: Vec<InterfaceStats>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct InterfaceStats {
    name: String,
    rx_bytes: u64,
    rx_errors: u64,
    tx_bytes: u64,
    tx_errors: u64,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct FsStats {
    time: Time,
    available_bytes: u64,
    capacity_bytes: u64,
    used_bytes: u64,
    inodes_free: u64,
    inodes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    inodes_used: Option<u64>,
}

impl Summary {
    /// Makes the Summary. `rates` has the nanoseconds of processor time that each cgroup uses per second.
    pub fn new(figures: &Figures, rates: &HashMap<String, u64>, node: &NodeFacts) -> Self {
        let at = Writer {
            time: figures.at.into(),
            rates,
            facts: node,
        };
        Self {
            node: at.node(&figures.node),
            pods: figures.pods.iter().map(|pod| at.pod(pod)).collect(),
        }
    }
}

struct Writer<'a> {
    time: Time,
    rates: &'a HashMap<String, u64>,
    facts: &'a NodeFacts,
}

impl Writer<'_> {
    fn node(&self, node: &NodeUsage) -> NodeStats {
        let mut usage = self.usage(&node.usage);
        if let Some(memory) = &mut usage.memory {
            let available = node.memory_capacity.checked_sub(memory.working_set_bytes);
            memory.available_bytes = available;
        }
        let booted = node.booted.map(std::time::Duration::from_secs);
        let images = self.facts.images.zip(self.facts.fs);
        let has_limits = node.max_pid.or(node.threads).is_some();
        NodeStats {
            node_name: self.facts.name.clone(),
            start_time: booted.map(|t| (SystemTime::UNIX_EPOCH + t).into()),
            usage,
            network: self.network(&node.network, &node.default_interface),
            fs: self.facts.fs.map(|disk| self.fs(disk)),
            runtime: images.map(|(used, disk)| RuntimeStats {
                image_fs: self.part_of(disk, used),
            }),
            rlimit: has_limits.then_some(RlimitStats {
                time: self.time,
                maxpid: node.max_pid,
                curproc: node.threads,
            }),
        }
    }

    fn pod(&self, pod: &PodUsage) -> PodStats {
        PodStats {
            pod_ref: PodReference {
                name: pod.name.clone(),
                namespace: pod.namespace.clone(),
                uid: pod.uid.clone(),
            },
            start_time: pod.started.into(),
            containers: pod.containers.iter().map(|c| self.container(c)).collect(),
            usage: self.usage(&pod.usage),
            network: self.network(&pod.network, "eth0"),
        }
    }

    fn container(&self, container: &ContainerUsage) -> ContainerStats {
        let used = self.facts.log_bytes.get(&container.id);
        ContainerStats {
            name: container.name.clone(),
            start_time: container.started.map(Time::from),
            usage: self.usage(&container.usage),
            logs: used
                .zip(self.facts.logs)
                .map(|(used, disk)| self.part_of(disk, *used)),
        }
    }

    fn usage(&self, usage: &Usage) -> UsageStats {
        let swap = usage.memory.and_then(|m| m.swap);
        UsageStats {
            cpu: usage.cpu.map(|cpu| self.cpu(cpu, &usage.id)),
            memory: usage.memory.map(|m| self.memory(m)),
            swap: swap.map(|bytes| SwapStats {
                time: self.time,
                swap_usage_bytes: bytes,
            }),
        }
    }

    fn cpu(&self, cpu: Cpu, id: &str) -> CpuStats {
        CpuStats {
            time: self.time,
            usage_nano_cores: self.rates.get(id).copied(),
            usage_core_nano_seconds: cpu.usage,
        }
    }

    fn memory(&self, m: Memory) -> MemoryStats {
        MemoryStats {
            time: self.time,
            available_bytes: m.limit.map(|l| l.saturating_sub(m.working_set)),
            usage_bytes: m.usage,
            working_set_bytes: m.working_set,
            rss_bytes: m.rss,
            page_faults: m.page_faults,
            major_page_faults: m.major_page_faults,
        }
    }

    /// Returns the figures of all interfaces. The default interface of the result is the interface called `default`. If
    /// there is no such interface, it is the first one. Returns None if there are no interfaces.
    fn network(&self, interfaces: &[Interface], default: &str) -> Option<NetworkStats> {
        let all: Vec<InterfaceStats> = interfaces.iter().map(interface).collect();
        let named = all.iter().find(|i| i.name == default);
        Some(NetworkStats {
            time: self.time,
            default: named.or(all.first())?.clone(),
            interfaces: all,
        })
    }

    fn fs(&self, disk: Disk) -> FsStats {
        FsStats {
            time: self.time,
            available_bytes: disk.available,
            capacity_bytes: disk.capacity,
            used_bytes: disk.used,
            inodes_free: disk.inodes_free,
            inodes: disk.inodes,
            inodes_used: disk.inodes.checked_sub(disk.inodes_free),
        }
    }

    /// Returns the figures of a file system for a pod, a container or another user of it that takes `used` bytes.
    fn part_of(&self, disk: Disk, used: u64) -> FsStats {
        FsStats {
            used_bytes: used,
            inodes_used: None,
            ..self.fs(disk)
        }
    }
}

fn interface(i: &Interface) -> InterfaceStats {
    InterfaceStats {
        name: i.name.clone(),
        rx_bytes: i.rx.bytes,
        rx_errors: i.rx.errors,
        tx_bytes: i.tx.bytes,
        tx_errors: i.tx.errors,
    }
}
