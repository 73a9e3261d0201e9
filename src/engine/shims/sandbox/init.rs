//! Pid 1 of a pod with `shareProcessNamespace`, `podprobe sandbox init`. This process keeps the pod's process namespace
//! alive and reaps orphaned processes of the containers, as the kubelet's pause container does.
//!
//! Invariants: this process lives exactly as long as the holder, which started it. The containers see this process, and
//! a container may be able to trace it. So the process has an empty read-only root, no privilege, no environment and no
//! descriptor of the node. The process runs under RuntimeDefault, in a small cgroup below its pod's cgroup.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Gid, Uid};

use crate::base::sys::cgroup;
use crate::base::sys::process::apply_seccomp;
use crate::base::sys::task::reap_any;
use crate::engine::seccomp;

/// User and group id of this process, the same as in the kubelet's pause container.
const NOBODY: u32 = 65535;

/// Message on stdout when processes can join the namespace.
const READY: &[u8] = b"ready\n";

/// Starts the pod's first process from the holder, in the cgroup `cgroup`, and waits until it is ready. `dir` is the
/// sandbox's directory. The new process mounts the procfs of its process namespace below `dir`: only a process inside
/// the namespace can mount this procfs, and no later process of podprobe inside has the privileges to do it.
pub(super) fn start(dir: &Path, cgroup: &str) -> io::Result<Child> {
    std::fs::create_dir_all(dir.join(super::PROC))?;
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("podprobe-pause")
        .args(["sandbox", "init", cgroup])
        .env_clear()
        .current_dir(dir);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = String::new();
    let mut stdout = child
        .stdout
        .take()
        .ok_or_else(|| io::Error::other("it has no output"))?;
    io::Read::read_to_string(&mut stdout, &mut said)?;
    if said.as_bytes() == READY {
        Ok(child)
    } else {
        Err(io::Error::other(
            "the first process of the pod ended at once",
        ))
    }
}

/// Runs the role of the pod's first process.
pub(super) fn main(cgroup: &OsStr) -> ExitCode {
    let made = settle(cgroup).and_then(|()| mount_proc());
    let ready = made.and_then(|()| confine()).and_then(|()| {
        let said = io::stdout().write_all(READY);
        close_stdio();
        said
    });
    match ready {
        Ok(()) => reap(),
        Err(e) => {
            eprintln!("podprobe sandbox init: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Mounts procfs for the containers, in the mount namespace of the holder.
fn mount_proc() -> io::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let (source, at, none) = (Some("proc"), super::PROC, None::<&str>);
    mount(source, at, Some("proc"), flags, none).map_err(Into::into)
}

/// Moves this process into its cgroup, ties its life to the holder's, and blocks every signal, because the signals that
/// a container sends are meant for containers.
fn settle(cgroup: &OsStr) -> io::Result<()> {
    cgroup::join_as_first_process(&cgroup.to_string_lossy())?;
    // The score is that of the kubelet's pause container. Without CAP_SYS_RESOURCE the score stays as it was.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-998");
    let _ = nix::sys::prctl::set_name(c"podprobe-pause");
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    SigSet::all().thread_set_mask()?;
    nix::unistd::setsid()?;
    Ok(())
}

/// Closes all three standard streams: no process talks to this process any more, and the root of this process has no
/// /dev/null.
fn close_stdio() {
    for fd in 0..3 {
        let _ = nix::unistd::close(fd);
    }
}

/// Gives this process an empty root of its own, and drops all privileges.
fn confine() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    super::private_mounts()?;
    let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(
        Some("podprobe"),
        ".",
        Some("tmpfs"),
        flags,
        Some("size=4k,mode=555"),
    )?;
    let root = std::env::current_dir()?;
    std::env::set_current_dir(&root)?;
    nix::unistd::pivot_root(".", ".")?;
    umount2(".", MntFlags::MNT_DETACH)?;
    std::env::set_current_dir("/")?;
    nix::sys::prctl::set_no_new_privs()?;
    nix::unistd::setgroups(&[])?;
    let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    nix::unistd::setresgid(gid, gid, gid)?;
    nix::unistd::setresuid(uid, uid, uid)?;
    // A change of user has cleared both of the following settings.
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    crate::base::sys::harden_process();
    filter_system_calls()
}

/// Applies the profile RuntimeDefault of a container without capabilities.
fn filter_system_calls() -> io::Result<()> {
    let profile = seccomp::default::profile(&[]);
    let filter = seccomp::compile(&profile).map_err(io::Error::other)?;
    match apply_seccomp(&filter.program, filter.flags) {
        // This kernel has no filters, so no container has a filter either.
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL)) => Ok(()),
        other => other,
    }
}

/// Reaps children forever. Only the end of the holder ends this process.
fn reap() -> ExitCode {
    let mut child = SigSet::empty();
    child.add(Signal::SIGCHLD);
    loop {
        while reap_any().is_some() {}
        let _ = child.wait();
    }
}
