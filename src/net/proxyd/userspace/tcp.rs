//! TCP connections of clients to services.
//!
//! Invariants: an endpoint that does not answer delays only its own client. Each connection is in the slab, and is
//! counted for its service port, until both its sockets are closed.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use nix::sys::epoll::EpollFlags;
use nix::sys::socket::SockType;

use super::connection::{ATTEMPTS, Connection, Next, Wait};
use super::dial::is_shortage;
use super::pipes::Pipes;
use super::pools::fingerprint;
use super::shared::Shared;
use super::sockets;
use super::transfer::{Direction, SCRATCH, Tools};
use crate::base::clock::Moment;
use crate::net::proxyd::message::Clients;
use crate::net::proxyd::poller::{Poller, Token};
use crate::net::proxyd::slab::{Key, Queue, Slab};

/// The events of a connection's sockets. The events are edge-triggered, so each event is reported once.
const EVENTS: EpollFlags = EpollFlags::EPOLLIN
    .union(EpollFlags::EPOLLOUT)
    .union(EpollFlags::EPOLLRDHUP)
    .union(EpollFlags::EPOLLET);

/// A socket of a connection: the client's or the endpoint's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The client's socket.
    Client,
    /// The endpoint's socket.
    Backend,
}

/// A client that was accepted.
pub struct Newcomer {
    /// The client's socket.
    pub socket: OwnedFd,
    /// The client's address.
    pub address: IpAddr,
    /// The kind of client. The choice of an endpoint depends on this kind.
    pub clients: Clients,
    /// The key of the service port.
    pub port: Key,
    /// The key of the service's address, if the address must be kept while there are connections.
    pub claimed: Option<Key>,
}

/// The TCP connections of clients to services.
pub struct Tcp {
    connections: Slab<Connection>,
    queues: [Queue; Wait::QUEUES],
    again: VecDeque<Key>,
    scratch: Vec<u8>,
    pipes: Pipes,
    token: fn(Side, Key) -> Token,
}

impl Tcp {
    /// Makes the state without connections. `token` makes the token of each socket.
    pub fn new(token: fn(Side, Key) -> Token) -> Self {
        Self {
            connections: Slab::default(),
            queues: Default::default(),
            again: VecDeque::new(),
            scratch: vec![0; SCRATCH],
            pipes: Pipes::default(),
            token,
        }
    }

    /// Returns the number of connections.
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Returns true if there is no connection.
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Returns true if an accepted connection waits for descriptors. In this case new clients must wait, because they
    /// would take the descriptors away.
    pub fn is_short(&self) -> bool {
        let queue = &self.queues[Wait::Descriptors(0).queue()];
        self.connections.first(queue).is_some()
    }

    /// Begins a connection, and connects it to an endpoint.
    pub fn begin(&mut self, new: Newcomer, shared: &mut Shared, now: Moment, poller: &Poller) {
        shared.count_in(new.port, new.claimed);
        let key = self.connections.insert(Connection {
            client: new.socket,
            backend: None,
            address: new.address,
            clients: new.clients,
            port: new.port,
            claimed: new.claimed,
            tried: [0; ATTEMPTS.len()],
            open: false,
            again: false,
            wait: None,
            since: now,
            up: Direction::default(),
            down: Direction::default(),
        });
        let added = self.connections.get(key).map(|c| {
            let token = (self.token)(Side::Client, key);
            poller.add(&c.client, token, EVENTS)
        });
        match added {
            Some(Ok(())) => self.dial(key, 0, shared, now, poller),
            _ => self.end(key, true, shared),
        }
    }

    /// Tries one endpoint after another, beginning with the attempt `first`, until a connect is under way.
    fn dial(&mut self, key: Key, first: u8, shared: &mut Shared, now: Moment, poller: &Poller) {
        for attempt in first..ATTEMPTS.len() as u8 {
            let Some(c) = self.connections.get_mut(key) else {
                return;
            };
            let tried = &c.tried[..usize::from(attempt)];
            let next = shared.pools.next(c.port, c.clients, c.address, tried, now);
            let Some(backend) = next else { break };
            c.tried[usize::from(attempt)] = fingerprint(&backend);
            shared.metrics.retries += u64::from(attempt > 0);
            let dialed = shared.namespaces.dial(&backend, SockType::Stream);
            let dialed = dialed.and_then(|socket| {
                poller.add(&socket, (self.token)(Side::Backend, key), EVENTS)?;
                Ok(socket)
            });
            let wait = match dialed {
                Ok(socket) => {
                    c.backend = Some(socket);
                    Wait::Endpoint(attempt)
                }
                Err(e) if is_shortage(e) => Wait::Descriptors(attempt),
                Err(_) => continue,
            };
            return self.wait(key, Some(wait), now);
        }
        shared.metrics.failed += 1;
        self.end(key, true, shared);
    }

    /// Moves a connection to the queue for the event `wait`, or out of all queues.
    fn wait(&mut self, key: Key, wait: Option<Wait>, now: Moment) {
        let Some(c) = self.connections.get_mut(key) else {
            return;
        };
        c.since = now;
        let old = std::mem::replace(&mut c.wait, wait);
        if let Some(old) = old {
            self.connections.dequeue(&mut self.queues[old.queue()], key);
        }
        if let Some(wait) = wait {
            self.connections
                .enqueue(&mut self.queues[wait.queue()], key);
        }
    }

