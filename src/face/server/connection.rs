//! A connection between requests: it reads the next head, and sends answers that need no thread.
//!
//! Invariants: nothing blocks. A connection keeps at most its door's limit of a head, has [`HEAD_TIME`] for it, and lives at
//! most [`IDLE`] without one.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::poll::PollFlags;

use super::access::Door;
use super::request::{self, BadHead, Request};
use super::response;
use super::transport::Transport;
use crate::base::clock::Moment;

/// Time for the head of a request, from its first byte or, for the first request, from the connection.
pub const HEAD_TIME: Duration = Duration::from_secs(5);
/// Time until the next request of a connection begins (11.1).
pub const IDLE: Duration = Duration::from_secs(90);
/// Time for an answer that needs no thread, and for what a client still sends after it.
const SHORT_ANSWER: Duration = Duration::from_secs(5);

/// The largest head of a request (11.1).
pub const MAX_HEAD: usize = 1 << 20;
/// The largest head in bytes where only health is asked for.
const MAX_HEALTH_HEAD: usize = 4096;
/// Bytes of a head that each connection may always keep; beyond them the heads of all share a pool. A TCP client that has
/// shown no certificate may send no more: with more, anybody could fill the pool, and keep the reading thread busy.
pub const FREE_HEAD: usize = 16 << 10;
/// Bytes that a client may send after its answer and that nobody uses, for example a body. The connection takes them,
/// because a reset could overtake the answer.
const MAX_LEFT: usize = 64 << 10;
/// Bytes read at once.
const CHUNK: usize = 16 << 10;

/// The answer to older clients, in the form that they read.
const OLD_CLIENT: &str = "{\"error\":\"this daemon speaks HTTP on its socket: use the podprobe program of its version, or curl --unix-socket\"}\n";

/// A client that no thread serves now.
pub struct Connection {
    transport: Transport,
    door: Door,
    /// Bytes that have come and belong to no request yet.
    buffer: Vec<u8>,
    /// Bytes of the buffer that were looked at.
    seen: usize,
    until: Moment,
    /// The moment at which the connection last came or went on.
    active: Moment,
    origin: Option<Origin>,
    /// True once the client has shown a token that is known.
    is_proven: bool,
    step: Step,
}

/// Where clients come from that count as one: an IPv4 address, or the network of an IPv6 address, in which one machine may
/// have any number of addresses. On the link each address counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin(Ipv6Addr);

impl Origin {
    /// Returns the origin to which a client's address belongs.
    pub fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) if v6.is_unicast_link_local() => v6,
            IpAddr::V6(v6) => (v6.to_bits() >> 64 << 64).into(),
        })
    }
}

enum Step {
    Reads,
    /// An answer, how much of it is sent, and whether the connection goes on after it.
    Writes(Vec<u8>, usize, bool),
    /// The answer is sent; how much has come since.
    Drains(usize),
}

/// The outcome of a step.
pub enum Then {
    /// The client must act first.
    Waits,
    /// The connection is over.
    Over,
    /// The client asks, and waits for an answer.
    Asks(Box<Request>),
}

impl Connection {
    /// A client that has just come.
    pub fn new(transport: Transport, door: Door, now: Moment) -> Self {
        Self {
            origin: transport.peer().map(|peer| Origin::of(peer.ip())),
            is_proven: false,
            transport,
            door,
            buffer: Vec::new(),
            seen: 0,
            until: now + HEAD_TIME,
            active: now,
            step: Step::Reads,
        }
    }

    /// A client whose request was answered; `buffer` is what it has sent since.
    pub fn returned(transport: Transport, door: Door, buffer: Vec<u8>, now: Moment) -> Self {
        Self {
            origin: transport.peer().map(|peer| Origin::of(peer.ip())),
            is_proven: door == Door::Main,
            transport,
            door,
            until: next_head(&buffer, now),
            buffer,
            seen: 0,
            active: now,
            step: Step::Reads,
        }
    }

    /// Returns the door at which the client came in.
    pub fn door(&self) -> Door {
        self.door
    }

    /// The stream below.
    pub fn transport(&self) -> &Transport {
        &self.transport
    }

    /// The stream, and what has come of the body.
    pub fn into_parts(self) -> (Transport, Vec<u8>) {
        (self.transport, self.buffer)
    }

    /// The descriptor to wait for, and for what.
    pub fn waits_for(&self) -> (BorrowedFd<'_>, PollFlags) {
        let events = match self.step {
            Step::Writes(..) => PollFlags::POLLOUT,
            Step::Reads | Step::Drains(_) => self.transport.events(),
        };
        (self.transport.as_fd(), events)
    }

    /// Returns the moment at which the connection's time is over.
    pub fn until(&self) -> Moment {
        self.until
    }

    /// Returns the moment at which the connection last came or went on.
    pub fn active(&self) -> Moment {
        self.active
    }

    /// Returns where the client comes from; None on the unix socket.
    pub fn origin(&self) -> Option<Origin> {
        self.origin
    }

