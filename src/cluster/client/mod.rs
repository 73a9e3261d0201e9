//! The client of the API server: all requests of the node, as streams of one HTTP/2 connection.
//!
//! Invariants: one thread uses the client, and drives it in turns; a turn never waits. Every request ends with an answer or
//! with the connection. Without a connection, the client makes one by itself, with longer and longer delays; a request
//! that is given to it then waits at most for the time that an answer may take. More requests than [`Pace`] allows wait.
//!
//! ```text
//! credentials ◀─ dial ◀┐
//! assembly, pace ◀──── Client
//! ```

mod assembly;
mod credentials;
mod dial;
mod pace;

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crossbeam_channel::{Receiver, TryRecvError};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};

use self::assembly::{Assembly, Use};
use self::credentials::{Credentials, Identity, Renewal};
use self::dial::Dialed;
use self::pace::Pace;
use super::exchange::{BackOff, Request};
use super::reflector;
use crate::base::bell::Bell;
use crate::base::clock::{Moment, random_fraction};
use crate::base::wire::streams::Streams;

pub use assembly::Heard;

/// Longest time for the answer to a call.
const ANSWER: Duration = Duration::from_secs(30);
/// Time after which a connection that is being made is given up. A name lookup may hang.
const DIAL: Duration = Duration::from_secs(30);

/// The number of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(u64);

/// The turn of a call among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// The call waits if there were many before it.
    Usual,
    /// The call goes at once, because the node is given up without it: its Lease and its status.
    Heartbeat,
}

/// A change of the connection, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkChange {
    /// There is a connection.
    Up,
    /// There is none, for this reason.
    Down(String),
}

/// The connection.
enum Connection {
    /// No connection, and no try before this moment.
    None { until: Moment },
    /// A thread makes the connection.
    Dialing {
        result: Receiver<Dialed>,
        until: Moment,
    },
    /// An open connection.
    Open(Box<Streams>),
}

/// A request that has not ended.
struct Pending {
    assembly: Assembly,
    /// The moment at which the request is given up; None for lists and watches, which reflectors give up themselves.
    until: Option<Moment>,
}

/// The client of the API server.
pub struct Client {
    credentials: Credentials,
    bell: Arc<Bell>,
    connection: Connection,
    back_off: BackOff,
    pace: Pace,
    /// The requests that wait for the pace, in their order.
    queue: VecDeque<(RequestId, http::Request<()>, Bytes)>,
    pending: BTreeMap<RequestId, Pending>,
    last: u64,
    changes: Vec<LinkChange>,
}

impl Client {
    /// Makes a client that connects at its first turn. `kubeconfig` is the path of the kubeconfig. `bell` rings when a
    /// connection has been made.
    pub fn new(kubeconfig: PathBuf, bell: Arc<Bell>, now: Moment) -> Self {
        Self {
            credentials: Credentials::new(kubeconfig),
            bell,
            connection: Connection::None { until: now },
            back_off: BackOff::default(),
            pace: Pace::new(now),
            queue: VecDeque::new(),
            pending: BTreeMap::new(),
            last: 0,
            changes: Vec::new(),
        }
    }

    /// True if there is a connection, so that a request has a chance.
    pub fn is_connected(&self) -> bool {
        matches!(self.connection, Connection::Open(_))
    }

    /// Takes the changes of the connection since the last call.
    pub fn take_changes(&mut self) -> Vec<LinkChange> {
        std::mem::take(&mut self.changes)
    }

    /// Sends a request that has one answer.
    pub fn call(&mut self, now: Moment, request: &Request, urgency: Urgency) -> RequestId {
        let body = request.body.as_ref().map(|body| body.to_string());
        let id = self.pend(Use::Call, Some(now + ANSWER));
        let method = request.method;
        let built = self.build(method.name(), &request.path, method.content_type());
        let body = Bytes::from(body.unwrap_or_default());
        self.submit(id, built, body, urgency);
        id
    }

