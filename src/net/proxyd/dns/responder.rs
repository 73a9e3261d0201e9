//! The responder: its sockets, and the handling of their events.
//!
//! Invariants: nothing blocks, and one call handles a bounded number of packets, so that the other parts of the proxy
//! process get their turns. An answer over UDP that the kernel does not take at once is dropped, because the client
//! asks again. The module `dns` has the other invariants.

mod streams;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};

use crate::api::service::Protocol;
use crate::base::clock::Moment;
use crate::net::proxyd::dns::PORT;
use crate::net::services::names::Names;

use super::answer::{Verdict, answer};
use super::connection::{Connection, IDLE};
use super::connections::Connections;
use super::counters::Counters;
use super::exchange::Exchange;
use super::forward::{Forwards, Question, Step};
use super::inbox::{Datagram, Inbox};
use super::message::{self, Query, Received, TCP_LIMIT};
use super::random::Random;
use super::token::Token;
use super::zone::Zone;
use streams::PAUSE;

/// Number of packets or connections that one call handles.
const A_TURN: usize = 64;
/// Number of datagrams that one call takes from the kernel. Taking a datagram costs little, and makes room in the
/// kernel for other clients.
const TAKEN: usize = 1024;
/// Size in bytes of the buffer for messages. A larger message of a client is cut off, and so is a larger message of a
/// resolver over UDP. A message that is cut off cannot be read.
const BUFFER: usize = 4096;

/// The UDP and the TCP socket of one address and port. Both are non-blocking.
pub struct Listener {
    /// The UDP socket.
    pub udp: UdpSocket,
    /// The TCP listener.
    pub tcp: TcpListener,
}

/// The sockets of a [`Listener`] that the responder uses.
struct Place {
    udp: UdpSocket,
    /// The TCP listener; `None` if another process accepts the clients.
    tcp: Option<TcpListener>,
}

/// A client that waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    /// A client over UDP: the index of its listener, and its address.
    Udp(usize, SocketAddr),
    /// A client over TCP: the key of its connection.
    Tcp(u64),
}

/// The DNS responder: its sockets, its zone, and the questions that wait.
pub struct Responder {
    /// The number of this part, shifted into the top byte of a token.
    part: u64,
    /// The listeners by index. The index of a closed listener is used again.
    listeners: Vec<Option<Place>>,
    zone: Zone,
    forwards: Forwards<Client>,
    exchanges: HashMap<u64, Exchange>,
    inbox: Inbox,
    connections: Connections,
    paused_until: Option<Moment>,
    /// The moment at which this process stops answering the clients that still wait; `None` until another process has
    /// taken over.
    leaves_at: Option<Moment>,
    random: Random,
    turn: usize,
    counters: Counters,
    buffer: Vec<u8>,
    /// Keys of connections that got an answer of another resolver. These connections may now have room for their next
    /// question.
    answered: Vec<u64>,
}

impl Responder {
    /// Makes a responder without sockets. Before [`Self::update`] no client gets an answer. `part` goes into the top
    /// byte of the tokens.
    pub fn new(part: u8) -> Self {
        Self {
            part: u64::from(part) << 56,
            listeners: Vec::new(),
            zone: Zone::new(Names::default()),
            forwards: Forwards::default(),
            exchanges: HashMap::new(),
            inbox: Inbox::default(),
            connections: Connections::default(),
            paused_until: None,
            leaves_at: None,
            random: Random::default(),
            turn: 0,
            counters: Counters::default(),
            buffer: vec![0; BUFFER],
            answered: Vec::new(),
        }
    }

    /// Adds a listener.
    ///
    /// # Errors
    /// Returns the error if the sockets cannot be added to the poller. In this case the sockets are closed.
    pub fn listen_on(&mut self, listener: Listener, poller: &Epoll) -> io::Result<()> {
        let free = self.listeners.iter().position(Option::is_none);
        let at = free.unwrap_or(self.listeners.len());
        let event = self.event(Token::Udp(at), EpollFlags::EPOLLIN);
        poller.add(&listener.udp, event)?;
        if self.paused_until.is_none() {
            let event = self.event(Token::Listener(at), EpollFlags::EPOLLIN);
            poller.add(&listener.tcp, event)?;
        }
        let opened = Some(Place {
            udp: listener.udp,
            tcp: Some(listener.tcp),
        });
        match self.listeners.get_mut(at) {
            Some(place) => *place = opened,
            None => self.listeners.push(opened),
        }
        Ok(())
    }

