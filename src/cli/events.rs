//! `get events`: prints events in the columns of `kubectl events`, once or continuously.

use std::ffi::OsStr;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use super::args::Raw;
use super::client::Client;
use super::error::CliError;
use super::table::write_rows;
use super::terminal::one_line;
use super::{human, kinds, names};
use crate::clock::Time;
use crate::events::{Event, EventList};

/// `get events`.
#[derive(Clone, Debug, PartialEq)]
pub struct Events {
    /// Where the daemon is.
    pub root: PathBuf,
    /// None means all.
    pub pod: Option<String>,
    /// None means all.
    pub namespace: Option<String>,
    /// Show the NAMESPACE column also when every pod is in `default`.
    pub all_namespaces: bool,
    /// Go on with each event.
    pub watch: bool,
}

/// Whether the word after `get` means events.
pub fn is_word(word: &OsStr) -> bool {
    ["events", "event", "ev"].iter().any(|w| word == *w)
}

/// What stands after `get events`.
pub fn parse(raw: &Raw) -> Result<Events, String> {
    let words = raw.text_words()?;
    let pod = match words.get(1..).unwrap_or_default() {
        [] => None,
        [pod] => Some(kinds::pod_name(pod)?),
        _ => {
            return Err(
                "'get events' takes one pod at most: podprobe get events [POD] [-w] [-n NAMESPACE | -A]"
                    .into(),
            );
        }
    };
    if let Some(form) = raw.text("output")? {
        return Err(format!(
            "'get events' has no output form '{form}'; it prints a table"
        ));
    }
    let (namespace, all_namespaces) = raw.namespaces()?;
    Ok(Events {
        root: raw.root()?,
        pod,
        namespace,
        all_namespaces,
        watch: raw.has("watch"),
    })
}

/// Shows the events on `out`, the latest last.
///
/// # Errors
/// There is no such pod and no event of one, or there is no daemon.
pub fn run(args: &Events, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), CliError> {
    let mut client = Client::connect(&args.root)?;
    let mut list = client.events(None)?;
    let shown = select(args, &list);
    if shown.is_empty() {
        no_such_pod(args, &mut client)?;
        match &args.namespace {
            Some(namespace) => writeln!(err, "No events found in {namespace} namespace.")?,
            None => writeln!(err, "No events found")?,
        }
    }
    let mut table = Table {
        namespaces: args.all_namespaces,
        begun: false,
        widths: Vec::new(),
    };
    table.namespaces |= args.namespace.is_none() && shown.iter().any(|e| e.namespace != "default");
    table.write(&shown, out)?;
    if !args.watch {
        return Ok(());
    }
    loop {
        list = client.events(Some(list.version))?;
        table.write(&select(args, &list), out)?;
    }
}

/// The requested events. A removed pod still has some.
fn select(args: &Events, list: &EventList) -> Vec<Arc<Event>> {
    let suffixed = args
        .pod
        .as_ref()
        .map(|pod| format!("{pod}-{}", list.node_name.to_lowercase()));
    let named = |e: &&Arc<Event>| {
        args.pod
            .as_ref()
            .is_none_or(|pod| e.pod == *pod || Some(&e.pod) == suffixed.as_ref())
    };
    let inside = |e: &&Arc<Event>| args.namespace.as_ref().is_none_or(|n| e.namespace == *n);
    list.events
        .iter()
        .filter(named)
        .filter(inside)
        .cloned()
        .collect()
}

fn no_such_pod(args: &Events, client: &mut Client) -> Result<(), CliError> {
    let Some(pod) = &args.pod else { return Ok(()) };
    names::resolve(&*client.snapshot()?, args.namespace.as_deref(), pod)?;
    Ok(())
}

/// The table; its columns keep their widths between calls.
struct Table {
    namespaces: bool,
    begun: bool,
    widths: Vec<usize>,
}

impl Table {
    fn write(&mut self, events: &[Arc<Event>], out: &mut dyn Write) -> Result<(), CliError> {
        let now = Time::now();
        let mut rows = Vec::new();
        if !events.is_empty() && !std::mem::replace(&mut self.begun, true) {
            rows.push(self.row(
                "NAMESPACE",
                ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"].map(str::to_owned),
            ));
        }
        rows.extend(events.iter().map(|e| self.row(&e.namespace, cells(e, now))));
        write_rows(&rows, &mut self.widths, out)?;
        Ok(out.flush()?)
    }

    fn row(&self, namespace: &str, cells: [String; 5]) -> Vec<String> {
        self.namespaces
            .then(|| namespace.to_owned())
            .into_iter()
            .chain(cells)
            .collect()
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::args::testing;

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
            let args = Events {
                root: "/".into(),
                pod: pod.map(Into::into),
                namespace: namespace.map(Into::into),
                all_namespaces: false,
                watch: false,
            };
            select(&args, &list)
                .into_iter()
                .map(|e| e.pod.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(None, None), ["web-edge", "web", "db-edge"]);
        assert_eq!(names(Some("web"), None), ["web-edge", "web"]);
        assert_eq!(names(Some("db"), Some("x")), ["db-edge"]);
        assert_eq!(names(Some("web"), Some("x")), ["web"]);
        assert!(names(Some("we"), None).is_empty());
    }

    #[track_caller]
    fn check(line: &str, expected: Events) {
        let got = testing::parse(&crate::cli::get::VERB, parse, line);
        assert_eq!(got, Ok(expected), "{line}");
    }

    #[track_caller]
    fn check_error(line: &str, expected: &str) {
        let got = testing::parse(&crate::cli::get::VERB, parse, line);
        assert_eq!(got, Err(expected.into()), "{line}");
    }

    #[test]
    fn events_take_a_pod_or_none() {
        let events = Events {
            root: "/".into(),
            pod: None,
            namespace: None,
            all_namespaces: false,
            watch: false,
        };
        check("get events", events.clone());
        check(
            "get events -w -A",
            Events {
                watch: true,
                all_namespaces: true,
                ..events.clone()
            },
        );
        check(
            "get events pod/a -n x",
            Events {
                pod: Some("a".into()),
                namespace: Some("x".into()),
                ..events
            },
        );
        check_error(
            "get events a b",
            "'get events' takes one pod at most: podprobe get events [POD] [-w] [-n NAMESPACE | -A]",
        );
        check_error(
            "get events -o json",
            "'get events' has no output form 'json'; it prints a table",
        );
        check_error("get events -A -n x", "-n and -A exclude each other");
    }
}
