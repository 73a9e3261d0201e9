//! A request and its answer, on a thread of their own.
//!
//! Invariants: a wait ends when the server stops, when the client has gone, and when the time of the answer is over. An
//! answer that does not stream has the time [`ANSWER`] in all. An answer that streams has the time [`STALL`] without
//! progress. Only a buffer of an answer is kept in memory.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::request::{Length, Request};
use super::response::{self, Body, TEXT};
use super::transport::Transport;
use crate::base::wire::http1::{Chunks, Framing};

/// The longest time for the body of a request and an answer that does not stream.
pub const ANSWER: Duration = Duration::from_secs(300);
/// The longest time without progress of an answer that streams.
pub const STALL: Duration = Duration::from_secs(300);
/// Size in bytes of the buffer of an answer.
const BUFFER: usize = 32 << 10;
/// Number of bytes of a body that one read takes.
const CHUNK: usize = 64 << 10;

/// The client's stream, together with the descriptor that ends every wait for the client.
pub struct Line<'a> {
    transport: Transport,
    /// The descriptor that becomes readable once the server stops.
    stop: BorrowedFd<'a>,
    until: Instant,
    /// True if each byte sent or received moves `until`.
    streams: bool,
}

impl Line<'_> {
    /// Waits until the stream can be read or written. Fails when the time is over or the server stops.
    fn wait(&self, events: PollFlags) -> io::Result<()> {
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            let mut fds = [
                PollFd::new(self.transport.as_fd(), events),
                PollFd::new(self.stop, PollFlags::POLLIN),
            ];
            // The time is rounded up: poll counts in milliseconds, and waking early would only spin.
            let left = PollTimeout::try_from(left + Duration::from_micros(999));
            match poll(&mut fds, left.unwrap_or(PollTimeout::MAX)) {
                Err(Errno::EINTR) => continue,
                Err(e) => return Err(e.into()),
                Ok(_) => {}
            }
            if fds[1].any() == Some(true) {
                return Err(io::Error::new(
                    ErrorKind::ConnectionAborted,
                    "the server stops",
                ));
            }
            if fds[0].any() == Some(true) {
                return Ok(());
            }
        }
    }

    /// Waits for the time `length`, or until the client has gone or the server stops. Returns true if the client has
    /// gone or the server stops.
    fn pause(&self, length: Duration) -> bool {
        let hang_up = PollFlags::from_bits_retain(libc::POLLRDHUP);
        let mut fds = [
            PollFd::new(self.transport.as_fd(), hang_up),
            PollFd::new(self.stop, PollFlags::POLLIN),
        ];
        let length = PollTimeout::try_from(length).unwrap_or(PollTimeout::MAX);
        !matches!(poll(&mut fds, length), Ok(0) | Err(Errno::EINTR))
    }

    fn until_gone(&self, wake: BorrowedFd<'_>) {
        let hang_up = PollFlags::from_bits_retain(libc::POLLRDHUP);
        let mut fds = [
            PollFd::new(self.transport.as_fd(), hang_up),
            PollFd::new(self.stop, PollFlags::POLLIN),
            PollFd::new(wake, PollFlags::POLLIN),
        ];
        while poll(&mut fds, PollTimeout::NONE) == Err(Errno::EINTR) {}
    }

    fn progress(&mut self) {
        if self.streams {
            self.until = Instant::now() + STALL;
        }
    }
}

impl Read for Line<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.transport.read(bytes) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    self.wait(self.transport.events())?
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                read => {
                    self.progress();
                    return read;
                }
            }
        }
    }
}

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.transport.write(bytes) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.wait(PollFlags::POLLOUT)?,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                written => {
                    self.progress();
                    return written;
                }
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        loop {
            match self.transport.flush() {
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.wait(PollFlags::POLLOUT)?,
                flushed => return flushed,
            }
        }
    }
}

