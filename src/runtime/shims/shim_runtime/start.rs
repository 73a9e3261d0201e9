//! Starting sandboxes and containers: records, bundle, shim, and its answer.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, SystemTime};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{NEW, REMOVING, ShimRuntime, lock, new_id};
use crate::api::{Container, Pod};
use crate::clock::Moment;
use crate::images::{Image, ImageError};
use crate::pod_actions::spec_hash;
use crate::runtime::shims::oci_spec::{self, Namespaces};
use crate::runtime::shims::state::{
    self, CONTAINER, ContainerRecord, PodIdentity, Process, SANDBOX, SandboxRecord,
};
use crate::runtime::shims::{cri_log, sandbox, shim};
use crate::runtime::{ContainerId, ENDING, RuntimeError, StartErrorReason, signals};
use crate::volumes::{self, ContainerVolumes};

/// The kubelet's limit for one request to its runtime.
const START_LIMIT: Duration = Duration::from_secs(120);
/// A holder has next to nothing to do.
const SANDBOX_LIMIT: Duration = Duration::from_secs(30);
/// Bytes read of a seccomp profile; Docker's own has 20 KB.
const MAX_PROFILE: u64 = 1 << 20;
/// Longest answer of a shim in bytes.
const MAX_ANSWER: usize = 4096;

/// What the steps of a container start hand on.
struct Draft<'a> {
    pod: &'a Pod,
    container: &'a Container,
    id: ContainerId,
    sandbox: &'a ContainerId,
    attempt: u32,
    holder: Process,
    image: Image,
    /// The record directory under its final name.
    dir: PathBuf,
}

fn create_error(what: &str, cause: impl std::fmt::Display) -> RuntimeError {
    RuntimeError::new(
        StartErrorReason::CreateContainerError,
        format!("cannot {what}: {cause}"),
    )
}

fn identity(pod: &Pod) -> PodIdentity {
    PodIdentity {
        uid: pod.uid().to_string(),
        name: pod.metadata.name.clone(),
        namespace: pod.metadata.namespace.clone(),
    }
}

/// A directory that only root enters.
fn private_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Fills `<dir>.new` and gives it its name: a record is there whole or not at all.
fn publish(dir: &Path, fill: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let mut new = dir.as_os_str().to_owned();
    new.push(NEW);
    let new = PathBuf::from(new);
    private_dir(&new)?;
    fill(&new)
        .and_then(|()| fs::rename(&new, dir))
        .inspect_err(|_| {
            let _ = fs::remove_dir_all(&new);
        })
}

/// Removes a record directory: gone at once for a listing, which would take one that is half removed for damaged.
fn take_away(dir: &Path) {
    let mut aside = dir.as_os_str().to_owned();
    aside.push(REMOVING);
    if fs::rename(dir, &aside).is_ok() {
        let _ = fs::remove_dir_all(aside);
    }
}

impl ShimRuntime {
    /// A new holder for the pod's namespaces.
    pub(super) fn start_sandbox(&self, pod: &Pod, attempt: u32) -> io::Result<ContainerId> {
        self.reap();
        let id = new_id()?;
        let memory_volumes = volumes::prepare_pod(pod, &self.layout)?;
        let record = SandboxRecord {
            id: id.clone(),
            pod: identity(pod),
            attempt,
            host_network: pod.spec.host_network,
            host_ipc: pod.spec.host_ipc,
            share_pid: pod.spec.share_process_namespace,
            hostname: volumes::hostname(pod),
            memory_volumes,
            created_at: SystemTime::now(),
        };
        let dir = self.layout.sandboxes().join(&id);
        publish(&dir, |new| state::write(new, SANDBOX, &record, false))?;
        let answer = self.spawn_role("sandbox", &dir).and_then(|mut child| {
            let answer = answer(&mut child, SANDBOX_LIMIT, self.ending());
            if !matches!(&answer, Ok(text) if text == sandbox::READY) {
                let _ = child.kill();
            }
            self.adopt(child);
            answer
        });
        match answer {
            Ok(text) if text == sandbox::READY => Ok(id.as_str().into()),
            failed => {
                let said = said(&dir);
                take_away(&dir);
                Err(failed.map_or_else(|e| e, |text| io::Error::other(cause_of(&text, &said))))
            }
        }
    }

