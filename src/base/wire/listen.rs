//! TCP listeners for servers on this node.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, setsockopt, socket,
    sockopt,
};

/// Tells whether an accept failed because the client has gone, or because of a signal. After such a failure, the
/// listener can still accept.
pub fn is_of_client(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        ErrorKind::Interrupted | ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset
    )
}

/// Makes a nonblocking listener at `at`. `::` means all addresses of both families, or all addresses of IPv4 if the
/// node has no IPv6.
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

/// Starts to listen on a bound socket. The queue of waiting clients is as long as the node allows
/// (`net.core.somaxconn`, 4096 by default). A client that finds the queue full tries again only after a second, so the
/// queue should have room even for a crowd.
///
/// # Errors
/// Returns the system's error if another socket listens at the address.
pub fn start(fd: &OwnedFd) -> nix::Result<()> {
    // A larger number of our own would be refused: the limit is SOMAXCONN of the C library, which is 128 in musl.
    listen(fd, Backlog::MAXALLOWABLE)
}
