//! A client's TCP connection: questions come one after the other, and answers are sent as they are ready (RFC 7766).
//!
//! Invariants: a connection keeps a bounded number of bytes. Nothing is read from a client that does not read its
//! answers, or that has many questions waiting. The connection lives for [`IDLE`] after its last whole question or
//! answer, however many single bytes the client sends.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::sys::epoll::EpollFlags;

use crate::base::clock::Moment;

use super::frames::{Frames, framed};

/// Longest time for which a connection may be idle.
pub const IDLE: Duration = Duration::from_secs(10);
/// Size in bytes of the largest question. A question with a long name, EDNS and a signature is far smaller.
const LARGEST_QUESTION: usize = 4096;
/// Largest number of questions of a connection that may wait for other resolvers.
const MOST_WAITING: usize = 8;
/// Number of bytes that may wait for the client before the connection is no longer read from.
const MOST_UNREAD: usize = 16 * 1024;
/// Number of bytes that may wait for the client before the connection is closed. The limit leaves room for a few of the
/// largest answers to questions that the client has already asked.
const FAR_TOO_MUCH_UNREAD: usize = 192 * 1024;

/// The connection is over: it is broken, or the client has broken the rules.
#[derive(Debug)]
pub struct Over;

/// A client's TCP connection.
pub struct Connection {
    stream: TcpStream,
    /// The client's address.
    pub from: IpAddr,
    /// The moment at which the connection has been idle for too long.
    pub until: Moment,
    /// The events for which the poller watches the connection.
    pub interest: EpollFlags,
    frames: Frames,
    unsent: Vec<u8>,
    waiting: usize,
    has_ended: bool,
}

impl Connection {
    /// Makes the connection of a stream that has just been accepted. The stream is non-blocking.
    pub fn new(stream: TcpStream, from: IpAddr, now: Moment) -> Self {
        Self {
            stream,
            from,
            until: now + IDLE,
            interest: EpollFlags::EPOLLIN,
            frames: Frames::new(LARGEST_QUESTION),
            unsent: Vec::new(),
            waiting: 0,
            has_ended: false,
        }
    }

    /// Returns true if the client has no unfinished question and waits for no answer.
    pub fn is_quiet(&self) -> bool {
        let nothing_waits = self.waiting == 0 && self.unsent.is_empty();
        nothing_waits && self.frames.is_empty() && !self.has_ended
    }

    /// Returns the stream of the connection, to hand it over to another process.
    pub fn into_stream(self) -> TcpStream {
        self.stream
    }

    fn has_room(&self) -> bool {
        self.waiting < MOST_WAITING && self.unsent.len() < MOST_UNREAD
    }

    /// Returns the poll events for which the connection waits.
    pub fn wants(&self) -> EpollFlags {
        let mut wants = EpollFlags::empty();
        wants.set(EpollFlags::EPOLLIN, self.has_room() && !self.has_ended);
        wants.set(EpollFlags::EPOLLOUT, !self.unsent.is_empty());
        wants
    }

    /// Returns true if the client has closed its side and has all answers.
    pub fn is_over(&self) -> bool {
        self.has_ended && self.waiting == 0 && self.unsent.is_empty()
    }

    /// Reads the bytes that have arrived, at most as many as fit into the buffer.
    pub fn fill(&mut self, buffer: &mut [u8]) -> Result<(), Over> {
        if self.has_ended || !self.has_room() {
            return Ok(());
        }
        match self.stream.read(buffer) {
            Ok(0) => self.has_ended = true,
            Ok(length) => self.frames.push(&buffer[..length]),
            Err(e) if is_passing(&e) => {}
            Err(_) => return Err(Over),
        }
        Ok(())
    }

    /// Returns the next whole question; `None` if there is none, or if too many questions or answers wait.
    pub fn next_question(&mut self, now: Moment) -> Result<Option<Vec<u8>>, Over> {
        if !self.has_room() {
            return Ok(None);
        }
        let question = self.frames.take().map_err(|_| Over)?;
        if question.is_some() {
            self.until = now + IDLE;
            self.waiting += 1;
        }
        Ok(question)
    }

    /// Queues the answer to a question, and sends as many queued bytes as the client takes now. If `answer` is `None`,
    /// the question gets no answer.
    pub fn answer(&mut self, answer: Option<&[u8]>, now: Moment) -> Result<(), Over> {
        self.waiting = self.waiting.saturating_sub(1);
        if let Some(answer) = answer {
            self.unsent.extend(framed(answer).ok_or(Over)?);
        }
        self.flush(now)?;
        match self.unsent.len() <= FAR_TOO_MUCH_UNREAD {
            true => Ok(()),
            false => Err(Over),
        }
    }

    /// Sends as many queued bytes as the client takes now.
    pub fn flush(&mut self, now: Moment) -> Result<(), Over> {
        let mut sent = 0;
        while sent < self.unsent.len() {
            match self.stream.write(&self.unsent[sent..]) {
                Ok(length) => sent += length,
                Err(e) if is_passing(&e) => break,
                Err(_) => return Err(Over),
            }
        }
        if sent > 0 {
            self.unsent.drain(..sent);
            self.until = now + IDLE;
        }
        Ok(())
    }
}

fn is_passing(error: &io::Error) -> bool {
    [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind())
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
