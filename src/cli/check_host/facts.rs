//! The facts about a node, before they are judged.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use nix::errno::Errno;

use crate::base::sys::calls::Call;
use crate::base::sys::mountinfo::Mount;
use crate::net::network::Missing;

/// The facts about a node, before they are judged.
#[derive(Clone, Debug)]
pub struct Facts {
    /// True if this process is root's.
    pub is_root: bool,
    /// Capabilities that this process may use, as a bit mask.
    pub capabilities: u64,
    /// `uname -r`.
    pub kernel: String,
    /// Kinds of namespaces that the kernel does not have, as in `/proc/self/ns`.
    pub missing_namespaces: Vec<&'static str>,
    /// Newer system calls, and why they cannot be used.
    pub calls: Vec<(Call, Result<(), Errno>)>,
    /// cgroups.
    pub cgroups: CgroupFacts,
    /// The kernel can filter devices by programs on cgroup v2; None: it need not, as cgroup v1 does, or it was not tried.
    pub device_filter: Option<Result<(), String>>,
    /// An overlay could be mounted; None: not tried, without root.
    pub overlay: Option<Result<(), String>>,
    /// Parts of the kernel that the network of pods lacks; None: not tried.
    pub network: Option<Vec<Missing>>,
    /// Services in the kernel's packet filter, and why they have no IPv6 there; None: not tried.
    pub packet_filter: Option<Result<Option<String>, String>>,
    /// inotify of root's processes.
    pub inotify: Inotify,
    /// The kernel has seccomp filters.
    pub seccomp: bool,
    /// AppArmor.
    pub app_armor: AppArmorFacts,
    /// The wall clock.
    pub now: SystemTime,
    /// Since the boot.
    pub up: Duration,
    /// The file systems of podprobe's directories.
    pub disks: Vec<Disk>,
    /// Random bytes could be read.
    pub random: Result<(), String>,
    /// `/proc/meminfo`; None: it cannot be read.
    pub memory: Option<Memory>,
    /// Something can be swapped out.
    pub has_swap: bool,
    /// The configuration can be used.
    pub configuration: Result<(), String>,
}

/// AppArmor, and the profile of `RuntimeDefault`.
#[derive(Clone, Copy, Debug)]
pub struct AppArmorFacts {
    /// The kernel enforces profiles.
    pub is_enabled: bool,
    /// The profile is loaded; None: the list is root's.
    pub is_loaded: Option<bool>,
    /// The configuration has the daemon load it.
    pub is_allowed: bool,
    /// There is a parser.
    pub has_parser: bool,
}

/// The mounts of cgroups.
#[derive(Clone, Debug, Default)]
pub struct CgroupFacts {
    /// `v1`, `v2`, as far as they count; empty when none is mounted.
    pub versions: Vec<&'static str>,
    /// Hierarchies of v1 beside a pure v2, which do not count.
    pub beside: Vec<Mount>,
    /// Directory where the cgroups are mounted, if nothing can be made there.
    pub read_only: Option<PathBuf>,
    /// Controllers among cpu and memory that can limit nothing.
    pub missing: Vec<&'static str>,
}

/// The used part of a limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Share {
    /// Number that is in use.
    pub used: u64,
    /// Largest number allowed; None: the limit cannot be read.
    pub limit: Option<u64>,
}

/// inotify of all processes of root, those in containers included.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inotify {
    /// `max_user_watches`.
    pub watches: Share,
    /// `max_user_instances`.
    pub instances: Share,
}

/// A file system.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// Directories that lie on the file system.
    pub dirs: Vec<PathBuf>,
    /// Records alone lie there (`/run`), and no images, volumes or logs.
    pub is_small: bool,
    /// Size in bytes.
    pub capacity: u64,
    /// Bytes that can be used.
    pub available: u64,
    /// Number of inodes; 0 where the file system does not count them.
    pub inodes: u64,
    /// Inodes that can still be used.
    pub free_inodes: u64,
    /// True if nothing can be written.
    pub read_only: bool,
}

/// The memory of the machine, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// MemTotal.
    pub total: u64,
    /// MemAvailable.
    pub available: u64,
}
