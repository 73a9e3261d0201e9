//! The records that shims, sandbox holders and the daemon leave for one another.
//!
//! Invariants: those of [`crate::base::record_file`]. `container.json` and `sandbox.json` never change; `exit.json` is written
//! once, by the shim, or by the daemon when the shim is known to be dead. A field without a default is one by which the
//! container or sandbox is found, so a new field always has one: the records of the last release have to be read, and
//! those of the next (tests/data/records).

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::base::clock::Moment;
pub use crate::base::record_file::{read, try_read, write};
pub use crate::base::sys::task::Process;
use crate::engine::runtime::{Labels, LinuxUser, Propagation, SandboxMetadata, Tmpfs};
use crate::net::network::{Bandwidth, NetworkKind, PortMapping};

/// Record of a container, written by the daemon before the shim starts.
pub const CONTAINER: &str = "container.json";
/// Record of a sandbox, written by the daemon before the holder starts.
pub const SANDBOX: &str = "sandbox.json";
/// Record of the processes that there are, written by the shim or holder.
pub const STATE: &str = "state.json";
/// Record of the sandbox's network, written by the daemon when that network is set up.
pub const NETWORK: &str = "network.json";
/// Record of the container's end, written when the container has ended.
pub const EXIT: &str = "exit.json";
/// Copy of the exit record: once the shim is gone, nobody else knows how the container ended.
pub const EXIT_COPY: &str = "exit.copy.json";
/// Suffix of a record directory that is being removed.
pub(super) const REMOVING: &str = ".removing";

/// The moment of what nobody has recorded.
fn unknown_time() -> SystemTime {
    SystemTime::UNIX_EPOCH
}

fn default_stop_signal() -> i32 {
    libc::SIGTERM
}

/// Which pod a record belongs to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PodIdentity {
    /// UID of the pod.
    pub uid: String,
    /// Name of the pod.
    pub name: String,
    /// Namespace of the pod.
    pub namespace: String,
}

impl From<&SandboxMetadata> for PodIdentity {
    fn from(m: &SandboxMetadata) -> Self {
        Self {
            uid: m.uid.clone(),
            name: m.name.clone(),
            namespace: m.namespace.clone(),
        }
    }
}

/// A path below a volume, or a volume, that the shim resolves and binds before the container is created.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SubPath {
    /// Root of the volume.
    pub volume: PathBuf,
    /// The name of the image that the volume is; empty for any other. Nothing is made in an image.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// Relative, without `..`; made when missing; empty is the volume itself.
    pub path: PathBuf,
    /// Where it is bound, in the shim's mount namespace only.
    pub target: PathBuf,
    /// Where later mounts of it appear.
    #[serde(default)]
    pub propagation: Propagation,
    /// True if the path and every mount below it are to be read-only.
    #[serde(default)]
    pub read_only: bool,
}

/// An image that is a volume of the container, mounted by the shim before the container is created.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ImageMount {
    /// `sha256:…`.
    pub id: String,
    /// Layers of the image, as [`crate::engine::images::overlay::mount_read_only`] takes them.
    pub layers: Vec<PathBuf>,
    /// Where it is mounted, in the shim's mount namespace only.
    pub target: PathBuf,
}

