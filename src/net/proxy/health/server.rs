//! The thread `proxy-health`: listens at the addresses of health checks, and answers clients.
//!
//! Invariants: the thread waits only in `poll`. A port that is in use is logged once, and the thread tries the
//! port again. A port that is in use does not affect the other ports.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::Health;
use super::answer::Asked;
use super::connections::{Connection, MAX};
use crate::base::clock::Moment;
use crate::base::threads::Roster;
use crate::base::wire::listen::{is_of_client, listener};

/// The time between two attempts to listen on a port that is in use.
const INTERVAL: Duration = Duration::from_secs(10);
/// The pause after accepting a connection has failed because no descriptors were left.
const PAUSE: Duration = Duration::from_secs(1);
const STACK: usize = 256 << 10;

/// Starts the thread `proxy-health`. The thread ends after [`Health::stop`].
///
/// # Errors
/// Returns an error if the thread cannot be started.
pub fn spawn(
    health: Arc<Health>,
    proxy: Option<SocketAddr>,
    roster: &Roster,
) -> io::Result<JoinHandle<()>> {
    let mut server = Server::new(health, proxy);
    roster.spawn("proxy-health", STACK, move |_, panicked| {
        if panicked {
            server.connections.clear();
        }
        server.rounds();
        ControlFlow::Break(())
    })
}

pub(super) struct Server {
    health: Arc<Health>,
    /// The address in `healthzBindAddress`.
    proxy: Option<SocketAddr>,
    listeners: BTreeMap<Asked, (SocketAddr, TcpListener)>,
    /// The health checks for which the thread cannot listen, each with the text that the log has.
    failed: BTreeMap<Asked, String>,
    /// The connections, oldest first.
    connections: Vec<Connection>,
    /// The time of the next attempt to listen on ports that were in use.
    retry: Option<Moment>,
    /// The end of the pause in which no connection is accepted, because no descriptors were left.
    rests: Option<Moment>,
}

impl Server {
    pub(super) fn new(health: Arc<Health>, proxy: Option<SocketAddr>) -> Self {
        Self {
            health,
            proxy,
            listeners: BTreeMap::new(),
            failed: BTreeMap::new(),
            connections: Vec::new(),
            retry: Some(Moment::now()),
            rests: None,
        }
    }

    fn rounds(&mut self) {
        while !self.health.is_stopped() {
            self.turn();
        }
    }

    /// Waits for clients, and serves the clients that are ready.
    pub(super) fn turn(&mut self) {
        self.turn_for(Duration::MAX);
    }

    /// Waits for clients, for at most `limit`, and serves the clients that are ready.
    pub(super) fn turn_for(&mut self, limit: Duration) {
        let now = Moment::now();
        if self.retry.is_some_and(|at| at <= now) {
            self.listen(now);
        }
        self.rests = self.rests.filter(|until| *until > now);
        let (is_woken, callers, ready) = self.wait(now, limit);
        let now = Moment::now();
        self.serve(&ready, now);
        for asked in callers {
            self.let_in(&asked, now);
        }
        if is_woken {
            self.listen(now);
        }
    }

