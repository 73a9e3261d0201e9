//! The container runtime, with the same boundary as CRI: it takes finished configurations and knows no pod.
//!
//! Invariants: this module does not decide *whether* to start or kill a container; `crate::pods::actions` does. This
//! module does not decide what a container looks like; `crate::pods::container_config` does. Containers do not belong
//! to the daemon: a new daemon finds the containers that an old one started. A container id is never used again. Every
//! process is named by pid *and* start time, so a reused pid is never signalled or entered.

mod config;
pub mod labels;
pub mod logs;
pub mod metered;
mod pod_status;
mod session;
#[cfg(test)]
mod session_tests;
pub mod signals;

pub use config::{
    AppArmorProfile, ContainerConfig, ContainerMetadata, ImageSpec, Labels, Limits, Mount,
    NamespaceMode, NamespaceOptions, PodResources, Propagation, Resources, SandboxConfig,
    SandboxMetadata, SeccompProfile, Security, TerminationMessage, Tmpfs,
};
pub use pod_status::{RuntimeContainerStatus, RuntimePodStatus, RuntimeSandboxStatus};
pub use session::{AttachRequest, ExecRequest, Session, SessionEnd, Started, TerminalSize};
pub(crate) use session::{Endable, Sessions};

use std::fmt;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::api::pod::ResourceRequirements;
use crate::base::cancel::Cancel;
use crate::base::clock::Moment;
use crate::base::sys::task;

/// Message of an error whose cause is the end of the daemon, not the pod.
pub const ENDING: &str = "the daemon is ending";

/// The id of one instance of a container, or of one sandbox, in one runtime. An id is never used again, and only the
/// runtime that made it may interpret it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContainerId(Arc<str>);

/// The scheme in the ids of the shim runtime, which is podprobe's own.
pub const SHIMS_SCHEME: &str = "podprobe";
/// The text between the scheme and the runtime's own id.
const SCHEME_END: &str = "://";

impl ContainerId {
    /// Makes the full id from the runtime's name `scheme` and the runtime's own `id`.
    pub fn new(scheme: &str, id: &str) -> Self {
        Self(format!("{scheme}{SCHEME_END}{id}").into())
    }

    /// Returns the id in the runtime's own form, without the scheme.
    pub fn as_str(&self) -> &str {
        let after = |(_, id)| id;
        self.0.split_once(SCHEME_END).map_or(&self.0, after)
    }

    /// Returns `<scheme>://<id>`, the form of `status.containerStatuses[].containerID`.
    pub fn uri(&self) -> String {
        self.0.to_string()
    }
}

/// Parses an id in the form of [`ContainerId::uri`]. Text without a scheme becomes an id of the shim runtime.
impl From<&str> for ContainerId {
    fn from(s: &str) -> Self {
        match s.contains(SCHEME_END) {
            true => Self(s.into()),
            false => Self::new(SHIMS_SCHEME, s),
        }
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The state of a container (kubelet-probes 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuntimeState {
    /// The container is created but not started.
    Created,
    /// The container's first process runs.
    Running,
    /// The container's first process has ended.
    Exited,
    /// The container's shim is gone and has not recorded an exit.
    Unknown,
}

/// User and groups of a process (CRI `LinuxContainerUser`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinuxUser {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Ids of the supplementary groups.
    pub supplemental_groups: Vec<u32>,
}

/// Status of an instance of a container (CRI `ContainerStatus`).
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerStatus {
    /// The id of the instance.
    pub id: ContainerId,
    /// The sandbox that the instance was created in.
    pub sandbox: ContainerId,
    /// Identity of the instance, from the container's configuration.
    pub metadata: ContainerMetadata,
    /// State of the instance.
    pub state: RuntimeState,
    /// The image reference as a person wrote it.
    pub image: String,
    /// The image id that the reference resolved to (`sha256:…`).
    pub image_id: String,
    /// Time of the creation by the wall clock, for display only.
    pub created_at: SystemTime,
    /// Time of the start by the wall clock, for display only; None until the container has started.
    pub started_at: Option<SystemTime>,
    /// Time of the start by the boot clock, for the initial delay; None if the record is from an earlier boot.
    pub started: Option<Moment>,
    /// Time of the end by the wall clock, for display only; None until the container has ended.
    pub finished_at: Option<SystemTime>,
    /// Time of the end by the boot clock, for the crash-loop back-off; None if the record is from an earlier boot.
    pub finished: Option<Moment>,
    /// Exit code; 128 + signal if a signal ended the process, 0 while the container has not exited.
    pub exit_code: i32,
    /// Number of the signal that ended the first process, if a signal ended it.
    pub signal: Option<i32>,
    /// Reason of the end: `Completed`, `Error`, `OOMKilled`, `StartError` or `Unknown`. Empty while the container has
    /// not exited.
    pub reason: String,
    /// Termination message of the container (kubelet-probes 8.8).
    pub message: String,
    /// Pid of the first process on the node, while the process runs.
    pub pid: Option<i32>,
    /// The log file of this instance.
    pub log_path: PathBuf,
    /// User and groups with which the first process was started; None if the runtime does not report them.
    pub user: Option<LinuxUser>,
    /// Resources in effect, as in a pod's spec; None for a container of an older podprobe.
    pub resources: Option<Arc<ResourceRequirements>>,
    /// Labels from the container's configuration.
    pub labels: Arc<Labels>,
    /// Annotations from the container's configuration.
    pub annotations: Arc<Labels>,
}

/// Status of a sandbox (CRI `PodSandboxStatus`).
#[derive(Clone, Debug, PartialEq)]
pub struct SandboxStatus {
    /// The id of the sandbox.
    pub id: ContainerId,
    /// Identity of the sandbox, from its configuration.
    pub metadata: SandboxMetadata,
    /// True if the sandbox is alive, its network is set up, and containers can be created in it.
    pub ready: bool,
    /// Network namespace that the sandbox uses.
    pub network: NamespaceMode,
    /// Time of the creation by the wall clock.
    pub created_at: SystemTime,
    /// Addresses of the sandbox, primary first.
    pub ips: Vec<IpAddr>,
}

/// All sandboxes and containers of a runtime, or those of one pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// All sandboxes, in no order.
    pub sandboxes: Vec<SandboxStatus>,
    /// All containers, in no order.
    pub containers: Vec<ContainerStatus>,
}

/// The kinds of failures that a runtime reports. `crate::pods::kuberuntime` decides what each kind means for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RuntimeErrorKind {
    /// The configuration cannot become a container on this node. Examples are an unknown user and a missing cgroup
    /// controller.
    InvalidConfig,
    /// The operation needs a running container, but this container has ended or is gone.
    NotRunning,
    /// Any other failure.
    Failed,
}

