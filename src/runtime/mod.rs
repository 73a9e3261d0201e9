//! The container runtime, cut where CRI is cut: it takes finished configurations and knows no pod.
//!
//! Invariants: nothing here decides *whether* to start or kill (that is [`crate::pod_actions`]) or what a container looks
//! like (that is [`crate::container_config`]). Containers do not belong to the daemon: a new daemon finds what an old one
//! started. A container id never comes back; every process is named by pid *and* start time, so a reused pid is never
//! signalled or entered.

mod cancel;
mod config;
#[cfg(test)]
pub(crate) mod fake;
pub mod labels;
pub mod logs;
mod pod_status;
pub mod shims;
pub mod signals;

pub use cancel::Cancel;
pub use config::{
    ContainerConfig, ContainerMetadata, ImageSpec, Labels, Mount, NamespaceMode, NamespaceOptions,
    Propagation, Resources, SandboxConfig, SandboxMetadata, SeccompProfile, Security,
    TerminationMessage, Tmpfs,
};
pub use pod_status::{RuntimeContainerStatus, RuntimePodStatus, RuntimeSandboxStatus};

use std::fmt;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::clock::Moment;
use crate::sys::task;

/// The end of the text of an error whose cause is that the daemon ends: nothing is wrong with the pod.
pub const ENDING: &str = "the daemon is ending";

/// Names one instance of a container, or one sandbox, of one runtime; never reused. Nobody but that runtime may read
/// anything into it.
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

/// What the runtime says of a container (kubelet-probes 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuntimeState {
    /// Created, not started.
    Created,
    /// Its first process runs.
    Running,
    /// Its first process has ended.
    Exited,
    /// Its shim is gone without a word.
    Unknown,
}

/// Whom a process runs as (CRI `LinuxContainerUser`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinuxUser {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// The other groups.
    pub supplemental_groups: Vec<u32>,
}

/// One instance of a container (CRI `ContainerStatus`).
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerStatus {
    /// Which instance.
    pub id: ContainerId,
    /// The sandbox it was created in.
    pub sandbox: ContainerId,
    /// As in its configuration.
    pub metadata: ContainerMetadata,
    /// What it does.
    pub state: RuntimeState,
    /// The image reference as a person wrote it.
    pub image: String,
    /// What it resolved to (`sha256:…`).
    pub image_id: String,
    /// Wall clock, display only.
    pub created_at: SystemTime,
    /// Wall clock, display only.
    pub started_at: Option<SystemTime>,
    /// Boot clock, for the initial delay; None when the record is of an earlier boot.
    pub started: Option<Moment>,
    /// Wall clock, display only.
    pub finished_at: Option<SystemTime>,
    /// Boot clock, for the crash-loop back-off; None when the record is of an earlier boot.
    pub finished: Option<Moment>,
    /// Exit code, 128 + signal when a signal ended it; 0 unless exited.
    pub exit_code: i32,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// `Completed`, `Error`, `OOMKilled`, `ContainerCannotRun`, `Unknown`; empty unless exited.
    pub reason: String,
    /// Termination message (kubelet-probes 8.8).
    pub message: String,
    /// Host pid of the first process while it runs.
    pub pid: Option<i32>,
    /// The log file of this instance.
    pub log_path: PathBuf,
    /// Whom its first process was started as; None where the runtime does not say.
    pub user: Option<LinuxUser>,
    /// As in its configuration.
    pub labels: Arc<Labels>,
    /// As in its configuration.
    pub annotations: Arc<Labels>,
}

/// A sandbox (CRI `PodSandboxStatus`).
#[derive(Clone, Debug, PartialEq)]
pub struct SandboxStatus {
    /// Which one.
    pub id: ContainerId,
    /// As in its configuration.
    pub metadata: SandboxMetadata,
    /// It lives.
    pub ready: bool,
    /// Whose network it uses.
    pub network: NamespaceMode,
    /// Wall clock.
    pub created_at: SystemTime,
    /// Its addresses, primary first.
    pub ips: Vec<IpAddr>,
}

/// What a runtime has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// In no order.
    pub sandboxes: Vec<SandboxStatus>,
    /// In no order.
    pub containers: Vec<ContainerStatus>,
}

/// What kind of failure a runtime reports. What it means for a pod is decided above (`crate::kuberuntime`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RuntimeErrorKind {
    /// The configuration cannot become a container here: an unknown user, a missing controller.
    InvalidConfig,
    /// What was asked of a running container was asked of one that has ended, or is gone.
    NotRunning,
    /// Anything else.
    Failed,
}

