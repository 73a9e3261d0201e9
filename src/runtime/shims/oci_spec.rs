//! The OCI configuration (`config.json`) of a container, as containerd's CRI plugin 1.7 writes it for the same pod.
//!
//! Invariants: no decision depends on anything but the [`Inputs`]; the only files read are `etc/passwd` and
//! `etc/group` of the image's layers. Facts of the node come in as [`Host`]. What a pod asks for and cannot get is an
//! error, never left out.

mod capabilities;
mod host;
mod process;
mod resources;
mod user;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::api::pod::SeccompProfile;
use crate::api::{Container, Pod};
use crate::images::ImageConfig;
use crate::runtime::{ContainerId, RuntimeError, StartErrorReason};

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

/// What the configuration depends on and only the node knows; see `Host::read`.
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
    /// Which of the cgroup controllers `cpu` and `memory` this node lacks.
    pub missing_controllers: Vec<&'static str>,
    /// Everything under /dev, for privileged containers.
    pub devices: Vec<HostDevice>,
}

/// Everything a container's configuration depends on.
#[derive(Clone, Debug)]
pub struct Inputs<'a> {
    /// Validated and defaulted.
    pub pod: &'a Pod,
    /// One of the pod's containers.
    pub container: &'a Container,
    /// Its sandbox, for the annotations.
    pub sandbox: &'a ContainerId,
    /// What the image says.
    pub image: &'a ImageConfig,
    /// Unpacked layers in overlayfs form (whiteouts are 0/0 character devices), topmost first.
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
    /// The profile of `seccompProfile` type `Localhost`, in the form of `linux.seccomp`.
    pub localhost_seccomp: Option<Value>,
}

/// Hidden, as the kubelet asks of every runtime (pkg/securitycontext/util.go).
const MASKED: [&str; 11] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];

/// Read-only, from the same list.
const READONLY: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// The whole `config.json`.
///
/// Errors (reason `CreateContainerConfigError`): no command at all, a user or group that the image does not have,
/// runAsNonRoot against root, an unknown capability or one this process cannot give, a quantity that is no number.
pub fn build(i: &Inputs<'_>) -> Result<Value, RuntimeError> {
    config(i)
        .map_err(|cause| RuntimeError::new(StartErrorReason::CreateContainerConfigError, cause))
}

fn config(i: &Inputs<'_>) -> Result<Value, String> {
    let process = process::process(i)?;
    let linux = linux(i, &process)?;
    Ok(json!({
        "ociVersion": "1.0.2",
        "process": process,
        "root": { "path": i.rootfs, "readonly": i.container.security_context.read_only_root_filesystem == Some(true) },
        "mounts": mounts(i),
        "annotations": annotations(i),
        "linux": linux,
    }))
}

/// The container's own profile, else the pod's.
pub fn seccomp_profile<'a>(pod: &'a Pod, container: &'a Container) -> Option<&'a SeccompProfile> {
    container.security_context.seccomp_profile.as_ref().or(pod
        .spec
        .security_context
        .seccomp_profile
        .as_ref())
}

/// `linux.seccomp`. A privileged container has none, whatever it asks for, as in containerd.
fn seccomp(i: &Inputs<'_>, bounding: &Value) -> Result<Option<Value>, String> {
    let profile = seccomp_profile(i.pod, i.container).map_or("Unconfined", |p| p.type_.as_str());
    match (profile, &i.localhost_seccomp) {
        _ if privileged(i) => Ok(None),
        ("Unconfined", _) => Ok(None),
        ("RuntimeDefault", _) => {
            let bounding: Vec<&str> = bounding
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            Ok(Some(crate::seccomp::default::profile(&bounding)))
        }
        ("Localhost", Some(own)) => Ok(Some(own.clone())),
        (other, _) => Err(format!("cannot apply seccompProfile {other}")),
    }
}

fn privileged(i: &Inputs<'_>) -> bool {
    i.container.security_context.privileged == Some(true)
}

fn linux(i: &Inputs<'_>, process: &Value) -> Result<Value, String> {
    let privileged = privileged(i);
    let mut resources =
        resources::linux_resources(&i.container.resources, &i.host.missing_controllers)?;
    // Nothing is allowed here: the runtimes themselves add what every container needs (null, zero, tty, pts, mknod).
    resources.insert(
        "devices".into(),
        json!([{ "allow": privileged, "access": "rwm" }]),
    );
    let mut linux = json!({
        "resources": resources,
        "cgroupsPath": i.cgroups_path,
        "namespaces": namespaces(i),
    });
    if let Some(profile) = seccomp(i, &process["capabilities"]["bounding"])? {
        linux["seccomp"] = profile;
    }
    if privileged {
        linux["devices"] = i.host.devices.iter().map(device).collect();
    } else {
        linux["maskedPaths"] = json!(MASKED);
        linux["readonlyPaths"] = json!(READONLY);
    }
    Ok(linux)
}