    /// One instance of a container, from its image to the word of its shim.
    pub(super) fn start(
        &self,
        pod: &Pod,
        sandbox: &ContainerId,
        container: &Container,
        attempt: u32,
    ) -> Result<ContainerId, RuntimeError> {
        self.reap();
        let holder = self.find_sandbox(sandbox).and_then(|e| self.holder(&e));
        let holder = holder.ok_or_else(|| {
            create_error(
                "create the container",
                format!("sandbox {sandbox} is not running"),
            )
        })?;
        let image = self.images.resolve(&container.image).map_err(image_error)?;
        let id: ContainerId = new_id()
            .map_err(|e| create_error("make a container id", e))?
            .as_str()
            .into();
        let dir = self.layout.containers().join(id.as_str());
        let draft = Draft {
            pod,
            container,
            id: id.clone(),
            sandbox,
            attempt,
            holder,
            image,
            dir,
        };
        let (record, config) = self.design(&draft)?;
        let _gate = self
            .cgroup_gate
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        lock(&self.starting).insert(id.to_string());
        let result = self.launch(&draft, &record, &config);
        lock(&self.starting).remove(id.as_str());
        result.map(|()| id)
    }

    /// Everything decided about the container: its record and its OCI configuration. Only volumes' directories are made.
    fn design(&self, d: &Draft<'_>) -> Result<(ContainerRecord, serde_json::Value), RuntimeError> {
        let termination_log = self
            .termination_log(d)
            .map_err(|e| create_error("make the termination log", e))?;
        let ContainerVolumes { mounts, sub_paths } =
            volumes::container(d.pod, d.container, &self.layout, &d.dir, &termination_log)?;
        let cgroup = self
            .layout
            .cgroup(d.pod.uid(), &d.container.name, d.attempt);
        let (rootfs, host) = (
            d.dir.join("rootfs"),
            oci_spec::Host::read(d.container.security_context.privileged == Some(true)),
        );
        let hostname = volumes::hostname(d.pod);
        let inputs = oci_spec::Inputs {
            pod: d.pod,
            container: d.container,
            sandbox: d.sandbox,
            image: &d.image.config,
            layers: &d.image.layers,
            rootfs: &rootfs,
            namespaces: namespaces(d),
            mounts,
            cgroups_path: cgroup.clone(),
            hostname: &hostname,
            host: &host,
            localhost_seccomp: self.localhost_seccomp(d)?,
        };
        let config = oci_spec::build(&inputs)?;
        let (namespace, name) = (&d.pod.metadata.namespace, &d.pod.metadata.name);
        let record = ContainerRecord {
            id: d.id.to_string(),
            pod: identity(d.pod),
            sandbox: d.sandbox.to_string(),
            name: d.container.name.clone(),
            attempt: d.attempt,
            image: d.container.image.clone(),
            image_id: d.image.id.clone(),
            hash: spec_hash(d.container),
            created_at: SystemTime::now(),
            boot_id: self.boot_id.clone(),
            layers: d.image.layers.clone(),
            data: self.layout.container_data(d.id.as_str()),
            rootfs,
            holder: d.holder,
            sub_paths,
            log_path: self.layout.container_log(
                namespace,
                name,
                d.pod.uid(),
                &d.container.name,
                d.attempt,
            ),
            log_max_size: self.log_max_size,
            log_max_files: self.log_max_files,
            runtime: self.runtime_command(),
            oci_root: self.layout.oci_state(),
            cgroup,
            user: config["process"]["user"]["uid"]
                .as_u64()
                .and_then(|u| u32::try_from(u).ok())
                .unwrap_or(0),
            termination_log,
            message_from_log: d.container.termination_message_policy == "FallbackToLogsOnError",
            exits: self.layout.exits(),
            stop_signal: signals::number(&d.image.config.stop_signal).unwrap_or(libc::SIGTERM),
        };
        Ok((record, config))
    }

