//! Starts sandboxes, and creates and starts containers: writes records and bundle, runs the shim, and reads its
//! answers.

use std::fs::{self, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::mounts::Mounts;
use super::{NEW, ShimRuntime, kill_process, lock, new_id};
use crate::base::clock::Moment;
use crate::base::paths::directories::make_private;
use crate::base::sys::calls::Call;
use crate::base::sys::cgroup;
use crate::base::sys::cgroup::Cgroups;
use crate::engine::images::{Image, ImageConfig};
use crate::engine::oci::{Seccomp, Spec, User};
use crate::engine::runtime::{
    ContainerConfig, ContainerId, ENDING, LinuxUser, NamespaceMode, RuntimeError, RuntimeErrorKind,
    SandboxConfig, SeccompProfile, signals,
};
use crate::engine::seccomp::localhost::{self, LocalhostError};
use crate::engine::shims::app_armor::AppArmor;
use crate::engine::shims::oci_spec::{self, Namespaces};
use crate::engine::shims::state::{
    self, CONTAINER, ContainerRecord, Process, REMOVING, SANDBOX, SandboxRecord,
};
use crate::engine::shims::{cri_log, pod_cgroup, sandbox, shim};

/// Longest time for creating or for starting a container: the kubelet's limit for one request to its runtime.
const START_LIMIT: Duration = Duration::from_secs(120);
/// Longest time for starting a sandbox holder, which has little to do.
const SANDBOX_LIMIT: Duration = Duration::from_secs(30);
/// Maximum number of bytes that are read of a seccomp profile. Docker's own profile has 20 KB.
const MAX_PROFILE: u64 = 1 << 20;
/// Longest answer of a shim or holder in bytes.
const MAX_ANSWER: usize = 4096;

/// The values that the steps of creating a container share.
struct Draft<'a> {
    config: &'a ContainerConfig,
    sandbox_config: &'a SandboxConfig,
    /// Name of the runtime.
    handler: &'a str,
    id: ContainerId,
    sandbox: &'a ContainerId,
    holder: Process,
    /// The first process of the container whose processes this one sees.
    target: Option<Process>,
    image: Image,
    /// Final path of the record directory.
    dir: PathBuf,
}

/// The shim of a created container, which waits for the start message. If this value is dropped, the shim records that
/// the container cannot run, and exits.
pub(super) struct CreatedContainer {
    pid: i32,
    pipes: RolePipes,
}

/// The pipes to the stdin and stdout of a shim or holder. The shim or holder takes an end of file on its stdin for the
/// end of the daemon, so stdin stays open as long as the process is to continue.
struct RolePipes {
    stdin: ChildStdin,
    stdout: ChildStdout,
}

impl RolePipes {
    fn of(child: &mut Child) -> io::Result<Self> {
        let both = child.stdin.take().zip(child.stdout.take());
        let (stdin, stdout) = both.ok_or_else(|| io::Error::other("it has no pipes"))?;
        Ok(Self { stdin, stdout })
    }

    /// Waits for the role's answer: one line, or all output until the role ends, which is the form of an error. Returns
    /// the error `TimedOut` if no answer comes in time, and `Interrupted` if the daemon is ending.
    fn answer(&mut self, limit: Duration, ending: BorrowedFd<'_>) -> io::Result<String> {
        let end = Moment::now() + limit;
        let mut said = Vec::new();
        loop {
            let left = PollTimeout::try_from(end.since(Moment::now())).unwrap_or(PollTimeout::MAX);
            let mut fds = [
                PollFd::new(self.stdout.as_fd(), PollFlags::POLLIN),
                PollFd::new(ending, PollFlags::POLLIN),
            ];
            match poll(&mut fds, left) {
                // The shim notices that the daemon ends, and gives up a container that it has not started.
                Ok(_) if fds[1].any() == Some(true) => {
                    return Err(io::Error::new(io::ErrorKind::Interrupted, ENDING));
                }
                Ok(0) => {
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        format!(
                            "no answer within {}",
                            crate::base::clock::go_duration(limit)
                        ),
                    ));
                }
                Ok(_) => {}
                Err(nix::errno::Errno::EINTR) => continue,
                Err(e) => return Err(e.into()),
            }
            let mut chunk = [0; 512];
            let n = self.stdout.read(&mut chunk)?;
            said.extend_from_slice(&chunk[..n]);
            // The text of an error may have several lines.
            let is_line = said.ends_with(b"\n") && !said.starts_with(b"error ");
            if n == 0 || is_line || said.len() > MAX_ANSWER {
                return Ok(String::from_utf8_lossy(&said).into_owned());
            }
        }
    }
}