/// A request that is being answered, with its connection.
pub struct Exchange<'a> {
    /// The request itself.
    pub request: Request,
    line: Line<'a>,
    /// Bytes that have arrived after the head.
    input: Vec<u8>,
    /// How the end of the body is found; None once the body is read.
    body: Option<Framing>,
    is_answered: bool,
    /// True if the connection can carry another request.
    keep_alive: bool,
}

impl<'a> Exchange<'a> {
    /// Begins to answer a request after its head has arrived. `input` has the bytes that have arrived since, and
    /// `stop` becomes readable once the server stops.
    pub fn new(
        request: Request,
        (transport, input): (Transport, Vec<u8>),
        stop: BorrowedFd<'a>,
    ) -> Self {
        let body = match request.length {
            Length::Known(0) => None,
            Length::Known(n) => Some(Framing::Length(n)),
            Length::Chunked => Some(Framing::Chunked(Chunks::default())),
        };
        Self {
            keep_alive: request.keep_alive,
            line: Line {
                transport,
                stop,
                until: Instant::now() + ANSWER,
                streams: false,
            },
            request,
            input,
            body,
            is_answered: false,
        }
    }

    /// Reads the whole body. Returns None if the body is longer than `limit` bytes. In this case the client has already
    /// got an answer.
    ///
    /// # Errors
    /// Returns the error of the stream if the client has gone, or if the chunks of the body are malformed.
    pub fn read_body(&mut self, limit: usize) -> io::Result<Option<Vec<u8>>> {
        if let Length::Known(n) = self.request.length
            && n > limit as u64
        {
            self.refuse_body(limit)?;
            return Ok(None);
        }
        let mut whole = Vec::new();
        self.body().take(limit as u64 + 1).read_to_end(&mut whole)?;
        if whole.len() > limit {
            self.refuse_body(limit)?;
            return Ok(None);
        }
        Ok(Some(whole))
    }

    fn refuse_body(&mut self, limit: usize) -> io::Result<()> {
        self.error(
            413,
            &format!("the body of the request is longer than {limit} bytes"),
        )
    }

    /// Returns a reader of the body. The whole exchange must end within [`ANSWER`].
    pub fn body(&mut self) -> BodyReader<'_, 'a> {
        BodyReader {
            exchange: self,
            piece: Vec::new(),
            taken: 0,
        }
    }

    /// Returns a reader of a body of any length. The time ends only after [`STALL`] without progress.
    pub fn body_that_streams(&mut self) -> BodyReader<'_, 'a> {
        self.line.streams = true;
        self.body()
    }

    /// Answers with this status, content type and body.
    ///
    /// # Errors
    /// Returns the error of the stream if the client has gone.
    pub fn reply(&mut self, status: u16, content_type: &str, body: &[u8]) -> io::Result<()> {
        let head = self.head(status, content_type, Body::Length(body.len()));
        self.line.write_all(head.as_bytes())?;
        if !self.request.is_head() {
            self.line.write_all(body)?;
        }
        self.line.flush()
    }

    /// Answers with this status and a line of text.
    ///
    /// # Errors
    /// Returns the error of the stream if the client has gone.
    pub fn error(&mut self, status: u16, text: &str) -> io::Result<()> {
        self.reply(status, TEXT, format!("{text}\n").as_bytes())
    }

    /// Returns the connection, on which nothing was answered.
    pub fn unanswered(self) -> Transport {
        self.line.transport
    }

