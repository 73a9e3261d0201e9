//! The container runtime: sandboxes, containers, their logs and exec, as a small CRI of our own.
//!
//! Invariants: nothing here decides *whether* to start or kill (that is [`crate::pod_actions`]). Containers belong to
//! their shims, not to the daemon: everything the runtime knows it reads back from the shims' state files, so a new
//! daemon finds what an old one started. A container id never comes back; every process is named by pid *and* start
//! time, so a reused pid is never signalled or entered.

mod cancel;
pub mod logs;
pub mod shims;
pub mod signals;

pub use cancel::Cancel;
pub use shims::{ShimRuntime, images_in_use};

use std::fmt;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::api::{Container, Pod, PodUid};
use crate::clock::Moment;
use crate::sys::task;

/// Identifies one instance of a container, or one sandbox: 64 hex digits, random, never reused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContainerId(pub Arc<str>);

impl ContainerId {
    /// The bare id.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `podprobe://<id>`, the form of `status.containerStatuses[].containerID`.
    pub fn uri(&self) -> String {
        format!("podprobe://{}", self.0)
    }
}

impl From<&str> for ContainerId {
    fn from(s: &str) -> Self {
        Self(s.strip_prefix("podprobe://").unwrap_or(s).into())
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
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

/// One instance of a container as the runtime sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimeContainerStatus {
    /// Which instance.
    pub id: ContainerId,
    /// The container's name in the pod spec.
    pub name: String,
    /// The sandbox it was created in.
    pub sandbox: ContainerId,
    /// What it does.
    pub state: RuntimeState,
    /// Number of instances before this one (the restart count).
    pub attempt: u32,
    /// Image as in the spec.
    pub image: String,
    /// What it resolved to (`sha256:…`).
    pub image_id: String,
    /// Spec hash at creation: name and image (kubelet-probes 8.3).
    pub hash: u32,
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
    /// `Completed`, `Error`, `OOMKilled`, `ContainerCannotRun`, `ContainerStatusUnknown`; empty unless exited.
    pub reason: String,
    /// Termination message (kubelet-probes 8.8).
    pub message: String,
    /// Host pid of the first process while it runs.
    pub pid: Option<i32>,
    /// The log file of this instance.
    pub log_path: PathBuf,
}

/// A pod's sandbox: the holder of its namespaces.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimeSandboxStatus {
    /// Which one.
    pub id: ContainerId,
    /// Sandboxes of this pod before it.
    pub attempt: u32,
    /// Its holder lives.
    pub ready: bool,
    /// It has no network namespace of its own.
    pub host_network: bool,
    /// Wall clock.
    pub created_at: SystemTime,
    /// The pod's addresses, primary first.
    pub ips: Vec<IpAddr>,
}

/// Everything the runtime knows of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimePodStatus {
    /// Which pod.
    pub uid: PodUid,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// Newest first by creation.
    pub containers: Vec<RuntimeContainerStatus>,
    /// Newest first by attempt.
    pub sandboxes: Vec<RuntimeSandboxStatus>,
}

impl RuntimePodStatus {
    /// The newest instance of a container.
    pub fn container(&self, name: &str) -> Option<&RuntimeContainerStatus> {
        self.containers.iter().find(|c| c.name == name)
    }

    /// The addresses of the newest sandbox.
    pub fn ips(&self) -> &[IpAddr] {
        self.sandboxes.first().map_or(&[], |s| &s.ips)
    }

    /// Whether any container or sandbox of the pod still lives.
    pub fn is_running(&self) -> bool {
        self.containers
            .iter()
            .any(|c| c.state == RuntimeState::Running)
            || self.sandboxes.iter().any(|s| s.ready)
    }
}

/// Why a container does not start, in the words of `state.waiting.reason` (kubelet-probes 8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StartErrorReason {
    /// Held back by the crash-loop back-off.
    CrashLoopBackOff,
    /// The image is not on the node; nothing is pulled.
    ErrImageNeverPull,
    /// The image is there and cannot be read.
    ImageInspectError,
    /// Not an image reference.
    InvalidImageName,
    /// The spec cannot become a container (unknown user, missing hostPath, …).
    CreateContainerConfigError,
    /// The OCI runtime could not create it.
    CreateContainerError,
    /// It was created and did not start (missing binary, …).
    RunContainerError,
    /// The sandbox did not come up.
    CreatePodSandboxError,
    /// It did not end.
    KillContainerError,
    /// What was asked of a running container was asked of one that has ended, or is gone.
    ContainerNotRunning,
}