/// The reason why a container cannot see the processes of another one.
const TARGET_GONE: &str = "the container whose processes it is to see does not run";

fn create_error(what: &str, cause: impl std::fmt::Display) -> RuntimeError {
    RuntimeError::failed(format!("cannot {what}: {cause}"))
}

/// Fills the directory `<dir>.new` and renames it to `dir`. So a record is complete or does not exist.
pub(super) fn publish(dir: &Path, fill: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let mut new = dir.as_os_str().to_owned();
    new.push(NEW);
    let new = PathBuf::from(new);
    make_private(&new)?;
    fill(&new)
        .and_then(|()| fs::rename(&new, dir))
        .inspect_err(|_| {
            let _ = fs::remove_dir_all(&new);
        })
}

/// Removes a record directory. It is renamed first, because a listing would take a half-removed record for a damaged
/// one.
fn take_away(dir: &Path) {
    let mut aside = dir.as_os_str().to_owned();
    aside.push(REMOVING);
    if fs::rename(dir, &aside).is_ok() {
        let _ = fs::remove_dir_all(aside);
    }
}

impl ShimRuntime {
    /// Starts a new holder for a pod's namespaces, and returns the sandbox's id.
    pub(super) fn start_sandbox(&self, config: &SandboxConfig) -> io::Result<ContainerId> {
        let id = new_id()?;
        let record = SandboxRecord {
            id: id.clone(),
            pod: (&config.metadata).into(),
            attempt: config.metadata.attempt,
            host_network: config.namespaces.network == NamespaceMode::Node,
            network: self.networks.kind(),
            ports: config.port_mappings.clone(),
            bandwidth: config.bandwidth,
            host_ipc: config.namespaces.ipc == NamespaceMode::Node,
            share_pid: config.namespaces.pid == NamespaceMode::Pod,
            runtime_handler: Some(config.runtime_handler.clone()),
            hostname: config.hostname.clone(),
            sysctls: config.sysctls.clone(),
            memory_volumes: config.tmpfs.clone(),
            shims_cgroup: self.layout.shims_cgroup(),
            pod_cgroup: config.cgroup_parent.clone(),
            created_at: SystemTime::now(),
        };
        let dir = self.layout.sandboxes().join(&id);
        // While the id is in `starting`, a listing does not search /proc for this holder, which has not written its
        // state yet.
        lock(&self.starting).insert(id.clone());
        let published = publish(&dir, |new| state::write(new, SANDBOX, &record, false));
        if published.is_err() {
            lock(&self.starting).remove(&id);
        }
        published?;
        lock(&self.cache).new_sandboxes.insert(id.clone());
        let answer = self.spawn_role("sandbox", &dir).and_then(|mut child| {
            let answer = RolePipes::of(&mut child)
                .and_then(|mut pipes| pipes.answer(SANDBOX_LIMIT, self.ending()));
            if !matches!(&answer, Ok(text) if text == sandbox::READY) {
                // Kills the holder and waits for its end: while the process exists, the cgroup to which it moved cannot
                // be removed.
                Process::of(child.id() as i32).map(kill_process);
            }
            self.adopt(child);
            answer
        });
        lock(&self.starting).remove(&id);
        match answer {
            Ok(text) if text == sandbox::READY => {
                self.warn_of_the_daemon_s_cgroup(&said(&dir));
                Ok(ContainerId::new(super::SCHEME, &id))
            }
            failed => {
                let said = said(&dir);
                self.taking_away(&id, || take_away(&dir));
                self.unused_cgroups.store(true, Ordering::SeqCst);
                self.remove_unused_cgroups();
                Err(failed.map_or_else(|e| e, |text| io::Error::other(cause_of(&text, &said))))
            }
        }
    }

    /// Logs one warning about the stderr of a running holder. A running holder writes there only why it could not leave
    /// the daemon's cgroup.
    fn warn_of_the_daemon_s_cgroup(&self, said: &str) {
        if !said.is_empty() && !self.shims_stay.swap(true, Ordering::Relaxed) {
            log::warn!(
                "{}; so the pods run below the daemon's own cgroup, and a service manager that ends everything in it ends \
                 them with the daemon: for systemd set KillMode=process in the unit",
                said.trim_end()
            );
        }
    }

