//! The runtime cache (kubelet-probes 7): the last status of each pod, and the wait for a status that is newer than a
//! given time.
//!
//! Invariants: times are monotonic. Each time is the time at which a listing *began*, so "newer than T" means that the
//! runtime was asked after T. The lock is held for map operations only.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::api::PodUid;
use crate::base::clock::{Moment, go_duration};
use crate::base::locks::Locked;
use crate::engine::runtime::RuntimePodStatus;

/// A wait for a newer status has reached its ceiling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheError {
    uid: PodUid,
    waited: Duration,
}

impl fmt::Display for CacheError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot get a fresh status of pod {}: the runtime was not relisted within {}",
            self.uid,
            go_duration(self.waited)
        )
    }
}

impl std::error::Error for CacheError {}

struct CachedPod {
    status: Arc<RuntimePodStatus>,
    /// The time of the last change of the status, or of the last listing of this pod alone.
    modified: Moment,
}

#[derive(Default)]
struct Inner {
    pods: HashMap<PodUid, CachedPod>,
    /// The time of the last full listing. The status of every pod is at least as new as this time.
    global: Option<Moment>,
    closed: bool,
    /// The condition variable on which the waiters of each pod sleep. With a single condition variable for all pods,
    /// each changed pod would wake every worker.
    waiters: HashMap<PodUid, Arc<Condvar>>,
}

impl Inner {
    fn status(&self, uid: &PodUid) -> Arc<RuntimePodStatus> {
        let empty = || {
            Arc::new(RuntimePodStatus {
                uid: uid.clone(),
                ..RuntimePodStatus::default()
            })
        };
        self.pods.get(uid).map_or_else(empty, |e| e.status.clone())
    }

    /// Wakes the waiters of every pod.
    fn wake_all(&self) {
        self.waiters
            .values()
            .for_each(|changed| changed.notify_all());
    }

    fn is_newer(&self, uid: &PodUid, than: Moment) -> bool {
        self.global.is_some_and(|g| g > than)
            || self.pods.get(uid).is_some_and(|e| e.modified > than)
    }
}

/// The cache of statuses. The relist thread writes the cache. Pod workers and other threads read the cache.
#[derive(Default)]
pub struct Cache {
    inner: Mutex<Inner>,
    /// The number of times that a waiter has looked again at the cache.
    #[cfg(test)]
    looked_again: std::sync::atomic::AtomicUsize,
}

