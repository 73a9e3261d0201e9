//! Facts of the node that a configuration depends on.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use nix::sys::resource::{Resource, getrlimit};
use nix::sys::stat::{major, minor};

use super::{Host, HostDevice, capabilities};
use crate::base::sys::cgroup::Cgroups;
use crate::base::sys::cgroup_mounts;
use crate::base::sys::process::status_mask;

/// Names below /dev that are not devices of the node: the container has its own (containerd's getDevices).
const SKIPPED: [&str; 6] = ["pts", "shm", "fd", "mqueue", ".lxc", ".udev"];

impl Host {
    /// Reads the facts of the node, with a few system calls. `devices` is true for a privileged container: devices come
    /// and go, so they are listed each time. `pod_cgroup` must exist: the root cgroup of v2 does not show whether swap
    /// is counted.
    pub fn read(devices: bool, pod_cgroup: &str) -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = |key| status_mask(&status, key).unwrap_or(0);
        let own_oom = fs::read_to_string("/proc/self/oom_score_adj")
            .ok()
            .and_then(|t| t.trim().parse().ok());
        let open_files = getrlimit(Resource::RLIMIT_NOFILE)
            .ok()
            .map(|(_, hard)| hard);
        let may_lower = mask("CapEff:") & capabilities::SYS_RESOURCE != 0;
        Self {
            bounding: mask("CapBnd:"),
            oom_score_adj_floor: own_oom.filter(|_| !may_lower),
            open_files_ceiling: open_files.filter(|_| !may_lower),
            cgroup_v2_only: cgroup_mounts::is_pure_v2(),
            missing_controllers: missing_controllers(),
            counts_swap: counts_swap(pod_cgroup),
            devices: if devices {
                list_devices(Path::new("/dev"))
            } else {
                vec![]
            },
        }
    }
}

/// Lists the cgroup controllers that the node lacks. On a hybrid node the OCI runtimes use only v1, so a controller
/// that only v2 has counts as missing.
fn missing_controllers() -> Vec<&'static str> {
    let found = Cgroups::detect();
    ["cpu", "memory", "hugetlb"]
        .into_iter()
        .filter(|c| !found.as_ref().is_ok_and(|f| f.can_limit(c)))
        .collect()
}

fn counts_swap(pod_cgroup: &str) -> bool {
    let found = Cgroups::detect();
    let dir = found.map(|f| f.controller_dir("memory", pod_cgroup));
    dir.ok().flatten().is_some_and(|dir| {
        let files = ["memory.swap.max", "memory.memsw.limit_in_bytes"];
        files.iter().any(|file| dir.join(file).exists())
    })
}

/// Lists the character and block devices in a directory and below it. Links and the console are left out.
fn list_devices(dir: &Path) -> Vec<HostDevice> {
    let mut found = Vec::new();
    let mut entries: Vec<_> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path())
        .collect();
    entries.sort();
    for path in entries {
        let Ok(meta) = fs::symlink_metadata(&path) else {
            continue;
        };
        let name = path
            .file_name()
            .and_then(|n| n.to_str())
            .unwrap_or_default();
        let kind = meta.file_type();
        if kind.is_dir() && !SKIPPED.contains(&name) {
            found.extend(list_devices(&path));
        } else if (kind.is_char_device() || kind.is_block_device()) && name != "console" {
            found.extend(path.to_str().map(|p| HostDevice {
                path: p.to_owned(),
                block: kind.is_block_device(),
                number: (major(meta.rdev()), minor(meta.rdev())),
                mode: meta.mode() & 0o7777,
                uid: meta.uid(),
                gid: meta.gid(),
            }));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_node() {
        let host = Host::read(true, "/");
        assert!(
            host.devices
                .iter()
                .any(|d| d.path == "/dev/null" && !d.block && d.number == (1, 3))
        );
        assert!(!host.devices.iter().any(|d| d.path.starts_with("/dev/pts/")));
    }
}
