//! `pause` and `resume`: a person lets probes rest, and go on.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use super::client::Client;
use super::columns;
use super::error::CliError;
use super::probe_names::{Wanted, select};
use crate::clock::go_duration;
use crate::server::protocol::PauseTarget;

/// `pause` and `resume`.
#[derive(Clone, Debug, PartialEq)]
pub struct Pause {
    /// Where the daemon is.
    pub root: PathBuf,
    /// Which probes.
    pub wanted: Wanted,
    /// For how long; None ends a pause.
    pub length: Option<Duration>,
}

/// Pauses or resumes, and names the probes.
///
/// # Errors
/// There is no such probe, or no daemon.
pub fn run(args: &Pause, out: &mut dyn Write) -> Result<(), CliError> {
    let mut client = Client::connect(&args.root)?;
    let snapshot = client.snapshot()?;
    let (pod, _) = select(&snapshot, &args.wanted).map_err(CliError::Failed)?;
    let uid = pod.object["metadata"]["uid"]
        .as_str()
        .unwrap_or_default()
        .into();
    let target = PauseTarget {
        uid,
        container: args.wanted.container.clone(),
        probe_type: args.wanted.probe_type,
    };
    let name = columns::name(pod);
    match args.length {
        Some(length) => {
            for probe in client.pause(target, length)? {
                writeln!(out, "{name}/{probe} paused for {}", go_duration(length))?;
            }
        }
        None => {
            let resumed = client.resume(target)?;
            if resumed.is_empty() {
                writeln!(out, "{name}: nothing was paused")?;
            }
            for probe in resumed {
                writeln!(out, "{name}/{probe} resumed")?;
            }
        }
    }
    Ok(out.flush()?)
}