    /// Waits until there is something to do. Returns three values: a flag that is true if the thread was woken
    /// because the ports may have changed, the health checks that have a new client, and the sockets of the
    /// connections that are ready.
    fn wait(&self, now: Moment, limit: Duration) -> (bool, Vec<Asked>, BTreeSet<i32>) {
        let mut fds = vec![PollFd::new(self.health.wake_fd(), PollFlags::POLLIN)];
        let listeners: Vec<_> = match self.rests {
            None => self.listeners.iter().collect(),
            Some(_) => Vec::new(),
        };
        let of_listeners = listeners.iter().map(|(_, (_, socket))| socket.as_fd());
        fds.extend(of_listeners.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        let connections = self.connections.iter();
        fds.extend(connections.map(|c| PollFd::new(c.fd(), c.events())));
        let left = self.next().map_or(limit, |at| at.since(now).min(limit));
        // The time is rounded up to milliseconds, the unit of `poll`. Waking too early would cause a busy
        // loop.
        let left = left.saturating_add(Duration::from_micros(999));
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        if poll(&mut fds, left).is_err() {
            return (false, Vec::new(), BTreeSet::new());
        }
        let is_ready = |fd: &PollFd<'_>| fd.revents().is_none_or(|events| !events.is_empty());
        let (of_listeners, of_connections) = fds[1..].split_at(listeners.len());
        let called = listeners.iter().zip(of_listeners);
        let called = called.filter(|(_, fd)| is_ready(fd));
        let ready = of_connections.iter().filter(|fd| is_ready(fd));
        (
            is_ready(&fds[0]),
            called.map(|((asked, _), _)| (*asked).clone()).collect(),
            ready.map(|fd| fd.as_fd().as_raw_fd()).collect(),
        )
    }

    fn next(&self) -> Option<Moment> {
        let connections = self.connections.iter().map(Connection::until);
        connections.chain(self.retry).chain(self.rests).min()
    }

    fn serve(&mut self, ready: &BTreeSet<i32>, now: Moment) {
        let health = &self.health;
        self.connections.retain_mut(|connection| {
            let is_ready = ready.contains(&connection.fd().as_raw_fd());
            connection.until() > now && (!is_ready || connection.advance(health, now))
        });
    }

    /// Accepts the waiting clients of a port, but at most [`MAX`] clients in one call.
    fn let_in(&mut self, asked: &Asked, now: Moment) {
        for _ in 0..MAX {
            let Some((_, listener)) = self.listeners.get(asked) else {
                return;
            };
            match listener.accept() {
                Ok((socket, _)) => {
                    let is_set = socket.set_nonblocking(true).is_ok();
                    let mut connection = Connection::new(socket, asked.clone(), now);
                    if is_set && connection.advance(&self.health, now) {
                        self.keep(connection);
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                // The error is only that a client has gone before its connection was accepted.
                Err(e) if is_of_client(&e) => {}
                Err(e) => {
                    log::debug!("cannot let in who asks for health: {e}");
                    self.rests = Some(now + PAUSE);
                    return;
                }
            }
        }
    }

    fn keep(&mut self, connection: Connection) {
        if self.connections.len() >= MAX {
            self.connections.remove(0);
        }
        self.connections.push(connection);
    }

    /// Listens at the addresses of the current health checks, and closes all other listeners.
    fn listen(&mut self, now: Moment) {
        self.health.clear_wake();
        let wanted = self.health.wanted(self.proxy);
        self.listeners
            .retain(|asked, (at, _)| wanted.get(asked) == Some(at));
        self.failed.retain(|asked, _| wanted.contains_key(asked));
        self.retry = None;
        for (asked, at) in wanted {
            if !self.listeners.contains_key(&asked) && !self.listen_at(&asked, at) {
                self.retry = Some(now + INTERVAL);
            }
        }
        self.health.set_failed(&self.failed);
    }

    fn listen_at(&mut self, asked: &Asked, at: SocketAddr) -> bool {
        match listener(at) {
            Ok(listener) => {
                if self.failed.remove(asked).is_some() {
                    log::info!("{}: answered now", asked.field(at));
                }
                self.listeners.insert(asked.clone(), (at, listener));
                true
            }
            Err(e) => {
                let text = format!(
                    "{}: cannot listen: {e}; tried again every {} s",
                    asked.field(at),
                    INTERVAL.as_secs()
                );
                if self.failed.get(asked) != Some(&text) {
                    log::warn!("{text}");
                    self.failed.insert(asked.clone(), text);
                }
                false
            }
        }
    }

    #[cfg(test)]
    pub(super) fn address(&self, asked: &Asked) -> Option<SocketAddr> {
        self.listeners.get(asked)?.1.local_addr().ok()
    }

    #[cfg(test)]
    pub(super) fn connections(&self) -> usize {
        self.connections.len()
    }
}
