//! What pods and the node use: processor time, memory, network and disk, for the kubelet's resource metrics, cAdvisor's, and
//! `/stats/summary` (kubelet-probes 11.2).
//!
//! Invariants: nothing is read unless somebody asks, and no thread takes samples. Pods are those of PLEG's last listing. What the
//! kernel does not tell is left out.

mod cadvisor;
mod disk;
pub mod parse;
mod rates;
mod read;
mod summary;
mod text;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

pub use cadvisor::cadvisor;
pub use disk::Disk;
pub use read::Reader;
pub use summary::{NodeFacts, Summary};
pub use text::resource;

use crate::base::clock::Moment;
use crate::base::locks::Locked;
use crate::engine::runtime::RuntimePodStatus;
use parse::{Cpu, Interface, Io, Memory, Throttling};
use rates::Rates;

/// Amount of detail that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Processor time and memory.
    CpuAndMemory,
    /// Limits and the network too.
    All,
}

/// Use and limits of a cgroup.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// Path of the cgroup in each hierarchy, which is cAdvisor's `id`; `/` for the node.
    pub id: String,
    /// Processor time; None where it is not counted.
    pub cpu: Option<Cpu>,
    /// Memory; None where it is not counted.
    pub memory: Option<Memory>,
    /// Throttling by the quota; None without a quota.
    pub throttling: Option<Throttling>,
    /// Limits and weights; None where they were not asked for.
    pub spec: Option<Spec>,
    /// Reads and writes by device; empty where they were not asked for or are not counted.
    pub io: Vec<Io>,
    /// Processes that the kernel has killed for want of memory.
    pub oom_kills: Option<u64>,
}

/// Limits and weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spec {
    /// Microseconds of processor time in a period; None without a quota.
    pub quota: Option<u64>,
    /// Microseconds of a period.
    pub period: Option<u64>,
    /// Processor weight as shares of cgroup v1, into which a weight of v2 is converted.
    pub shares: Option<u64>,
}

/// Use of a container that runs.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerUsage {
    /// Name of the container in the pod.
    pub name: String,
    /// Id of the container's instance.
    pub id: String,
    /// Image of the container, as in the pod.
    pub image: String,
    /// Time at which the container started.
    pub started: Option<SystemTime>,
    /// Use of the container's cgroup.
    pub usage: Usage,
    /// The directory of the container's logs.
    pub logs: Option<PathBuf>,
}

/// Resources that a running pod uses.
#[derive(Clone, Debug, PartialEq)]
pub struct PodUsage {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// UID of the pod.
    pub uid: String,
    /// Time at which the pod's sandbox was made.
    pub started: SystemTime,
    /// Use of all the pod's containers together.
    pub usage: Usage,
    /// Interfaces of the pod's own network; empty in the node's network and while nothing runs.
    pub network: Vec<Interface>,
    /// The pod's containers that run.
    pub containers: Vec<ContainerUsage>,
}

/// Use and limits of the node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeUsage {
    /// Use of the whole node.
    pub usage: Usage,
    /// Bytes of memory; 0 when they cannot be read.
    pub memory_capacity: u64,
    /// Processors that are online.
    pub processors: u64,
    /// Interfaces of the node's network, without the node's ends of its connections to pods.
    pub network: Vec<Interface>,
    /// The name of the interface that leads out; empty without one.
    pub default_interface: String,
    /// Time of the boot, in seconds since 1970.
    pub booted: Option<u64>,
    /// The most processes that there may be.
    pub max_pid: Option<u64>,
    /// Threads of all processes.
    pub threads: Option<u64>,
}

/// Everything that one ask has read.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Time at which the figures were read.
    pub at: SystemTime,
    /// Use of the node.
    pub node: NodeUsage,
    /// Use of the pods, in the order of namespace and name; one of each name.
    pub pods: Vec<PodUsage>,
}

/// The source of all figures, with what it remembers of the last ask.
pub struct Stats {
    reader: Reader,
    rates: Mutex<Rates>,
}

impl Stats {
    /// Makes a source of the figures that `reader` reads.
    pub fn new(reader: Reader) -> Self {
        Self {
            reader,
            rates: Mutex::default(),
        }
    }

    /// Reads the figures of the node and of these pods now.
    ///
    /// # Errors
    /// Returns the error of the read if the mounts of cgroups cannot be read.
    pub fn figures(
        &self,
        pods: &[Arc<RuntimePodStatus>],
        detail: Detail,
    ) -> std::io::Result<Figures> {
        self.reader.read(pods, detail, SystemTime::now())
    }

    /// Nanoseconds of processor time a second, by cgroup, since the last call.
    pub fn rates(&self, figures: &Figures, now: Moment) -> HashMap<String, u64> {
        let of_pod = |pod: &'_ PodUsage| {
            let containers = pod.containers.iter().map(|c| &c.usage);
            let all: Vec<_> = containers.chain([&pod.usage]).filter_map(used).collect();
            all
        };
        let pods = figures.pods.iter().flat_map(of_pod);
        let all = pods.chain(used(&figures.node.usage));
        let mut rates = self.rates.locked();
        rates.next(now, all)
    }
}

fn used(usage: &Usage) -> Option<(String, u64)> {
    Some((usage.id.clone(), usage.cpu?.usage))
}

#[cfg(test)]
mod tests;
