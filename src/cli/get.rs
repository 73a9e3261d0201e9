//! `get pods`: the table, JSON or names, once or again with each change.

use std::collections::HashMap;
use std::io::{self, Write};

use serde_json::{Value, json};

use super::args::{Get, Output};
use super::client::Client;
use super::columns::{self, Row};
use super::error::CliError;
use super::names;
use crate::clock::Time;
use crate::views::{PodView, Snapshot};

/// Shows the pods on `out`; what is wrong with files goes to `err`.
pub fn run(get: &Get, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), CliError> {
    let mut client = Client::connect(&get.root)?;
    let snapshot = client.snapshot()?;
    let mut printer = Printer::new(get);
    let pods = select(get, &snapshot)?;
    printer.first(&pods, out, err)?;
    if !matches!(get.output, Output::Json | Output::Name) {
        write_problems(&snapshot, err)?;
    }
    out.flush()?;
    if get.watch {
        watch(get, &mut client, printer, &snapshot, &pods, out)
    } else {
        Ok(())
    }
}

/// The pods asked for, in the snapshot's order, or in the order of the names.
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

/// A watch sees the pods it was asked for also when they go and come.
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

/// Unique among the pods of a snapshot.
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

/// Pods whose row is new or says something else, and those that have gone (their last row), by name.
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

/// What a row says, without the times that pass by themselves.
pub(super) fn visible(pod: &PodView) -> (String, String, u32, &str, &str) {
    let status = columns::status_word(pod);
    let uid = pod.object["metadata"]["uid"].as_str().unwrap_or_default();
    (
        columns::ready(pod),
        status,
        columns::restart_count(pod),
        &pod.status.pod_ip,
        uid,
    )
}

/// One line when the daemon stands still, and one per file that is not, or no longer, what runs.
pub fn write_problems(snapshot: &Snapshot, err: &mut dyn Write) -> io::Result<()> {
    write_stalled(snapshot, err)?;
    for problem in &snapshot.problems {
        let runs = snapshot
            .pods
            .iter()
            .any(|p| p.file == problem.file && p.file_error.is_some());
        let what = if runs {
            "last good version runs"
        } else {
            "not running"
        };
        writeln!(err, "{}", problem.line(what))?;
    }
    Ok(())
}

/// What is shown may be old.
pub fn write_stalled(snapshot: &Snapshot, err: &mut dyn Write) -> io::Result<()> {
    snapshot
        .stalled
        .iter()
        .try_for_each(|stalled| writeln!(err, "podprobe: {stalled}"))
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
            names.extend(["IP", "NODE", "PAUSED", "FILE"]);
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
            cells.extend([row.ip, row.node, row.paused, row.file]);
        }
        cells
    }
}

/// kubectl's table: columns at least six wide, three spaces between them, widths never shrink from one call to the next.
pub(super) fn write_rows(
    rows: &[Vec<String>],
    widths: &mut Vec<usize>,
    out: &mut dyn Write,
) -> io::Result<()> {
    for row in rows {
        widths.resize(widths.len().max(row.len()), 6);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count() + 3);
        }
    }
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths.iter()) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width - cell.chars().count()));
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// A real `v1.PodList`.
fn pod_list(pods: &[&PodView]) -> Value {
    let items: Vec<Value> = pods.iter().map(|p| p.v1()).collect();
    json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items})
}

/// Indented by four, as kubectl does.
fn write_json(value: &Value, out: &mut dyn Write) -> io::Result<()> {
    let format = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut *out, format);
    serde::Serialize::serialize(value, &mut serializer)?;
    writeln!(out)
}
