//! Questions that are forwarded to other resolvers: their tries, their limits, and the answers for the clients.
//!
//! Invariants: every question ends with one answer, at the latest [`TOTAL`] after it was asked. At most [`MOST`]
//! questions wait at a time, at most [`MOST_STREAMS`] of them over TCP. A further question replaces the oldest question
//! of the client with the most questions, so a client that floods harms itself. An answer counts only if it comes from
//! the asked resolver, on the socket of the current try, with the ID and the question of that try.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use domain::base::iana::Rcode;

use crate::base::clock::Moment;

use super::message::{Query, Reply};
use super::record::{OwnedName, Records};
use super::reply::Answered;
use super::upstreams::Upstreams;

/// Largest number of questions that wait at a time.
pub const MOST: usize = 512;
/// Longest time that a try waits for its answer.
pub const TRY: Duration = Duration::from_secs(2);
/// Longest time that a question waits in all.
pub const TOTAL: Duration = Duration::from_secs(5);

/// Largest number of questions over TCP at a time. The number is small because answers over TCP are large.
pub const MOST_STREAMS: usize = 64;

/// The transport of a question to a resolver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// UDP: one datagram each way.
    Udp,
    /// TCP, for answers that do not fit into a datagram.
    Tcp,
}

/// A client's question for other resolvers.
#[derive(Clone, Debug)]
pub struct Question<C> {
    /// The caller's key of the client that gets the answer.
    pub client: C,
    /// The client's address.
    pub from: IpAddr,
    /// The client's question.
    pub query: Query,
    /// The largest answer that the client takes, in bytes.
    pub limit: usize,
    /// True if the client takes an answer of any size. In this case a truncated answer of a resolver is fetched whole,
    /// over TCP.
    pub whole: bool,
    /// The name for which other resolvers are asked.
    pub name: OwnedName,
    /// CNAME records that stand before the other resolver's answer.
    pub aliases: Vec<Records>,
}

/// An action that the caller must carry out for a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<C> {
    /// Send the question, over a new socket that replaces the last socket of the question.
    Send {
        /// Key of the question.
        key: u64,
        /// The resolver to ask.
        upstream: SocketAddr,
        /// UDP or TCP.
        transport: Transport,
        /// The bytes of the question to send.
        bytes: Vec<u8>,
    },
    /// Give the answer to the client. The question is over.
    Done {
        /// Key of the question.
        key: u64,
        /// The client that gets the answer.
        client: C,
        /// The answer.
        bytes: Vec<u8>,
    },
}

struct Waiting<C> {
    question: Question<C>,
    began: Moment,
    due: Moment,
    upstream: SocketAddr,
    transport: Transport,
    id: u16,
    tried: Vec<SocketAddr>,
    /// The relayed answer of the last resolver that refused or failed; `None` if there was no such answer.
    refusal: Option<Vec<u8>>,
}

/// Counts of forwarded questions, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of forwarded questions.
    pub questions: u64,
    /// Number of tries. The first try of each question counts too.
    pub tries: u64,
    /// Number of tries that got no answer in time.
    pub timeouts: u64,
    /// Number of tries that failed at once, or that a resolver refused.
    pub failures: u64,
    /// Number of questions that were dropped to make room for other questions.
    pub displaced: u64,
}

/// The questions that wait for other resolvers. `C` identifies a client.
pub struct Forwards<C> {
    upstreams: Upstreams,
    waiting: BTreeMap<u64, Waiting<C>>,
    due: BTreeSet<(Moment, u64)>,
    /// Number of waiting questions of each client, never 0.
    by_client: HashMap<IpAddr, usize>,
    next_key: u64,
    tally: Tally,
}

impl<C> Default for Forwards<C> {
    fn default() -> Self {
        Self {
            upstreams: Upstreams::default(),
            waiting: BTreeMap::new(),
            due: BTreeSet::new(),
            by_client: HashMap::new(),
            next_key: 0,
            tally: Tally::default(),
        }
    }
}

impl<C> Forwards<C> {
    /// Sets the resolvers to ask from now on.
    pub fn set_upstreams(&mut self, addresses: impl IntoIterator<Item = SocketAddr>) {
        self.upstreams.set(addresses);
    }

    /// Returns the counts so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Returns the number of waiting questions.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns true if no question waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the moment at which [`Self::expire`] must be called; `None` if no question waits.
    pub fn deadline(&self) -> Option<Moment> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Begins to forward a question. `id` is a random ID for the first try.
    pub fn ask(&mut self, question: Question<C>, id: u16, now: Moment) -> Vec<Step<C>> {
        let key = self.next_key;
        self.next_key += 1;
        self.tally.questions += 1;
        let Some(upstream) = self.upstreams.pick(now, &[]) else {
            return vec![fail(key, question, None)];
        };
        let mut steps = Vec::with_capacity(1);
        if self.waiting.len() >= MOST {
            let most = self.by_client.iter().max_by_key(|(_, count)| **count);
            let most = most.map(|(from, _)| *from);
            steps.extend(most.and_then(|from| self.displace(from, |_| true)));
        }
        let waiting = Waiting {
            question,
            began: now,
            due: now,
            upstream,
            transport: Transport::Udp,
            id,
            tried: Vec::new(),
            refusal: None,
        };
        steps.push(self.send(key, waiting, now));
        steps
    }