    /// The profile of type `Localhost`, from below the seccomp directory of the root.
    fn localhost_seccomp(&self, d: &Draft<'_>) -> Result<Option<serde_json::Value>, RuntimeError> {
        let profile =
            oci_spec::seccomp_profile(d.pod, d.container).filter(|p| p.type_ == "Localhost");
        let Some(name) = profile.and_then(|p| p.localhost_profile.as_deref()) else {
            return Ok(None);
        };
        let file = self.layout.seccomp().join(name);
        let read = fs::File::open(&file).and_then(|f| {
            let mut text = Vec::new();
            f.take(MAX_PROFILE).read_to_end(&mut text).map(|_| text)
        });
        let profile = read
            .map_err(|e| e.to_string())
            .and_then(|text| crate::seccomp::localhost::profile(&text));
        profile
            .map(Some)
            .map_err(|e| create_error(&format!("use seccomp profile {}", file.display()), e))
    }

    /// A file that every user may write, of this instance alone.
    fn termination_log(&self, d: &Draft<'_>) -> io::Result<PathBuf> {
        if d.container.termination_message_path.is_empty() {
            return Ok(PathBuf::new());
        }
        let dir = self
            .layout
            .pod_data(d.pod.uid())
            .join("containers")
            .join(&d.container.name);
        fs::create_dir_all(&dir)?;
        let file = dir.join(&d.id.as_str()[..8]);
        fs::write(&file, "")?;
        fs::set_permissions(&file, Permissions::from_mode(0o666))?;
        Ok(file)
    }

    /// Writes record and bundle, runs the shim and waits for its answer.
    fn launch(
        &self,
        d: &Draft<'_>,
        record: &ContainerRecord,
        config: &serde_json::Value,
    ) -> Result<(), RuntimeError> {
        self.write_container(d, record, config).map_err(|e| {
            self.discard(record);
            create_error("record the container", e)
        })?;
        let mut child = self.spawn_role("shim", &d.dir).map_err(|e| {
            self.discard(record);
            create_error("start a shim", e)
        })?;
        let answer = answer(&mut child, START_LIMIT, self.ending());
        let shim = child.id() as i32;
        self.adopt(child);
        match answer {
            Ok(text) if text == shim::STARTED => Ok(()),
            Ok(text) if text.starts_with("error ") => Err(refusal(&text)),
            Ok(text) => Err(self.abandon(&d.id, shim, &cause_of(&text, &said(&d.dir)))),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {
                Err(create_error("start the container", e))
            }
            Err(e) => Err(self.abandon(&d.id, shim, &e.to_string())),
        }
    }

    fn write_container(
        &self,
        d: &Draft<'_>,
        record: &ContainerRecord,
        config: &serde_json::Value,
    ) -> io::Result<()> {
        for dir in ["upper", "work"] {
            private_dir(&record.data.join(dir))?;
        }
        // The upper directory is what the container sees as its root.
        fs::set_permissions(record.data.join("upper"), Permissions::from_mode(0o755))?;
        if let Some(dir) = record.log_path.parent() {
            fs::create_dir_all(dir)?;
            cri_log::prune(dir, record.attempt);
        }
        publish(&d.dir, |new| {
            private_dir(&new.join("rootfs"))?;
            private_dir(&new.join("bundle"))?;
            fs::write(new.join("bundle/config.json"), serde_json::to_vec(config)?)?;
            state::write(new, CONTAINER, record, false)
        })
    }

    /// Nothing has run yet: no record stays.
    fn discard(&self, record: &ContainerRecord) {
        take_away(&self.layout.containers().join(&record.id));
        let _ = fs::remove_dir_all(&record.data);
        let _ = fs::remove_file(&record.termination_log);
    }
}

/// Those of the holder, which `hostNetwork` and `hostIPC` leave out.
fn namespaces(d: &Draft<'_>) -> Namespaces {
    let of = |name: &str, own: bool| {
        own.then(|| PathBuf::from(format!("/proc/{}/ns/{name}", d.holder.pid)))
    };
    let s = &d.pod.spec;
    Namespaces {
        net: of("net", !s.host_network),
        ipc: of("ipc", !s.host_ipc),
        uts: of("uts", !s.host_network),
        pid: of("pid_for_children", s.share_process_namespace),
    }
}