/// A runtime operation that failed: a kind for programs, a sentence for people (`cannot <verb> <object>: cause`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeError {
    /// For whoever decides what to do.
    pub kind: RuntimeErrorKind,
    /// Says what to do where there is something to do.
    pub message: String,
}

impl RuntimeError {
    /// An error of that kind.
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

/// Where a network namespace is found: by a path that leads to another one when its holder has ended and the pid is in
/// use again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkNamespace {
    /// `/proc/<pid>/ns/net`.
    pub path: PathBuf,
    /// The process of that pid. None when the path is no process's.
    pub holder: Option<task::Process>,
}

impl NetworkNamespace {
    /// That of a process.
    pub fn of(holder: task::Process) -> Self {
        Self {
            path: format!("/proc/{}/ns/net", holder.pid).into(),
            holder: Some(holder),
        }
    }

    /// Opens it, and makes sure that it was still the holder's.
    ///
    /// # Errors
    /// The holder has ended, or that cannot be told now; no descriptors are left.
    pub fn open(&self) -> io::Result<File> {
        let file = File::open(&self.path)?;
        // Compared after the open: whoever has the pid now had it then.
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

/// What came of a command run in a container (kubelet-probes 3.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecOutcome {
    /// It ended by itself. A signal counts as 128 + its number; a missing or not executable file as 127 or 126.
    Exited {
        /// Exit code.
        code: i32,
        /// stdout followed by stderr, at most the limit asked for.
        output: Vec<u8>,
    },
    /// It did not end in time and was killed with all its children.
    TimedOut {
        /// What it had written by then.
        output: Vec<u8>,
    },
}

/// A container runtime. Every method may block for as long as it says; none is called by the sync loop's thread.
pub trait Runtime: Send + Sync {
    /// Whether containers can be run at all (cgroups, directories, the OCI runtime binary); at most a few milliseconds.
    fn check(&self) -> Result<(), RuntimeError>;

    /// Every sandbox and container, dead ones too; with `pod` only those of the pod with that UID.
    fn list(&self, pod: Option<&str>) -> Result<Listing, RuntimeError>;

    /// Makes a pod's namespaces and returns once they are there.
    fn run_sandbox(&self, config: &SandboxConfig) -> Result<ContainerId, RuntimeError>;

    /// Ends a sandbox; its record stays until `remove_sandbox`. Idempotent.
    fn stop_sandbox(&self, id: &ContainerId) -> Result<(), RuntimeError>;

    /// Forgets a sandbox, and stops it before if it still lives. Idempotent.
    fn remove_sandbox(&self, id: &ContainerId) -> Result<(), RuntimeError>;

    /// Prepares a container whose first process waits for `start_container`. `sandbox_config` is what the sandbox was made
    /// from. A container that cannot be created leaves nothing behind.
    fn create_container(
        &self,
        sandbox: &ContainerId,
        config: &ContainerConfig,
        sandbox_config: &SandboxConfig,
    ) -> Result<ContainerId, RuntimeError>;

    /// Starts a created container; returns once its own process runs. One that does not start is left behind as Exited
    /// with reason `ContainerCannotRun` and code 127 or 128, so that it counts for the back-off.
    fn start_container(&self, id: &ContainerId) -> Result<(), RuntimeError>;

    /// TERM (or the image's stop signal), then KILL after `grace`; returns when every process of it has ended and its
    /// exit is recorded. A container that is gone or has ended counts as stopped. An error, with the container left as
    /// it is by then, soon after `cancel`.
    fn stop_container(
        &self,
        id: &ContainerId,
        grace: Duration,
        cancel: &Cancel,
    ) -> Result<(), RuntimeError>;

    /// Forgets a stopped container: record, file system, cgroup. Its logs stay. Idempotent.
    fn remove_container(&self, id: &ContainerId) -> Result<(), RuntimeError>;

    /// Runs a command in a running container as its own process would run it; kills the whole tree at `timeout`, which
    /// starts when the command does. `limit` bounds the output in bytes. An error means that nothing can be said of the
    /// container (it is not running, we lack descriptors), never that the command failed.
    fn exec(
        &self,
        id: &ContainerId,
        command: &[String],
        timeout: Duration,
        limit: usize,
    ) -> Result<ExecOutcome, RuntimeError>;

    /// The network of the newest sandbox of the pod with that UID; None when it uses the node's.
    fn pod_network(&self, pod: &str) -> Result<Option<NetworkNamespace>, RuntimeError>;

    /// Ends, for good, every wait for a container to start or to stop; those calls return an error and leave the container
    /// as it is, for the next daemon. For the daemon's own end.
    fn interrupt(&self);
}
