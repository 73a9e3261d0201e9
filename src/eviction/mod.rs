//! Evictions: the pods that were ended because a volume had outgrown its limit, and when each starts anew (the kubelet's
//! eviction manager, `localStorageEviction`; kubelet-volumes 6; deviations: evicted-pods-come-back).
//!
//! Invariants: a pod has a mark from the decision to evict it until it starts anew, or until it is removed; while it has one
//! that is not over, its status is Failed with reason Evicted. The mark is on the disk before anything is stopped, and gone
//! from there before anything starts, so that a daemon that is killed in between neither forgets the pod nor ends it twice.
//! What asks from the sync loop touches memory only. The lock is not held across a write.

mod mark;
mod pace;
mod watch;

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crossbeam_channel::Sender;

pub use watch::{Watch, spawn};

use crate::api::pod::RestartPolicy;
use crate::api::{Pod, PodUid};
use crate::clock::Moment;
use crate::layout::Layout;
use crate::metrics::counters::Counter;
use crate::pod_actions::{BackOff, BackOffKey};
use mark::{Mark, Stage};

/// The grace period of an evicted pod, in seconds (the kubelet's `immediateEvictionGracePeriodSeconds`).
pub const GRACE_SECONDS: i64 = 1;

/// The evicted pods.
pub struct Evictions {
    layout: Layout,
    state: Mutex<State>,
    /// Tells the sync loop that there is a pod to end.
    wake: Sender<()>,
    evicted: Counter,
}

struct State {
    marks: HashMap<PodUid, Mark>,
    back_off: BackOff,
}

impl Evictions {
    /// Goes on with what an earlier daemon knew of these pods. `ceiling` is the longest wait.
    pub fn open(layout: &Layout, pods: &[PodUid], ceiling: Duration, wake: Sender<()>) -> Self {
        let (mut marks, mut back_off) = (HashMap::new(), BackOff::new(ceiling));
        for uid in pods {
            let Some(mark) = restored(layout, uid) else {
                continue;
            };
            if let Stage::Waiting { since, delay } = mark.stage {
                back_off.resume(BackOffKey::of_pod(uid), delay, since);
            }
            marks.insert(uid.clone(), mark);
        }
        Self {
            layout: layout.clone(),
            state: Mutex::new(State { marks, back_off }),
            wake,
            evicted: Counter::default(),
        }
    }

    /// How many pods this daemon has evicted.
    pub fn total(&self) -> u64 {
        self.evicted.get()
    }

    // ---- for the sync loop ----

    /// Whether the pod is evicted, and does not start anew yet.
    pub fn is_evicted(&self, uid: &PodUid, now: Moment) -> bool {
        self.lock().marks.get(uid).is_some_and(|m| !m.is_over(now))
    }

    /// Whether the pod is evicted and will start anew, so that its place on the node is kept.
    pub fn comes_back(&self, uid: &PodUid) -> bool {
        let state = self.lock();
        let mark = state.marks.get(uid);
        mark.is_some_and(|m| m.stage != Stage::ForGood)
    }

    /// The pods that are to end.
    pub fn ending(&self) -> Vec<PodUid> {
        self.those(|mark| mark.stage == Stage::Ending)
    }

    /// The pods that are to start anew.
    pub fn due(&self, now: Moment) -> Vec<PodUid> {
        self.those(|mark| mark.is_over(now))
    }

    /// The pod's file is gone: one that comes back waits for nothing.
    pub fn release(&self, uid: &PodUid, now: Moment) {
        if let Some(mark) = self.lock().marks.get_mut(uid)
            && mark.stage != Stage::Ending
        {
            mark.stage = Stage::Waiting {
                since: now,
                delay: Duration::ZERO,
            };
        }
    }

    /// Forgets the pods outside `known`, whose files go with their data.
    pub fn retain(&self, known: &HashSet<PodUid>, now: Moment) {
        let mut state = self.lock();
        state.marks.retain(|uid, _| known.contains(uid));
        state.back_off.collect_garbage(now);
    }