fn image_error(e: ImageError) -> RuntimeError {
    let reason = match &e {
        ImageError::NotFound { .. } => StartErrorReason::ErrImageNeverPull,
        ImageError::InvalidName { .. } => StartErrorReason::InvalidImageName,
        _ => StartErrorReason::ImageInspectError,
    };
    RuntimeError::new(reason, e.to_string())
}

/// `error <reason> <text>`.
fn refusal(answer: &str) -> RuntimeError {
    let mut words = answer.trim_end().splitn(3, ' ').skip(1);
    let reason = match words.next() {
        Some("RunContainerError") => StartErrorReason::RunContainerError,
        Some("CreateContainerConfigError") => StartErrorReason::CreateContainerConfigError,
        _ => StartErrorReason::CreateContainerError,
    };
    RuntimeError::new(reason, words.next().unwrap_or("the shim gave no reason"))
}

/// What an inner role answers: one line, or less when it ended. `TimedOut` when it says nothing in time, `Interrupted`
/// when the daemon is ending.
fn answer(child: &mut Child, limit: Duration, ending: BorrowedFd<'_>) -> io::Result<String> {
    let mut stdout = child
        .stdout
        .take()
        .ok_or_else(|| io::Error::other("it has no output"))?;
    // Held open until the answer is there: its end tells the shim that we are gone.
    let _stdin = child.stdin.take();
    let end = Moment::now() + limit;
    let mut said = Vec::new();
    loop {
        let left = PollTimeout::try_from(end.since(Moment::now())).unwrap_or(PollTimeout::MAX);
        let mut fds = [
            PollFd::new(stdout.as_fd(), PollFlags::POLLIN),
            PollFd::new(ending, PollFlags::POLLIN),
        ];
        match poll(&mut fds, left) {
            // The shim sees our end, and takes back what it has not started.
            Ok(_) if fds[1].any() == Some(true) => {
                return Err(io::Error::new(io::ErrorKind::Interrupted, ENDING));
            }
            Ok(0) => {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("no answer within {}", crate::clock::go_duration(limit)),
                ));
            }
            Ok(_) => {}
            Err(nix::errno::Errno::EINTR) => continue,
            Err(e) => return Err(e.into()),
        }
        let mut chunk = [0; 512];
        let n = stdout.read(&mut chunk)?;
        said.extend_from_slice(&chunk[..n]);
        if n == 0 || said.ends_with(b"\n") || said.len() > MAX_ANSWER {
            return Ok(String::from_utf8_lossy(&said).into_owned());
        }
    }
}

/// What a role left on stderr.
fn said(dir: &Path) -> String {
    fs::read_to_string(dir.join("stderr")).unwrap_or_default()
}

/// A role that ended without its answer has perhaps said why on stderr.
fn cause_of(answer: &str, stderr: &str) -> String {
    let text = [answer.trim().trim_start_matches("error "), stderr.trim()]
        .into_iter()
        .find(|t| !t.is_empty());
    text.unwrap_or("it was killed").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A volume mounted inside stands for whatever makes a removal stop half way.
    #[test]
    fn a_record_that_cannot_be_removed_at_once_is_no_record_any_more() {
        if !nix::unistd::geteuid().is_root() {
            assert!(std::env::var_os("CI").is_none(), "CI runs as root");
            eprintln!("SKIPPED: needs root to mount");
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

    #[track_caller]
    fn check(answer: &str, reason: StartErrorReason, message: &str) {
        assert_eq!(refusal(answer), RuntimeError::new(reason, message));
    }

    #[test]
    fn a_shim_s_refusal_keeps_its_reason() {
        check(
            "error RunContainerError cannot run it: no\n",
            StartErrorReason::RunContainerError,
            "cannot run it: no",
        );
        check(
            "error CreateContainerConfigError x y\n",
            StartErrorReason::CreateContainerConfigError,
            "x y",
        );
        check(
            "error\n",
            StartErrorReason::CreateContainerError,
            "the shim gave no reason",
        );
    }
}
