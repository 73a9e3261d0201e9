//! The form `get pods`: lists pods, with a row for each file that is refused.
//!
//! Invariants: pure. A refused file that has a pod in the list has no row of its own. A sentence below the table
//! names the problem of such a file. The row of any other refused file shows the name of the file, because the pod
//! in the file is not known.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::json;

use super::Get;
use super::item::{Found, Item};
use crate::base::clock::Time;
use crate::cli::columns::{self, Row, visible};
use crate::cli::error::CliError;
use crate::cli::names::{self, NameError};
use crate::cli::problems::{node_lines, problem_lines};
use crate::cli::terminal::one_line;
use crate::face::views::{PodView, Snapshot};
use crate::pods::sources::FileProblem;

/// The word in the column STATUS for a file that is refused.
pub const REFUSED: &str = "Refused";

/// Returns the requested pods and refused files, in the order of the snapshot or of the requested names.
pub fn find(get: &Get, snapshot: &Snapshot, now: Time) -> Result<Found, CliError> {
    let mut found = Found::default();
    let mut shown: Vec<&PodView> = Vec::new();
    let mut refused: Vec<&FileProblem> = Vec::new();
    let all_refused = refused_files(snapshot);
    if get.names.is_empty() {
        shown.extend(
            names::in_namespace(snapshot, get.namespace.as_deref())
                .filter(|p| get.has_labels(&p.object)),
        );
        // The labels in a refused file are not known, so a search with `-l` leaves the file out.
        refused.extend(all_refused.iter().filter(|_| get.selector.is_none()));
    }
    for name in &get.names {
        match names::resolve(snapshot, get.namespace.as_deref(), name) {
            Ok(pod) => shown.push(pod),
            Err(e) => {
                let is_unknown = matches!(e, NameError::NotFound { .. });
                let file = all_refused.iter().find(|p| is_unknown && is_named(p, name));
                found.missing.push(match file {
                    Some(file) => problem_lines(snapshot, |f| f == file.file).join("\n"),
                    None => e.to_string(),
                });
                refused.extend(file);
            }
        }
    }
    found.items = shown.iter().map(|pod| item(pod, now)).collect();
    found.refused = refused
        .iter()
        .map(|problem| refused_item(problem))
        .collect();
    found.notes.extend(node_lines(snapshot));
    // If names are given, only problems in the files of those pods are shown.
    let asked = |file: &str| get.names.is_empty() || shown.iter().any(|p| p.file == file);
    found.notes.extend(problem_lines(snapshot, asked));
    Ok(found)
}

/// Returns the first problem of each refused file that has no pod in the list, and of which nothing runs.
fn refused_files(snapshot: &Snapshot) -> Vec<&FileProblem> {
    let of_pods: BTreeSet<&str> = snapshot.pods.iter().map(|p| p.file.as_str()).collect();
    let mut seen = of_pods;
    let problems = snapshot.problems.iter();
    let problems = problems.filter(|p| !p.is_in_use && !p.last_good_runs);
    problems.filter(|p| seen.insert(p.file.as_str())).collect()
}

/// Tells whether `name` stands for the refused file: its path, its file name, or its file name without the
/// ending.
fn is_named(problem: &FileProblem, name: &str) -> bool {
    let path = Path::new(&problem.file);
    let is = |part: Option<&std::ffi::OsStr>| part.is_some_and(|part| part == name);
    problem.file == name || is(path.file_name()) || is(path.file_stem())
}

fn item(pod: &PodView, now: Time) -> Item {
    let row = Row::new(pod, now);
    Item {
        namespace: row.namespace,
        name: columns::name(pod).into(),
        cells: vec![
            row.name,
            row.ready,
            row.status,
            row.restarts,
            row.age,
            row.ip,
            row.node,
            row.gates,
            row.paused,
            row.file,
        ],
        object: pod.v1(),
        visible: format!("{:?}", visible(pod)),
    }
}

fn refused_item(problem: &FileProblem) -> Item {
    let name = Path::new(&problem.file)
        .file_name()
        .map(|n| n.to_string_lossy());
    let name = one_line(&name.unwrap_or(problem.file.as_str().into()));
    let none = "<none>";
    let file = one_line(&problem.file);
    let cells = [
        &name,
        "-",
        REFUSED,
        "-",
        "<unknown>",
        none,
        none,
        none,
        none,
        &file,
    ];
    Item {
        namespace: "<unknown>".into(),
        cells: cells.map(str::to_owned).to_vec(),
        object: json!({"file": problem.file, "error": problem.error}),
        visible: problem.error.clone(),
        name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::selector::Selector;

    fn snapshot() -> Snapshot {
        let pod = |name: &str, tier: &str| {
            json!({"object": {"metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"tier": tier}}}, "status": {},
                "file": format!("/p/{name}.yaml"), "warnings": [], "terminating": false, "logDir": "", "events": []})
        };
        let problem = |file: &str, error: &str| json!({"file": file, "error": error});
        let problems = [
            problem("/p/bad.yaml", "no"),
            problem("/p/bad.yaml", "again"),
            problem("/p/web.yaml", "old"),
        ];
        let value = json!({"version": 1, "nodeName": "edge", "pods": [pod("web", "a"), pod("db", "b")], "problems": problems});
        serde_json::from_value(value).unwrap()
    }

    #[track_caller]
    fn check(names: &[&str], selector: Option<&str>, rows: &[&str], missing: &[&str]) {
        let get = Get {
            names: names.iter().map(|n| (*n).to_owned()).collect(),
            selector: selector.map(|s| Selector::parse(s).unwrap()),
            ..Get::default()
        };
        let found = find(&get, &snapshot(), Time::now()).unwrap();
        let shown: Vec<String> = found
            .rows()
            .map(|i| format!("{} {}", i.name, i.cells[2]))
            .collect();
        assert_eq!(shown, rows);
        assert_eq!(found.missing, missing);
    }

    /// If a file has an object of a kind that podprobe does not run, the other objects of the file are in use. A
    /// line below the table names the unused kind.
    #[test]
    fn a_file_with_a_kind_that_is_not_run_is_not_refused() {
        let mut snapshot = snapshot();
        snapshot.problems = vec![FileProblem {
            file: "/p/shop.yaml".into(),
            error: "NetworkPolicy \"web\": not run here".into(),
            is_in_use: true,
            ..FileProblem::default()
        }];
        let found = find(&Get::default(), &snapshot, Time::now()).unwrap();
        assert_eq!(found.refused, []);
        assert_eq!(
            found.notes,
            ["/p/shop.yaml: NetworkPolicy \"web\": not run here"]
        );
    }

    #[test]
    fn a_refused_file_has_one_row_unless_a_pod_of_it_is_shown() {
        check(
            &[],
            None,
            &["web Pending", "db Pending", "bad.yaml Refused"],
            &[],
        );
        check(&[], Some("tier=b"), &["db Pending"], &[]);
    }

    #[test]
    fn a_refused_file_is_named_as_a_pod_or_as_a_file() {
        let why = "/p/bad.yaml: not in use: no\n/p/bad.yaml: not in use: again";
        for name in ["bad", "bad.yaml", "/p/bad.yaml"] {
            check(
                &["db", name],
                None,
                &["db Pending", "bad.yaml Refused"],
                &[why],
            );
        }
        check(&["ba"], None, &[], &["pods \"ba\" not found"]);
        check(
            &["web.yaml", "db"],
            None,
            &["db Pending"],
            &["pods \"web.yaml\" not found"],
        );
    }
}
