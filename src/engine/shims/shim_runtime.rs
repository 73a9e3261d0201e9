//! The runtime of this node, with sandbox holders and shims. A new daemon finds the holders and shims again by their
//! records.
//!
//! Invariants: the records have all the state. The cache in memory only saves reading records that never change. The
//! daemon waits for each shim and holder by its own pid. It never waits for any child, because other threads wait for
//! their own children.

mod by_pod;
mod listing;
mod lookup;
mod lost;
mod mounts;
mod network;
mod resize;
mod restore;
mod start;
mod stop;
mod streams;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use ring::rand::{SecureRandom, SystemRandom};

use super::state::{CONTAINER, ContainerRecord, Process, REMOVING};
use super::{LogBounds, RuntimeChoice, ShimOptions};
use crate::api::pod::ResourceRequirements;
use crate::base::cancel::Cancel;
use crate::base::json;
use crate::base::live::Live;
use crate::base::locks::Locked;
use crate::base::paths::Layout;
use crate::base::remove_tree::remove_tree;
use crate::base::sys::cgroup::Cgroups;
use crate::base::sys::{exe, task};
use crate::engine::images::{ImageStore, ImagesInUse};
use crate::engine::nsexec;
use crate::engine::runtime::{
    AttachRequest, ContainerConfig, ContainerId, ContainerRoot, ExecOutcome, ExecRequest, Listing,
    NetworkNamespace, PodResources, Resources, Runtime, RuntimeError, RuntimeErrorKind,
    SandboxConfig, SandboxMetadata, Session, Sessions, Started,
};
use crate::net::network::Networks;
use listing::Cache;
use start::CreatedContainer;

use super::{POD_PROC, SCHEME, UNFILTERED_DEVICES};

/// Longest wait for the end of a killed process. The kernel may still be writing data for the process.
const KILL_LIMIT: Duration = Duration::from_secs(10);
/// Suffix of a record directory that is being written.
const NEW: &str = ".new";
/// Suffix of a record directory that cannot be read.
const CORRUPT: &str = ".corrupt";

/// A runtime in which shims run containers, with the embedded OCI runtime or an OCI runtime binary.
pub struct ShimRuntime {
    layout: Layout,
    images: ImageStore,
    /// Path of this program, for starting shims and holders.
    program: PathBuf,
    choice: RuntimeChoice,
    /// OCI runtimes by the name of their runtime class.
    classes: BTreeMap<String, RuntimeChoice>,
    /// True if containers also run on a node whose kernel cannot filter their devices.
    unfiltered_devices: bool,
    networks: Arc<Networks>,
    logs: Live<LogBounds>,
    boot_id: String,
    cache: Mutex<Cache>,
    /// The part of each container's config.json that an exec needs, by container id. This part never changes. Entries
    /// of removed containers are dropped.
    configs: Mutex<HashMap<ContainerId, Arc<nsexec::Config>>>,
    /// Ids of the containers and sandboxes that this daemon is creating or starting.
    starting: Mutex<HashSet<String>>,
    /// Created containers that wait for the start message, by id.
    created: Mutex<HashMap<String, CreatedContainer>>,
    /// Shims and holders that are children of this process.
    children: Mutex<Vec<Child>>,
    /// A lock for cgroups: a start of a container holds it for reading while cgroups are made, and a removal of cgroups
    /// holds it for writing.
    cgroup_gate: RwLock<()>,
    /// True if there may be cgroups that no record names.
    unused_cgroups: AtomicBool,
    /// True once the daemon has looked for processes that no record names.
    has_ended_unrecorded: AtomicBool,
    /// True once a warning was logged that shims and holders stay in the daemon's cgroup.
    shims_stay: AtomicBool,
    /// Set when the daemon is ending. Its descriptor exists from the start.
    interrupt: Cancel,
    sessions: Sessions,
}

/// Locks a mutex, even if it is poisoned: the data are a cache, or a list that a panic cannot leave half changed.
fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.locked()
}