    /// Creates an instance of a container: resolves the image, writes the record, and starts a shim, which then waits
    /// for the start message.
    pub(super) fn create(
        &self,
        sandbox: &ContainerId,
        config: &ContainerConfig,
        sandbox_config: &SandboxConfig,
    ) -> Result<ContainerId, RuntimeError> {
        let known = self.find_sandbox(sandbox);
        let known = known.and_then(|known| Some((self.holder(&known)?, known.record)));
        let (holder, record) = known.ok_or_else(|| {
            create_error(
                "create the container",
                format!("sandbox {sandbox} is not running"),
            )
        })?;
        let handler = record.runtime_handler.as_ref();
        let handler = handler.unwrap_or(&sandbox_config.runtime_handler);
        let image = self.images.resolve(&config.image.id);
        let image = image.map_err(|e| RuntimeError::failed(e.to_string()))?;
        let id = new_id().map_err(|e| create_error("make a container id", e))?;
        let id = ContainerId::new(super::SCHEME, &id);
        let target = self.target(config, sandbox_config)?;
        let draft = Draft {
            config,
            target,
            sandbox_config,
            handler,
            dir: self.layout.containers().join(id.as_str()),
            id: id.clone(),
            sandbox,
            holder,
            image,
        };
        self.check_built_in(handler)?;
        self.prepare_pod_cgroup(sandbox_config)?;
        let (record, spec) = self.design(&draft)?;
        lock(&self.starting).insert(id.as_str().to_owned());
        let created = self.launch(&draft, &record, &spec);
        lock(&self.cache)
            .new_containers
            .insert(id.as_str().to_owned());
        if created.is_err() {
            lock(&self.starting).remove(id.as_str());
        }
        let created = created?;
        // Nothing of the container's own has run so far. The target's pid may have been another process's when the shim
        // entered its namespace.
        if target.is_some_and(|target| !target.alive()) {
            drop(created);
            lock(&self.starting).remove(id.as_str());
            return Err(create_error("create the container", TARGET_GONE));
        }
        lock(&self.created).insert(id.as_str().to_owned(), created);
        Ok(id)
    }

    /// Returns the first process of the container whose processes a new container sees.
    fn target(
        &self,
        config: &ContainerConfig,
        sandbox_config: &SandboxConfig,
    ) -> Result<Option<Process>, RuntimeError> {
        let Some(id) = &config.processes_of else {
            return Ok(None);
        };
        if sandbox_config.namespaces.pid != NamespaceMode::Container {
            return Ok(None);
        }
        let cache = lock(&self.cache);
        let known = cache.containers.get(id.as_str());
        let process = known.and_then(|known| known.state.as_ref()?.process);
        match process.filter(|process| process.alive()) {
            Some(process) => Ok(Some(process)),
            None => Err(create_error("create the container", TARGET_GONE)),
        }
    }

    /// Refuses a container that the embedded runtime cannot start on this kernel. Without this check the container
    /// would be created and would then crash.
    fn check_built_in(&self, handler: &str) -> Result<(), RuntimeError> {
        let is_built_in = self.handler_command(handler, None)?.first() == Some(&self.program);
        match is_built_in.then(|| Call::MountSetattr.attempt()) {
            Some(Err(e)) => Err(create_error("create the container", lacking(e))),
            _ => Ok(()),
        }
    }

    /// Prepares the pod's cgroup. The cgroup is prepared again for each container, because an older daemon or another
    /// configuration may have made it.
    fn prepare_pod_cgroup(&self, config: &SandboxConfig) -> Result<(), RuntimeError> {
        let _gate = self
            .cgroup_gate
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let fail = |e| create_error("prepare the pod's cgroup", e);
        let cgroups = Cgroups::detect().map_err(|e| fail(e.to_string()))?;
        let prepared = pod_cgroup::prepare(&cgroups, &config.cgroup_parent, &config.resources);
        for e in prepared.map_err(|e| fail(e.to_string()))? {
            let m = &config.metadata;
            log::warn!("pod {}/{}: {e}; it runs without", m.namespace, m.name);
        }
        Ok(())
    }

