//! `get`: dispatches `get events` to [`super::events`], and prints `get pods` as a table, JSON or names, once or with
//! each change.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};

use super::args::{self, ALL_NAMESPACES, NAMESPACE, Opt, ROOT, Raw};
use super::client::Client;
use super::columns::{self, Row, visible};
use super::error::CliError;
use super::problems::{write_problems, write_stalled};
use super::table::write_rows;
use super::terminal::is_unsafe;
use super::{events, kinds, names, services};
use crate::clock::Time;
use crate::views::{PodView, Snapshot};

/// `get pods`, `get events`, `get services` and `get endpoints`.
pub const VERB: args::Verb = args::Verb {
    name: "get",
    summary: &[
        ("get pods", "list pods"),
        ("get events", "list what happened to pods"),
        ("get services", "list services, or endpoints"),
    ],
    help: "\
usage: podprobe get pods [NAME]… [-n NAMESPACE | -A] [-o wide|json|name] [-w] [--root DIR]
       podprobe get events [POD] [-n NAMESPACE | -A] [-w] [--root DIR]
       podprobe get services|endpoints [NAME]… [-n NAMESPACE | -A] [--root DIR]

Lists pods, or what happened to them. NAME may leave out the node's name at its end. Without NAME, each pod file that
does not run as it stands is reported on stderr. Equal events are one row with a count. Events of a pod that has been
removed are kept for an hour.

  -n, --namespace NS       pods of one namespace; default all
  -A, --all-namespaces     show the namespace also when all pods are in 'default'
  -o, --output FORM        wide: with IP, node, readiness gates, paused probes and file
                           json: a v1.PodList, or one v1.Pod when one NAME is given
                           name: only pod/NAME
  -w, --watch              then print each change
",
    options: &[
        ROOT,
        NAMESPACE,
        ALL_NAMESPACES,
        Opt::value("output", Some('o')),
        Opt::flag("watch", Some('w')),
    ],
    run: |raw, out, err| {
        let usage = CliError::Usage;
        match raw.words.first() {
            Some(word) if events::is_word(word) => {
                events::run(&events::parse(raw).map_err(usage)?, out, err)?;
            }
            Some(word) if let Some(shown) = services::kind(word) => {
                services::run(&services::parse(raw, shown).map_err(usage)?, out, err)?;
            }
            _ => run(&parse(raw).map_err(usage)?, out, err)?,
        }
        Ok(ExitCode::SUCCESS)
    },
};

/// Output form of `get pods`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// The table.
    #[default]
    Table,
    /// The table with IP, node, readiness gates, paused probes and file.
    Wide,
    /// `v1.PodList`, or the `v1.Pod` when one is named.
    Json,
    /// `pod/NAME`.
    Name,
}

/// `get pods`.
#[derive(Clone, Debug, PartialEq)]
pub struct Get {
    /// Where the daemon is.
    pub root: PathBuf,
    /// Empty means all.
    pub names: Vec<String>,
    /// None means all.
    pub namespace: Option<String>,
    /// Show the NAMESPACE column also when every pod is in `default`.
    pub all_namespaces: bool,
    /// What to print.
    pub output: Output,
    /// Then print each row that changes.
    pub watch: bool,
}

fn parse(raw: &Raw) -> Result<Get, String> {
    let output = match raw.text("output")?.as_deref() {
        None => Output::Table,
        Some("wide") => Output::Wide,
        Some("json") => Output::Json,
        Some("name") => Output::Name,
        Some(other) => {
            return Err(format!(
                "unknown output form '{other}'; -o takes wide, json or name"
            ));
        }
    };
    let (namespace, all_namespaces) = raw.namespaces()?;
    Ok(Get {
        root: raw.root()?,
        names: kinds::pod_names(raw, &["pods", "events", "services", "endpoints"])?,
        namespace,
        all_namespaces,
        output,
        watch: raw.has("watch"),
    })
}

/// Shows the pods on `out`; what is wrong with files goes to `err`.
pub fn run(get: &Get, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), CliError> {
    let mut client = Client::connect(&get.root)?;
    let snapshot = client.snapshot()?;
    let mut printer = Printer::new(get);
    let pods = select(get, &snapshot)?;
    printer.first(&pods, out, err)?;
    if !matches!(get.output, Output::Json | Output::Name) {
        write_stalled(&snapshot, err)?;
        // With names given, only the files of those pods are of interest.
        let asked = |file: &str| get.names.is_empty() || pods.iter().any(|p| p.file == file);
        write_problems(&snapshot, asked, err)?;
    }
    out.flush()?;
    if get.watch {
        watch(get, &mut client, printer, &snapshot, &pods, out)
    } else {
        Ok(())
    }
}

