//! The connections of the health servers. Each connection has one request and one answer, and then ends.
//!
//! Invariants: no call blocks. There are at most [`MAX`] connections. Each connection lives for at most [`LIMIT`],
//! and keeps at most [`MAX_HEAD`] bytes from its client.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, SystemTime};

use nix::poll::PollFlags;

use super::Health;
use super::answer::{Asked, MAX_HEAD, question};
use crate::base::clock::Moment;

/// The largest number of connections. A further connection replaces the oldest connection. So idle clients do not
/// block other clients.
pub(super) const MAX: usize = 64;
/// The longest time for which a connection lives.
const LIMIT: Duration = Duration::from_secs(5);
/// The largest number of bytes that a client may send after the answer, for example as a body. The server reads
/// and discards these bytes, because unread bytes would cause a reset that could overtake the answer.
const MAX_LEFT: usize = 64 << 10;

/// The connection of a client.
pub(super) struct Connection {
    socket: TcpStream,
    asked: Asked,
    until: Moment,
    step: Step,
}

enum Step {
    /// The request is being read. The bytes are the part of its head that has arrived.
    Reads(Vec<u8>),
    /// The answer is being written. The number is the number of bytes of the answer that are sent.
    Writes(Vec<u8>, usize),
    /// Bytes that the client sends after the answer are being discarded. The number is the number of such bytes
    /// that have arrived.
    Drains(usize),
}

/// The outcome of a step of a connection.
enum Then {
    /// The connection continues with this step at once.
    Next(Step),
    /// The connection waits for the client.
    Waits,
    /// The connection has ended.
    Over,
}

impl Connection {
    pub(super) fn new(socket: TcpStream, asked: Asked, now: Moment) -> Self {
        Self {
            socket,
            asked,
            until: now + LIMIT,
            step: Step::Reads(Vec::new()),
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns the events of the client's socket for which the connection waits.
    pub(super) fn events(&self) -> PollFlags {
        match self.step {
            Step::Reads(_) | Step::Drains(_) => PollFlags::POLLIN,
            Step::Writes(..) => PollFlags::POLLOUT,
        }
    }

    /// Returns the time at which the server closes the connection.
    pub(super) fn until(&self) -> Moment {
        self.until
    }

    /// Advances the connection as far as possible without waiting. Returns false if the connection has ended.
    pub(super) fn advance(&mut self, health: &Health, now: Moment) -> bool {
        loop {
            let then = match &mut self.step {
                Step::Reads(head) => read(&mut self.socket, head, &self.asked, health, now),
                Step::Writes(answer, sent) => write(&mut self.socket, answer, sent),
                Step::Drains(left) => drain(&mut self.socket, left),
            };
            match then {
                Then::Next(step) => self.step = step,
                Then::Waits => return true,
                Then::Over => return false,
            }
        }
    }
}

fn read(
    socket: &mut TcpStream,
    head: &mut Vec<u8>,
    asked: &Asked,
    health: &Health,
    now: Moment,
) -> Then {
    let mut piece = [0; MAX_HEAD];
    let room = MAX_HEAD - head.len();
    let before = head.len();
    match socket.read(&mut piece[..room]) {
        Ok(0) => return Then::Over,
        Ok(n) => head.extend_from_slice(&piece[..n]),
        Err(e) => return after(&e),
    }
    match question(head, before) {
        Some(question) => {
            let answer = health.answer(asked, &question, now, SystemTime::now());
            Then::Next(Step::Writes(answer, 0))
        }
        None => Then::Next(Step::Reads(std::mem::take(head))),
    }
}

fn write(socket: &mut TcpStream, answer: &[u8], sent: &mut usize) -> Then {
    match socket.write(&answer[*sent..]) {
        Ok(0) => Then::Over,
        Ok(n) if *sent + n < answer.len() => {
            *sent += n;
            Then::Waits
        }
        Ok(_) => match socket.shutdown(Shutdown::Write) {
            Ok(()) => Then::Next(Step::Drains(0)),
            Err(_) => Then::Over,
        },
        Err(e) => after(&e),
    }
}

fn drain(socket: &mut TcpStream, left: &mut usize) -> Then {
    let mut piece = [0; MAX_HEAD];
    match socket.read(&mut piece) {
        Ok(0) => Then::Over,
        Ok(n) if *left + n > MAX_LEFT => Then::Over,
        Ok(n) => Then::Next(Step::Drains(*left + n)),
        Err(e) => after(&e),
    }
}

fn after(e: &std::io::Error) -> Then {
    match e.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => Then::Waits,
        _ => Then::Over,
    }
}
