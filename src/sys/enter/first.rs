//! The first child: outside of the container's process namespace, where the container cannot see it. It enters
//! everything else and drops every privilege, so that the second has nothing left to lose.

use std::convert::Infallible;
use std::ffi::{CStr, c_void};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::sched::{CloneFlags, setns};
use nix::sys::prctl;
use nix::sys::stat::{Mode, SFlag, fstat, umask};
use nix::unistd::{Gid, Uid, chdir, chroot, close, fchdir, fchown, getegid, geteuid};

use super::report::{At, Report, Step};
use super::second::second;
use super::shared_steps::{exit, filter_system_calls};
use super::{Start, Stdio};
use crate::sys::process::{new_session_keyring, set_capabilities};
use crate::sys::raw;

/// CAP_SYS_ADMIN.
const SYS_ADMIN: u64 = 1 << 21;

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
    // So that the daemon sees the end of the spawner, not ours.
    let _ = close(s.socket.as_raw_fd());
    if let Some(score) = o.oom_score_adj {
        // Lowering it without CAP_SYS_RESOURCE is refused; the command keeps ours, the lowest it may have.
        let flags = OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        if let Ok(file) = open(c"/proc/self/oom_score_adj", flags, Mode::empty()) {
            let _ = nix::unistd::write(&file, score);
        }
    }
    join_cgroups(s)?;
    for (i, (resource, soft, hard)) in o.rlimits.iter().enumerate() {
        set_limit(*resource, [*soft, *hard]).at(Step::Rlimit, i)?;
    }
    leave_keyring()?;
    // The kernel hands it on to the second child, and takes it at that one's execve. Now, because later the file may be
    // out of sight, and no_new_privs or the seccomp profile may forbid what it takes.
    if let Some((path, text)) = o.label {
        let file = open(path, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty());
        let file = file.at(Step::Label, 0)?;
        nix::unistd::write(&file, text).at(Step::Label, 1)?;
    }
    if o.namespaces != 0 {
        let flags = CloneFlags::from_bits_retain(o.namespaces);
        setns(&s.fds.container, flags).at(Step::Setns, 0)?;
    }
    fchdir(&s.fds.root).at(Step::Root, 0)?;
    chroot(c".").at(Step::Root, 1)?;
    place_stdio(s)?;
    if o.traceable {
        // What the daemon believes must not be where the container can write.
        s.pages.keep_processes().at(Step::Clone, 0)?;
    }
    drop_privileges(s)?;
    // Nothing stays open for the process that the container will see.
    close_from(3).at(Step::Close, 0)?;
    start_second(s)
}

/// By v1's `tasks`, not `cgroup.procs`: for the one thread that we are it is the same, and the kernel moves a thread that
/// moves itself without the lock of all processes, whose writer waits for a grace period (up to tens of milliseconds).
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

fn set_limit(resource: u32, limit: [u64; 2]) -> nix::Result<()> {
    let null = std::ptr::null_mut::<[u64; 2]>();
    // SAFETY: prlimit64 reads a structure of two 64-bit numbers, soft and hard, and writes no old one to null.
    Errno::result(unsafe { libc::syscall(libc::SYS_prlimit64, 0, resource, limit.as_ptr(), null) })
        .map(drop)
}

/// An empty session keyring, as an OCI runtime gives one: the daemon's may hold keys of whoever started it. A node that
/// is itself a container may forbid it; it has none to leave then.
fn leave_keyring() -> Result<(), Report> {
    match new_session_keyring() {
        Err(e) if e.raw_os_error() != Some(libc::EPERM) => {
            let errno = Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO));
            Err(errno).at(Step::Keyring, 0)
        }
        _ => Ok(()),
    }
}

