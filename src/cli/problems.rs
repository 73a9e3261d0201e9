//! The lines below a table: files that do not run as they stand, and a daemon whose sync loop stands still.

use std::io::{self, Write};

use crate::status::Snapshot;

/// One line for each of the files asked for that does not run as it stands.
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
            "not running"
        };
        writeln!(err, "{}", problem.line(what))?;
    }
    Ok(())
}

/// One line when the daemon stands still, so that what is shown may be old.
pub fn write_stalled(snapshot: &Snapshot, err: &mut dyn Write) -> io::Result<()> {
    snapshot
        .stalled
        .iter()
        .try_for_each(|stalled| writeln!(err, "podprobe: {stalled}"))
}