    // ---- for a pod's worker and the watch; these write ----

    /// Evicts a pod.
    pub fn evict(&self, uid: &PodUid, message: &str) {
        self.evicted.count();
        self.set(uid, Mark::ending(message.to_owned()));
        // full means that the sync loop is told already
        let _ = self.wake.try_send(());
    }

    /// Why the pod is evicted; None when it is not, or may start anew.
    pub fn message(&self, uid: &PodUid, now: Moment) -> Option<String> {
        let state = self.lock();
        let mark = state.marks.get(uid).filter(|mark| !mark.is_over(now));
        mark.map(|mark| mark.message.clone())
    }

    /// Nothing runs of an evicted pod any more: its wait begins, unless its policy is never to start again.
    pub fn ended(&self, pod: &Pod, now: Moment) {
        let uid = pod.uid();
        let mark = {
            let mut state = self.lock();
            let Some(mark) = state.marks.get(uid).filter(|m| m.stage == Stage::Ending) else {
                return;
            };
            let message = mark.message.clone();
            let stage = match pod.spec.restart_policy {
                RestartPolicy::Never => Stage::ForGood,
                RestartPolicy::Always | RestartPolicy::OnFailure => Stage::Waiting {
                    since: now,
                    delay: state.back_off.hold(&BackOffKey::of_pod(uid), now),
                },
            };
            Mark { message, stage }
        };
        self.set(uid, mark);
    }

    /// Why the pod was evicted, when it may start anew now.
    pub fn over(&self, uid: &PodUid, now: Moment) -> Option<String> {
        let state = self.lock();
        let mark = state.marks.get(uid).filter(|mark| mark.is_over(now));
        mark.map(|mark| mark.message.clone())
    }

    /// The pod starts anew.
    ///
    /// # Errors
    /// The disk keeps the mark, so that the next daemon would end the pod.
    pub fn begin_anew(&self, uid: &PodUid, now: Moment) -> std::io::Result<()> {
        mark::remove(&self.layout.eviction(uid))?;
        let mut state = self.lock();
        if let Some(Mark {
            stage: Stage::Waiting { since, .. },
            ..
        }) = state.marks.remove(uid)
        {
            // longer the next time
            let _ = state.back_off.start(&BackOffKey::of_pod(uid), since, now);
        }
        Ok(())
    }

    /// The pod was removed, or had ended by itself when it was to be evicted.
    pub fn forget(&self, uid: &PodUid) {
        if self.lock().marks.remove(uid).is_some()
            && let Err(e) = mark::remove(&self.layout.eviction(uid))
        {
            log::warn!("cannot remove the record of an eviction of pod {uid}: {e}");
        }
    }

    /// What cannot be written is kept in memory: only a daemon that is killed would forget it, and it measures anew.
    fn set(&self, uid: &PodUid, mark: Mark) {
        if let Err(e) = mark::write(&self.layout.eviction(uid), &mark) {
            log::warn!("cannot record the eviction of pod {uid}: {e}; it is kept in memory");
        }
        self.lock().marks.insert(uid.clone(), mark);
    }

    fn those(&self, are: impl Fn(&Mark) -> bool) -> Vec<PodUid> {
        let state = self.lock();
        let found = state.marks.iter().filter(|(_, mark)| are(mark));
        found.map(|(uid, _)| uid.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while the lock is held")
    }
}

/// A record that cannot be read is as none: the pod runs, and its volumes are measured.
fn restored(layout: &Layout, uid: &PodUid) -> Option<Mark> {
    let path = layout.eviction(uid);
    mark::read(&path).unwrap_or_else(|e| {
        log::warn!(
            "cannot read {}: {e}; the pod starts as if it had not been evicted",
            path.display()
        );
        let _ = mark::remove(&path);
        None
    })
}

#[cfg(test)]
mod tests;
