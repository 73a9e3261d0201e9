//! Events for the API server (kubelet-probes 9.11): what is sent of what happens, and in which order.
//!
//! Invariants: everything here decides, and the clocks are arguments. A thread hands each occurrence to the
//! [`correlator::Correlator`], puts what comes out into the [`queue::Queue`], and sends what the queue says. Both are
//! bounded. Events are never needed: what the API server does not want is dropped.

pub mod correlator;
mod lru;
pub mod queue;

use std::time::SystemTime;

use serde_json::{Map, Value, json};

use crate::base::clock::Time;
use crate::pods::events::EventType;

/// The name of the source of all events.
const COMPONENT: &str = "kubelet";

/// Something that has happened to a pod or to the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occurrence {
    /// Kind of the object: `Pod` or `Node`.
    pub kind: String,
    /// Namespace of the object, empty for the Node.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// UID of the object in the API server, of a static pod the UID of its file; empty for the Node.
    pub uid: String,
    /// Version of the object that the event tells of, or empty.
    pub resource_version: String,
    /// Container, such as `spec.containers{web}`, or empty.
    pub field_path: String,
    /// Type of the event.
    pub type_: EventType,
    /// Reason in one word.
    pub reason: String,
    /// Text for people.
    pub message: String,
}

/// An event that is to be created in the API server or, if it has happened before, to be counted there.
#[derive(Clone, Debug, PartialEq)]
pub struct Outgoing {
    /// Namespace of the event.
    pub(super) namespace: String,
    /// Name of the event: the object's name and the time of the first occurrence in hexadecimal nanoseconds.
    pub(super) name: String,
    /// The whole Event, for a POST.
    pub(super) event: Value,
}

impl Outgoing {
    fn new(what: &Occurrence, seen: &Seen, at: SystemTime, node: &str) -> Self {
        let namespace = match what.namespace.as_str() {
            "" => "default",
            namespace => namespace,
        };
        let name = format!("{}.{:x}", what.name, nanos(seen.first));
        let event = json!({
            "kind": "Event",
            "apiVersion": "v1",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": involved_object(what),
            "reason": what.reason,
            "message": what.message,
            "source": {"component": COMPONENT, "host": node},
            "firstTimestamp": Time::from(seen.first).to_string(),
            "lastTimestamp": Time::from(at).to_string(),
            "count": seen.count,
            "type": what.type_,
            "eventTime": null,
            "reportingComponent": COMPONENT,
            "reportingInstance": node,
        });
        Self {
            namespace: namespace.to_owned(),
            name,
            event,
        }
    }

    /// True if the event has happened before, so that the API server should have it.
    fn is_repeated(&self) -> bool {
        self.event["count"].as_u64().is_some_and(|count| count > 1)
    }

    /// The fields that a repetition changes, for a PATCH.
    fn patch(&self) -> Value {
        let mut patch = Map::new();
        for key in ["count", "lastTimestamp", "message"] {
            patch.insert(key.to_owned(), self.event[key].clone());
        }
        patch.into()
    }
}

/// Count and first time of an event that has happened before.
#[derive(Clone, Copy, Debug)]
struct Seen {
    count: u32,
    first: SystemTime,
}

/// The object of an event, without the fields that are empty.
fn involved_object(what: &Occurrence) -> Map<String, Value> {
    let fields = [
        ("kind", what.kind.as_str()),
        ("namespace", &what.namespace),
        ("name", &what.name),
        ("uid", &what.uid),
        ("apiVersion", "v1"),
        ("resourceVersion", &what.resource_version),
        ("fieldPath", &what.field_path),
    ];
    let given = fields.into_iter().filter(|(_, value)| !value.is_empty());
    given
        .map(|(key, value)| (key.to_owned(), value.into()))
        .collect()
}

fn nanos(at: SystemTime) -> u128 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_nanos()
}

#[cfg(test)]
mod tests;
