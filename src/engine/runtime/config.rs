//! Types of the configurations that a runtime receives, divided as in CRI (`PodSandboxConfig`, `ContainerConfig`).
//!
//! Invariants: these types are plain data, and none of them names a v1 object. A runtime needs nothing but these
//! configurations to run a container. `crate::pods::container_config` decides the content of a configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ContainerId;
use crate::api::pod::ResourceRequirements;
use crate::net::network::{Bandwidth, PortMapping};

/// Labels or annotations. The runtime stores them, returns them with the status, and never interprets them.
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

/// The scope of a namespace: one container, all containers of a pod, or the node (CRI `NamespaceMode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NamespaceMode {
    /// The containers of the pod share the namespace.
    #[default]
    Pod,
    /// The container has the namespace for itself.
    Container,
    /// The container uses the node's namespace.
    Node,
}

/// Namespaces of a pod (CRI `NamespaceOption`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamespaceOptions {
    /// Scope of the network and host name: the pod or the node.
    pub network: NamespaceMode,
    /// Scope of the process ids.
    pub pid: NamespaceMode,
    /// Scope of System V IPC: the pod or the node.
    pub ipc: NamespaceMode,
}

/// A file system in memory that all containers of the pod share. The file system is mounted in the sandbox's own mount
/// namespace, so it vanishes with the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tmpfs {
    /// The directory that the file system covers.
    pub path: PathBuf,
    /// Maximum size in bytes. None means the kernel's default: half the memory, or all huge pages.
    pub size: Option<u64>,
    /// Page size in bytes if the mount is a hugetlbfs; None if it is a tmpfs.
    #[serde(default)]
    pub page_size: Option<u64>,
    /// True if the root directory has the sticky bit: every user may write there, and may remove and rename only their
    /// own files.
    #[serde(default)]
    pub is_sticky: bool,
}

/// The configuration of a pod's sandbox (CRI `PodSandboxConfig`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxConfig {
    /// Identity of the sandbox.
    pub metadata: SandboxMetadata,
    /// Host name that the pod's processes see; unused in the node's network.
    pub hostname: String,
    /// Directory of the pod's logs; [`ContainerConfig::log_path`] lies below it.
    pub log_directory: PathBuf,
    /// Parent cgroup of the pod's containers, as an absolute path in each hierarchy.
    pub cgroup_parent: String,
    /// Limits and weights of the cgroup `cgroup_parent`.
    pub resources: PodResources,
    /// Namespaces that the pod uses.
    pub namespaces: NamespaceOptions,
    /// Name of the runtime that runs the pod's containers; empty means the default runtime.
    pub runtime_handler: String,
    /// Kernel parameters of the pod's own namespaces, as pairs of a name and a value. Dots separate the parts of a
    /// name.
    pub sysctls: Vec<(String, String)>,
    /// File systems in memory that the pod's containers share through volumes.
    pub tmpfs: Vec<Tmpfs>,
    /// Ports of the node that lead to the pod; empty if the pod uses the node's network.
    pub port_mappings: Vec<PortMapping>,
    /// Bandwidth limits of the pod's traffic, which the CNI plugins enforce.
    pub bandwidth: Bandwidth,
    /// Labels of the sandbox, see [`Labels`].
    pub labels: Labels,
}

/// The image of a container or of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageSpec {
    /// The id of the image that runs, `sha256:…`: the result of resolving the reference in `name`.
    pub id: String,
    /// The image reference as a person wrote it.
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
    /// The image whose files are mounted instead of `host_path`. The mount is read-only, and no program in it can be
    /// executed.
    pub image: Option<ImageSpec>,
    /// A path below `host_path`, relative and without `..`. Only the file or directory at this path is mounted. The
    /// runtime makes missing parts of the path, and follows no link out of `host_path`. CRI has no counterpart, because
    /// the kubelet resolves the path itself. If the mount is an image (CRI `image_sub_path`), the path must be an
    /// existing directory.
    pub sub_path: Option<PathBuf>,
    /// Absolute path in the container. A path that equals a default mount (`/dev/shm`) replaces that mount.
    pub container_path: String,
    /// True if the container may not write to the mount.
    pub read_only: bool,
    /// True if the mounts below this mount are read-only too.
    pub recursive_read_only: bool,
    /// Propagation of later mounts, see [`Propagation`].
    pub propagation: Propagation,
}

/// Weight and limits of processor time and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Weight of processor time: 1024 per core, from 2 to 262144.
    pub cpu_shares: i64,
    /// Processor time in microseconds that may be used in each period; None means no limit.
    pub cpu_quota: Option<i64>,
    /// Length of a period in microseconds.
    pub cpu_period: i64,
    /// Limit of memory in bytes; None means no limit.
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
    /// Maximum number of processes and threads in the pod; None means no limit.
    pub pids_limit: Option<i64>,
}