    /// Sends the answer while the function `write` writes it. If `streams` is true, the answer lasts for as long as the
    /// client reads it.
    ///
    /// # Errors
    /// Returns the error of the stream if the client has gone, or the error of `write`. In both cases the answer is cut
    /// off, so that no client takes it for complete.
    pub fn stream(
        &mut self,
        content_type: &str,
        streams: bool,
        write: impl FnOnce(&mut AnswerWriter<'_, 'a>) -> io::Result<()>,
    ) -> io::Result<()> {
        let body = match self.request.is_old {
            true => Body::Connection,
            false => Body::Chunked,
        };
        let head = self.head(200, content_type, body);
        self.line.streams = streams;
        self.line.write_all(head.as_bytes())?;
        if self.request.is_head() {
            return self.line.flush();
        }
        let mut writer = AnswerWriter::new(&mut self.line, body == Body::Chunked);
        let written = write(&mut writer).and_then(|()| writer.finish());
        if written.is_err() {
            self.keep_alive = false;
        }
        written
    }

    fn head(&mut self, status: u16, content_type: &str, body: Body) -> String {
        self.is_answered = true;
        // The unread rest of a body would be read as the next request.
        self.keep_alive &= self.body.is_none() && body != Body::Connection;
        response::head(status, content_type, body, self.keep_alive)
    }

    /// Returns true if the client has hung up or the server stops. A client that has shut down only its sending side
    /// counts as gone too, because no client waits in that way.
    pub fn is_gone(&self) -> bool {
        self.pause(Duration::ZERO)
    }

    /// Waits for the time `length`, or until the client has gone or the server stops. Returns true if the client has
    /// gone or the server stops.
    pub fn pause(&self, length: Duration) -> bool {
        self.line.pause(length)
    }

    /// Waits until the client has gone, the server stops, or `wake` is readable.
    pub fn until_gone(&self, wake: BorrowedFd<'_>) {
        self.line.until_gone(wake);
    }

    /// Returns the client's name for the log: its uid and pid, or its address.
    pub fn client(&self) -> String {
        match (self.line.transport.unix_peer(), self.line.transport.peer()) {
            (Some((uid, pid)), _) => format!("uid {uid} (pid {pid})"),
            (None, Some(address)) => address.to_string(),
            (None, None) => "a client that has gone".into(),
        }
    }

    /// Sends the head of a `101` answer. Returns the stream, and the bytes that have arrived on it after the request.
    ///
    /// # Errors
    /// Returns the error of the stream if the client has gone.
    pub fn upgrade(mut self, head: &str) -> io::Result<(Transport, Vec<u8>)> {
        self.line.write_all(head.as_bytes())?;
        self.line.flush()?;
        Ok((self.line.transport, self.input))
    }

    /// Returns the descriptor that becomes readable once the server stops.
    pub fn stop(&self) -> BorrowedFd<'a> {
        self.line.stop
    }

    /// Returns the connection and the bytes that have arrived of the next request; None if the connection cannot carry
    /// another request.
    pub fn finish(mut self) -> Option<(Transport, Vec<u8>)> {
        if self.keep_alive && self.is_answered {
            return Some((self.line.transport, self.input));
        }
        self.line.transport.close();
        // A reset could overtake the answer, so the bytes that the client still sends are read for a moment.
        self.line.until = Instant::now() + Duration::from_secs(1);
        self.line.streams = false;
        let _ = io::copy(&mut (&mut self.line).take(CHUNK as u64), &mut io::sink());
        None
    }
}

/// A reader of the body of a request.
pub struct BodyReader<'e, 'a> {
    exchange: &'e mut Exchange<'a>,
    /// Bytes of the body that have arrived. The caller has already read the first `taken` of them.
    piece: Vec<u8>,
    taken: usize,
}

