//! The verb `metrics`: prints the daemon's metrics.

use std::process::ExitCode;

use super::args::{self, ROOT};
use super::client::Client;
use super::error::CliError;

/// The verb `metrics`.
pub const VERB: args::Verb = args::Verb {
    name: "metrics",
    summary: &[
        ("metrics", "print the metrics in the Prometheus text format"),
    ],
    help: "\
usage: podprobe metrics [--root DIR]

Prints every metric of the daemon in the Prometheus text format, under the kubelet's names where it has one.
",
    options: &[ROOT],
    run: |raw, out, _| {
        raw.no_words().map_err(CliError::Usage)?;
        let root = raw.root().map_err(CliError::Usage)?;
        out.write_all(Client::connect(&root)?.metrics()?.as_bytes())?;
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    },
};
