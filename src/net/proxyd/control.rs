//! The unix socket on which the daemon sends requests to the proxy process.
//!
//! Invariants: only root and the user of the proxy process are served. Bad or unfinished bytes of a client harm only
//! the connection of that client. This file only collects the requests; the event loop carries them out.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use nix::sys::epoll::EpollFlags;
use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::geteuid;

use super::hand_over;
use super::message::{Answer, LONGEST, Request};
use super::poller::{Part, Poller, Token};
use super::slab::{Key, Queue, Slab};
use crate::base::aside::rename_over;
use crate::base::clock::Moment;
use crate::base::json;

/// The number of the control socket's part in poller tokens.
pub const PART: u8 = 0;
/// The kind of token for the listener of the control socket.
const LISTENER: u8 = 0;
/// The kind of token for a client's connection.
const CLIENT: u8 = 1;

/// The socket of a new proxy process that is about to take the directory over.
const NEXT_SOCKET: &str = "control.next";
/// Largest number of clients at a time. A new client replaces the client that was silent longest.
const CLIENTS: usize = 8;
/// Longest time for a client to complete a request that it has begun to send, or to read an answer.
const LIMIT: Duration = Duration::from_secs(10);
/// Number of bytes that are read from a client before other clients have their turn.
const TURN: usize = 256 * 1024;

/// The reasons why a client's bytes are no request.
#[derive(Debug, thiserror::Error)]
enum FrameError {
    /// The client announces a request that is longer than allowed.
    #[error("a request of {0} bytes is longer than {LONGEST}")]
    TooLong(usize),
    /// The content is no request that this version knows.
    #[error("cannot read the request: {0}")]
    Syntax(#[from] serde_json::Error),
}

struct Client {
    stream: UnixStream,
    received: Vec<u8>,
    to_send: Vec<u8>,
    /// Descriptors that are sent after `to_send`.
    descriptors: VecDeque<OwnedFd>,
    /// The moment at which the client last sent or read something.
    last: Moment,
    /// True if the connection must be closed once the client has its answer.
    closing: bool,
}

impl Client {
    fn is_idle(&self) -> bool {
        self.received.is_empty() && self.to_send.is_empty() && self.descriptors.is_empty()
    }

    fn send_some(&mut self) -> io::Result<()> {
        if self.to_send.is_empty() {
            return Ok(hand_over::send(&self.stream, &mut self.descriptors)?);
        }
        let sent = self.stream.write(&self.to_send)?;
        self.to_send.drain(..sent);
        Ok(())
    }
}

/// The control socket and its clients.
pub struct Control {
    listener: UnixListener,
    clients: Slab<Client>,
    /// The clients sorted by their last activity. The client that was silent longest is first.
    order: Queue,
    requests: Vec<(Key, Request)>,
}

impl Control {
    /// Listens in the directory `dir`. A socket that an earlier proxy process has left is replaced.
    ///
    /// # Errors
    /// Returns the error if the socket cannot be made.
    pub fn listen(dir: &Path, poller: &Poller) -> io::Result<Self> {
        Self::listen_at(&dir.join(super::home::SOCKET), poller)
    }

    /// Listens at a temporary path in the directory `dir`. Clients do not use this path before [`Self::publish`].
    ///
    /// # Errors
    /// Returns the error if the socket cannot be made.
    pub fn prepare(dir: &Path, poller: &Poller) -> io::Result<Self> {
        Self::listen_at(&dir.join(NEXT_SOCKET), poller)
    }

    /// Renames the prepared socket over the socket of another proxy process. The path of the socket exists at every
    /// moment.
    ///
    /// # Errors
    /// Returns the error if the directory is gone.
    pub fn publish(dir: &Path) -> io::Result<()> {
        rename_over(&dir.join(NEXT_SOCKET), &dir.join(super::home::SOCKET))
    }

    fn listen_at(path: &Path, poller: &Poller) -> io::Result<Self> {
        match fs::remove_file(path) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        poller.add(&listener, token(LISTENER, None), EpollFlags::EPOLLIN)?;
        Ok(Self {
            listener,
            clients: Slab::default(),
            order: Queue::default(),
            requests: Vec::new(),
        })
    }

    /// Returns the requests that have arrived since the last call, each with the key of its client.
    pub fn requests(&mut self) -> Vec<(Key, Request)> {
        std::mem::take(&mut self.requests)
    }

    /// Answers a client, if it is still connected.
    pub fn answer(&mut self, key: Key, answer: &Answer, poller: &Poller) {
        let Some(client) = self.clients.get_mut(key) else {
            return;
        };
        client
            .to_send
            .extend(serde_json::to_vec(answer).unwrap_or_default());
        client.to_send.push(b'\n');
        self.send(key, poller);
    }

    /// Answers a client, if it is still connected, and sends the descriptors that belong to the answer.
    pub fn answer_with(
        &mut self,
        key: Key,
        answer: &Answer,
        descriptors: Vec<OwnedFd>,
        poller: &Poller,
    ) {
        if let Some(client) = self.clients.get_mut(key) {
            client.descriptors.extend(descriptors);
        }
        self.answer(key, answer, poller);
    }

