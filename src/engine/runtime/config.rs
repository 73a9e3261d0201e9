//! The configurations that a runtime gets, divided as in CRI (`PodSandboxConfig`,
//! `ContainerConfig`).
//!
//! Invariants: plain data. Nothing here names a v1 object, and a runtime needs nothing else to run a container. What a
//! configuration contains is decided in [`crate::pods::container_config`].

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::net::network::{Bandwidth, PortMapping};

/// Labels or annotations. The runtime keeps them and returns them with the status; it never
/// interprets them.
pub type Labels = BTreeMap<String, String>;

/// Which sandbox of which pod (CRI `PodSandboxMetadata`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxMetadata {
    /// Name of the pod.
    pub name: String,
    /// Namespace of the pod.
    pub namespace: String,
    /// UID of the pod.
    pub uid: String,
    /// Number of sandboxes of this pod before this one.
    pub attempt: u32,
}

/// Which instance of which container (CRI `ContainerMetadata`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerMetadata {
    /// Name of the container, unique in its pod.
    pub name: String,
    /// Number of instances of this container before this one.
    pub attempt: u32,
}

/// Whose namespace a container's processes are in (CRI `NamespaceMode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NamespaceMode {
    /// A namespace that the containers of the pod share.
    #[default]
    Pod,
    /// A namespace of its own.
    Container,
    /// The node's.
    Node,
}

/// CRI `NamespaceOption`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamespaceOptions {
    /// Network and host name: the pod's or the node's.
    pub network: NamespaceMode,
    /// Processes.
    pub pid: NamespaceMode,
    /// System V IPC: the pod's or the node's.
    pub ipc: NamespaceMode,
}

/// A file system in memory of the whole pod. It is mounted in the sandbox's own mount namespace, so it vanishes with the
/// sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tmpfs {
    /// The directory it covers.
    pub path: PathBuf,
    /// Bytes; None is the kernel's default: half the memory, or all huge pages.
    pub size: Option<u64>,
    /// It is a hugetlbfs of pages of so many bytes, else a tmpfs.
    #[serde(default)]
    pub page_size: Option<u64>,
    /// In its root directory a user removes and renames only what is theirs. Every user may write there.
    #[serde(default)]
    pub is_sticky: bool,
}

/// A pod's sandbox (CRI `PodSandboxConfig`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxConfig {
    /// Which sandbox it is.
    pub metadata: SandboxMetadata,
    /// Host name that its processes see; unused in the node's network.
    pub hostname: String,
    /// Directory of the pod's logs; [`ContainerConfig::log_path`] lies below it.
    pub log_directory: PathBuf,
    /// Cgroup below which the pod's containers have theirs, absolute in each hierarchy.
    pub cgroup_parent: String,
    /// Limits and weights of that cgroup.
    pub resources: PodResources,
    /// Whose namespaces the pod uses.
    pub namespaces: NamespaceOptions,
    /// Which runtime runs its containers; empty is the default one.
    pub runtime_handler: String,
    /// Kernel parameters of its own namespaces: the name with dots between its parts, and the value.
    pub sysctls: Vec<(String, String)>,
    /// Memory that its containers share through volumes.
    pub tmpfs: Vec<Tmpfs>,
    /// Ports of the node that lead to it; none where it uses the node's network.
    pub port_mappings: Vec<PortMapping>,
    /// What plugins let through.
    pub bandwidth: Bandwidth,
    /// See [`Labels`].
    pub labels: Labels,
}

/// The image of a container or of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageSpec {
    /// The image id that the reference resolved to, `sha256:…`; this image runs.
    pub id: String,
    /// The reference as a person wrote it.
    pub name: String,
}

/// Whether later mounts appear below a mount (CRI `MountPropagation`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Propagation {
    /// They do not.
    #[default]
    Private,
    /// Those of the node appear in the container.
    HostToContainer,
    /// Those of the container appear on the node, too.
    Bidirectional,
}

/// A directory or file of the node, or an image, that a container sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mount {
    /// Absolute path on the node; empty for an image.
    pub host_path: PathBuf,
    /// The image whose files are mounted instead: read-only, and no program in it can be executed.
    pub image: Option<ImageSpec>,
    /// Only this path below `host_path`, relative and without `..`. The runtime makes its missing
    /// parts, and follows no link out of `host_path`. CRI has no counterpart: the kubelet resolves
    /// it before. In an image (CRI `image_sub_path`) it is a directory that must be there.
    pub sub_path: Option<PathBuf>,
    /// Absolute path in the container. One that equals a default mount (`/dev/shm`) replaces it.
    pub container_path: String,
    /// Whether the container may not write to it.
    pub read_only: bool,
    /// The mounts below it are read-only too.
    pub recursive_read_only: bool,
    /// See [`Propagation`].
    pub propagation: Propagation,
}

