//! The first child of a command that enters a container. The first child stays outside of the container's process
//! namespace, so the container cannot see it. It enters the cgroups and the other namespaces of the container, and
//! drops every privilege, so the second child has no privilege left.

use std::convert::Infallible;
use std::ffi::c_void;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::unistd::{Gid, Uid, chroot, close, fchdir, fchown, getegid, geteuid};

use super::report::{At, Report, Step};
use super::rights::{drop_privileges, take_limits};
use super::second::second;
use super::shared_steps::exit;
use super::{Start, Stdio};
use crate::base::sys::raw;

pub(super) extern "C" fn first(arg: *const c_void) -> ! {
    // SAFETY: the spawner passes a `Start` of its own frame, and waits while this process uses it.
    let s = unsafe { &*arg.cast::<Start<'_>>() };
    let report = match enter(s) {
        Ok(never) => match never {},
        Err(report) => report,
    };
    s.pages.report(report);
    exit()
}

fn enter(s: &Start<'_>) -> Result<Infallible, Report> {
    let o = &s.orders;
    // This copy of the socket is closed, so that the daemon sees when the spawner ends.
    let _ = close(s.socket.as_raw_fd());
    if let Some(score) = o.oom_score_adj {
        // Without CAP_SYS_RESOURCE the kernel refuses a lower score. The command then keeps the spawner's score, the lowest
        // that it may have.
        let flags = OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        if let Ok(file) = open(c"/proc/self/oom_score_adj", flags, Mode::empty()) {
            let _ = nix::unistd::write(&file, score);
        }
    }
    join_cgroups(s)?;
    take_limits(o)?;
    if o.namespaces != 0 {
        let flags = CloneFlags::from_bits_retain(o.namespaces);
        setns(&s.fds.container, flags).at(Step::Setns, 0)?;
    }
    fchdir(&s.fds.root).at(Step::Root, 0)?;
    chroot(c".").at(Step::Root, 1)?;
    place_stdio(s)?;
    if o.traceable {
        // The daemon trusts the process ids. The container must therefore not be able to write to them.
        s.pages.keep_processes().at(Step::Clone, 0)?;
    }
    drop_privileges(o, s.unbound)?;
    // The container will see the second child. Therefore the second child gets no descriptor except its stdio.
    close_from(3).at(Step::Close, 0)?;
    start_second(s)
}

/// Moves this process into the container's cgroups. In v1 it writes to `tasks` instead of `cgroup.procs`, which is the
/// same for a process with one thread. A thread that moves itself by `tasks` does not take the kernel's lock over all
/// processes for writing. Taking that lock costs a grace period (up to tens of milliseconds).
fn join_cgroups(s: &Start<'_>) -> Result<(), Report> {
    let join = |i: usize, file: OwnedFd| nix::unistd::write(&file, b"0").at(Step::Cgroup, i);
    let flags = OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    for (i, path) in s.orders.cgroups.iter().enumerate() {
        join(i, open(*path, flags, Mode::empty()).at(Step::Cgroup, i)?)?;
    }
    if let (true, Some(dir)) = (s.unborn, &s.fds.born) {
        let i = s.orders.cgroups.len();
        let file = nix::fcntl::openat(dir, c"cgroup.procs", flags, Mode::empty());
        join(i, file.at(Step::Cgroup, i)?)?;
    }
    Ok(())
}

/// Puts the descriptors from the orders at 0 to 2. The container's null device takes the place of a missing descriptor.
fn place_stdio(s: &Start<'_>) -> Result<(), Report> {
    let (uid, gid) = (Uid::from_raw(s.orders.uid), Gid::from_raw(s.orders.gid));
    // Files that the daemon makes have the daemon's ids, which are also the ids of this process.
    let ours = (geteuid(), getegid()) == (uid, gid);
    // The owner is changed so that a command with another uid can open /dev/stdout. An id that is not mapped is no error.
    let own = |from: &OwnedFd, gid| {
        if !ours {
            let _ = fchown(from, Some(uid), gid);
        }
    };
    let mut given = s.fds.stdio.iter();
    let streams = match s.orders.stdio {
        Stdio::Streams(streams) => streams,
        Stdio::Terminal => {
            // A terminal keeps its group, tty.
            given.clone().for_each(|slave| own(slave, None));
            let mut slaves = given.cycle().zip(0..3);
            return slaves.try_for_each(|(slave, to)| place(slave, to));
        }
    };
    for (to, is_given) in (0..).zip(streams) {
        let from = if is_given { given.next() } else { None };
        match from {
            Some(from) => {
                place(from, to)?;
                own(from, Some(gid));
            }
            None => place(&null(to)?, to)?,
        }
    }
    Ok(())
}

fn place(from: &OwnedFd, to: i32) -> Result<(), Report> {
    // SAFETY: dup3 takes numbers only. Descriptors 0 to 2 were the spawner's; its values of them are not used here.
    Errno::result(unsafe { libc::dup3(from.as_raw_fd(), to, 0) })
        .at(Step::Stdio, to as usize)
        .map(drop)
}

/// Opens the container's own `/dev/null`, because with the host's `/dev/null` the container could change the mode of
/// the host's file. If the container's file is not the null device, returns one end of a pipe. The pipe's other end is
/// closed.
fn null(to: i32) -> Result<OwnedFd, Report> {
    let access = if to == 0 {
        OFlag::O_RDONLY
    } else {
        OFlag::O_WRONLY
    };
    let flags = access | OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let null = match open(c"/dev/null", flags, Mode::empty())
        .ok()
        .filter(is_null)
    {
        Some(null) => null,
        None => {
            let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC).at(Step::Stdio, 0)?;
            if to == 0 { read } else { write }
        }
    };
    let _ = fcntl(&null, FcntlArg::F_SETFL(OFlag::empty()));
    Ok(null)
}

fn is_null(file: &OwnedFd) -> bool {
    fstat(file).is_ok_and(|s| {
        s.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFCHR.bits()
            && s.st_rdev == libc::makedev(1, 3)
    })
}

/// Starts the second child. Ends this process when the second child has executed a file or ended.
fn start_second(s: &Start<'_>) -> Result<Infallible, Report> {
    let mut flags = libc::CLONE_PARENT | libc::CLONE_VFORK | libc::CLONE_PARENT_SETTID;
    if !s.orders.traceable {
        flags |= libc::CLONE_VM;
    }
    let given = [
        flags as usize,
        s.stack_end as usize,
        s.pages.second().as_ptr() as usize,
        0,
        0,
    ];
    // The store makes the kernel map the page now. In a copy of this memory the page would be new, and if the container
    // had no memory for it, the process id would be lost. No process could then reap the second child, and the
    // container's namespace would never end.
    s.pages.second().store(0, Ordering::Relaxed);
    let arg: *const Start<'_> = s;
    // SAFETY: no other code uses the stack. `s` stays valid, because this process waits in the call until the second child
    // has executed a file or ended. The kernel writes one int to the shared page.
    let cloned = unsafe { raw::clone(libc::SYS_clone, given, second, arg.cast()) };
    cloned.at(Step::Clone, 1)?;
    s.pages.set_seen_off();
    exit()
}

/// Closes the descriptor `from` and all descriptors above it.
fn close_from(from: u32) -> nix::Result<()> {
    // SAFETY: the call takes numbers only. The owners of the closed descriptors never run again in this process, because it
    // ends by _exit.
    Errno::result(unsafe { libc::syscall(libc::SYS_close_range, from, u32::MAX, 0) }).map(drop)
}
