//! The container runtime, cut where CRI is cut: it takes finished configurations and knows no pod.
//!
//! Invariants: nothing here decides *whether* to start or kill (that is [`crate::pods::actions`]) or what a container looks
//! like (that is [`crate::pods::container_config`]). Containers do not belong to the daemon: a new daemon finds what an old one
//! started. A container id never comes back; every process is named by pid *and* start time, so a reused pid is never
//! signalled or entered.

mod config;
#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
pub(crate) mod fake_session;
pub mod labels;
pub mod logs;
pub mod metered;
mod pod_status;
mod session;
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

use crate::base::cancel::Cancel;
use crate::base::clock::Moment;
use crate::base::sys::task;

/// An error with these words comes from the end of the daemon, not from the pod.
pub const ENDING: &str = "the daemon is ending";

/// Names one instance of a container, or one sandbox, of one runtime; never reused. Only that
/// runtime may interpret it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContainerId(Arc<str>);

/// The scheme of the ids of our own shims.
pub const SHIMS_SCHEME: &str = "podprobe";
/// Between the scheme and the id.
const SCHEME_END: &str = "://";

impl ContainerId {
    /// `id` of the runtime that calls itself `scheme`.
    pub fn new(scheme: &str, id: &str) -> Self {
        Self(format!("{scheme}{SCHEME_END}{id}").into())
    }

    /// The id as its runtime knows it, without the scheme.
    pub fn as_str(&self) -> &str {
        let after = |(_, id)| id;
        self.0.split_once(SCHEME_END).map_or(&self.0, after)
    }

    /// `<scheme>://<id>`, the form of `status.containerStatuses[].containerID`.
    pub fn uri(&self) -> String {
        self.0.to_string()
    }
}

/// Reads the form of [`ContainerId::uri`]; without a scheme it is an id of our own shims.
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
    /// The container was created and not started.
    Created,
    /// The container's first process runs.
    Running,
    /// The container's first process has ended.
    Exited,
    /// The container's shim is gone and has recorded no exit.
    Unknown,
}

/// User and groups of a process (CRI `LinuxContainerUser`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinuxUser {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// The other groups.
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
    /// Time of the creation by the wall clock, display only.
    pub created_at: SystemTime,
    /// Time of the start by the wall clock, display only.
    pub started_at: Option<SystemTime>,
    /// Time of the start by the boot clock, for the initial delay; None when the record is of an earlier boot.
    pub started: Option<Moment>,
    /// Time of the end by the wall clock, display only.
    pub finished_at: Option<SystemTime>,
    /// Time of the end by the boot clock, for the crash-loop back-off; None when the record is of an earlier boot.
    pub finished: Option<Moment>,
    /// Exit code, 128 + signal when a signal ended it; 0 unless exited.
    pub exit_code: i32,
    /// The signal that ended the first process.
    pub signal: Option<i32>,
    /// `Completed`, `Error`, `OOMKilled`, `StartError`, `Unknown`; empty unless exited.
    pub reason: String,
    /// Termination message (kubelet-probes 8.8).
    pub message: String,
    /// Host pid of the first process while it runs.
    pub pid: Option<i32>,
    /// The log file of this instance.
    pub log_path: PathBuf,
    /// User that the first process was started as; None where the runtime does not say.
    pub user: Option<LinuxUser>,
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
    /// True if the sandbox is alive.
    pub ready: bool,
    /// Network namespace that the sandbox uses.
    pub network: NamespaceMode,
    /// Time of the creation by the wall clock.
    pub created_at: SystemTime,
    /// Addresses of the sandbox, primary first.
    pub ips: Vec<IpAddr>,
}

/// Everything that a runtime has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// All sandboxes, in no order.
    pub sandboxes: Vec<SandboxStatus>,
    /// All containers, in no order.
    pub containers: Vec<ContainerStatus>,
}

/// The kinds of failures that a runtime reports. `crate::pods::kuberuntime` decides what each means for a
/// pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RuntimeErrorKind {
    /// The configuration cannot become a container on this node: an unknown user, a missing
    /// controller.
    InvalidConfig,
    /// The operation needs a running container, and this one has ended or is gone.
    NotRunning,
    /// Any other failure.
    Failed,
}

/// A runtime operation that failed: a kind for programs, a sentence for people (`cannot <verb> <object>: cause`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeError {
    /// The kind, for the code that decides what to do.
    pub kind: RuntimeErrorKind,
    /// Says what to do where there is something to do.
    pub message: String,
}

impl RuntimeError {
    /// An error of this kind.
    pub fn new(kind: RuntimeErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// An error of kind [`RuntimeErrorKind::Failed`].
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

/// Place of a network namespace. The path names a pid, so it leads to another namespace once the holder has ended and
/// its pid is in use again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkNamespace {
    /// `/proc/<pid>/ns/net`.
    pub path: PathBuf,
    /// The process with this pid. None when the path does not belong to a process.
    pub holder: Option<task::Process>,
}

impl NetworkNamespace {
    /// The network namespace of a process.
    pub fn of(holder: task::Process) -> Self {
        Self {
            path: format!("/proc/{}/ns/net", holder.pid).into(),
            holder: Some(holder),
        }
    }