impl ShimRuntime {
    /// Makes a runtime over the records below `layout`. Makes the directories, and removes what an interrupted start or
    /// removal has left. The layout must be absolute, because the shims have another working directory.
    ///
    /// # Errors
    /// Returns the system's error if the directories cannot be made, or if no descriptor is left.
    pub fn new(layout: Layout, options: ShimOptions, images: ImageStore) -> io::Result<Self> {
        for dir in [layout.lib_dir(), layout.logs_dir()] {
            layout.make(&dir)?;
        }
        let interrupt = Cancel::default();
        interrupt.fd()?;
        let networks = Arc::new(Networks::new(options.network));
        let runtime = Self {
            layout,
            images,
            program: "/proc/self/exe".into(),
            choice: options.runtime,
            classes: options.classes,
            unfiltered_devices: options.unfiltered_devices,
            networks,
            logs: options.logs,
            boot_id: crate::base::clock::boot_id(),
            cache: Mutex::default(),
            configs: Mutex::default(),
            starting: Mutex::default(),
            created: Mutex::default(),
            children: Mutex::default(),
            cgroup_gate: RwLock::new(()),
            unused_cgroups: AtomicBool::new(true),
            has_ended_unrecorded: AtomicBool::new(false),
            shims_stay: AtomicBool::new(false),
            interrupt,
            sessions: Sessions::default(),
        };
        runtime.make_directories()?;
        runtime.take_in_lost();
        runtime.sweep();
        Ok(runtime)
    }

    /// Uses another binary for shims and holders. Tests need this, because a test's own binary cannot run these roles.
    #[must_use]
    pub fn with_program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = program.into();
        self
    }

    /// Returns the networks of the sandboxes, for the code that repairs them.
    pub fn networks(&self) -> Arc<Networks> {
        self.networks.clone()
    }

    /// Returns the ids of all sandboxes that have a record.
    pub fn sandboxes(&self) -> Vec<String> {
        names(&self.layout.sandboxes())
    }

    /// Returns a descriptor that becomes readable when the daemon is ending.
    fn ending(&self) -> BorrowedFd<'_> {
        self.interrupt.fd().expect("it is there from the start")
    }

    /// Removes directories that never became records or whose removal was interrupted. Also removes writable layers
    /// without a record: the records are usually on a tmpfs and vanish at a reboot, but the layers stay.
    fn sweep(&self) {
        for dir in [self.layout.sandboxes(), self.layout.containers()] {
            for name in names(&dir)
                .iter()
                .filter(|n| n.ends_with(NEW) || n.ends_with(REMOVING))
            {
                let _ = fs::remove_dir_all(dir.join(name));
            }
        }
        self.forget_never_begun();
        // If the records cannot be listed, no layer is removed: every running container could lose its own.
        let known: HashSet<String> = match listed(&self.layout.containers()) {
            Ok(names) => names.into_iter().collect(),
            Err(e) => {
                return log::warn!(
                    "cannot list {}: {e}; nothing is cleared away",
                    self.layout.containers().display()
                );
            }
        };
        for id in names(&self.layout.lib_dir().join("containers"))
            .iter()
            .filter(|id| !known.contains(*id))
        {
            if let Err(e) = remove_tree(&self.layout.container_data(id)) {
                log::warn!("cannot remove the file system of container {id}, which is gone: {e}");
            }
        }
    }

    /// Returns the command of the default OCI runtime: the embedded runtime (this program with the argument `oci`), or
    /// a binary.
    fn runtime_command(&self) -> Vec<PathBuf> {
        self.command_of(&self.choice, None)
    }

    /// Returns the command of the OCI runtime with this name; an empty name means the default. `pod_proc` is the
    /// mount point of the procfs of the pod's shared process namespace, or the mount namespace of the container whose
    /// processes are to be seen.
    ///
    /// # Errors
    /// Returns a sentence about an unknown name, with the names that are known.
    fn handler_command(
        &self,
        handler: &str,
        pod_proc: Option<PathBuf>,
    ) -> Result<Vec<PathBuf>, RuntimeError> {
        match self.classes.get(handler) {
            Some(choice) => Ok(self.command_of(choice, pod_proc)),
            None if handler.is_empty() => Ok(self.command_of(&self.choice, pod_proc)),
            None => Err(RuntimeError::failed(format!(
                "no runtime for \"{handler}\" is configured: runtimeClasses in the configuration has {}",
                match &self.classes.keys().cloned().collect::<Vec<_>>()[..] {
                    [] => "none".to_owned(),
                    names => names.join(", "),
                }
            ))),
        }
    }

    fn command_of(&self, choice: &RuntimeChoice, pod_proc: Option<PathBuf>) -> Vec<PathBuf> {
        match choice {
            RuntimeChoice::Embedded => {
                let mut command = vec![self.program.clone(), "oci".into()];
                if self.unfiltered_devices {
                    command.push(UNFILTERED_DEVICES.into());
                }
                if let Some(proc) = pod_proc {
                    command.extend([POD_PROC.into(), proc]);
                }
                command
            }
            RuntimeChoice::Path(path) => vec![path.clone()],
        }
    }

    /// Starts a shim or holder on a record directory. The stderr of the new process goes to a file in this directory.
    ///
    /// The new process resolves `/proc/self/exe` before its execve. So it runs the file from which this daemon was
    /// started, even if that file was replaced on the disk.
    fn spawn_role(&self, role: &str, dir: &Path) -> io::Result<Child> {
        let stderr = File::create(dir.join("stderr"))?;
        exe::role(&self.program)
            .arg(role)
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
    }

    /// Runs `take`, which removes the record directory of `id`. From the start of `take` on, no thread writes this
    /// record again.
    fn taking_away<T>(&self, id: &str, take: impl FnOnce() -> T) -> T {
        lock(&self.cache).leaving.insert(id.to_owned());
        let result = take();
        let mut cache = lock(&self.cache);
        cache.containers.remove(id);
        cache.sandboxes.remove(id);
        cache.leaving.remove(id);
        result
    }

    /// Reaps those shims and holders that have ended, or only the child `only`. Each child that is checked costs a
    /// system call, so only a call for all pods checks all children.
    fn reap(&self, only: Option<i32>) {
        let is_asked = |c: &Child| only.is_none_or(|pid| c.id() == pid as u32);
        lock(&self.children).retain_mut(|c| !is_asked(c) || matches!(c.try_wait(), Ok(None)));
    }

    fn adopt(&self, child: Child) {
        lock(&self.children).push(child);
    }
}

