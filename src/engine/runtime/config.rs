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

/// Identity of a sandbox (CRI `PodSandboxMetadata`).
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

/// Identity of an instance of a container (CRI `ContainerMetadata`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerMetadata {
    /// Name of the container, unique in its pod.
    pub name: String,
    /// Number of instances of this container before this one.
    pub attempt: u32,
}

/// Owner of a namespace that a container's processes are in (CRI `NamespaceMode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NamespaceMode {
    /// A namespace that the containers of the pod share.
    #[default]
    Pod,
    /// A namespace of the container alone.
    Container,
    /// The node's namespace.
    Node,
}

/// Namespaces of a pod (CRI `NamespaceOption`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamespaceOptions {
    /// Network and host name: the pod's or the node's.
    pub network: NamespaceMode,
    /// Namespace of process ids.
    pub pid: NamespaceMode,
    /// System V IPC: the pod's or the node's.
    pub ipc: NamespaceMode,
}

/// A file system in memory of the whole pod. It is mounted in the sandbox's own mount namespace, so it vanishes with the
/// sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tmpfs {
    /// The directory that the file system covers.
    pub path: PathBuf,
    /// Size in bytes; None is the kernel's default: half the memory, or all huge pages.
    pub size: Option<u64>,
    /// Bytes of a page: the mount is a hugetlbfs with pages of this size. None for a tmpfs.
    #[serde(default)]
    pub page_size: Option<u64>,
    /// True if every user may write to the root directory, and removes and renames there only what is theirs.
    #[serde(default)]
    pub is_sticky: bool,
}

/// A pod's sandbox (CRI `PodSandboxConfig`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxConfig {
    /// Identity of the sandbox.
    pub metadata: SandboxMetadata,
    /// Host name that the pod's processes see; unused in the node's network.
    pub hostname: String,
    /// Directory of the pod's logs; [`ContainerConfig::log_path`] lies below it.
    pub log_directory: PathBuf,
    /// Cgroup below which the pod's containers have theirs, absolute in each hierarchy.
    pub cgroup_parent: String,
    /// Limits and weights of that cgroup.
    pub resources: PodResources,
    /// Namespaces that the pod uses.
    pub namespaces: NamespaceOptions,
    /// Name of the runtime that runs the pod's containers; empty is the default one.
    pub runtime_handler: String,
    /// Kernel parameters of the pod's own namespaces: the name with dots between its parts, and the value.
    pub sysctls: Vec<(String, String)>,
    /// Memory that the pod's containers share through volumes.
    pub tmpfs: Vec<Tmpfs>,
    /// Ports of the node that lead to the pod; empty if the pod uses the node's network.
    pub port_mappings: Vec<PortMapping>,
    /// Limits of the traffic that plugins let through.
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

/// Propagation of later mounts between the node and the container (CRI `MountPropagation`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Propagation {
    /// Later mounts stay where they are made.
    #[default]
    Private,
    /// Later mounts of the node appear in the container.
    HostToContainer,
    /// Later mounts of the node appear in the container, and those of the container appear on the node.
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
    /// True if the container may not write to the mount.
    pub read_only: bool,
    /// True if the mounts below this mount are read-only too.
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

/// Limits of a pod as a whole. CRI has no counterpart: the kubelet sets these limits itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodResources {
    /// Weight and limits of all the pod's containers together.
    pub limits: Limits,
    /// Maximum number of processes and threads in the pod; None for no limit.
    pub pids_limit: Option<i64>,
}

/// Limits of one container (CRI `LinuxContainerResources`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// The container's own weight and limits.
    pub limits: Limits,
    /// How early the kernel kills the container when memory is short: -1000 (last) to 1000 (first). Where the node does
    /// not allow so low a score, the runtime takes the lowest it can.
    pub oom_score_adj: i32,
    /// Page size and limit of each size of huge pages, in bytes. Without the cgroup controller nothing limits them.
    pub huge_pages: Vec<(u64, u64)>,
    /// Bytes that may be swapped out. Where the kernel counts no swap, nothing limits it.
    pub swap_limit: u64,
    /// True if the kernel kills all the container's processes when it kills one of them for want of memory. cgroup v2
    /// only.
    pub oom_group: bool,
}

/// Filter of the system calls that a container may make (CRI `SecurityProfile`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SeccompProfile {
    /// No filter: all system calls are allowed.
    #[default]
    Unconfined,
    /// The runtime's own profile.
    RuntimeDefault,
    /// A profile on the node.
    Localhost(PathBuf),
}

/// AppArmor profile of a container (CRI `SecurityProfile`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AppArmorProfile {
    /// Nobody has chosen: the runtime's own profile where the node has it.
    #[default]
    Unspecified,
    /// No restriction: AppArmor lets the container do everything.
    Unconfined,
    /// The runtime's own profile.
    RuntimeDefault,
    /// The name of a profile that is loaded on the node.
    Localhost(String),
}

/// Privileges of a container's processes (CRI `LinuxContainerSecurityContext`).
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
    /// True if the process gets no groups that the image's `etc/group` gives its user.
    pub strict_groups: bool,
    /// True if the root file system cannot be written to.
    pub read_only_root: bool,
    /// True if no program can gain privileges by being executed.
    pub no_new_privileges: bool,
    /// Profile for system calls.
    pub seccomp: SeccompProfile,
    /// Profile for files, capabilities, mounts, signals.
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
    /// True if the end of the log is the message when the file is empty and the container failed.
    pub fall_back_to_log: bool,
}

/// A container (CRI `ContainerConfig`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerConfig {
    /// Identity of the instance.
    pub metadata: ContainerMetadata,
    /// The image that the container runs.
    pub image: ImageSpec,
    /// Replaces the image's entrypoint and drops its arguments; empty keeps both.
    pub command: Vec<String>,
    /// Replaces the image's arguments.
    pub args: Vec<String>,
    /// Absolute path; empty takes the image's.
    pub working_dir: String,
    /// Variables that replace or follow those of the image.
    pub env: Vec<(String, String)>,
    /// The mounts over the container's image, in the order of the pod spec.
    pub mounts: Vec<Mount>,
    /// Limits and weights.
    pub resources: Resources,
    /// Privileges of the container's processes.
    pub security: Security,
    /// True if the container's standard input is open and never ends; otherwise it is /dev/null.
    pub stdin: bool,
    /// True if the standard input ends when the first client that was attached to it leaves.
    pub stdin_once: bool,
    /// True if the container has a terminal, which is its input and output.
    pub tty: bool,
    /// Log file, relative to [`SandboxConfig::log_directory`].
    pub log_path: PathBuf,
    /// The name of the signal that ends the container (see [`super::signals::number`]); None takes the image's.
    pub stop_signal: Option<String>,
    /// The file for the container's last words, if it has one.
    pub termination_message: Option<TerminationMessage>,
    /// See [`Labels`].
    pub labels: Labels,
    /// See [`Labels`].
    pub annotations: Labels,
}
