//! The connection of an http or https probe: one per request, with one deadline for everything.
//!
//! Invariants: no proxy, no pool, no certificate check. Each read and write ends at the deadline, however slowly the
//! other side trickles. TLS is set up when the first https probe connects, not before, and takes nothing of the stack of
//! a plain probe.

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, send};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use super::dial::{DialError, End, dial, hang_up};
use super::outcome::Phase;
use super::target::Target;
use super::trace::note;

/// How far a request has come.
pub(super) type Progress = Cell<Phase>;

/// A socket whose every operation ends at one deadline.
pub(super) struct DeadlineStream {
    pub(super) stream: TcpStream,
    pub(super) deadline: Instant,
}

impl DeadlineStream {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            Err(io::ErrorKind::TimedOut.into())
        } else {
            Ok(Some(left))
        }
    }
}

/// A socket's own word for its timeout is WouldBlock.
fn timed_out(e: io::Error) -> io::Error {
    if e.kind() == io::ErrorKind::WouldBlock {
        io::ErrorKind::TimedOut.into()
    } else {
        e
    }
}

impl Read for DeadlineStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buf).map_err(timed_out)
    }
}

impl Write for DeadlineStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(buf).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

type TlsStream = StreamOwned<ClientConnection, DeadlineStream>;

/// Hangs up when it is dropped.
pub(super) enum Connection {
    Plain(DeadlineStream),
    Tls(Box<TlsStream>),
}

impl Connection {
    /// Connects to the first address of `target` that takes a connection; with `tls` shakes hands as a client of that host.
    ///
    /// # Errors
    /// A [`DialError`] or a `rustls::Error` inside an [`io::Error`], or the stream's own.
    pub(super) fn open(
        target: &Target,
        port: u16,
        tls: Option<&str>,
        deadline: Instant,
        progress: &Progress,
    ) -> io::Result<Self> {
        progress.set(Phase::Connect);
        let stream = DeadlineStream {
            stream: connect(target, port, deadline).map_err(io::Error::other)?,
            deadline,
        };
        match tls {
            None => Ok(Self::Plain(stream)),
            Some(host) => {
                progress.set(Phase::Tls);
                handshake(stream, host).map(Self::Tls)
            }
        }
    }

    /// Sends all of it.
    pub(super) fn send(&mut self, request: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(stream) => send_plain(stream, request),
            Self::Tls(stream) => send_tls(stream, request),
        }
    }

    /// Some bytes; none at the end.
    pub(super) fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buf),
            Self::Tls(stream) => read_tls(stream, buf),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        match self {
            Self::Plain(stream) => hang_up(&stream.stream),
            Self::Tls(stream) => say_goodbye(stream),
        }
    }
}

// What TLS does is in no frame of a plain probe: none of it is inlined.

#[inline(never)]
fn send_tls(stream: &mut TlsStream, request: &[u8]) -> io::Result<()> {
    stream.write_all(request).and_then(|()| stream.flush())
}

/// A server that closes without saying so in TLS has ended its answer all the same, as Go sees it.
#[inline(never)]
fn read_tls(stream: &mut TlsStream, buf: &mut [u8]) -> io::Result<usize> {
    stream.read(buf).or_else(|e| {
        if e.kind() == io::ErrorKind::UnexpectedEof {
            Ok(0)
        } else {
            Err(e)
        }
    })
}

#[inline(never)]
fn say_goodbye(stream: &mut TlsStream) {
    stream.conn.send_close_notify();
    let _ = stream.conn.write_tls(&mut stream.sock);
    hang_up(&stream.sock.stream);
}

/// A request fits into the socket's buffer, so that the first call takes it all without waiting, and so without a
/// timeout to set before.
fn send_plain(stream: &mut DeadlineStream, request: &[u8]) -> io::Result<()> {
    let sent = match send(
        stream.stream.as_raw_fd(),
        request,
        MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL,
    ) {
        Ok(n) => n,
        Err(Errno::EAGAIN | Errno::EINTR) => 0,
        Err(e) => return Err(e.into()),
    };
    stream.write_all(&request[sent..])
}

fn connect(target: &Target, port: u16, deadline: Instant) -> Result<TcpStream, DialError> {
    let mut first = None;
    for ip in &target.addresses {
        match dial(
            SocketAddr::new(*ip, port),
            target.netns.as_ref(),
            deadline,
            End::HangUp,
        ) {
            Ok(stream) => return Ok(stream),
            Err(e) => _ = first.get_or_insert(e),
        }
    }
    Err(first
        .unwrap_or_else(|| DialError::Failed(format!("dial tcp: no address of {}", target.host))))
}

#[inline(never)]
fn handshake(sock: DeadlineStream, host: &str) -> io::Result<Box<TlsStream>> {
    // The request follows the last words of the handshake without waiting for their acknowledgement.
    sock.stream.set_nodelay(true)?;
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| io::Error::other("tls: the host is not a name that TLS can carry"))?;
    let conn =
        ClientConnection::new(super::tls::client_config(), name).map_err(io::Error::other)?;
    let mut stream = Box::new(StreamOwned::new(conn, sock));
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    note(|| {
        format!(
            "TLS handshake: {}",
            stream
                .conn
                .protocol_version()
                .map_or_else(String::new, |v| format!("{v:?}"))
        )
    });
    Ok(stream)
}
