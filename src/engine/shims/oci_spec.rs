//! Builds the OCI configuration (`config.json`) of a container, as containerd's CRI plugin 1.7 writes it for the same
//! CRI configuration.
//!
//! Invariants: every decision depends on the [`Inputs`] alone. The only files that are read are `etc/passwd` and
//! `etc/group` of the image's layers. Facts of the node come in as [`Host`]. A setting that cannot be granted is an
//! error, never left out.

mod capabilities;
mod error;
mod host;
mod process;
mod resources;
mod user;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use self::error::SpecError;
use crate::engine::images::ImageConfig;
use crate::engine::oci::{
    Device, DeviceRule, Linux, Mount, Namespace, Process, Root, Seccomp, Spec,
};
use crate::engine::runtime::{
    ContainerConfig, ContainerId, NamespaceMode, Propagation, RuntimeError, RuntimeErrorKind,
    SandboxConfig, SeccompProfile,
};

/// Paths of the existing namespaces that a container joins. A mount namespace is always new, and so is a cgroup
/// namespace on cgroup v2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespaces {
    /// The sandbox's network namespace; None means the node's.
    pub net: Option<PathBuf>,
    /// The sandbox's ipc namespace (System V); None means the node's.
    pub ipc: Option<PathBuf>,
    /// The sandbox's uts namespace (host name); None means the node's.
    pub uts: Option<PathBuf>,
    /// The sandbox's process namespace; None means a new namespace, or the node's with `hostPID`.
    pub pid: Option<PathBuf>,
}

/// A bind mount with a source that exists already.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bind {
    /// Absolute path on the node.
    pub source: PathBuf,
    /// Absolute path in the container. A path that equals a default mount (`/dev/shm`) replaces that mount.
    pub destination: String,
    /// True if the mount has the option `ro`.
    pub read_only: bool,
    /// True if the mount has the options `noexec` and `nosuid`.
    pub no_exec: bool,
    /// True if the mount has the option `nodev`: no device below it can be opened.
    pub no_dev: bool,
    /// Propagation of later mounts between the node and the container.
    pub propagation: Propagation,
}

/// A device of the node, which privileged containers get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostDevice {
    /// Absolute path on the node, and the same path in the container.
    pub path: String,
    /// True for a block device, false for a character device.
    pub block: bool,
    /// Major and minor number.
    pub number: (u64, u64),
    /// Permission bits of the device file.
    pub mode: u32,
    /// User id of the owner.
    pub uid: u32,
    /// Group id of the device file.
    pub gid: u32,
}

/// Facts of the node on which the configuration depends; see `Host::read`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Bounding set of this process, one bit for each capability. No container can get a capability that is not in it.
    pub bounding: u64,
    /// Lowest `oom_score_adj` that can be set: this process's own score if it lacks CAP_SYS_RESOURCE; else None.
    pub oom_score_adj_floor: Option<i32>,
    /// Highest limit of open files that can be set: this process's own limit if it lacks CAP_SYS_RESOURCE; else None.
    pub open_files_ceiling: Option<u64>,
    /// True if the node has only cgroup v2, mounted at /sys/fs/cgroup.
    pub cgroup_v2_only: bool,
    /// Cgroup controllers that this node lacks, out of `cpu`, `memory` and `hugetlb`.
    pub missing_controllers: Vec<&'static str>,
    /// True if the kernel counts swap for each cgroup.
    pub counts_swap: bool,
    /// All devices below /dev, for privileged containers.
    pub devices: Vec<HostDevice>,
}

/// Everything on which a container's `config.json` depends.
#[derive(Clone, Debug)]
pub struct Inputs<'a> {
    /// CRI configuration of the container.
    pub config: &'a ContainerConfig,
    /// CRI configuration of the container's sandbox.
    pub sandbox_config: &'a SandboxConfig,
    /// Id of the sandbox, for the annotations.
    pub sandbox: &'a ContainerId,
    /// Configuration in the image.
    pub image: &'a ImageConfig,
    /// Directories of the image's layers, topmost first, in overlayfs form (whiteouts are 0/0 character devices).
    pub layers: &'a [PathBuf],
    /// Absolute path of the mounted root file system.
    pub rootfs: &'a Path,
    /// Namespaces to join.
    pub namespaces: Namespaces,
    /// Bind mounts, in the order of the configuration. They are sorted later so that parents come first.
    pub mounts: Vec<Bind>,
    /// Cgroup of the container, as an absolute path in each hierarchy.
    pub cgroups_path: String,
    /// Facts of the node.
    pub host: &'a Host,
    /// The seccomp profile that the caller has read for [`SeccompProfile::Localhost`]; None for any other setting.
    pub localhost_seccomp: Option<Seccomp>,
    /// Name of the AppArmor profile to use, which is loaded; None means no profile.
    pub app_armor: Option<String>,
}