/// Error of a runtime operation: a kind for programs, and a sentence for people (`cannot <verb> <object>: cause`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeError {
    /// The kind, for the code that decides what to do.
    pub kind: RuntimeErrorKind,
    /// The sentence for people. It says what to do, if something can be done.
    pub message: String,
}

impl RuntimeError {
    /// Makes an error of this kind.
    pub fn new(kind: RuntimeErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// Makes an error of kind [`RuntimeErrorKind::Failed`].
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(RuntimeErrorKind::Failed, message)
    }
}

impl fmt::Display for RuntimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for RuntimeError {}

/// A network namespace, as a path. The path contains the pid of the process that holds the namespace. Once this holder
/// has ended and another process has the pid, the path leads to another namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkNamespace {
    /// Path `/proc/<pid>/ns/net`, or any other path of a network namespace.
    pub path: PathBuf,
    /// The process that the pid in `path` names. None if the path does not belong to a process.
    pub holder: Option<task::Process>,
}

impl NetworkNamespace {
    /// Returns the network namespace of a process.
    pub fn of(holder: task::Process) -> Self {
        Self {
            path: format!("/proc/{}/ns/net", holder.pid).into(),
            holder: Some(holder),
        }
    }

    /// Opens the namespace, and checks that the holder still had its pid when the file was opened.
    ///
    /// # Errors
    /// Returns `NotFound` if the holder has ended. Returns the system's error if the holder cannot be examined now, or
    /// if no descriptors are left.
    pub fn open(&self) -> io::Result<File> {
        let file = File::open(&self.path)?;
        // Compared after the open: if the holder is alive now, it also had the pid when the file was opened.
        match self.holder {
            Some(holder) if task::look(holder.pid)? != Some(holder.start_time) => {
                Err(io::Error::new(
                    io::ErrorKind::NotFound,
                    "the process that holds it has ended",
                ))
            }
            _ => Ok(file),
        }
    }
}

impl From<PathBuf> for NetworkNamespace {
    fn from(path: PathBuf) -> Self {
        Self { path, holder: None }
    }
}

/// The root directory of a running container, with its mounts.
pub struct ContainerRoot {
    /// Descriptor of the directory, opened with O_PATH.
    pub dir: OwnedFd,
    /// The container's first process. When this process ends, the mounts vanish.
    pub process: task::Process,
}

/// The outcome of a command that ran in a container (kubelet-probes 3.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecOutcome {
    /// The command ended by itself. A signal counts as 128 + its number, a missing file as 127, and a file that cannot
    /// be executed as 126.
    Exited {
        /// Exit code.
        code: i32,
        /// Output: stdout followed by stderr, cut at the limit that the caller gave.
        output: Vec<u8>,
    },
    /// The command did not end in time, and was killed with all its children.
    TimedOut {
        /// Output that the command had written until it was killed.
        output: Vec<u8>,
    },
}

/// A container runtime. A method may block as long as its comment says. The sync loop's thread calls no method of this
/// trait.
pub trait Runtime: Send + Sync {
    /// Checks that containers can be run at all (cgroups, directories, the OCI runtime binary); takes at most a few
    /// milliseconds.
    fn check(&self) -> Result<(), RuntimeError>;

