//! Processes by descriptor: a pidfd names one process for ever, a pid may be another one by the time it is used.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// A descriptor of the process; it becomes readable when the process ends. Fails with ESRCH when there is none.
pub fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open takes two integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave us this descriptor and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Sends any signal, real-time ones too. Fails with ESRCH when the process has ended.
pub fn pidfd_send_signal(pidfd: impl AsFd, signal: i32) -> io::Result<()> {
    let none = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: the descriptor is open; a null siginfo means "as kill(2)".
    let r = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_fd().as_raw_fd(), signal, none, 0) };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Gives every signal its default action and blocks none. Rust ignores SIGPIPE, and an ignored signal survives execve:
/// without this a `yes | head` in a container would never end.
pub fn reset_signals() {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: SIG_DFL installs no handler; KILL, STOP and libc's own two refuse, which is what they should do.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let _ = nix::sys::signal::SigSet::empty().thread_set_mask();
}
