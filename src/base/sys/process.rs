//! Settings that this process and its children run with: signals, filters, capabilities, keys. This file also makes copies
//! of a process that has one thread.

use std::io;

use nix::errno::Errno;
use nix::sched::{CloneFlags, sched_getaffinity, sched_setaffinity, unshare};
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::Pid;

/// The `oom_score_adj` of the kubelet and kube-proxy, with which the kernel kills a process last.
pub const LAST: i32 = -999;

/// Lets the kernel kill this process last when memory is short. Sets the score [`LAST`], or else the lowest score that
/// a process without CAP_SYS_RESOURCE may have. Returns the score, or None if the score cannot be read. Children
/// inherit the score.
pub fn protect_from_the_oom_killer() -> Option<i32> {
    let file = "/proc/self/oom_score_adj";
    for score in (LAST..0).step_by(37) {
        if std::fs::write(file, score.to_string()).is_ok() {
            break;
        }
    }
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// The resources whose limits [`usual_surroundings`] sets. The limit of open files is not among them: each container has its
/// own.
#[allow(clippy::unnecessary_cast)]
const LIMITED: [u32; 15] = [
    libc::RLIMIT_AS as u32,
    libc::RLIMIT_CORE as u32,
    libc::RLIMIT_CPU as u32,
    libc::RLIMIT_DATA as u32,
    libc::RLIMIT_FSIZE as u32,
    libc::RLIMIT_LOCKS as u32,
    libc::RLIMIT_MEMLOCK as u32,
    libc::RLIMIT_MSGQUEUE as u32,
    libc::RLIMIT_NICE as u32,
    libc::RLIMIT_NPROC as u32,
    libc::RLIMIT_RSS as u32,
    libc::RLIMIT_RTPRIO as u32,
    libc::RLIMIT_RTTIME as u32,
    libc::RLIMIT_SIGPENDING as u32,
    libc::RLIMIT_STACK as u32,
];

/// Gives this process the usual scheduling (nice 0, the class OTHER, the usual class of input and output), and the
/// processors and resource limits of the node's first process, as far as it is permitted to. Children inherit all of it, so
/// that containers do not depend on how the daemon was started.
pub fn usual_surroundings() {
    const FIRST: libc::pid_t = 1;
    const IOPRIO_WHO_PROCESS: i32 = 1;
    // The kernel's struct sched_param is one int. That of musl is larger.
    let priority: libc::c_int = 0;
    // SAFETY: setpriority and ioprio_set take integers only. `priority` lives through its call. musl has no
    // sched_setscheduler and nothing has ioprio_set, so these are the kernel's own calls.
    unsafe {
        let order = (libc::SCHED_OTHER, &raw const priority);
        libc::syscall(libc::SYS_sched_setscheduler, 0, order.0, order.1);
        libc::setpriority(libc::PRIO_PROCESS, 0, 0);
        libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, 0);
    }
    if let Ok(processors) = sched_getaffinity(Pid::from_raw(FIRST)) {
        let _ = sched_setaffinity(Pid::from_raw(0), &processors);
    }
    for resource in LIMITED {
        let (Some(first), Some(own)) = (limit_of(FIRST, resource), limit_of(0, resource)) else {
            continue;
        };
        let most = first.rlim_max.min(own.rlim_max);
        let permitted = libc::rlimit64 {
            rlim_cur: first.rlim_cur.min(most),
            rlim_max: most,
        };
        for limit in [permitted, first] {
            // SAFETY: `limit` lives through the call and is what the kernel calls a struct rlimit64.
            unsafe {
                let none = std::ptr::null_mut::<libc::rlimit64>();
                libc::syscall(libc::SYS_prlimit64, 0, resource, &raw const limit, none);
            }
        }
    }
}