/// Limits of one container (CRI `LinuxContainerResources`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// The container's own weight and limits.
    pub limits: Limits,
    /// Order in which the kernel kills containers when memory is short: a container with 1000 is killed first, a
    /// container with -1000 last. If the node does not allow a score this low, the runtime sets the lowest score that
    /// the node allows.
    pub oom_score_adj: i32,
    /// Limits of huge pages, as pairs of a page size and a limit, both in bytes. The limits have no effect on a node
    /// without the cgroup controller for huge pages.
    pub huge_pages: Vec<(u64, u64)>,
    /// Limit of swap in bytes. It has no effect if the kernel does not count swap.
    pub swap_limit: u64,
    /// True if the kernel kills all processes of the container as soon as it kills one of them because memory is short.
    /// Works with cgroup v2 only.
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
    /// The profile in this file of the node.
    Localhost(PathBuf),
}

/// AppArmor profile of a container (CRI `SecurityProfile`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AppArmorProfile {
    /// The pod has chosen no profile: the container gets the runtime's own profile if the node has it.
    #[default]
    Unspecified,
    /// No profile: AppArmor allows the container everything.
    Unconfined,
    /// The runtime's own profile.
    RuntimeDefault,
    /// The name of a profile that is loaded on the node.
    Localhost(String),
}

/// Privileges of a container's processes (CRI `LinuxContainerSecurityContext`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Security {
    /// True if the container gets everything that the node can give: all capabilities and devices, no masked paths, no
    /// seccomp profile.
    pub privileged: bool,
    /// Capabilities in addition to the runtime's default set, in upper case without `CAP_`, or `ALL`.
    pub add_capabilities: Vec<String>,
    /// Capabilities that the container loses, in upper case without `CAP_`, or `ALL`.
    pub drop_capabilities: Vec<String>,
    /// User id; None means the image's user.
    pub run_as_user: Option<u32>,
    /// Group id; None means the primary group of the user, or the image's group.
    pub run_as_group: Option<u32>,
    /// Groups in addition to the primary group and to the groups of the image's user.
    pub supplemental_groups: Vec<u32>,
    /// True if the process does not get the groups that `etc/group` of the image gives its user.
    pub strict_groups: bool,
    /// True if the root file system cannot be written to.
    pub read_only_root: bool,
    /// True if no program can gain privileges by being executed.
    pub no_new_privileges: bool,
    /// Filter for system calls.
    pub seccomp: SeccompProfile,
    /// AppArmor profile, which restricts files, capabilities, mounts and signals.
    pub app_armor: AppArmorProfile,
    /// Paths whose content the container sees as empty.
    pub masked_paths: Vec<String>,
    /// Paths to which the container cannot write.
    pub readonly_paths: Vec<String>,
}

/// The file into which a container writes its termination message (kubelet-probes 8.8). The runtime reads the file when
/// the container ends, because the daemon may not be running then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerminationMessage {
    /// The file on the node.
    pub file: PathBuf,
    /// True if the end of the log becomes the message when the file is empty and the container failed.
    pub fall_back_to_log: bool,
}

/// The configuration of a container (CRI `ContainerConfig`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerConfig {
    /// Identity of the instance.
    pub metadata: ContainerMetadata,
    /// The image that the container runs.
    pub image: ImageSpec,
    /// Program that replaces the image's entrypoint; the image's arguments are then dropped too. If the list is empty,
    /// the image's entrypoint stays, and its arguments stay unless `args` replaces them.
    pub command: Vec<String>,
    /// Arguments that replace the image's arguments.
    pub args: Vec<String>,
    /// Absolute path of the working directory; empty means the image's working directory.
    pub working_dir: String,
    /// Environment variables. A variable of the image with the same name is replaced.
    pub env: Vec<(String, String)>,
    /// Mounts in the container, in the order of the pod spec.
    pub mounts: Vec<Mount>,
    /// Limits and weights of the container.
    pub resources: Resources,
    /// Resources of the pod's spec from which these limits and weights are made. The runtime returns them with the status.
    pub requirements: ResourceRequirements,
    /// Privileges of the container's processes.
    pub security: Security,
    /// True if the container's standard input stays open; otherwise it is /dev/null.
    pub stdin: bool,
    /// True if the standard input ends when the first attached client leaves.
    pub stdin_once: bool,
    /// True if the container has a terminal for its input and output.
    pub tty: bool,
    /// Path of the log file, relative to [`SandboxConfig::log_directory`].
    pub log_path: PathBuf,
    /// Name of the signal that asks the container to end (see [`super::signals::number`]); None means the image's stop
    /// signal.
    pub stop_signal: Option<String>,
    /// The file for the container's termination message, if it has one.
    pub termination_message: Option<TerminationMessage>,
    /// The container whose processes this one sees (CRI `NamespaceMode_TARGET`); None if the pod's namespaces decide. It
    /// has an effect only where containers have process namespaces of their own.
    pub processes_of: Option<ContainerId>,
    /// Labels of the container, see [`Labels`].
    pub labels: Labels,
    /// Annotations of the container, see [`Labels`].
    pub annotations: Labels,
}
