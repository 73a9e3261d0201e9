//! The records with which shims, sandbox holders and the daemon inform one another.
//!
//! Invariants: those of [`crate::base::record_file`]. `container.json` and `sandbox.json` never change. `exit.json` is
//! written once: by the shim, or by the daemon if the shim is known to be dead. Only the fields by which a container or
//! sandbox is found have no default. Every new field has a default, because records of the last release and of the next
//! must be readable (tests/data/records).

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::api::pod::ResourceRequirements;
use crate::base::clock::Moment;
pub use crate::base::record_file::{read, try_read, write};
pub use crate::base::sys::task::Process;
use crate::engine::runtime::{Labels, LinuxUser, Propagation, SandboxMetadata, Tmpfs};
use crate::net::network::{Bandwidth, NetworkKind, PortMapping};

/// Record of a container, written by the daemon before the shim starts.
pub const CONTAINER: &str = "container.json";
/// Record of a sandbox, written by the daemon before the holder starts.
pub const SANDBOX: &str = "sandbox.json";
/// Record of the running processes of a container or sandbox, written by its shim or holder.
pub const STATE: &str = "state.json";
/// Record of the sandbox's network, written by the daemon once that network is set up.
pub const NETWORK: &str = "network.json";
/// Record of the resources that a container was given while it ran, written by the daemon.
pub const RESOURCES: &str = "resources.json";
/// Record of the container's end, written once the container has ended.
pub const EXIT: &str = "exit.json";
/// Copy of the exit record, in case the record is damaged: once the shim is gone, no process knows how the container
/// ended.
pub const EXIT_COPY: &str = "exit.copy.json";
/// Suffix of a record directory that is being removed.
pub(super) const REMOVING: &str = ".removing";

/// The time for a record that has none.
fn unknown_time() -> SystemTime {
    SystemTime::UNIX_EPOCH
}

fn default_stop_signal() -> i32 {
    libc::SIGTERM
}

/// The pod to which a record belongs.
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

/// A volume, or a path below it, that the shim resolves and binds before the container is created.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SubPath {
    /// Path of the volume's root.
    pub volume: PathBuf,
    /// Name of the image if the volume is an image; empty for any other volume. Nothing is made in an image.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// Path below the volume, relative and without `..`. Missing parts are made. Empty means the volume itself.
    pub path: PathBuf,
    /// Path at which the volume is bound, in the shim's mount namespace only.
    pub target: PathBuf,
    /// Propagation of later mounts between the volume and the node.
    #[serde(default)]
    pub propagation: Propagation,
    /// True if the path and every mount below it become read-only.
    #[serde(default)]
    pub read_only: bool,
}

/// An image that is a volume of the container, mounted by the shim before the container is created.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ImageMount {
    /// Id of the image, `sha256:…`.
    pub id: String,
    /// Layers of the image, in the form for [`crate::engine::images::overlay::mount_read_only`].
    pub layers: Vec<PathBuf>,
    /// Path at which the image is mounted, in the shim's mount namespace only.
    pub target: PathBuf,
}

