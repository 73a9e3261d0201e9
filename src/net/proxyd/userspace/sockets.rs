//! Sockets that are bound to an address for clients.
//!
//! Invariants: the sockets are closed on exec, and non-blocking. A bound port is never shared with another program.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Shutdown, SockFlag, SockType, SockaddrStorage, bind, getsockname, setsockopt,
    shutdown, socket, sockopt,
};

use crate::api::service::Protocol;
use crate::base::sys::socket::let_nothing_in;
use crate::base::wire::listen;
use crate::net::proxyd::message::Action;

/// Opens a socket that treats its clients according to `action`. Returns `None` if the kernel treats clients in this
/// way without a socket. `is_routed` is true if no interface has the address.
///
/// # Errors
/// Returns the error if the address cannot be bound.
pub fn open(
    protocol: Protocol,
    at: SocketAddr,
    action: Action,
    is_routed: bool,
) -> nix::Result<Option<OwnedFd>> {
    match (protocol, action) {
        // Without a socket the kernel answers that the port is closed.
        (Protocol::Udp, Action::Refuse) => Ok(None),
        (Protocol::Udp, _) => udp(at, action, is_routed).map(Some),
        (Protocol::Tcp, _) => tcp(at, action, is_routed).map(Some),
    }
}

fn tcp(at: SocketAddr, action: Action, is_routed: bool) -> nix::Result<OwnedFd> {
    let fd = unbound(at, SockType::Stream, is_routed)?;
    // Connections of an earlier listener on this port may still exist.
    setsockopt(&fd, sockopt::ReuseAddr, &true)?;
    // Accepted sockets inherit this option.
    setsockopt(&fd, sockopt::TcpNoDelay, &true)?;
    bind(fd.as_raw_fd(), &SockaddrStorage::from(at))?;
    if action == Action::Drop {
        let_nothing_in(fd.as_fd())?;
    }
    start_listening(&fd)?;
    if action == Action::Refuse {
        stop_listening(&fd)?;
    }
    Ok(fd)
}

fn udp(at: SocketAddr, action: Action, is_routed: bool) -> nix::Result<OwnedFd> {
    let fd = unbound(at, SockType::Datagram, is_routed)?;
    if at.ip().is_unspecified() {
        // An answer must come from the address to which the client has sent.
        match at.is_ipv4() {
            true => setsockopt(&fd, sockopt::Ipv4PacketInfo, &true)?,
            false => setsockopt(&fd, sockopt::Ipv6RecvPacketInfo, &true)?,
        }
    }
    if action == Action::Drop {
        let_nothing_in(fd.as_fd())?;
    }
    bind(fd.as_raw_fd(), &SockaddrStorage::from(at))?;
    Ok(fd)
}

fn unbound(at: SocketAddr, kind: SockType, is_routed: bool) -> nix::Result<OwnedFd> {
    let family = match at.is_ipv4() {
        true => AddressFamily::Inet,
        false => AddressFamily::Inet6,
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(family, kind, flags, None)?;
    if at.is_ipv6() {
        setsockopt(&fd, sockopt::Ipv6V6Only, &true)?;
    }
    if is_routed {
        setsockopt(&fd, sockopt::IpFreebind, &true)?;
    }
    Ok(fd)
}

/// Begins to accept connections on a bound socket.
///
/// # Errors
/// Returns the error if another socket listens on the port.
pub fn start_listening(fd: &OwnedFd) -> nix::Result<()> {
    setsockopt(fd, sockopt::ReuseAddr, &true)?;
    listen::start(fd)
}

/// Makes the kernel refuse connections, including those that wait to be accepted. The port stays bound. The socket
/// loses SO_REUSEADDR, so that no other program can listen on the port.
///
/// # Errors
/// Returns the error if the socket does not listen.
pub fn stop_listening(fd: &OwnedFd) -> nix::Result<()> {
    shutdown(fd.as_raw_fd(), Shutdown::Both)?;
    setsockopt(fd, sockopt::ReuseAddr, &false)
}

/// Returns the port to which the socket is bound, for example a port that the kernel has chosen.
pub fn port_of(fd: &OwnedFd) -> Option<u16> {
    let name = getsockname::<SockaddrStorage>(fd.as_raw_fd()).ok()?;
    let v4 = name.as_sockaddr_in().map(|a| a.port());
    v4.or_else(|| name.as_sockaddr_in6().map(|a| a.port()))
}

/// Makes the later close of the socket send a reset.
pub fn reset_on_close(fd: impl AsFd) {
    let linger = nix::libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    let _ = setsockopt(&fd, sockopt::Linger, &linger);
}

/// Switches TCP keep-alive on. A connection with keep-alive ends some minutes after its other side has vanished.
pub fn keep_alive(fd: &OwnedFd) {
    let _ = setsockopt(fd, sockopt::KeepAlive, &true);
    let _ = setsockopt(fd, sockopt::TcpKeepIdle, &60);
    let _ = setsockopt(fd, sockopt::TcpKeepInterval, &15);
}

/// Returns a sentence that says why an address cannot be bound, and what can be done.
pub fn why_not_bound(at: SocketAddr, protocol: Protocol, service: &str, e: Errno) -> String {
    let why = match e {
        Errno::EADDRINUSE => {
            "another program has this port; end that program or choose another port".to_owned()
        }
        Errno::EADDRNOTAVAIL => "no interface of the node has this address".to_owned(),
        e => e.desc().to_owned(),
    };
    format!("cannot serve {service} on {at}/{protocol}: {why}")
}