    /// Opens the namespace, and makes sure that it still belonged to the holder.
    ///
    /// # Errors
    /// Returns `NotFound` if the holder has ended, or the system's error if this cannot be found out now, or if no
    /// descriptors are left.
    pub fn open(&self) -> io::Result<File> {
        let file = File::open(&self.path)?;
        // Compared after the open: the process that has the pid now also had it then.
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
    /// Opened with O_PATH.
    pub dir: OwnedFd,
    /// The container's first process: when it ends, the mounts go.
    pub process: task::Process,
}

/// The outcome of a command that ran in a container (kubelet-probes 3.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecOutcome {
    /// The command ended by itself. A signal counts as 128 + its number, a missing file as 127, a
    /// file that cannot be executed as 126.
    Exited {
        /// Exit code.
        code: i32,
        /// stdout followed by stderr, at most the limit asked for.
        output: Vec<u8>,
    },
    /// The command did not end in time and was killed with all its children.
    TimedOut {
        /// Output that the command had written by then.
        output: Vec<u8>,
    },
}

/// A container runtime. Every method may block for as long as it says; none is called by the sync loop's thread.
pub trait Runtime: Send + Sync {
    /// Checks that containers can be run at all (cgroups, directories, the OCI runtime binary); takes at most a few
    /// milliseconds.
    fn check(&self) -> Result<(), RuntimeError>;

    /// Every sandbox and container, dead ones too; with `pod` only the ones of the pod with this
    /// UID.
    fn list(&self, pod: Option<&str>) -> Result<Listing, RuntimeError>;

    /// Makes a pod's namespaces and returns once they are there.
    fn run_sandbox(&self, config: &SandboxConfig) -> Result<ContainerId, RuntimeError>;

    /// Ends a sandbox; its record stays until `remove_sandbox`. Idempotent.
    fn stop_sandbox(&self, id: &ContainerId) -> Result<(), RuntimeError>;

    /// Forgets a sandbox, and stops it before if it still lives. Idempotent.
    fn remove_sandbox(&self, id: &ContainerId) -> Result<(), RuntimeError>;

    /// Prepares a container whose first process waits for `start_container`. `sandbox_config` is
    /// the configuration of the sandbox. A container that cannot be created leaves nothing behind.
    fn create_container(
        &self,
        sandbox: &ContainerId,
        config: &ContainerConfig,
        sandbox_config: &SandboxConfig,
    ) -> Result<ContainerId, RuntimeError>;

    /// Starts a created container; returns once its own process runs. A container that does not
    /// start is recorded as Exited with reason `StartError` and code 128, so that it
    /// counts for the back-off.
    fn start_container(&self, id: &ContainerId) -> Result<(), RuntimeError>;

    /// Sends TERM (or the image's stop signal), then KILL after `grace`; returns when every process
    /// of the container has ended and its exit is recorded. A container that is gone or has ended
    /// counts as stopped. Soon after `cancel` it returns an error and leaves the container as it
    /// is.
    fn stop_container(
        &self,
        id: &ContainerId,
        grace: Duration,
        cancel: &Cancel,
    ) -> Result<(), RuntimeError>;

    /// Forgets a stopped container: record, file system, cgroup. Its logs stay. Idempotent.
    fn remove_container(&self, id: &ContainerId) -> Result<(), RuntimeError>;

    /// Runs a command in a running container as its own process would run it; kills the whole tree
    /// at `timeout`, which starts when the command does, and soon after `cancel`. `limit` bounds the
    /// output in bytes. An error means that the command could not run (the container is not
    /// running, we lack descriptors) or was cancelled, never that the command failed.
    fn exec(
        &self,
        id: &ContainerId,
        command: &[String],
        timeout: Duration,
        limit: usize,
        cancel: Option<&Cancel>,
    ) -> Result<ExecOutcome, RuntimeError>;

    /// Starts a command in a running container, as [`Self::exec`] does, with streams of a client. It has no timeout: it ends
    /// when its process ends, when the session is finished or dropped, with its container, and with the daemon.
    ///
    /// An error means that the command could not be started for a reason that is not its own.
    fn exec_stream(&self, id: &ContainerId, request: &ExecRequest)
    -> Result<Started, RuntimeError>;

    /// Attaches a client to the streams of a running container's first process. What the container writes while nobody is
    /// attached goes to its log only; the log has everything in any case. A client that does not read is cut off
    /// ([`SessionEnd::TooSlow`]) and holds up nobody.
    fn attach(
        &self,
        id: &ContainerId,
        request: AttachRequest,
    ) -> Result<Box<dyn Session>, RuntimeError>;

    /// The root directory of the mount namespace that has the volumes of a running sandbox: a path of
    /// a volume, resolved below it, leads to what the containers see. Opened with O_PATH.
    fn volumes_root(&self, sandbox: &ContainerId) -> Result<OwnedFd, RuntimeError>;

    /// The root directory of a running container, for its files.
    fn container_root(&self, id: &ContainerId) -> Result<ContainerRoot, RuntimeError>;

    /// The network of the newest sandbox of the pod with this UID; None when it uses the node's.
    fn pod_network(&self, pod: &str) -> Result<Option<NetworkNamespace>, RuntimeError>;

    /// Called when the daemon ends. Every wait for a container to start or to stop ends, now and
    /// later: the calls return an error and leave the container as it is for the next daemon. Every
    /// session ends, now and later.
    fn interrupt(&self);
}
