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

/// How much is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Processor time and memory.
    CpuAndMemory,
    /// Limits and the network too.
    All,
}

/// What a cgroup uses, and what it may.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// Its path in each hierarchy, which is cAdvisor's `id`; `/` for the node.
    pub id: String,
    /// None where it is not counted.
    pub cpu: Option<Cpu>,
    /// The same.
    pub memory: Option<Memory>,
    /// None without a quota.
    pub throttling: Option<Throttling>,
    /// None where it was not asked for.
    pub spec: Option<Spec>,
    /// By device; empty where it was not asked for, and where it is not counted.
    pub io: Vec<Io>,
    /// Processes that the kernel has killed for want of memory.
    pub oom_kills: Option<u64>,
}

/// Limits and weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spec {
    /// Microseconds in a period; None without a quota.
    pub quota: Option<u64>,
    /// Microseconds.
    pub period: Option<u64>,
    /// As in v1.
    pub shares: Option<u64>,
}

/// A container that runs.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerUsage {
    /// Its name in the pod.
    pub name: String,
    /// Its instance.
    pub id: String,
    /// As in the pod.
    pub image: String,
    /// When it started.
    pub started: Option<SystemTime>,
    /// What it uses.
    pub usage: Usage,
    /// The directory of its logs.
    pub logs: Option<PathBuf>,
}

/// A pod that runs.
#[derive(Clone, Debug, PartialEq)]
pub struct PodUsage {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// When its sandbox was made.
    pub started: SystemTime,
    /// What all its containers use.
    pub usage: Usage,
    /// Of its own network; empty in the node's network and while nothing runs.
    pub network: Vec<Interface>,
    /// Those that run.
    pub containers: Vec<ContainerUsage>,
}

/// The node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeUsage {
    /// What it uses.
    pub usage: Usage,
    /// Bytes of memory; 0 when they cannot be read.
    pub memory_capacity: u64,
    /// Processors that are online.
    pub processors: u64,
    /// Of its network, without pods' ends of their connections.
    pub network: Vec<Interface>,
    /// The name of the one that leads out; empty without one.
    pub default_interface: String,
    /// Seconds since 1970.
    pub booted: Option<u64>,
    /// The most processes that there may be.
    pub max_pid: Option<u64>,
    /// Threads of all processes.
    pub threads: Option<u64>,
}

/// Everything that one ask has read.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// When.
    pub at: SystemTime,
    /// The node.
    pub node: NodeUsage,
    /// In the order of namespace and name; one of each name.
    pub pods: Vec<PodUsage>,
}

/// What is asked, with what it remembers of the last ask.
pub struct Stats {
    reader: Reader,
    rates: Mutex<Rates>,
}

impl Stats {
    /// Figures by this reader.
    pub fn new(reader: Reader) -> Self {
        Self {
            reader,
            rates: Mutex::default(),
        }
    }

    /// Reads the figures of the node and of these pods now.
    ///
    /// # Errors
    /// The mounts of cgroups cannot be read.
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
