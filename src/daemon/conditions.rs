//! Setting conditions of pods on request.

use super::backend::DaemonBackend;
use crate::api::PodUid;
use crate::api::conditions::{ConditionChange, ConditionStatus};
use crate::base::clock::Time;
use crate::face::server::protocol::ConditionSet;

impl DaemonBackend {
    /// Backend's `set_condition`.
    pub(super) fn set_pod_condition(
        &self,
        uid: &PodUid,
        change: &ConditionChange,
    ) -> Result<ConditionSet, String> {
        change.check()?;
        let pod = self.pod(uid)?;
        let changed = self
            .statuses
            .set_condition(&pod, change, Time::now())
            .map_err(|e| e.to_string())?;
        if changed {
            let status = change.status.map_or("removed", ConditionStatus::as_str);
            log::info!("condition {} of pod {uid}: {status}", change.type_);
        }
        Ok(ConditionSet {
            changed,
            not_stored: self.store_conditions(),
        })
    }

    /// On disk before the answer, so that a daemon killed the moment after keeps its word. Also when
    /// nothing has changed: another client's change may be on its way to the disk.
    fn store_conditions(&self) -> Option<String> {
        let e = self.checkpoint.save().err()?;
        Some(format!(
            "cannot write {}: {e}",
            self.checkpoint.path().display()
        ))
    }
}
