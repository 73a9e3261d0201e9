//! Newer system calls, and a test whether the kernel has them and permits them.

use nix::errno::Errno;

/// A newer system call, which not every supported kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `pidfd_open`, since Linux 5.3.
    PidfdOpen,
    /// `clone3`, since Linux 5.3.
    Clone3,
    /// `openat2`, since Linux 5.6.
    Openat2,
    /// `close_range`, since Linux 5.9.
    CloseRange,
    /// `mount_setattr`, since Linux 5.12.
    MountSetattr,
}

impl Call {
    /// All these system calls.
    pub const ALL: [Self; 5] = [
        Self::PidfdOpen,
        Self::Clone3,
        Self::Openat2,
        Self::CloseRange,
        Self::MountSetattr,
    ];

    /// Returns the name of the system call, as in its manual page.
    pub fn name(self) -> &'static str {
        match self {
            Self::PidfdOpen => "pidfd_open",
            Self::Clone3 => "clone3",
            Self::Openat2 => "openat2",
            Self::CloseRange => "close_range",
            Self::MountSetattr => "mount_setattr",
        }
    }

    /// Makes the system call with arguments that the kernel refuses, so that nothing happens. Returns ENOSYS if the
    /// kernel does not have the call, and EPERM if a seccomp filter forbids it.
    pub fn attempt(self) -> Result<(), Errno> {
        let null = std::ptr::null::<u8>();
        // SAFETY: each call refuses these arguments before it reads memory: a negative pid, structures of size 0, a last
        // descriptor before the first, unknown flags.
        let refused = Errno::result(unsafe {
            match self {
                Self::PidfdOpen => libc::syscall(libc::SYS_pidfd_open, -1, 0),
                Self::Clone3 => libc::syscall(libc::SYS_clone3, null, 0_usize),
                Self::Openat2 => libc::syscall(libc::SYS_openat2, -1, null, null, 0_usize),
                Self::CloseRange => libc::syscall(libc::SYS_close_range, 1, 0, 0),
                Self::MountSetattr => {
                    libc::syscall(libc::SYS_mount_setattr, -1, null, -1, null, 0_usize)
                }
            }
        });
        match refused {
            Err(errno @ (Errno::ENOSYS | Errno::EPERM)) => Err(errno),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kernel that runs the tests has these calls. The test shows that attempting them does nothing.
    #[test]
    fn a_kernel_that_runs_the_tests_has_them_all() {
        for call in Call::ALL {
            assert_eq!(call.attempt(), Ok(()), "{}", call.name());
        }
    }
}
