//! The verb `version`: prints the version of this program and of the daemon.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use serde_json::json;

use super::args::{self, Opt, ROOT, Raw};
use super::client::{Client, ClientError};
use super::error::CliError;

/// The verb `version`.
pub const VERB: args::Verb = args::Verb {
    name: "version",
    summary: &[("version", "print the versions of client and daemon")],
    help: "\
usage: podprobe version [-o json] [--root DIR]

Prints the version of this program, and of the daemon if one runs.

  -o, --output json        as a JSON object: clientVersion and serverVersion, each with gitVersion, as kubectl has it
",
    options: &[ROOT, Opt::value("output", Some('o'))],
    run: |raw, out, _| {
        raw.no_words().map_err(CliError::Usage)?;
        let json = is_json(raw).map_err(CliError::Usage)?;
        run(&raw.root().map_err(CliError::Usage)?, json, out)?;
        Ok(ExitCode::SUCCESS)
    },
};

fn is_json(raw: &Raw) -> Result<bool, String> {
    match raw.text("output")?.as_deref() {
        None => Ok(false),
        Some("json") => Ok(true),
        Some(other) => Err(format!(
            "unknown output form '{other}'; -o of 'version' takes json"
        )),
    }
}

/// Prints the versions. Without a daemon, prints only the client's version. A missing daemon is not an error.
fn run(root: &Path, json: bool, out: &mut dyn Write) -> Result<(), CliError> {
    let daemon = Client::connect(root).and_then(|mut c| c.version());
    let client = env!("CARGO_PKG_VERSION");
    match (json, daemon.as_deref().ok()) {
        (false, None) => writeln!(out, "Client Version: {client}")?,
        (false, Some(version)) => {
            writeln!(out, "Client Version: {client}\nDaemon Version: {version}")?;
        }
        (true, version) => {
            let mut all = json!({"clientVersion": {"gitVersion": client}});
            if let Some(version) = version {
                all["serverVersion"] = json!({"gitVersion": version});
            }
            writeln!(out, "{all:#}")?;
        }
    }
    out.flush()?;
    match daemon {
        Ok(_) | Err(ClientError::NotRunning { .. }) => Ok(()),
        Err(e) => Err(e.into()),
    }
}