impl Cache {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.locked()
    }

    /// Returns the last known status of a pod. An unknown pod has an empty status.
    pub fn get(&self, uid: &PodUid) -> Arc<RuntimePodStatus> {
        self.lock().status(uid)
    }

    /// Returns the status of every pod that the runtime knows, in any order.
    pub fn all(&self) -> Vec<Arc<RuntimePodStatus>> {
        let inner = self.lock();
        let known = inner.pods.values().filter(|e| !super::is_gone(&e.status));
        known.map(|e| e.status.clone()).collect()
    }

    /// Waits for a status that was read after `than`, at most for `ceiling`. If the cache is closed, returns the last
    /// known status at once.
    ///
    /// # Errors
    /// Returns [`CacheError`] if `ceiling` is reached, because the runtime hangs or its listing fails.
    pub fn get_newer_than(
        &self,
        uid: &PodUid,
        than: Moment,
        ceiling: Duration,
    ) -> Result<Arc<RuntimePodStatus>, CacheError> {
        let deadline = Instant::now() + ceiling;
        let mut inner = self.lock();
        if inner.closed || inner.is_newer(uid, than) {
            return Ok(inner.status(uid));
        }
        let changed = inner.waiters.entry(uid.clone()).or_default().clone();
        while !inner.closed && !inner.is_newer(uid, than) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            inner = changed
                .wait_timeout(inner, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            #[cfg(test)]
            self.looked_again
                .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        drop(changed);
        if inner
            .waiters
            .get(uid)
            .is_some_and(|w| Arc::strong_count(w) == 1)
        {
            inner.waiters.remove(uid);
        }
        match inner.closed || inner.is_newer(uid, than) {
            true => Ok(inner.status(uid)),
            false => Err(CacheError {
                uid: uid.clone(),
                waited: ceiling,
            }),
        }
    }

    /// Ends every present and future wait, because the daemon stops.
    pub fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        inner.wake_all();
    }

    /// Sets the new status of a pod. `None` deletes the status.
    pub(super) fn set(&self, uid: PodUid, status: Option<RuntimePodStatus>, at: Moment) {
        let mut inner = self.lock();
        // The waiters are notified under the lock. The last waiter takes the condition variable out of the map, so this
        // function must not use it after the lock is released.
        if let Some(changed) = inner.waiters.get(&uid) {
            changed.notify_all();
        }
        match status {
            Some(status) => inner.pods.insert(
                uid,
                CachedPod {
                    status: Arc::new(status),
                    modified: at,
                },
            ),
            None => inner.pods.remove(&uid),
        };
    }

    /// Stores the status of a pod that was listed alone, like [`Cache::set`]. A removed pod keeps an empty entry until
    /// the next full relist, so that a worker that waits for the pod notices the removal.
    pub(super) fn observe(&self, uid: PodUid, status: Option<RuntimePodStatus>, at: Moment) {
        let status = status.unwrap_or_else(|| RuntimePodStatus {
            uid: uid.clone(),
            ..RuntimePodStatus::default()
        });
        self.set(uid, Some(status), at);
    }

    /// Records the end of a full relist that began at `at`.
    pub(super) fn update_time(&self, at: Moment) {
        let mut inner = self.lock();
        inner.global = Some(at);
        inner.pods.retain(|_, e| !super::is_gone(&e.status));
        inner.wake_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    /// An empty entry does not count as a pod. Otherwise the pod would be ended a second time as an orphan.
    #[test]
    fn a_pod_that_is_gone_is_no_pod_that_the_runtime_knows() {
        let cache = Cache::default();
        cache.observe("gone".into(), None, Moment::now());
        assert_eq!(
            (cache.all(), cache.get(&"gone".into()).uid.as_str()),
            (vec![], "gone")
        );
    }

    /// A changed pod wakes only the threads that wait for that pod. With a single condition variable for all pods, the
    /// start of n pods would wake n workers n times.
    #[test]
    fn a_pod_that_changes_wakes_only_those_who_wait_for_it() {
        const SOON: Duration = Duration::from_secs(20);
        let cache = Cache::default();
        let began = Moment::now();
        let uid = |n: usize| PodUid::from(n.to_string().as_str());
        std::thread::scope(|scope| {
            for n in 0..20 {
                let (cache, uid) = (&cache, uid(n));
                scope.spawn(move || cache.get_newer_than(&uid, began, SOON).unwrap());
            }
            while cache.lock().waiters.len() < 20 {
                std::thread::yield_now();
            }
            let later = began + Duration::from_secs(1);
            // A thread waits for each of these pods too, so that every thread that was woken gets to run.
            for n in 20..70 {
                let (cache, uid) = (&cache, uid(n));
                let other = uid.clone();
                let waits = scope.spawn(move || cache.get_newer_than(&other, began, SOON).unwrap());
                while cache.lock().waiters.len() < 21 {
                    std::thread::yield_now();
                }
                cache.observe(uid, None, later);
                waits.join().unwrap();
            }
            (0..20).for_each(|n| cache.observe(uid(n), None, later));
        });
        let looked = cache.looked_again.load(Ordering::Relaxed);
        assert!(looked < 140, "{looked} looks of 70 workers");
        assert!(cache.lock().waiters.is_empty());
    }

    #[test]
    fn a_full_relist_wakes_everyone() {
        let cache = Cache::default();
        let began = Moment::now();
        std::thread::scope(|scope| {
            let wait = || cache.get_newer_than(&"a".into(), began, Duration::from_secs(20));
            let waiting = scope.spawn(wait);
            while cache.lock().waiters.is_empty() {
                std::thread::yield_now();
            }
            cache.update_time(began + Duration::from_secs(1));
            waiting.join().unwrap().unwrap();
        });
        assert!(
            cache
                .get_newer_than(
                    &"b".into(),
                    Moment::now() + Duration::from_secs(99),
                    Duration::ZERO
                )
                .is_err()
        );
        assert!(cache.lock().waiters.is_empty());
    }
}
