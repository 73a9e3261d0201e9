//! The thread `server`: accepts clients, reads their requests, and answers the health paths. Every other request that
//! is allowed gets a thread of its own.
//!
//! Invariants: the thread waits in `poll` only. A slow client keeps no other client out. At a listener that is full, a
//! client that is not being answered gives way to a new client. A client that asks again and again waits for the other
//! clients. One machine cannot keep other machines out, however many connections it makes: its own connections give way
//! first, and each machine has its turn before any machine has a second turn. Clients that have shown a certificate or
//! a token come first. An address on which the server cannot listen is logged once and tried again; the other addresses
//! go on.

use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::access::{self, Claim, Credentials, Door};
use super::connection::{Connection, MAX_HEAD, Origin, Then};
use super::credentials::CredentialFiles;
use super::health::{self, Check};
use super::request::{BadHead, Length, Request};
use super::response::{self, TEXT};
use super::tcp_door::TcpDoor;
use super::transport::Transport;
use super::unix_door::UnixDoor;
use super::worker::{self, Back, Job, Returned, Shared};
use crate::base::clock::Moment;
use crate::base::wire::listen::is_of_client;

/// Largest number of clients of each listener at a time.
pub const MAX_CLIENTS: usize = 64;
/// Number of bytes that the heads of all clients may have together, beyond the bytes that each client may always keep.
const HEAD_POOL: usize = 2 * MAX_HEAD;
/// Time for which no client is accepted after accepting has failed, for example for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(200);
/// Time for which the result of the health checks is used again. The checks read the disk.
const CHECKS_LAST: Duration = Duration::from_millis(500);
/// Number of requests of one connection that are answered in a row. The connection ends with the last of these answers.
const IN_A_ROW: usize = 8;
/// Number of clients that are served in one turn at each listener that answers more than health. A TLS handshake takes
/// milliseconds on a small processor, and health is answered in between.
const AT_ONCE: usize = 4;

pub(super) struct Front {
    shared: Arc<Shared>,
    unix: UnixDoor,
    tcp: Vec<TcpDoor>,
    /// The connections that no thread serves, the oldest first.
    connections: Vec<Connection>,
    /// The moment until which no client is accepted, because accepting has failed; None if clients are accepted.
    rests: Option<Moment>,
    checks: Option<(Moment, Vec<Check>)>,
}

/// The listeners with new clients, and the connections that can go on.
struct Ready {
    doors: Vec<Option<usize>>,
    connections: HashSet<i32>,
}

impl Front {
    pub(super) fn new(
        shared: Arc<Shared>,
        unix: UnixDoor,
        tcp: Vec<(Door, SocketAddr, Option<CredentialFiles>)>,
    ) -> Self {
        let mut front = Self {
            shared,
            unix,
            tcp: tcp.into_iter().map(TcpDoor::new).collect(),
            connections: Vec::new(),
            rests: None,
            checks: None,
        };
        let now = Moment::now();
        front.tcp.iter_mut().for_each(|door| door.open(now));
        front
    }

    /// Serves until the server stops. A panic drops all connections, so their clients must connect again; the listeners
    /// stay.
    pub(super) fn run(&mut self) {
        while !self.shared.is_stopping() {
            let turned = catch_unwind(AssertUnwindSafe(|| {
                if !self.unix.keep(Moment::now()) {
                    self.turn();
                }
            }));
            if turned.is_err() {
                self.connections.clear();
                self.shared.backend.panicked();
                log::error!(
                    "reading requests panicked; its clients are let go; please report this"
                );
            }
        }
        // The unix socket may have been made again after `Server::stop` had removed it.
        self.unix.remove();
    }

    fn turn(&mut self) {
        let now = Moment::now();
        self.tcp.iter_mut().for_each(|door| door.open(now));
        self.rests = self.rests.filter(|until| *until > now);
        let Some(ready) = self.wait(now) else {
            return;
        };
        let now = Moment::now();
        self.take_back(now);
        self.serve(&ready, now);
        for door in ready.doors {
            self.let_in(door, now);
        }
    }

