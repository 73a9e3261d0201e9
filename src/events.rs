//! Events: what happened to a pod, in the kubelet's reasons and texts; one log line each, and a bounded list for
//! `describe` and `get events`.

use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use crate::api::PodRef;
use crate::clock::Time;

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
    /// `spec.containers{name}`, or empty for the pod itself.
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
}

impl Recorder {
    /// Records an event of a pod (`container` empty) or of one of its containers; an equal one is counted.
    pub fn record(&self, pod: &PodRef, container: &str, type_: EventType, reason: &str, message: &str) {
        let field_path = if container.is_empty() { String::new() } else { format!("spec.containers{{{container}}}") };
        match type_ {
            EventType::Normal => log::info!("{pod} {field_path} {reason}: {message}"),
            EventType::Warning => log::warn!("{pod} {field_path} {reason}: {message}"),
        }
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
