//! The pods that should run, by UID: what the sources said last. Written by the sync loop only.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::api::{Pod, PodUid};

/// See the module. The lock is held for map operations only.
#[derive(Default)]
pub struct PodManager {
    pods: Mutex<HashMap<PodUid, Arc<Pod>>>,
}

impl PodManager {
    /// Adds or replaces a pod.
    pub fn set(&self, pod: Arc<Pod>) {
        self.lock().insert(pod.uid().clone(), pod);
    }

    /// Forgets a pod.
    pub fn remove(&self, uid: &PodUid) {
        self.lock().remove(uid);
    }

    /// The pod, if it should run.
    pub fn get(&self, uid: &PodUid) -> Option<Arc<Pod>> {
        self.lock().get(uid).cloned()
    }

    /// All of them, in no order.
    pub fn all(&self) -> Vec<Arc<Pod>> {
        self.lock().values().cloned().collect()
    }

    /// Their UIDs.
    pub fn uids(&self) -> HashSet<PodUid> {
        self.lock().keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PodUid, Arc<Pod>>> {
        self.pods.lock().expect("no panic while the lock is held")
    }
}
