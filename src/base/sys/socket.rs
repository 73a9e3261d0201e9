//! Socket functions that nix lacks: options, connections with their addresses, and the loopback interface.

use std::mem::size_of;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

use nix::errno::Errno;

use super::bpf::{ProgramType, load};

/// Makes the kernel drop every packet that arrives for the socket from now on, by a filter that accepts 0 bytes.
///
/// # Errors
/// Returns ENOMEM if the socket can hold no more options, and ENOTSOCK if the descriptor is not a socket.
pub fn let_nothing_in(fd: BorrowedFd<'_>) -> nix::Result<()> {
    static LOADED: OnceLock<Option<OwnedFd>> = OnceLock::new();
    // One loaded program for all sockets costs only a reference count. A program for each socket needs no privilege and
    // no bpf(2), but costs ten times as much, for memory to map and to make executable on every processor.
    match LOADED.get_or_init(load_filter) {
        Some(program) if attach_loaded(fd, program).is_ok() => Ok(()),
        _ => attach_own(fd),
    }
}

/// Loads a filter of two instructions: `r0 = 0; exit`.
fn load_filter() -> Option<OwnedFd> {
    let instructions = [[0xb7, 0, 0, 0, 0, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];
    load(ProgramType::SocketFilter, &instructions).ok()
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

/// Attaches a filter of one instruction that belongs to this socket only.
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

/// Makes the socket end after a close as soon as its FIN is acknowledged. The socket then does not wait in FIN-WAIT-2
/// for the FIN of the other side. A negative TCP_LINGER2 has this meaning (tcp(7)).
///
/// # Errors
/// Returns ENOPROTOOPT if the descriptor is not a TCP socket.
pub fn skip_fin_wait(fd: BorrowedFd<'_>) -> nix::Result<()> {
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

/// Sets `lo` up in the calling thread's network namespace. The kernel adds 127.0.0.1 and ::1 by itself.
pub fn loopback_up() -> std::io::Result<()> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
    let s = socket(
        AddressFamily::Inet,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    // SAFETY: ifreq is plain data for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads one ifreq, which outlives the call; the socket is open.
    let r = unsafe { libc::ioctl(s.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) };
    Errno::result(r).map(drop).map_err(Into::into)
}

/// Accepts the next connection of a listening socket. Returns the peer's address and a socket for the connection, which
/// is nonblocking and closed on exec.
///
/// # Errors
/// Returns EAGAIN if no connection waits, ECONNABORTED if the peer has gone already, or EMFILE and the like if no
/// descriptor is left.
pub fn accept(listener: BorrowedFd<'_>) -> nix::Result<(OwnedFd, SocketAddr)> {
    let mut address = [0_u8; size_of::<libc::sockaddr_in6>()];
    let mut length = address.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `address`, and the length of the address to `length`.
    let fd = unsafe {
        libc::accept4(
            listener.as_raw_fd(),
            address.as_mut_ptr().cast(),
            &raw mut length,
            libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
        )
    };
    let fd = Errno::result(fd)?;
    // SAFETY: accept4 has just opened the descriptor, and no other code knows it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    Ok((fd, address_of(&address).ok_or(Errno::EAFNOSUPPORT)?))
}

/// Decodes a `sockaddr_in` or `sockaddr_in6`.
fn address_of(bytes: &[u8; size_of::<libc::sockaddr_in6>()]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    let ip = match family {
        libc::AF_INET => IpAddr::from(<[u8; 4]>::try_from(&bytes[4..8]).ok()?),
        libc::AF_INET6 => IpAddr::from(<[u8; 16]>::try_from(&bytes[8..24]).ok()?),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}
