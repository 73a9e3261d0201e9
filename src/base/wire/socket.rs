//! A connected stream socket over TCP or a unix path.
//!
//! Invariants: a write to a closed connection raises no signal. Errors of reads and writes have Go's texts: `read tcp
//! <from>-><to>: read: connection reset by peer`. A timeout, or a call that would block, keeps its error kind and
//! number, so a caller can tell a timeout from the end of a connection.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{
    MsgFlags, Shutdown, SockaddrLike, SockaddrStorage, UnixAddr, getpeername, getsockname, recv,
    send, setsockopt, shutdown, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};

use super::text::go_errno;

/// A connected stream socket. It is closed when it is dropped.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    /// Address of the other side; None for a unix socket.
    peer: Option<SocketAddr>,
}

impl Socket {
    /// Takes a socket that is connected to `peer`. None means a unix socket.
    pub(super) fn connected(fd: OwnedFd, peer: Option<SocketAddr>) -> Self {
        Self { fd, peer }
    }

    /// Tells whether this is a TCP socket.
    pub fn is_tcp(&self) -> bool {
        self.peer.is_some()
    }

    /// Sets how long a read may wait.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        Ok(setsockopt(
            &self.fd,
            sockopt::ReceiveTimeout,
            &as_timeout(timeout),
        )?)
    }

    /// Sets how long a write may wait.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn set_write_timeout(&self, timeout: Duration) -> io::Result<()> {
        Ok(setsockopt(
            &self.fd,
            sockopt::SendTimeout,
            &as_timeout(timeout),
        )?)
    }

    /// Makes the socket nonblocking.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn set_nonblocking(&self) -> io::Result<()> {
        let flags = OFlag::from_bits_retain(fcntl(&self.fd, FcntlArg::F_GETFL)?);
        fcntl(&self.fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        Ok(())
    }

    /// Lets small writes be sent at once, without waiting for the acknowledgement of an earlier write. Does nothing for
    /// a unix socket, which never waits.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn set_nodelay(&self) -> io::Result<()> {
        if self.is_tcp() {
            setsockopt(&self.fd, sockopt::TcpNoDelay, &true)?;
        }
        Ok(())
    }

    /// Sends as many bytes as the socket accepts at once, and returns their number, which may be 0.
    ///
    /// # Errors
    /// Returns the socket's error if the connection is closed.
    pub fn send_now(&self, bytes: &[u8]) -> io::Result<usize> {
        match self.send(bytes, MsgFlags::MSG_DONTWAIT) {
            Err(e) if is_transient(&e) => Ok(0),
            done => done,
        }
    }

    /// Ends a connection so that the other side reads an end of file and no TIME-WAIT stays on this node. Call it right
    /// before the drop, on a socket that was dialed with [`End::HangUp`](super::dial::End). Does nothing for a unix
    /// socket.
    pub fn hang_up(&self) {
        if !self.is_tcp() {
            return;
        }
        // If there is no memory for the filter, the only harm is a TIME-WAIT if the server answers before the close.
        let _ = crate::base::sys::socket::let_nothing_in(self.fd.as_fd());
        if !self.has_ended() {
            // An error means that the other side has closed the connection already.
            let _ = shutdown(self.fd.as_raw_fd(), Shutdown::Write);
        }
    }

    /// Tells whether the other side's FIN was received and all data was read. If data is unread, the close sends a
    /// reset in any case.
    fn has_ended(&self) -> bool {
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        recv(self.fd.as_raw_fd(), &mut [0; 1], flags) == Ok(0)
    }

    fn send(&self, bytes: &[u8], flags: MsgFlags) -> io::Result<usize> {
        send(self.fd.as_raw_fd(), bytes, flags | MsgFlags::MSG_NOSIGNAL)
            .map_err(|e| self.named("write", e))
    }

    /// Turns the error number of a failed call into an error with the text that Go has for such a call.
    fn named(&self, call: &str, errno: Errno) -> io::Error {
        let e = io::Error::from(errno);
        if is_transient(&e) {
            return e;
        }
        // The kind TimedOut is kept for a passed deadline of podprobe. A timeout that the kernel reports gets another
        // kind.
        let kind = match e.kind() {
            io::ErrorKind::TimedOut => io::ErrorKind::ConnectionAborted,
            kind => kind,
        };
        io::Error::new(
            kind,
            format!("{call} {}: {call}: {}", self.ends(), go_errno(errno)),
        )
    }

    /// Returns the network and both addresses of the connection, for error texts: `tcp 10.0.0.1:41234->10.0.0.2:80` or
    /// `unix @->/run/x.sock`.
    fn ends(&self) -> String {
        match self.peer {
            Some(peer) => format!("tcp {}->{peer}", self.local()),
            None => format!("unix @->{}", self.unix_peer()),
        }
    }

    /// Returns a value that displays as the address of this side. The address is looked up at that time.
    pub fn local(&self) -> impl fmt::Display + '_ {
        Local(self)
    }

    fn unix_peer(&self) -> String {
        let path = getpeername::<UnixAddr>(self.fd.as_raw_fd()).ok();
        path.and_then(|a| a.path().map(|p| p.display().to_string()))
            .unwrap_or_default()
    }
}

/// Tells whether a failed call can be repeated: the call would have waited, or a signal interrupted the call.
fn is_transient(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

struct Local<'a>(&'a Socket);

impl fmt::Display for Local<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match getsockname::<SockaddrStorage>(self.0.fd.as_raw_fd()) {
            Ok(a) if a.family().is_some() && self.0.is_tcp() => write!(f, "{a}"),
            Ok(_) => f.write_str("@"),
            Err(e) => write!(f, "{}", go_errno(e)),
        }
    }
}

/// Converts a timeout for a socket option. The result is never zero, because zero means no timeout.
fn as_timeout(timeout: Duration) -> TimeVal {
    let micros = i64::try_from(timeout.as_nanos().div_ceil(1000)).unwrap_or(i64::MAX);
    TimeVal::microseconds(micros.max(1))
}

/// Returns the time left until `deadline`, or None if it has passed.
pub(super) fn left_until(deadline: Instant) -> Option<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    (!left.is_zero()).then_some(left)
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Read for Socket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        recv(self.fd.as_raw_fd(), buf, MsgFlags::empty()).map_err(|e| self.named("read", e))
    }
}

impl Write for Socket {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.send(buf, MsgFlags::empty())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
