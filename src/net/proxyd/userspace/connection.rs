//! A client's TCP connection, with the connection to its endpoint.
//!
//! Invariants: what the client sends stays in its socket until an endpoint has answered.

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use nix::sys::epoll::EpollFlags;

use super::transfer::{Direction, Tools, Turn};
use crate::base::clock::Moment;
use crate::net::proxyd::message::Clients;
use crate::net::proxyd::slab::Key;

/// How long each endpoint that is tried may take to answer, one limit for each attempt.
pub const ATTEMPTS: [Duration; 4] = [
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];

/// Event for which a connection waits with a time limit. Each kind has a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The answer of an endpoint, at this attempt.
    Endpoint(u8),
    /// Descriptors for a socket to an endpoint, at this attempt.
    Descriptors(u8),
    /// The age from which the ends of the connection are watched.
    Age,
    /// The end of the connection's second half.
    SecondEnd,
}

impl Wait {
    /// How many queues there are.
    pub const QUEUES: usize = ATTEMPTS.len() + 3;

    /// Returns all kinds of waits, in the order of their queues.
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

    /// Returns how long the connection waits at most.
    pub fn limit(self) -> Duration {
        match self {
            Self::Endpoint(attempt) => ATTEMPTS[usize::from(attempt)],
            // Less than listeners pause: it is its turn before others are taken.
            Self::Descriptors(_) => Duration::from_millis(40),
            Self::Age => Duration::from_secs(30),
            Self::SecondEnd => Duration::from_secs(60),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Connection {
    /// The socket to the client.
    pub client: OwnedFd,
    /// The socket to the endpoint; `None` between two attempts.
    pub backend: Option<OwnedFd>,
    /// The client's address.
    pub address: IpAddr,
    /// The kind of client, by which its endpoints are chosen.
    pub clients: Clients,
    /// The service port.
    pub port: Key,
    /// The address of the service, if it must be kept for this connection.
    pub claimed: Option<Key>,
    /// Fingerprints of the endpoints that were tried; 0 is none.
    pub tried: [u32; ATTEMPTS.len()],
    /// True if the endpoint has answered.
    pub open: bool,
    /// True if the connection is to be looked at again without an event.
    pub again: bool,
    /// The event for which the connection waits with a time limit.
    pub wait: Option<Wait>,
    /// When that wait began.
    pub since: Moment,
    /// The direction from the client to the endpoint.
    pub up: Direction,
    /// The direction from the endpoint to the client.
    pub down: Direction,
}

/// Next step for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Wait for events.
    Wait,
    /// Go on after other connections.
    Again,
    /// End the connection, because both halves have ended.
    Finish,
    /// Reset the connection, because an end was reset.
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

    /// Moves the bytes that can be moved in both directions.
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

    /// True if exactly one half has ended.
    pub fn is_half_closed(&self) -> bool {
        self.up.is_closed() != self.down.is_closed()
    }
}
