//! The times at which pods are synced again. The sync tick takes out the pods that are due (kubelet-probes
//! 5.2).

use std::collections::HashMap;
use std::sync::Mutex;

use crate::api::PodUid;
use crate::base::clock::Moment;
use crate::base::locks::Locked;

/// The time of each pod's next sync. If a pod is scheduled several times, the last call counts.
#[derive(Default)]
pub struct WorkQueue {
    times: Mutex<HashMap<PodUid, Moment>>,
}

impl WorkQueue {
    /// Schedules a sync of a pod. Replaces an earlier entry of the same pod.
    pub fn enqueue(&self, uid: PodUid, at: Moment) {
        self.times.locked().insert(uid, at);
    }

    /// Removes a pod from the queue.
    pub fn remove(&self, uid: &PodUid) {
        self.times.locked().remove(uid);
    }

    /// True if no pod is in the queue.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.times.locked().is_empty()
    }

    /// Takes out and returns every pod that is due.
    pub fn due(&self, now: Moment) -> Vec<PodUid> {
        let mut times = self.times.locked();
        let due: Vec<PodUid> = times
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(uid, _)| uid.clone())
            .collect();
        times.retain(|_, at| *at > now);
        due
    }
}
