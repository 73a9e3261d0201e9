//! Events: the record of what has happened to pods, in the kubelet's reasons and texts. A bounded list of events is
//! kept for `describe` and `get events`. The log has a new event at `info` or `warn` and a repeated one at `debug`. So
//! a probe that fails each second writes at most one line in ten minutes, not 600.
//!
//! Invariants: equal events become one event with a count. The text leaves out the id of an instance, because the id
//! would keep equal events apart. Only the log has the id. If events differ only in their text, the first
//! [`MAX_SIMILAR`] within [`SIMILAR_INTERVAL`] are kept apart, and later events become one event, as in client-go's
//! recorder. So a probe with a time in its output does not push out other events. The events of a removed pod are kept
//! for [`KEPT`].

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::api::{PodRef, PodUid};
use crate::base::change_feed::{Aspect, ChangeFeed};
use crate::base::clock::{Moment, Time};
use crate::base::locks::Locked;
use crate::base::metrics::counters::Counter;
use crate::base::text::{head, without_ids};

/// The largest number of events that a daemon keeps. The oldest events are dropped first.
pub const MAX_EVENTS: usize = 1000;

/// Upper limit in bytes of an event's text in the list. The log has the whole text.
pub const MAX_MESSAGE: usize = 1024;

/// The number of events of one object, type and reason that are kept apart although they differ only in their text.
pub const MAX_SIMILAR: usize = 10;

/// The time after which events no longer count as similar.
pub const SIMILAR_INTERVAL: Duration = Duration::from_secs(600);

/// The prefix of the text of an event that combines several similar events.
pub const COMBINED: &str = "(combined from similar events): ";

/// The time for which the events of a removed pod are kept after they last happened. An API server has the same
/// default.
pub const KEPT: Duration = Duration::from_secs(3600);

/// The type of an event: `Normal` or `Warning`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventType {
    /// Something expected has happened.
    Normal,
    /// Something has happened that a person should look at.
    Warning,
}

/// An event with its count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// The kind of the object that the event is about: `Pod`, or the kind of a workload.
    #[serde(default = "pod_kind")]
    pub kind: String,
    /// The namespace of the object (`metadata.namespace`).
    pub namespace: String,
    /// The name of the object (`metadata.name`).
    pub pod: String,
    /// The UID of the object (`metadata.uid`).
    pub uid: String,
    /// The container: `spec.containers{name}` or `spec.initContainers{name}`. Empty for an event of the pod itself.
    pub field_path: String,
    /// The type of the event.
    #[serde(rename = "type")]
    pub type_: EventType,
    /// The reason in one word: `Unhealthy`, `Killing`, `Started`, …
    pub reason: String,
    /// The kubelet's text.
    pub message: String,
    /// The number of times that the event happened.
    pub count: u32,
    /// The time at which the event first happened, by the wall clock.
    pub first_timestamp: Time,
    /// The time at which the event last happened, by the wall clock.
    pub last_timestamp: Time,
}

/// The kind of the object of most events.
fn pod_kind() -> String {
    POD.to_owned()
}

const POD: &str = "Pod";

/// An event in the list, with the boot-clock time at which it last happened and the version of its last change.
struct Kept {
    event: Arc<Event>,
    last: Moment,
    version: u64,
}

impl Kept {
    fn is_of(&self, new: &Event) -> bool {
        let e = &self.event;
        e.uid == new.uid
            && e.field_path == new.field_path
            && e.type_ == new.type_
            && e.reason == new.reason
    }
}

/// The events for `get events`: all events, or only the events after a version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventList {
    /// The version of the list, which grows with every change. A watcher requests the events after this version.
    pub version: u64,
    /// The suffix of every static pod's name.
    pub node_name: String,
    /// The events, the most recent last.
    pub events: Vec<Arc<Event>>,
}

/// The object that an event is about.
#[derive(Clone, Copy, Debug)]
pub struct Involved<'a> {
    /// Kind of the object, such as `Deployment`.
    pub kind: &'a str,
    /// Namespace, name and UID of the object.
    pub object: &'a PodRef,
}

/// Takes each event when it happens, as an event with the count 1.
type Tap = Box<dyn Fn(&Event) + Send + Sync>;

