//! The connections of https probes, for ureq: TLS, one per request, with one deadline for everything.
//!
//! Invariants: no proxy, no pool, no certificate check. Each read and write ends at the deadline, however slowly the
//! other side trickles. TLS is set up when the first https probe connects, not before. Header names go out in
//! canonical form: the `http` crate keeps them in lower case, so they are capitalised on their way.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, NextTimeout, Transport};

use super::dial::{End, dial, hang_up};
use super::outcome::Phase;
use super::trace::note;
use crate::runtime::NetworkNamespace;

/// How far a request has come; shared by the connector, its connection and whoever asks.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress(Arc<AtomicU8>);

const PHASES: [Phase; 4] = [Phase::Connect, Phase::Tls, Phase::Send, Phase::Read];

impl Progress {
    pub(super) fn reach(&self, phase: Phase) {
        let at = PHASES.iter().position(|p| *p == phase).unwrap_or(0);
        self.0.store(at as u8, Ordering::Relaxed);
    }

    /// The phase it is in.
    pub(super) fn phase(&self) -> Phase {
        PHASES[usize::from(self.0.load(Ordering::Relaxed)).min(PHASES.len() - 1)]
    }
}

/// Knows the addresses already: ureq's own resolver starts a thread for each request, for an IP literal too.
#[derive(Debug)]
pub(super) struct KnownAddresses(pub(super) Vec<IpAddr>);

impl Resolver for KnownAddresses {
    fn resolve(&self, uri: &ureq::http::Uri, _: &ureq::config::Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let default = if uri.scheme_str() == Some("https") { 443 } else { 80 };
        let port = uri.port_u16().unwrap_or(default);
        let mut all = self.empty();
        for ip in self.0.iter().take(16) {
            all.push(SocketAddr::new(*ip, port));
        }
        Ok(all)
    }
}

/// Opens the connection of one request.
#[derive(Debug)]
pub(super) struct ProbeConnector {
    pub(super) netns: Option<NetworkNamespace>,
    pub(super) deadline: Instant,
    pub(super) progress: Progress,
}

impl Connector<()> for ProbeConnector {
    type Out = ProbeTransport;

    fn connect(&self, details: &ConnectionDetails<'_>, _: Option<()>) -> Result<Option<ProbeTransport>, ureq::Error> {
        self.progress.reach(Phase::Connect);
        let mut first = None;
        let mut connected = None;
        for addr in &details.addrs {
            match dial(*addr, self.netns.as_ref(), self.deadline, End::HangUp) {
                Ok(stream) => {
                    connected = Some(stream);
                    break;
                }
                Err(e) => _ = first.get_or_insert(e),
            }
        }
        let Some(stream) = connected else { return Err(first.map_or(ureq::Error::HostNotFound, |e| io::Error::other(e).into())) };
        // The request follows the last words of the handshake without waiting for their acknowledgement.
        stream.set_nodelay(true)?;
        self.progress.reach(Phase::Tls);
        let host = details.uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let stream = handshake(DeadlineStream { stream, deadline: self.deadline }, host)?;
        note(|| format!("TLS handshake: {}", stream.conn.protocol_version().map_or_else(String::new, |v| format!("{v:?}"))));
        Ok(Some(ProbeTransport {
            stream,
            buffers: GrowingBuffers::default(),
            case: HeaderCase::RequestLine,
            progress: self.progress.clone(),
        }))
    }
}

/// A socket whose every operation ends at one deadline.
pub(super) struct DeadlineStream {
    pub(super) stream: TcpStream,
    pub(super) deadline: Instant,
}

impl DeadlineStream {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

/// A socket's own word for its timeout is WouldBlock.
fn timed_out(e: io::Error) -> io::Error {
    if e.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { e }
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

fn handshake(sock: DeadlineStream, host: &str) -> Result<Box<TlsStream>, ureq::Error> {
    let name = ServerName::try_from(host.to_owned()).map_err(|_| ureq::Error::Tls("the host is not a name that TLS can carry"))?;
    let conn = ClientConnection::new(super::tls::client_config(), name)?;
    let mut stream = Box::new(StreamOwned::new(conn, sock));
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}

/// A server that closes without saying so in TLS has ended its answer all the same, as Go sees it.
fn read(stream: &mut TlsStream, buf: &mut [u8]) -> io::Result<usize> {
    stream.read(buf).or_else(|e| if e.kind() == io::ErrorKind::UnexpectedEof { Ok(0) } else { Err(e) })
}

/// One connection.
pub(super) struct ProbeTransport {
    stream: Box<TlsStream>,
    buffers: GrowingBuffers,
    case: HeaderCase,
    progress: Progress,
}

impl fmt::Debug for ProbeTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProbeTransport({})", self.progress.phase())
    }
}