impl StartErrorReason {
    /// The kubelet's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CrashLoopBackOff => "CrashLoopBackOff",
            Self::ErrImageNeverPull => "ErrImageNeverPull",
            Self::ImageInspectError => "ImageInspectError",
            Self::InvalidImageName => "InvalidImageName",
            Self::CreateContainerConfigError => "CreateContainerConfigError",
            Self::CreateContainerError => "CreateContainerError",
            Self::RunContainerError => "RunContainerError",
            Self::CreatePodSandboxError => "CreatePodSandboxError",
            Self::KillContainerError => "KillContainerError",
            Self::ContainerNotRunning => "ContainerNotRunning",
        }
    }
}

/// A runtime operation that failed: a reason for programs, a sentence for people (`cannot <verb> <object>: cause`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeError {
    /// Becomes `state.waiting.reason`.
    pub reason: StartErrorReason,
    /// Becomes `state.waiting.message`; says what to do where there is something to do.
    pub message: String,
}

impl RuntimeError {
    /// An error of that reason.
    pub fn new(reason: StartErrorReason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
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
    pub holder: Option<shims::state::Process>,
}

impl NetworkNamespace {
    /// That of a process.
    pub fn of(holder: shims::state::Process) -> Self {
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

/// The container runtime. Every method may block for as long as it says; none is called by the sync loop's thread.
pub trait Runtime: Send + Sync {
    /// `embedded`, or the path of the OCI runtime.
    fn name(&self) -> &str;

    /// Whether containers can be run at all (cgroups, directories, the OCI runtime binary); at most a few milliseconds.
    fn check(&self) -> Result<(), RuntimeError>;

    /// Every pod that has a sandbox or a container, dead ones too. This is PLEG's listing: one pass over the state files.
    fn list_pods(&self) -> Result<Vec<RuntimePodStatus>, RuntimeError>;

    /// One pod, afresh; an unknown UID gives an empty status.
    fn pod_status(&self, uid: &PodUid) -> Result<RuntimePodStatus, RuntimeError>;

    /// Makes the pod's directories and namespaces and returns once the holder runs.
    fn run_pod_sandbox(&self, pod: &Pod, attempt: u32) -> Result<ContainerId, RuntimeError>;

    /// Ends the holder; its record stays until `remove_pod_sandbox`. Idempotent.
    fn stop_pod_sandbox(&self, id: &ContainerId) -> Result<(), RuntimeError>;

    /// Forgets a stopped sandbox. Idempotent.
    fn remove_pod_sandbox(&self, id: &ContainerId) -> Result<(), RuntimeError>;

    /// Resolves the image, prepares the file system and volumes, creates the container and starts it; returns once its
    /// own process runs. A container that was created and did not start is left behind as Exited with reason
    /// `ContainerCannotRun` and code 127 or 128, so that it counts for the back-off.
    fn start_container(
        &self,
        pod: &Pod,
        sandbox: &ContainerId,
        container: &Container,
        attempt: u32,
    ) -> Result<ContainerId, RuntimeError>;

    /// TERM (or the image's stop signal), then KILL after `grace`; returns when every process of it has ended and its
    /// exit is recorded. A container that is gone or has ended counts as stopped. An error, with the container left as
    /// it is by then, soon after `cancel`.
    fn stop_container(
        &self,
        id: &ContainerId,
        grace: Duration,
        cancel: &Cancel,
    ) -> Result<(), RuntimeError>;

    /// Forgets a stopped container: record, file system, cgroup. Its logs stay until the instance after
    /// the next starts, or `remove_pod`. Idempotent.
    fn remove_container(&self, id: &ContainerId) -> Result<(), RuntimeError>;

    /// Removes what is left of a pod whose containers and sandboxes are gone: volumes, logs, cgroup. Idempotent.
    fn remove_pod(&self, uid: &PodUid) -> Result<(), RuntimeError>;

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

    /// That of the pod's sandbox, or None when the pod uses the node's network.
    fn network_namespace(&self, uid: &PodUid) -> Result<Option<NetworkNamespace>, RuntimeError>;
}