/// The requested pods, in the snapshot's order, or in the order of the names.
fn select<'a>(get: &Get, snapshot: &'a Snapshot) -> Result<Vec<&'a PodView>, CliError> {
    let namespace = get.namespace.as_deref();
    if get.names.is_empty() {
        return Ok(names::in_namespace(snapshot, namespace).collect());
    }
    get.names
        .iter()
        .map(|name| names::resolve(snapshot, namespace, name).map_err(CliError::from))
        .collect()
}

/// Prints changes of the requested pods. A pod that is removed and comes back is watched again.
fn watch(
    get: &Get,
    client: &mut Client,
    mut printer: Printer,
    snapshot: &Snapshot,
    pods: &[&PodView],
    out: &mut dyn Write,
) -> Result<(), CliError> {
    let mut snapshot = snapshot.clone();
    let mut known: HashMap<String, PodView> = pods.iter().map(|p| (key(p), (*p).clone())).collect();
    loop {
        snapshot = snapshot.updated(client.watch(snapshot.version)?);
        let wanted = |p: &&PodView| get.names.is_empty() || is_named(get, &snapshot, p);
        let now: HashMap<String, PodView> =
            names::in_namespace(&snapshot, get.namespace.as_deref())
                .filter(wanted)
                .map(|p| (key(p), p.clone()))
                .collect();
        for pod in changed(&known, &now) {
            printer.again(pod, out)?;
        }
        out.flush()?;
        known = now;
    }
}

/// A key that is unique among the pods of a snapshot.
fn key(pod: &PodView) -> String {
    format!("{}/{}", columns::namespace(pod), columns::name(pod))
}

fn is_named(get: &Get, snapshot: &Snapshot, pod: &PodView) -> bool {
    let named = |name: &String| {
        names::resolve(snapshot, get.namespace.as_deref(), name)
            .is_ok_and(|found| std::ptr::eq(found, pod))
    };
    get.names.iter().any(named)
}

/// Pods whose row is new or has changed, and the last rows of removed pods, by name.
fn changed<'a>(
    before: &'a HashMap<String, PodView>,
    now: &'a HashMap<String, PodView>,
) -> Vec<&'a PodView> {
    let differs = |(key, pod): &(&String, &PodView)| {
        before
            .get(*key)
            .is_none_or(|old| visible(old) != visible(pod))
    };
    let gone = before.iter().filter(|(key, _)| !now.contains_key(*key));
    let mut pods: Vec<&PodView> = now
        .iter()
        .filter(differs)
        .chain(gone)
        .map(|(_, pod)| pod)
        .collect();
    pods.sort_by_key(|p| (columns::namespace(p), columns::name(p)));
    pods
}

/// Writes pods in one form, and remembers the widths of the table's columns between calls.
struct Printer {
    output: Output,
    namespaces: bool,
    single: bool,
    namespace: Option<String>,
    widths: Vec<usize>,
}

impl Printer {
    fn new(get: &Get) -> Self {
        Self {
            output: get.output,
            namespaces: get.all_namespaces,
            single: get.names.len() == 1,
            namespace: get.namespace.clone(),
            widths: Vec::new(),
        }
    }

    fn first(
        &mut self,
        pods: &[&PodView],
        out: &mut dyn Write,
        err: &mut dyn Write,
    ) -> io::Result<()> {
        self.namespaces |=
            self.namespace.is_none() && pods.iter().any(|p| columns::namespace(p) != "default");
        match self.output {
            Output::Json if self.single && pods.len() == 1 => write_json(&pods[0].v1(), out),
            Output::Json => write_json(&pod_list(pods), out),
            Output::Name => pods
                .iter()
                .try_for_each(|p| writeln!(out, "pod/{}", columns::name(p))),
            Output::Table | Output::Wide if pods.is_empty() => match &self.namespace {
                Some(namespace) => writeln!(err, "No resources found in {namespace} namespace."),
                None => writeln!(err, "No resources found"),
            },
            Output::Table | Output::Wide => self.rows(pods, true, out),
        }
    }

    /// A pod that changed.
    fn again(&mut self, pod: &PodView, out: &mut dyn Write) -> io::Result<()> {
        match self.output {
            Output::Json => write_json(&pod.v1(), out),
            Output::Name => writeln!(out, "pod/{}", columns::name(pod)),
            Output::Table | Output::Wide => {
                let first = self.widths.is_empty();
                self.rows(&[pod], first, out)
            }
        }
    }

    fn rows(&mut self, pods: &[&PodView], header: bool, out: &mut dyn Write) -> io::Result<()> {
        let now = Time::now();
        let mut rows: Vec<Vec<String>> = if header { vec![self.header()] } else { vec![] };
        rows.extend(pods.iter().map(|p| self.cells(Row::new(p, now))));
        write_rows(&rows, &mut self.widths, out)
    }