/// What comes with the orders, and the container's null device for the rest.
fn place_stdio(s: &Start<'_>) -> Result<(), Report> {
    let (uid, gid) = (Uid::from_raw(s.orders.uid), Gid::from_raw(s.orders.gid));
    // What the daemon makes is of the ids that it has, which are ours.
    let ours = (geteuid(), getegid()) == (uid, gid);
    // So that a command of another uid can open /dev/stdout; an unmapped id is no reason to fail.
    let own = |from: &OwnedFd, gid| {
        if !ours {
            let _ = fchown(from, Some(uid), gid);
        }
    };
    let mut given = s.fds.stdio.iter();
    let streams = match s.orders.stdio {
        Stdio::Streams(streams) => streams,
        Stdio::Terminal => {
            // Terminals keep their group, tty.
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

/// The container's own `/dev/null` (a descriptor of the host's would let the container change its mode), or, where that is
/// not the null device, one end of a pipe whose other end is closed.
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

/// exec-in-container 3, steps 7 to 12: from here on this process may do no more than the container.
fn drop_privileges(s: &Start<'_>) -> Result<(), Report> {
    let o = &s.orders;
    let [_, effective, permitted, inheritable, ambient] = o.caps;
    umask(Mode::from_bits_truncate(o.umask));
    for cap in bits(s.unbound) {
        capability_prctl([libc::PR_CAPBSET_DROP, cap, 0]).at(Step::Bounding, cap as usize)?;
    }
    // Uid 0 keeps its capabilities anyway.
    if o.uid != 0 {
        let _ = prctl::set_keepcaps(true);
    }
    set_ids(s)?;
    if o.uid != 0 {
        let _ = prctl::set_keepcaps(false);
    }
    // Where the container may trace the second child, that one has its filter from the start. Without no_new_privs the
    // filter needs CAP_SYS_ADMIN, which the second never has.
    if o.traceable || !o.no_new_privs {
        if o.seccomp.is_some() {
            let [p, e] = [permitted | SYS_ADMIN, effective | SYS_ADMIN];
            set_capabilities(e, p, inheritable).at(Step::Seccomp, 0)?;
        }
        filter_system_calls(s)?;
    }
    set_capabilities(effective, permitted, inheritable).at(Step::Capabilities, 0)?;
    let _ = capability_prctl([libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0]);
    for cap in bits(ambient) {
        capability_prctl([libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, cap])
            .at(Step::Capabilities, 1)?;
    }
    change_directory(o.cwd)?;
    if o.no_new_privs {
        prctl::set_no_new_privs().at(Step::NoNewPrivs, 0)?;
    }
    // The change of uid has set it to fs.suid_dumpable.
    let _ = prctl::set_dumpable(false);
    Ok(())
}

fn bits(mask: u64) -> impl Iterator<Item = i32> {
    (0..64).filter(move |bit| mask >> bit & 1 == 1)
}

/// An operation on the bounding or the ambient set: option and two numbers.
fn capability_prctl([option, a, b]: [i32; 3]) -> nix::Result<()> {
    let [a, b] = [a, b].map(|n| n as libc::c_ulong);
    // SAFETY: the callers' options, PR_CAPBSET_DROP and PR_CAP_AMBIENT, take numbers only.
    Errno::result(unsafe { libc::prctl(option, a, b, 0, 0) }).map(drop)
}

fn set_ids(s: &Start<'_>) -> Result<(), Report> {
    let o = &s.orders;
    // SAFETY: the kernel reads as many group ids as the slice has. Called raw, as is what follows: libc would look for
    // other threads, of which this process has none.
    let groups = Errno::result(unsafe {
        libc::syscall(raw::SYS_setgroups, o.groups.len(), o.groups.as_ptr())
    });
    // A user namespace may forbid setgroups; then there is none to drop either.
    let user_namespace = o.namespaces & libc::CLONE_NEWUSER != 0;
    if !(groups == Err(Errno::EPERM) && o.groups.is_empty() && user_namespace) {
        groups.at(Step::Groups, 0)?;
    }
    // SAFETY: setresgid takes three numbers.
    Errno::result(unsafe { libc::syscall(raw::SYS_setresgid, o.gid, o.gid, o.gid) })
        .at(Step::Gid, 0)?;
    // SAFETY: setresuid takes three numbers.
    Errno::result(unsafe { libc::syscall(raw::SYS_setresuid, o.uid, o.uid, o.uid) })
        .at(Step::Uid, 0)?;
    Ok(())
}

/// It must lie inside the root: the kernel marks one that does not (CVE-2024-21626).
fn change_directory(cwd: &CStr) -> Result<(), Report> {
    chdir(cwd).at(Step::Cwd, 0)?;
    let mut path = [0u8; libc::PATH_MAX as usize];
    // SAFETY: getcwd writes at most as many bytes as the buffer has. libc's own would hide a path outside of the root.
    Errno::result(unsafe { libc::syscall(libc::SYS_getcwd, path.as_mut_ptr(), path.len()) })
        .at(Step::Cwd, 1)?;
    if path.first() != Some(&b'/') {
        return Err(Errno::EPERM).at(Step::Cwd, 2);
    }
    Ok(())
}

/// Starts the second child and ends when that one has executed a file or ended.
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
    // Has the kernel find the page in place. To a copy it is new, and where the container has no memory for it the process
    // id would be lost: nobody could reap the second child, and the container's namespace would never end.
    s.pages.second().store(0, Ordering::Relaxed);
    let arg: *const Start<'_> = s;
    // SAFETY: the stack is used by nobody else; `s` stays, as this process waits in the call until the second child has
    // executed a file or ended; the kernel writes one int to the shared page.
    let pid = unsafe { raw::clone(libc::SYS_clone, given, second, arg.cast()) };
    if pid < 0 {
        return Err(Errno::from_raw(-pid as i32)).at(Step::Clone, 1);
    }
    s.pages.set_seen_off();
    exit()
}

/// Closes that descriptor and all above it.
fn close_from(from: u32) -> nix::Result<()> {
    // SAFETY: takes numbers only. The owners of the descriptors closed here never run again in this process: it ends by
    // _exit.
    Errno::result(unsafe { libc::syscall(libc::SYS_close_range, from, u32::MAX, 0) }).map(drop)
}