/// Kills a process and waits for its end. Returns false if it has not ended in time.
fn kill_process(p: Process) -> bool {
    match p.open() {
        Ok(Some(fd)) => fd.send(libc::SIGKILL).is_ok() && fd.wait(KILL_LIMIT).unwrap_or(false),
        _ => true,
    }
}

/// Lists the names in a directory; empty if the directory does not exist or cannot be read.
fn names(dir: &Path) -> Vec<String> {
    listed(dir).unwrap_or_default()
}

/// Lists all names in a directory, or fails. Empty if the directory does not exist.
fn listed(dir: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?.collect::<io::Result<Vec<_>>>()?,
    };
    Ok(entries
        .into_iter()
        .filter_map(|e| e.file_name().into_string().ok())
        .collect())
}

/// Makes a new id of 64 random hex digits. The bytes come from a system call, because a node may lack /dev/urandom.
fn new_id() -> io::Result<String> {
    let mut bytes = [0; 32];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| io::Error::other("the kernel gives no random bytes (getrandom)"))?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

impl Runtime for ShimRuntime {
    fn check(&self) -> Result<(), RuntimeError> {
        let fail = |cause: String| {
            Err(RuntimeError::failed(format!(
                "cannot run containers: {cause}"
            )))
        };
        match Cgroups::detect() {
            Ok(c) if c.is_empty() => {
                return fail(
                    "no cgroup file system is mounted; mount cgroup2 at /sys/fs/cgroup".into(),
                );
            }
            Err(e) => return fail(format!("/proc is not usable: {e}")),
            Ok(c) => {
                if let Some(at) = c.read_only() {
                    let at = at.display();
                    return fail(format!(
                        "the cgroup file system {at} is read-only; mount it read-write, in a container run it privileged"
                    ));
                }
            }
        }
        let probe = self.layout.containers().join(".check");
        if let Err(e) = fs::write(&probe, "").and_then(|()| fs::remove_file(&probe)) {
            return fail(format!(
                "{} is not writable: {e}",
                self.layout.containers().display()
            ));
        }
        match &self.choice {
            RuntimeChoice::Path(path) if !is_executable(path) => fail(format!(
                "{} is not an executable file; name an OCI runtime with --runtime, or use --runtime embedded",
                path.display()
            )),
            _ => Ok(()),
        }
    }

