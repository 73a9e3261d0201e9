//! The wait of `delete` until pods are gone.
//!
//! Invariants: a pod is known by its UID, so a pod that comes back under the same name is not waited for.

use std::io::Write;
use std::sync::Arc;

use super::Delete;
use crate::base::clock::Moment;
use crate::cli::columns;
use crate::cli::error::CliError;
use crate::cli::follow;
use crate::cli::wait::was_deleted;
use crate::face::views::workloads::{kind, name, owner};
use crate::face::views::{PodView, Snapshot};
use crate::workloads::view::{WorkloadList, WorkloadView};

/// A pod that ends.
pub(super) struct Going {
    pub(super) view: Arc<PodView>,
    /// The object that was deleted, in the words of kubectl's error: `pods/web-edge` or `deployments/web`.
    of: String,
}

/// Returns a pod that was deleted itself.
pub(super) fn of_pod(view: &Arc<PodView>) -> Going {
    Going {
        view: Arc::clone(view),
        of: format!("pods/{}", columns::name(view)),
    }
}

/// Returns the pods of deleted workloads. `list` has the workloads of before.
pub(super) fn of_workloads(
    deleted: &[&WorkloadView],
    list: &WorkloadList,
    now: &Snapshot,
) -> Vec<Going> {
    let is_deleted = |view: &&WorkloadView| deleted.iter().any(|of| std::ptr::eq(*of, *view));
    let going = |pod: &Arc<PodView>| {
        let first = owner(&pod.object, &list.items)?;
        let above = [Some(first), owner(&first.object, &list.items)];
        let of = above.into_iter().flatten().find(is_deleted)?;
        Some(Going {
            view: Arc::clone(pod),
            of: format!("{}s/{}", kind(of)?.resource(), name(of)),
        })
    };
    now.pods.iter().filter_map(going).collect()
}

/// Waits until the pods are gone, if the user wants that. Returns false if the time is over.
///
/// # Errors
/// Returns a [`CliError`] if the daemon cannot be asked.
pub(super) fn wait(
    args: &Delete,
    mut going: Vec<Going>,
    err: &mut dyn Write,
) -> Result<bool, CliError> {
    if args.wait == Some(false) || going.is_empty() {
        return Ok(true);
    }
    let last = follow::pods(&args.root, Moment::now() + args.timeout, &mut |snapshot| {
        let stays = |of: &Going| {
            let mut pods = snapshot.pods.iter();
            pods.any(|p| p.uid() == of.view.uid() && !was_deleted(p))
        };
        going.retain(stays);
        Ok(going.is_empty())
    })?;
    let mut late: Vec<&String> = going.iter().map(|of| &of.of).collect();
    late.dedup();
    for of in late {
        writeln!(err, "error: timed out waiting for the condition on {of}")?;
    }
    Ok(last.is_none())
}
