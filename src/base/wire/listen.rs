//! TCP listeners of servers on this node.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, setsockopt, socket,
    sockopt,
};

/// Tells whether a connection could not be accepted because its client has gone, or because of a signal.
pub fn is_of_client(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        ErrorKind::Interrupted | ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset
    )
}

/// Listens at `at`, without blocking. `::` is every address of both families, or of IPv4 where the node has no other.
///
/// # Errors
/// Returns the system's error if the address is in use or does not belong to this node.
pub fn listener(at: SocketAddr) -> io::Result<TcpListener> {
    match bound(at) {
        Err(e) if at.ip() == Ipv6Addr::UNSPECIFIED && is_without_v6(&e) => {
            bound((Ipv4Addr::UNSPECIFIED, at.port()).into())
        }
        other => other,
    }
}

fn is_without_v6(e: &io::Error) -> bool {
    use nix::errno::Errno;
    let code = e.raw_os_error().map(Errno::from_raw);
    matches!(code, Some(Errno::EAFNOSUPPORT | Errno::EADDRNOTAVAIL))
}

fn bound(at: SocketAddr) -> io::Result<TcpListener> {
    let family = match at {
        SocketAddr::V4(_) => AddressFamily::Inet,
        SocketAddr::V6(_) => AddressFamily::Inet6,
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(family, SockType::Stream, flags, None)?;
    setsockopt(&fd, sockopt::ReuseAddr, &true)?;
    if at.ip() == Ipv6Addr::UNSPECIFIED {
        setsockopt(&fd, sockopt::Ipv6V6Only, &false)?;
    }
    bind(fd.as_raw_fd(), &SockaddrStorage::from(at))?;
    start(&fd)?;
    Ok(fd.into())
}

/// Lets clients come. As many clients may wait for their turn as the node allows (`net.core.somaxconn`, 4096 by
/// default): a client that finds no place tries again after a second, so a crowd is to find it.
///
/// # Errors
/// Returns the system's error if another socket listens there.
pub fn start(fd: &OwnedFd) -> nix::Result<()> {
    // A number of our own is refused beyond SOMAXCONN of the C library, which is 128 in musl.
    listen(fd, Backlog::MAXALLOWABLE)
}
