//! What both children do.

use nix::errno::Errno;

use super::orders::Received;
use super::report::{At, Report, Step};
use crate::base::sys::process::apply_seccomp;

/// Ends the calling process, without running what is registered for the end of the spawner.
pub(super) fn exit() -> ! {
    // SAFETY: _exit runs nothing of ours.
    unsafe { libc::_exit(127) }
}

/// Applies the container's filter of system calls: from here on every call is subject to it.
pub(super) fn filter_system_calls(o: &Received<'_>) -> Result<(), Report> {
    let Some((program, flags)) = &o.seccomp else {
        return Ok(());
    };
    let applied = apply_seccomp(program, *flags);
    applied
        .map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO)))
        .at(Step::Seccomp, 1)
}
