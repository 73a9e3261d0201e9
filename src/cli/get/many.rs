//! The verb `get` with several kinds: prints a table for each kind that has objects, with the kind before each
//! name. In other formats than tables, prints all objects in one list.

use std::io::Write;

use serde_json::Value;

use super::item::Found;
use super::printer::Printer;
use super::{Get, Kind, find};
use crate::cli::client::Client;
use crate::cli::error::CliError;
use crate::cli::output::{self, Output};

/// Prints the requested objects on `out`. Notes and errors go to `err`.
///
/// # Errors
/// Returns a [`CliError`] if a name is not found, or if the daemon cannot be asked.
pub(super) fn run(gets: &[Get], out: &mut dyn Write, err: &mut dyn Write) -> Result<(), CliError> {
    let needs_daemon = |get: &Get| get.kind != Kind::Images;
    let Some(first) = gets.iter().find(|get| needs_daemon(get)).or(gets.first()) else {
        return Ok(());
    };
    let mut client = Client::connect(&first.root)?;
    let mut all = Vec::new();
    for get in gets {
        let mut found = find(get, &mut client)?;
        if let Some(path) = &get.sort_by {
            found.sort(path).map_err(output::failed)?;
        }
        all.push((get, found));
    }
    match &first.output {
        Output::Json | Output::Yaml | Output::JsonPath(_) => list(&first.output, &all, out)?,
        _ => tables(&all, out)?,
    }
    let is_empty = |(_, found): &(&Get, Found)| found.rows().next().is_none();
    let missing = || all.iter().flat_map(|(_, found)| &found.missing);
    if first.output.is_table() {
        if all.iter().all(is_empty) && missing().next().is_none() {
            writeln!(err, "{}", super::nothing(first))?;
        }
        // Several kinds, such as services and endpoints, come from the same objects and have the same notes. So
        // equal notes are printed once.
        let mut said: Vec<&String> = Vec::new();
        for note in all.iter().flat_map(|(_, found)| &found.notes) {
            if !said.contains(&note) {
                writeln!(err, "{note}")?;
                said.push(note);
            }
        }
    }
    for why in missing() {
        writeln!(err, "{why}")?;
    }
    match missing().next() {
        None => Ok(()),
        Some(_) => Err(CliError::Reported),
    }
}

/// Prints all objects of all kinds as one list.
fn list(form: &Output, all: &[(&Get, Found)], out: &mut dyn Write) -> Result<(), CliError> {
    let found = || all.iter().map(|(_, found)| found);
    let objects = found().flat_map(|f| &f.items).map(|i| i.object.clone());
    let refused = found().flat_map(|f| &f.refused).map(|r| r.object.clone());
    let refused: Vec<Value> = refused.collect();
    let refused = (!refused.is_empty()).then(|| refused.into());
    output::write(form, &output::list(objects.collect(), refused), out)?;
    Ok(out.flush()?)
}

/// Prints the tables, with an empty line between them.
fn tables(all: &[(&Get, Found)], out: &mut dyn Write) -> Result<(), CliError> {
    let mut begun = false;
    for (get, found) in all {
        if found.rows().next().is_none() {
            continue;
        }
        if std::mem::replace(&mut begun, true) && get.output.is_table() {
            writeln!(out)?;
        }
        Printer::new(get).first(found, out)?;
    }
    Ok(out.flush()?)
}
