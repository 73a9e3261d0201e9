//! The part of the responder that serves clients over TCP.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};

use crate::base::clock::Moment;

use super::{A_TURN, Client, Place, Responder};
use crate::net::proxyd::dns::connection::{Connection, Over};
use crate::net::proxyd::dns::message;
use crate::net::proxyd::dns::token::Token;

/// Time for which no connections are accepted after the process has run out of descriptors or memory.
pub const PAUSE: Duration = Duration::from_millis(100);

impl Responder {
    pub(super) fn accept(&mut self, at: usize, now: Moment, poller: &Epoll) {
        for _ in 0..A_TURN {
            let Some(Some(Place { tcp: Some(tcp), .. })) = self.listeners.get(at) else {
                return;
            };
            let (stream, from) = match tcp.accept() {
                Ok(accepted) => accepted,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if is_shortage(&e) => return self.pause(now, poller),
                // The client has closed the connection before it was accepted.
                Err(_) => continue,
            };
            if !self.is_client(from) {
                self.counters.strangers += 1;
                continue;
            }
            if stream.set_nonblocking(true).is_ok() {
                if let Some(key) = self.connections.gives_way() {
                    self.counters.connections_displaced += 1;
                    self.close(key, poller);
                }
                let connection = Connection::new(stream, from.ip(), now);
                self.register(connection, poller);
            }
        }
    }

    pub(super) fn register(&mut self, connection: Connection, poller: &Epoll) {
        let key = self.connections.insert(connection);
        let event = self.event(Token::Connection(key), EpollFlags::EPOLLIN);
        let added = self
            .connections
            .get_mut(key)
            .map(|c| poller.add(&*c, event));
        if added.is_none_or(|a| a.is_err()) {
            self.connections.remove(key);
        }
    }

    pub(super) fn connection(&mut self, key: u64, events: EpollFlags, now: Moment, poller: &Epoll) {
        if events.intersects(EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP) {
            return self.close(key, poller);
        }
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let filled = connection
            .flush(now)
            .and_then(|()| connection.fill(&mut self.buffer));
        match filled {
            Ok(()) => self.questions(key, now, poller),
            Err(Over) => self.close(key, poller),
        }
    }

    /// Handles the whole questions that a connection has received.
    pub(super) fn questions(&mut self, key: u64, now: Moment, poller: &Epoll) {
        while let Some(connection) = self.connections.get_mut(key) {
            let from = SocketAddr::new(connection.from, 0);
            match connection.next_question(now) {
                Ok(Some(question)) => {
                    self.counters.tcp_requests += 1;
                    let received = message::read(&question);
                    self.handle(received, Client::Tcp(key), from, now, poller);
                }
                Ok(None) => break,
                Err(Over) => return self.close(key, poller),
            }
        }
        self.settle(key, poller);
    }

    /// Sets the events for which the poller watches the connection, or closes a connection that is over.
    fn settle(&mut self, key: u64, poller: &Epoll) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if connection.is_over() {
            return self.close(key, poller);
        }
        let wants = connection.wants();
        if wants != connection.interest {
            let mut event = EpollEvent::new(wants, self.part | Token::Connection(key).number());
            match poller.modify(&*connection, &mut event) {
                Ok(()) => connection.interest = wants,
                Err(_) => self.close(key, poller),
            }
        }
    }

    pub(super) fn close(&mut self, key: u64, poller: &Epoll) {
        if let Some(connection) = self.connections.remove(key) {
            // An error does no harm: the descriptor is closed now, which removes it from the poller too.
            let _ = poller.delete(connection.as_fd());
        }
    }

    /// Stops accepting connections for [`PAUSE`], because the process has no descriptor or memory left. Otherwise the
    /// poller would report the same connection again and again.
    fn pause(&mut self, now: Moment, poller: &Epoll) {
        for listener in self.listeners.iter().flatten() {
            // A listener that is not in the poller needs no pause, so the error is ignored.
            let _ = listener.tcp.as_ref().map(|tcp| poller.delete(tcp));
        }
        self.paused_until = Some(now + PAUSE);
    }
}

/// Returns true if the error means that no descriptor or no memory is left.
fn is_shortage(error: &io::Error) -> bool {
    let shortages = [Errno::EMFILE, Errno::ENFILE, Errno::ENOBUFS, Errno::ENOMEM];
    let errno = error.raw_os_error().map(Errno::from_raw);
    errno.is_some_and(|e| shortages.contains(&e))
}
