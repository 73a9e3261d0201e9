//! Processes named by a descriptor, so that a reused pid is never waited for, signalled or entered.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};

/// A descriptor of process `pid`, close-on-exec. ESRCH when there is none; ENOSYS before Linux 5.3.
pub fn open(pid: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: pidfd_open takes two integers.
    let fd = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: the kernel just made this descriptor and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Whether the process ended, waiting for it at most `limit`.
pub fn ended(fd: &impl AsFd, limit: Duration) -> bool {
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
    nix::poll::poll(&mut fds, limit).is_ok_and(|n| n > 0)
}

/// Sends SIGKILL; a process that has ended counts as killed.
pub fn kill(fd: &impl AsFd) {
    let null = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: a null siginfo stands for what kill(2) sends; the rest are integers.
    unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            fd.as_fd().as_raw_fd(),
            libc::SIGKILL,
            null,
            0,
        )
    };
}

/// Reaps our child: its exit code, 128 + signal when a signal ended it, or None while it still runs.
pub fn reap(fd: &impl AsFd) -> Result<Option<i32>, Errno> {
    wait_for(libc::P_PIDFD, fd.as_fd().as_raw_fd())
}

/// The same of a child that nobody else reaps, so that its pid is still its own.
pub fn reap_pid(pid: i32) -> Result<Option<i32>, Errno> {
    wait_for(libc::P_PID, pid)
}

fn wait_for(kind: libc::idtype_t, id: i32) -> Result<Option<i32>, Errno> {
    // SAFETY: all zeros is a valid siginfo_t, plain data.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | libc::__WALL;
    // SAFETY: waitid writes one siginfo_t, which `info` is.
    Errno::result(unsafe { libc::waitid(kind, id.cast_unsigned(), &mut info, flags) })?;
    // SAFETY: waitid filled the fields of SIGCHLD, or left all of them zero.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    Ok((pid != 0).then_some(if info.si_code == libc::CLD_EXITED {
        status
    } else {
        128 + status
    }))
}
