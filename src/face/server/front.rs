//! The thread `server`: lets clients in, reads what they ask, and answers for health. Whatever else is asked gets a thread,
//! once it is known who asks and what.
//!
//! Invariants: it waits in `poll` only. Nobody who is slow keeps anybody out: at a door that is full a client that has asked
//! nothing gives way to the next one, and who asks again and again waits for the others. Nor does one machine keep others
//! out, however many connections it makes: it gives way to itself, and each machine has its turn before one has its second.
//! Who has shown a certificate or a token comes first. An address that cannot be
//! listened on is said once and tried again; the others go on.

use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::access::{self, Credentials, Door};
use super::connection::{Connection, MAX_HEAD, Origin, Then};
use super::credentials::CredentialFiles;
use super::health::{self, Check};
use super::request::{BadHead, Length, Request};
use super::response::{self, TEXT};
use super::tcp_door::TcpDoor;
use super::transport::Transport;
use super::unix_door::UnixDoor;
use super::worker::{self, Job, Shared};
use crate::base::clock::Moment;
use crate::base::wire::listen::is_of_client;

/// Clients at a time of each address.
pub const MAX_CLIENTS: usize = 64;
/// Bytes that the heads of all clients may have together, beyond what each client may have.
const HEAD_POOL: usize = 2 * MAX_HEAD;
/// The pause in letting clients in after there were no descriptors.
const PAUSE: Duration = Duration::from_millis(200);
/// How long an answer of the checks stays good: they ask the disk.
const CHECKS_LAST: Duration = Duration::from_millis(500);
/// Requests of one connection that are answered in a row; with the last it ends.
const IN_A_ROW: usize = 8;
/// Clients of a door that are served in one turn where more than health is asked for: a handshake of TLS takes
/// milliseconds on a small processor, and health is looked at in between.
const AT_ONCE: usize = 4;

pub(super) struct Front {
    shared: Arc<Shared>,
    unix: UnixDoor,
    tcp: Vec<TcpDoor>,
    /// The oldest first.
    connections: Vec<Connection>,
    /// The moment until which nobody is let in, for want of descriptors.
    rests: Option<Moment>,
    checks: Option<(Moment, Vec<Check>)>,
}

/// The doors at which clients call, and the connections that can go on.
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

    /// Serves until the server stops. After a panic the doors are as they were, and clients that were let in have to come
    /// again.
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
        // It may have been made again after the stop had removed it.
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

    /// Waits, and returns the doors and connections that are ready; None when waiting itself failed.
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

    /// Returns how long the thread may wait: until a client's time is over, or something is to be tried again.
    fn patience(&self, now: Moment) -> PollTimeout {
        let retries = self.tcp.iter().filter_map(TcpDoor::retry_at);
        let times = self.connections.iter().map(Connection::until);
        let all = times.chain(retries).chain(self.rests);
        let Some(next) = all.chain(self.unix.retry_at()).min() else {
            return PollTimeout::NONE;
        };
        // Rounded up: poll counts in milliseconds, and waking early would only spin.
        let left = next.since(now) + Duration::from_micros(999);
        PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
    }

    /// The connections whose requests were answered.
    fn take_back(&mut self, now: Moment) {
        for (transport, door, buffer) in self.shared.returned() {
            self.go_on(Connection::returned(transport, door, buffer, now), now);
        }
    }

    /// Drops connections whose time is over, and goes on with those whose turn it is. The others are still ready at the
    /// next turn.
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

    /// Returns the descriptors of the connections whose turn it is: see [`order`].
    fn chosen(&self, ready: &Ready) -> HashSet<i32> {
        let all = self.connections.iter();
        let all = all.filter(|c| ready.connections.contains(&fd(c)));
        let mut all = order(all.collect());
        // Of each door none yet.
        let mut served = self.shared.busy.each_ref().map(|_| 0);
        all.retain(|c| {
            let served = &mut served[c.door() as usize];
            *served += 1;
            *served <= at_once(c.door())
        });
        all.into_iter().map(fd).collect()
    }

    /// Goes on with a connection as far as it can without waiting.
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

    /// Answers at once, or has a thread answer: then the connection is not ours for so long.
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
        if let Err(refusal) = access::check(door, credentials, &request, self.shared.debugging) {
            let text = format!("{}\n", refusal.text);
            connection.answer(whole(&request, refusal.status, &text, false), false, now);
            return Some(connection);
        }
        if health::is_health(&request.path) {
            let goes_on = request.keep_alive && request.length == Length::Known(0);
            let (status, text) = health::answer(&request, self.checks(now));
            connection.answer(whole(&request, status, &text, goes_on), goes_on, now);
            return Some(connection);
        }
        let job = Job {
            request,
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
        connection.answer(whole(&job.request, 503, &text, false), false, now);
        Some(connection)
    }

    fn credentials(&mut self, connection: &Connection, request: &Request) -> Credentials {
        match connection.door() {
            Door::Unix => Credentials::Valid,
            Door::Health | Door::ReadOnly => Credentials::None,
            Door::Main => {
                let known = self.tcp.iter_mut().find_map(TcpDoor::credentials);
                known.map_or(Credentials::None, |known| {
                    known.of(connection.transport(), request.token.as_deref())
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

    /// Lets in clients that call at a door, a few at a time. The others still call at the next turn.
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
                    // The connection stays queued, so without a pause this would spin.
                    log::warn!("cannot accept a client: {e}");
                    self.rests = Some(now + PAUSE);
                    return;
                }
            }
        }
    }

    /// A new client has a place when there is one, or when one that has asked nothing can go.
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
            // To let in costs little, a handshake much: whose turn it is to have one is chosen from all that are in.
            Door::Main => self.connections.push(connection),
        }
    }
}

/// The order in which connections are served. At each door known clients have all places of a turn but one, which is a
/// stranger's. Among each of the two, every machine's first connection comes before any machine's second. Of equal ones
/// the one comes first that was served longest ago.
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
        // Known ones stand in the first places of each turn, strangers in the last one.
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

/// The connection of the same door that leaves for a new one: the oldest of the machine that has the most places. Strangers
/// leave before known clients, and one that is answered stays.
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
    // Of equal ones the last is taken: the oldest, when they come in reverse.
    let mut candidates: Vec<_> = candidates.collect();
    candidates.reverse();
    let most = candidates
        .into_iter()
        .max_by_key(|(_, c)| places.get(&c.origin()).copied());
    most.map(|(at, _)| at)
}

/// A whole answer; to a HEAD without its body.
fn whole(request: &Request, status: u16, text: &str, keep_alive: bool) -> Vec<u8> {
    let mut bytes = response::whole(status, TEXT, text, keep_alive);
    if request.is_head() {
        bytes.truncate(bytes.len() - text.len());
    }
    bytes
}

fn fd(connection: &Connection) -> i32 {
    connection.transport().as_fd().as_raw_fd()
}

/// How many clients of a door are let in in one turn.
fn let_in_at_once(door: Door) -> usize {
    match door {
        Door::Health | Door::Main => MAX_CLIENTS,
        Door::Unix | Door::ReadOnly => AT_ONCE,
    }
}

/// How many clients of a door get on in one turn.
fn at_once(door: Door) -> usize {
    match door {
        Door::Health => MAX_CLIENTS,
        Door::Unix | Door::ReadOnly | Door::Main => AT_ONCE,
    }
}

#[cfg(test)]
mod tests;
