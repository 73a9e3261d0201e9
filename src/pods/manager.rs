//! The pods that should run, by UID, as the sources last reported them. Only the sync loop adds, replaces and removes
//! pods.
//!
//! A pod whose containers are to have other resources has them granted by its worker (kubelet-probes 8.13). Until then the
//! node counts what was granted before, whatever the pod asks for.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::api::{Pod, PodUid};
use crate::base::change_feed::{Aspect, ChangeFeed};
use crate::base::locks::Locked;

/// The pods by UID. The lock is held for map operations only.
#[derive(Default)]
pub struct PodManager {
    pods: Mutex<Pods>,
    /// A lock that lets one worker at a time look for room and take it.
    granting: Mutex<()>,
    feed: Arc<ChangeFeed>,
}

#[derive(Default)]
struct Pods {
    /// The pods as they are asked for.
    wanted: HashMap<PodUid, Arc<Pod>>,
    /// The pods that ask for other resources than they were granted, with those that they were granted.
    granted: HashMap<PodUid, Arc<Pod>>,
}

fn have_same_resources(a: &Pod, b: &Pod) -> bool {
    let of = |pod: &Pod| {
        let all = pod.spec.lasting_containers();
        all.map(|c| (c.name.clone(), c.resources.clone()))
            .collect::<Vec<_>>()
    };
    of(a) == of(b)
}

impl PodManager {
    /// Makes a manager without pods. `feed` gets each change, even the change of a pod with a status from an earlier
    /// daemon.
    pub fn new(feed: Arc<ChangeFeed>) -> Self {
        Self {
            pods: Mutex::default(),
            granting: Mutex::default(),
            feed,
        }
    }

    /// Adds or replaces a pod.
    pub fn set(&self, pod: Arc<Pod>) {
        let uid = pod.uid().clone();
        let mut pods = self.lock();
        if let Some(old) = pods.wanted.get(&uid).cloned()
            && !have_same_resources(&old, &pod)
        {
            pods.granted.entry(uid.clone()).or_insert(old);
        }
        pods.wanted.insert(uid.clone(), pod);
        drop(pods);
        self.feed.tell(&uid, Aspect::Spec);
    }

    /// Forgets a pod.
    pub fn remove(&self, uid: &PodUid) {
        let mut pods = self.lock();
        pods.wanted.remove(uid);
        pods.granted.remove(uid);
        drop(pods);
        self.feed.tell(uid, Aspect::Spec);
    }

    /// Returns the pod if it should run.
    pub fn get(&self, uid: &PodUid) -> Option<Arc<Pod>> {
        self.lock().wanted.get(uid).cloned()
    }

    /// Returns all pods, in any order.
    pub fn all(&self) -> Vec<Arc<Pod>> {
        self.lock().wanted.values().cloned().collect()
    }

    /// Returns the UIDs of all pods.
    pub fn uids(&self) -> HashSet<PodUid> {
        self.lock().wanted.keys().cloned().collect()
    }

    /// Returns all pods, each with the resources that it was granted, in any order.
    pub fn all_granted(&self) -> Vec<Arc<Pod>> {
        let pods = self.lock();
        let granted = |(uid, wanted)| pods.granted.get(uid).unwrap_or(wanted);
        pods.wanted.iter().map(granted).cloned().collect()
    }

    /// Returns the pod with the resources that it was granted, if they are others than it asks for.
    pub fn granted(&self, uid: &PodUid) -> Option<Arc<Pod>> {
        self.lock().granted.get(uid).cloned()
    }

    /// Notes the resources that a pod was granted; None if they are those that it asks for.
    pub fn set_granted(&self, uid: &PodUid, granted: Option<Arc<Pod>>) {
        let mut pods = self.lock();
        match granted {
            Some(granted) => pods.granted.insert(uid.clone(), granted),
            None => pods.granted.remove(uid),
        };
    }

    /// Grants a pod what it asks for if there is room beside the other pods, and otherwise leaves it what it has, which is
    /// `before`.
    ///
    /// # Errors
    /// Returns the error of `room`.
    pub fn grant<E>(
        &self,
        uid: &PodUid,
        before: &Arc<Pod>,
        room: impl FnOnce(Vec<Arc<Pod>>) -> Result<(), E>,
    ) -> Result<(), E> {
        let _one_at_a_time = self.granting.locked();
        let mut others = self.all_granted();
        others.retain(|other| other.uid() != uid);
        let found = room(others);
        self.set_granted(uid, found.is_err().then(|| before.clone()));
        found
    }

    fn lock(&self) -> MutexGuard<'_, Pods> {
        self.pods.locked()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_pods;

    #[test]
    fn watchers_hear_of_each_change() {
        let feed = Arc::new(ChangeFeed::default());
        let pods = PodManager::new(feed.clone());
        pods.set(test_pods::pod("a").arc());
        assert_eq!((feed.version_of(Aspect::Spec), pods.all().len()), (1, 1));
        pods.remove(&"a".into());
        assert_eq!((feed.version_of(Aspect::Spec), pods.all().len()), (2, 0));
    }

    fn asking(memory: &str) -> Arc<Pod> {
        let resources = serde_json::json!({"requests": {"memory": memory}});
        let spec = serde_json::json!({"containers": [{"name": "c", "resources": resources}]});
        Arc::new(test_pods::pod("a").uid("u").spec(spec).build())
    }

    /// A wish that nobody has granted takes no room from others.
    #[test]
    fn what_a_pod_asks_for_counts_once_it_is_granted() {
        let pods = PodManager::default();
        let counted = || {
            let all = pods.all_granted();
            all[0].spec.containers[0].resources.requests["memory"]
                .0
                .clone()
        };
        pods.set(asking("1Mi"));
        assert_eq!(counted(), "1Mi");
        let before = pods.get(&"u".into()).unwrap();
        for wish in ["2Mi", "3Mi"] {
            pods.set(asking(wish));
            assert_eq!(counted(), "1Mi");
        }
        let refused = pods.grant(&"u".into(), &before, |others| {
            assert_eq!(others.len(), 0);
            Err(())
        });
        assert_eq!((refused, counted().as_str()), (Err(()), "1Mi"));
        assert_eq!(
            pods.grant(&"u".into(), &before, |_| Ok::<_, ()>(())),
            Ok(())
        );
        assert_eq!(counted(), "3Mi");
        pods.set(asking("4Mi"));
        pods.remove(&"u".into());
        assert_eq!(pods.granted(&"u".into()), None);
    }
}
