//! Figures about the resources that pods and the node use: processor time, memory, network and disk. The figures are
//! for the kubelet's resource metrics, cAdvisor's metrics, and `/stats/summary` (kubelet-probes 11.2).
//!
//! Invariants: files are read only for a request, and no thread takes samples. The pods are those in the last listing
//! of PLEG. Figures that the kernel does not give are left out.

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

/// The amount of detail in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Only processor time and memory.
    CpuAndMemory,
    /// All figures: processor time, memory, limits, throttling, devices and the network.
    All,
}

/// Use and limits of a cgroup, or of the node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// Path of the cgroup in each hierarchy, which cAdvisor calls `id`. `/` means the node.
    pub id: String,
    /// Processor time; None if the kernel does not count it.
    pub cpu: Option<Cpu>,
    /// Memory; None if the kernel does not count it.
    pub memory: Option<Memory>,
    /// Throttling by the processor quota. None if there is no quota, or if the request was not for [`Detail::All`].
    pub throttling: Option<Throttling>,
    /// Processor limits and weights; None if the request was not for [`Detail::All`].
    pub spec: Option<Spec>,
    /// Reads and writes for each block device. Empty if the request was not for [`Detail::All`], or if the kernel does
    /// not count them.
    pub io: Vec<Io>,
    /// Number of processes that the kernel has killed because of too little memory. None if the request was not for
    /// [`Detail::All`], or if the kernel does not count them.
    pub oom_kills: Option<u64>,
}

/// Processor limits and weights of a cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spec {
    /// Microseconds of processor time that the cgroup may use in each period; None if there is no quota.
    pub quota: Option<u64>,
    /// Length of a period in microseconds.
    pub period: Option<u64>,
    /// Processor weight of the cgroup, as shares of cgroup v1. A weight of v2 is converted into shares.
    pub shares: Option<u64>,
}

/// Resources that a running container uses.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerUsage {
    /// Name of the container in the pod.
    pub name: String,
    /// Id of the container's instance.
    pub id: String,
    /// Image of the container, as in the pod's spec.
    pub image: String,
    /// Time at which the container started.
    pub started: Option<SystemTime>,
    /// Resources that the container's cgroup uses.
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
    /// Resources that all the pod's containers use together.
    pub usage: Usage,
    /// Interfaces of the pod's own network. Empty if the pod uses the node's network, or if no container of the pod
    /// runs.
    pub network: Vec<Interface>,
    /// The pod's containers that are running.
    pub containers: Vec<ContainerUsage>,
}

/// Resources that the node uses, and its limits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeUsage {
    /// Resources that the whole node uses.
    pub usage: Usage,
    /// Size of the memory in bytes; 0 if it cannot be read.
    pub memory_capacity: u64,
    /// Number of processors that are online.
    pub processors: u64,
    /// Interfaces of the node's network, without the node's ends of the connections to pods.
    pub network: Vec<Interface>,
    /// Name of the interface with the default route; empty if there is no default route.
    pub default_interface: String,
    /// Time of the boot, in seconds since 1970.
    pub booted: Option<u64>,
    /// Largest process id, and so the largest number of processes that the node can have.
    pub max_pid: Option<u64>,
    /// Number of threads of all processes.
    pub threads: Option<u64>,
}

/// All figures that were read for one request.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Time at which the figures were read.
    pub at: SystemTime,
    /// Resources that the node uses.
    pub node: NodeUsage,
    /// Resources that the pods use, sorted by namespace and name. Each combination of namespace and name occurs once.
    pub pods: Vec<PodUsage>,
}

/// The source of all figures. It keeps the samples of the last call of `rates`, to compute the next rates.
pub struct Stats {
    reader: Reader,
    rates: Mutex<Rates>,
}

impl Stats {
    /// Returns a source of the figures that `reader` reads.
    pub fn new(reader: Reader) -> Self {
        Self {
            reader,
            rates: Mutex::default(),
        }
    }

    /// Reads the present figures of the node and of these pods.
    ///
    /// # Errors
    /// Returns an error if the mounts of cgroups cannot be read.
    pub fn figures(
        &self,
        pods: &[Arc<RuntimePodStatus>],
        detail: Detail,
    ) -> std::io::Result<Figures> {
        self.reader.read(pods, detail, SystemTime::now())
    }

    /// Returns the nanoseconds of processor time that each cgroup has used per second since an earlier call of this
    /// function. The key is the id of the cgroup.
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