/// Everything a shim needs and the status that never changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContainerRecord {
    /// 64 hex digits.
    pub id: String,
    /// Pod of the container.
    pub pod: PodIdentity,
    /// Sandbox of the container.
    pub sandbox: String,
    /// Name in the pod spec.
    pub name: String,
    /// Instances before it.
    #[serde(default)]
    pub attempt: u32,
    /// Name of the image, as in the spec.
    #[serde(default)]
    pub image: String,
    /// `sha256:…`.
    #[serde(default)]
    pub image_id: String,
    /// Labels, as in the configuration.
    #[serde(default)]
    pub labels: Arc<Labels>,
    /// Annotations, as in the configuration.
    #[serde(default)]
    pub annotations: Arc<Labels>,
    /// Wall clock.
    #[serde(default = "unknown_time")]
    pub created_at: SystemTime,
    /// The boot it was created in.
    pub boot_id: String,
    /// Image layers, topmost first.
    #[serde(default)]
    pub layers: Vec<PathBuf>,
    /// Directory that holds the overlay's `upper` and `work`.
    #[serde(default)]
    pub data: PathBuf,
    /// Device nodes in its root can be opened, as far as its cgroup allows it; of privileged containers only.
    #[serde(default)]
    pub devices: bool,
    /// Where the overlay is mounted, in the shim's mount namespace only.
    #[serde(default)]
    pub rootfs: PathBuf,
    /// The holder whose mount namespace the container's mounts are made in.
    #[serde(default)]
    pub holder: Process,
    /// Volumes that are images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_mounts: Vec<ImageMount>,
    /// Paths to bind first.
    #[serde(default)]
    pub sub_paths: Vec<SubPath>,
    /// Current log file.
    #[serde(default)]
    pub log_path: PathBuf,
    /// Bytes at which the log is rotated.
    #[serde(default)]
    pub log_max_size: u64,
    /// Log files kept, the current one included.
    #[serde(default)]
    pub log_max_files: u32,
    /// The OCI runtime's command line up to its verbs.
    #[serde(default)]
    pub runtime: Vec<PathBuf>,
    /// `--root` of the OCI runtime.
    #[serde(default)]
    pub oci_root: PathBuf,
    /// OCI `cgroupsPath`.
    pub cgroup: String,
    /// User that may open the output pipes again through /dev/stdout.
    #[serde(default)]
    pub user: u32,
    /// Whom the first process is started as; None in the record of an older podprobe.
    #[serde(default)]
    pub linux_user: Option<LinuxUser>,
    /// True if the container's standard input is kept open.
    #[serde(default)]
    pub stdin: bool,
    /// The input ends with the first client that is attached to it.
    #[serde(default)]
    pub stdin_once: bool,
    /// True if the container has a terminal.
    #[serde(default)]
    pub tty: bool,
    /// The termination-log file on the node; empty when the container has none.
    #[serde(default)]
    pub termination_log: PathBuf,
    /// `FallbackToLogsOnError`.
    #[serde(default)]
    pub message_from_log: bool,
    /// Where the container's end is told (see [`super::exits`]).
    #[serde(default)]
    pub exits: PathBuf,
    /// Number of the stop signal.
    #[serde(default = "default_stop_signal")]
    pub stop_signal: i32,
    /// The cgroup that the shim moves to (see [`crate::base::sys::cgroup::leave_the_daemon`]).
    #[serde(default)]
    pub shims_cgroup: String,
}

/// The processes that run for a container, with its cgroups.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContainerState {
    /// The boot these processes belong to.
    pub boot_id: String,
    /// The shim.
    pub shim: Process,
    /// The container's first process, once created.
    #[serde(default)]
    pub process: Option<Process>,
    /// The container's cgroup directories, in every hierarchy where it has one of its own.
    #[serde(default)]
    pub cgroups: Vec<PathBuf>,
    /// Wall clock; None until started.
    #[serde(default)]
    pub started_at: Option<SystemTime>,
    /// Boot clock; None until started.
    #[serde(default)]
    pub started: Option<Moment>,
}

impl ContainerState {
    /// True if the record says that the container runs, but not which process it is.
    pub fn is_torn(&self) -> bool {
        self.started.is_some() && self.process.is_none()
    }
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// 128 + signal when a signal ended it.
    pub code: i32,
    /// The signal that ended the container.
    #[serde(default)]
    pub signal: Option<i32>,
    /// `Completed`, `Error`, `OOMKilled`, `StartError`, `ContainerStatusUnknown`.
    #[serde(default)]
    pub reason: String,
    /// Termination message.
    #[serde(default)]
    pub message: String,
    /// Wall clock.
    #[serde(default = "unknown_time")]
    pub finished_at: SystemTime,
    /// Boot clock.
    #[serde(default)]
    pub finished: Moment,
    /// The boot of `finished`.
    #[serde(default)]
    pub boot_id: String,
}

/// Everything a holder needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SandboxRecord {
    /// 64 hex digits.
    pub id: String,
    /// Pod of the sandbox.
    pub pod: PodIdentity,
    /// Sandboxes before it.
    #[serde(default)]
    pub attempt: u32,
    /// No network and uts namespace of its own.
    #[serde(default)]
    pub host_network: bool,
    /// The sandbox's network. In the record of an older podprobe only `host_network` says which.
    #[serde(default)]
    pub network: NetworkKind,
    /// Ports of the node that lead to it.
    #[serde(default)]
    pub ports: Vec<PortMapping>,
    /// Bandwidth that plugins let through.
    #[serde(default)]
    pub bandwidth: Bandwidth,
    /// No ipc namespace of its own.
    #[serde(default)]
    pub host_ipc: bool,
    /// A process namespace of its own, for all containers.
    #[serde(default)]
    pub share_pid: bool,
    /// Host name in its uts namespace.
    #[serde(default)]
    pub hostname: String,
    /// Kernel parameters: name with dots, and value.
    #[serde(default)]
    pub sysctls: Vec<(String, String)>,
    /// Volumes in memory.
    #[serde(default)]
    pub memory_volumes: Vec<Tmpfs>,
    /// The cgroup that the holder moves to (see [`crate::base::sys::cgroup::leave_the_daemon`]).
    #[serde(default)]
    pub shims_cgroup: String,
    /// The cgroup of the pod, below which its first process has one; empty in the record of an older podprobe.
    #[serde(default)]
    pub pod_cgroup: String,
    /// Wall clock.
    #[serde(default = "unknown_time")]
    pub created_at: SystemTime,
}

