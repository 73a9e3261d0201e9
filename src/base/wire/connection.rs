//! The connection for one exchange: a dialed socket, with or without TLS.
//!
//! Invariants: all reads and writes end at one deadline, however slowly the other side sends. An exchange without TLS has
//! no stack frames of TLS code.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::observer::{Observer, Phase};
use super::socket::{Socket, left_until};

/// A socket with one deadline for all its operations, or a nonblocking socket.
struct DeadlineStream {
    socket: Socket,
    /// Deadline of every operation; None if the socket is nonblocking.
    deadline: Option<Instant>,
}

/// A socket during a TLS handshake, which keeps the first bytes that the other side sends.
struct FirstBytes<'a> {
    stream: &'a mut DeadlineStream,
    first: [u8; 5],
    /// Number of first bytes that were received so far.
    seen: usize,
}

impl Read for FirstBytes<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.stream.read(buf)?;
        let more = n.min(self.first.len() - self.seen);
        self.first[self.seen..self.seen + more].copy_from_slice(&buf[..more]);
        self.seen += more;
        Ok(n)
    }
}

impl Write for FirstBytes<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl DeadlineStream {
    /// Calls `io`, and calls it again if a signal interrupts it. Turns WouldBlock, the socket's error at its deadline,
    /// into TimedOut.
    fn until_deadline(
        &mut self,
        set_timeout: impl Fn(&Socket, std::time::Duration) -> io::Result<()>,
        mut io: impl FnMut(&mut Socket) -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            if let Some(deadline) = self.deadline {
                let left = left_until(deadline).ok_or(io::ErrorKind::TimedOut)?;
                set_timeout(&self.socket, left)?;
            }
            match io(&mut self.socket) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && self.deadline.is_some() => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                done => return done,
            }
        }
    }
}

impl Read for DeadlineStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.until_deadline(Socket::set_read_timeout, |socket| socket.read(buf))
    }
}

impl Write for DeadlineStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.until_deadline(Socket::set_write_timeout, |socket| socket.write(buf))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

type TlsStream = StreamOwned<ClientConnection, DeadlineStream>;

/// A connection. It is closed when it is dropped.
pub struct Connection(Stream);

enum Stream {
    Plain(DeadlineStream),
    Tls(Box<TlsStream>),
}

impl Connection {
    /// Makes a connection without TLS. All its operations end at `deadline`.
    pub fn plain(socket: Socket, deadline: Instant) -> Self {
        Self(Stream::Plain(DeadlineStream {
            socket,
            deadline: Some(deadline),
        }))
    }

    /// Makes a TLS connection: does the handshake as a client of `host`. All its operations end at `deadline`.
    ///
    /// # Errors
    /// Returns a [`rustls::Error`] inside of an [`io::Error`], or the socket's own error.
    #[inline(never)]
    pub fn tls(
        socket: Socket,
        deadline: Instant,
        host: &str,
        config: Arc<ClientConfig>,
        observer: &dyn Observer,
    ) -> io::Result<Self> {
        observer.begin(Phase::Tls);
        // With TCP_NODELAY, the request need not wait for an acknowledgement of the handshake's last bytes.
        socket.set_nodelay()?;
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| io::Error::other("tls: the host is not a name that TLS can carry"))?;
        let conn = ClientConnection::new(config, name).map_err(io::Error::other)?;
        let socket = DeadlineStream {
            socket,
            deadline: Some(deadline),
        };
        let mut stream = Box::new(StreamOwned::new(conn, socket));
        shake_hands(&mut stream)?;
        if let Some(version) = stream.conn.protocol_version() {
            observer.note(format_args!("TLS handshake: {version:?}"));
        }
        Ok(Self(Stream::Tls(stream)))
    }

    /// Tells whether both sides have agreed on HTTP/2 during the handshake.
    pub fn is_http2(&self) -> bool {
        match &self.0 {
            Stream::Plain(_) => false,
            Stream::Tls(stream) => stream.conn.alpn_protocol() == Some(super::tls::HTTP2),
        }
    }

    /// Sends the whole request.
    ///
    /// # Errors
    /// Returns the socket's error if the connection is closed or the deadline has come.
    pub fn send(&mut self, request: &[u8]) -> io::Result<()> {
        match &mut self.0 {
            Stream::Plain(stream) => send_plain(stream, request),
            Stream::Tls(stream) => send_tls(stream, request),
        }
    }

    /// Makes the connection nonblocking. The caller then has to watch the socket ([`AsFd`]) and the deadline.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub(super) fn set_nonblocking(&mut self) -> io::Result<()> {
        let stream = match &mut self.0 {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => &mut stream.sock,
        };
        stream.deadline = None;
        stream.socket.set_nonblocking()?;
        stream.socket.set_nodelay()
    }
}

/// Reads some bytes. Returns 0 at the end of the connection.
impl Read for Connection {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Stream::Plain(stream) => stream.read(buf),
            Stream::Tls(stream) => read_tls(stream, buf),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Stream::Plain(stream) => stream.write(buf),
            Stream::Tls(stream) => stream.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Stream::Plain(_) => Ok(()),
            Stream::Tls(stream) => stream.flush(),
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Stream::Plain(stream) => stream.socket.as_fd(),
            Stream::Tls(stream) => stream.sock.socket.as_fd(),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        match &mut self.0 {
            Stream::Plain(stream) => stream.socket.hang_up(),
            Stream::Tls(stream) => say_goodbye(stream),
        }
    }
}

// No TLS function is inlined, so that an exchange without TLS needs no stack space for TLS.

#[inline(never)]
fn shake_hands(stream: &mut TlsStream) -> io::Result<()> {
    let mut socket = FirstBytes {
        stream: &mut stream.sock,
        first: [0; 5],
        seen: 0,
    };
    while stream.conn.is_handshaking() {
        if let Err(e) = stream.conn.complete_io(&mut socket) {
            let first = &socket.first[..socket.seen];
            // A TLS record begins with one of these types (RFC 8446, 5.1).
            let is_tls = first.first().is_none_or(|kind| (20..=24).contains(kind));
            return Err(if is_tls {
                e
            } else {
                io::Error::other(super::tls::not_tls(first))
            });
        }
    }
    Ok(())
}

#[inline(never)]
fn send_tls(stream: &mut TlsStream, request: &[u8]) -> io::Result<()> {
    stream.write_all(request).and_then(|()| stream.flush())
}

/// Reads some bytes of a TLS connection. As in Go, a server that closes without TLS's close message has ended its answer.
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
    stream.sock.socket.hang_up();
}

/// Sends a request without TLS. A request fits into the socket's buffer. So the first call accepts the whole request
/// without waiting, and needs no timeout.
fn send_plain(stream: &mut DeadlineStream, request: &[u8]) -> io::Result<()> {
    let sent = stream.socket.send_now(request)?;
    stream.write_all(&request[sent..])
}