/// Collects events. Never blocks longer than a list operation takes.
#[derive(Default)]
pub struct Recorder {
    events: Mutex<Vec<Kept>>,
    tap: OnceLock<Tap>,
    feed: Arc<ChangeFeed>,
    normal: Counter,
    warning: Counter,
}

impl Recorder {
    /// Makes a recorder with an empty list. The recorder reports every event to `feed`.
    pub fn new(feed: Arc<ChangeFeed>) -> Self {
        Self {
            feed,
            ..Self::default()
        }
    }

    /// Hands each event to `tap` from now on, on the thread that records it, which must not be held up. There is one tap.
    pub fn tap(&self, tap: impl Fn(&Event) + Send + Sync + 'static) {
        let _ = self.tap.set(Box::new(tap));
    }

    /// Records an event of a pod, or of one of its containers. For the pod itself `field_path` is empty, for a
    /// container see [`crate::api::Pod::field_path`]. If an equal event exists, its count grows.
    pub fn record(
        &self,
        pod: &PodRef,
        field_path: &str,
        type_: EventType,
        reason: &str,
        message: &str,
    ) {
        let level = match type_ {
            EventType::Normal => log::Level::Info,
            EventType::Warning => log::Level::Warn,
        };
        self.record_at(level, pod, field_path, type_, reason, message);
    }

    /// Records an event of a workload. If an equal event exists, its count grows.
    pub fn record_workload(
        &self,
        workload: &Involved<'_>,
        type_: EventType,
        reason: &str,
        message: &str,
    ) {
        let level = match type_ {
            EventType::Normal => log::Level::Info,
            EventType::Warning => log::Level::Warn,
        };
        self.keep(level, workload, "", type_, reason, message);
    }

    /// Records an event like [`Self::record`]. `level` is the level of the event's first log line. Repetitions are
    /// logged at debug.
    pub fn record_at(
        &self,
        level: log::Level,
        pod: &PodRef,
        field_path: &str,
        type_: EventType,
        reason: &str,
        message: &str,
    ) {
        let involved = Involved {
            kind: POD,
            object: pod,
        };
        self.keep(level, &involved, field_path, type_, reason, message);
    }

    fn keep(
        &self,
        level: log::Level,
        involved: &Involved<'_>,
        field_path: &str,
        type_: EventType,
        reason: &str,
        message: &str,
    ) {
        self.counter(type_).count();
        let now = Time::now();
        let Involved { kind, object } = involved;
        let event = Event {
            kind: (*kind).to_owned(),
            namespace: object.namespace.to_string(),
            pod: object.name.to_string(),
            uid: object.uid.to_string(),
            field_path: field_path.into(),
            type_,
            reason: reason.into(),
            message: head(&without_ids(message), MAX_MESSAGE).into(),
            count: 1,
            first_timestamp: now,
            last_timestamp: now,
        };
        self.tap.get().inspect(|tap| tap(&event));
        let mut events = self.lock();
        let is_news = keep(&mut events, event, Moment::now());
        // The version is set under the lock of the list, so that a reader that sees the version finds the event.
        let version = self.feed.tell(&object.uid, Aspect::Events);
        if let Some(newest) = events.last_mut() {
            newest.version = version;
        }
        drop(events);
        let level = if is_news { level } else { log::Level::Debug };
        match *kind == POD {
            true => log::log!(level, "{object} {field_path} {reason}: {message}"),
            false => log::log!(
                level,
                "{kind} {}/{} {reason}: {message}",
                object.namespace,
                object.name
            ),
        }
    }

    /// Drops the events that last happened [`KEPT`] ago, unless their pods are in `alive`.
    pub fn tidy(&self, alive: &HashSet<PodUid>, now: Moment) {
        let mut gone = HashSet::new();
        self.lock().retain(|k| {
            let uid = PodUid::from(k.event.uid.as_str());
            let stays = now.since(k.last) < KEPT || alive.contains(&uid);
            if !stays {
                gone.insert(uid);
            }
            stays
        });
        for uid in &gone {
            self.feed.tell(uid, Aspect::Events);
        }
    }

    /// Returns the number of events of this type, including repeated ones.
    pub fn total(&self, type_: EventType) -> u64 {
        self.counter(type_).get()
    }

