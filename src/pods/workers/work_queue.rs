//! When each pod is synced again; the sync tick takes out the pods that are due (kubelet-probes
//! 5.2).

use std::collections::HashMap;
use std::sync::Mutex;

use crate::api::PodUid;
use crate::base::clock::Moment;
use crate::base::locks::Locked;

/// The time of the next sync of each pod. The latest entry for a pod counts.
#[derive(Default)]
pub struct WorkQueue {
    times: Mutex<HashMap<PodUid, Moment>>,
}

impl WorkQueue {
    /// Schedules a sync of a pod; an earlier time for the same pod is replaced.
    pub fn enqueue(&self, uid: PodUid, at: Moment) {
        self.times.locked().insert(uid, at);
    }

    /// Forgets a pod.
    pub fn remove(&self, uid: &PodUid) {
        self.times.locked().remove(uid);
    }

    /// True if no pod is in the queue.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.times.locked().is_empty()
    }

    /// Takes out every pod that is due.
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
