//! Decides which event an occurrence becomes, as client-go's event correlator does (kubelet-probes 9.11): equal
//! occurrences are counted, similar ones are combined, and an object that has too many is left out for a while.
//!
//! Invariants: a small record is kept for each of the last 4,096 events, groups of similar events, and objects. An
//! occurrence that is left out is counted nevertheless, so that the next one has the right count.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, SystemTime};

use super::lru::Lru;
use super::{Occurrence, Outgoing, Seen};
use crate::base::clock::Moment;
use crate::base::text::head;
use crate::pods::events::{COMBINED, MAX_MESSAGE, MAX_SIMILAR, SIMILAR_INTERVAL};

/// The number of events of one object that may follow one another at once.
const BURST: f64 = 25.0;

/// The time after which an object may have one event more.
const REFILL: Duration = Duration::from_secs(300);

/// The texts of events that differ only in them, as hashes.
#[derive(Debug)]
struct Similar {
    messages: Vec<u64>,
    last: Moment,
}

/// The events that an object may still have, at a time.
#[derive(Debug)]
struct Bucket {
    tokens: f64,
    at: Moment,
}

/// Turns occurrences into events.
#[derive(Debug)]
pub struct Correlator {
    node: String,
    similar: Lru<Similar>,
    seen: Lru<Option<Seen>>,
    buckets: Lru<Bucket>,
    /// The wall-clock time of the last occurrence, and how many others had the same time.
    last: (SystemTime, u32),
}

impl Correlator {
    /// A correlator that has seen nothing.
    pub fn new(node_name: &str) -> Self {
        Self {
            node: node_name.to_owned(),
            similar: Lru::new(),
            seen: Lru::new(),
            buckets: Lru::new(),
            last: (SystemTime::UNIX_EPOCH, 0),
        }
    }

    /// The event that an occurrence becomes, or `None` if its object has had too many.
    pub fn record(
        &mut self,
        now: Moment,
        wall: SystemTime,
        mut what: Occurrence,
    ) -> Option<Outgoing> {
        let wall = self.distinct(wall);
        what.message
            .truncate(head(&what.message, MAX_MESSAGE).len());
        let message = hash(&what.message);
        let group = group(&what);
        let key = match self.is_one_too_many(now, group, message) {
            true => {
                what.message.insert_str(0, COMBINED);
                group
            }
            false => hash(&(group, &what.field_path, message)),
        };
        let seen = self.count(key, wall);
        let is_left_out = !self.takes(now, object(&what));
        (!is_left_out).then(|| Outgoing::new(&what, &seen, wall, &self.node))
    }

    /// The time with a nanosecond more for each occurrence of the same time before it: the time is in the event's name.
    fn distinct(&mut self, wall: SystemTime) -> SystemTime {
        let (last, times) = self.last;
        let times = if wall == last {
            times.saturating_add(1)
        } else {
            0
        };
        self.last = (wall, times);
        wall + Duration::from_nanos(times.into())
    }

    /// True if the group has had so many different texts that this one is combined with others. The texts that came first
    /// stay events of their own. After a pause the group begins anew.
    fn is_one_too_many(&mut self, now: Moment, group: u64, message: u64) -> bool {
        let new = Similar {
            messages: Vec::new(),
            last: now,
        };
        let similar = self.similar.get_or_insert(group, new);
        if now.since(similar.last) > SIMILAR_INTERVAL {
            similar.messages.clear();
        }
        similar.last = now;
        if similar.messages.contains(&message) {
            return false;
        }
        let is_full = similar.messages.len() + 1 >= MAX_SIMILAR;
        if !is_full {
            similar.messages.push(message);
        }
        is_full
    }

    fn count(&mut self, key: u64, wall: SystemTime) -> Seen {
        let seen = self.seen.get_or_insert(key, None);
        let (count, first) = seen.map_or((0, wall), |seen| (seen.count, seen.first));
        let count = count.saturating_add(1);
        *seen.insert(Seen { count, first })
    }

    /// True if the object may have an event now, which is then taken off.
    fn takes(&mut self, now: Moment, object: u64) -> bool {
        let full = Bucket {
            tokens: BURST,
            at: now,
        };
        let bucket = self.buckets.get_or_insert(object, full);
        let refilled = now.since(bucket.at).as_secs_f64() / REFILL.as_secs_f64();
        bucket.tokens = (bucket.tokens + refilled).min(BURST);
        bucket.at = now;
        // A billionth makes up for the rounding of many small refills.
        let is_taken = bucket.tokens + 1e-9 >= 1.0;
        if is_taken {
            bucket.tokens -= 1.0;
        }
        is_taken
    }
}

fn object(what: &Occurrence) -> u64 {
    hash(&(&what.kind, &what.namespace, &what.name, &what.uid))
}

/// Events that differ in their texts and containers only.
fn group(what: &Occurrence) -> u64 {
    hash(&(object(what), what.type_ as u8, &what.reason))
}

fn hash(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}
