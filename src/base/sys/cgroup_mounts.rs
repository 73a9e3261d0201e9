//! Chooses the cgroup hierarchies that podprobe uses on this node.
//!
//! The file system at /sys/fs/cgroup decides, as in the kubelet and runc. If it is cgroup v2, podprobe uses only this
//! hierarchy. A v1 hierarchy beside v2, such as the net_cls that VPN clients mount, limits nothing, and no container
//! has a cgroup there. Otherwise every hierarchy is used: v1, or v1 and v2 (hybrid).

use std::io;
use std::path::Path;

use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};

use super::mountinfo::{self, Mount};

/// Directory at which the hierarchies are mounted.
pub const ROOT: &str = "/sys/fs/cgroup";

/// The cgroup mounts of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupMounts {
    /// Mounts of the hierarchies that podprobe uses.
    pub used: Vec<Mount>,
    /// Mounts of v1 hierarchies on a node where cgroup v2 is mounted at [`ROOT`]. podprobe does not use these
    /// hierarchies.
    pub beside: Vec<Mount>,
}

/// Reads the cgroup mounts of this process's mount namespace.
///
/// # Errors
/// Returns the error of the read if /proc is not mounted or no descriptor is left.
pub fn read() -> io::Result<CgroupMounts> {
    Ok(choose(mountinfo::read()?, is_pure_v2()))
}

/// Tells whether cgroup v2 is mounted at [`ROOT`]. If so, podprobe uses v2 only.
pub fn is_pure_v2() -> bool {
    statfs(ROOT).is_ok_and(|fs| fs.filesystem_type() == CGROUP2_SUPER_MAGIC)
}

/// Chooses the mounts to use from all mounts of a node. `pure_v2` says whether v2 is mounted at [`ROOT`].
pub fn choose(mounts: Vec<Mount>, pure_v2: bool) -> CgroupMounts {
    let (v2, v1): (Vec<Mount>, Vec<Mount>) = mounts
        .into_iter()
        .filter(|m| m.kind == "cgroup2" || m.kind == "cgroup")
        .partition(|m| m.kind == "cgroup2");
    if !pure_v2 {
        let used = v1.into_iter().chain(v2).collect();
        return CgroupMounts {
            used,
            beside: Vec::new(),
        };
    }
    // Of several mounts at one place, the last one covers the others.
    let at_root = v2.iter().rposition(|m| m.at == Path::new(ROOT));
    CgroupMounts {
        used: v2.into_iter().skip(at_root.unwrap_or(0)).take(1).collect(),
        beside: v1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TMPFS: &str = "24 1 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n";
    const MEMORY: &str = "26 24 0:24 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
    const UNIFIED: &str = "28 24 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    const V2: &str = "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    const NET_CLS: &str = "40 30 0:40 / /sys/fs/cgroup/net_cls rw - cgroup net_cls rw,net_cls\n";
    const ELSEWHERE: &str = "29 1 0:26 / /run/cilium/cgroupv2 rw - cgroup2 none rw\n";

    #[track_caller]
    fn check(mountinfo: &[&str], pure_v2: bool, used: &[&str], beside: &[&str]) {
        let found = choose(mountinfo::parse(&mountinfo.concat()), pure_v2);
        let at = |all: &[Mount]| -> Vec<String> {
            all.iter().map(|m| m.at.display().to_string()).collect()
        };
        assert_eq!((at(&found.used), at(&found.beside)), {
            let owned = |all: &[&str]| all.iter().map(|s| (*s).to_owned()).collect();
            (owned(used), owned(beside))
        });
    }

    #[test]
    fn v2_at_the_root_counts_alone() {
        let net_cls = "/sys/fs/cgroup/net_cls";
        check(&[V2], true, &[ROOT], &[]);
        check(&[V2, NET_CLS], true, &[ROOT], &[net_cls]);
        check(&[ELSEWHERE, V2, NET_CLS], true, &[ROOT], &[net_cls]);
    }

    #[test]
    fn hierarchies_that_v2_covers_do_not_count() {
        let memory = "/sys/fs/cgroup/memory";
        check(&[TMPFS, MEMORY, UNIFIED, V2], true, &[ROOT], &[memory]);
        let covering = V2.replace(" / ", " /pods ");
        let found = choose(mountinfo::parse(&[V2, &covering].concat()), true);
        let roots: Vec<_> = found.used.iter().map(|m| m.root.clone()).collect();
        assert_eq!(roots, [Path::new("/pods")]);
    }

    #[test]
    fn without_v2_at_the_root_all_count() {
        let (memory, unified) = ("/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified");
        check(&[TMPFS, UNIFIED, MEMORY], false, &[memory, unified], &[]);
        check(&[TMPFS], false, &[], &[]);
        let elsewhere = "/run/cilium/cgroupv2";
        check(
            &[TMPFS, MEMORY, ELSEWHERE],
            false,
            &[memory, elsewhere],
            &[],
        );
    }

    #[test]
    fn this_node_is_what_statfs_says() {
        let found = read().unwrap();
        let v1 = found.used.iter().any(|m| m.kind == "cgroup");
        assert!(!(v1 && is_pure_v2()), "{found:?}");
    }
}
