//! `version`: this program's version and the daemon's.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use super::args::{self, ROOT};
use super::client::{Client, ClientError};
use super::error::CliError;

/// `version`.
pub const VERB: args::Verb = args::Verb {
    name: "version",
    summary: &[("version", "print the versions of client and daemon")],
    help: "\
usage: podprobe version [--root DIR]

Prints the version of this program, and of the daemon if one runs.
",
    options: &[ROOT],
    run: |raw, out, _| {
        raw.no_words().map_err(CliError::Usage)?;
        run(&raw.root().map_err(CliError::Usage)?, out)?;
        Ok(ExitCode::SUCCESS)
    },
};

/// Without a daemon only the client's version is printed; this is not an error.
fn run(root: &Path, out: &mut dyn Write) -> Result<(), CliError> {
    writeln!(out, "Client Version: {}", env!("CARGO_PKG_VERSION"))?;
    match Client::connect(root).and_then(|mut c| c.version()) {
        Ok(version) => writeln!(out, "Daemon Version: {version}")?,
        Err(ClientError::NotRunning { .. }) => {}
        Err(e) => {
            out.flush()?;
            return Err(e.into());
        }
    }
    Ok(out.flush()?)
}
