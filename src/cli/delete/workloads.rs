//! The form `delete KIND/NAME`: removes the file of a workload, or the Job that a CronJob has made.
//!
//! Invariants: what a controller has made and would make again is not deleted.

use std::collections::BTreeSet;
use std::io::Write;

use super::{Delete, deleted, gone, taken_back};
use crate::api::workload::WorkloadKind;
use crate::cli::change;
use crate::cli::client::Client;
use crate::cli::error::CliError;
use crate::cli::pod_files::{Watched, key};
use crate::face::views::workloads::{full_name, kind, name, namespace, owner, plural, word};
use crate::workloads::view::{Change, WorkloadList, WorkloadView};

/// Deletes the workloads, and waits until their pods are gone. Returns false if not all is gone.
///
/// # Errors
/// Returns a [`CliError`] if the daemon cannot be asked, or if a file must not or cannot be removed.
pub(super) fn run(
    args: &Delete,
    client: &mut Client,
    (views, list): (&[&WorkloadView], &WorkloadList),
    (out, err): (&mut dyn Write, &mut dyn Write),
) -> Result<bool, CliError> {
    let (mut wanted, mut jobs, mut failed) = (BTreeSet::new(), Vec::new(), false);
    for view in views {
        let Some(kind) = kind(view) else { continue };
        let key = key(word(kind), namespace(view), name(view));
        match (kind, owner(&view.object, &list.items)) {
            _ if view.file.is_some() => {
                wanted.insert(key);
            }
            (WorkloadKind::Job, Some(cron_job)) => {
                let name = name(view).to_owned();
                change::ask(client, cron_job, Change::DeleteJob { name })?;
                writeln!(out, "{}", deleted(&key))?;
                jobs.push(*view);
            }
            (_, above) => {
                failed = true;
                let above = above.map_or("its controller".into(), full_name);
                let (plural, name) = (plural(kind), name(view));
                writeln!(
                    err,
                    "{plural} \"{name}\" would be made again by {above}: delete that"
                )?;
            }
        }
    }
    out.flush()?;
    if !wanted.is_empty() {
        let watched = Watched::of(client)?;
        let remove = taken_back::remove(args, (client, &watched), &wanted, &|_| false, (out, err));
        failed |= !remove?;
    }
    let going = gone::of_workloads(&jobs, list, &*client.snapshot()?);
    Ok(gone::wait(args, going, err)? && !failed)
}
