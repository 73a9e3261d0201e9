//! The facts about the node on which configurations depend.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use nix::sys::statvfs::statvfs;
use nix::unistd::{SysconfVar, sysconf};

use crate::api::field_ref::Allocatable;
use crate::api::huge_pages::resource;
use crate::base::sys::cgroup_mounts;
use crate::base::sys::wide;

/// The facts about the node, which are read once, when the daemon starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// The node's memory (`MemTotal`) in bytes, or 0 if it cannot be read.
    pub memory_capacity: u64,
    /// The node's swap (`SwapTotal`) in bytes, or 0 if it cannot be read.
    pub swap_capacity: u64,
    /// True if the node has only cgroup v2.
    pub pure_cgroup_v2: bool,
    /// The existing directories `/sys/devices/system/cpu/cpu*/thermal_throttle`. These directories are hidden from
    /// containers, because they show the load of other tenants.
    pub thermal_throttle: Vec<String>,
    /// The node's addresses, the primary one first.
    pub host_ips: Vec<String>,
    /// The resources of the node that pods can use.
    pub allocatable: Allocatable,
    /// True if the kernel can make a mount read-only with all mounts below it (mount_setattr, Linux 5.12).
    pub recursive_read_only: bool,
    /// The huge page sizes in bytes that the kernel supports, even if the node has no pages of a size.
    pub huge_page_sizes: Vec<u64>,
}

/// The directory in which the kernel shows its huge pages.
const HUGE_PAGES: &str = "/sys/kernel/mm/hugepages";

/// Returns the node's present huge pages in bytes, by resource name such as `hugepages-2Mi`.
pub fn huge_pages() -> BTreeMap<String, i64> {
    let bytes = |(size, pages): (u64, u64)| i64::try_from(size.saturating_mul(pages));
    let all = read_huge_pages(Path::new(HUGE_PAGES)).into_iter();
    all.map(|each| (resource(each.0), bytes(each).unwrap_or(i64::MAX)))
        .collect()
}

/// Returns each huge page size in bytes with its number of pages.
/// Returns the node's present huge pages in bytes, by the size of a page in bytes.
pub fn huge_pages_by_size() -> BTreeMap<u64, u64> {
    let all = read_huge_pages(Path::new(HUGE_PAGES)).into_iter();
    all.map(|(size, pages)| (size, size.saturating_mul(pages)))
        .collect()
}

fn read_huge_pages(dir: &Path) -> Vec<(u64, u64)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let read = |path: &Path| {
        let name = path.file_name()?.to_str()?;
        let kib = name.strip_prefix("hugepages-")?.strip_suffix("kB")?;
        let pages = fs::read_to_string(path.join("nr_hugepages")).ok()?;
        Some((kib.parse::<u64>().ok()? * 1024, pages.trim().parse().ok()?))
    };
    let mut all: Vec<(u64, u64)> = entries.filter_map(|e| read(&e.path())).collect();
    all.sort_unstable();
    all
}

impl NodeFacts {
    /// Reads the facts about the node. `data` is a directory on the disk that pods write to.
    pub fn read(node_ip: IpAddr, data: &Path) -> Self {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let memory_capacity = memory(&meminfo, "MemTotal:");
        let sizes = read_huge_pages(Path::new(HUGE_PAGES));
        Self {
            memory_capacity,
            swap_capacity: memory(&meminfo, "SwapTotal:"),
            pure_cgroup_v2: cgroup_mounts::is_pure_v2(),
            host_ips: vec![node_ip.to_string()],
            allocatable: Allocatable {
                milli_cpu: processors() * 1000,
                memory: memory_capacity.try_into().unwrap_or(i64::MAX),
                ephemeral_storage: disk_size(data),
            },
            thermal_throttle: thermal_throttle(Path::new("/sys/devices/system/cpu")),
            recursive_read_only: kernel_version() >= (5, 12),
            huge_page_sizes: sizes.into_iter().map(|(size, _)| size).collect(),
        }
    }
}

/// Returns the number of processors, or 0 if the kernel does not report it.
fn processors() -> i64 {
    let online = sysconf(SysconfVar::_NPROCESSORS_ONLN);
    online.ok().flatten().map_or(0, wide)
}

/// Returns the size in bytes of the disk that holds a directory, or 0 if the directory does not exist.
fn disk_size(dir: &Path) -> i64 {
    statvfs(dir).map_or(0, |s| {
        let bytes = s.blocks().saturating_mul(wide(s.fragment_size()));
        bytes.try_into().unwrap_or(i64::MAX)
    })
}

/// Returns the major and the minor version of the running kernel. Both numbers are 0 if the release text has another
/// form.
pub fn kernel_version() -> (u32, u32) {
    let release = nix::sys::utsname::uname()
        .map(|u| u.release().to_string_lossy().into_owned())
        .unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    let mut next = || numbers.next().and_then(Result::ok).unwrap_or(0);
    (next(), next())
}

fn memory(meminfo: &str, field: &str) -> u64 {
    let field = meminfo.lines().find_map(|l| l.strip_prefix(field));
    field
        .and_then(|v| v.split_whitespace().next()?.parse::<u64>().ok())
        .unwrap_or(0)
        * 1024
}

fn thermal_throttle(cpus: &Path) -> Vec<String> {
    let mut found: Vec<String> = fs::read_dir(cpus)
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path().join("thermal_throttle"))
        .filter(|p| p.exists())
        .filter_map(|p| p.to_str().map(str::to_owned))
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_in_bytes() {
        assert_eq!(
            memory("MemTotal:        8 kB\nMemFree: 1 kB\n", "MemTotal:"),
            8192
        );
        assert_eq!(memory("", "MemTotal:"), 0);
        let facts = NodeFacts::read("192.0.2.1".parse().unwrap(), Path::new("/"));
        assert!(facts.memory_capacity > 1 << 20);
        assert_eq!(facts.host_ips, ["192.0.2.1"]);
        let a = facts.allocatable;
        assert!(a.milli_cpu >= 1000 && a.memory > 1 << 20 && a.ephemeral_storage > 1 << 20);
    }

    #[test]
    fn huge_pages_are_counted_by_their_size() {
        let dir = tempfile::tempdir().unwrap();
        for (name, pages) in [("hugepages-1048576kB", "1\n"), ("hugepages-2048kB", "12\n")] {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join("nr_hugepages"), pages).unwrap();
        }
        fs::write(dir.path().join("other"), "").unwrap();
        assert_eq!(read_huge_pages(dir.path()), [(2 << 20, 12), (1 << 30, 1)]);
        assert_eq!(read_huge_pages(&dir.path().join("none")), []);
    }

    #[test]
    fn each_processor_with_a_throttle_is_named() {
        let dir = tempfile::tempdir().unwrap();
        for cpu in [
            "cpu1/thermal_throttle",
            "cpu0/thermal_throttle",
            "cpu2/topology",
        ] {
            fs::create_dir_all(dir.path().join(cpu)).unwrap();
        }
        let at = |cpu| format!("{}/{cpu}/thermal_throttle", dir.path().display());
        assert_eq!(thermal_throttle(dir.path()), [at("cpu0"), at("cpu1")]);
    }
}
