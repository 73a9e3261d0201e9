//! What clients ask to be done to pods and probes.

use std::sync::Arc;
use std::time::Duration;

use super::backend::DaemonBackend;
use super::pauses::probe_keys;
use super::restarts::chosen;
use crate::api::conditions::{ConditionChange, ConditionStatus};
use crate::api::{Pod, PodUid};
use crate::base::change_feed::Aspect;
use crate::base::clock::{Moment, Time, go_duration};
use crate::face::server::Requests;
use crate::face::server::protocol::{
    ConditionSet, DeleteTarget, Deleted, PauseTarget, ProbeTarget, RestartTarget,
};
use crate::face::views::ProbeReport;
use crate::pods::admission::Rejection;
use crate::pods::prober::pauses::{MAX_PAUSE, MIN_PAUSE, ProbeKey};
use crate::pods::status::EVICTED;

/// Longest grace period in seconds: the most that an int32 holds.
const MAX_GRACE: i64 = i32::MAX as i64;

impl Requests for DaemonBackend {
    fn probe(&self, target: &ProbeTarget) -> Result<ProbeReport, String> {
        let pod = self.pod_or_ending(&target.uid)?;
        let manager = &self.prober.manager;
        let run = manager.probe_now(&pod, &target.container, target.probe_type);
        let (outcome, steps) = run.map_err(|e| e.to_string())?;
        Ok(ProbeReport::new(&outcome, steps))
    }

    fn pause(&self, target: &PauseTarget, length: Duration) -> Result<Vec<String>, String> {
        if !(MIN_PAUSE..=MAX_PAUSE).contains(&length) {
            return Err(format!(
                "a pause lasts from 1s to 168h, not {}",
                go_duration(length)
            ));
        }
        let keys = probe_keys(&*self.pod_or_ending(&target.uid)?, target)?;
        self.prober
            .manager
            .pauses()
            .pause(keys.clone(), length, Moment::now());
        self.after_pausing(
            &target.uid,
            &keys,
            &format!("paused for {}", go_duration(length)),
        )
    }

    fn resume(&self, target: &PauseTarget) -> Result<Vec<String>, String> {
        let keys = probe_keys(&*self.pod_or_ending(&target.uid)?, target)?;
        let resumed = self.prober.manager.pauses().resume(&keys, Moment::now());
        self.after_pausing(&target.uid, &resumed, "resumed")
    }

    /// The pod's worker does it, in the order of a sync.
    fn restart(&self, target: &RestartTarget) -> Result<Vec<String>, String> {
        let uid = &target.uid;
        let pod = self
            .pods
            .manager
            .get(uid)
            .ok_or("the pod is gone, or is ending")?;
        // The runtime is asked, because PLEG's cache is up to a second old.
        let runtime = self.kuberuntime.runtime().pod_status(uid);
        let runtime = runtime.map_err(|e| e.message)?;
        let chosen = chosen(&pod, target.container.as_deref(), &runtime)?;
        for (name, id) in &chosen {
            self.restarts.ask(uid, name, id.clone());
        }
        self.look_again(uid)?;
        Ok(chosen.into_iter().map(|(name, _)| name).collect())
    }

    /// The pod's worker does it, as it ends an evicted pod.
    fn delete(&self, target: &DeleteTarget) -> Result<Deleted, String> {
        let uid = &target.uid;
        let grace = target.grace_period_seconds;
        if let Some(seconds) = grace.filter(|s| !(0..=MAX_GRACE).contains(s)) {
            return Err(format!(
                "a grace period is 0 to {MAX_GRACE} seconds, not {seconds}"
            ));
        }
        let pod = self
            .pods
            .manager
            .get(uid)
            .ok_or("the pod is gone, or is ending")?;
        let file = self.sources.files.get(uid).unwrap_or_default().file;
        let status = self.pods.statuses.get(uid).unwrap_or_default();
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

    fn set_condition(
        &self,
        uid: &PodUid,
        change: &ConditionChange,
    ) -> Result<ConditionSet, String> {
        change.check().map_err(|e| e.to_string())?;
        let pod = self.pod_or_ending(uid)?;
        let changed = self
            .pods
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
}

impl DaemonBackend {
    /// A pod that runs or is ending.
    fn pod_or_ending(&self, uid: &PodUid) -> Result<Arc<Pod>, String> {
        let ending = || {
            self.workers
                .working()
                .into_iter()
                .map(|(pod, _)| pod)
                .find(|pod| pod.uid() == uid)
        };
        self.pods
            .manager
            .get(uid)
            .or_else(ending)
            .ok_or_else(|| "the pod is gone".into())
    }

    /// Stores the pauses on disk before the answer, so that a daemon killed the moment after keeps its word.
    fn after_pausing(
        &self,
        uid: &PodUid,
        keys: &[ProbeKey],
        what: &str,
    ) -> Result<Vec<String>, String> {
        if let Err(e) = self.prober.manager.pauses().save() {
            log::warn!(
                "cannot write {}: {e}; the pauses hold until the daemon ends",
                self.layout.pauses().display()
            );
        }
        self.pods.feed.tell(uid, Aspect::Probes);
        let name = |key: &ProbeKey| format!("{}/{}", key.container, key.probe_type.word());
        keys.iter()
            .for_each(|key| log::info!("probe {} of pod {}: {what}", name(key), key.uid));
        Ok(keys.iter().map(name).collect())
    }

    fn look_again(&self, uid: &PodUid) -> Result<(), String> {
        if self.workers.sync_again(uid) {
            return Ok(());
        }
        self.restarts.forget(uid);
        Err("the pod has ended, or is ending".into())
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
