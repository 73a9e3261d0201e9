//! Steps that both the first and the second child do.

use nix::errno::Errno;

use super::orders::Received;
use super::report::{At, Report, Step};
use crate::base::sys::process::apply_seccomp;

/// Ends the calling process without running the exit handlers of the spawner.
pub(super) fn exit() -> ! {
    // SAFETY: _exit runs no code of this program.
    unsafe { libc::_exit(127) }
}

/// Applies the container's filter of system calls. From then on, the filter checks every system call of this process.
pub(super) fn filter_system_calls(o: &Received<'_>) -> Result<(), Report> {
    let Some((program, flags)) = &o.seccomp else {
        return Ok(());
    };
    let applied = apply_seccomp(program, *flags);
    applied
        .map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO)))
        .at(Step::Seccomp, 1)
}