    fn list(&self, pod: Option<&str>) -> Result<Listing, RuntimeError> {
        if pod.is_none() {
            self.reap(None);
        }
        let listing = self.listing(pod)?;
        // Processes without a record must be ended before any pod starts, and pods start only after a listing.
        if pod.is_none() && !self.has_ended_unrecorded.swap(true, Ordering::SeqCst) {
            self.end_unrecorded();
        }
        // If there are no pods, each listing looks for unused cgroups: a proxy may have started and ended since the
        // last listing.
        let unused = self.unused_cgroups.load(Ordering::SeqCst) || listing.sandboxes.is_empty();
        if pod.is_none() && unused {
            self.remove_unused_cgroups();
        }
        Ok(listing)
    }

    fn run_sandbox(&self, config: &SandboxConfig) -> Result<ContainerId, RuntimeError> {
        self.handler_command(&config.runtime_handler, None)?;
        let id = self.start_sandbox(config).map_err(|cause| {
            let SandboxMetadata {
                name, namespace, ..
            } = &config.metadata;
            RuntimeError::failed(format!(
                "cannot create the sandbox of pod {name}_{namespace}: {cause}"
            ))
        })?;
        let SandboxMetadata {
            name, namespace, ..
        } = &config.metadata;
        self.set_up_network(&id).map_err(|cause| {
            let _ = self.remove_sandbox(&id);
            RuntimeError::failed(format!(
                "cannot set up the network of pod {name}_{namespace}: {cause}"
            ))
        })?;
        Ok(id)
    }

    fn stop_sandbox(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        self.stop_holder(id)
    }

    fn remove_sandbox(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        self.stop_holder(id)?;
        self.forget_sandbox(id)
    }

    fn create_container(
        &self,
        sandbox: &ContainerId,
        config: &ContainerConfig,
        sandbox_config: &SandboxConfig,
    ) -> Result<ContainerId, RuntimeError> {
        self.create(sandbox, config, sandbox_config)
    }

    fn start_container(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        self.start(id)
    }

    fn stop_container(
        &self,
        id: &ContainerId,
        grace: Duration,
        cancel: &Cancel,
    ) -> Result<(), RuntimeError> {
        self.stop(id, grace, cancel)
    }

    fn update_pod(
        &self,
        cgroup_parent: &str,
        resources: &PodResources,
    ) -> Result<(), RuntimeError> {
        self.resize_pod(cgroup_parent, resources)
    }

    fn update_container(
        &self,
        id: &ContainerId,
        resources: &Resources,
        requirements: &ResourceRequirements,
    ) -> Result<(), RuntimeError> {
        self.resize_container(id, resources, requirements)
    }

    fn remove_container(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        self.remove(id)
    }

    fn exec(
        &self,
        id: &ContainerId,
        command: &[String],
        timeout: Duration,
        limit: usize,
        cancel: Option<&Cancel>,
    ) -> Result<ExecOutcome, RuntimeError> {
        self.entering(id, cancel, |options, target| {
            nsexec::exec_with(options, target, command, timeout, limit)
        })
    }

    fn exec_stream(
        &self,
        id: &ContainerId,
        request: &ExecRequest,
    ) -> Result<Started, RuntimeError> {
        self.entering(id, None, |options, target| {
            nsexec::stream(options, target, request, &self.sessions)
        })
    }

    fn attach(
        &self,
        id: &ContainerId,
        request: AttachRequest,
    ) -> Result<Box<dyn Session>, RuntimeError> {
        self.attach_to(id, request)
    }

