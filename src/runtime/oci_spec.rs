//! The OCI configuration (`config.json`) of a container, as containerd's CRI plugin 1.7 writes it for the same pod.
//!
//! Invariants: no decision depends on anything but the [`Inputs`]; the only files read are `etc/passwd` and
//! `etc/group` of the image's layers. Facts of the node come in as [`Host`]. What a pod asks for and cannot get is an
//! error, never left out.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::api::{Container, Pod};
use crate::images::ImageConfig;
use crate::runtime::{ContainerId, RuntimeError};

/// The namespaces that exist already, by path. Mount (and on cgroup v2 cgroup) namespaces are always new.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespaces {
    /// The sandbox's network; None shares the node's.
    pub net: Option<PathBuf>,
    /// The sandbox's System V IPC; None shares the node's.
    pub ipc: Option<PathBuf>,
    /// The sandbox's host name; None shares the node's.
    pub uts: Option<PathBuf>,
    /// The sandbox's processes; None makes a new namespace, or shares the node's with `hostPID`.
    pub pid: Option<PathBuf>,
}

/// A bind mount: a volume or a generated file (hosts, hostname, resolv.conf, termination log).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mount {
    /// Absolute path on the node.
    pub source: PathBuf,
    /// Absolute path in the container. A destination that equals a default one (`/dev/shm`) replaces it.
    pub destination: String,
    /// `ro`.
    pub read_only: bool,
    /// Further mount options beside `rbind`, `rprivate` and `ro` or `rw`; a propagation here replaces `rprivate`.
    pub options: Vec<String>,
}

/// A device node of the node, for privileged containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostDevice {
    /// Absolute path, the same inside.
    pub path: String,
    /// Block, else character.
    pub block: bool,
    /// Major and minor number.
    pub number: (u64, u64),
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// What the configuration depends on and only the node knows; see [`Host::read`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// The capabilities of this process's bounding set, one bit each: nothing beyond them can be given.
    pub bounding: u64,
    /// Lowest `oom_score_adj` that can be set: this process's own when it lacks CAP_SYS_RESOURCE, else None.
    pub oom_score_adj_floor: Option<i32>,
    /// `MemTotal` in bytes.
    pub memory_capacity: u64,
    /// Only cgroup v2, mounted at /sys/fs/cgroup.
    pub cgroup_v2_only: bool,
    /// Everything under /dev, for privileged containers.
    pub devices: Vec<HostDevice>,
}

impl Host {
    /// Asks the node. Read once per container: devices come and go.
    pub fn read() -> Self {
        todo!()
    }
}

/// Everything a container's configuration depends on.
#[derive(Clone, Debug)]
pub struct Inputs<'a> {
    /// Validated and defaulted.
    pub pod: &'a Pod,
    /// One of the pod's containers.
    pub container: &'a Container,
    /// Identity of the container, for the annotations.
    pub id: &'a ContainerId,
    /// Its sandbox, for the annotations.
    pub sandbox: &'a ContainerId,
    /// What the image says.
    pub image: &'a ImageConfig,
    /// Unpacked layers in overlayfs form (whiteouts are 0/0 character devices), base layer first.
    pub layers: &'a [PathBuf],
    /// Absolute path of the mounted root file system.
    pub rootfs: &'a Path,
    /// Namespaces to join.
    pub namespaces: Namespaces,
    /// Bind mounts, in the order of the spec; sorted here so that parents come first.
    pub mounts: Vec<Mount>,
    /// Absolute in each hierarchy: [`crate::layout::Layout::cgroup`].
    pub cgroups_path: String,
    /// Becomes `HOSTNAME`; the uts namespace is the sandbox's and has its name already.
    pub hostname: &'a str,
    /// Facts of the node.
    pub host: &'a Host,
}

/// The whole `config.json`.
///
/// Errors (reason `CreateContainerConfigError`): no command at all, a user or group that the image does not have,
/// runAsNonRoot against root, an unknown capability or one this process cannot give, a quantity that is no number.
pub fn build(i: &Inputs<'_>) -> Result<Value, RuntimeError> {
    let _ = i;
    todo!()
}
