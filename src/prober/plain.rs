//! An http exchange without TLS: the code nearly every network probe runs.
//!
//! Invariants: one request, one connection, one deadline. A probe whose answer comes in one piece costs ten calls into
//! the kernel, no buffer but one on the stack, and no state of TLS; that is why this is not ureq, which carries https
//! (BENCHMARKS.md has the figures of both). How much of the stack it takes stays with each worker: keep it small.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, send};

use super::dial::{DialError, End, dial, hang_up};
use super::http1::{Head, HeadReader};
use super::outcome::{MAX_OUTPUT, Phase};
use super::target::Target;
use super::trace::note;
use super::transport::{DeadlineStream, Progress};

/// One read; most answers are smaller. On the stack.
const PIECE: usize = 1024;

/// Why there is no answer.
pub(super) enum PlainError {
    /// No connection.
    Dial(DialError),
    /// It broke, or the deadline came.
    Io(io::Error),
    /// What came is no HTTP.
    Malformed(String),
}

/// An answer whose head has come.
pub(super) struct Reply {
    pub(super) head: Head,
    body: Vec<u8>,
    /// Whether the body is complete, as far as it came with the head.
    complete: Result<bool, String>,
    connection: Connection,
}

/// Hangs up when it is dropped.
struct Connection(DeadlineStream);

impl Drop for Connection {
    fn drop(&mut self) {
        hang_up(&self.0.stream);
    }
}

/// Sends `request` to the first address that takes a connection and reads the head of the answer.
///
/// # Errors
/// Why there is none.
pub(super) fn exchange(target: &Target, port: u16, request: &str, deadline: Instant, progress: &Progress) -> Result<Reply, PlainError> {
    progress.reach(Phase::Connect);
    let mut connection = Connection(DeadlineStream { stream: connect(target, port, deadline)?, deadline });
    progress.reach(Phase::Send);
    connection.send(request.as_bytes()).map_err(PlainError::Io)?;
    note(|| format!("sent {} bytes", request.len()));
    progress.reach(Phase::Read);
    let (mut reader, mut body) = (HeadReader::default(), Vec::new());
    let mut piece = [0; PIECE];
    loop {
        let n = connection.0.read(&mut piece).map_err(PlainError::Io)?;
        if n == 0 {
            return Err(ended_early(&reader));
        }
        if let Some((mut head, rest)) = reader.push(&piece[..n]).map_err(PlainError::Malformed)? {
            let complete = head.framing.push(rest, &mut body, MAX_OUTPUT);
            return Ok(Reply { head, body, complete, connection });
        }
    }
}

impl Reply {
    /// The first [`MAX_OUTPUT`] bytes of the body.
    ///
    /// # Errors
    /// It broke off, breaks the rules of its encoding, or the deadline came.
    #[inline(never)]
    pub(super) fn into_body(mut self) -> io::Result<Vec<u8>> {
        let mut complete = self.complete.map_err(io::Error::other)?;
        let mut piece = [0; PIECE];
        while !complete {
            let n = self.connection.0.read(&mut piece)?;
            if n == 0 {
                let all = self.head.framing.ends_with_the_connection();
                return if all { Ok(self.body) } else { Err(io::Error::other("unexpected EOF")) };
            }
            complete = self.head.framing.push(&piece[..n], &mut self.body, MAX_OUTPUT).map_err(io::Error::other)?;
        }
        Ok(self.body)
    }
}

impl Connection {
    /// A request fits into the socket's buffer, so that the first call takes it all without waiting, and so without a
    /// timeout to set before.
    fn send(&mut self, request: &[u8]) -> io::Result<()> {
        let sent = match send(self.0.stream.as_raw_fd(), request, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL) {
            Ok(n) => n,
            Err(Errno::EAGAIN | Errno::EINTR) => 0,
            Err(e) => return Err(e.into()),
        };
        self.0.write_all(&request[sent..])
    }
}

fn ended_early(reader: &HeadReader) -> PlainError {
    if reader.is_untouched() { PlainError::Io(io::ErrorKind::UnexpectedEof.into()) } else { PlainError::Malformed("unexpected EOF".into()) }
}

fn connect(target: &Target, port: u16, deadline: Instant) -> Result<TcpStream, PlainError> {
    let mut first = None;
    for ip in &target.addresses {
        match dial(SocketAddr::new(*ip, port), target.netns.as_ref(), deadline, End::HangUp) {
            Ok(stream) => return Ok(stream),
            Err(e) => _ = first.get_or_insert(e),
        }
    }
    let none = || DialError::Failed(format!("dial tcp: no address of {}", target.host));
    Err(PlainError::Dial(first.unwrap_or_else(none)))
}