    /// Takes a message that has arrived on the socket of a question. `id` is a random ID for a further try. Returns no
    /// step if the message is not the answer, or if the question no longer waits.
    pub fn answered(&mut self, key: u64, bytes: &[u8], id: u16, now: Moment) -> Vec<Step<C>> {
        let Some(waiting) = self.waiting.get(&key) else {
            return Vec::new();
        };
        let question = &waiting.question;
        let (name, rtype) = (&question.name, question.query.rtype);
        let Some(answer) = Answered::read(bytes, waiting.id, name, rtype) else {
            return Vec::new();
        };
        let Some(mut waiting) = self.take(key) else {
            return Vec::new();
        };
        self.upstreams.answered(waiting.upstream);
        if answer.is_broken() {
            self.tally.failures += 1;
            return vec![self.again(key, waiting, true, id, now)];
        }
        let question = &waiting.question;
        let relayed = answer.relay(&question.query, &question.aliases, question.limit);
        if answer.is_failure() {
            self.tally.failures += 1;
            waiting.refusal = Some(relayed);
            return vec![self.again(key, waiting, true, id, now)];
        }
        if answer.is_truncated() && question.whole && waiting.transport == Transport::Udp {
            let mut steps: Vec<Step<C>> = self.make_room_for_a_stream().into_iter().collect();
            waiting.transport = Transport::Tcp;
            waiting.id = id;
            steps.push(self.send(key, waiting, now));
            return steps;
        }
        vec![Step::Done {
            key,
            client: waiting.question.client,
            bytes: relayed,
        }]
    }

    /// Returns the next step of a question after its socket has failed; `None` if the question no longer waits. `id` is
    /// a random ID for the next try.
    pub fn failed(&mut self, key: u64, id: u16, now: Moment) -> Option<Step<C>> {
        let waiting = self.take(key)?;
        self.tally.failures += 1;
        self.upstreams.failed(waiting.upstream, true, now);
        Some(self.again(key, waiting, true, id, now))
    }

    /// Ends the tries that have waited too long, and returns the next step for each. `random` gives the IDs of new
    /// tries.
    pub fn expire(&mut self, now: Moment, mut random: impl FnMut() -> u16) -> Vec<Step<C>> {
        let mut steps = Vec::new();
        while let Some((_, key)) = self.due.first().copied().filter(|(due, _)| *due <= now) {
            let Some(waiting) = self.take(key) else {
                break;
            };
            self.tally.timeouts += 1;
            self.upstreams.failed(waiting.upstream, false, now);
            steps.push(self.again(key, waiting, false, random(), now));
        }
        steps
    }

    /// Begins the next try, or ends the question. After a refusal the same resolver is not asked again, because its
    /// answer would be the same.
    fn again(
        &mut self,
        key: u64,
        mut waiting: Waiting<C>,
        refused: bool,
        id: u16,
        now: Moment,
    ) -> Step<C> {
        waiting.tried.push(waiting.upstream);
        let has_time = now < waiting.began + TOTAL;
        let mut next = self
            .upstreams
            .pick(now, &waiting.tried)
            .filter(|_| has_time);
        if next.is_none() && !refused && has_time {
            waiting.tried.clear();
            next = self.upstreams.pick(now, &[]);
        }
        let Some(upstream) = next else {
            return fail(key, waiting.question, waiting.refusal);
        };
        waiting.upstream = upstream;
        waiting.transport = Transport::Udp;
        waiting.id = id;
        self.send(key, waiting, now)
    }

    fn send(&mut self, key: u64, mut waiting: Waiting<C>, now: Moment) -> Step<C> {
        self.tally.tries += 1;
        waiting.due = (now + TRY).min(waiting.began + TOTAL);
        let mut bytes = waiting.question.query.request(&waiting.question.name);
        if let Some(number) = bytes.get_mut(..2) {
            number.copy_from_slice(&waiting.id.to_be_bytes());
        }
        let step = Step::Send {
            key,
            upstream: waiting.upstream,
            transport: waiting.transport,
            bytes,
        };
        self.due.insert((waiting.due, key));
        *self.by_client.entry(waiting.question.from).or_default() += 1;
        self.waiting.insert(key, waiting);
        step
    }

    fn make_room_for_a_stream(&mut self) -> Option<Step<C>> {
        let streams = self.waiting.values();
        let streams = streams.filter(|w| w.transport == Transport::Tcp);
        let mut by_client: HashMap<IpAddr, usize> = HashMap::new();
        for waiting in streams {
            *by_client.entry(waiting.question.from).or_default() += 1;
        }
        if by_client.values().sum::<usize>() < MOST_STREAMS {
            return None;
        }
        let (from, _) = by_client.into_iter().max_by_key(|(_, count)| *count)?;
        self.displace(from, |w| w.transport == Transport::Tcp)
    }

    fn take(&mut self, key: u64) -> Option<Waiting<C>> {
        let waiting = self.waiting.remove(&key)?;
        self.due.remove(&(waiting.due, key));
        if let Entry::Occupied(mut count) = self.by_client.entry(waiting.question.from) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        Some(waiting)
    }

    /// Drops the oldest question of a client for which `is_one` is true. That question gets an answer with an error.
    fn displace(&mut self, from: IpAddr, is_one: impl Fn(&Waiting<C>) -> bool) -> Option<Step<C>> {
        let mut oldest_first = self.waiting.iter();
        let key = *oldest_first
            .find(|(_, w)| w.question.from == from && is_one(w))?
            .0;
        self.tally.displaced += 1;
        let waiting = self.take(key)?;
        Some(fail(key, waiting.question, None))
    }
}

/// Ends a question that has no answer. The client gets the refusal of a resolver, if there is one, and otherwise
/// SERVFAIL.
fn fail<C>(key: u64, question: Question<C>, refusal: Option<Vec<u8>>) -> Step<C> {
    let bytes = refusal.unwrap_or_else(|| {
        let reply = Reply::error(Rcode::SERVFAIL);
        question.query.answer(&reply, question.limit)
    });
    Step::Done {
        key,
        client: question.client,
        bytes,
    }
}
