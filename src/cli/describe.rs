//! `describe pod`: everything known of a pod in kubectl's layout, and below it what only podprobe knows: the file, what
//! of it is not acted on, and why it is no longer what runs.

use std::io::Write;
use std::sync::Arc;

use serde_json::Value;

use super::args::Describe;
use super::client::Client;
use super::columns::{self, string_map};
use super::error::CliError;
use super::events::last_seen;
use super::get::write_stalled;
use super::{describe_container, describe_history, human, names, tabwriter};
use crate::clock::Time;
use crate::events::Event;
use crate::views::history::PodHistory;
use crate::views::{PodView, Snapshot};

/// kubectl cuts longer annotations into lines.
const MAX_ANNOTATION: usize = 140;

/// Describes the pods on `out`; files that run no pod go to `err`.
pub fn run(describe: &Describe, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), CliError> {
    let mut client = Client::connect(&describe.root)?;
    let snapshot = client.snapshot()?;
    let pods = select(describe, &snapshot)?;
    let mut texts = Vec::new();
    for pod in pods {
        let history = client.history(
            pod.object["metadata"]["uid"]
                .as_str()
                .unwrap_or_default()
                .into(),
        )?;
        texts.push(text(pod, &history, Time::now()));
    }
    if texts.is_empty() {
        writeln!(err, "No resources found")?;
    }
    out.write_all(texts.join("\n\n").as_bytes())?;
    out.flush()?;
    write_stalled(&snapshot, err)?;
    let without_pod = snapshot
        .problems
        .iter()
        .filter(|p| describe.names.is_empty() && !snapshot.pods.iter().any(|v| v.file == p.file));
    for problem in without_pod {
        writeln!(err, "{}", problem.line("not running"))?;
    }
    Ok(())
}

fn select<'a>(describe: &Describe, snapshot: &'a Snapshot) -> Result<Vec<&'a PodView>, CliError> {
    let namespace = describe.namespace.as_deref();
    if describe.names.is_empty() {
        return Ok(names::in_namespace(snapshot, namespace).collect());
    }
    describe
        .names
        .iter()
        .map(|name| {
            names::resolve(snapshot, namespace, name).map_err(|e| with_problems(e, snapshot, name))
        })
        .collect()
}

/// A pod that is not there because its file is broken is what a person looks for first: say so.
fn with_problems(e: names::NameError, snapshot: &Snapshot, name: &str) -> CliError {
    let about = snapshot
        .problems
        .iter()
        .filter(|p| p.file.contains(name) || p.error.contains(name));
    let lines: String = about
        .map(|p| format!("\n{}", p.line("not running")))
        .collect();
    CliError::Failed(format!("{e}{lines}"))
}

/// The description of one pod at `now`.
pub fn text(pod: &PodView, history: &PodHistory, now: Time) -> String {
    let mut w = String::new();
    head(&mut w, pod);
    describe_container::all(
        &mut w,
        "Init Containers",
        &pod.object["spec"]["initContainers"],
        &pod.status.init_container_statuses,
    );
    describe_container::all(
        &mut w,
        "Containers",
        &pod.object["spec"]["containers"],
        &pod.status.container_statuses,
    );
    conditions(&mut w, pod);
    volumes(&mut w, &pod.object["spec"]["volumes"]);
    line(&mut w, "QoS Class", &pod.status.qos_class);
    labels(
        &mut w,
        "Node-Selectors",
        &pod.object["spec"]["nodeSelector"],
    );
    file(&mut w, pod);
    describe_history::all(&mut w, history, &pod.paused, now);
    events(&mut w, &pod.events, now);
    tabwriter::align(&w, 0, 2)
}

/// One line. Writing to a String cannot fail; this keeps the call sites short.
macro_rules! put {
    ($w:expr, $($arg:tt)*) => {{
        $w.push_str(&format!($($arg)*));
        $w.push('\n');
    }};
}
pub(super) use put;

fn line(w: &mut String, title: &str, value: &str) {
    put!(w, "{title}:\t{value}");
}

fn head(w: &mut String, pod: &PodView) {
    let (meta, spec, status) = (&pod.object["metadata"], &pod.object["spec"], &pod.status);
    line(w, "Name", columns::name(pod));
    line(w, "Namespace", columns::namespace(pod));
    line(w, "Node", spec["nodeName"].as_str().unwrap_or("<none>"));
    if let Some(start) = status.start_time {
        line(w, "Start Time", &human::date(start));
    }
    labels(w, "Labels", &meta["labels"]);
    annotations(w, &meta["annotations"]);
    line(
        w,
        "Status",
        if pod.terminating && !status.phase.is_terminal() {
            "Terminating"
        } else {
            status.phase.as_str()
        },
    );
    for (title, value) in [("Reason", &status.reason), ("Message", &status.message)] {
        if !value.is_empty() {
            line(w, title, value);
        }
    }
    line(w, "IP", &status.pod_ip);
    if status.pod_ips.is_empty() {
        line(w, "IPs", "<none>");
        return;
    }
    put!(w, "IPs:");
    for ip in &status.pod_ips {
        put!(w, "  IP:\t{}", ip.ip);
    }
}

