//! The runtime cache (kubelet-probes 7): the last status of each pod, and the wait for one that is newer than a moment.
//!
//! Invariants: times are monotonic and those at which the listing *began*, so that "newer than T" means that the runtime was
//! asked after T. The lock is held for map operations only.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::api::PodUid;
use crate::clock::{Moment, go_duration};
use crate::runtime::RuntimePodStatus;

/// The wait for a newer status came to its ceiling.
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
    /// When it was last seen to change or was looked at by itself.
    modified: Moment,
}

#[derive(Default)]
struct Inner {
    pods: HashMap<PodUid, CachedPod>,
    /// Every pod is at least as new as this.
    global: Option<Moment>,
    closed: bool,
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

    fn is_newer(&self, uid: &PodUid, than: Moment) -> bool {
        self.global.is_some_and(|g| g > than)
            || self.pods.get(uid).is_some_and(|e| e.modified > than)
    }
}

/// Read by the pod workers and everyone else; written by the relist thread.
#[derive(Default)]
pub struct Cache {
    inner: Mutex<Inner>,
    changed: Condvar,
}

impl Cache {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no panic while the lock is held")
    }

    /// The last known status; an unknown pod has an empty one.
    pub fn get(&self, uid: &PodUid) -> Arc<RuntimePodStatus> {
        self.lock().status(uid)
    }

    /// Every pod the runtime knows, in no order.
    pub fn all(&self) -> Vec<Arc<RuntimePodStatus>> {
        self.lock()
            .pods
            .values()
            .map(|e| e.status.clone())
            .collect()
    }

    /// Waits for a status read after `than`, at most `ceiling`. Once the cache is closed it gives what there is.
    ///
    /// # Errors
    /// The ceiling: the runtime hangs or its listing fails.
    pub fn get_newer_than(
        &self,
        uid: &PodUid,
        than: Moment,
        ceiling: Duration,
    ) -> Result<Arc<RuntimePodStatus>, CacheError> {
        let deadline = Instant::now() + ceiling;
        let mut inner = self.lock();
        while !inner.closed && !inner.is_newer(uid, than) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(CacheError {
                    uid: uid.clone(),
                    waited: ceiling,
                });
            }
            inner = self
                .changed
                .wait_timeout(inner, left)
                .expect("no panic while the lock is held")
                .0;
        }
        Ok(inner.status(uid))
    }

    /// Ends every wait, now and later: the daemon stops.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// A pod's new status; None deletes it.
    pub(super) fn set(&self, uid: PodUid, status: Option<RuntimePodStatus>, at: Moment) {
        let mut inner = self.lock();
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
        drop(inner);
        self.changed.notify_all();
    }

    /// As [`Cache::set`], for a pod read by itself. A pod that is gone keeps an empty entry until the next full relist, so
    /// that a worker that waits for it learns that it is gone.
    pub(super) fn observe(&self, uid: PodUid, status: Option<RuntimePodStatus>, at: Moment) {
        let status = status.unwrap_or_else(|| RuntimePodStatus {
            uid: uid.clone(),
            ..RuntimePodStatus::default()
        });
        self.set(uid, Some(status), at);
    }

    /// A full relist that began at `at` is through.
    pub(super) fn update_time(&self, at: Moment) {
        let mut inner = self.lock();
        inner.global = Some(at);
        inner.pods.retain(|_, e| !super::is_gone(&e.status));
        drop(inner);
        self.changed.notify_all();
    }
}