    /// Waits, and returns the listeners and connections that are ready; None if waiting failed.
    fn wait(&self, now: Moment) -> Option<Ready> {
        let mut fds = vec![
            PollFd::new(self.shared.stop.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.shared.wake.as_fd(), PollFlags::POLLIN),
        ];
        let watch = self.unix.watch_fd();
        fds.extend(watch.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        let others = fds.len();
        let mut doors = Vec::new();
        if self.rests.is_none() {
            doors.push(None);
            fds.push(PollFd::new(self.unix.listener().as_fd(), PollFlags::POLLIN));
            for (n, door) in self.tcp.iter().enumerate() {
                if let Some(fd) = door.listening_fd() {
                    doors.push(Some(n));
                    fds.push(PollFd::new(fd, PollFlags::POLLIN));
                }
            }
        }
        fds.extend(self.connections.iter().map(|c| {
            let (fd, events) = c.waits_for();
            PollFd::new(fd, events)
        }));
        if let Err(e) = poll(&mut fds, self.patience(now)) {
            if e != nix::errno::Errno::EINTR {
                log::error!("cannot wait for clients: {e}");
                std::thread::park_timeout(PAUSE);
            }
            return None;
        }
        let is_ready = |fd: &PollFd<'_>| fd.any() != Some(false);
        let (of_doors, of_connections) = fds[others..].split_at(doors.len());
        let doors = doors.into_iter().zip(of_doors);
        let ready = of_connections.iter().filter(|fd| is_ready(fd));
        Some(Ready {
            doors: doors
                .filter(|(_, fd)| is_ready(fd))
                .map(|(door, _)| door)
                .collect(),
            connections: ready.map(|fd| fd.as_fd().as_raw_fd()).collect(),
        })
    }

    /// Returns how long the thread may wait: until the time of a client is over, or until something must be tried
    /// again.
    fn patience(&self, now: Moment) -> PollTimeout {
        let retries = self.tcp.iter().filter_map(TcpDoor::retry_at);
        let times = self.connections.iter().map(Connection::until);
        let all = times.chain(retries).chain(self.rests);
        let Some(next) = all.chain(self.unix.retry_at()).min() else {
            return PollTimeout::NONE;
        };
        // The time is rounded up: poll counts in milliseconds, and waking early would only spin.
        let left = next.since(now) + Duration::from_micros(999);
        PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
    }

    /// Takes back the connections after threads have answered their requests.
    fn take_back(&mut self, now: Moment) {
        for Returned {
            transport,
            door,
            then,
        } in self.shared.returned()
        {
            let connection = match then {
                Back::Next(buffer) => Connection::returned(transport, door, buffer, now),
                Back::Refuse(answer) => Connection::refused(transport, door, answer, now),
            };
            self.go_on(connection, now);
        }
    }

    /// Drops the connections that have run out of time, and serves the connections that are chosen for this turn. The
    /// other connections stay ready for the next turn.
    fn serve(&mut self, ready: &Ready, now: Moment) {
        self.connections.retain(|c| c.until() > now);
        let chosen = self.chosen(ready);
        for connection in std::mem::take(&mut self.connections) {
            match chosen.contains(&fd(&connection)) {
                true => self.go_on(connection, now),
                false => self.connections.push(connection),
            }
        }
    }

    /// Returns the descriptors of the connections that are served in this turn, chosen in the [`order`] of
    /// connections.
    fn chosen(&self, ready: &Ready) -> HashSet<i32> {
        let all = self.connections.iter();
        let all = all.filter(|c| ready.connections.contains(&fd(c)));
        let mut all = order(all.collect());
        // The number of connections chosen so far, for each listener.
        let mut served = self.shared.busy.each_ref().map(|_| 0);
        all.retain(|c| {
            let served = &mut served[c.door() as usize];
            *served += 1;
            *served <= at_once(c.door())
        });
        all.into_iter().map(fd).collect()
    }

    /// Reads and answers as far as is possible without waiting.
    fn go_on(&mut self, mut connection: Connection, now: Moment) {
        for n in 1.. {
            match connection.advance(now) {
                Then::Over => return,
                Then::Waits => return self.keep(connection, now),
                Then::Asks(mut request) => {
                    request.keep_alive &= n < IN_A_ROW;
                    match self.asked(connection, *request, now) {
                        Some(back) => connection = back,
                        None => return,
                    }
                }
            }
        }
    }

    fn keep(&mut self, mut connection: Connection, now: Moment) {
        let pooled: usize = self.connections.iter().map(Connection::pooled).sum();
        if connection.pooled() > 0 && pooled + connection.pooled() > HEAD_POOL {
            connection.refuse(&BadHead::too_large(HEAD_POOL - pooled.min(HEAD_POOL)), now);
            if matches!(connection.advance(now), Then::Over) {
                return;
            }
        }
        self.connections.push(connection);
    }

    /// Answers a request at once, or gives the connection to a new thread. Returns the connection if it was not given
    /// to a thread.
    fn asked(
        &mut self,
        mut connection: Connection,
        request: Request,
        now: Moment,
    ) -> Option<Connection> {
        let door = connection.door();
        let credentials = self.credentials(&connection, &request);
        if door == Door::Main && credentials == Credentials::Valid {
            connection.prove();
        }
        if let Err(refusal) =
            access::check(door, &credentials, &request, self.shared.debugging.get())
        {
            let text = format!("{}\n", refusal.text);
            connection.answer(
                response::to(&request, refusal.status, &text, false),
                false,
                now,
            );
            return Some(connection);
        }
        if health::is_health(&request.path) {
            let goes_on = request.keep_alive && request.length == Length::Known(0);
            let (status, text) = health::answer(&request, self.checks(now));
            connection.answer(response::to(&request, status, &text, goes_on), goes_on, now);
            return Some(connection);
        }
        let claim = match credentials {
            Credentials::Claimed(claim) => Some(claim),
            Credentials::None | Credentials::Valid => None,
        };
        let mut review = None;
        if let Some(Claim::Token(_)) = claim {
            review = self.shared.begin_review(connection.origin());
            if review.is_none() {
                let text = "too many tokens are being reviewed; try again later\n";
                connection.answer(response::to(&request, 503, text, false), false, now);
                return Some(connection);
            }
        }
        let job = Job {
            request,
            claim,
            review,
            connection: connection.into_parts(),
        };
        let (job, why) = *worker::start(&self.shared, door, job).err()?;
        log::warn!("cannot serve a client: {why}");
        let (transport, buffer) = job.connection;
        let mut connection = Connection::returned(transport, door, buffer, now);
        let text = format!(
            "the node has no thread left to answer with ({why}); pids.max of the daemon's cgroup or the kernel's threads-max is \
             reached; try again later\n"
        );
        connection.answer(response::to(&job.request, 503, &text, false), false, now);
        Some(connection)
    }

    fn credentials(&mut self, connection: &Connection, request: &Request) -> Credentials {
        match connection.door() {
            Door::Unix => Credentials::Valid,
            Door::Health | Door::ReadOnly => Credentials::None,
            Door::Main => {
                let known = self.tcp.iter_mut().find_map(TcpDoor::credentials);
                let (token, webhooks) = (request.token.as_deref(), self.shared.webhooks);
                known.map_or(Credentials::None, |known| {
                    known.of(connection.transport(), token, webhooks)
                })
            }
        }
    }

    fn checks(&mut self, now: Moment) -> &[Check] {
        let is_good = |at: &Moment| now.since(*at) < CHECKS_LAST;
        if !self.checks.as_ref().is_some_and(|(at, _)| is_good(at)) {
            self.checks = Some((now, self.shared.backend.checks()));
        }
        self.checks.as_ref().map_or(&[], |(_, checks)| checks)
    }

    /// Accepts clients of a listener, a few at a time. The other clients wait until the next turn.
    fn let_in(&mut self, door: Option<usize>, now: Moment) {
        let class = door.map_or(Door::Unix, |n| self.tcp[n].door);
        for _ in 0..let_in_at_once(class) {
            let accepted = match door {
                None => self
                    .unix
                    .listener()
                    .accept()
                    .and_then(|(socket, _)| Transport::unix(socket)),
                Some(n) => self.tcp[n].accept(),
            };
            match accepted {
                Ok(transport) => self.welcome(Connection::new(transport, class, now), now),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if is_of_client(&e) => {}
                Err(e) => {
                    // The client stays in the listener's queue, so without a pause the thread would spin.
                    log::warn!("cannot accept a client: {e}");
                    self.rests = Some(now + PAUSE);
                    return;
                }
            }
        }
    }

    /// Takes a new client in. If the listener is full, another connection is dropped to make room. If no connection may
    /// be dropped, the client gets a 503.
    fn welcome(&mut self, mut connection: Connection, now: Moment) {
        let door = connection.door();
        let of_class = |c: &Connection| c.door() == door;
        let waiting = self.connections.iter().filter(|c| of_class(c)).count();
        let busy = self.shared.busy[door as usize].load(Ordering::Relaxed);
        if waiting + busy >= MAX_CLIENTS {
            match gives_way(&self.connections, &connection) {
                Some(at) => drop(self.connections.remove(at)),
                None => {
                    let text =
                        format!("{MAX_CLIENTS} clients are connected already; try again later\n");
                    connection.answer(response::whole(503, TEXT, &text, false), false, now);
                    let _ = connection.advance(now);
                    return;
                }
            }
        }
        match door {
            Door::Unix | Door::Health | Door::ReadOnly => self.go_on(connection, now),
            // Accepting costs little, a handshake much. So all clients are accepted here, and `serve` chooses the
            // connections that have their handshake now.
            Door::Main => self.connections.push(connection),
        }
    }
}

/// Returns the order in which connections are served. At each listener, clients that have shown credentials have all
/// places of a turn but one. The last place is for a client without credentials. In each of the two groups, every
/// machine's first connection comes before any machine's second. Among equal connections, the connection that was
/// served longest ago comes first.
fn order(mut all: Vec<&Connection>) -> Vec<&Connection> {
    all.sort_by_key(|c| c.active());
    let mut before: HashMap<(u8, bool, Option<Origin>), usize> = HashMap::new();
    let mut of_kind: HashMap<(u8, bool), usize> = HashMap::new();
    let ranked = all.into_iter().map(|c| {
        let kind = (c.door() as u8, c.is_known());
        let rank = before.entry((kind.0, kind.1, c.origin())).or_default();
        *rank += 1;
        (*rank, kind, c)
    });
    let mut ranked: Vec<_> = ranked.collect();
    ranked.sort_by_key(|(rank, ..)| *rank);
    let placed = ranked.into_iter().map(|(_, kind, c)| {
        let n = of_kind.entry(kind).or_default();
        *n += 1;
        // Clients with credentials have the first places of each turn. Clients without credentials have the last place.
        let known_places = AT_ONCE - 1;
        let place = match kind.1 {
            true => (*n - 1) / known_places * AT_ONCE + (*n - 1) % known_places,
            false => *n * AT_ONCE - 1,
        };
        (place, c)
    });
    let mut placed: Vec<_> = placed.collect();
    placed.sort_by_key(|(place, _)| *place);
    placed.into_iter().map(|(_, c)| c).collect()
}

/// Returns the index of the connection that is dropped for a new connection of the same listener: the oldest connection
/// of the machine with the most connections. Clients without credentials are dropped before clients with credentials. A
/// connection that is being answered is never dropped. Returns None if no connection may be dropped.
fn gives_way(all: &[Connection], new: &Connection) -> Option<usize> {
    let may = |c: &Connection| c.door() == new.door() && !c.is_answered();
    let has_strangers = all.iter().any(|c| may(c) && !c.is_known());
    let mut places: HashMap<Option<Origin>, usize> = HashMap::new();
    *places.entry(new.origin()).or_default() += 1;
    let leaves = |c: &Connection| may(c) && !(has_strangers && c.is_known());
    for c in all.iter().filter(|c| leaves(c)) {
        *places.entry(c.origin()).or_default() += 1;
    }
    let candidates = all.iter().enumerate().filter(|(_, c)| leaves(c));
    // `max_by_key` takes the last of equal elements. In the reversed list the last element is the oldest connection.
    let mut candidates: Vec<_> = candidates.collect();
    candidates.reverse();
    let most = candidates
        .into_iter()
        .max_by_key(|(_, c)| places.get(&c.origin()).copied());
    most.map(|(at, _)| at)
}

fn fd(connection: &Connection) -> i32 {
    connection.transport().as_fd().as_raw_fd()
}

/// Returns the largest number of clients of a listener that are accepted in one turn.
fn let_in_at_once(door: Door) -> usize {
    match door {
        Door::Health | Door::Main => MAX_CLIENTS,
        Door::Unix | Door::ReadOnly => AT_ONCE,
    }
}

/// Returns the largest number of clients of a listener that are served in one turn.
fn at_once(door: Door) -> usize {
    match door {
        Door::Health => MAX_CLIENTS,
        Door::Unix | Door::ReadOnly | Door::Main => AT_ONCE,
    }
}

#[cfg(test)]
mod tests;