fn labels(w: &mut String, title: &str, map: &Value) {
    let map = string_map(map);
    if map.is_empty() {
        line(w, title, "<none>");
    }
    for (i, (key, value)) in map.iter().enumerate() {
        let title = if i == 0 {
            format!("{title}:")
        } else {
            String::new()
        };
        put!(w, "{title}\t{key}={value}");
    }
}

fn annotations(w: &mut String, map: &Value) {
    let map = string_map(map);
    if map.is_empty() {
        line(w, "Annotations", "<none>");
    }
    for (i, (key, value)) in map.iter().enumerate() {
        let title = if i == 0 { "Annotations:" } else { "" };
        let value = value.strip_suffix('\n').unwrap_or(value);
        if key.len() + value.len() + 2 <= MAX_ANNOTATION && !value.contains('\n') {
            put!(w, "{title}\t{key}: {value}");
            continue;
        }
        put!(w, "{title}\t{key}:");
        for part in value.split('\n') {
            put!(w, "\t  {}", shorten(part, MAX_ANNOTATION - 2));
        }
    }
}

fn shorten(s: &str, max: usize) -> String {
    match s.char_indices().nth(max) {
        Some((at, _)) => format!("{}...", &s[..at]),
        None => s.into(),
    }
}

fn conditions(w: &mut String, pod: &PodView) {
    if pod.status.conditions.is_empty() {
        return;
    }
    put!(w, "Conditions:\n  Type\tStatus");
    for c in &pod.status.conditions {
        // The reason and message kubectl keeps to itself say why a pod is not ready.
        let why = [c.reason.as_str(), &c.message]
            .into_iter()
            .filter(|s| !s.is_empty())
            .collect::<Vec<_>>()
            .join(": ");
        put!(
            w,
            "  {}\t{}{}{why}",
            c.type_,
            c.status,
            if why.is_empty() { "" } else { "\t" }
        );
    }
}

fn volumes(w: &mut String, list: &Value) {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    if list.is_empty() {
        return line(w, "Volumes", "<none>");
    }
    put!(w, "Volumes:");
    for v in list {
        put!(w, "  {}:", v["name"].as_str().unwrap_or_default());
        match v["hostPath"].is_object() {
            true => {
                put!(w, "    Type:\tHostPath (bare host directory volume)");
                put!(
                    w,
                    "    Path:\t{}",
                    v["hostPath"]["path"].as_str().unwrap_or_default()
                );
                put!(
                    w,
                    "    HostPathType:\t{}",
                    v["hostPath"]["type"].as_str().unwrap_or_default()
                );
            }
            false => {
                put!(
                    w,
                    "    Type:\tEmptyDir (a temporary directory that shares a pod's lifetime)"
                );
                put!(
                    w,
                    "    Medium:\t{}",
                    v["emptyDir"]["medium"].as_str().unwrap_or_default()
                );
                put!(
                    w,
                    "    SizeLimit:\t{}",
                    scalar(&v["emptyDir"]["sizeLimit"]).unwrap_or_else(|| "<unset>".into())
                );
            }
        }
    }
}

/// A string or number as it stands in the file.
pub(super) fn scalar(v: &Value) -> Option<String> {
    match v {
        Value::String(s) => Some(s.clone()),
        Value::Number(n) => Some(n.to_string()),
        _ => None,
    }
}

fn file(w: &mut String, pod: &PodView) {
    line(w, "File", &pod.file);
    if let Some(error) = &pod.file_error {
        put!(
            w,
            "File Error:\tlast good version runs: {}",
            error.replace('\n', "\n\t")
        );
    }
    for (i, warning) in pod.warnings.iter().enumerate() {
        put!(
            w,
            "{}\t{}",
            if i == 0 { "Warnings:" } else { "" },
            warning.replace('\n', "\n\t")
        );
    }
}

fn events(w: &mut String, events: &[Arc<Event>], now: Time) {
    if events.is_empty() {
        return line(w, "Events", "<none>");
    }
    put!(
        w,
        "Events:\n  Type\tReason\tAge\tFrom\tMessage\n  ----\t------\t----\t----\t-------"
    );
    for e in events {
        let age = last_seen(e, now);
        // A message of several lines (a probe's output) stays one row, as with kubectl, which trims it only.
        put!(
            w,
            "  {:?}\t{}\t{age}\tpodprobe\t{}",
            e.type_,
            e.reason,
            e.message.trim().replace(['\n', '\t'], " ")
        );
    }
}
