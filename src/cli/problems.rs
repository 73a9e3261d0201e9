//! The lines below a table: files whose present content does not run, and a daemon whose sync loop
//! stands still.

use std::io::{self, Write};

use crate::views::Snapshot;

/// One line for each requested file whose present content does not run.
pub fn write_problems(
    snapshot: &Snapshot,
    asked: impl Fn(&str) -> bool,
    err: &mut dyn Write,
) -> io::Result<()> {
    for problem in snapshot.problems.iter().filter(|p| asked(&p.file)) {
        let runs = snapshot
            .pods
            .iter()
            .any(|p| p.file == problem.file && p.file_error.is_some());
        let what = if runs {
            "last good version runs"
        } else {
            "not in use"
        };
        writeln!(err, "{}", problem.line(what))?;
    }
    Ok(())
}

/// One line when the daemon stands still, because the shown data may be old.
pub fn write_stalled(snapshot: &Snapshot, err: &mut dyn Write) -> io::Result<()> {
    snapshot
        .stalled
        .iter()
        .try_for_each(|stalled| writeln!(err, "podprobe: {stalled}"))
}
