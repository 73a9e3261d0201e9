//! Reads the figures that the kernel counts, from /proc and from the cgroups of a node with v1, v2 or both.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use nix::unistd::{SysconfVar, sysconf};

use super::parse::{self, Interface, Io};
use super::{ContainerUsage, Detail, Figures, NodeUsage, PodUsage, Spec, Usage};
use crate::base::paths::Layout;
use crate::base::sys::cgroup::{self, Cgroups};
use crate::engine::runtime::{RuntimeContainerStatus, RuntimePodStatus, RuntimeState};

/// A reader of the figures that the kernel counts.
pub struct Reader {
    layout: Layout,
    proc: PathBuf,
    /// Directory with a link for each block device. The link's name is the number of the device, and the link leads to
    /// the device.
    devices: PathBuf,
    /// The cgroup hierarchies. None means the hierarchies that are mounted at the time of a request.
    cgroups: Option<Cgroups>,
}

impl Reader {
    /// Returns a reader of this machine's figures.
    pub fn new(layout: Layout) -> Self {
        Self {
            layout,
            proc: "/proc".into(),
            devices: "/sys/dev/block".into(),
            cgroups: None,
        }
    }

    /// Returns a reader that reads other directories than those of this machine, for tests.
    #[cfg(test)]
    pub(super) fn of(layout: Layout, proc: PathBuf, cgroups: Cgroups) -> Self {
        Self {
            layout,
            devices: proc.with_file_name("block"),
            proc,
            cgroups: Some(cgroups),
        }
    }

