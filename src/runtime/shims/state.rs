//! The records that shims, sandbox holders and the daemon leave for one another.
//!
//! Invariants: a record is written to a temporary name and renamed, so a reader sees all of it or nothing; what does not
//! parse (power loss) is moved aside once, never read again. `container.json` and `sandbox.json` never change;
//! `exit.json` is written once, by the shim, or by the daemon when the shim is known to be dead.

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::clock::Moment;
use crate::network::NetworkKind;
use crate::runtime::{
    Bandwidth, Labels, LinuxUser, PortMapping, Propagation, SandboxMetadata, Tmpfs,
};
pub use crate::sys::task::Process;

/// Written by the daemon before the shim starts.
pub const CONTAINER: &str = "container.json";
/// Written by the daemon before the holder starts.
pub const SANDBOX: &str = "sandbox.json";
/// Written by the shim or holder: which processes there are.
pub const STATE: &str = "state.json";
/// Written by the daemon when the sandbox's network is set up.
pub const NETWORK: &str = "network.json";
/// Written when the container has ended.
pub const EXIT: &str = "exit.json";

/// Which pod a record belongs to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PodIdentity {
    /// UID of the pod.
    pub uid: String,
    /// Its name.
    pub name: String,
    /// Its namespace.
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
    /// With every mount below it.
    #[serde(default)]
    pub read_only: bool,
}

/// An image that is a volume of the container, mounted by the shim before the container is created.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ImageMount {
    /// `sha256:…`.
    pub id: String,
    /// As [`crate::images::overlay::mount_read_only`] takes them.
    pub layers: Vec<PathBuf>,
    /// Where it is mounted, in the shim's mount namespace only.
    pub target: PathBuf,
}

/// Everything a shim needs and the status that never changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContainerRecord {
    /// 64 hex digits.
    pub id: String,
    /// Its pod.
    pub pod: PodIdentity,
    /// Its sandbox.
    pub sandbox: String,
    /// Name in the pod spec.
    pub name: String,
    /// Instances before it.
    pub attempt: u32,
    /// As in the spec.
    pub image: String,
    /// `sha256:…`.
    pub image_id: String,
    /// As in the configuration.
    pub labels: Arc<Labels>,
    /// As in the configuration.
    pub annotations: Arc<Labels>,
    /// Wall clock.
    pub created_at: SystemTime,
    /// The boot it was created in.
    pub boot_id: String,
    /// Image layers, topmost first.
    pub layers: Vec<PathBuf>,
    /// Holds the overlay's `upper` and `work`.
    pub data: PathBuf,
    /// Where the overlay is mounted, in the shim's mount namespace only.
    pub rootfs: PathBuf,
    /// The holder whose mount namespace the container's mounts are made in.
    pub holder: Process,
    /// Volumes that are images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_mounts: Vec<ImageMount>,
    /// Paths to bind first.
    #[serde(default)]
    pub sub_paths: Vec<SubPath>,
    /// Current log file.
    pub log_path: PathBuf,
    /// Bytes at which the log is rotated.
    pub log_max_size: u64,
    /// Log files kept, the current one included.
    pub log_max_files: u32,
    /// The OCI runtime's command line up to its verbs.
    pub runtime: Vec<PathBuf>,
    /// `--root` of the OCI runtime.
    pub oci_root: PathBuf,
    /// OCI `cgroupsPath`.
    pub cgroup: String,
    /// User that may open the output pipes again through /dev/stdout.
    #[serde(default)]
    pub user: u32,
    /// Whom the first process is started as; None in the record of an older podprobe.
    #[serde(default)]
    pub linux_user: Option<LinuxUser>,
    /// Its standard input is kept open.
    #[serde(default)]
    pub stdin: bool,
    /// The input ends with the first client that is attached to it.
    #[serde(default)]
    pub stdin_once: bool,
    /// It has a terminal.
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
    pub stop_signal: i32,
    /// The cgroup that the shim moves to (see [`super::cgroup::leave_the_daemon`]).
    #[serde(default)]
    pub shims_cgroup: String,
}

/// What runs for a container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContainerState {
    /// The boot these processes belong to.
    pub boot_id: String,
    /// The shim.
    pub shim: Process,
    /// The container's first process, once created.
    pub process: Option<Process>,
    /// Its cgroup directories, in every hierarchy it has one of its own in.
    #[serde(default)]
    pub cgroups: Vec<PathBuf>,
    /// Wall clock; None until started.
    pub started_at: Option<SystemTime>,
    /// Boot clock; None until started.
    pub started: Option<Moment>,
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// 128 + signal when a signal ended it.
    pub code: i32,
    /// That signal.
    pub signal: Option<i32>,
    /// `Completed`, `Error`, `OOMKilled`, `ContainerCannotRun`, `ContainerStatusUnknown`.
    pub reason: String,
    /// Termination message.
    pub message: String,
    /// Wall clock.
    pub finished_at: SystemTime,
    /// Boot clock.
    pub finished: Moment,
    /// The boot of `finished`.
    pub boot_id: String,
}

