//! The form `get events`: lists events in the columns of `kubectl events`, once or continuously. Each NAME on the
//! command line is the name of a pod, or of a workload with its kind.

use std::io::Write;
use std::sync::Arc;

use serde_json::json;

use super::Get;
use super::item::{Found, Item};
use super::printer::Printer;
use crate::api::workload::WorkloadKind;
use crate::base::clock::Time;
use crate::cli::client::Client;
use crate::cli::error::CliError;
use crate::cli::terminal::one_line;
use crate::cli::workload_names::Named;
use crate::cli::{human, names};
use crate::pods::events::{Event, EventList};

/// The kind of the object of most events.
const POD: &str = "Pod";

/// Returns the requested events, the latest last.
///
/// # Errors
/// Returns a [`CliError`] if the daemon cannot be asked.
pub fn find(get: &Get, client: &mut Client, list: &EventList) -> Result<Found, CliError> {
    let without = names_without(get, list);
    let missing = match without.is_empty() {
        true => Vec::new(),
        false => unknown(get, client, &without)?,
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

/// Tells whether an event is about the object of this name: `web` of a pod, `Deployment/web` of a workload.
fn is_of(event: &Event, name: &str, node_name: &str) -> bool {
    if let Some((kind, name)) = name.split_once('/') {
        return event.kind == kind && event.pod == name;
    }
    let suffixed = || format!("{name}-{}", node_name.to_lowercase());
    event.kind == POD && (event.pod == name || event.pod == suffixed())
}

/// Selects the requested events by the names of their objects. The list of pods is not used, because a removed pod
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

/// Returns an error for each of these names for which there is no pod and no workload.
fn unknown(get: &Get, client: &mut Client, names: &[&String]) -> Result<Vec<String>, CliError> {
    let snapshot = client.snapshot()?;
    let workloads = client.workloads(None)?;
    let namespace = get.namespace.as_deref();
    let of_one = |name: &&String| match Named::of_kind(name) {
        Some(named) => named.find(&workloads.items, namespace).err(),
        None => {
            let pod = names::resolve(&snapshot, namespace, name);
            pod.err().map(|e| e.to_string())
        }
    };
    Ok(names.iter().filter_map(of_one).collect())
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
        format!("{}/{}", e.kind.to_lowercase(), e.pod),
        one_line(e.message.trim()),
    ]
}

/// Returns the name of an event: the name of its object, and a hash that no other kept event has.
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
    let version = WorkloadKind::named(&e.kind).map_or("v1", WorkloadKind::api_version);
    let of = json!({"apiVersion": version, "kind": e.kind, "namespace": e.namespace, "name": e.pod, "uid": e.uid, "fieldPath": e.field_path});
    json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name(e), "namespace": e.namespace}, "involvedObject": of,
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
    fn events_of_a_workload_are_named_with_its_kind() {
        let mut of_workload = event("web", "default", 1);
        of_workload.kind = "Deployment".into();
        let list = EventList {
            version: 1,
            node_name: "edge".into(),
            events: vec![
                Arc::new(of_workload.clone()),
                Arc::new(event("web", "default", 1)),
            ],
        };
        let kinds = |name: &str| {
            let get = Get {
                names: vec![name.to_owned()],
                ..Get::default()
            };
            let all = select(&get, &list);
            all.iter().map(|e| e.kind.clone()).collect::<Vec<_>>()
        };
        assert_eq!(kinds("web"), ["Pod"]);
        assert_eq!(kinds("Deployment/web"), ["Deployment"]);
        assert!(kinds("Job/web").is_empty());
        assert_eq!(cells(&of_workload, Time::now())[3], "deployment/web");
        let of = &object(&of_workload)["involvedObject"];
        assert_eq!(
            (&of["apiVersion"], &of["kind"]),
            (&json!("apps/v1"), &json!("Deployment"))
        );
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