    fn counter(&self, type_: EventType) -> &Counter {
        match type_ {
            EventType::Normal => &self.normal,
            EventType::Warning => &self.warning,
        }
    }

    /// Returns all events, the most recent last.
    pub fn list(&self) -> Vec<Arc<Event>> {
        self.newer_than(0)
    }

    /// Returns the events that happened after this version of the feed, the most recent last.
    pub fn newer_than(&self, version: u64) -> Vec<Arc<Event>> {
        let events = self.lock();
        let newer = events.iter().filter(|k| k.version > version);
        newer.map(|k| k.event.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.events.locked()
    }
}

/// Counts an event that is already in the list and moves it to the end, or adds a new event. Returns true if the event
/// has not happened within [`SIMILAR_INTERVAL`].
fn keep(events: &mut Vec<Kept>, mut event: Event, now: Moment) -> bool {
    let same = |k: &Kept, e: &Event| k.is_of(e) && k.event.message == e.message;
    let mut at = events.iter().position(|k| same(k, &event));
    let similar = |k: &&Kept| k.is_of(&event) && now.since(k.last) < SIMILAR_INTERVAL;
    if at.is_none() && events.iter().filter(similar).count() >= MAX_SIMILAR {
        event.message.insert_str(0, COMBINED);
        at = events
            .iter()
            .position(|k| k.is_of(&event) && k.event.message.starts_with(COMBINED));
    }
    let mut is_news = true;
    if let Some(at) = at {
        let Kept {
            event: old, last, ..
        } = events.remove(at);
        is_news = now.since(last) >= SIMILAR_INTERVAL;
        (event.count, event.first_timestamp) = (old.count.saturating_add(1), old.first_timestamp);
    } else if events.len() >= MAX_EVENTS {
        events.remove(0);
    }
    events.push(Kept {
        event: Arc::new(event),
        last: now,
        version: 0,
    });
    is_news
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str) -> PodRef {
        PodRef {
            namespace: "default".into(),
            name: "p".into(),
            uid: uid.into(),
        }
    }

    #[test]
    fn equal_events_are_counted_and_move_to_the_end() {
        let r = Recorder::default();
        r.record(
            &pod("u"),
            "spec.containers{c}",
            EventType::Warning,
            "Unhealthy",
            "x",
        );
        r.record(&pod("u"), "", EventType::Normal, "Killing", "y");
        r.record(
            &pod("u"),
            "spec.containers{c}",
            EventType::Warning,
            "Unhealthy",
            "x",
        );
        r.record(
            &pod("v"),
            "spec.containers{c}",
            EventType::Warning,
            "Unhealthy",
            "x",
        );
        let totals = [EventType::Normal, EventType::Warning].map(|type_| r.total(type_));
        assert_eq!(totals, [1, 3]);
        let got: Vec<_> = r
            .list()
            .into_iter()
            .map(|e| {
                let Event {
                    uid,
                    reason,
                    field_path,
                    count,
                    ..
                } = Event::clone(&e);
                (uid, reason, field_path, count)
            })
            .collect();
        let expected = [
            ("u", "Killing", "", 1),
            ("u", "Unhealthy", "spec.containers{c}", 2),
            ("v", "Unhealthy", "spec.containers{c}", 1),
        ];
        assert_eq!(
            got,
            expected.map(|(u, r, f, n)| (u.to_owned(), r.to_owned(), f.to_owned(), n))
        );
    }

    #[test]
    fn failures_of_two_instances_are_one_event() {
        let r = Recorder::default();
        for digit in ["a", "b"] {
            let text = format!("cannot start /run/{}/rootfs", digit.repeat(64));
            r.record(&pod("u"), "", EventType::Warning, "Failed", &text);
        }
        let all = r.list();
        let all: Vec<_> = all.iter().map(|e| (e.message.as_str(), e.count)).collect();
        assert_eq!(all, [("cannot start /run/<id>/rootfs", 2)]);
    }

