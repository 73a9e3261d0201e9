//! The forms `describe deployment`, `describe job` and those of the other workloads: asks the daemon for what
//! [`super::workload`] writes.

use std::io::Write;
use std::path::PathBuf;

use super::workload::{self, Around};
use crate::base::clock::Time;
use crate::cli::args::Raw;
use crate::cli::client::Client;
use crate::cli::error::CliError;
use crate::cli::problems::{problem_lines, write_node_lines};
use crate::cli::workload_names::Asked;

/// The arguments of `describe` with a kind of workload.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Workloads {
    root: PathBuf,
    /// Namespace of the workloads; None means all namespaces.
    namespace: Option<String>,
    asked: Asked,
}

pub(super) fn parse(raw: &Raw) -> Result<Workloads, String> {
    Ok(Workloads {
        root: raw.root()?,
        // Without -n, workloads of all namespaces are described, so -A changes nothing.
        namespace: raw.namespaces()?.0,
        asked: Asked::parse(raw, &raw.text_words()?)?,
    })
}

/// Describes the workloads on `out`. Names that are not found go to `err`.
///
/// # Errors
/// Returns a [`CliError`] if a name is not found, or if the daemon cannot be asked.
pub(super) fn run(
    args: &Workloads,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<(), CliError> {
    let mut client = Client::connect(&args.root)?;
    let list = client.workloads(None)?;
    let snapshot = client.snapshot()?;
    let events = client.events(None)?;
    let (views, lacking) = args.asked.find(&list.items, args.namespace.as_deref());
    let around = Around {
        all: &list.items,
        pods: &snapshot.pods,
        events: &events.events,
        now: Time::now(),
    };
    let texts = views.iter().map(|view| workload::text(view, &around));
    let texts: Vec<String> = texts.collect();
    if texts.is_empty() && lacking.is_empty() {
        writeln!(err, "No resources found")?;
    }
    out.write_all(texts.join("\n\n").as_bytes())?;
    out.flush()?;
    write_node_lines(&snapshot, err)?;
    if lacking.is_empty() {
        return Ok(());
    }
    // A workload whose file is bad may be missing.
    let names = raw_names(&args.asked);
    let is_about = |file: &str| names.iter().any(|name| file.contains(name));
    let problems = problem_lines(&snapshot, is_about);
    for line in lacking.iter().chain(&problems) {
        writeln!(err, "{line}")?;
    }
    Err(CliError::Reported)
}

fn raw_names(asked: &Asked) -> Vec<&str> {
    match asked {
        Asked::Named(names) => names.iter().map(|named| named.name.as_str()).collect(),
        Asked::Kinds(..) => Vec::new(),
    }
}
