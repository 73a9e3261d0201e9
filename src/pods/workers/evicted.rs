//! What is different in the syncs of a pod that was evicted or deleted: it ends, waits, and starts from its beginning.

use std::io;

use super::syncer::{Stage, Syncer};
use super::{Outcome, Work};
use crate::api::Pod;
use crate::base::clock::Moment;
use crate::engine::runtime::RuntimeError;
use crate::pods::status::{self, DELETED, EVICTED};

/// A pod that was evicted or deleted cannot start from its beginning.
#[derive(Debug, thiserror::Error)]
pub(super) enum BeginAnewError {
    /// The instances that ended before cannot be removed.
    #[error("cannot start the pod anew: {0}")]
    Runtime(#[from] RuntimeError),
    /// The record on the disk cannot be removed.
    #[error("cannot remove the record of the pod's end: {0}")]
    Record(#[source] io::Error),
}

impl Syncer {
    /// The grace period of the pod, in seconds. An evicted pod has little, for it goes on filling the disk; one that a person
    /// deletes has what the person says.
    pub(super) fn grace(&self, work: &Work) -> i64 {
        let evictions = &self.deps.evictions;
        evictions.grace(work.pod.uid(), work.grace, Moment::now())
    }

    /// Nothing runs and the volumes are gone: an evicted or deleted pod waits from now on. One that ended by itself before
    /// that is none.
    pub(super) fn evicted_has_ended(&self, pod: &Pod) -> Outcome {
        let (uid, evictions) = (pod.uid(), &self.deps.evictions);
        if !evictions.is_evicted(uid, Moment::now()) {
            return Outcome::Ok;
        }
        // A daemon that was killed may have left the status of a pod that runs, or none.
        let status = match self.runtime().pod_status(uid) {
            Ok(runtime) => self.publish(pod, &runtime, Stage::Ended),
            Err(e) => {
                return Outcome::Failed {
                    error: e.message,
                    retry_at: None,
                };
            }
        };
        match [EVICTED, DELETED].contains(&status.reason.as_str()) {
            true => evictions.ended(pod, Moment::now()),
            false => evictions.forget(uid),
        }
        Outcome::Ok
    }

    /// A pod that was evicted and has waited, or was deleted and has another file, starts from its beginning: what ended before, a completed container too, counts
    /// no more, because its volumes are empty.
    pub(super) fn begin_anew(&self, pod: &Pod) -> Result<(), BeginAnewError> {
        let (uid, evictions) = (pod.uid(), &self.deps.evictions);
        let Some(cause) = evictions.over(uid, Moment::now()) else {
            return Ok(());
        };
        let left = self.runtime().pod_status(uid)?;
        if !left.containers.is_empty() {
            let taken_over = status::taken_over(pod, &left);
            self.deps.statuses.set(pod, taken_over);
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
        // the sync needs a status newer than the removal
        self.ran(uid);
        let begun = evictions.begin_anew(uid, Moment::now());
        begun.map_err(BeginAnewError::Record)
    }
}
