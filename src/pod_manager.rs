//! The pods that should run, by UID: what the sources said last. Written by the sync loop only.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::api::{Pod, PodUid};
use crate::notifier::Notifier;

/// See the module. The lock is held for map operations only.
#[derive(Default)]
pub struct PodManager {
    pods: Mutex<HashMap<PodUid, Arc<Pod>>>,
    notifier: Arc<Notifier>,
}

impl PodManager {
    /// No pods; `notifier` hears of each change, also of a pod whose status is known already from an earlier daemon.
    pub fn new(notifier: Arc<Notifier>) -> Self {
        Self {
            pods: Mutex::default(),
            notifier,
        }
    }

    /// Adds or replaces a pod.
    pub fn set(&self, pod: Arc<Pod>) {
        self.lock().insert(pod.uid().clone(), pod);
        self.notifier.changed();
    }

    /// Forgets a pod.
    pub fn remove(&self, uid: &PodUid) {
        self.lock().remove(uid);
        self.notifier.changed();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::test_pods;

    #[test]
    fn watchers_hear_of_each_change() {
        let notifier = Arc::new(Notifier::default());
        let pods = PodManager::new(notifier.clone());
        pods.set(test_pods::pod("a").arc());
        assert_eq!((notifier.version(), pods.all().len()), (1, 1));
        pods.remove(&"a".into());
        assert_eq!((notifier.version(), pods.all().len()), (2, 0));
    }
}