/// The record of a container: everything that its shim needs, and the part of its status that never changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContainerRecord {
    /// Id of the container: 64 hex digits.
    pub id: String,
    /// Pod of the container.
    pub pod: PodIdentity,
    /// Id of the container's sandbox.
    pub sandbox: String,
    /// Name of the container in the pod spec.
    pub name: String,
    /// Number of instances of this container before this instance.
    #[serde(default)]
    pub attempt: u32,
    /// Image reference, as in the pod spec.
    #[serde(default)]
    pub image: String,
    /// Id of the image, `sha256:…`.
    #[serde(default)]
    pub image_id: String,
    /// Labels from the container's configuration.
    #[serde(default)]
    pub labels: Arc<Labels>,
    /// Annotations from the container's configuration.
    #[serde(default)]
    pub annotations: Arc<Labels>,
    /// Resources with which the container was made; None in the record of an older podprobe.
    #[serde(default)]
    pub requirements: Option<Arc<ResourceRequirements>>,
    /// Time of the creation by the wall clock.
    #[serde(default = "unknown_time")]
    pub created_at: SystemTime,
    /// Id of the boot in which the container was created.
    pub boot_id: String,
    /// Directories of the image's layers, topmost first.
    #[serde(default)]
    pub layers: Vec<PathBuf>,
    /// Directory that holds the overlay's `upper` and `work`.
    #[serde(default)]
    pub data: PathBuf,
    /// True if device nodes in the container's root file system can be opened, within the limits of the container's
    /// cgroup. Only for privileged containers.
    #[serde(default)]
    pub devices: bool,
    /// Path at which the overlay is mounted, in the shim's mount namespace only.
    #[serde(default)]
    pub rootfs: PathBuf,
    /// The sandbox holder. The container's mounts are made in a copy of the holder's mount namespace.
    #[serde(default)]
    pub holder: Process,
    /// Images that are volumes of the container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_mounts: Vec<ImageMount>,
    /// Volumes and paths in them that the shim binds before the container is created.
    #[serde(default)]
    pub sub_paths: Vec<SubPath>,
    /// Path of the current log file.
    #[serde(default)]
    pub log_path: PathBuf,
    /// Size in bytes at which the log is rotated.
    #[serde(default)]
    pub log_max_size: u64,
    /// Number of log files that are kept, including the current one.
    #[serde(default)]
    pub log_max_files: u32,
    /// Command line of the OCI runtime, up to its verb.
    #[serde(default)]
    pub runtime: Vec<PathBuf>,
    /// Directory for the option `--root` of the OCI runtime.
    #[serde(default)]
    pub oci_root: PathBuf,
    /// Cgroup of the container, as in the OCI field `cgroupsPath`.
    pub cgroup: String,
    /// Id of the user that owns the output pipes, so that /dev/stdout can be opened again.
    #[serde(default)]
    pub user: u32,
    /// User and groups of the first process; None in the record of an older podprobe.
    #[serde(default)]
    pub linux_user: Option<LinuxUser>,
    /// True if the container's standard input is kept open.
    #[serde(default)]
    pub stdin: bool,
    /// True if the input ends with the first client that is attached to it.
    #[serde(default)]
    pub stdin_once: bool,
    /// True if the container has a terminal.
    #[serde(default)]
    pub tty: bool,
    /// Path of the termination-log file on the node; empty if the container has none.
    #[serde(default)]
    pub termination_log: PathBuf,
    /// True if the policy of the termination message is `FallbackToLogsOnError`.
    #[serde(default)]
    pub message_from_log: bool,
    /// Directory in which the shim leaves a notice of the container's end (see [`super::exits`]).
    #[serde(default)]
    pub exits: PathBuf,
    /// Number of the stop signal.
    #[serde(default = "default_stop_signal")]
    pub stop_signal: i32,
    /// Cgroup to which the shim moves (see [`crate::base::sys::cgroup::leave_the_daemon`]).
    #[serde(default)]
    pub shims_cgroup: String,
}

/// The record of the resources that a container has instead of those with which it was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResourcesRecord {
    /// The resources in effect, as in a pod's spec.
    #[serde(default)]
    pub requirements: Arc<ResourceRequirements>,
}

/// The record of a container's processes and cgroups.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContainerState {
    /// Id of the boot to which these processes belong.
    pub boot_id: String,
    /// Process of the container's shim.
    pub shim: Process,
    /// The container's first process; None until the container is created.
    #[serde(default)]
    pub process: Option<Process>,
    /// Directories of the container's cgroups, in every hierarchy in which it has a cgroup of its own.
    #[serde(default)]
    pub cgroups: Vec<PathBuf>,
    /// Time of the start by the wall clock; None until the container has started.
    #[serde(default)]
    pub started_at: Option<SystemTime>,
    /// Time of the start by the boot clock; None until the container has started.
    #[serde(default)]
    pub started: Option<Moment>,
}

impl ContainerState {
    /// True if the record says that the container runs, but does not name its first process.
    pub fn is_torn(&self) -> bool {
        self.started.is_some() && self.process.is_none()
    }
}

/// The record of a container's end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// Exit code; 128 + signal if a signal ended the container.
    pub code: i32,
    /// Number of the signal that ended the container, if a signal ended it.
    #[serde(default)]
    pub signal: Option<i32>,
    /// Reason of the end: `Completed`, `Error`, `OOMKilled`, `StartError` or `Unknown`.
    #[serde(default)]
    pub reason: String,
    /// Termination message of the container.
    #[serde(default)]
    pub message: String,
    /// Time of the end by the wall clock.
    #[serde(default = "unknown_time")]
    pub finished_at: SystemTime,
    /// Time of the end by the boot clock.
    #[serde(default)]
    pub finished: Moment,
    /// Id of the boot to which `finished` belongs.
    #[serde(default)]
    pub boot_id: String,
}

