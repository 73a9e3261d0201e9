//! Follows what the daemon shows, until a verb has seen what it waits for, or its time is over.
//!
//! Invariants: each newer version is looked at once. After the time is over there is no further request on the
//! connection, because an answer to the last one may still come.

use std::path::Path;

use super::client::Client;
use super::error::CliError;
use crate::base::clock::Moment;
use crate::face::views::Snapshot;
use crate::workloads::view::WorkloadList;

/// Shows `is_enough` each snapshot until it returns true. Returns the last snapshot if the time is over.
///
/// # Errors
/// Returns the error of `is_enough`, or a [`CliError`] if the daemon cannot be asked.
pub(super) fn pods(
    root: &Path,
    end: Moment,
    is_enough: &mut dyn FnMut(&Snapshot) -> Result<bool, CliError>,
) -> Result<Option<Snapshot>, CliError> {
    let mut client = Client::connect(root)?;
    let mut snapshot = Snapshot::clone(&*client.snapshot()?);
    while !is_enough(&snapshot)? {
        let left = end.since(Moment::now());
        let update = match left.is_zero() {
            true => None,
            false => client.watch_for(snapshot.version, left)?,
        };
        match update {
            Some(update) => snapshot = snapshot.updated(update),
            None => return Ok(Some(snapshot)),
        }
    }
    Ok(None)
}

/// Shows `is_enough` each list of workloads until it returns true. Returns the last list if the time is over.
///
/// # Errors
/// Returns the error of `is_enough`, or a [`CliError`] if the daemon cannot be asked.
pub(super) fn workloads(
    root: &Path,
    end: Moment,
    is_enough: &mut dyn FnMut(&WorkloadList) -> Result<bool, CliError>,
) -> Result<Option<WorkloadList>, CliError> {
    let mut client = Client::connect(root)?;
    let mut list = client.workloads(None)?;
    while !is_enough(&list)? {
        let left = end.since(Moment::now());
        let newer = match left.is_zero() {
            true => None,
            false => client.workloads_for(list.version, left)?,
        };
        match newer {
            Some(newer) => list = newer,
            None => return Ok(Some(list)),
        }
    }
    Ok(None)
}