    fn header(&self) -> Vec<String> {
        let mut names = if self.namespaces {
            vec!["NAMESPACE"]
        } else {
            vec![]
        };
        names.extend(["NAME", "READY", "STATUS", "RESTARTS", "AGE"]);
        if self.output == Output::Wide {
            names.extend(["IP", "NODE", "READINESS GATES", "PAUSED", "FILE"]);
        }
        names.into_iter().map(str::to_owned).collect()
    }

    fn cells(&self, row: Row) -> Vec<String> {
        let mut cells = if self.namespaces {
            vec![row.namespace]
        } else {
            vec![]
        };
        cells.extend([row.name, row.ready, row.status, row.restarts, row.age]);
        if self.output == Output::Wide {
            cells.extend([row.ip, row.node, row.gates, row.paused, row.file]);
        }
        cells
    }
}

/// A real `v1.PodList`.
fn pod_list(pods: &[&PodView]) -> Value {
    let items: Vec<Value> = pods.iter().map(|p| p.v1()).collect();
    json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items})
}

/// Indented by four, as kubectl does.
fn write_json(value: &Value, out: &mut dyn Write) -> io::Result<()> {
    let mut json = Vec::new();
    let format = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut json, format);
    serde::Serialize::serialize(value, &mut serializer)?;
    writeln!(out, "{}", escape_unsafe(String::from_utf8_lossy(&json)))
}

/// JSON escapes the control characters below U+0020; other unsafe characters stand only in strings, where the escaped form
/// means the same.
fn escape_unsafe(json: Cow<'_, str>) -> Cow<'_, str> {
    let is_special = |c: char| c > '~' && is_unsafe(c);
    if !json.contains(is_special) {
        return json;
    }
    let mut out = String::with_capacity(json.len() + 8);
    for c in json.chars() {
        match is_special(c) {
            true => {
                let units = c
                    .encode_utf16(&mut [0; 2])
                    .iter()
                    .map(|u| format!("\\u{u:04x}"))
                    .collect::<String>();
                out.push_str(&units);
            }
            false => out.push(c),
        }
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::testing;

    #[test]
    fn json_is_safe_on_a_terminal_and_means_the_same() {
        let value = json!({"a": "\u{9b}2J\u{7f}\u{202e}é👩\u{200d}👩\u{e0041}"});
        let mut out = Vec::new();
        write_json(&value, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(!text.contains(|c| c != '\n' && is_unsafe(c)), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }

    #[track_caller]
    fn check(line: &str, expected: Get) {
        assert_eq!(testing::parse(&VERB, parse, line), Ok(expected), "{line}");
    }

    #[track_caller]
    fn check_error(line: &str, expected: &str) {
        let got = testing::parse(&VERB, parse, line);
        assert_eq!(got, Err(expected.into()), "{line}");
    }

    fn get() -> Get {
        Get {
            root: "/".into(),
            names: vec![],
            namespace: None,
            all_namespaces: false,
            output: Output::Table,
            watch: false,
        }
    }

    #[test]
    fn get_takes_pods_names_and_forms() {
        check("get pods", get());
        check(
            "get po -o wide -w",
            Get {
                output: Output::Wide,
                watch: true,
                ..get()
            },
        );
        check(
            "get pods a b -ojson --root=/r",
            Get {
                root: "/r".into(),
                names: vec!["a".into(), "b".into()],
                output: Output::Json,
                ..get()
            },
        );
        check(
            "get pod/a",
            Get {
                names: vec!["a".into()],
                ..get()
            },
        );
        check(
            "get pods -A -o name",
            Get {
                all_namespaces: true,
                output: Output::Name,
                ..get()
            },
        );
        check(
            "get pods -n kube",
            Get {
                namespace: Some("kube".into()),
                ..get()
            },
        );
    }

    #[test]
    fn what_is_missing_or_too_much_is_said() {
        check_error("get", "'get' needs what to show: podprobe get pods");
        check_error(
            "get pods --follow",
            "'get' has no option '--follow'; see 'podprobe help get'",
        );
        check_error(
            "get pods -x",
            "'get' has no option '-x'; see 'podprobe help get'",
        );
        check_error(
            "get pods -o yaml",
            "unknown output form 'yaml'; -o takes wide, json or name",
        );
        check_error("get pods -A -n x", "-n and -A exclude each other");
        let error = testing::parse(&VERB, parse, "get pods -w=yes").unwrap_err();
        assert!(error.contains("unexpected"), "{error}");
    }

    #[test]
    fn what_is_no_kind_gets_the_likely_one_or_the_command_for_a_pod() {
        check_error("get podz", "unknown kind 'podz', did you mean 'pods'?");
        check_error("get evnts", "unknown kind 'evnts', did you mean 'events'?");
        check_error(
            "get nodes",
            "'nodes' is not a kind that podprobe knows; for the pod of that name write 'podprobe get pods nodes'",
        );
        check_error(
            "get svc/web",
            "podprobe knows pods only, not 'svc'; write 'pod/web'",
        );
    }
}
