//! Connections for ureq: dialing, TLS, and reads that end when the caller stops or the server is too slow.
//!
//! Invariants: every wait on a connection is bounded, and looks at its [`Stop`] every [`SLICE`]. A name is looked up on
//! the thread of the request. No caller may wait for that thread after a stop, because nothing ends the system's resolver.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};

use super::WaysOut;
use super::error::FetchError;
use super::redirect;
use super::roots;
use super::stop::{SLICE, Stop};

/// Size in bytes of a connection's buffer for input. ureq's own buffers have 128 KiB each, zeroed for each connection.
const INPUT: usize = 32 << 10;
const OUTPUT: usize = 4 << 10;

/// A function that returns the TLS configuration for a host and port.
pub type Trust = dyn Fn(&str) -> Result<Arc<ClientConfig>, FetchError> + Send + Sync;

/// Makes connections.
pub struct Dialer {
    /// The flag that ends every wait.
    pub stop: Stop,
    /// Limits of each connection.
    pub pacing: Pacing,
    /// The certificates that are trusted.
    pub trust: Arc<Trust>,
    /// Advice for errors of TLS.
    pub ways_out: WaysOut,
}

/// Limits on how long a connection waits and on how little a server may send.
#[derive(Clone, Copy, Debug)]
pub struct Pacing {
    /// Time limit for connecting to one address.
    pub connect: Duration,
    /// Time of waiting within which a server must send [`Pacing::least`] bytes. A slower connection is given up.
    pub idle: Duration,
    /// Number of bytes that a server must send within [`Pacing::idle`].
    pub least: u64,
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dialer")
    }
}

/// Wraps an error of ours so that it passes through ureq.
pub fn carried(e: FetchError) -> io::Error {
    io::Error::other(e)
}

impl Connector<()> for Dialer {
    type Out = Connection;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<Connection>, ureq::Error> {
        let authority = details.uri.authority().map(ToString::to_string);
        let authority = authority.unwrap_or_default();
        let mut socket = self.dial(&authority, &details.addrs)?;
        socket.deadline = deadline(details.timeout);
        let stream = match redirect::is_tls(details.uri) {
            true => self.tls(&authority, details.uri, socket)?,
            false => Stream::Plain(socket),
        };
        Ok(Some(Connection {
            buffers: LazyBuffers::new(INPUT, OUTPUT),
            stream,
        }))
    }
}

impl Dialer {
    /// Connects to the first address that accepts a connection.
    fn dial(&self, authority: &str, addresses: &ResolvedSocketAddrs) -> io::Result<Socket> {
        let mut last = None;
        for address in addresses.iter() {
            self.stop.check().map_err(carried)?;
            match TcpStream::connect_timeout(address, self.pacing.connect) {
                Ok(stream) => return Socket::new(stream, self),
                Err(e) => last = Some(format!("cannot connect to {authority} ({address}): {e}")),
            }
        }
        let text = last.unwrap_or_else(|| format!("{authority} has no address"));
        Err(carried(FetchError::unavailable(text)))
    }

    fn tls(&self, authority: &str, uri: &Uri, mut socket: Socket) -> io::Result<Stream> {
        let config = (self.trust)(authority).map_err(carried)?;
        let failed = |text: String| carried(FetchError::failed(text));
        let host = uri.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            failed(format!(
                "{host:?} is not a name that a certificate can have"
            ))
        })?;
        let mut tls = ClientConnection::new(config, name).map_err(|e| failed(e.to_string()))?;
        while tls.is_handshaking() {
            tls.complete_io(&mut socket)
                .map_err(|e| of_handshake(authority, e, self.ways_out))?;
        }
        Ok(Stream::Tls(Box::new(StreamOwned::new(tls, socket))))
    }
}

/// Turns an error of a TLS handshake into an error that says what a person can do about it.
fn of_handshake(authority: &str, e: io::Error, ways_out: WaysOut) -> io::Error {
    let inner = e.get_ref();
    match inner.and_then(|e| e.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidMessage(_)) => carried(FetchError::failed(format!(
            "{authority} does not speak TLS; {}",
            (ways_out.without_tls)(authority)
        ))),
        Some(tls) => carried(FetchError::failed(roots::error_text(
            authority, tls, ways_out,
        ))),
        None if inner.is_some_and(|e| e.is::<FetchError>()) => e,
        None => carried(FetchError::unavailable(format!(
            "TLS with {authority} failed: {e}"
        ))),
    }
}

fn deadline(timeout: NextTimeout) -> Option<Instant> {
    timeout.not_zero().map(|left| Instant::now() + *left)
}

/// A connection to a server, with or without TLS.
pub struct Connection {
    buffers: LazyBuffers,
    stream: Stream,
}

enum Stream {
    Plain(Socket),
    Tls(Box<StreamOwned<ClientConnection, Socket>>),
}

impl Stream {
    fn socket(&mut self) -> &mut Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(tls) => &mut tls.sock,
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}

