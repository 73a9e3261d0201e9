//! The vectors of workloads: a file for each group below `workloads/`, with cases whose expectations upstream's own code
//! has computed (tests/vectors/workloads/README.md).

mod cron;
mod deployment;
mod job;
mod sets;
mod validation;

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::guarded;
use crate::vector_groups::{Passed, Rows};

/// Directory of the files, below that of the other vectors.
pub const DIRECTORY: &str = "workloads";

/// Runs one case. The error says what differs.
type Run = fn(&Value) -> Result<(), String>;

/// All groups, each with the function that runs one case of it.
pub fn groups() -> Vec<(&'static str, Run)> {
    let all = [
        cron::GROUPS,
        deployment::GROUPS,
        job::GROUPS,
        sets::GROUPS,
        validation::GROUPS,
    ];
    all.concat()
}

/// A file of a group. Other fields say where the expectations come from.
#[derive(Deserialize)]
struct Group {
    schema: String,
    group: String,
    cases: Vec<Value>,
}

/// Runs all cases of a group.
pub fn run(directory: &Path, name: &str, run: Run) -> Rows {
    match read(directory, name) {
        Ok(cases) => cases.iter().map(|case| verdict(case, run)).collect(),
        Err(why) => vec![(name.to_owned(), Err(why))],
    }
}

fn verdict(case: &Value, run: Run) -> (String, Result<Passed, String>) {
    let id = case["id"]
        .as_str()
        .unwrap_or("a case without an id")
        .to_owned();
    (id, guarded(|| run(case).map(|()| Passed::AsTold)))
}

fn read(directory: &Path, name: &str) -> Result<Vec<Value>, String> {
    let path = directory.join(DIRECTORY).join(format!("{name}.json"));
    let text = std::fs::read(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    let read: Group = serde_json::from_slice(&text).map_err(|e| e.to_string())?;
    match (read.schema.as_str(), read.group == name) {
        ("workloads-vectors/1", true) => Ok(read.cases),
        (schema, _) => Err(format!("schema {schema}, group {}", read.group)),
    }
}

/// Returns the files of the directory that no group reads.
pub fn unknown(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory.join(DIRECTORY));
    let names = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name());
    let names = names.filter_map(|name| name.into_string().ok());
    let is_unknown = |name: &String| {
        let group = name.strip_suffix(".json");
        group.is_some_and(|group| !groups().iter().any(|(known, _)| *known == group))
    };
    names.filter(is_unknown).collect()
}
