//! A client's TCP connection, with the connection to its endpoint.
//!
//! Invariants: the bytes that the client sends stay in its socket until an endpoint has answered.

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use nix::sys::epoll::EpollFlags;

use super::transfer::{Direction, Tools, Turn};
use crate::base::clock::Moment;
use crate::net::proxyd::message::Clients;
use crate::net::proxyd::slab::Key;

/// The longest time that an endpoint may take to answer, for each attempt.
pub const ATTEMPTS: [Duration; 4] = [
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];

/// The event for which a connection waits with a time limit. Each kind of event has a queue of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The answer of an endpoint. The number is that of the attempt.
    Endpoint(u8),
    /// Free descriptors for a socket to an endpoint. The number is that of the attempt.
    Descriptors(u8),
    /// The age from which on TCP keep-alive watches both ends of the connection.
    Age,
    /// The end of the second direction, after the first direction has ended.
    SecondEnd,
}

impl Wait {
    /// The number of queues.
    pub const QUEUES: usize = ATTEMPTS.len() + 3;

    /// Returns all kinds of events, in the order of their queues.
    pub fn all() -> impl Iterator<Item = Self> {
        let endpoints = (0..ATTEMPTS.len() as u8).map(Self::Endpoint);
        endpoints.chain([Self::Descriptors(0), Self::Age, Self::SecondEnd])
    }

    /// Returns the index of the queue.
    pub fn queue(self) -> usize {
        match self {
            Self::Endpoint(attempt) => attempt.into(),
            Self::Descriptors(_) => ATTEMPTS.len(),
            Self::Age => ATTEMPTS.len() + 1,
            Self::SecondEnd => ATTEMPTS.len() + 2,
        }
    }

    /// Returns the time limit of the wait.
    pub fn limit(self) -> Duration {
        match self {
            Self::Endpoint(attempt) => ATTEMPTS[usize::from(attempt)],
            // The limit is shorter than the pause of a listener, so that the connection gets descriptors before new
            // clients do.
            Self::Descriptors(_) => Duration::from_millis(40),
            Self::Age => Duration::from_secs(30),
            Self::SecondEnd => Duration::from_secs(60),
        }
    }
}

/// A client's TCP connection, with the connection to its endpoint.
#[derive(Debug)]
pub struct Connection {
    /// The socket to the client.
    pub client: OwnedFd,
    /// The socket to the endpoint; `None` between two attempts.
    pub backend: Option<OwnedFd>,
    /// The client's address.
    pub address: IpAddr,
    /// The kind of client. The choice of an endpoint depends on this kind.
    pub clients: Clients,
    /// The key of the service port.
    pub port: Key,
    /// The key of the service's address, if the address must be kept while there are connections.
    pub claimed: Option<Key>,
    /// Fingerprints of the endpoints that were tried; 0 means no endpoint.
    pub tried: [u32; ATTEMPTS.len()],
    /// True once the endpoint has answered.
    pub open: bool,
    /// True if the connection must be served again even without an event.
    pub again: bool,
    /// The event for which the connection waits with a time limit; None if the connection waits without a limit.
    pub wait: Option<Wait>,
    /// The moment at which the wait with a time limit began.
    pub since: Moment,
    /// The direction from the client to the endpoint.
    pub up: Direction,
    /// The direction from the endpoint to the client.
    pub down: Direction,
}

/// The next step for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Wait for events.
    Wait,
    /// Serve the connection again after the other connections.
    Again,
    /// End the connection, because both directions have ended.
    Finish,
    /// Reset the connection, because one of its sockets was reset.
    Break,
}

impl Connection {
    /// Notes the events of the client's socket.
    pub fn client_is(&mut self, events: EpollFlags) {
        self.up.source_is(events);
        self.down.destination_is(events);
    }

    /// Notes the events of the endpoint's socket.
    pub fn backend_is(&mut self, events: EpollFlags) {
        self.down.source_is(events);
        self.up.destination_is(events);
    }

    /// Moves bytes in both directions, as far as is possible now.
    pub fn turn(&mut self, tools: &mut Tools<'_>) -> Next {
        let Some(backend) = &self.backend else {
            return Next::Wait;
        };
        let (client, backend) = (self.client.as_fd(), backend.as_fd());
        let up = self.up.turn(client, backend, self.down.is_closed(), tools);
        let down = self.down.turn(backend, client, self.up.is_closed(), tools);
        match (up, down) {
            _ if self.up.is_closed() && self.down.is_closed() => Next::Finish,
            (Turn::Failed, _) | (_, Turn::Failed) => Next::Break,
            (Turn::More, _) | (_, Turn::More) => Next::Again,
            (Turn::Waits, Turn::Waits) => Next::Wait,
        }
    }

    /// Returns true if exactly one direction has ended.
    pub fn is_half_closed(&self) -> bool {
        self.up.is_closed() != self.down.is_closed()
    }
}