    /// Sends the start message to the shim of a created container, and waits for the answer.
    pub(super) fn start(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let created = lock(&self.created).remove(id.as_str());
        let Some(mut created) = created else {
            let text = format!(
                "cannot start container {id}: it was not created by this daemon, or has been started"
            );
            return Err(RuntimeError::failed(text));
        };
        let _gate = self
            .cgroup_gate
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let answer = created
            .pipes
            .stdin
            .write_all(shim::START.as_bytes())
            .and_then(|()| created.pipes.answer(START_LIMIT, self.ending()));
        let result = match answer {
            Ok(text) if text == shim::STARTED => Ok(()),
            Ok(text) if text.starts_with("error ") => Err(refusal(&text)),
            Ok(text) => {
                let dir = self.layout.containers().join(id.as_str());
                Err(self.abandon(id, created.pid, &cause_of(&text, &said(&dir))))
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {
                Err(create_error("start the container", e))
            }
            Err(e) => Err(self.abandon(id, created.pid, &e.to_string())),
        };
        lock(&self.starting).remove(id.as_str());
        result
    }

    /// Gives up a created container that must not start any more. Its shim records that the container never ran.
    pub(super) fn give_up_created(&self, id: &ContainerId) {
        let created = lock(&self.created).remove(id.as_str());
        if let Some(mut created) = created {
            // A shim that has ended has nothing to record.
            let _ = created.pipes.stdin.write_all(shim::GIVE_UP.as_bytes());
        }
        lock(&self.starting).remove(id.as_str());
    }

    /// Decides everything about the container on this node, and returns its record and its OCI configuration. Writes
    /// nothing.
    fn design(&self, d: &Draft<'_>) -> Result<(ContainerRecord, Spec), RuntimeError> {
        let c = d.config;
        let mounts = Mounts::of(c, &d.dir, &self.images)?;
        let parent = &d.sandbox_config.cgroup_parent;
        let cgroup = cgroup::of_container(parent, &c.metadata.name, c.metadata.attempt);
        let rootfs = d.dir.join("rootfs");
        let shares = d.sandbox_config.namespaces.pid == NamespaceMode::Pod;
        let sandbox_dir = self.layout.sandboxes().join(d.sandbox.as_str());
        let of_target = |target: Process| PathBuf::from(format!("/proc/{}/ns/mnt", target.pid));
        let pod_proc = match shares {
            true => Some(sandbox_dir.join(sandbox::PROC)),
            false => d.target.map(of_target),
        };
        let inputs = oci_spec::Inputs {
            config: c,
            sandbox_config: d.sandbox_config,
            sandbox: d.sandbox,
            image: &d.image.config,
            layers: &d.image.layers,
            rootfs: &rootfs,
            namespaces: namespaces(d),
            mounts: mounts.binds,
            cgroups_path: cgroup.clone(),
            host: &oci_spec::Host::read(c.security.privileged, parent),
            localhost_seccomp: localhost_seccomp(c)?,
            app_armor: app_armor(c)?,
        };
        let spec = oci_spec::build(&inputs)?;
        let (message, logs) = (c.termination_message.as_ref(), self.logs.get());
        let linux_user = linux_user(&spec.process.user);
        let record = ContainerRecord {
            id: d.id.as_str().to_owned(),
            pod: (&d.sandbox_config.metadata).into(),
            sandbox: d.sandbox.as_str().to_owned(),
            name: c.metadata.name.clone(),
            attempt: c.metadata.attempt,
            image: c.image.name.clone(),
            image_id: d.image.id.clone(),
            labels: Arc::new(c.labels.clone()),
            annotations: Arc::new(c.annotations.clone()),
            requirements: Some(Arc::new(c.requirements.clone())),
            created_at: SystemTime::now(),
            boot_id: self.boot_id.clone(),
            layers: d.image.layers.clone(),
            data: self.layout.container_data(d.id.as_str()),
            devices: c.security.privileged,
            rootfs,
            holder: d.holder,
            image_mounts: mounts.images,
            sub_paths: mounts.sub_paths,
            log_path: d.sandbox_config.log_directory.join(&c.log_path),
            log_max_size: logs.max_size,
            log_max_files: logs.max_files,
            runtime: self.handler_command(d.handler, pod_proc)?,
            oci_root: self.layout.oci_state(),
            cgroup,
            user: linux_user.uid,
            linux_user: Some(linux_user),
            stdin: c.stdin,
            stdin_once: c.stdin_once,
            tty: c.tty,
            termination_log: message.map(|m| m.file.clone()).unwrap_or_default(),
            message_from_log: message.is_some_and(|m| m.fall_back_to_log),
            exits: self.layout.exits(),
            stop_signal: stop_signal(c, &d.image.config),
            shims_cgroup: self.layout.shims_cgroup(),
        };
        Ok((record, spec))
    }

    /// Writes the record and the bundle, starts the shim, and waits until the shim has created the container.
    fn launch(
        &self,
        d: &Draft<'_>,
        record: &ContainerRecord,
        spec: &Spec,
    ) -> Result<CreatedContainer, RuntimeError> {
        self.write_container(d, record, spec).map_err(|e| {
            self.discard(record);
            create_error("record the container", e)
        })?;
        let mut child = self.spawn_role("shim", &d.dir).map_err(|e| {
            self.discard(record);
            create_error("start a shim", e)
        })?;
        let pid = child.id() as i32;
        let pipes = RolePipes::of(&mut child);
        self.adopt(child);
        let mut pipes = pipes.map_err(|e| create_error("talk to a shim", e))?;
        match pipes.answer(START_LIMIT, self.ending()) {
            Ok(text) if text == shim::CREATED => Ok(CreatedContainer { pid, pipes }),
            failed => {
                let said = said(&d.dir);
                self.kill_child(pid);
                self.discard(record);
                Err(match failed {
                    Ok(text) if text.starts_with("error ") => refusal(&text),
                    Ok(text) => create_error("create the container", cause_of(&text, &said)),
                    Err(e) => create_error("create the container", e),
                })
            }
        }
    }

    fn write_container(
        &self,
        d: &Draft<'_>,
        record: &ContainerRecord,
        spec: &Spec,
    ) -> io::Result<()> {
        for dir in ["upper", "work"] {
            make_private(&record.data.join(dir))?;
        }
        // The upper directory becomes the container's root directory, so every user must be able to enter it.
        fs::set_permissions(record.data.join("upper"), Permissions::from_mode(0o755))?;
        if let Some(dir) = record.log_path.parent() {
            fs::create_dir_all(dir)?;
            cri_log::prune(dir, record.attempt);
        }
        publish(&d.dir, |new| {
            make_private(&new.join("rootfs"))?;
            make_private(&new.join("bundle"))?;
            fs::write(new.join("bundle/config.json"), serde_json::to_vec(spec)?)?;
            state::write(new, CONTAINER, record, false)
        })
    }

    /// Removes the record and files of a container of which nothing has run yet.
    fn discard(&self, record: &ContainerRecord) {
        let dir = self.layout.containers().join(&record.id);
        self.taking_away(&record.id, || take_away(&dir));
        let _ = fs::remove_dir_all(&record.data);
        let _ = fs::remove_file(&record.termination_log);
    }
}

/// Returns the reason why the embedded runtime cannot run on a kernel where mount_setattr fails with this error.
fn lacking(errno: Errno) -> &'static str {
    match errno {
        Errno::EPERM => {
            "a seccomp filter around podprobe forbids mount_setattr, which the built-in runtime needs; allow it, or set \
             runtime in the configuration to the path of runc or crun"
        }
        _ => {
            "the built-in runtime needs Linux 5.12 (mount_setattr); use a newer kernel, or set runtime in the configuration \
             to the path of runc or crun"
        }
    }
}