    /// True if the client has shown a certificate or a token that is known.
    pub fn is_known(&self) -> bool {
        self.is_proven || !self.transport.certificates().is_empty()
    }

    /// Notes that the client has shown a token that is known.
    pub fn prove(&mut self) {
        self.is_proven = true;
    }

    #[cfg(test)]
    pub(super) fn come_from(&mut self, address: &str) {
        self.origin = Some(Origin::of(address.parse().unwrap()));
    }

    /// True while an answer is on its way. Such a connection gives way to nobody.
    pub fn is_answered(&self) -> bool {
        matches!(self.step, Step::Writes(..))
    }

    /// Returns how many bytes the connection keeps beyond what every connection may keep.
    pub fn pooled(&self) -> usize {
        self.buffer.len().saturating_sub(FREE_HEAD)
    }

    /// Sends an answer and then goes on, or ends.
    pub fn answer(&mut self, bytes: Vec<u8>, goes_on: bool, now: Moment) {
        self.until = now + SHORT_ANSWER;
        self.step = Step::Writes(bytes, 0, goes_on);
    }

    /// Refuses what the client sends, and ends.
    pub fn refuse(&mut self, bad: &BadHead, now: Moment) {
        let bytes = response::whole(
            bad.status,
            response::TEXT,
            &(bad.text.clone() + "\n"),
            false,
        );
        self.buffer = Vec::new();
        self.answer(bytes, false, now);
    }

    /// Goes on as far as it can without waiting.
    pub fn advance(&mut self, now: Moment) -> Then {
        self.active = now;
        loop {
            let next = match &mut self.step {
                Step::Reads => self.read(now),
                Step::Writes(..) => self.write(now),
                Step::Drains(_) => self.drain(),
            };
            if let Some(then) = next {
                return then;
            }
        }
    }

    fn limit(&self) -> usize {
        match self.door {
            Door::Health => MAX_HEALTH_HEAD,
            Door::ReadOnly => FREE_HEAD,
            Door::Main if self.transport.certificates().is_empty() => FREE_HEAD,
            Door::Unix | Door::Main => MAX_HEAD,
        }
    }

    fn read(&mut self, now: Moment) -> Option<Then> {
        if self.door == Door::Unix && self.buffer.first() == Some(&b'{') {
            self.buffer = Vec::new();
            self.answer(OLD_CLIENT.into(), false, now);
            return None;
        }
        match request::read(&self.buffer, self.seen) {
            Ok(Some((request, length))) => {
                self.buffer.drain(..length);
                self.seen = 0;
                return Some(Then::Asks(Box::new(request)));
            }
            Ok(None) if self.buffer.len() >= self.limit() => {
                self.refuse(&BadHead::too_large(self.limit()), now);
                return None;
            }
            Ok(None) => {}
            Err(bad) => {
                self.refuse(&bad, now);
                return None;
            }
        }
        self.seen = self.buffer.len();
        let mut chunk = [0; CHUNK];
        let room = CHUNK.min(self.limit() - self.buffer.len());
        match self.transport.read(&mut chunk[..room]) {
            Ok(0) => Some(Then::Over),
            Ok(n) => {
                if self.buffer.is_empty() {
                    self.until = self.until.min(now + HEAD_TIME);
                }
                self.buffer.extend_from_slice(&chunk[..n]);
                None
            }
            Err(e) => waits(&e),
        }
    }

    fn write(&mut self, now: Moment) -> Option<Then> {
        let Step::Writes(bytes, sent, goes_on) = &mut self.step else {
            return None;
        };
        if *sent < bytes.len() {
            return match self.transport.write(&bytes[*sent..]) {
                Ok(n) => {
                    *sent += n;
                    None
                }
                Err(e) => waits(&e),
            };
        }
        if let Err(e) = self.transport.flush() {
            return waits(&e);
        }
        if *goes_on {
            self.until = next_head(&self.buffer, now);
            self.step = Step::Reads;
        } else {
            self.transport.close();
            self.step = Step::Drains(0);
        }
        None
    }

    fn drain(&mut self) -> Option<Then> {
        let Step::Drains(left) = &mut self.step else {
            return None;
        };
        let mut chunk = [0; CHUNK];
        match self.transport.read(&mut chunk) {
            Ok(0) => Some(Then::Over),
            Ok(n) => {
                *left += n;
                (*left > MAX_LEFT).then_some(Then::Over)
            }
            Err(e) => waits(&e),
        }
    }
}

/// Returns the moment by which the next head must have come, of which `begun` has come already.
fn next_head(begun: &[u8], now: Moment) -> Moment {
    now + if begun.is_empty() { IDLE } else { HEAD_TIME }
}

/// Returns what follows from an error of the stream; None means to try at once again.
fn waits(e: &std::io::Error) -> Option<Then> {
    match e.kind() {
        ErrorKind::WouldBlock => Some(Then::Waits),
        ErrorKind::Interrupted => None,
        _ => Some(Then::Over),
    }
}

#[cfg(test)]
mod tests;