/// Weight and limits of processor time and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// 1024 per core; 2 to 262144.
    pub cpu_shares: i64,
    /// Microseconds of processor time in each period; None is no limit.
    pub cpu_quota: Option<i64>,
    /// Length of a period in microseconds.
    pub cpu_period: i64,
    /// Bytes; None is no limit.
    pub memory_limit: Option<i64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cpu_shares: 2,
            cpu_quota: None,
            cpu_period: 100_000,
            memory_limit: None,
        }
    }
}

/// What a pod may use as a whole. CRI has no counterpart: the kubelet sets it itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodResources {
    /// Those of all its containers together.
    pub limits: Limits,
    /// Number of processes and threads; None is no limit.
    pub pids_limit: Option<i64>,
}

/// What a container may use (CRI `LinuxContainerResources`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// Its own.
    pub limits: Limits,
    /// How early the kernel kills it when memory is short: -1000 (last) to 1000 (first). Where the
    /// node does not allow so low a score, the runtime takes the lowest it can.
    pub oom_score_adj: i32,
    /// Page size and limit of each size of huge pages, in bytes. Without the cgroup controller nothing limits them.
    pub huge_pages: Vec<(u64, u64)>,
    /// Bytes that may be swapped out. Where the kernel counts no swap, nothing limits it.
    pub swap_limit: u64,
    /// When the kernel kills one of its processes for want of memory, it kills them all. cgroup v2 only.
    pub oom_group: bool,
}

/// Which system calls a container may make (CRI `SecurityProfile`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SeccompProfile {
    /// All.
    #[default]
    Unconfined,
    /// The runtime's own profile.
    RuntimeDefault,
    /// A profile on the node.
    Localhost(PathBuf),
}

/// What AppArmor lets a container do (CRI `SecurityProfile`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AppArmorProfile {
    /// Nobody has chosen: the runtime's own profile where the node has it.
    #[default]
    Unspecified,
    /// Everything.
    Unconfined,
    /// The runtime's own profile.
    RuntimeDefault,
    /// The name of a profile that is loaded on the node.
    Localhost(String),
}

/// What a container's processes may do (CRI `LinuxContainerSecurityContext`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Security {
    /// Everything the node can give: all capabilities and devices, nothing masked, no seccomp profile.
    pub privileged: bool,
    /// Capabilities beyond the runtime's default set: upper case without `CAP_`, or `ALL`.
    pub add_capabilities: Vec<String>,
    /// Capabilities taken away, in the same form.
    pub drop_capabilities: Vec<String>,
    /// User id; None takes the image's user.
    pub run_as_user: Option<u32>,
    /// Group id; None takes the user's or the image's group.
    pub run_as_group: Option<u32>,
    /// Groups beside the primary one and those of the image's user.
    pub supplemental_groups: Vec<u32>,
    /// The process has no groups that the image's `etc/group` gives its user.
    pub strict_groups: bool,
    /// The root file system cannot be written to.
    pub read_only_root: bool,
    /// No program can gain privileges by being executed.
    pub no_new_privileges: bool,
    /// System calls.
    pub seccomp: SeccompProfile,
    /// Files, capabilities, mounts, signals.
    pub app_armor: AppArmorProfile,
    /// Paths that read as empty.
    pub masked_paths: Vec<String>,
    /// Paths that cannot be written to.
    pub readonly_paths: Vec<String>,
}

/// Where a container leaves its last words (kubelet-probes 8.8). The runtime reads them when the container ends, because
/// the daemon may not run then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerminationMessage {
    /// The file on the node.
    pub file: PathBuf,
    /// Whether the end of the log is the message when the file is empty and the container failed.
    pub fall_back_to_log: bool,
}

/// A container (CRI `ContainerConfig`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerConfig {
    /// Which instance it is.
    pub metadata: ContainerMetadata,
    /// Its image.
    pub image: ImageSpec,
    /// Replaces the image's entrypoint and drops its arguments; empty keeps both.
    pub command: Vec<String>,
    /// Replaces the image's arguments.
    pub args: Vec<String>,
    /// Absolute path; empty takes the image's.
    pub working_dir: String,
    /// Variables that replace or follow those of the image.
    pub env: Vec<(String, String)>,
    /// The mounts over its image, in the order of the pod spec.
    pub mounts: Vec<Mount>,
    /// Limits and weights.
    pub resources: Resources,
    /// Privileges.
    pub security: Security,
    /// Its standard input is open and never ends, else it is /dev/null.
    pub stdin: bool,
    /// The input ends when the first client that was attached to it leaves.
    pub stdin_once: bool,
    /// It has a terminal, which is its input and output.
    pub tty: bool,
    /// Log file, relative to [`SandboxConfig::log_directory`].
    pub log_path: PathBuf,
    /// The name of the signal that ends it (see [`super::signals::number`]); None takes the image's.
    pub stop_signal: Option<String>,
    /// The file for its last words, if it has one.
    pub termination_message: Option<TerminationMessage>,
    /// See [`Labels`].
    pub labels: Labels,
    /// See [`Labels`].
    pub annotations: Labels,
}
