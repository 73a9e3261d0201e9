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

/// Gives every signal its default action and blocks none. Rust ignores SIGPIPE and glibc's posix_spawn its own two, and
/// an ignored signal survives execve: without this a `yes | head` in a container would never end.
pub fn reset_signals() {
    // The kernel's struct sigaction, all zero: SIG_DFL, no flags, no mask. libc's own call refuses signals 32 and 33.
    let default = [0_u64; 4];
    for signal in 1..=64 {
        // SAFETY: `default` is at least as large as the kernel's structure with its 8-byte mask and lives through the
        // call; no handler is installed. KILL and STOP are refused, as they should be.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), std::ptr::null::<u64>(), 8) };
    }
    let _ = nix::sys::signal::SigSet::empty().thread_set_mask();
}

/// A new, empty session keyring for this process and what it starts. A kernel without keyrings has none to leave.
pub fn new_session_keyring() -> io::Result<()> {
    // SAFETY: KEYCTL_JOIN_SESSION_KEYRING takes a name; null makes an anonymous keyring.
    let r = unsafe { libc::syscall(libc::SYS_keyctl, libc::KEYCTL_JOIN_SESSION_KEYRING, std::ptr::null::<libc::c_char>()) };
    match io::Error::last_os_error() {
        _ if r >= 0 => Ok(()),
        e if e.raw_os_error() == Some(libc::ENOSYS) => Ok(()),
        e => Err(e),
    }
}