    /// Closes the listener at an address. Clients of this listener that wait for another resolver get no answer. Every
    /// question in the inbox is dropped.
    pub fn close_listener(&mut self, at: SocketAddr) {
        // The index will be used again, and waiting questions would be answered through another listener.
        self.inbox = Inbox::default();
        for place in &mut self.listeners {
            place.take_if(|l| l.udp.local_addr().ok() == Some(at));
        }
    }

    /// Returns the addresses on which the responder answers.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let open = self.listeners.iter().flatten();
        open.filter_map(|l| l.udp.local_addr().ok()).collect()
    }

    /// Returns every listening socket, to hand it over to another process.
    pub fn to_hand_over(&self) -> Vec<(Protocol, SocketAddr, BorrowedFd<'_>)> {
        let mut sockets = Vec::new();
        for place in self.listeners.iter().flatten() {
            if let (Ok(at), Some(tcp)) = (place.udp.local_addr(), &place.tcp) {
                sockets.push((Protocol::Udp, at, place.udp.as_fd()));
                sockets.push((Protocol::Tcp, at, tcp.as_fd()));
            }
        }
        sockets
    }

    /// Takes no more questions, because another process has the sockets. A client that waits still gets its answer
    /// within [`IDLE`]. Returns the connections that have no open question. All these sockets are removed from the
    /// poller. Otherwise the poller would report their events for as long as the other process has them open.
    pub fn let_go(&mut self, now: Moment, poller: &Epoll) -> Vec<(IpAddr, OwnedFd)> {
        for place in self.listeners.iter_mut().flatten() {
            let _ = poller.delete(&place.udp);
            if let Some(tcp) = place.tcp.take() {
                // While accepting is paused the listener is not in the poller, and the call fails.
                let _ = poller.delete(&tcp);
            }
        }
        self.paused_until = None;
        self.leaves_at = Some(now + IDLE);
        let mut given = Vec::new();
        for key in self.connections.quiet() {
            if let Some(connection) = self.connections.remove(key) {
                let _ = poller.delete(connection.as_fd());
                given.push((connection.from, connection.into_stream().into()));
            }
        }
        given
    }

    /// Serves the connections that another process has given up.
    pub fn adopt(&mut self, given: Vec<(IpAddr, OwnedFd)>, now: Moment, poller: &Epoll) {
        for (from, stream) in given {
            self.register(Connection::new(stream.into(), from, now), poller);
        }
    }

    /// Returns true if no client waits for an answer and no connection is open.
    pub fn is_unused(&self) -> bool {
        self.inbox.is_empty() && self.forwards.is_empty() && self.connections.is_empty()
    }

    /// Closes all sockets. A client that still waits gets no answer.
    pub fn leave(&mut self) {
        self.listeners.clear();
        self.inbox = Inbox::default();
        self.forwards = Forwards::default();
        self.exchanges.clear();
        self.connections = Connections::default();
        self.leaves_at = None;
    }

    /// Uses these names, clients and resolvers from now on.
    pub fn update(&mut self, names: Names) {
        let upstreams = names.upstreams.iter().copied();
        let own = self.addresses();
        let others = upstreams.filter(|u| !is_own(&own, &names, *u));
        self.forwards.set_upstreams(others.collect::<Vec<_>>());
        self.zone = Zone::new(names);
    }

    /// Returns the counts since the start.
    pub fn counters(&self) -> Counters {
        let tally = self.forwards.tally();
        Counters {
            forwards: tally.questions,
            forward_tries: tally.tries,
            forward_timeouts: tally.timeouts,
            forward_failures: tally.failures,
            forwards_displaced: tally.displaced,
            ..self.counters.clone()
        }
    }

    /// Returns the moment at which [`Self::expire`] must be called; `None` if nothing waits.
    pub fn deadline(&self) -> Option<Moment> {
        let all = [
            self.forwards.deadline(),
            self.connections.deadline(),
            self.paused_until,
            self.leaves_at,
        ];
        // Waiting datagrams are handled at once, after the other parts have had their turns.
        if !self.inbox.is_empty() {
            return Some(Moment::default());
        }
        all.into_iter().flatten().min()
    }

    /// Handles everything that is due: tries that have timed out, idle connections, a pause that is over, and waiting
    /// datagrams.
    pub fn expire(&mut self, now: Moment, poller: &Epoll) {
        let random = &mut self.random;
        let steps = self.forwards.expire(now, || random.next());
        self.carry_out(steps, now, poller);
        for key in self.connections.idle(now) {
            self.close(key, poller);
        }
        if self.paused_until.is_some_and(|until| until <= now) {
            self.paused_until = self.listen(poller).err().map(|_| now + PAUSE);
        }
        self.datagrams(now, poller);
        self.go_on(now, poller);
        if self.leaves_at.is_some_and(|at| at <= now) {
            self.leave();
        }
    }

    /// Handles the events of a socket of this part.
    pub fn ready(&mut self, token: u64, events: EpollFlags, now: Moment, poller: &Epoll) {
        match Token::read(token) {
            Some(Token::Udp(at)) => {
                self.receive(at);
                self.datagrams(now, poller);
            }
            Some(Token::Listener(at)) => self.accept(at, now, poller),
            Some(Token::Connection(key)) => self.connection(key, events, now, poller),
            Some(Token::Exchange(key)) => self.exchange(key, now, poller),
            None => {}
        }
        self.go_on(now, poller);
    }

    fn go_on(&mut self, now: Moment, poller: &Epoll) {
        while let Some(key) = self.answered.pop() {
            self.questions(key, now, poller);
        }
    }

    fn event(&self, token: Token, flags: EpollFlags) -> EpollEvent {
        EpollEvent::new(flags, self.part | token.number())
    }

    fn listen(&self, poller: &Epoll) -> io::Result<()> {
        for (at, listener) in self.listeners.iter().enumerate() {
            let Some(listener) = listener else {
                continue;
            };
            if let Some(tcp) = &listener.tcp {
                let event = self.event(Token::Listener(at), EpollFlags::EPOLLIN);
                poller.add(tcp, event)?;
            }
        }
        Ok(())
    }

    /// Takes datagrams from the kernel until there are no more, or `TAKEN` have been taken.
    fn receive(&mut self, at: usize) {
        for _ in 0..TAKEN {
            let Some(Some(listener)) = self.listeners.get(at) else {
                return;
            };
            let (length, from) = match listener.udp.recv_from(&mut self.buffer) {
                Ok(received) => received,
                // There is no datagram, or an earlier answer has failed because its client is gone. The next event of
                // the socket continues.
                Err(_) => return,
            };
            if !self.is_client(from) {
                self.counters.strangers += 1;
                continue;
            }
            self.counters.udp_requests += 1;
            let taken = self.inbox.push(Datagram {
                listener: at,
                from,
                bytes: self.buffer[..length].to_vec(),
            });
            self.counters.crowded += u64::from(!taken);
        }
    }

    fn datagrams(&mut self, now: Moment, poller: &Epoll) {
        for _ in 0..A_TURN {
            let Some(asked) = self.inbox.pop() else {
                return;
            };
            let client = Client::Udp(asked.listener, asked.from);
            let received = message::read(&asked.bytes);
            self.handle(received, client, asked.from, now, poller);
        }
    }

    fn is_client(&self, from: SocketAddr) -> bool {
        // An IPv6 socket gives IPv4 addresses in mapped form.
        let ip = from.ip().to_canonical();
        self.zone.names().clients.iter().any(|c| c.contains(ip))
    }

    fn handle(
        &mut self,
        received: Received,
        client: Client,
        from: SocketAddr,
        now: Moment,
        poller: &Epoll,
    ) {
        match received {
            Received::Query(query) => self.query(query, client, from, now, poller),
            Received::Error(bytes) => self.send(client, Some(&bytes), now, poller),
            Received::Nothing => {
                self.counters.ignored += 1;
                self.send(client, None, now, poller);
            }
        }
    }

    fn query(
        &mut self,
        query: Query,
        client: Client,
        from: SocketAddr,
        now: Moment,
        poller: &Epoll,
    ) {
        self.turn = self.turn.wrapping_add(1);
        let (limit, whole) = match client {
            Client::Udp(..) => (query.udp_limit(), false),
            Client::Tcp(_) => (TCP_LIMIT, true),
        };
        match answer(&query, &self.zone, limit, self.turn) {
            Verdict::Reply(reply) => {
                let bytes = query.answer(&reply, limit);
                self.send(client, Some(&bytes), now, poller);
            }
            Verdict::Ask { name, aliases } => {
                let question = Question {
                    client,
                    from: from.ip(),
                    query,
                    limit,
                    whole,
                    name,
                    aliases,
                };
                let steps = self.forwards.ask(question, self.random.next(), now);
                self.carry_out(steps, now, poller);
            }
        }
    }

    fn carry_out(&mut self, steps: Vec<Step<Client>>, now: Moment, poller: &Epoll) {
        let mut steps = steps;
        while let Some(step) = steps.pop() {
            match step {
                Step::Done { key, client, bytes } => {
                    self.exchanges.remove(&key);
                    self.send(client, Some(&bytes), now, poller);
                    if let Client::Tcp(key) = client {
                        self.answered.push(key);
                    }
                }
                Step::Send {
                    key,
                    upstream,
                    transport,
                    bytes,
                } => {
                    self.exchanges.remove(&key);
                    let opened = Exchange::open(upstream, transport, &bytes);
                    let opened = opened.and_then(|exchange| {
                        let event = self.event(Token::Exchange(key), exchange.interest());
                        poller.add(&exchange, event)?;
                        Ok(exchange)
                    });
                    match opened {
                        Ok(exchange) => drop(self.exchanges.insert(key, exchange)),
                        // The next resolver is asked. The number of resolvers is small.
                        Err(_) => steps.extend(self.forwards.failed(key, self.random.next(), now)),
                    }
                }
            }
        }
    }

    fn fail(&mut self, key: u64, now: Moment) -> Vec<Step<Client>> {
        let failed = self.forwards.failed(key, self.random.next(), now);
        failed.into_iter().collect()
    }

    fn exchange(&mut self, key: u64, now: Moment, poller: &Epoll) {
        for _ in 0..A_TURN {
            let Some(exchange) = self.exchanges.get_mut(&key) else {
                return;
            };
            let before = exchange.interest();
            let received = exchange.receive(&mut self.buffer);
            let interest = exchange.interest();
            let steps = match received {
                Ok(Some(bytes)) => {
                    let id = self.random.next();
                    self.forwards.answered(key, &bytes, id, now)
                }
                Ok(None) if interest == before => return,
                Ok(None) => {
                    let mut event =
                        EpollEvent::new(interest, self.part | Token::Exchange(key).number());
                    match poller.modify(&*exchange, &mut event) {
                        Ok(()) => return,
                        Err(_) => self.fail(key, now),
                    }
                }
                Err(_) => self.fail(key, now),
            };
            // Without steps, the message was not the answer. The answer may still come, whoever sent this message.
            if !steps.is_empty() {
                return self.carry_out(steps, now, poller);
            }
        }
    }

    /// Sends an answer to a client. If `answer` is `None`, the question gets no answer.
    fn send(&mut self, client: Client, answer: Option<&[u8]>, now: Moment, poller: &Epoll) {
        if let Some(bytes) = answer {
            self.counters.answered(bytes);
        }
        match (client, answer) {
            (Client::Udp(at, to), Some(bytes)) => {
                let listener = self.listeners.get(at).and_then(Option::as_ref);
                let sent = listener.map(|l| l.udp.send_to(bytes, to));
                self.counters.unsent += u64::from(!matches!(sent, Some(Ok(_))));
            }
            (Client::Udp(..), None) => {}
            (Client::Tcp(key), answer) => {
                let Some(connection) = self.connections.get_mut(key) else {
                    self.counters.unsent += 1;
                    return;
                };
                if connection.answer(answer, now).is_err() {
                    self.close(key, poller);
                }
            }
        }
    }
}

/// Returns true if a resolver is this responder itself. A question of the responder to itself would go round forever.
fn is_own(own: &[SocketAddr], names: &Names, upstream: SocketAddr) -> bool {
    let ip = upstream.ip().to_canonical();
    let is_ours = names.addresses.contains(&ip);
    is_ours && upstream.port() == PORT
        || own.iter().any(|own| {
            let everywhere = own.ip().is_unspecified() && ip.is_loopback();
            let same = own.ip().to_canonical() == ip || is_ours;
            own.port() == upstream.port() && (same || everywhere)
        })
}
