//! The finding about a workload.

use super::{Finding, Severity, describe, finding};
use crate::api::workload::WorkloadKind;
use crate::face::views::workloads::{
    condition, controller, kind, name, namespace, rollout_failure,
};
use crate::workloads::deployment::{DOES_NOT_FIT, PROGRESSING};
use crate::workloads::view::WorkloadView;

/// Returns the problem of a workload that its pods do not have: its controller leaves it as it is; a new pod fits in no
/// way; a rollout that made no progress leaves old pods that are
/// well, and a Job that has failed may have none left. The Jobs of a CronJob are left out, because a failed one stays in
/// its history also after later ones have succeeded.
pub(super) fn of_workload(view: &WorkloadView) -> Option<Finding> {
    let kind = kind(view)?;
    let waiting = || view.waiting.as_deref();
    let message = match kind {
        _ if view.is_held => waiting()?.to_owned(),
        WorkloadKind::Deployment if fits_in_no_way(view) => waiting()?.to_owned(),
        WorkloadKind::Deployment => {
            let error = rollout_failure(view)?;
            waiting().unwrap_or(error).to_owned()
        }
        WorkloadKind::Job if controller(&view.object).is_none() => failure(view)?,
        _ => return None,
    };
    let way_out = describe(kind.resource(), namespace(view), name(view));
    let subject = format!("{}/{}", kind.resource(), name(view));
    Some(finding(Severity::Workload, &subject, &message, &way_out))
}

/// True if the node has no room for a new pod, even in the place of the old ones.
fn fits_in_no_way(view: &WorkloadView) -> bool {
    condition(&view.object, PROGRESSING).is_some_and(|c| c["reason"] == DOES_NOT_FIT)
}

/// Returns why a Job has failed; None if it has not.
fn failure(view: &WorkloadView) -> Option<String> {
    let failed = condition(&view.object, "Failed").filter(|c| c["status"] == "True")?;
    let text = |key: &str| failed[key].as_str().unwrap_or_default();
    Some(format!(
        "it has failed: {}: {}",
        text("reason"),
        text("message")
    ))
}
