//! The restarts that people have asked for and that are still to come.
//!
//! Invariants: a request names the instance that is to be replaced, so it is over once there is another one, and nothing is
//! restarted twice. Requests are in memory: what a daemon that is killed has not begun is not done.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};

use crate::api::PodUid;
use crate::base::locks::Locked;
use crate::engine::runtime::{ContainerId, RuntimePodStatus};

/// The restarts that are asked for, by pod and container.
#[derive(Default)]
pub struct Restarts(Mutex<HashMap<PodUid, BTreeMap<String, ContainerId>>>);

impl Restarts {
    /// This instance is to be replaced.
    pub fn ask(&self, uid: &PodUid, container: &str, id: ContainerId) {
        let mut all = self.lock();
        let of_pod = all.entry(uid.clone()).or_default();
        of_pod.insert(container.to_owned(), id);
    }

    /// The instances of a pod that are to be replaced. Requests that are over are dropped.
    pub fn asked(&self, uid: &PodUid, runtime: &RuntimePodStatus) -> Vec<ContainerId> {
        let mut all = self.lock();
        let Some(of_pod) = all.get_mut(uid) else {
            return Vec::new();
        };
        of_pod.retain(|name, id| runtime.container(name).is_some_and(|c| c.id == *id));
        let asked = of_pod.values().cloned().collect();
        if of_pod.is_empty() {
            all.remove(uid);
        }
        asked
    }

    /// Tells whether the container is to start at once, whatever its back-off.
    pub fn is_asked(&self, uid: &PodUid, container: &str) -> bool {
        let all = self.lock();
        all.get(uid).is_some_and(|of| of.contains_key(container))
    }

    /// The pod ends.
    pub fn forget(&self, uid: &PodUid) {
        self.lock().remove(uid);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PodUid, BTreeMap<String, ContainerId>>> {
        self.0.locked()
    }
}
