//! The pods that should run, by UID, as the sources gave them last. Only the sync loop writes here.

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
    /// A manager without pods. `feed` gets each change, also that of a pod whose status is known
    /// from an earlier daemon.
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

    /// The pod, if it should run.
    pub fn get(&self, uid: &PodUid) -> Option<Arc<Pod>> {
        self.lock().get(uid).cloned()
    }

    /// Returns all pods, in no order.
    pub fn all(&self) -> Vec<Arc<Pod>> {
        self.lock().values().cloned().collect()
    }

    /// Their UIDs.
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
