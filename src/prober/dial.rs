//! Opening the TCP connection of a probe, from the network namespace of the pod.
//!
//! Invariants: a thread is in a foreign namespace only while it makes a socket, and only in the one that was meant, also
//! when the pid it is found by has gone to another process; a thread that cannot come back never
//! goes on: it panics with [`namespace_lost`] set and its worker is started again on a fresh thread. No connection
//! leaves a socket in TIME-WAIT: that is what the kubelet's SO_LINGER of one second is for (kubelet-probes 3.4, 3.5), but
//! on Linux that does not do it. The server always sees an end before any reset. There are two ways ([`End`]).

use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, connect, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};

use super::trace::note;
use crate::runtime::NetworkNamespace;

thread_local! {
    static NAMESPACE_LOST: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is stuck in a pod's network namespace and must end.
pub fn namespace_lost() -> bool {
    NAMESPACE_LOST.get()
}

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DialError {
    /// The other side's doing: a failure of the probe.
    Failed(String),
    /// Our own doing (no descriptors, no namespace): says nothing of the container (lessons 16).
    Ours(String),
}

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(text) | Self::Ours(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for DialError {}

/// How a connection is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By [`hang_up`], a drop without it is a reset. A FIN goes first, then the close with linger zero drops what would
    /// wait. In between nothing more is let in, or a server that answers our FIN with its own before we close would bring
    /// the socket to TIME-WAIT after all. For a server that may end the connection at the same time, as http servers do.
    HangUp,
    /// By the drop: a FIN, and its acknowledgement ends the socket. Half the cost, and right for a connection on which
    /// nothing is said: only a server that hangs up by itself within the same microseconds leaves a socket waiting.
    Close,
}

/// Connects to `addr` before `deadline` from the namespace `netns` (None: the caller's own).
///
/// # Errors
/// Texts in Go's form: `dial tcp <addr>: connect: connection refused`, `dial tcp <addr>: i/o timeout`.
pub fn dial(
    addr: SocketAddr,
    netns: Option<&NetworkNamespace>,
    deadline: Instant,
    end: End,
) -> Result<TcpStream, DialError> {
    let dialed = dial_quietly(addr, netns, deadline, end);
    note(|| match &dialed {
        Ok(stream) => format!(
            "connected to {addr} from {}",
            stream
                .local_addr()
                .map_or_else(|e| e.to_string(), |a| a.to_string())
        ),
        Err(e) => e.to_string(),
    });
    dialed
}

fn dial_quietly(
    addr: SocketAddr,
    netns: Option<&NetworkNamespace>,
    deadline: Instant,
    end: End,
) -> Result<TcpStream, DialError> {
    let fd = match netns {
        None => make_socket(addr),
        Some(netns) => in_namespace(netns, || make_socket(addr))?,
    };
    let fd = fd.map_err(|e| failed(addr, "socket", e))?;
    let set = match end {
        End::HangUp => setsockopt(
            &fd,
            sockopt::Linger,
            &nix::libc::linger {
                l_onoff: 1,
                l_linger: 0,
            },
        ),
        End::Close => crate::sys::socket::wait_for_no_fin(fd.as_fd()),
    };
    set.map_err(|e| failed(addr, "setsockopt", e))?;
    let left = left_until(deadline).ok_or_else(|| timed_out(addr))?;
    // A socket that waits by itself takes four calls less than one that is polled.
    setsockopt(&fd, sockopt::SendTimeout, &left).map_err(|e| failed(addr, "setsockopt", e))?;
    match connect(fd.as_raw_fd(), &SockaddrStorage::from(addr)) {
        Ok(()) => {}
        // The time is up, or a signal came: it goes on connecting.
        Err(Errno::EINPROGRESS | Errno::EINTR) => await_connected(&fd, addr, deadline)?,
        Err(e) => return Err(failed(addr, "connect", e)),
    }
    Ok(TcpStream::from(fd))
}

/// As a socket's timeout, which zero would switch off.
fn left_until(deadline: Instant) -> Option<TimeVal> {
    let left = deadline.saturating_duration_since(Instant::now());
    let micros = i64::try_from(left.as_nanos().div_ceil(1000)).unwrap_or(i64::MAX);
    (micros > 0).then(|| TimeVal::microseconds(micros))
}

fn timed_out(addr: SocketAddr) -> DialError {
    DialError::Failed(format!("dial tcp {addr}: i/o timeout"))
}

/// Ends a connection of [`End::HangUp`] so that the other side reads an end of file; to be called right before the drop.
pub fn hang_up(stream: &TcpStream) {
    // Without the filter (no memory for it) the close only has to be faster than the server.
    let _ = crate::sys::socket::let_nothing_in(stream.as_fd());
    if !has_ended(stream) {
        // An error means that the other side was faster.
        let _ = stream.shutdown(std::net::Shutdown::Write);
    }
}

/// Whether the other side's FIN has come. What it sent and nobody has read makes the close a reset anyway.
fn has_ended(stream: &TcpStream) -> bool {
    stream
        .set_nonblocking(true)
        .and_then(|()| stream.peek(&mut [0; 1]))
        .is_ok_and(|n| n == 0)
}

fn make_socket(addr: SocketAddr) -> nix::Result<OwnedFd> {
    let family = if addr.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)
}

#[inline(never)]
fn await_connected(fd: &OwnedFd, addr: SocketAddr, deadline: Instant) -> Result<(), DialError> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(timed_out(addr));
        }
        match poll(
            &mut [PollFd::new(fd.as_fd(), PollFlags::POLLOUT)],
            round_up(left),
        ) {
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => break,
            Err(e) => return Err(failed(addr, "poll", e)),
        }
    }
    match nix::sys::socket::getsockopt(fd, sockopt::SocketError) {
        Ok(0) => Ok(()),
        Ok(code) => Err(failed(addr, "connect", Errno::from_raw(code))),
        Err(e) => Err(failed(addr, "getsockopt", e)),
    }
}

/// Whole milliseconds, never zero, so that a rest below one is waited for and not spun on.
pub(super) fn round_up(left: Duration) -> PollTimeout {
    let ms = left.as_nanos().div_ceil(1_000_000).min(60_000);
    PollTimeout::from(u16::try_from(ms).unwrap_or(60_000))
}

fn failed(addr: SocketAddr, call: &str, errno: Errno) -> DialError {
    let text = format!("dial tcp {addr}: {call}: {}", go_errno(errno));
    match errno {
        Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM => DialError::Ours(text),
        _ => DialError::Failed(text),
    }
}

/// The error's text as Go writes it: the C library's, beginning in lower case.
pub fn go_errno(errno: Errno) -> String {
    let text = errno.desc();
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_lowercase().chain(chars).collect()
    })
}

/// Runs `f` with this thread in that network namespace.
#[inline(never)]
fn in_namespace<T>(netns: &NetworkNamespace, f: impl FnOnce() -> T) -> Result<T, DialError> {
    let path = &netns.path;
    let ours = |e: &dyn fmt::Display| {
        DialError::Ours(format!(
            "cannot enter the pod's network namespace {}: {e}",
            path.display()
        ))
    };
    let own = File::open("/proc/thread-self/ns/net").map_err(|e| ours(&e))?;
    let target = netns.open().map_err(|e| ours(&e))?;
    setns(&target, CloneFlags::CLONE_NEWNET).map_err(|e| ours(&e))?;
    let value = f();
    if let Err(e) = setns(&own, CloneFlags::CLONE_NEWNET) {
        NAMESPACE_LOST.set(true);
        panic!(
            "cannot return from the pod's network namespace {}: {e}",
            path.display()
        );
    }
    Ok(value)
}
