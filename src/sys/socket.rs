//! Socket options that nix lacks.

use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

use nix::errno::Errno;

/// From now on every packet that comes for the socket is dropped: by a filter that says "take 0 bytes of it".
///
/// # Errors
/// ENOMEM where the socket may hold no more options, ENOTSOCK.
pub fn let_nothing_in(fd: BorrowedFd<'_>) -> nix::Result<()> {
    static LOADED: OnceLock<Option<OwnedFd>> = OnceLock::new();
    // One program for all sockets is a count that goes up. A program for each is memory to map and code to make
    // executable on every processor, ten times the cost; but it needs no privilege and no bpf(2).
    match LOADED.get_or_init(load_filter) {
        Some(program) if attach_loaded(fd, program).is_ok() => Ok(()),
        _ => attach_own(fd),
    }
}

/// A loaded filter of two instructions: `r0 = 0; exit`.
fn load_filter() -> Option<OwnedFd> {
    #[repr(C)]
    struct Load {
        program_type: u32,
        count: u32,
        instructions: u64,
        license: u64,
    }
    const SOCKET_FILTER: u32 = 1;
    const PROG_LOAD: libc::c_int = 5;
    let instructions: [[u8; 8]; 2] = [[0xb7, 0, 0, 0, 0, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];
    let license = c"";
    let load = Load {
        program_type: SOCKET_FILTER,
        count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
    };
    // SAFETY: BPF_PROG_LOAD reads a structure of this layout and size (a prefix of bpf_attr, the rest counts as zero), the
    // instructions and the licence it points to, during the call.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, PROG_LOAD, &raw const load, size_of::<Load>()) };
    let fd = libc::c_int::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: a descriptor that bpf(2) has just opened, close-on-exec, and nobody else knows.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn attach_loaded(fd: BorrowedFd<'_>, program: &OwnedFd) -> nix::Result<()> {
    let program = program.as_raw_fd();
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option's value is an int, which the kernel copies during the call.
    let done = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_BPF,
            (&raw const program).cast(),
            size,
        )
    };
    Errno::result(done).map(drop)
}

/// A filter of the socket's own, of one instruction.
fn attach_own(fd: BorrowedFd<'_>) -> nix::Result<()> {
    let mut take_nothing = libc::sock_filter {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k: 0,
    };
    let program = libc::sock_fprog {
        len: 1,
        filter: &raw mut take_nothing,
    };
    let size = size_of::<libc::sock_fprog>() as libc::socklen_t;
    // SAFETY: the option's value is a sock_fprog of that size, and its filter points to `len` instructions; the kernel
    // copies both during the call.
    let done = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size,
        )
    };
    Errno::result(done).map(drop)
}

/// A close then sends a FIN, and the socket is gone with its acknowledgement: it does not wait for the other side's
/// (tcp(7), TCP_LINGER2; a negative value is "not at all").
///
/// # Errors
/// ENOPROTOOPT where it is no TCP socket.
pub fn end_without_their_fin(fd: BorrowedFd<'_>) -> nix::Result<()> {
    let seconds: libc::c_int = -1;
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option's value is an int, which the kernel copies during the call.
    let done = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_LINGER2,
            (&raw const seconds).cast(),
            size,
        )
    };
    Errno::result(done).map(drop)
}