/// Returns the number of the container's stop signal: its own, else the image's, else TERM.
fn stop_signal(config: &ContainerConfig, image: &ImageConfig) -> i32 {
    let own = config.stop_signal.as_deref().and_then(signals::number);
    own.or_else(|| signals::number(&image.stop_signal))
        .unwrap_or(libc::SIGTERM)
}

/// Converts `process.user` of the OCI configuration.
fn linux_user(user: &User) -> LinuxUser {
    LinuxUser {
        uid: user.uid,
        gid: user.gid,
        supplemental_groups: user.additional_gids.clone(),
    }
}

/// Reads the seccomp profile of a container with [`SeccompProfile::Localhost`]; None for every other container.
fn localhost_seccomp(c: &ContainerConfig) -> Result<Option<Seccomp>, RuntimeError> {
    let SeccompProfile::Localhost(file) = &c.security.seccomp else {
        return Ok(None);
    };
    let read = fs::File::open(file).and_then(|f| {
        let mut text = Vec::new();
        f.take(MAX_PROFILE).read_to_end(&mut text).map(|_| text)
    });
    let profile = read
        .map_err(LocalhostError::Read)
        .and_then(|text| localhost::profile(&text));
    profile
        .map(Some)
        .map_err(|e| create_error(&format!("use seccomp profile {}", file.display()), e))
}

