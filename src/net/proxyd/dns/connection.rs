//! A client's TCP connection: questions one after the other, answers as they come (RFC 7766).
//!
//! Invariants: what it keeps is bounded. A client that does not read its answers, or has many questions waiting, is not read
//! from. It lives for [`IDLE`] after its last whole question or answer, however many single bytes it sends.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::sys::epoll::EpollFlags;

use crate::base::clock::Moment;

use super::frames::{Frames, framed};

/// How long a connection may be idle.
pub const IDLE: Duration = Duration::from_secs(10);
/// The largest question: a name, EDNS and a signature are far below.
const LARGEST_QUESTION: usize = 4096;
/// How many questions may wait for other resolvers.
const MOST_WAITING: usize = 8;
/// Bytes that may wait for the client while the connection is still read from.
const MOST_UNREAD: usize = 16 * 1024;
/// Bytes that may wait for the client at all: a few of the largest answers, to questions that it asked before.
const FAR_TOO_MUCH_UNREAD: usize = 192 * 1024;

/// The connection is over: broken, or against the rules.
#[derive(Debug)]
pub struct Over;

/// See the module.
pub struct Connection {
    stream: TcpStream,
    /// The client's address.
    pub from: IpAddr,
    /// When the connection has done nothing for too long.
    pub until: Moment,
    /// The events for which the poller watches the connection.
    pub interest: EpollFlags,
    frames: Frames,
    unsent: Vec<u8>,
    waiting: usize,
    has_ended: bool,
}

impl Connection {
    /// Returns the connection of a stream that has just been accepted. The stream does not block.
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

    /// True if every question that has begun to come has been answered.
    pub fn is_quiet(&self) -> bool {
        let nothing_waits = self.waiting == 0 && self.unsent.is_empty();
        nothing_waits && self.frames.is_empty() && !self.has_ended
    }

    /// Returns the stream of the connection, for another process.
    pub fn into_stream(self) -> TcpStream {
        self.stream
    }

    fn has_room(&self) -> bool {
        self.waiting < MOST_WAITING && self.unsent.len() < MOST_UNREAD
    }

    /// Returns the events for which the connection waits.
    pub fn wants(&self) -> EpollFlags {
        let mut wants = EpollFlags::empty();
        wants.set(EpollFlags::EPOLLIN, self.has_room() && !self.has_ended);
        wants.set(EpollFlags::EPOLLOUT, !self.unsent.is_empty());
        wants
    }

    /// True if the client has asked its last question and has all answers.
    pub fn is_over(&self) -> bool {
        self.has_ended && self.waiting == 0 && self.unsent.is_empty()
    }

    /// Reads the bytes that have come, at most a buffer full.
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

    /// Returns the next question that has come whole, or `None` if there is none or too much waits.
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

    /// Adds the answer to a question to what is sent. With `None` the question gets no answer.
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

    /// Sends what the client takes now.
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
