//! The finding about a workload.

use super::{Finding, Severity, describe, finding};
use crate::api::workload::WorkloadKind;
use crate::face::views::workloads::{
    condition, controller, kind, name, namespace, rollout_failure,
};
use crate::workloads::view::WorkloadView;

/// Returns the problem of a workload that its pods do not have: a rollout that made no progress leaves old pods that are
/// well, and a Job that has failed may have none left. The Jobs of a CronJob are left out, because a failed one stays in
/// its history also after later ones have succeeded.
pub(super) fn of_workload(view: &WorkloadView) -> Option<Finding> {
    let kind = kind(view)?;
    let message = match kind {
        WorkloadKind::Deployment => {
            let error = rollout_failure(view)?;
            view.waiting.as_deref().unwrap_or(error).to_owned()
        }
        WorkloadKind::Job if controller(&view.object).is_none() => failure(view)?,
        _ => return None,
    };
    let way_out = describe(kind.resource(), namespace(view), name(view));
    let subject = format!("{}/{}", kind.resource(), name(view));
    Some(finding(Severity::Workload, &subject, &message, &way_out))
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