fn app_armor(c: &ContainerConfig) -> Result<Option<String>, RuntimeError> {
    let chosen = AppArmor::of_the_kernel().choose(&c.security.app_armor, c.security.privileged);
    chosen.map_err(|e| RuntimeError::failed(e.to_string()))
}

/// Returns the paths of the holder's namespaces. Namespaces that the pod shares with the node are left out.
fn namespaces(d: &Draft<'_>) -> Namespaces {
    let of = |name: &str, own: bool| {
        own.then(|| PathBuf::from(format!("/proc/{}/ns/{name}", d.holder.pid)))
    };
    let n = d.sandbox_config.namespaces;
    let own_network = n.network != NamespaceMode::Node;
    let of_target = |target: Process| PathBuf::from(format!("/proc/{}/ns/pid", target.pid));
    Namespaces {
        net: of("net", own_network),
        ipc: of("ipc", n.ipc != NamespaceMode::Node),
        uts: of("uts", own_network),
        pid: of("pid_for_children", n.pid == NamespaceMode::Pod)
            .or_else(|| d.target.map(of_target)),
    }
}

/// Parses a shim's answer `error <kind> <text>`.
fn refusal(answer: &str) -> RuntimeError {
    let mut words = answer.trim_end().splitn(3, ' ').skip(1);
    let kind = match words.next() {
        Some(shim::INVALID) => RuntimeErrorKind::InvalidConfig,
        _ => RuntimeErrorKind::Failed,
    };
    RuntimeError::new(kind, words.next().unwrap_or("the shim gave no reason"))
}

/// Returns the text that a role left on stderr.
fn said(dir: &Path) -> String {
    fs::read_to_string(dir.join("stderr")).unwrap_or_default()
}

/// Returns the text of an error from a role that ended without a valid answer. The role may have written the cause to
/// stderr.
fn cause_of(answer: &str, stderr: &str) -> String {
    let text = [answer.trim().trim_start_matches("error "), stderr.trim()]
        .into_iter()
        .find(|t| !t.is_empty());
    text.unwrap_or("it was killed").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record directory that is removed only in part is no record any more. A mounted volume makes the removal stop
    /// half way, as many other causes could.
    #[test]
    fn a_record_that_cannot_be_removed_at_once_is_no_record_any_more() {
        if !crate::skip::is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let record = dir.path().join("id");
        fs::create_dir_all(record.join("held")).unwrap();
        fs::write(record.join(CONTAINER), "{}").unwrap();
        nix::mount::mount(
            None::<&str>,
            &record.join("held"),
            Some("tmpfs"),
            nix::mount::MsFlags::empty(),
            None::<&str>,
        )
        .unwrap();
        take_away(&record);
        let held = dir.path().join("id.removing/held");
        let unmounted = [record.join("held"), held].map(|at| nix::mount::umount(&at).is_ok());
        assert_eq!(unmounted, [false, true]);
        assert!(!record.exists());
    }

    /// An answer that begins with `error` is read until the process ends. A newline at the end of a read is not the end
    /// of the answer.
    #[test]
    fn an_error_with_lines_is_read_to_its_end() {
        let first = format!("error other {}", "x".repeat(499));
        let mut role = std::process::Command::new("printf")
            .args(["%s\\n", &first, "second"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let (ending, _keep) = nix::unistd::pipe().unwrap();
        let answer = RolePipes::of(&mut role)
            .unwrap()
            .answer(Duration::from_secs(10), ending.as_fd());
        role.wait().unwrap();
        assert_eq!(answer.unwrap(), format!("{first}\nsecond\n"));
    }

    #[track_caller]
    fn check(answer: &str, kind: RuntimeErrorKind, message: &str) {
        assert_eq!(refusal(answer), RuntimeError::new(kind, message));
    }

    #[test]
    fn a_shim_s_refusal_keeps_its_kind() {
        use RuntimeErrorKind::{Failed, InvalidConfig};
        check(
            "error failed cannot run it: no\n",
            Failed,
            "cannot run it: no",
        );
        check("error invalid x y\n", InvalidConfig, "x y");
        check("error\n", Failed, "the shim gave no reason");
    }
}