fn limit_of(process: libc::pid_t, resource: u32) -> Option<libc::rlimit64> {
    let mut limit = libc::rlimit64 {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` lives through the call and is what the kernel calls a struct rlimit64.
    let result = unsafe {
        let none = std::ptr::null::<libc::rlimit64>();
        libc::syscall(libc::SYS_prlimit64, process, resource, none, &raw mut limit)
    };
    (result == 0).then_some(limit)
}

/// Returns the mask of signals or capabilities that stands behind `key` in a file like /proc/self/status.
pub fn status_mask(status: &str, key: &str) -> Option<u64> {
    let mask = status.lines().find_map(|line| line.strip_prefix(key))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

/// Lets this process wait for its children. A parent may have left SIGCHLD ignored; then the kernel takes the exit code of each
/// child away, and no command and no container can be started.
pub fn keep_exit_codes() {
    // SAFETY: the default action is no handler, so nothing runs at the signal.
    let result = unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) };
    result.expect("SIGCHLD can have its default action");
}

/// Gives every signal its default action and blocks none. Rust ignores SIGPIPE, and glibc's posix_spawn ignores two signals
/// of its own. An ignored signal stays ignored after execve: `yes | head` in a container would never end.
pub fn reset_signals() {
    // All zeros in the kernel's struct sigaction: SIG_DFL, no flags, no mask. libc's own call refuses signals 32 and 33.
    let default = [0_u64; 4];
    for signal in 1..=64 {
        // SAFETY: `default` is at least as large as the kernel's structure with its 8-byte mask, and lives through the
        // call. No handler is installed. The kernel refuses KILL and STOP, as it should.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                std::ptr::null::<u64>(),
                8,
            )
        };
    }
    let _ = nix::sys::signal::SigSet::empty().thread_set_mask();
}

/// Applies a seccomp filter to this process for good. The process must have one thread, and no_new_privs or CAP_SYS_ADMIN.
pub fn apply_seccomp(program: &[libc::sock_filter], flags: u32) -> io::Result<()> {
    let len =
        u16::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let program = libc::sock_fprog {
        len,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel reads `len` instructions at `filter`, which the slice has, and keeps a copy of its own.
    let r = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const program,
        )
    };
    if r < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Marks descriptor `from` and all descriptors above it to be closed by an execve.
///
/// # Errors
/// Returns ENOSYS before Linux 5.9, and EINVAL before 5.11.
pub fn close_on_exec_from(from: u32) -> nix::Result<()> {
    let flag = libc::CLOSE_RANGE_CLOEXEC;
    // SAFETY: the call takes numbers only, and closes nothing now.
    Errno::result(unsafe { libc::syscall(libc::SYS_close_range, from, u32::MAX, flag) }).map(drop)
}

/// Removes capabilities, one bit each, from this thread's effective, permitted and inheritable sets.
///
/// Only tests call this function: it is here because it is unsafe.
///
/// # Errors
/// Returns the error of capget or capset.
pub fn drop_capabilities(mask: u64) -> io::Result<()> {
    let header = super::raw::CapHeader {
        version: super::raw::CAP_VERSION_3,
        pid: 0,
    };
    let mut data = [super::raw::CapData::default(); 2];
    // SAFETY: version 3 reads one header and writes two data structures, which is what both pointers refer to.
    if unsafe { libc::syscall(libc::SYS_capget, &raw const header, data.as_mut_ptr()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    for (word, data) in [mask as u32, (mask >> 32) as u32]
        .into_iter()
        .zip(&mut data)
    {
        for set in [
            &mut data.effective,
            &mut data.permitted,
            &mut data.inheritable,
        ] {
            *set &= !word;
        }
    }
    // SAFETY: version 3 reads one header and two data structures, which is what both pointers refer to.
    if unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) } < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Sets this thread's capability sets to exactly these masks, with one bit for each capability.
pub fn set_capabilities(effective: u64, permitted: u64, inheritable: u64) -> nix::Result<()> {
    let header = super::raw::CapHeader {
        version: super::raw::CAP_VERSION_3,
        pid: 0,
    };
    let word = |shift: u32| super::raw::CapData {
        effective: (effective >> shift) as u32,
        permitted: (permitted >> shift) as u32,
        inheritable: (inheritable >> shift) as u32,
    };
    let data = [word(0), word(32)];
    // SAFETY: version 3 reads one header and two data structures, which is what both pointers refer to.
    let r = unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) };
    nix::errno::Errno::result(r).map(drop)
}

/// Gives this process and its later children a new, empty session keyring. Succeeds without effect on a kernel without
/// keyrings.
pub fn new_session_keyring() -> io::Result<()> {
    // SAFETY: KEYCTL_JOIN_SESSION_KEYRING takes a name; null makes an anonymous keyring.
    let r = unsafe {
        libc::syscall(
            libc::SYS_keyctl,
            libc::KEYCTL_JOIN_SESSION_KEYRING,
            std::ptr::null::<libc::c_char>(),
        )
    };
    match io::Error::last_os_error() {
        _ if r >= 0 => Ok(()),
        e if e.raw_os_error() == Some(libc::ENOSYS) => Ok(()),
        e => Err(e),
    }
}

/// The proof that this process has only one thread. A copy of a process with several threads could contain locks that
/// are never released.
pub struct OneThread(());

impl OneThread {
    /// Checks that this process has one thread.
    ///
    /// # Errors
    /// Returns EINVAL if the process has more threads.
    pub fn check() -> nix::Result<Self> {
        // With CLONE_THREAD alone, unshare changes nothing, and fails in a process with several threads (unshare(2)).
        unshare(CloneFlags::CLONE_THREAD).map(|()| Self(()))
    }
}

/// The parent that a copy of this process gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parent {
    /// This process.
    This,
    /// This process's own parent.
    Same,
}

/// Makes a copy of this process, with copies of its memory and its descriptors. Returns the copy's process id, but `None`
/// inside of the copy.
///
/// # Errors
/// Returns EAGAIN or ENOMEM, or EPERM if a seccomp filter forbids the call.
pub fn copy(_: &OneThread, parent: Parent) -> nix::Result<Option<i32>> {
    let flags = match parent {
        Parent::This => libc::SIGCHLD,
        Parent::Same => libc::SIGCHLD | libc::CLONE_PARENT,
    };
    // SAFETY: without CLONE_VM the child has its own memory, and goes on with a copy of this stack. There is no other
    // thread that could hold a lock. The other arguments are addresses, all null, on every architecture.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags as libc::c_ulong, 0, 0, 0, 0) };
    match Errno::result(pid)? as i32 {
        0 => Ok(None),
        pid => Ok(Some(pid)),
    }
}

/// Ends this process at once. No exit handlers run, because the copy of the process may have to run them too.
pub fn end_now(code: i32) -> ! {
    // SAFETY: _exit runs no code of this program.
    unsafe { libc::_exit(code) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_of_proc() {
        let status = "Name:\tx\nCapBnd:\t000001fffeffffff\n";
        assert_eq!(status_mask(status, "CapBnd:"), Some(0x1ff_feff_ffff));
        assert_eq!(status_mask(status, "CapEff:"), None);
        assert_eq!(status_mask(status, "Name:"), None);
    }
}
