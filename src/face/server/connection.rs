//! A connection between two requests. The connection reads the next head, and sends answers that need no thread.
//!
//! Invariants: nothing blocks. A connection keeps no more bytes of a head than its listener allows. A connection has
//! [`HEAD_TIME`] for a head, and lives at most [`IDLE`] without a request.

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

/// The longest time for the head of a request. The time is counted from the first byte of the head. For the first
/// request, the time is counted from the start of the connection.
pub const HEAD_TIME: Duration = Duration::from_secs(5);
/// The longest time until the next request of a connection begins (11.1).
pub const IDLE: Duration = Duration::from_secs(90);
/// The longest time to send an answer that needs no thread, and then to read the bytes that the client still sends.
const SHORT_ANSWER: Duration = Duration::from_secs(5);

/// Largest head of a request in bytes (11.1).
pub const MAX_HEAD: usize = 1 << 20;
/// Largest head of a request in bytes at the listener that answers health only.
const MAX_HEALTH_HEAD: usize = 4096;
/// Number of bytes of a head that each connection may always keep. Further bytes come out of a pool that all
/// connections share. A TCP client that has shown no certificate may not send a larger head than this number of bytes.
/// Otherwise anybody could fill the pool and keep the reading thread busy.
pub const FREE_HEAD: usize = 16 << 10;
/// Number of bytes, for example of a body, that a client may still send after its last answer. The connection reads
/// these bytes and throws them away, because closing at once could send a reset that overtakes the answer.
const MAX_LEFT: usize = 64 << 10;
/// Number of bytes that one read takes.
const CHUNK: usize = 16 << 10;

/// The answer to clients of older versions, in the JSON form that they read.
const OLD_CLIENT: &str = "{\"error\":\"this daemon speaks HTTP on its socket: use the podprobe program of its version, or curl --unix-socket\"}\n";

/// The connection of a client that no worker thread is serving now.
pub struct Connection {
    transport: Transport,
    door: Door,
    /// Bytes that have arrived and belong to no request yet.
    buffer: Vec<u8>,
    /// Number of bytes of the buffer that were searched for the end of the head.
    seen: usize,
    until: Moment,
    /// The moment at which the client connected, or at which the connection was last served.
    active: Moment,
    origin: Option<Origin>,
    /// True once the client has shown a valid certificate or token on the main port.
    is_proven: bool,
    step: Step,
}

/// The place that clients come from. All clients of one origin count as one machine. An origin is an IPv4 address, or
/// the /64 network of an IPv6 address, because one machine may have any number of addresses in its network. Each
/// link-local address is a separate origin.
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
    /// Sends an answer: its bytes, the number of bytes sent, and true if the connection goes on after the answer.
    Writes(Vec<u8>, usize, bool),
    /// The last answer is sent. The number counts the bytes that have arrived since, and that are thrown away.
    Drains(usize),
}

/// The outcome of a step of a connection.
pub enum Then {
    /// The connection waits until the client sends or reads something.
    Waits,
    /// The connection is over.
    Over,
    /// The client has sent a request, and waits for an answer.
    Asks(Box<Request>),
}

impl Connection {
    /// Makes the connection of a client that has just connected.
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

    /// Makes the connection of a client after a thread has answered its request. `buffer` has the bytes that the
    /// client has sent since.
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

    /// Makes the connection of a client that has no rights, or not enough. It ends with `answer`.
    pub fn refused(transport: Transport, door: Door, answer: Vec<u8>, now: Moment) -> Self {
        let mut connection = Self::new(transport, door, now);
        connection.answer(answer, false, now);
        connection
    }

    /// Returns the listener at which the client came in.
    pub fn door(&self) -> Door {
        self.door
    }

    /// Returns the stream that leads to the client.
    pub fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Returns the stream that leads to the client, and the bytes of the body that have already arrived.
    pub fn into_parts(self) -> (Transport, Vec<u8>) {
        (self.transport, self.buffer)
    }

    /// Returns the descriptor to wait for, and the events to wait for.
    pub fn waits_for(&self) -> (BorrowedFd<'_>, PollFlags) {
        let events = match self.step {
            Step::Writes(..) => PollFlags::POLLOUT,
            Step::Reads | Step::Drains(_) => self.transport.events(),
        };
        (self.transport.as_fd(), events)
    }

    /// Returns the moment at which the connection runs out of time.
    pub fn until(&self) -> Moment {
        self.until
    }

    /// Returns the moment at which the client connected, or at which the connection was last served.
    pub fn active(&self) -> Moment {
        self.active
    }

    /// Returns the origin of the client; None on the unix socket.
    pub fn origin(&self) -> Option<Origin> {
        self.origin
    }

    /// Returns true if the client has shown a certificate, or a token that is valid.
    pub fn is_known(&self) -> bool {
        self.is_proven || !self.transport.certificates().is_empty()
    }

    /// Notes that the client has shown a valid certificate or token.
    pub fn prove(&mut self) {
        self.is_proven = true;
    }

    #[cfg(test)]
    pub(super) fn come_from(&mut self, address: &str) {
        self.origin = Some(Origin::of(address.parse().unwrap()));
    }

    /// Returns true while an answer is being sent. Such a connection is not dropped for a new client.
    pub fn is_answered(&self) -> bool {
        matches!(self.step, Step::Writes(..))
    }

    /// Returns the number of bytes that the connection keeps beyond [`FREE_HEAD`].
    pub fn pooled(&self) -> usize {
        self.buffer.len().saturating_sub(FREE_HEAD)
    }

    /// Begins to send an answer. If `goes_on` is true, the connection reads the next request afterwards. Otherwise the
    /// connection ends after the answer.
    pub fn answer(&mut self, bytes: Vec<u8>, goes_on: bool, now: Moment) {
        self.until = now + SHORT_ANSWER;
        self.step = Step::Writes(bytes, 0, goes_on);
    }

    /// Answers a request with a bad head with the error `bad`. The connection ends after this answer.
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

    /// Reads and writes as far as is possible without waiting.
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

/// Returns the moment by which the next head must have arrived. `begun` has the bytes of that head that have arrived.
fn next_head(begun: &[u8], now: Moment) -> Moment {
    now + if begun.is_empty() { IDLE } else { HEAD_TIME }
}

/// Returns the outcome that an error of the stream leads to; None means to try again at once.
fn waits(e: &std::io::Error) -> Option<Then> {
    match e.kind() {
        ErrorKind::WouldBlock => Some(Then::Waits),
        ErrorKind::Interrupted => None,
        _ => Some(Then::Over),
    }
}

#[cfg(test)]
mod tests;
