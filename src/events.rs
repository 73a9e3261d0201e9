//! Events: what happened to a pod, in the kubelet's reasons and texts; one log line each, and a bounded list for
//! `describe` and `get events`.

use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

use crate::api::PodRef;
use crate::clock::Time;
use crate::status::Notifier;

/// Most events kept per daemon; the oldest goes first.
pub const MAX_EVENTS: usize = 1000;

/// `Normal` or `Warning`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventType {
    /// Something expected.
    Normal,
    /// Something to look at.
    Warning,
}

/// An event with its count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// `metadata.namespace` of the pod.
    pub namespace: String,
    /// `metadata.name` of the pod.
    pub pod: String,
    /// `metadata.uid` of the pod.
    pub uid: String,
    /// `spec.containers{name}`, `spec.initContainers{name}`, or empty for the pod itself.
    pub field_path: String,
    /// Normal or Warning.
    #[serde(rename = "type")]
    pub type_: EventType,
    /// `Unhealthy`, `Killing`, `Started`, …
    pub reason: String,
    /// The kubelet's text.
    pub message: String,
    /// How often it happened.
    pub count: u32,
    /// First time, wall clock.
    pub first_timestamp: Time,
    /// Last time, wall clock.
    pub last_timestamp: Time,
}

/// Collects events. Never blocks longer than a list operation takes.
#[derive(Default)]
pub struct Recorder {
    events: Mutex<Vec<Event>>,
    notifier: Arc<Notifier>,
}

impl Recorder {
    /// An empty list that tells `notifier` of every event.
    pub fn new(notifier: Arc<Notifier>) -> Self {
        Self { events: Mutex::default(), notifier }
    }

    /// Records an event of a pod (`field_path` empty) or of one of its containers ([`crate::api::Pod::field_path`]); an
    /// equal one is counted.
    pub fn record(&self, pod: &PodRef, field_path: &str, type_: EventType, reason: &str, message: &str) {
        match type_ {
            EventType::Normal => log::info!("{pod} {field_path} {reason}: {message}"),
            EventType::Warning => log::warn!("{pod} {field_path} {reason}: {message}"),
        }
        self.keep(pod, field_path.to_owned(), type_, reason, message);
        self.notifier.changed();
    }

    fn keep(&self, pod: &PodRef, field_path: String, type_: EventType, reason: &str, message: &str) {
        let now = Time::now();
        let mut events = self.events.lock().expect("no panic while the lock is held");
        let same = |e: &Event| e.uid == pod.uid.as_str() && e.field_path == field_path && e.reason == reason && e.message == message;
        if let Some(at) = events.iter().position(same) {
            let mut e = events.remove(at);
            e.count = e.count.saturating_add(1);
            e.last_timestamp = now;
            events.push(e);
            return;
        }
        if events.len() == MAX_EVENTS {
            events.remove(0);
        }
        events.push(Event {
            namespace: pod.namespace.to_string(),
            pod: pod.name.to_string(),
            uid: pod.uid.to_string(),
            field_path,
            type_,
            reason: reason.into(),
            message: message.into(),
            count: 1,
            first_timestamp: now,
            last_timestamp: now,
        });
    }

    /// All events, the most recent last.
    pub fn list(&self) -> Vec<Event> {
        self.events.lock().expect("no panic while the lock is held").clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str) -> PodRef {
        PodRef { namespace: "default".into(), name: "p".into(), uid: uid.into() }
    }

    #[test]
    fn equal_events_are_counted_and_move_to_the_end() {
        let r = Recorder::default();
        r.record(&pod("u"), "spec.containers{c}", EventType::Warning, "Unhealthy", "x");
        r.record(&pod("u"), "", EventType::Normal, "Killing", "y");
        r.record(&pod("u"), "spec.containers{c}", EventType::Warning, "Unhealthy", "x");
        r.record(&pod("v"), "spec.containers{c}", EventType::Warning, "Unhealthy", "x");
        let got: Vec<_> = r.list().into_iter().map(|e| (e.uid, e.reason, e.field_path, e.count)).collect();
        let expected = [("u", "Killing", "", 1), ("u", "Unhealthy", "spec.containers{c}", 2), ("v", "Unhealthy", "spec.containers{c}", 1)];
        assert_eq!(got, expected.map(|(u, r, f, n)| (u.to_owned(), r.to_owned(), f.to_owned(), n)));
    }

    #[test]
    fn the_list_is_bounded_and_the_oldest_goes() {
        let r = Recorder::default();
        for i in 0..MAX_EVENTS + 5 {
            r.record(&pod("u"), "", EventType::Normal, "R", &i.to_string());
        }
        let list = r.list();
        assert_eq!((list.len(), list[0].message.as_str()), (MAX_EVENTS, "5"));
    }

    #[test]
    fn an_event_wakes_watchers() {
        let notifier = Arc::new(Notifier::default());
        Recorder::new(notifier.clone()).record(&pod("u"), "", EventType::Normal, "R", "m");
        assert_eq!(notifier.version(), 1);
    }
}