/// The record of a sandbox: everything that its holder needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SandboxRecord {
    /// Id of the sandbox: 64 hex digits.
    pub id: String,
    /// Pod of the sandbox.
    pub pod: PodIdentity,
    /// Number of sandboxes of the pod before this sandbox.
    #[serde(default)]
    pub attempt: u32,
    /// True if the sandbox has no network namespace and no uts namespace of its own.
    #[serde(default)]
    pub host_network: bool,
    /// Kind of the sandbox's network. An older podprobe has recorded only `host_network`.
    #[serde(default)]
    pub network: NetworkKind,
    /// Ports of the node that lead to the pod.
    #[serde(default)]
    pub ports: Vec<PortMapping>,
    /// Bandwidth limits of the pod's traffic. The CNI plugins enforce them.
    #[serde(default)]
    pub bandwidth: Bandwidth,
    /// True if the sandbox has no ipc namespace of its own.
    #[serde(default)]
    pub host_ipc: bool,
    /// True if the sandbox has a process namespace of its own, which all containers share.
    #[serde(default)]
    pub share_pid: bool,
    /// Name of the runtime of the pod's containers, empty for the default; None in the record of an older podprobe.
    #[serde(default)]
    pub runtime_handler: Option<String>,
    /// Host name in the sandbox's uts namespace.
    #[serde(default)]
    pub hostname: String,
    /// Kernel parameters, as pairs of a name with dots and a value.
    #[serde(default)]
    pub sysctls: Vec<(String, String)>,
    /// Volumes of the pod that are in memory.
    #[serde(default)]
    pub memory_volumes: Vec<Tmpfs>,
    /// Cgroup to which the holder moves (see [`crate::base::sys::cgroup::leave_the_daemon`]).
    #[serde(default)]
    pub shims_cgroup: String,
    /// Cgroup of the pod. The pod's first process has a cgroup below it. Empty in the record of an older podprobe.
    #[serde(default)]
    pub pod_cgroup: String,
    /// Time of the creation by the wall clock.
    #[serde(default = "unknown_time")]
    pub created_at: SystemTime,
}

impl SandboxRecord {
    /// Returns true if containers can be created in the sandbox. Containers cannot be created if an older podprobe has
    /// started the first process of the pod: that process is in no cgroup of the pod, and the sandbox has no procfs.
    pub fn is_usable(&self) -> bool {
        !self.share_pid || !self.pod_cgroup.is_empty()
    }

    /// Returns the kind of the sandbox's network.
    pub fn network(&self) -> NetworkKind {
        match self.host_network {
            true => NetworkKind::Host,
            false => self.network,
        }
    }
}

/// The record of a sandbox's network, once the network is set up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NetworkRecord {
    /// Addresses of the sandbox, primary first.
    pub addresses: Vec<IpAddr>,
}

/// The record of a sandbox's holder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SandboxState {
    /// Id of the boot to which the holder belongs.
    pub boot_id: String,
    /// Process of the holder.
    pub process: Process,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde::de::DeserializeOwned;

    use super::*;
    use crate::base::{json, record_file};

    /// Reads a record that the last release has left. The record must be readable, and every field must keep its
    /// meaning.
    #[track_caller]
    fn of_last_release<T: DeserializeOwned>(file: &str) -> T {
        let dir = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/data/records/0.1.0"
        );
        let bytes = std::fs::read(Path::new(dir).join(file)).unwrap();
        json::from_slice(&bytes).unwrap()
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
        let mut fields: serde_json::Map<_, _> = serde_json::from_slice(&bytes).unwrap();
        assert!(fields.remove("crc32").is_some());
        for name in fields.keys() {
            let mut other = fields.clone();
            other[name] = serde_json::json!({"of": "another version"});
            let text = serde_json::to_vec(&other).unwrap();
            let read = record_file::parse::<T>("a record", &text).is_ok();
            let needed = required.contains(&format!("\"{name}\""));
            assert_eq!(read, !needed, "{name}");
        }
    }

    /// A record is readable if it has the fields by which its container or sandbox is found. So a field that a release
    /// adds, drops or writes in another form costs no running container.
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
