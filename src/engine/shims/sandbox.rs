//! The sandbox holder, `podprobe sandbox DIR`: one process for each pod, which owns the pod's namespaces and does
//! nothing else.
//!
//! Invariants: the holder is single-threaded. A container that restarts finds the same network, ipc, host name and
//! memory volumes, because these belong to the holder. With `shareProcessNamespace` the container also finds the same
//! processes. Everything that belongs to the holder vanishes with the holder. The host's mount table never shows any of
//! the holder's mounts.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode};

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal};

use super::roles;
use super::state::{self, Process, SANDBOX, STATE, SandboxRecord, SandboxState};
use crate::api::sysctls;
use crate::base::sys::cgroup;
use crate::engine::runtime::Tmpfs;

mod init;

/// Name of a directory below the sandbox's directory. If the pod's containers share a process namespace, the procfs of
/// this namespace is mounted there. Only the holder and the shims see this mount.
pub const PROC: &str = "proc";

/// The holder's message to the daemon when the holder is ready.
pub const READY: &str = "ready\n";

/// Runs the role of the sandbox holder. The one argument is the sandbox's record directory.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args = args.into_iter();
    let Some(dir) = args.next().map(PathBuf::from) else {
        eprintln!("podprobe sandbox: this role is started by the daemon, with a sandbox directory");
        return ExitCode::from(2);
    };
    if dir.as_os_str() == "init" {
        return init::main(&args.next().unwrap_or_default());
    }
    match set_up(&dir).and_then(|held| report(READY).map(|()| held)) {
        Ok(held) => hold(held),
        Err(e) => {
            let _ = report(&format!("error {e}"));
            ExitCode::FAILURE
        }
    }
}

fn report(text: &str) -> io::Result<()> {
    let mut out = io::stdout();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Resources that the holder keeps until its end.
struct Held {
    /// The pod's first process, if the pod's containers share a process namespace.
    first: Option<Child>,
    /// Copy of the record, for a daemon that finds the record damaged or gone.
    _copy: Option<OwnedFd>,
}

fn set_up(dir: &Path) -> io::Result<Held> {
    let _ = nix::sys::prctl::set_name(c"podprobe-pause");
    std::env::set_current_dir("/")?;
    nix::unistd::setsid()?;
    crate::base::sys::process::protect_from_the_oom_killer();
    let record: SandboxRecord = state::read(dir, SANDBOX)
        .ok_or_else(|| io::Error::other("the sandbox record cannot be read"))?;
    // Recorded before anything else: from this line on a new daemon can find and end this process.
    let process = Process::of(std::process::id() as i32)
        .ok_or_else(|| io::Error::other("/proc is not mounted"))?;
    state::write(
        dir,
        STATE,
        &SandboxState {
            boot_id: crate::base::clock::boot_id(),
            process,
        },
        false,
    )?;
    cgroup::leave_the_daemon(&record.shims_cgroup);
    unshare(namespaces(&record)).map_err(|e| cause("make namespaces", e.into()))?;
    slave_mounts().map_err(|e| cause("set mount propagation", e))?;
    if !record.host_network {
        nix::unistd::sethostname(&record.hostname)
            .map_err(|e| cause("set the host name", e.into()))?;
        crate::base::sys::socket::loopback_up().map_err(|e| cause("set lo up", e))?;
    }
    for (name, value) in &record.sysctls {
        set_sysctl(name, value)
            .map_err(|e| cause(&format!("set sysctl {name} to {value:?}"), e))?;
    }
    for v in &record.memory_volumes {
        let (kind, mounted) = match v.page_size {
            Some(size) => ("hugetlbfs", mount_huge_pages(v, size)),
            None => ("tmpfs", mount_tmpfs(v)),
        };
        mounted.map_err(|e| cause(&format!("mount a {kind} at {}", v.path.display()), e))?;
    }
    let first = record
        .share_pid
        .then(|| init::start(dir, &cgroup::of_first_process(&record.pod_cgroup)))
        .transpose();
    Ok(Held {
        first: first.map_err(|e| cause("start the first process of the pod", e))?,
        _copy: roles::keep_copy(&record),
    })
}

/// Sets a kernel parameter. /proc/sys shows the parameters of this process's own network and ipc namespaces. Names of
/// other parameters were refused earlier (`SysctlForbidden`).
fn set_sysctl(name: &str, value: &str) -> io::Result<()> {
    let file = Path::new("/proc/sys").join(sysctls::path(name));
    std::fs::OpenOptions::new()
        .write(true)
        .open(file)?
        .write_all(value.as_bytes())
}

/// Mounts a volume in memory in the holder's own mount namespace. The volume may contain a Secret, which must not reach
/// a disk. So its memory is not swapped if the kernel supports such volumes (Linux 6.4).
fn mount_tmpfs(v: &Tmpfs) -> io::Result<()> {
    let size = v.size.map(|n| format!(",size={n}")).unwrap_or_default();
    let mount = |more: &str| {
        let mode = if v.is_sticky { "1777" } else { "0777" };
        let options = format!("mode={mode}{size}{more}");
        mount(
            Some("tmpfs"),
            &v.path,
            Some("tmpfs"),
            MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
            Some(options.as_str()),
        )
    };
    match mount(",noswap") {
        Err(Errno::EINVAL) => mount("")?,
        mounted => mounted?,
    }
    Ok(())
}

/// Mounts a volume of huge pages as the kubelet does. Its root directory belongs to root, or to the pod's `fsGroup`.
fn mount_huge_pages(v: &Tmpfs, page_size: u64) -> io::Result<()> {
    let size = v.size.map(|n| format!(",size={n}")).unwrap_or_default();
    let options = format!("pagesize={page_size}{size}");
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let (source, kind) = (Some("nodev"), Some("hugetlbfs"));
    mount(source, &v.path, kind, flags, Some(options.as_str())).map_err(Into::into)
}

fn cause(what: &str, e: io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("cannot {what}: {e}"))
}

