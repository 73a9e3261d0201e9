//! The restarts that people have requested and that have not happened yet.
//!
//! Invariants: a request names the instance to replace. The request ends once the container has another instance, so
//! nothing is restarted twice. Requests are kept in memory only. If a daemon is killed, the requests that the daemon
//! has not begun are lost.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};

use crate::api::PodUid;
use crate::base::locks::Locked;
use crate::engine::runtime::{ContainerId, RuntimePodStatus};

/// The requested restarts, by pod and container.
#[derive(Default)]
pub struct Restarts(Mutex<HashMap<PodUid, BTreeMap<String, ContainerId>>>);

impl Restarts {
    /// Requests that this instance of a container be replaced.
    pub fn ask(&self, uid: &PodUid, container: &str, id: ContainerId) {
        let mut all = self.lock();
        let of_pod = all.entry(uid.clone()).or_default();
        of_pod.insert(container.to_owned(), id);
    }

    /// Returns the instances of a pod that are to be replaced. Drops the requests whose instance is no longer the
    /// newest.
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

    /// Tells whether a restart of the container was requested. Such a container starts at once, whatever its back-off.
    pub fn is_asked(&self, uid: &PodUid, container: &str) -> bool {
        let all = self.lock();
        all.get(uid).is_some_and(|of| of.contains_key(container))
    }

    /// Forgets the requests of a pod that ends.
    pub fn forget(&self, uid: &PodUid) {
        self.lock().remove(uid);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PodUid, BTreeMap<String, ContainerId>>> {
        self.0.locked()
    }
}
