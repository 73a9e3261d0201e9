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
    let r = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_fd().as_raw_fd(),
            signal,
            none,
            0,
        )
    };
    if r < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Gives every signal its default action and blocks none. Rust ignores SIGPIPE and glibc's posix_spawn its own two, and
/// an ignored signal survives execve: without this a `yes | head` in a container would never end.
pub fn reset_signals() {
    // The kernel's struct sigaction, all zero: SIG_DFL, no flags, no mask. libc's own call refuses signals 32 and 33.
    let default = [0_u64; 4];
    for signal in 1..=64 {
        // SAFETY: `default` is at least as large as the kernel's structure with its 8-byte mask and lives through the
        // call; no handler is installed. KILL and STOP are refused, as they should be.
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

/// Applies a seccomp filter to this process, which must have one thread, for good. Needs no_new_privs or CAP_SYS_ADMIN.
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

/// Takes these capabilities, a bit each, out of this thread's effective, permitted and inheritable sets.
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
    // SAFETY: as above, read only.
    if unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) } < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Sets this thread's capabilities, a bit each, to exactly these sets.
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

/// A new, empty session keyring for this process and what it starts. A kernel without keyrings has none to leave.
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