    fn send(&mut self, key: Key, poller: &Poller) {
        let Some(client) = self.clients.get_mut(key) else {
            return;
        };
        while !client.to_send.is_empty() || !client.descriptors.is_empty() {
            match client.send_some() {
                Ok(()) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    let events = EpollFlags::EPOLLOUT;
                    let _ = poller.change(&client.stream, token(CLIENT, Some(key)), events);
                    return;
                }
                Err(_) => return self.close(key),
            }
        }
        client.to_send = Vec::new();
        if client.closing {
            return self.close(key);
        }
        let _ = poller.change(
            &client.stream,
            token(CLIENT, Some(key)),
            EpollFlags::EPOLLIN,
        );
    }

    fn take_clients(&mut self, now: Moment, poller: &Poller) {
        while let Ok((stream, _)) = self.listener.accept() {
            if !may_speak(&stream) || stream.set_nonblocking(true).is_err() {
                continue;
            }
            if self.clients.len() >= CLIENTS
                && let Some(oldest) = self.clients.first(&self.order)
            {
                self.close(oldest);
            }
            let key = self.clients.insert(Client {
                stream,
                received: Vec::new(),
                to_send: Vec::new(),
                descriptors: VecDeque::new(),
                last: now,
                closing: false,
            });
            self.clients.enqueue(&mut self.order, key);
            let added = self.clients.get(key).is_some_and(|c| {
                let token = token(CLIENT, Some(key));
                poller.add(&c.stream, token, EpollFlags::EPOLLIN).is_ok()
            });
            if !added {
                self.close(key);
            }
        }
    }

    fn receive(&mut self, key: Key, poller: &Poller) {
        let Some(client) = self.clients.get_mut(key) else {
            return;
        };
        let mut part = [0; 16 * 1024];
        for _ in 0..TURN / part.len() {
            match client.stream.read(&mut part) {
                Ok(0) => return self.close(key),
                Ok(n) => client.received.extend_from_slice(&part[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return self.close(key),
            }
        }
        self.read_requests(key, poller);
    }

    fn read_requests(&mut self, key: Key, poller: &Poller) {
        while let Some(client) = self.clients.get_mut(key) {
            match take_frame(&mut client.received) {
                Ok(None) => return,
                Ok(Some(request)) => self.requests.push((key, request)),
                Err(error) => {
                    client.received = Vec::new();
                    client.closing = true;
                    let answer = Answer {
                        error: Some(error.to_string()),
                        ..Answer::default()
                    };
                    return self.answer(key, &answer, poller);
                }
            }
        }
    }

    fn close(&mut self, key: Key) {
        self.clients.dequeue(&mut self.order, key);
        self.clients.remove(key);
    }

    fn touch(&mut self, key: Key, now: Moment) {
        if let Some(client) = self.clients.get_mut(key) {
            client.last = now;
            self.clients.dequeue(&mut self.order, key);
            self.clients.enqueue(&mut self.order, key);
        }
    }
}

/// Takes the first whole request out of the received bytes; None if no request is complete.
fn take_frame(received: &mut Vec<u8>) -> Result<Option<Request>, FrameError> {
    let Some((head, rest)) = received.split_first_chunk::<4>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(*head) as usize;
    if length > LONGEST {
        return Err(FrameError::TooLong(length));
    }
    let Some(frame) = rest.get(..length) else {
        return Ok(None);
    };
    let request = json::from_slice(frame);
    // The bytes after the request are copied, so that the memory of a large request is freed.
    *received = rest[length..].to_vec();
    Ok(Some(request?))
}

fn may_speak(stream: &UnixStream) -> bool {
    let peer = getsockopt(stream, sockopt::PeerCredentials);
    peer.is_ok_and(|p| p.uid() == 0 || p.uid() == geteuid().as_raw())
}

fn token(kind: u8, key: Option<Key>) -> Token {
    Token {
        part: PART,
        kind,
        generation: key.map_or(0, |k| k.generation),
        index: key.map_or(0, |k| k.index),
    }
}

impl Part for Control {
    fn ready(&mut self, token: Token, events: EpollFlags, now: Moment, poller: &Poller) {
        let key = Key {
            index: token.index,
            generation: token.generation,
        };
        match token.kind {
            LISTENER => self.take_clients(now, poller),
            _ => {
                self.touch(key, now);
                if events.contains(EpollFlags::EPOLLOUT) {
                    self.send(key, poller);
                } else {
                    self.receive(key, poller);
                }
            }
        }
    }

    fn deadline(&self) -> Option<Moment> {
        let busy = self.clients.iter().filter(|(_, c)| !c.is_idle());
        busy.map(|(_, c)| c.last + LIMIT).min()
    }

    fn expire(&mut self, now: Moment, _: &Poller) {
        let late = self.clients.iter();
        let late = late.filter(|(_, c)| !c.is_idle() && c.last + LIMIT <= now);
        let late: Vec<Key> = late.map(|(key, _)| key).collect();
        late.into_iter().for_each(|key| self.close(key));
    }
}