/// Builds the whole `config.json`.
///
/// # Errors
/// Returns an error of kind `InvalidConfig` if there is no command, if the image does not have the user or group, if a
/// capability is unknown or this process cannot give it, or if the node lacks the controller of a limit.
pub fn build(i: &Inputs<'_>) -> Result<Spec, RuntimeError> {
    config(i).map_err(|e| RuntimeError::new(RuntimeErrorKind::InvalidConfig, e.to_string()))
}

fn config(i: &Inputs<'_>) -> Result<Spec, SpecError> {
    let process = process::process(i)?;
    let linux = linux(i, &process)?;
    Ok(Spec {
        oci_version: "1.0.2".into(),
        process,
        root: Root {
            path: i.rootfs.into(),
            readonly: i.config.security.read_only_root,
        },
        mounts: mounts(i),
        annotations: annotations(i),
        linux,
    })
}

/// Returns the object `linux.seccomp`.
fn seccomp(i: &Inputs<'_>, bounding: &[String]) -> Result<Option<Seccomp>, SpecError> {
    match (&i.config.security.seccomp, &i.localhost_seccomp) {
        (SeccompProfile::Unconfined, _) => Ok(None),
        (SeccompProfile::RuntimeDefault, _) => {
            Ok(Some(crate::engine::seccomp::default::profile(bounding)))
        }
        (SeccompProfile::Localhost(_), Some(own)) => Ok(Some(own.clone())),
        (SeccompProfile::Localhost(file), None) => Err(SpecError::UnreadProfile(file.clone())),
    }
}

fn linux(i: &Inputs<'_>, process: &Process) -> Result<Linux, SpecError> {
    let privileged = i.config.security.privileged;
    let mut resources = resources::linux_resources(&i.config.resources, i.host)?;
    // For an unprivileged container this rule allows nothing. The OCI runtimes themselves add the devices that every
    // container needs (null, zero, tty, pts, mknod).
    resources.devices.push(DeviceRule {
        allow: privileged,
        access: Some("rwm".into()),
        ..DeviceRule::default()
    });
    let unless_privileged = |paths: &Vec<String>| (!privileged).then(|| paths.clone());
    Ok(Linux {
        resources,
        cgroups_path: Some(i.cgroups_path.clone()),
        namespaces: namespaces(i),
        seccomp: seccomp(i, &process.capabilities.bounding)?,
        rootfs_propagation: rootfs_propagation(&i.mounts).map(str::to_owned),
        devices: privileged.then(|| i.host.devices.iter().map(device).collect()),
        masked_paths: unless_privileged(&i.config.security.masked_paths),
        readonly_paths: unless_privileged(&i.config.security.readonly_paths),
    })
}

/// Returns the propagation of the root file system, as in containerd; None if no mount passes on later mounts. A mount
/// passes on later mounts only if the mount around it does.
fn rootfs_propagation(mounts: &[Bind]) -> Option<&'static str> {
    let any = |p| mounts.iter().any(|m| m.propagation == p);
    match () {
        () if any(Propagation::Bidirectional) => Some("rshared"),
        () if any(Propagation::HostToContainer) => Some("rslave"),
        () => None,
    }
}

fn device(d: &HostDevice) -> Device {
    Device {
        path: d.path.clone(),
        kind: if d.block { "b" } else { "c" }.into(),
        major: Some(d.number.0),
        minor: Some(d.number.1),
        file_mode: Some(d.mode),
        uid: d.uid,
        gid: d.gid,
    }
}

/// Lists the container's namespaces. If a type is not in the list, the container shares the node's namespace of this
/// type. As in containerd, only an unprivileged container on cgroup v2 has a cgroup namespace.
fn namespaces(i: &Inputs<'_>) -> Vec<Namespace> {
    let n = &i.namespaces;
    let mut list = vec![namespace("mount", None)];
    if i.sandbox_config.namespaces.pid != NamespaceMode::Node {
        list.push(namespace("pid", n.pid.as_deref()));
    }
    for (name, path) in [("network", &n.net), ("ipc", &n.ipc), ("uts", &n.uts)] {
        list.extend(path.as_deref().map(|p| namespace(name, Some(p))));
    }
    if i.host.cgroup_v2_only && !i.config.security.privileged {
        list.push(namespace("cgroup", None));
    }
    list
}

