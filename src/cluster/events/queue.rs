//! Events on their way to the API server: which is sent next, and what becomes of it (kubelet-probes 9.11).
//!
//! Invariants: events are sent one after the other, in the order in which they happened. At most [`CAPACITY`] wait; then the
//! oldest is dropped and counted. The first in the queue may be under way, so it is neither dropped nor changed. An event
//! that happens again while it waits is sent once, with the last count.

use std::collections::VecDeque;
use std::time::Duration;

use super::Outgoing;
use crate::base::clock::Moment;
use crate::cluster::exchange::{Answer, Method, Request, Step};

/// The largest number of events that wait.
pub const CAPACITY: usize = 1000;

/// The time between two tries without a connection. The first comes after a random part of it, so that the nodes of a
/// cluster do not come together.
const RETRY: Duration = Duration::from_secs(10);

/// The wait after 429 without `Retry-After`.
const BUSY: Duration = Duration::from_secs(1);

/// Upper limit of the tries of an event that the API server cannot take for a reason of its own.
const MAX_TRIES: u32 = 12;

/// The fate of an event after an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The API server has the event.
    Sent,
    /// The event is sent again, at once or after a wait.
    Again,
    /// The event is dropped: its namespace is gone or ends. That is no fault.
    Gone,
    /// The event is dropped: the API server does not take it.
    Refused {
        /// HTTP status code.
        code: u16,
        /// Sentence of the API server.
        message: String,
    },
}

/// An event that waits.
#[derive(Debug)]
struct Waiting {
    event: Outgoing,
    /// True if the event is to be created, false if it is to be counted.
    create: bool,
}

/// The queue of events.
#[derive(Debug, Default)]
pub struct Queue {
    waiting: VecDeque<Waiting>,
    at: Moment,
    failures: u32,
    tries: u32,
    overflowed: u64,
    refused: u64,
}

impl Queue {
    /// Puts an event behind the others. If the queue is full, the oldest event is dropped.
    pub fn push(&mut self, event: Outgoing) {
        let mut behind = self.waiting.iter_mut().skip(1);
        let same =
            |w: &&mut Waiting| w.event.name == event.name && w.event.namespace == event.namespace;
        if let Some(waiting) = behind.find(same) {
            waiting.event = event;
            return;
        }
        if self.waiting.len() >= CAPACITY {
            self.waiting.remove(1);
            self.overflowed += 1;
        }
        let create = !event.is_repeated();
        self.waiting.push_back(Waiting { event, create });
    }

    /// Number of events that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// True if no event waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Number of events that were dropped because the queue was full.
    pub const fn overflowed(&self) -> u64 {
        self.overflowed
    }

    /// Number of events that the API server did not take.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// The next step, or `None` if no event waits. Asking changes nothing.
    pub fn next(&self, now: Moment) -> Option<Step> {
        let Waiting { event, create } = self.waiting.front()?;
        if now < self.at {
            return Some(Step::Wait(self.at));
        }
        let events = format!("/api/v1/namespaces/{}/events", event.namespace);
        Some(Step::Send(match create {
            true => Request {
                method: Method::Post,
                path: events,
                body: Some(event.event.clone()),
            },
            false => Request {
                method: Method::Patch,
                path: format!("{events}/{}", event.name),
                body: Some(event.patch()),
            },
        }))
    }

    /// Takes the answer to the last request. `random` is at least 0 and below 1.
    pub fn answered(&mut self, now: Moment, answer: &Answer, random: f64) -> Delivery {
        let code = answer.code();
        let Some(first) = self.waiting.front_mut() else {
            return Delivery::Sent;
        };
        if code != 0 {
            self.failures = 0;
        }
        self.at = now;
        match (first.create, code) {
            (_, 200..=299) => self.end(Delivery::Sent),
            (true, 403 | 404) | (false, 403) => self.end(Delivery::Gone),
            (true, 409) | (false, 404) if self.tries < MAX_TRIES => {
                first.create = code == 404;
                self.tries += 1;
                Delivery::Again
            }
            (_, 0) => {
                self.failures += 1;
                let is_first = self.failures == 1;
                self.at = now
                    + RETRY.mul_f64(if is_first {
                        random.clamp(0.0, 1.0)
                    } else {
                        1.0
                    });
                Delivery::Again
            }
            (_, 429) => {
                self.at = now + answer.retry_after().unwrap_or(BUSY);
                Delivery::Again
            }
            (_, 401 | 500..=599) if self.tries < MAX_TRIES => {
                self.tries += 1;
                self.at = now + answer.retry_after().unwrap_or(RETRY);
                Delivery::Again
            }
            _ => {
                self.refused += 1;
                let message = answer.message().to_owned();
                self.end(Delivery::Refused { code, message })
            }
        }
    }

    /// Takes the first event out of the queue.
    fn end(&mut self, delivery: Delivery) -> Delivery {
        self.waiting.pop_front();
        self.tries = 0;
        delivery
    }
}
