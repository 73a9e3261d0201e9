//! The syncs of a pod that was evicted, deleted or held: the pod ends, waits, and starts anew.

use std::io;

use super::syncer::{Stage, Syncer};
use super::{Outcome, Work};
use crate::api::Pod;
use crate::base::clock::Moment;
use crate::engine::runtime::RuntimeError;
use crate::pods::status;

/// The reason why a pod that was evicted or deleted cannot start anew.
#[derive(Debug, thiserror::Error)]
pub(super) enum BeginAnewError {
    /// The ended instances cannot be removed.
    #[error("cannot start the pod anew: {0}")]
    Runtime(#[from] RuntimeError),
    /// The record of the eviction on the disk cannot be removed.
    #[error("cannot remove the record of the pod's end: {0}")]
    Record(#[source] io::Error),
}

impl Syncer {
    /// Returns the grace period of the pod in seconds. An evicted pod has a short grace period, because the pod
    /// continues to fill the disk. A pod that a person deletes has the grace period of the request.
    pub(super) fn grace(&self, work: &Work) -> i64 {
        let evictions = &self.deps.evictions;
        evictions.grace(work.pod.uid(), work.grace, Moment::now())
    }

    /// Lets an evicted, deleted or held pod wait from now on, because none of its containers runs and its volumes are
    /// removed or kept. A pod that had ended by itself before does not count as ended by the order.
    pub(super) fn evicted_has_ended(&self, pod: &Pod) -> Outcome {
        let (uid, evictions) = (pod.uid(), &self.deps.evictions);
        if !evictions.is_evicted(uid, Moment::now()) {
            return Outcome::Ok;
        }
        // A daemon that was killed may have left no status, or the status of a running pod.
        let status = match self.runtime().pod_status(uid) {
            Ok(runtime) => self.publish(pod, &runtime, Stage::Ended),
            Err(e) => {
                return Outcome::Failed {
                    error: e.message,
                    retry_at: None,
                };
            }
        };
        match status::is_of_ended(&status) {
            true => evictions.ended(pod, Moment::now()),
            false => evictions.forget(uid),
        }
        Outcome::Ok
    }

    /// Starts a pod from its beginning: a pod that was evicted and has waited, a deleted pod with a changed file, or a held
    /// pod whose node takes pods again. Earlier ends no longer count, even the ends of completed containers.
    /// Returns false if the pod must end.
    pub(super) fn begin_anew(&self, pod: &Pod) -> Result<bool, BeginAnewError> {
        let (uid, evictions) = (pod.uid(), &self.deps.evictions);
        let Some(cause) = evictions.over(uid, Moment::now()) else {
            return Ok(!evictions.keeps_volumes(uid));
        };
        let left = self.runtime().pod_status(uid)?;
        let statuses = &self.deps.statuses;
        let old = statuses.get(uid);
        let renewed = match left.containers.is_empty() {
            true => old.map(|old| status::counted_on(&old)),
            false => Some(status::taken_over(pod, &left, old.as_deref())),
        };
        if let Some(renewed) = renewed {
            statuses.renew(pod, renewed);
        }
        for c in &left.containers {
            self.deps.probes.renewing(pod, &c.name, &cause);
            let kuberuntime = &self.deps.kuberuntime;
            kuberuntime.remove_container(&left, &c.name, &c.id)?;
        }
        for sandbox in &left.sandboxes {
            self.runtime().remove_sandbox(&sandbox.id)?;
        }
        self.forget_failures(uid);
        self.deps.cache.request_relist(uid);
        // the sync needs a status that is newer than the removal
        self.ran(uid);
        let begun = evictions.begin_anew(uid, Moment::now());
        begun.map_err(BeginAnewError::Record)
    }
}