impl Transport for ProbeTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, _: NextTimeout) -> Result<(), ureq::Error> {
        self.progress.reach(Phase::Send);
        let output = &mut self.buffers.output[..amount];
        self.case.apply(output);
        self.stream.write_all(output).and_then(|()| self.stream.flush())?;
        note(|| format!("sent {amount} bytes"));
        Ok(())
    }

    fn await_input(&mut self, _: NextTimeout) -> Result<bool, ureq::Error> {
        self.progress.reach(Phase::Read);
        let n = read(&mut self.stream, self.buffers.input_append_buf())?;
        self.buffers.input_appended(n);
        Ok(n > 0)
    }

    fn is_open(&mut self) -> bool {
        false
    }

    fn is_tls(&self) -> bool {
        true
    }
}

impl Drop for ProbeTransport {
    fn drop(&mut self) {
        let s = &mut *self.stream;
        s.conn.send_close_notify();
        let _ = s.conn.write_tls(&mut s.sock);
        hang_up(&s.sock.stream);
    }
}

/// Capitalises the header names of a request head as it goes by, in pieces of any size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeaderCase {
    /// Up to the end of the first line.
    RequestLine,
    /// In a name; the next letter is the first of a word.
    NameStart,
    /// In a name, in the middle of a word.
    Name,
    /// After the colon.
    Value,
}

impl HeaderCase {
    fn apply(&mut self, head: &mut [u8]) {
        for b in head {
            *self = match (*self, *b) {
                (_, b'\n') => Self::NameStart,
                (Self::NameStart | Self::Name, b':') => Self::Value,
                (Self::NameStart | Self::Name, b'-') => Self::NameStart,
                (Self::NameStart, _) => {
                    b.make_ascii_uppercase();
                    Self::Name
                }
                (same, _) => same,
            };
        }
    }
}

/// Buffers that are small at first (ureq's own are 128 KiB each way, zeroed for each connection) and grow for a large
/// response head, up to ureq's limit for it.
#[derive(Default)]
struct GrowingBuffers {
    input: Vec<u8>,
    consumed: usize,
    filled: usize,
    output: Vec<u8>,
    progress: bool,
}

const INPUT_STEP: usize = 4 * 1024;
const MAX_INPUT: usize = 32 * INPUT_STEP;
const OUTPUT_SIZE: usize = 8 * 1024;

impl Buffers for GrowingBuffers {
    fn output(&mut self) -> &mut [u8] {
        self.output.resize(OUTPUT_SIZE, 0);
        &mut self.output
    }

    fn input(&self) -> &[u8] {
        &self.input[self.consumed..self.filled]
    }

    fn input_append_buf(&mut self) -> &mut [u8] {
        if self.consumed > 0 {
            self.input.copy_within(self.consumed..self.filled, 0);
            self.filled -= self.consumed;
            self.consumed = 0;
        }
        // At the limit the reader sees an empty buffer, and so the end of the answer.
        if self.filled == self.input.len() && self.filled < MAX_INPUT {
            self.input.resize(self.filled + self.filled.max(INPUT_STEP), 0);
        }
        &mut self.input[self.filled..]
    }

    fn input_appended(&mut self, amount: usize) {
        self.filled += amount;
    }

    fn input_consume(&mut self, amount: usize) {
        self.progress = amount > 0;
        self.consumed += amount;
    }

    fn tmp_and_output(&mut self) -> (&mut [u8], &mut [u8]) {
        self.output.resize(OUTPUT_SIZE, 0);
        self.input_append_buf();
        (&mut self.input[self.filled..], &mut self.output)
    }

    fn can_use_input(&self) -> bool {
        self.filled > self.consumed && self.progress
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_names_go_out_in_canonical_form_in_pieces_of_any_size() {
        let sent = b"GET /a-b:c HTTP/1.1\r\nhost: a-b:1\r\nx-forwarded-for: x-y\r\naccept: */*\r\n\r\n";
        let expected = b"GET /a-b:c HTTP/1.1\r\nHost: a-b:1\r\nX-Forwarded-For: x-y\r\nAccept: */*\r\n\r\n";
        for size in 1..sent.len() {
            let (mut case, mut got) = (HeaderCase::RequestLine, sent.to_vec());
            got.chunks_mut(size).for_each(|piece| case.apply(piece));
            assert_eq!(got, expected, "pieces of {size}");
        }
    }

    #[test]
    fn buffers_grow_and_keep_what_is_unread() {
        let mut b = GrowingBuffers::default();
        for i in 0..20_000_u32 {
            b.input_append_buf()[0] = i as u8;
            b.input_appended(1);
        }
        assert_eq!(b.input().len(), 20_000);
        b.input_consume(19_990);
        assert!(b.can_use_input());
        b.input_append_buf();
        assert_eq!(b.input(), (19_990..20_000_u32).map(|i| i as u8).collect::<Vec<_>>());
        b.input_consume(0);
        assert!(!b.can_use_input(), "no progress: the parser wants more");
    }
}