    /// Handles the events of a connection's socket.
    pub fn ready(
        &mut self,
        (side, key): (Side, Key),
        events: EpollFlags,
        shared: &mut Shared,
        now: Moment,
        poller: &Poller,
    ) {
        let Some(c) = self.connections.get_mut(key) else {
            return;
        };
        let failed = events.intersects(EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP);
        match side {
            Side::Client => c.client_is(events),
            Side::Backend => c.backend_is(events),
        }
        match (c.open, side) {
            (true, _) => self.turn(key, shared, now),
            (false, Side::Client) if failed => self.end(key, true, shared),
            (false, Side::Client) => {}
            (false, Side::Backend) if failed => self.next_endpoint(key, shared, now, poller),
            (false, Side::Backend) => {
                c.open = true;
                self.wait(key, Some(Wait::Age), now);
                self.turn(key, shared, now);
            }
        }
    }

    /// Tries the next endpoint, after the last endpoint has refused or has not answered in time.
    fn next_endpoint(&mut self, key: Key, shared: &mut Shared, now: Moment, poller: &Poller) {
        let Some(c) = self.connections.get_mut(key) else {
            return;
        };
        c.backend = None;
        // The events of the last endpoint's socket say nothing about the socket of the next endpoint.
        c.down = Direction::default();
        let attempt = match c.wait {
            Some(Wait::Endpoint(attempt)) => attempt + 1,
            // No endpoint was tried for lack of descriptors, so the same attempt is made again.
            Some(Wait::Descriptors(attempt)) => attempt,
            _ => 0,
        };
        self.wait(key, None, now);
        self.dial(key, attempt, shared, now, poller);
    }

    fn turn(&mut self, key: Key, shared: &mut Shared, now: Moment) {
        let Some(c) = self.connections.get_mut(key) else {
            return;
        };
        let mut tools = Tools {
            scratch: &mut self.scratch,
            pipes: &mut self.pipes,
        };
        let before = (c.up.moved, c.down.moved, c.is_half_closed());
        let next = c.turn(&mut tools);
        let (up, down) = (c.up.moved - before.0, c.down.moved - before.1);
        shared.metrics.bytes_to_endpoints += up;
        shared.metrics.bytes_to_clients += down;
        let half_closed = c.is_half_closed();
        if next == Next::Again && !c.again {
            c.again = true;
            self.again.push_back(key);
        }
        match next {
            Next::Finish => self.end(key, false, shared),
            Next::Break => {
                shared.metrics.broken += 1;
                self.end(key, true, shared);
            }
            // The limit counts from the last byte that was moved.
            _ if half_closed && (!before.2 || up + down > 0) => {
                self.wait(key, Some(Wait::SecondEnd), now);
            }
            Next::Wait | Next::Again => {}
        }
    }

    /// Ends a connection and closes both sockets. If `reset` is true, both sides get a reset.
    fn end(&mut self, key: Key, reset: bool, shared: &mut Shared) {
        self.wait(key, None, Moment::default());
        let Some(mut c) = self.connections.remove(key) else {
            return;
        };
        let mut tools = Tools {
            scratch: &mut self.scratch,
            pipes: &mut self.pipes,
        };
        c.up.stop(&mut tools);
        c.down.stop(&mut tools);
        if reset {
            sockets::reset_on_close(&c.client);
            c.backend.iter().for_each(sockets::reset_on_close);
        }
        shared.count_out(c.port, c.claimed);
    }

    /// Returns the moment at which [`Self::expire`] must be called; `None` if no connection has a time limit.
    pub fn deadline(&self) -> Option<Moment> {
        if !self.again.is_empty() {
            return Some(Moment::default());
        }
        Wait::all()
            .filter_map(|wait| Some(self.first_of(wait)?.1))
            .min()
    }

    /// Returns the connection that has waited longest for the event `wait`, and the moment at which this wait must end;
    /// `None` if no connection waits for the event.
    fn first_of(&self, wait: Wait) -> Option<(Key, Moment)> {
        let key = self.connections.first(&self.queues[wait.queue()])?;
        let since = self.connections.get(key)?.since;
        Some((key, since + wait.limit()))
    }

    /// Goes on with connections that have more to do, and ends waits that have taken too long.
    pub fn expire(&mut self, shared: &mut Shared, now: Moment, poller: &Poller) {
        for _ in 0..self.again.len() {
            let Some(key) = self.again.pop_front() else {
                break;
            };
            if let Some(c) = self.connections.get_mut(key) {
                c.again = false;
                self.turn(key, shared, now);
            }
        }
        for wait in Wait::all() {
            while let Some((key, limit)) = self.first_of(wait)
                && limit <= now
            {
                self.waited(key, wait, shared, now, poller);
            }
        }
    }

    fn waited(&mut self, key: Key, wait: Wait, shared: &mut Shared, now: Moment, poller: &Poller) {
        match wait {
            Wait::Endpoint(_) | Wait::Descriptors(_) => {
                self.next_endpoint(key, shared, now, poller)
            }
            Wait::Age => {
                self.wait(key, None, now);
                if let Some(c) = self.connections.get(key) {
                    [Some(&c.client), c.backend.as_ref()]
                        .into_iter()
                        .flatten()
                        .for_each(sockets::keep_alive);
                }
            }
            Wait::SecondEnd => {
                shared.metrics.lingered += 1;
                self.end(key, true, shared);
            }
        }
    }
}