impl SandboxRecord {
    /// Tells whether containers can be made in the sandbox. Where an older podprobe has started the first process of a pod,
    /// that process stands in no cgroup of the pod, and the sandbox has no procfs.
    pub fn is_usable(&self) -> bool {
        !self.share_pid || !self.pod_cgroup.is_empty()
    }

    /// Which network it has.
    pub fn network(&self) -> NetworkKind {
        match self.host_network {
            true => NetworkKind::Host,
            false => self.network,
        }
    }
}

/// The network of a sandbox, once it is set up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NetworkRecord {
    /// Addresses of the sandbox, primary first.
    pub addresses: Vec<IpAddr>,
}

/// The holder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SandboxState {
    /// The boot it belongs to.
    pub boot_id: String,
    /// The holder's process.
    pub process: Process,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde::de::DeserializeOwned;

    use super::*;
    use crate::base::record_file;

    /// Reads a record that the last release has left. Such a record is read without a complaint, and means what it
    /// meant.
    #[track_caller]
    fn of_last_release<T: DeserializeOwned>(file: &str) -> T {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/records/0.1.0");
        let bytes = std::fs::read(Path::new(dir).join(file)).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    #[test]
    fn the_records_of_the_last_release_are_read() {
        let c: ContainerRecord = of_last_release("container/container.json");
        assert_eq!((c.name.as_str(), c.pod.name.as_str()), ("main", "web-edge"));
        assert_eq!(c.holder.pid, 26236);
        assert_eq!(c.log_max_files, 5);
        assert_eq!(c.stop_signal, libc::SIGTERM);
        assert_eq!(c.sub_paths[0].path, Path::new("a"));
        let s: ContainerState = of_last_release("container/state.json");
        assert_eq!((s.shim.pid, s.process.unwrap().pid), (26247, 26250));
        assert!(s.started.is_some() && s.started_at.is_some());
        let x: ExitRecord = of_last_release("ended/exit.json");
        assert_eq!((x.code, x.reason.as_str()), (0, "Completed"));
        let b: SandboxRecord = of_last_release("sandbox/sandbox.json");
        assert_eq!(b.network(), NetworkKind::Bridge);
        assert_eq!(b.ports[0].host_port, 28080);
        assert_eq!(b.memory_volumes.len(), 1);
        let h: SandboxState = of_last_release("sandbox/state.json");
        assert_eq!(h.process.pid, 26236);
        let n: NetworkRecord = of_last_release("sandbox/network.json");
        assert_eq!(n.addresses, [IpAddr::from([10, 231, 7, 2])]);
    }

    #[track_caller]
    fn least<T: DeserializeOwned + Serialize>(required: &str) {
        let least: T = serde_json::from_str(required).unwrap();
        let bytes = record_file::to_bytes(&least).unwrap();
        let fields: serde_json::Map<_, _> = serde_json::from_slice(&bytes).unwrap();
        for name in fields.keys() {
            let mut other = fields.clone();
            other[name] = serde_json::json!({"of": "another version"});
            let text = serde_json::to_vec(&other).unwrap();
            let read = record_file::parse::<T>("a record", &text).is_ok();
            let needed = required.contains(&format!("\"{name}\""));
            assert_eq!(read, !needed, "{name}");
        }
    }

    /// A field that a release adds, drops or writes in another way costs no running container.
    #[test]
    fn a_record_needs_only_what_it_is_found_by() {
        const POD: &str = r#""pod": {"uid": "u", "name": "n", "namespace": "default"}"#;
        const PROCESS: &str = r#"{"pid": 1, "start_time": 2}"#;
        least::<ContainerRecord>(&format!(
            r#"{{"id": "a", {POD}, "sandbox": "s", "name": "c", "boot_id": "b", "cgroup": "/c"}}"#
        ));
        least::<ContainerState>(&format!(r#"{{"boot_id": "b", "shim": {PROCESS}}}"#));
        least::<ExitRecord>(r#"{"code": 1}"#);
        least::<SandboxRecord>(&format!(r#"{{"id": "a", {POD}}}"#));
        least::<SandboxState>(&format!(r#"{{"boot_id": "b", "process": {PROCESS}}}"#));
    }

    #[test]
    fn a_process_with_another_start_time_is_not_alive() {
        let me = Process::of(std::process::id() as i32).unwrap();
        assert!(me.alive());
        assert!(
            !Process {
                start_time: me.start_time + 1,
                ..me
            }
            .alive()
        );
        assert!(
            Process {
                start_time: me.start_time + 1,
                ..me
            }
            .open()
            .unwrap()
            .is_none()
        );
    }
}