    /// Sends the request of a reflector.
    pub fn stream(&mut self, request: &reflector::Request) -> RequestId {
        let of = match request.is_watch {
            true => Use::Watch,
            false => Use::List,
        };
        let id = self.pend(of, None);
        let built = self.build("GET", &request.path, None);
        self.submit(id, built, Bytes::new(), Urgency::Usual);
        id
    }

    /// Gives a request up. Nothing is heard of it any more.
    pub fn close(&mut self, id: RequestId) {
        self.pending.remove(&id);
        self.queue.retain(|(queued, ..)| *queued != id);
        if let Connection::Open(streams) = &mut self.connection {
            streams.close(id.0);
        }
    }

    fn pend(&mut self, of: Use, until: Option<Moment>) -> RequestId {
        self.last += 1;
        let id = RequestId(self.last);
        let assembly = Assembly::new(of);
        self.pending.insert(id, Pending { assembly, until });
        id
    }

    /// Makes the head of a request; None if there is no identity, or if the path is none.
    fn build(
        &self,
        method: &str,
        path: &str,
        content_type: Option<&str>,
    ) -> Option<http::Request<()>> {
        let Identity {
            server,
            authorization,
            ..
        } = self.credentials.identity()?;
        let uri = format!("https://{}{}{path}", server.authority(), server.prefix);
        let mut request = http::Request::builder()
            .method(method)
            .uri(uri)
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, concat!("podprobe/", env!("CARGO_PKG_VERSION")));
        if let Some(content_type) = content_type {
            request = request.header(CONTENT_TYPE, content_type);
        }
        if let Some(authorization) = authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        request.body(()).ok()
    }

    /// A request that cannot be made stays pending until the connection is lost or its time is over.
    fn submit(
        &mut self,
        id: RequestId,
        request: Option<http::Request<()>>,
        body: Bytes,
        urgency: Urgency,
    ) {
        let Some(request) = request else { return };
        match (&mut self.connection, urgency) {
            (Connection::Open(streams), Urgency::Heartbeat) => streams.send(id.0, request, body),
            _ => self.queue.push_back((id, request, body)),
        }
    }

    /// Sends and receives what is possible without waiting. Returns what is heard of the requests.
    pub fn turn(&mut self, now: Moment) -> Vec<(RequestId, Heard)> {
        let mut heard = Vec::new();
        self.look_at_credentials(now, &mut heard);
        self.advance(now, &mut heard);
        self.send_queued(now);
        self.exchange(now, &mut heard);
        self.give_up_late(now, &mut heard);
        heard
    }

    fn look_at_credentials(&mut self, now: Moment, heard: &mut Vec<(RequestId, Heard)>) {
        let is_about_to_dial =
            matches!(self.connection, Connection::None { until } if now >= until);
        if now < self.credentials.look_at() && !is_about_to_dial {
            return;
        }
        match self.credentials.look(now) {
            Ok(Renewal::Connection) if self.is_connected() => {
                let cause = "the credentials have changed: connecting anew".to_owned();
                self.lose(now, cause, heard);
                self.connection = Connection::None { until: now };
            }
            Ok(_) => {}
            Err(e) if self.credentials.identity().is_some() => {
                log::warn!("{e}; what was read before stays in use");
            }
            Err(e) => self.lose(now, e.to_string(), heard),
        }
    }

    /// Makes a connection, or takes one that has been made.
    fn advance(&mut self, now: Moment, heard: &mut Vec<(RequestId, Heard)>) {
        match &self.connection {
            Connection::None { until } if now >= *until => {
                let Some(identity) = self.credentials.identity() else {
                    return;
                };
                match dial::begin(identity.clone(), self.bell.clone()) {
                    Ok(result) => {
                        let until = now + DIAL;
                        self.connection = Connection::Dialing { result, until };
                    }
                    Err(e) => self.lose(now, format!("cannot start a thread: {e}"), heard),
                }
            }
            Connection::Dialing { result, until } => match result.try_recv() {
                Ok(dialed) => self.dialed(now, dialed, heard),
                Err(TryRecvError::Empty) if now < *until => {}
                Err(_) => {
                    let cause = format!("no connection to the API server within {DIAL:?}");
                    self.lose(now, cause, heard);
                }
            },
            Connection::None { .. } | Connection::Open(_) => {}
        }
    }

    fn dialed(&mut self, now: Moment, dialed: Dialed, heard: &mut Vec<(RequestId, Heard)>) {
        let connection = match dialed {
            Ok(connection) => connection,
            Err(e) => return self.lose(now, e.to_string(), heard),
        };
        match Streams::open(connection, Instant::now()) {
            Ok(streams) => {
                self.connection = Connection::Open(Box::new(streams));
                self.changes.push(LinkChange::Up);
            }
            Err(e) => {
                let cause = format!("cannot begin HTTP/2 with the API server: {e}");
                self.lose(now, cause, heard);
            }
        }
    }

    fn send_queued(&mut self, now: Moment) {
        let Connection::Open(streams) = &mut self.connection else {
            return;
        };
        while !self.queue.is_empty() && self.pace.take(now) {
            if let Some((id, request, body)) = self.queue.pop_front() {
                streams.send(id.0, request, body);
            }
        }
    }

    fn exchange(&mut self, now: Moment, heard: &mut Vec<(RequestId, Heard)>) {
        let Connection::Open(streams) = &mut self.connection else {
            return;
        };
        let news = match streams.turn(Instant::now()) {
            Ok(news) => news,
            Err(cause) => {
                let cause = format!("the connection to the API server is lost: {cause}");
                return self.lose(now, cause, heard);
            }
        };
        for (id, news) in news {
            // A connection that answers is a good one.
            self.back_off.reset();
            let id = RequestId(id);
            let Some(pending) = self.pending.get_mut(&id) else {
                continue;
            };
            let Some(news) = pending.assembly.take(news) else {
                continue;
            };
            if !matches!(news, Heard::Opened | Heard::Data(_)) {
                self.pending.remove(&id);
                // An answer that has become too big is cut off.
                streams.close(id.0);
            }
            heard.push((id, news));
        }
    }

    /// Ends all requests for want of a connection.
    fn lose(&mut self, now: Moment, cause: String, heard: &mut Vec<(RequestId, Heard)>) {
        let delay = self.back_off.next(None).mul_f64(0.5 + random_fraction());
        self.connection = Connection::None { until: now + delay };
        self.queue.clear();
        let pending = std::mem::take(&mut self.pending).into_iter();
        heard.extend(pending.map(|(id, p)| (id, p.assembly.broken(cause.clone()))));
        self.changes.push(LinkChange::Down(cause));
    }

    fn give_up_late(&mut self, now: Moment, heard: &mut Vec<(RequestId, Heard)>) {
        let is_late = |pending: &Pending| pending.until.is_some_and(|until| now >= until);
        let pending = self.pending.iter();
        let late = pending.filter(|(_, pending)| is_late(pending));
        for id in late.map(|(id, _)| *id).collect::<Vec<_>>() {
            if let Some(pending) = self.pending.get(&id) {
                let cause = format!("no answer within {ANSWER:?}");
                heard.push((id, pending.assembly.broken(cause)));
            }
            self.close(id);
        }
    }

    /// Waits until the next turn is due or the bell rings, but at most until `until`.
    pub fn wait(&self, now: Moment, until: Moment) {
        let until = self.deadline(now).map_or(until, |own| own.min(until));
        let at = Instant::now() + until.since(now);
        match &self.connection {
            Connection::Open(streams) => streams.wait(self.bell.as_fd(), at),
            Connection::None { .. } | Connection::Dialing { .. } => self.bell.wait(at),
        }
    }

    /// The moment at which a turn is due although nothing has come.
    fn deadline(&self, now: Moment) -> Option<Moment> {
        let connection = match &self.connection {
            Connection::None { until } | Connection::Dialing { until, .. } => Some(*until),
            Connection::Open(_) => None,
        };
        let paced = (self.is_connected() && !self.queue.is_empty()).then(|| self.pace.next(now));
        let late = self.pending.values().filter_map(|pending| pending.until);
        let look = self.credentials.look_at();
        late.chain(connection).chain(paced).chain([look]).min()
    }
}