impl BodyReader<'_, '_> {
    /// Takes the next piece of the body from the stream. Returns false at the end of the body.
    fn fill(&mut self) -> io::Result<bool> {
        self.piece.clear();
        self.taken = 0;
        let exchange = &mut *self.exchange;
        while self.piece.is_empty() {
            let Some(framing) = &mut exchange.body else {
                return Ok(false);
            };
            if std::mem::take(&mut exchange.request.expects_continue) {
                exchange.line.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
                exchange.line.flush()?;
            }
            if exchange.input.is_empty() {
                exchange.input.resize(CHUNK, 0);
                let read = exchange.line.read(&mut exchange.input);
                exchange.input.truncate(*read.as_ref().unwrap_or(&0));
                if read? == 0 {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
            }
            let ends = match framing {
                Framing::Length(left) => {
                    let n = exchange
                        .input
                        .len()
                        .min(usize::try_from(*left).unwrap_or(usize::MAX));
                    self.piece.extend(exchange.input.drain(..n));
                    *left -= n as u64;
                    *left == 0
                }
                framing => {
                    let input = std::mem::take(&mut exchange.input);
                    // The parser of chunks does not report where in the piece the body ended.
                    exchange.keep_alive = false;
                    framing
                        .push(&input, &mut self.piece, usize::MAX)
                        .map_err(|e| io::Error::new(ErrorKind::InvalidData, e))?
                }
            };
            if ends {
                exchange.body = None;
            }
        }
        Ok(true)
    }
}

impl Read for BodyReader<'_, '_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.piece.len() && !self.fill()? {
            return Ok(0);
        }
        let n = bytes.len().min(self.piece.len() - self.taken);
        bytes[..n].copy_from_slice(&self.piece[self.taken..self.taken + n]);
        self.taken += n;
        Ok(n)
    }
}

/// A writer of an answer. The writer sends a chunk when its buffer is full, and at each flush.
pub struct AnswerWriter<'e, 'a> {
    line: &'e mut Line<'a>,
    /// Room for the line with the chunk's size, followed by the chunk.
    buffer: Vec<u8>,
    is_chunked: bool,
}

/// The line with the size of a chunk. The size may begin with zeros.
const SIZE_LINE: &[u8] = b"000000\r\n";

impl<'e, 'a> AnswerWriter<'e, 'a> {
    fn new(line: &'e mut Line<'a>, is_chunked: bool) -> Self {
        let mut buffer = Vec::with_capacity(SIZE_LINE.len() + BUFFER + 2);
        buffer.extend_from_slice(SIZE_LINE);
        Self {
            line,
            buffer,
            is_chunked,
        }
    }

    fn send(&mut self) -> io::Result<()> {
        let size = self.buffer.len() - SIZE_LINE.len();
        if size == 0 {
            return Ok(());
        }
        let sent = match self.is_chunked {
            true => {
                let digits = format!("{size:06x}");
                self.buffer[..digits.len()].copy_from_slice(digits.as_bytes());
                self.buffer.extend_from_slice(b"\r\n");
                self.line.write_all(&self.buffer)
            }
            false => self.line.write_all(&self.buffer[SIZE_LINE.len()..]),
        };
        self.buffer.truncate(SIZE_LINE.len());
        sent
    }

    /// Sends the bytes as a chunk of their own, without copying them.
    fn send_directly(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_chunked {
            return self.line.write(bytes);
        }
        self.line
            .write_all(format!("{:x}\r\n", bytes.len()).as_bytes())?;
        self.line.write_all(bytes)?;
        self.line.write_all(b"\r\n")?;
        Ok(bytes.len())
    }

    /// Waits for the time `length`, or until the client has gone or the server stops. Returns true if the client has
    /// gone or the server stops.
    pub fn pause(&self, length: Duration) -> bool {
        self.line.pause(length)
    }

    fn finish(mut self) -> io::Result<()> {
        self.send()?;
        if self.is_chunked {
            self.line.write_all(b"0\r\n\r\n")?;
        }
        self.line.flush()
    }
}

impl Write for AnswerWriter<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() >= BUFFER {
            self.send()?;
            return self.send_directly(bytes);
        }
        let room = SIZE_LINE.len() + BUFFER - self.buffer.len();
        let taken = room.min(bytes.len());
        self.buffer.extend_from_slice(&bytes[..taken]);
        if taken == room {
            self.send()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()?;
        self.line.flush()
    }
}

#[cfg(test)]
mod tests;