    #[test]
    fn the_list_is_bounded_and_the_oldest_goes() {
        let r = Recorder::default();
        for i in 0..MAX_EVENTS + 5 {
            r.record(&pod(&format!("u{i}")), "", EventType::Normal, "R", "m");
        }
        let list = r.list();
        assert_eq!((list.len(), list[0].uid.as_str()), (MAX_EVENTS, "u5"));
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let r = Recorder::default();
        r.record(
            &pod("u"),
            "",
            EventType::Normal,
            "R",
            &format!("x{}", "é".repeat(MAX_MESSAGE)),
        );
        assert_eq!(r.list()[0].message.len(), MAX_MESSAGE - 1);
    }

    #[test]
    fn similar_events_are_combined_after_ten() {
        let r = Recorder::default();
        for i in 0..MAX_SIMILAR + 5 {
            r.record(
                &pod("u"),
                "c",
                EventType::Warning,
                "Unhealthy",
                &format!("at {i}"),
            );
        }
        r.record(&pod("u"), "c", EventType::Warning, "Unhealthy", "at 3");
        r.record(
            &pod("u"),
            "d",
            EventType::Warning,
            "Unhealthy",
            "another container",
        );
        r.record(
            &pod("u"),
            "c",
            EventType::Warning,
            "BackOff",
            "another reason",
        );
        let list = r.list();
        let of = |message: &str| list.iter().find(|e| e.message == message).map(|e| e.count);
        assert_eq!(list.len(), MAX_SIMILAR + 3);
        assert_eq!(of("(combined from similar events): at 14"), Some(5));
        assert_eq!(
            (of("at 3"), of("at 9"), of("at 10")),
            (Some(2), Some(1), None)
        );
        assert_eq!(
            (of("another container"), of("another reason")),
            (Some(1), Some(1))
        );
    }

    #[test]
    fn events_far_apart_are_not_similar() {
        let template = Event {
            kind: POD.into(),
            namespace: String::new(),
            pod: String::new(),
            uid: "u".into(),
            field_path: String::new(),
            type_: EventType::Normal,
            reason: "R".into(),
            message: String::new(),
            count: 1,
            first_timestamp: Time::now(),
            last_timestamp: Time::now(),
        };
        let mut events = Vec::new();
        let mut at = |message: &str, now| {
            let event = Event {
                message: message.into(),
                ..template.clone()
            };
            let is_news = keep(&mut events, event, now);
            (is_news, events.len())
        };
        for i in 0..30 {
            let now = Moment::default() + SIMILAR_INTERVAL * i / MAX_SIMILAR as u32;
            assert!(at(&i.to_string(), now).0);
        }
        let later = Moment::default() + SIMILAR_INTERVAL * 9;
        assert_eq!(at("29", later), (true, 30), "long ago");
        assert_eq!(at("29", later), (false, 30), "just now");
        assert_eq!(at("29", later + SIMILAR_INTERVAL), (true, 30));
        assert!(
            events
                .iter()
                .all(|k| !k.event.message.starts_with(COMBINED))
        );
    }

    #[test]
    fn events_of_a_pod_that_is_gone_go_an_hour_after_they_happened() {
        let r = Recorder::default();
        r.record(&pod("here"), "", EventType::Normal, "R", "m");
        r.record(&pod("gone"), "", EventType::Normal, "R", "m");
        let alive = HashSet::from(["here".into()]);
        r.tidy(&alive, Moment::now());
        assert_eq!((r.list().len(), r.feed.version()), (2, 2));
        r.tidy(&alive, Moment::now() + KEPT);
        let (changes, _) = r.feed.since(2);
        assert_eq!(
            changes.unwrap().pods.into_keys().collect::<Vec<_>>(),
            ["gone".into()]
        );
        assert_eq!(
            r.list().iter().map(|e| e.uid.as_str()).collect::<Vec<_>>(),
            ["here"]
        );
    }

    #[test]
    fn a_watcher_gets_the_events_it_has_not_seen() {
        let r = Recorder::default();
        let record = |message| r.record(&pod("u"), "", EventType::Normal, "R", message);
        let newer_than = |version| -> Vec<(String, u32)> {
            let events = r.newer_than(version).into_iter();
            events.map(|e| (e.message.clone(), e.count)).collect()
        };
        record("a");
        record("b");
        let seen = r.feed.version();
        assert_eq!(newer_than(seen), []);
        record("a");
        assert_eq!(newer_than(seen), [("a".to_owned(), 2)]);
        assert_eq!(newer_than(0).len(), 2);
    }
}
