//! What stands below a table: files that are not what runs, and a daemon that stands still.

use std::io::{self, Write};

use crate::status::Snapshot;

/// One line when the daemon stands still, and one per file that is not, or no longer, what runs.
pub fn write_problems(snapshot: &Snapshot, err: &mut dyn Write) -> io::Result<()> {
    write_stalled(snapshot, err)?;
    for problem in &snapshot.problems {
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

/// What is shown may be old.
pub fn write_stalled(snapshot: &Snapshot, err: &mut dyn Write) -> io::Result<()> {
    snapshot
        .stalled
        .iter()
        .try_for_each(|stalled| writeln!(err, "podprobe: {stalled}"))
}
