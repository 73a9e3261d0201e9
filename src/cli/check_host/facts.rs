//! The facts about a node that `check-host` collects and then judges.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use nix::errno::Errno;

use crate::base::sys::calls::Call;
use crate::base::sys::mountinfo::Mount;
use crate::net::network::Missing;

/// The facts about a node that `check-host` judges.
#[derive(Clone, Debug)]
pub struct Facts {
    /// True if this process runs as root.
    pub is_root: bool,
    /// Capabilities that this process may use, as a bit mask.
    pub capabilities: u64,
    /// The kernel's version, as `uname -r` prints it.
    pub kernel: String,
    /// Kinds of namespaces that the kernel lacks, with their names in `/proc/self/ns`.
    pub missing_namespaces: Vec<&'static str>,
    /// Newer system calls, each with an error if the call cannot be used.
    pub calls: Vec<(Call, Result<(), Errno>)>,
    /// The mounts and controllers of cgroups.
    pub cgroups: CgroupFacts,
    /// The result of a test whether the kernel can filter devices with programs on cgroup v2. None if this was not
    /// tested, for example because cgroup v1 filters devices.
    pub device_filter: Option<Result<(), String>>,
    /// The result of a test to mount an overlay. None if this was not tested, because the test needs root.
    pub overlay: Option<Result<(), String>>,
    /// The parts of the kernel that the network of pods lacks. None if the parts were not tested.
    pub network: Option<Vec<Missing>>,
    /// The result of a test whether the packet filter can serve services. The text in `Ok` says why IPv6 is
    /// missing; None if IPv6 works. The outer None means that the packet filter was not tested.
    pub packet_filter: Option<Result<Option<String>, String>>,
    /// The use of inotify by root's processes.
    pub inotify: Inotify,
    /// True if the kernel has seccomp filters.
    pub seccomp: bool,
    /// The state of AppArmor.
    pub app_armor: AppArmorFacts,
    /// The time of the wall clock.
    pub now: SystemTime,
    /// The time since the boot.
    pub up: Duration,
    /// The file systems that hold podprobe's directories.
    pub disks: Vec<Disk>,
    /// The result of reading random bytes.
    pub random: Result<(), String>,
    /// The memory of the machine; None if `/proc/meminfo` cannot be read.
    pub memory: Option<Memory>,
    /// True if the node has swap.
    pub has_swap: bool,
    /// The result of loading the configuration.
    pub configuration: Result<(), String>,
}

/// The state of AppArmor, and of the profile for `RuntimeDefault`.
#[derive(Clone, Copy, Debug)]
pub struct AppArmorFacts {
    /// True if the kernel enforces profiles.
    pub is_enabled: bool,
    /// True if the profile is loaded. None if this is not known, because only root can read the list of profiles.
    pub is_loaded: Option<bool>,
    /// True if the configuration lets the daemon load the profile.
    pub is_allowed: bool,
    /// True if `apparmor_parser` is installed.
    pub has_parser: bool,
}

/// The mounts and controllers of cgroups.
#[derive(Clone, Debug, Default)]
pub struct CgroupFacts {
    /// The versions in use, `v1` or `v2` or both; empty if no cgroups are mounted.
    pub versions: Vec<&'static str>,
    /// Hierarchies of v1 that are mounted beside a complete v2. podprobe does not use these hierarchies.
    pub beside: Vec<Mount>,
    /// Directory where the cgroups are mounted, if this mount is read-only.
    pub read_only: Option<PathBuf>,
    /// The controllers out of cpu and memory that cannot limit anything.
    pub missing: Vec<&'static str>,
}

/// The use of a limited resource.
#[derive(Clone, Copy, Debug, Default)]
pub struct Share {
    /// The number of units of the resource that are in use.
    pub used: u64,
    /// The largest number of units that is allowed; None if the limit cannot be read.
    pub limit: Option<u64>,
}

/// The use of inotify by all processes of root, including those in containers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inotify {
    /// The number of watches, and the limit `max_user_watches`.
    pub watches: Share,
    /// The number of instances, and the limit `max_user_instances`.
    pub instances: Share,
}

/// A file system that holds directories of podprobe.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// The directories on this file system.
    pub dirs: Vec<PathBuf>,
    /// True if only records are on this file system (`/run`), and no images, volumes or logs.
    pub is_small: bool,
    /// Size in bytes.
    pub capacity: u64,
    /// Size of the available space in bytes.
    pub available: u64,
    /// Number of inodes; 0 if the file system does not count inodes.
    pub inodes: u64,
    /// Number of available inodes.
    pub free_inodes: u64,
    /// True if the file system is read-only.
    pub read_only: bool,
}

/// The memory of the machine, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// The value of MemTotal, in bytes.
    pub total: u64,
    /// The value of MemAvailable, in bytes.
    pub available: u64,
}
