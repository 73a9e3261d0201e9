//! The pods that should run, by UID, as the sources last reported them. Only the sync loop adds, replaces and removes
//! pods.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::api::{Pod, PodUid};
use crate::base::change_feed::{Aspect, ChangeFeed};
use crate::base::locks::Locked;

/// The pods by UID. The lock is held for map operations only.
#[derive(Default)]
pub struct PodManager {
    pods: Mutex<HashMap<PodUid, Arc<Pod>>>,
    feed: Arc<ChangeFeed>,
}

impl PodManager {
    /// Makes a manager without pods. `feed` gets each change, even the change of a pod with a status from an earlier
    /// daemon.
    pub fn new(feed: Arc<ChangeFeed>) -> Self {
        Self {
            pods: Mutex::default(),
            feed,
        }
    }

    /// Adds or replaces a pod.
    pub fn set(&self, pod: Arc<Pod>) {
        let uid = pod.uid().clone();
        self.lock().insert(uid.clone(), pod);
        self.feed.tell(&uid, Aspect::Spec);
    }

    /// Forgets a pod.
    pub fn remove(&self, uid: &PodUid) {
        self.lock().remove(uid);
        self.feed.tell(uid, Aspect::Spec);
    }

    /// Returns the pod if it should run.
    pub fn get(&self, uid: &PodUid) -> Option<Arc<Pod>> {
        self.lock().get(uid).cloned()
    }

    /// Returns all pods, in any order.
    pub fn all(&self) -> Vec<Arc<Pod>> {
        self.lock().values().cloned().collect()
    }

    /// Returns the UIDs of all pods.
    pub fn uids(&self) -> HashSet<PodUid> {
        self.lock().keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PodUid, Arc<Pod>>> {
        self.pods.locked()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::test_pods;

    #[test]
    fn watchers_hear_of_each_change() {
        let feed = Arc::new(ChangeFeed::default());
        let pods = PodManager::new(feed.clone());
        pods.set(test_pods::pod("a").arc());
        assert_eq!((feed.version(), pods.all().len()), (1, 1));
        pods.remove(&"a".into());
        assert_eq!((feed.version(), pods.all().len()), (2, 0));
    }
}
