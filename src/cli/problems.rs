//! The lines below a table. These lines are about files whose content is not in use, and about a daemon whose sync
//! loop has stopped.

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

/// Returns a line if the daemon's sync loop has stopped working, because the shown data may be old.
pub fn stalled_line(snapshot: &Snapshot) -> Option<String> {
    let stalled = snapshot.stalled.as_ref();
    stalled.map(|stalled| format!("podprobe: {stalled}"))
}

/// Writes a line if the daemon's sync loop has stopped working, because the shown data may be old.
pub fn write_stalled(snapshot: &Snapshot, err: &mut dyn Write) -> io::Result<()> {
    stalled_line(snapshot)
        .iter()
        .try_for_each(|line| writeln!(err, "{line}"))
}