    /// Lists every sandbox and container, dead ones too. If `pod` is a UID, it lists only the sandboxes and containers
    /// of that pod.
    fn list(&self, pod: Option<&str>) -> Result<Listing, RuntimeError>;

    /// Makes a pod's namespaces, and returns once they exist.
    fn run_sandbox(&self, config: &SandboxConfig) -> Result<ContainerId, RuntimeError>;

    /// Ends a sandbox. Its record stays until `remove_sandbox`. Idempotent.
    fn stop_sandbox(&self, id: &ContainerId) -> Result<(), RuntimeError>;

    /// Removes a sandbox; if it is still alive, it is stopped first. Idempotent.
    fn remove_sandbox(&self, id: &ContainerId) -> Result<(), RuntimeError>;

    /// Prepares a container; its first process waits for `start_container`. `sandbox_config` is the configuration of
    /// the sandbox. If the container cannot be created, nothing of it is left behind.
    fn create_container(
        &self,
        sandbox: &ContainerId,
        config: &ContainerConfig,
        sandbox_config: &SandboxConfig,
    ) -> Result<ContainerId, RuntimeError>;

    /// Starts a created container, and returns once the container's own program runs. A container that does not start
    /// is recorded as Exited with reason `StartError` and code 128, so that it counts for the back-off.
    fn start_container(&self, id: &ContainerId) -> Result<(), RuntimeError>;

    /// Sends TERM (or the image's stop signal), and KILL after `grace`. Returns when every process of the container has
    /// ended and the exit is recorded. A container that is gone or has ended counts as stopped. Soon after `cancel` the
    /// call returns an error, and leaves the container as it is.
    fn stop_container(
        &self,
        id: &ContainerId,
        grace: Duration,
        cancel: &Cancel,
    ) -> Result<(), RuntimeError>;

    /// Gives a pod's cgroup other weights and limits. `cgroup_parent` is that of the sandbox's configuration.
    fn update_pod(&self, cgroup_parent: &str, resources: &PodResources)
    -> Result<(), RuntimeError>;

    /// Gives a running container other weights and limits of cpu and memory, while it runs. From then on its status has
    /// `requirements`. A limit of memory below what the container uses is an error, and changes nothing.
    fn update_container(
        &self,
        id: &ContainerId,
        resources: &Resources,
        requirements: &ResourceRequirements,
    ) -> Result<(), RuntimeError>;

    /// Removes a stopped container: its record, file system and cgroup. Its logs stay. Idempotent.
    fn remove_container(&self, id: &ContainerId) -> Result<(), RuntimeError>;

    /// Runs a command in a running container, with the environment of the container's own process. Kills the command
    /// with all its children at `timeout` or soon after `cancel`. The timeout is counted from the start of the command.
    /// `limit` is the maximum size of the output in bytes. An error means that the command could not run (the container
    /// is not running, or no descriptors are left) or was cancelled. A command that fails is not an error.
    fn exec(
        &self,
        id: &ContainerId,
        command: &[String],
        timeout: Duration,
        limit: usize,
        cancel: Option<&Cancel>,
    ) -> Result<ExecOutcome, RuntimeError>;

    /// Starts a command in a running container, as [`Self::exec`] does, with streams for a client. There is no timeout.
    /// The command ends when its process ends, when the session is finished or dropped, when the container ends, and
    /// when the daemon ends.
    ///
    /// An error means that the command could not be started for another reason than its file. A file that is missing or
    /// cannot be executed is [`Started::NotExecuted`].
    fn exec_stream(&self, id: &ContainerId, request: &ExecRequest)
    -> Result<Started, RuntimeError>;

    /// Attaches a client to the streams of a running container's first process. The log has all output in any case;
    /// output that the container writes while no client is attached is in the log only. A client that does not read is
    /// cut off ([`SessionEnd::TooSlow`]), and delays neither the container nor another client.
    fn attach(
        &self,
        id: &ContainerId,
        request: AttachRequest,
    ) -> Result<Box<dyn Session>, RuntimeError>;

    /// Returns the root directory of the mount namespace that has the volumes of a running sandbox, opened with O_PATH.
    /// A volume's path, resolved below this directory, leads to the files that the containers see.
    fn volumes_root(&self, sandbox: &ContainerId) -> Result<OwnedFd, RuntimeError>;

    /// Returns the root directory of a running container, for access to its files.
    fn container_root(&self, id: &ContainerId) -> Result<ContainerRoot, RuntimeError>;

    /// Returns the network of the newest sandbox of the pod with this UID; None if the pod uses the node's network.
    fn pod_network(&self, pod: &str) -> Result<Option<NetworkNamespace>, RuntimeError>;

    /// Ends every wait for a container to start or stop, and every session, now and later. Called when the daemon ends.
    /// The waiting calls return an error, and leave the container as it is for the next daemon.
    fn interrupt(&self);
}