fn device(d: &HostDevice) -> Value {
    json!({
        "path": d.path, "type": if d.block { "b" } else { "c" }, "major": d.number.0, "minor": d.number.1,
        "fileMode": d.mode, "uid": d.uid, "gid": d.gid,
    })
}

/// A namespace that is left out is the node's own. Cgroup namespaces as in containerd: on cgroup v2, unprivileged.
fn namespaces(i: &Inputs<'_>) -> Value {
    let n = &i.namespaces;
    let mut list = vec![json!({ "type": "mount" })];
    if n.pid.is_some() || !i.pod.spec.host_pid {
        list.push(namespace("pid", n.pid.as_deref()));
    }
    for (name, path) in [("network", &n.net), ("ipc", &n.ipc), ("uts", &n.uts)] {
        list.extend(path.as_deref().map(|p| namespace(name, Some(p))));
    }
    if i.host.cgroup_v2_only && !privileged(i) {
        list.push(json!({ "type": "cgroup" }));
    }
    list.into()
}

fn namespace(name: &str, path: Option<&Path>) -> Value {
    path.map_or_else(
        || json!({ "type": name }),
        |p| json!({ "type": name, "path": p }),
    )
}

/// containerd's own mounts, then the pod's. A destination of the pod replaces a default one.
fn mounts(i: &Inputs<'_>) -> Vec<Value> {
    let taken = |destination: &str| {
        i.mounts
            .iter()
            .any(|m| clean(&m.destination) == destination)
    };
    let mut list: Vec<Value> = default_mounts(i)
        .into_iter()
        .filter(|m| m["destination"].as_str().is_none_or(|d| !taken(d)))
        .collect();
    let mut own: Vec<&Mount> = i.mounts.iter().collect();
    // Stable, by depth: a volume inside another is mounted after it, as containerd does (sort.Stable(orderedMounts)).
    own.sort_by_key(|m| clean(&m.destination).matches('/').count());
    list.extend(own.into_iter().map(bind));
    list
}

fn clean(destination: &str) -> &str {
    let trimmed = destination.trim_end_matches('/');
    if trimmed.is_empty() { "/" } else { trimmed }
}

fn bind(m: &Mount) -> Value {
    let mut options = vec!["rbind".to_owned()];
    if !m.options.iter().any(|o| {
        matches!(
            o.as_str(),
            "rprivate" | "private" | "rslave" | "slave" | "rshared" | "shared"
        )
    }) {
        options.push("rprivate".into());
    }
    options.push(if m.read_only { "ro" } else { "rw" }.into());
    options.extend(m.options.iter().cloned());
    json!({ "destination": m.destination, "type": "bind", "source": m.source, "options": options })
}

fn default_mounts(i: &Inputs<'_>) -> Vec<Value> {
    let access = if privileged(i) { "rw" } else { "ro" };
    let mount = |destination: &str, kind: &str, source: &str, options: &[&str]| json!({ "destination": destination, "type": kind, "source": source, "options": options });
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
        if i.pod.spec.host_ipc {
            mount("/dev/shm", "bind", "/dev/shm", &["rbind", "rprivate", "rw"])
        } else {
            // One per container unless the caller binds the sandbox's, which replaces this one.
            mount(
                "/dev/shm",
                "tmpfs",
                "shm",
                &["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"],
            )
        },
    ]
}

/// By these, tools find a container's pod (exec-in-container 7).
fn annotations(i: &Inputs<'_>) -> Value {
    let m = &i.pod.metadata;
    let pairs = [
        ("container-type", "container"),
        ("container-name", &i.container.name),
        ("image-name", &i.container.image),
        ("sandbox-id", i.sandbox.as_str()),
        ("sandbox-name", &m.name),
        ("sandbox-namespace", &m.namespace),
        ("sandbox-uid", m.uid.as_str()),
    ];
    pairs
        .into_iter()
        .map(|(k, v)| (format!("io.kubernetes.cri.{k}"), Value::from(v)))
        .collect::<Map<_, _>>()
        .into()
}

#[cfg(test)]
mod tests;
