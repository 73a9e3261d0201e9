//! The lines below a table. These lines are about files whose content is not in use, about a daemon whose sync loop has
//! stopped, and about a node on which no pod starts.

use std::io::{self, Write};

use crate::face::views::Snapshot;
use crate::pods::sources::FileProblem;

/// Returns a line for each requested file with content that is not in use.
pub fn problem_lines(snapshot: &Snapshot, asked: impl Fn(&str) -> bool) -> Vec<String> {
    let problems = snapshot.problems.iter().filter(|p| asked(&p.file));
    problems.map(FileProblem::line).collect()
}

/// Writes a line for each requested file with content that is not in use.
pub fn write_problems(
    snapshot: &Snapshot,
    asked: impl Fn(&str) -> bool,
    err: &mut dyn Write,
) -> io::Result<()> {
    let lines = problem_lines(snapshot, asked);
    lines.iter().try_for_each(|line| writeln!(err, "{line}"))
}

/// Returns a line if the daemon's sync loop has stopped working, because the shown data may be old, and a line if no pod starts
/// on the node.
pub fn node_lines(snapshot: &Snapshot) -> Vec<String> {
    let all = snapshot.stalled.iter().chain(&snapshot.closed);
    all.map(|line| format!("podprobe: {line}")).collect()
}

/// Writes the lines of [`node_lines`].
pub fn write_node_lines(snapshot: &Snapshot, err: &mut dyn Write) -> io::Result<()> {
    node_lines(snapshot)
        .iter()
        .try_for_each(|line| writeln!(err, "{line}"))
}
