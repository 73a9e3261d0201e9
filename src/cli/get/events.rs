//! The form `get events`: lists events in the columns of `kubectl events`, once or continuously. Each NAME on the
//! command line is the name of a pod.

use std::io::Write;
use std::sync::Arc;

use serde_json::json;

use super::Get;
use super::item::{Found, Item};
use super::printer::Printer;
use crate::base::clock::Time;
use crate::cli::client::Client;
use crate::cli::error::CliError;
use crate::cli::terminal::one_line;
use crate::cli::{human, names};
use crate::face::views::Snapshot;
use crate::pods::events::{Event, EventList};

/// Returns the requested events, the latest last.
///
/// # Errors
/// Returns a [`CliError`] if the daemon cannot be asked.
pub fn find(get: &Get, client: &mut Client, list: &EventList) -> Result<Found, CliError> {
    let without = names_without(get, list);
    let missing = match without.is_empty() {
        true => Vec::new(),
        false => unknown(get, &*client.snapshot()?, &without),
    };
    Ok(Found {
        items: items(&select(get, list), Time::now()),
        missing,
        ..Found::default()
    })
}

/// Prints each new event as it arrives.
///
/// # Errors
/// Returns a [`CliError`] if the daemon has ended or the output is closed.
pub fn watch(
    get: &Get,
    client: &mut Client,
    mut printer: Printer<'_>,
    mut version: u64,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    loop {
        let list = client.events(Some(version))?;
        version = list.version;
        let items = items(&select(get, &list), Time::now());
        printer.again(&items.iter().collect::<Vec<_>>(), out)?;
    }
}

fn is_of(event: &Event, pod: &str, node_name: &str) -> bool {
    let suffixed = || format!("{pod}-{}", node_name.to_lowercase());
    event.pod == pod || event.pod == suffixed()
}

/// Selects the requested events by the names of their pods. The list of pods is not used, because a removed pod
/// may still have events.
fn select(get: &Get, list: &EventList) -> Vec<Arc<Event>> {
    let named = |e: &&Arc<Event>| {
        let mut names = get.names.iter();
        get.names.is_empty() || names.any(|pod| is_of(e, pod, &list.node_name))
    };
    let inside = |e: &&Arc<Event>| get.namespace.as_ref().is_none_or(|n| e.namespace == *n);
    let of_type = |e: &&Arc<Event>| {
        let type_ = format!("{:?}", e.type_).to_lowercase();
        get.types.is_empty() || get.types.contains(&type_)
    };
    let events = list.events.iter().filter(named).filter(inside);
    events.filter(of_type).cloned().collect()
}

fn names_without<'a>(get: &'a Get, list: &EventList) -> Vec<&'a String> {
    let has_none = |name: &&String| !list.events.iter().any(|e| is_of(e, name, &list.node_name));
    get.names.iter().filter(has_none).collect()
}

/// Returns an error for each of these names that is not the name of a pod.
fn unknown(get: &Get, snapshot: &Snapshot, names: &[&String]) -> Vec<String> {
    let resolved = names
        .iter()
        .map(|name| names::resolve(snapshot, get.namespace.as_deref(), name));
    resolved
        .filter_map(|r| r.err().map(|e| e.to_string()))
        .collect()
}

fn items(events: &[Arc<Event>], now: Time) -> Vec<Item> {
    let item = |e: &Arc<Event>| Item {
        namespace: e.namespace.clone(),
        name: name(e),
        cells: cells(e, now).to_vec(),
        object: object(e),
        visible: String::new(),
    };
    events.iter().map(item).collect()
}

fn cells(e: &Event, now: Time) -> [String; 5] {
    [
        human::last_seen(e.count, e.first_timestamp, e.last_timestamp, now),
        format!("{:?}", e.type_),
        e.reason.clone(),
        format!("pod/{}", e.pod),
        one_line(e.message.trim()),
    ]
}

/// Returns the name of an event: the name of its pod, and a hash that no other kept event has.
fn name(e: &Event) -> String {
    let parts = [&e.uid, &e.field_path, &e.reason, &e.message];
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    // The hash is FNV-1a.
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{}.{hash:016x}", e.pod)
}

fn object(e: &Event) -> serde_json::Value {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "namespace": e.namespace, "name": e.pod, "uid": e.uid, "fieldPath": e.field_path});
    json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name(e), "namespace": e.namespace}, "involvedObject": pod,
        "type": e.type_, "reason": e.reason, "message": e.message, "source": {"component": "podprobe"}, "count": e.count,
        "firstTimestamp": e.first_timestamp, "lastTimestamp": e.last_timestamp})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(pod: &str, namespace: &str, count: u32) -> Event {
        serde_json::from_value(json!({"namespace": namespace, "pod": pod, "uid": "u", "fieldPath": "", "type": "Warning",
            "reason": "Unhealthy", "message": " Liveness probe failed: a\nb\u{1b}[2J ", "count": count,
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:50Z"}))
        .unwrap()
    }

    #[test]
    fn a_row_is_kubectls() {
        let now = serde_json::from_value(json!("2026-01-01T00:01:00Z")).unwrap();
        let text = "Liveness probe failed: a b^[[2J";
        assert_eq!(
            cells(&event("web", "default", 1), now),
            ["60s", "Warning", "Unhealthy", "pod/web", text]
        );
        assert_eq!(
            cells(&event("web", "default", 3), now)[0],
            "10s (x3 over 60s)"
        );
    }

    #[test]
    fn pods_are_named_with_or_without_the_nodes_name() {
        let events = [
            event("web-edge", "default", 1),
            event("web", "x", 1),
            event("db-edge", "x", 1),
        ]
        .map(Arc::new)
        .to_vec();
        let list = EventList {
            version: 1,
            node_name: "Edge".into(),
            events,
        };
        let names = |pod: Option<&str>, namespace: Option<&str>| {
            let get = Get {
                names: pod.map(str::to_owned).into_iter().collect(),
                namespace: namespace.map(Into::into),
                ..Get::default()
            };
            select(&get, &list)
                .into_iter()
                .map(|e| e.pod.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(None, None), ["web-edge", "web", "db-edge"]);
        assert_eq!(names(Some("web"), None), ["web-edge", "web"]);
        assert_eq!(names(Some("db"), Some("x")), ["db-edge"]);
        assert_eq!(names(Some("web"), Some("x")), ["web"]);
        assert!(names(Some("we"), None).is_empty());
        let of_type = |type_: &str| {
            let types = vec![type_.to_owned()];
            let get = Get {
                types,
                ..Get::default()
            };
            select(&get, &list).len()
        };
        assert_eq!((of_type("warning"), of_type("normal")), (3, 0));
    }

    #[test]
    fn names_of_different_events_differ_and_stay() {
        let (one, other) = (event("web", "default", 1), event("db", "default", 1));
        let mut again = one.clone();
        (again.count, again.last_timestamp) = (7, Time::now());
        assert_eq!(name(&one), name(&again));
        again.message.push('.');
        let names = [name(&one), name(&other), name(&again)];
        let set: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(set.len(), 3, "{names:?}");
    }

    #[test]
    fn an_event_is_a_v1_event() {
        let object = object(&event("web", "default", 3));
        assert_eq!(
            (&object["kind"], &object["type"], &object["count"]),
            (&json!("Event"), &json!("Warning"), &json!(3))
        );
        assert_eq!(object["involvedObject"]["name"], "web");
        assert_eq!(object["lastTimestamp"], "2026-01-01T00:00:50Z");
    }
}
