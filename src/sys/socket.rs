//! Socket options that nix lacks.

use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

/// From now on every packet that comes for the socket is dropped: a filter of one instruction, "take 0 bytes of it".
///
/// # Errors
/// ENOMEM where the socket may hold no more options, ENOTSOCK.
pub fn let_nothing_in(fd: BorrowedFd<'_>) -> nix::Result<()> {
    let mut take_nothing = libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
    let program = libc::sock_fprog { len: 1, filter: &raw mut take_nothing };
    let size = size_of::<libc::sock_fprog>() as libc::socklen_t;
    // SAFETY: the option's value is a sock_fprog of that size, and its filter points to `len` instructions; the kernel
    // copies both during the call.
    let done = unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, (&raw const program).cast(), size) };
    Errno::result(done).map(drop)
}
