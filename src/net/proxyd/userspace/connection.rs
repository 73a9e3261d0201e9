//! One TCP connection of a client, with the one to its endpoint.
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

/// How long each endpoint that is tried may take.
pub const ATTEMPTS: [Duration; 4] = [
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];

/// What a connection waits for with a time limit; the index of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// That an endpoint answers: the attempt.
    Endpoint(u8),
    /// That there are descriptors for a socket to an endpoint: the attempt.
    Descriptors(u8),
    /// That it gets old, and its ends are watched.
    Age,
    /// That its second half ends, too.
    SecondEnd,
}

impl Wait {
    /// How many queues there are.
    pub const QUEUES: usize = ATTEMPTS.len() + 3;

    /// All of them, in the order of their queues.
    pub fn all() -> impl Iterator<Item = Self> {
        let endpoints = (0..ATTEMPTS.len() as u8).map(Self::Endpoint);
        endpoints.chain([Self::Descriptors(0), Self::Age, Self::SecondEnd])
    }

    /// Its queue.
    pub fn queue(self) -> usize {
        match self {
            Self::Endpoint(attempt) => attempt.into(),
            Self::Descriptors(_) => ATTEMPTS.len(),
            Self::Age => ATTEMPTS.len() + 1,
            Self::SecondEnd => ATTEMPTS.len() + 2,
        }
    }

    /// How long it waits.
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
    /// To the client.
    pub client: OwnedFd,
    /// To the endpoint; None between two attempts.
    pub backend: Option<OwnedFd>,
    /// The client's.
    pub address: IpAddr,
    /// Whose endpoints it gets.
    pub clients: Clients,
    /// The service port.
    pub port: Key,
    /// The address of the service, if it must be kept for this connection.
    pub claimed: Option<Key>,
    /// Fingerprints of the endpoints that were tried; 0 is none.
    pub tried: [u32; ATTEMPTS.len()],
    /// The endpoint has answered.
    pub open: bool,
    /// It is to be looked at again without an event.
    pub again: bool,
    /// What it waits for.
    pub wait: Option<Wait>,
    /// Since when.
    pub since: Moment,
    /// From the client to the endpoint.
    pub up: Direction,
    /// And back.
    pub down: Direction,
}

/// What is to be done with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It waits for events.
    Wait,
    /// It goes on after others.
    Again,
    /// Both halves have ended.
    Finish,
    /// One end was reset.
    Break,
}

impl Connection {
    /// Events of the client's socket.
    pub fn client_is(&mut self, events: EpollFlags) {
        self.up.source_is(events);
        self.down.destination_is(events);
    }

    /// Events of the endpoint's socket.
    pub fn backend_is(&mut self, events: EpollFlags) {
        self.down.source_is(events);
        self.up.destination_is(events);
    }

    /// Moves what can be moved in both directions.
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

    /// Exactly one half has ended.
    pub fn is_half_closed(&self) -> bool {
        self.up.is_closed() != self.down.is_closed()
    }
}