    pub(super) fn read(
        &self,
        pods: &[Arc<RuntimePodStatus>],
        detail: Detail,
        at: SystemTime,
    ) -> io::Result<Figures> {
        let cgroups = match &self.cgroups {
            Some(cgroups) => cgroups.clone(),
            None => Cgroups::detect()?,
        };
        let running = pods.iter().filter(|p| p.sandboxes.iter().any(|s| s.ready));
        let mut running: Vec<&RuntimePodStatus> = running.map(AsRef::as_ref).collect();
        // If two pods have the same namespace and name, only the pod with the newest sandbox counts.
        let newest = |p: &RuntimePodStatus| p.sandboxes.first().map(|s| s.created_at);
        running.sort_by(|a, b| {
            let place = (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name));
            place.then(newest(b).cmp(&newest(a)))
        });
        running.dedup_by(|a, b| a.name == b.name && a.namespace == b.namespace);
        let pod = |pod: &RuntimePodStatus| self.pod(&cgroups, pod, detail);
        Ok(Figures {
            at,
            node: self.node(detail),
            pods: running.into_iter().map(pod).collect(),
        })
    }

    fn pod(&self, cgroups: &Cgroups, pod: &RuntimePodStatus, detail: Detail) -> PodUsage {
        let id = self.layout.pod_cgroup(&pod.uid);
        let mut seen = HashSet::new();
        let running = pod.containers.iter();
        let running: Vec<_> = running
            .filter(|c| c.state == RuntimeState::Running && seen.insert(c.name.as_str()))
            .collect();
        let sandbox = pod.sandboxes.first();
        let has_own_network = sandbox.is_some_and(|s| !s.host_network);
        let pid = running.iter().find_map(|c| c.pid);
        let network = match pid.filter(|_| has_own_network && detail == Detail::All) {
            Some(pid) => parse::interfaces(&self.text(&format!("{pid}/net/dev"))),
            None => Vec::new(),
        };
        let container = |c: &&RuntimeContainerStatus| ContainerUsage {
            name: c.name.clone(),
            id: c.id.as_str().to_owned(),
            image: c.image.clone(),
            started: c.started_at,
            usage: self.usage(
                cgroups,
                cgroup::of_container(&id, &c.name, c.attempt),
                detail,
            ),
            logs: c.log_path.parent().map(Path::to_owned),
        };
        PodUsage {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.to_string(),
            started: sandbox.map_or(SystemTime::UNIX_EPOCH, |s| s.created_at),
            containers: running.iter().map(container).collect(),
            usage: self.usage(cgroups, id, detail),
            network,
        }
    }

    fn node(&self, detail: Detail) -> NodeUsage {
        let stat = self.text("stat");
        let sysconf = |name| {
            sysconf(name)
                .ok()
                .flatten()
                .and_then(|n| u64::try_from(n).ok())
        };
        let ticks = sysconf(SysconfVar::CLK_TCK).unwrap_or(100);
        let memory = parse::node_memory(&self.text("meminfo"), &self.text("vmstat"));
        let mut node = NodeUsage {
            usage: Usage {
                id: "/".into(),
                cpu: parse::node_cpu(&stat, ticks),
                memory: memory.map(|(_, used)| used),
                ..Usage::default()
            },
            memory_capacity: memory.map_or(0, |(all, _)| all),
            processors: sysconf(SysconfVar::_NPROCESSORS_ONLN).unwrap_or(0),
            booted: parse::boot_time(&stat),
            ..NodeUsage::default()
        };
        if detail == Detail::All {
            node.network = parse::interfaces(&self.text("self/net/dev"));
            node.network.retain(is_of_the_node);
            let route = self.text("self/net/route");
            node.default_interface = parse::default_interface(&route).unwrap_or_default().into();
            node.max_pid = parse::number(&self.text("sys/kernel/pid_max"));
            node.threads = parse::threads(&self.text("loadavg"));
        }
        node
    }

    /// Reads the use of the cgroup `id`. If the cgroup does not exist any more, its figures are None.
    fn usage(&self, cgroups: &Cgroups, id: String, detail: Detail) -> Usage {
        let file = |controller: &str, name: &str| {
            let dir = cgroups.controller_dir(controller, &id)?;
            fs::read_to_string(dir.join(name)).ok()
        };
        let number = |controller: &str, name: &str| parse::number(&file(controller, name)?);
        let stat = file("cpu", "cpu.stat").unwrap_or_default();
        let cpu = parse::cpu_v2(&stat).or_else(|| {
            Some(parse::Cpu {
                usage: number("cpuacct", "cpuacct.usage")?,
                user: number("cpuacct", "cpuacct.usage_user"),
                system: number("cpuacct", "cpuacct.usage_sys"),
            })
        });
        let memory = match number("memory", "memory.current") {
            Some(current) => file("memory", "memory.stat").map(|stat| parse::Memory {
                swap: number("memory", "memory.swap.current"),
                limit: file("memory", "memory.max").and_then(|text| parse::limit(&text)),
                swap_limit: number("memory", "memory.swap.max"),
                ..parse::memory_v2(current, &stat)
            }),
            None => number("memory", "memory.usage_in_bytes").and_then(|used| {
                let limit = |name| parse::limit(&file("memory", name)?);
                let memory = limit("memory.limit_in_bytes");
                let both = limit("memory.memsw.limit_in_bytes");
                Some(parse::Memory {
                    limit: memory,
                    // the limit of v1 counts memory and swap together
                    swap_limit: both
                        .zip(memory)
                        .map(|(both, memory)| both.saturating_sub(memory)),
                    ..parse::memory_v1(used, &file("memory", "memory.stat")?)
                })
            }),
        };
        let mut usage = Usage {
            cpu,
            memory,
            ..Usage::default()
        };
        if detail == Detail::All {
            usage.throttling = parse::throttling(&stat);
            usage.spec = Some(spec(&file));
            usage.io = self.io(&file);
            let events = file("memory", "memory.events");
            let events = events.or_else(|| file("memory", "memory.oom_control"));
            usage.oom_kills = events.and_then(|text| parse::flat(&text, "oom_kill"));
        }
        Usage { id, ..usage }
    }

    fn io(&self, file: &impl Fn(&str, &str) -> Option<String>) -> Vec<Io> {
        let of_v1 = |name: &str| {
            let below = file("blkio", &format!("{name}_recursive"));
            below.or_else(|| file("blkio", name)).unwrap_or_default()
        };
        let mut all = match file("io", "io.stat") {
            Some(stat) => parse::io_v2(&stat),
            None => parse::io_v1(
                &of_v1("blkio.throttle.io_service_bytes"),
                &of_v1("blkio.throttle.io_serviced"),
            ),
        };
        for io in &mut all {
            let link = fs::read_link(self.devices.join(&io.device)).unwrap_or_default();
            io.device = match link.file_name() {
                Some(name) => format!("/dev/{}", name.to_string_lossy()),
                None => format!("/dev/block/{}", io.device),
            };
        }
        all
    }

    /// Returns the content of a file below /proc. Returns an empty text if the file does not exist.
    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.proc.join(name)).unwrap_or_default()
    }
}

/// Tells whether an interface is one of the node's own. The node's ends of the connections to pods do not count, as in
/// cAdvisor, because each pod would add a series.
fn is_of_the_node(interface: &Interface) -> bool {
    const PODS: [&str; 3] = ["veth", "docker", "ppv"];
    !PODS.iter().any(|prefix| interface.name.starts_with(prefix))
}

fn spec(file: &impl Fn(&str, &str) -> Option<String>) -> Spec {
    let number = |name: &str| parse::number(&file("cpu", name)?);
    if let Some((quota, period)) = file("cpu", "cpu.max").and_then(|text| parse::cpu_max(&text)) {
        return Spec {
            quota,
            period: Some(period),
            shares: number("cpu.weight").map(parse::shares_of_weight),
        };
    }
    Spec {
        // -1 in the file means no quota
        quota: number("cpu.cfs_quota_us"),
        period: number("cpu.cfs_period_us"),
        shares: number("cpu.shares"),
    }
}