fn namespaces(record: &SandboxRecord) -> CloneFlags {
    let mut flags = CloneFlags::CLONE_NEWNS;
    flags.set(
        CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWUTS,
        !record.host_network,
    );
    flags.set(CloneFlags::CLONE_NEWIPC, !record.host_ipc);
    // The new process namespace is for this process's children only; this process stays in its own.
    flags.set(CloneFlags::CLONE_NEWPID, record.share_pid);
    flags
}

/// Makes all mounts of this namespace slaves. Later mounts of the node appear in this namespace, but the mounts of this
/// namespace do not appear outside.
pub(super) fn slave_mounts() -> io::Result<()> {
    mount(
        None::<&str>,
        "/",
        None::<&str>,
        MsFlags::MS_REC | MsFlags::MS_SLAVE,
        None::<&str>,
    )
    .map_err(Into::into)
}

/// Makes all mounts of this namespace private: no mount passes between it and the node, in either direction.
fn private_mounts() -> io::Result<()> {
    mount(
        None::<&str>,
        "/",
        None::<&str>,
        MsFlags::MS_REC | MsFlags::MS_PRIVATE,
        None::<&str>,
    )
    .map_err(Into::into)
}

/// Closes the pipes to the daemon, and waits for TERM or for the end of the pod's first process. No process can be
/// started in the namespace of an ended first process, so the sandbox ends with the first process, and the pod gets a
/// new sandbox.
fn hold(mut held: Held) -> ExitCode {
    let first = &mut held.first;
    detach_stdio();
    let mut awaited = SigSet::empty();
    awaited.extend([Signal::SIGTERM, Signal::SIGCHLD]);
    let mut blocked = awaited;
    blocked.add(Signal::SIGHUP);
    blocked.add(Signal::SIGINT);
    if blocked.thread_block().is_err() {
        return ExitCode::FAILURE;
    }
    // The first process may have ended before SIGCHLD was blocked.
    while !first
        .as_mut()
        .is_some_and(|c| !matches!(c.try_wait(), Ok(None)))
    {
        if awaited.wait() == Ok(Signal::SIGTERM) {
            // The holder's end would kill the first process too, but a moment later.
            let _ = first.as_mut().map(|c| c.kill().and_then(|()| c.wait()));
            return ExitCode::SUCCESS;
        }
    }
    ExitCode::FAILURE
}

/// Replaces stdin and stdout by /dev/null, which closes the daemon's pipes.
pub(super) fn detach_stdio() {
    if let Ok(null) = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")
    {
        let _ = nix::unistd::dup2_stdin(&null);
        let _ = nix::unistd::dup2_stdout(&null);
    }
}
