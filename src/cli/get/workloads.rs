//! The forms `get deployments`, `get jobs` and those of the other workloads: lists them in kubectl's columns, once or
//! continuously.
//!
//! Invariants: [`find`] and [`noted`] decide and are pure. A row is printed again with each change of its object, as
//! with kubectl.

use std::io::Write;

use serde_json::Value;

use super::item::{Found, Item};
use super::printer::Printer;
use super::{Get, Kind, changed, requested};
use crate::api::workload::WorkloadKind;
use crate::base::clock::Time;
use crate::cli::client::Client;
use crate::cli::error::CliError;
use crate::cli::human;
use crate::cli::problems::{node_lines, problem_lines};
use crate::face::views::Snapshot;
use crate::face::views::workloads::{
    completions, full_name, job_word, kind, labels_text, name, namespace, number, or_none,
    selector, selector_text, template, time, yes_or_no,
};
use crate::workloads::view::{WorkloadList, WorkloadView};

/// Returns the requested workloads of the requested kind.
pub(super) fn find(get: &Get, list: &WorkloadList, now: Time) -> Found {
    let Kind::Workload(wanted) = get.kind else {
        return Found::default();
    };
    let all = list.items.iter().filter(|view| kind(view) == Some(wanted));
    requested(get, all.map(|view| item(view, wanted, now)).collect())
}

/// Adds the notes about the found workloads: what verbs have changed against their files, and which files are bad. If
/// no names are given, files that are refused are named, too.
pub(super) fn noted(
    get: &Get,
    mut found: Found,
    list: &WorkloadList,
    snapshot: &Snapshot,
) -> Found {
    found.notes.extend(node_lines(snapshot));
    let is_shown = |view: &&WorkloadView| {
        let mut items = found.items.iter();
        items.any(|i| {
            i.name == name(view) && i.namespace == namespace(view) && i.object == *view.object
        })
    };
    let shown: Vec<&WorkloadView> = list.items.iter().filter(is_shown).collect();
    let overrides = shown.iter().flat_map(|view| {
        let line = |text: &String| format!("{}: {text}", full_name(view));
        view.overrides.iter().map(line)
    });
    let outdated = shown.iter().filter_map(|view| {
        let (file, error) = (view.file.as_ref()?, view.file_error.as_ref()?);
        Some(format!("{file}: last good version runs: {error}"))
    });
    found.notes.extend(overrides.chain(outdated));
    // The last good version of a file that has become bad is told above.
    let is_known = |file: &str| {
        let mut views = list.items.iter();
        views.any(|v| v.file_error.is_some() && v.file.as_deref() == Some(file))
    };
    if get.names.is_empty() && get.selector.is_none() {
        found
            .notes
            .extend(problem_lines(snapshot, |file| !is_known(file)));
    }
    found
}

/// Prints changes of the requested workloads.
///
/// # Errors
/// Returns a [`CliError`] if the daemon has ended or the output is closed.
pub(super) fn watch(
    get: &Get,
    client: &mut Client,
    mut printer: Printer<'_>,
    (list, mut before): (&WorkloadList, Found),
    out: &mut dyn Write,
) -> Result<(), CliError> {
    let mut version = list.version;
    loop {
        let list = client.workloads(Some(version))?;
        version = list.version;
        let now = find(get, &list, Time::now());
        printer.again(&changed(get, &before, &now), out)?;
        before = now;
    }
}

fn item(view: &WorkloadView, kind: WorkloadKind, now: Time) -> Item {
    let mut cells = vec![name(view).to_owned()];
    cells.extend(columns(&view.object, kind, now));
    cells.extend(wide(view, kind));
    Item {
        namespace: namespace(view).to_owned(),
        name: name(view).to_owned(),
        cells,
        object: Value::clone(&view.object),
        visible: view.object.to_string(),
    }
}

/// Returns the columns after NAME, as kubectl's printers fill them.
fn columns(object: &Value, kind: WorkloadKind, now: Time) -> Vec<String> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let count = |key: &str| number(&status[key]).to_string();
    let desired = spec["replicas"].as_i64().unwrap_or(1).to_string();
    let age = human::since(time(&object["metadata"]["creationTimestamp"]), now);
    let ready = || format!("{}/{desired}", count("readyReplicas"));
    match kind {
        WorkloadKind::Deployment => vec![
            ready(),
            count("updatedReplicas"),
            count("availableReplicas"),
            age,
        ],
        WorkloadKind::ReplicaSet | WorkloadKind::ReplicationController => {
            vec![desired, count("replicas"), count("readyReplicas"), age]
        }
        WorkloadKind::DaemonSet => vec![
            count("desiredNumberScheduled"),
            count("currentNumberScheduled"),
            count("numberReady"),
            count("updatedNumberScheduled"),
            count("numberAvailable"),
            labels_text(&spec["template"]["spec"]["nodeSelector"]),
            age,
        ],
        WorkloadKind::StatefulSet => vec![ready(), age],
        WorkloadKind::Job => vec![
            job_word(object).to_owned(),
            completions(object),
            duration(status, now),
            age,
        ],
        WorkloadKind::CronJob => vec![
            spec["schedule"].as_str().unwrap_or_default().to_owned(),
            or_none(spec["timeZone"].as_str().unwrap_or_default().to_owned()),
            yes_or_no(&spec["suspend"]),
            status["active"].as_array().map_or(0, Vec::len).to_string(),
            time(&status["lastScheduleTime"])
                .map_or_else(|| "<none>".into(), |at| human::since(Some(at), now)),
            age,
        ],
    }
}

/// Returns the columns that `-o wide` adds.
fn wide(view: &WorkloadView, kind: WorkloadKind) -> Vec<String> {
    let containers = &template(view)["spec"]["containers"];
    let of = |key: &str| {
        let all = containers.as_array().into_iter().flatten();
        let texts: Vec<&str> = all.map(|c| c[key].as_str().unwrap_or_default()).collect();
        texts.join(",")
    };
    let mut cells = vec![of("name"), of("image")];
    if kind != WorkloadKind::StatefulSet {
        let text = selector(view).map(|s| selector_text(&s));
        cells.push(or_none(text.unwrap_or_default()));
    }
    cells.push(or_none(view.file.clone().unwrap_or_default()));
    cells
}

/// Returns how long a Job has run; empty if it has not started.
fn duration(status: &Value, now: Time) -> String {
    let Some(start) = time(&status["startTime"]) else {
        return String::new();
    };
    let end = time(&status["completionTime"]).unwrap_or(now);
    human::since(Some(start), end)
}