impl Transport for Connection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.stream.socket().deadline = deadline(timeout);
        let output = &self.buffers.output()[..amount];
        match &mut self.stream {
            Stream::Plain(socket) => socket.write_all(output)?,
            Stream::Tls(tls) => {
                tls.write_all(output)?;
                tls.flush()?;
            }
        }
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.stream.socket().deadline = deadline(timeout);
        let input = self.buffers.input_append_buf();
        let amount = match &mut self.stream {
            Stream::Plain(socket) => socket.read(input)?,
            Stream::Tls(tls) => tls.read(input)?,
        };
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        let tls = matches!(self.stream, Stream::Tls(_));
        self.stream.socket().is_quiet(tls)
    }

    fn is_tls(&self) -> bool {
        matches!(self.stream, Stream::Tls(_))
    }
}

/// A TCP connection on which no read or write blocks forever.
struct Socket {
    stream: TcpStream,
    stop: Stop,
    pace: Pace,
    deadline: Option<Instant>,
}

impl Socket {
    fn new(stream: TcpStream, dialer: &Dialer) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SLICE))?;
        stream.set_write_timeout(Some(SLICE))?;
        Ok(Self {
            stream,
            stop: dialer.stop.clone(),
            pace: Pace::new(&dialer.pacing),
            deadline: None,
        })
    }

    /// Repeats `step` until it reads or writes something, or fails. Counts the time of each step for the pace of the
    /// server.
    fn repeat(
        &mut self,
        mut step: impl FnMut(&mut TcpStream) -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            self.stop.check().map_err(carried)?;
            let began = Instant::now();
            let done = step(&mut self.stream);
            let slow = self
                .pace
                .waited(began.elapsed(), *done.as_ref().unwrap_or(&0));
            match done {
                Err(e) if is_wait(&e) => {}
                other => return other,
            }
            if slow || self.deadline.is_some_and(|at| Instant::now() >= at) {
                let text = self.pace.text(slow);
                return Err(carried(FetchError::unavailable(text)));
            }
        }
    }

    /// Tells whether an idle connection can be used again: the server has not closed the connection and has sent
    /// nothing. With TLS, waiting input is allowed, because it may be session tickets.
    fn is_quiet(&mut self, tls: bool) -> bool {
        if self.stream.set_nonblocking(true).is_err() {
            return false;
        }
        let peeked = self.stream.peek(&mut [0]);
        let blocks = self.stream.set_nonblocking(false);
        blocks.is_ok()
            && match peeked {
                Ok(0) => false,
                Ok(_) => tls,
                Err(e) => e.kind() == io::ErrorKind::WouldBlock,
            }
    }
}

fn is_wait(e: &io::Error) -> bool {
    use io::ErrorKind as K;
    matches!(e.kind(), K::WouldBlock | K::TimedOut | K::Interrupted)
}

impl Read for Socket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.repeat(|stream| stream.read(buf))
    }
}

impl Write for Socket {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.repeat(|stream| stream.write(buf))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Measures whether a server sends enough bytes. Only the time that podprobe waits for the server counts.
#[derive(Debug)]
struct Pace {
    idle: Duration,
    least: u64,
    waited: Duration,
    bytes: u64,
}

impl Pace {
    fn new(pacing: &Pacing) -> Self {
        Self {
            idle: pacing.idle,
            least: pacing.least,
            waited: Duration::ZERO,
            bytes: 0,
        }
    }

    /// Counts a wait of length `time`, in which the server sent `bytes` bytes. Returns true if the server is too slow.
    fn waited(&mut self, time: Duration, bytes: usize) -> bool {
        self.waited += time;
        self.bytes += bytes as u64;
        if self.bytes >= self.least {
            (self.waited, self.bytes) = (Duration::ZERO, 0);
        }
        self.waited >= self.idle
    }

    fn text(&self, slow: bool) -> String {
        match slow {
            true => format!("the server gave {} bytes in {:?}", self.bytes, self.idle),
            false => "the server did not answer in time".into(),
        }
    }
}

/// A resolver that looks names up on the thread of the request, without a time limit of its own.
#[derive(Debug)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve(
        &self,
        uri: &Uri,
        _: &Config,
        _: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let host = uri.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let found = (host, redirect::port(uri)).to_socket_addrs();
        let found = found.map_err(|e| {
            carried(FetchError::unavailable(format!(
                "cannot look up {host}: {}",
                lookup_text(&e)
            )))
        })?;
        let mut addresses = self.empty();
        found.take(16).for_each(|address| addresses.push(address));
        Ok(addresses)
    }
}

/// Returns the text of a failed look-up without std's prefix "failed to lookup address information: ".
fn lookup_text(e: &io::Error) -> String {
    let text = e.to_string();
    let cause = text.strip_prefix("failed to lookup address information: ");
    cause.unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_too_slow_when_it_gives_little_while_we_wait() {
        let pacing = Pacing {
            connect: Duration::ZERO,
            idle: Duration::from_secs(10),
            least: 100,
        };
        let mut pace = Pace::new(&pacing);
        let second = Duration::from_secs(1);
        // A server that sends one byte in each second is too slow.
        assert!((0..9).all(|_| !pace.waited(second, 1)));
        assert!(pace.waited(second, 1));
        let mut pace = Pace::new(&pacing);
        assert!(
            (0..100).all(|_| !pace.waited(second, 20)),
            "20 bytes a second are enough"
        );
    }
}