    fn volumes_root(&self, sandbox: &ContainerId) -> Result<OwnedFd, RuntimeError> {
        let holder = self.find_sandbox(sandbox).and_then(|e| self.holder(&e));
        let root = match holder {
            Some(holder) => root_of(holder),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        root.map_err(|e| {
            let text = match e.kind() {
                io::ErrorKind::NotFound => "it is not running".to_owned(),
                _ => e.to_string(),
            };
            RuntimeError::failed(format!("cannot enter sandbox {sandbox}: {text}"))
        })
    }

    fn container_root(&self, id: &ContainerId) -> Result<ContainerRoot, RuntimeError> {
        let (_, process) = self.running(id)?;
        let root = root_of(process).map(|dir| ContainerRoot { dir, process });
        root.map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => RuntimeError::new(
                RuntimeErrorKind::NotRunning,
                format!("cannot enter container {id}: it is not running"),
            ),
            _ => RuntimeError::failed(format!("cannot enter container {id}: {e}")),
        })
    }

    fn pod_network(&self, pod: &str) -> Result<Option<NetworkNamespace>, RuntimeError> {
        self.namespace_of(pod)
    }

    fn interrupt(&self) {
        self.interrupt.cancel();
        self.sessions.end_all();
        self.networks.stop();
    }
}

/// Opens the root directory of a process, with its mounts.
fn root_of(process: Process) -> io::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let path = format!("/proc/{}/root", process.pid);
    let root = nix::fcntl::open(path.as_str(), flags, Mode::empty())?;
    // Compared after the open: if the process is alive now, it also had the pid when the directory was opened.
    match task::look(process.pid)? == Some(process.start_time) {
        true => Ok(root),
        false => Err(io::ErrorKind::NotFound.into()),
    }
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// Returns true if `name` can be the name of a record directory: 64 hex digits.
fn is_id(name: &OsStr) -> bool {
    name.len() == 64 && name.as_encoded_bytes().iter().all(u8::is_ascii_hexdigit)
}

/// Returns the images that containers use, from the records below `layout` and from the mounts. Needs no daemon. A
/// record that cannot be read may name any image, so then all images count as in use.
pub fn images_in_use(layout: &Layout) -> ImagesInUse {
    let mut in_use = recorded_images(layout);
    in_use.add_mounted();
    in_use
}

fn recorded_images(layout: &Layout) -> ImagesInUse {
    let mut in_use = ImagesInUse::default();
    let Ok(containers) = listed(&layout.containers()) else {
        in_use.assume_everything();
        return in_use;
    };
    for name in containers {
        let record = fs::read(layout.containers().join(name).join(CONTAINER));
        match record.map(|bytes| json::from_slice::<ContainerRecord>(&bytes)) {
            // A record without an image id does not tell which image it uses, and is treated as damaged.
            Ok(Ok(record)) if !record.image_id.is_empty() => {
                in_use.add(&record.image_id, &record.layers);
                let volumes = record.image_mounts.iter();
                volumes.for_each(|volume| in_use.add(&volume.id, &volume.layers));
            }
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) => {}
            // The record is damaged, or cannot be read now.
            Ok(_) | Err(_) => in_use.assume_everything(),
        }
    }
    in_use
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(make: impl FnOnce(&Path), in_use: bool) {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        make(&layout.containers());
        assert_eq!(recorded_images(&layout).image("sha256:any"), in_use);
    }

    #[test]
    fn what_cannot_be_read_may_use_any_image() {
        check(|_| {}, false);
        check(|dir| fs::create_dir_all(dir.join("a.new")).unwrap(), false);
        check(
            |dir| fs::create_dir_all(dir.join("a").join(CONTAINER)).unwrap(),
            true,
        );
        let damaged = |dir: &Path| {
            fs::create_dir_all(dir.join("a")).unwrap();
            fs::write(dir.join("a").join(CONTAINER), "{").unwrap();
        };
        check(damaged, true);
        check(
            |dir| {
                fs::create_dir_all(dir.parent().unwrap())
                    .and_then(|()| fs::write(dir, ""))
                    .unwrap()
            },
            true,
        );
    }
}