/// Everything a holder needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SandboxRecord {
    /// 64 hex digits.
    pub id: String,
    /// Its pod.
    pub pod: PodIdentity,
    /// Sandboxes before it.
    pub attempt: u32,
    /// No network and uts namespace of its own.
    pub host_network: bool,
    /// Its network; in the record of an older podprobe only `host_network` says.
    #[serde(default)]
    pub network: NetworkKind,
    /// Ports of the node that lead to it.
    #[serde(default)]
    pub ports: Vec<PortMapping>,
    /// What plugins let through.
    #[serde(default)]
    pub bandwidth: Bandwidth,
    /// No ipc namespace of its own.
    pub host_ipc: bool,
    /// A process namespace of its own, for all containers.
    #[serde(default)]
    pub share_pid: bool,
    /// Host name in its uts namespace.
    pub hostname: String,
    /// Kernel parameters: name with dots, and value.
    #[serde(default)]
    pub sysctls: Vec<(String, String)>,
    /// Volumes in memory.
    pub memory_volumes: Vec<Tmpfs>,
    /// The cgroup that the holder moves to (see [`super::cgroup::leave_the_daemon`]).
    #[serde(default)]
    pub shims_cgroup: String,
    /// Wall clock.
    pub created_at: SystemTime,
}

impl SandboxRecord {
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
    /// Its addresses, primary first.
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

/// Replaces `dir/name`; `durable` waits until it would survive a power loss.
pub fn write<T: Serialize>(dir: &Path, name: &str, record: &T, durable: bool) -> io::Result<()> {
    let tmp = dir.join(format!("{name}.tmp"));
    let mut file = File::create(&tmp)?;
    file.write_all(&serde_json::to_vec(record)?)?;
    if durable {
        file.sync_all()?;
    }
    drop(file);
    fs::rename(&tmp, dir.join(name))?;
    if durable {
        File::open(dir)?.sync_all()
    } else {
        Ok(())
    }
}

/// As [`try_read`]; None also when the file cannot be read right now, which is logged.
pub fn read<T: DeserializeOwned>(dir: &Path, name: &str) -> Option<T> {
    try_read(dir, name).unwrap_or_else(|e| {
        log::warn!("{e}");
        None
    })
}

/// Reads `dir/name`: None when it is missing, or when it was not a record and has been moved to
/// `<name>.corrupt`. A directory or a socket in its place is damage of this one record, as a torn
/// file is: it must not hide the others.
///
/// # Errors
/// It is there but cannot be read right now (no descriptors left, a bad disk, not permitted): nothing
/// is known of what it says.
pub fn try_read<T: DeserializeOwned>(dir: &Path, name: &str) -> io::Result<Option<T>> {
    let path = dir.join(name);
    let damage = match fs::read(&path) {
        Ok(bytes) => match serde_json::from_slice(&bytes) {
            Ok(record) => return Ok(Some(record)),
            Err(e) => e.to_string(),
        },
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) if is_no_file(&e) => e.to_string(),
        Err(e) => {
            let text = format!("cannot read {}: {e}", path.display());
            return Err(io::Error::new(e.kind(), text));
        }
    };
    let aside = dir.join(format!("{name}.corrupt"));
    match fs::rename(&path, &aside) {
        Ok(()) => log::error!(
            "cannot use {}: {damage}; it is kept as {}",
            path.display(),
            aside.display()
        ),
        Err(e) => log::error!(
            "cannot use {}: {damage}; it cannot be moved aside: {e}",
            path.display()
        ),
    }
    Ok(None)
}

/// Whether a read failed because something else than a file is there.
fn is_no_file(e: &io::Error) -> bool {
    let errno = e.raw_os_error();
    errno.is_some_and(|n| [libc::EISDIR, libc::ELOOP, libc::ENOTDIR, libc::ENXIO].contains(&n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_replaced_whole_and_leaves_no_temporary_file() {
        let dir = tempfile::tempdir().unwrap();
        let p = Process {
            pid: 1,
            start_time: 2,
        };
        write(dir.path(), STATE, &p, true).unwrap();
        write(dir.path(), STATE, &Process { pid: 3, ..p }, false).unwrap();
        assert_eq!(
            read::<Process>(dir.path(), STATE),
            Some(Process {
                pid: 3,
                start_time: 2
            })
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_torn_record_is_moved_aside_once() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(STATE), b"{\"pid\": 1, \"sta").unwrap();
        assert_eq!(read::<Process>(dir.path(), STATE), None);
        assert!(dir.path().join("state.json.corrupt").exists());
        assert!(!dir.path().join(STATE).exists());
        assert_eq!(read::<Process>(dir.path(), STATE), None);
    }

    #[test]
    fn a_directory_in_place_of_a_record_is_moved_aside() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(STATE)).unwrap();
        assert_eq!(try_read::<Process>(dir.path(), STATE).unwrap(), None);
        assert!(dir.path().join("state.json.corrupt").is_dir());
    }

    #[test]
    fn only_what_is_no_file_is_damage() {
        let is_damage = |errno| is_no_file(&io::Error::from_raw_os_error(errno));
        assert!([libc::EISDIR, libc::ELOOP].into_iter().all(is_damage));
        let ours = [libc::EMFILE, libc::ENOMEM, libc::EIO, libc::EACCES];
        assert!(!ours.into_iter().any(is_damage));
        assert!(!is_no_file(&io::ErrorKind::OutOfMemory.into()));
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