fn namespace(name: &str, path: Option<&Path>) -> Namespace {
    Namespace {
        kind: name.into(),
        path: path.map(Path::to_owned),
    }
}

/// Returns containerd's default mounts, then the pod's. A pod's mount replaces a default mount with the same
/// destination.
fn mounts(i: &Inputs<'_>) -> Vec<Mount> {
    let taken = |destination: &str| {
        i.mounts
            .iter()
            .any(|m| clean(&m.destination) == destination)
    };
    let mut list = default_mounts(i);
    list.retain(|m| !taken(&m.destination));
    let mut own: Vec<&Bind> = i.mounts.iter().collect();
    // A stable sort by depth: a volume inside another is mounted after it, as in containerd
    // (sort.Stable(orderedMounts)).
    own.sort_by_key(|m| clean(&m.destination).matches('/').count());
    list.extend(own.into_iter().map(bind));
    list
}

fn clean(destination: &str) -> &str {
    let trimmed = destination.trim_end_matches('/');
    if trimmed.is_empty() { "/" } else { trimmed }
}

fn mount(destination: &str, kind: &str, source: &Path, options: &[&str]) -> Mount {
    Mount {
        destination: destination.into(),
        kind: kind.into(),
        source: source.into(),
        options: options.iter().map(|o| (*o).to_owned()).collect(),
        ..Mount::default()
    }
}

fn bind(m: &Bind) -> Mount {
    let propagation = match m.propagation {
        Propagation::Private => "rprivate",
        Propagation::HostToContainer => "rslave",
        Propagation::Bidirectional => "rshared",
    };
    let access = if m.read_only { "ro" } else { "rw" };
    let mut options = vec!["rbind", propagation, access];
    if m.no_exec {
        options.extend(["noexec", "nosuid"]);
    }
    if m.no_dev {
        options.push("nodev");
    }
    mount(&m.destination, "bind", &m.source, &options)
}

fn default_mounts(i: &Inputs<'_>) -> Vec<Mount> {
    let access = if i.config.security.privileged {
        "rw"
    } else {
        "ro"
    };
    let mount = |destination: &str, kind: &str, source: &str, options: &[&str]| {
        mount(destination, kind, Path::new(source), options)
    };
    vec![
        mount("/proc", "proc", "proc", &["nosuid", "noexec", "nodev"]),
        mount(
            "/dev",
            "tmpfs",
            "tmpfs",
            &["nosuid", "strictatime", "mode=755", "size=65536k"],
        ),
        mount(
            "/dev/pts",
            "devpts",
            "devpts",
            &[
                "nosuid",
                "noexec",
                "newinstance",
                "ptmxmode=0666",
                "mode=0620",
                "gid=5",
            ],
        ),
        mount(
            "/dev/mqueue",
            "mqueue",
            "mqueue",
            &["nosuid", "noexec", "nodev"],
        ),
        mount(
            "/sys",
            "sysfs",
            "sysfs",
            &["nosuid", "noexec", "nodev", access],
        ),
        mount(
            "/sys/fs/cgroup",
            "cgroup",
            "cgroup",
            &["nosuid", "noexec", "nodev", "relatime", access],
        ),
        if i.sandbox_config.namespaces.ipc == NamespaceMode::Node {
            mount("/dev/shm", "bind", "/dev/shm", &["rbind", "rprivate", "rw"])
        } else {
            // Each container has its own /dev/shm. If the caller binds the sandbox's /dev/shm, that bind replaces this
            // mount.
            mount(
                "/dev/shm",
                "tmpfs",
                "shm",
                &["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"],
            )
        },
    ]
}

/// Returns the annotations by which tools find a container's pod (exec-in-container 7).
fn annotations(i: &Inputs<'_>) -> BTreeMap<String, String> {
    let m = &i.sandbox_config.metadata;
    let pairs = [
        ("container-type", "container"),
        ("container-name", i.config.metadata.name.as_str()),
        ("image-name", &i.config.image.name),
        ("sandbox-id", i.sandbox.as_str()),
        ("sandbox-name", &m.name),
        ("sandbox-namespace", &m.namespace),
        ("sandbox-uid", &m.uid),
    ];
    pairs
        .into_iter()
        .map(|(k, v)| (format!("io.kubernetes.cri.{k}"), v.to_owned()))
        .collect()
}
