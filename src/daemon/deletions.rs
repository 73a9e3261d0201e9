//! Ending pods on request, until their files change.

use super::backend::DaemonBackend;
use crate::face::server::protocol::{DeleteTarget, Deleted};
use crate::pods::admission::Rejection;
use crate::pods::status::EVICTED;

/// In seconds: what an int32 holds.
const MAX_GRACE: i64 = i32::MAX as i64;

impl DaemonBackend {
    /// Backend's `delete`. The pod's worker does it, as it ends an evicted pod.
    pub(super) fn delete_pod(&self, target: &DeleteTarget) -> Result<Deleted, String> {
        let uid = &target.uid;
        let grace = target.grace_period_seconds;
        if let Some(seconds) = grace.filter(|s| !(0..=MAX_GRACE).contains(s)) {
            return Err(format!(
                "a grace period is 0 to {MAX_GRACE} seconds, not {seconds}"
            ));
        }
        let pod = self.pods.get(uid).ok_or("the pod is gone, or is ending")?;
        let file = self.files.get(uid).unwrap_or_default().file;
        let status = self.statuses.get(uid).unwrap_or_default();
        if let Some(why) = Rejection::of(&status) {
            let reason = why.reason;
            return Err(format!(
                "the pod does not run ({reason}); remove {file}, and it is gone"
            ));
        }
        if status.phase.is_terminal() && status.reason != EVICTED {
            let word = match status.reason.as_str() {
                "" => status.phase.as_str(),
                reason => reason,
            };
            return Err(format!(
                "the pod has ended already ({word}); remove {file}, and it is gone"
            ));
        }
        let message = format!("The pod was deleted until its file changes: {file}");
        match self.evictions.delete(&pod, &message, grace) {
            Ok(()) => Ok(Deleted { file }),
            Err(e) => Err(format!(
                "cannot write {}: {e}; the pod runs on, because the next daemon would not know that it is deleted; remove {file} \
                 instead",
                self.layout.eviction(uid).display()
            )),
        }
    }
}
