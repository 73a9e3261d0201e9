//! Evictions: if a volume of a pod has exceeded its limit, the pod is ended, and starts anew after a delay (the
//! kubelet's eviction manager, `localStorageEviction`; kubelet-volumes 6; deviations: evicted-pods-come-back). This
//! module also has the pods that a person has deleted, until the files of these pods change (deviations:
//! delete-until-changed), and the pods that have ended with all pods of the node (deviations: drained-pods-come-back).
//!
//! Invariants: a pod has a mark from the decision to end it until it starts anew or is removed. While the mark is not
//! over, the pod's status has the reason of the mark. The mark is on the disk before anything is stopped,
//! and removed from the disk before anything starts. So if a daemon is killed in between, the pod is not forgotten and
//! not ended twice. The functions for the sync loop use only memory. The lock of the marks in memory is not held while
//! a mark is written to the disk.

mod mark;
mod pace;
mod watch;

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crossbeam_channel::Sender;

pub use watch::{Watch, spawn};

use crate::api::identity::content_hash;
use crate::api::pod::RestartPolicy;
use crate::api::{Pod, PodSource, PodUid};
use crate::base::aside::{CORRUPT, move_aside};
use crate::base::clock::Moment;
use crate::base::locks::Locked;
use crate::base::metrics::counters::Counter;
use crate::base::paths::Layout;
use crate::pods::actions::{BackOff, BackOffKey};
use crate::pods::status::EndedBy;
pub use mark::HeldFor;
use mark::{Deletion, Hold, Mark, Stage};

/// The grace period of an evicted pod, in seconds (the kubelet's `immediateEvictionGracePeriodSeconds`).
const GRACE_SECONDS: i64 = 1;

/// The evicted, deleted and held pods.
pub struct Evictions {
    layout: Layout,
    state: Mutex<State>,
    /// The channel that wakes the sync loop when a pod must end.
    wake: Sender<()>,
    evicted: Counter,
    /// The lock that is held while a mark is written. With one write at a time, the mark that is written last is the
    /// one that counts.
    writing: Mutex<()>,
    /// The function that a test runs after a mark is on the disk and before the mark is in memory.
    #[cfg(test)]
    between: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

struct State {
    marks: HashMap<PodUid, Mark>,
    back_off: BackOff,
}

impl Evictions {
    /// Takes over the marks of these pods from an earlier daemon. `ceiling` is the longest delay before an evicted pod
    /// starts anew.
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
            writing: Mutex::default(),
            #[cfg(test)]
            between: Mutex::default(),
        }
    }

    /// Sets the longest delay before an evicted pod starts anew. A delay that has begun stays as it is.
    pub fn set_max_back_off(&self, ceiling: Duration) {
        self.lock().back_off.set_ceiling(ceiling);
    }

    /// Returns the number of pods that this daemon has evicted.
    pub fn total(&self) -> u64 {
        self.evicted.get()
    }

    // ---- for the sync loop ----

    /// True if the pod is evicted or deleted, and may not start anew yet.
    pub fn is_evicted(&self, uid: &PodUid, now: Moment) -> bool {
        self.lock().marks.get(uid).is_some_and(|m| !m.is_over(now))
    }

    /// Tells whether the pod is evicted or deleted and will start anew, so that its place on the node is kept.
    pub fn comes_back(&self, uid: &PodUid) -> bool {
        let state = self.lock();
        let mark = state.marks.get(uid);
        mark.is_some_and(|m| m.stage != Stage::ForGood)
    }

    /// Returns the pods that must end.
    pub fn ending(&self) -> Vec<PodUid> {
        self.those(|mark| mark.stage == Stage::Ending)
    }

    /// Returns the pods that may start anew now.
    pub fn due(&self, now: Moment) -> Vec<PodUid> {
        self.those(|mark| mark.is_over(now))
    }

    /// Ends the wait of a pod whose file was removed. If the file comes back, the pod starts at once.
    pub fn release(&self, uid: &PodUid, now: Moment) {
        if let Some(mark) = self.lock().marks.get_mut(uid)
            && mark.stage != Stage::Ending
        {
            mark.stage = Stage::no_wait(now);
        }
    }

    /// Ends the holds for this order: the held pods start again.
    pub fn release_held(&self, why: HeldFor, now: Moment) {
        let mut state = self.lock();
        let marks = state.marks.values_mut();
        let is_it = |mark: &&mut Mark| mark.hold.as_ref().is_some_and(|hold| hold.why == why);
        marks.filter(is_it).for_each(|mark| mark.release_hold(now));
    }

    /// Compares a deleted pod with the present content of its file. If the content differs from the deleted one, the
    /// pod starts anew.
    pub fn seen(&self, pod: &Pod, now: Moment) {
        let mut state = self.lock();
        let Some(mark) = state.marks.get_mut(pod.uid()) else {
            return;
        };
        let Some(deletion) = mark.deletion.as_mut() else {
            return;
        };
        deletion.is_over = deletion.content != content_hash(pod);
        if deletion.is_over && mark.stage == Stage::ForGood {
            mark.stage = Stage::no_wait(now);
        }
    }

    /// Forgets the pods outside `known`. The files of their marks are removed with the data of these pods.
    pub fn retain(&self, known: &HashSet<PodUid>, now: Moment) {
        let mut state = self.lock();
        state.marks.retain(|uid, _| known.contains(uid));
        state.back_off.collect_garbage(now);
    }

    // ---- for a pod's worker and the watch; these functions write to the disk ----

    /// Evicts a pod, unless a person has deleted it.
    pub fn evict(&self, uid: &PodUid, message: &str) {
        let is_deleted = |mark: &Mark| mark.deletion.is_some();
        let done = self.change(uid, |mark, _| {
            (!mark.is_some_and(is_deleted)).then(|| Mark::ending(message.to_owned()))
        });
        match done {
            Ok(false) => return,
            Ok(true) => {}
            Err(e) => said(uid, &e),
        }
        self.evicted.count();
        // a full channel means that the sync loop already has a message
        let _ = self.wake.try_send(());
    }

    /// Ends a pod until its file changes. The deletion is on the disk when this function returns. `grace` is in
    /// seconds. `None` means the pod's own grace period.
    ///
    /// # Errors
    /// Returns the disk's error if the mark cannot be written. The pod is not ended then, because the next daemon would
    /// not know of the deletion.
    pub fn delete(&self, pod: &Pod, message: &str, grace: Option<i64>) -> std::io::Result<()> {
        let uid = pod.uid();
        let content = content_hash(pod);
        let _writing = self.writing();
        self.change_written(uid, true, |mark, _| {
            let has_ended = mark.is_some_and(|mark| mark.stage != Stage::Ending);
            Some(Mark {
                message: message.to_owned(),
                stage: match has_ended {
                    true => Stage::ForGood,
                    false => Stage::Ending,
                },
                deletion: Some(Deletion {
                    content: content.clone(),
                    grace,
                    is_over: false,
                }),
                hold: None,
            })
        })?;
        // a full channel means that the sync loop already has a message
        let _ = self.wake.try_send(());
        Ok(())
    }

    /// Ends a pod with all pods of the node. `grace` is in seconds. `None` means the pod's own grace period. A pod that is
    /// evicted or deleted already stays so. Returns true if the pod was ending for such an order, and has less time now.
    pub fn hold(&self, pod: &Pod, why: HeldFor, grace: Option<i64>) -> bool {
        let uid = pod.uid();
        let now = Moment::now();
        let own = pod.spec.termination_grace_period_seconds.unwrap_or(0);
        let shortens = |hold: &Hold| grace.unwrap_or(own) < hold.grace.unwrap_or(own);
        let was_ending = Cell::new(false);
        let done = self.change(uid, |mark, _| {
            let Some(mark) = mark.filter(|mark| !mark.is_over(now)) else {
                return Some(Mark::held(Hold {
                    why,
                    grace,
                    comes_back: pod.source() != PodSource::Api,
                    is_over: false,
                }));
            };
            let mut mark = mark.clone();
            let hold = mark.hold.as_mut().filter(|hold| shortens(hold))?;
            hold.grace = grace;
            was_ending.set(mark.stage == Stage::Ending);
            was_ending.get().then_some(mark)
        });
        if let Err(e) = done {
            said(uid, &e);
        }
        // a full channel means that the sync loop already has a message
        let _ = self.wake.try_send(());
        was_ending.get()
    }

    /// Returns what ends the pod or has ended it, or `None` if the pod has no mark or may start anew.
    pub fn ended_by(&self, uid: &PodUid, now: Moment) -> Option<EndedBy> {
        let state = self.lock();
        let mark = state.marks.get(uid).filter(|mark| !mark.is_over(now))?;
        Some(EndedBy {
            reason: mark.reason(),
            message: mark.message.clone(),
            comes_back: mark.hold.as_ref().is_some_and(|hold| hold.comes_back),
        })
    }

    /// True if the pod is held, and keeps its volumes for its next start.
    pub fn keeps_volumes(&self, uid: &PodUid) -> bool {
        let state = self.lock();
        let hold = state.marks.get(uid).and_then(|mark| mark.hold.as_ref());
        hold.is_some_and(|hold| hold.comes_back)
    }

    /// Returns the grace period of a pod in seconds, which is `own` if the pod is not evicted or deleted.
    pub fn grace(&self, uid: &PodUid, own: i64, now: Moment) -> i64 {
        let state = self.lock();
        let mark = state.marks.get(uid).filter(|mark| !mark.is_over(now));
        match mark.map(|mark| (&mark.deletion, &mark.hold)) {
            Some((Some(deletion), _)) => deletion.grace.unwrap_or(own),
            Some((None, Some(hold))) => hold.grace.unwrap_or(own),
            Some((None, None)) => own.min(GRACE_SECONDS),
            None => own,
        }
    }

    /// Notes that no container of the pod runs any more. The wait of an evicted pod begins now, unless its restart
    /// policy is Never.
    pub fn ended(&self, pod: &Pod, now: Moment) {
        let uid = pod.uid();
        let done = self.change(uid, |mark, back_off| {
            let mut mark = mark.filter(|m| m.stage == Stage::Ending)?.clone();
            if let Some(hold) = &mark.hold {
                mark.stage = match (hold.comes_back, hold.is_over) {
                    (false, _) => Stage::ForGood,
                    (true, false) => Stage::Held,
                    (true, true) => Stage::no_wait(now),
                };
                return Some(mark);
            }
            let is_over = mark.deletion.as_ref().map(|d| d.is_over);
            mark.stage = match (is_over, pod.spec.restart_policy) {
                (Some(true), _) => Stage::no_wait(now),
                (Some(false), _) | (None, RestartPolicy::Never) => Stage::ForGood,
                // A controller makes another pod, on this node or in the cluster, and this one stays as it ended.
                (None, _) if !pod.source().is_static() => Stage::ForGood,
                (None, RestartPolicy::Always | RestartPolicy::OnFailure) => Stage::Waiting {
                    since: now,
                    delay: back_off.hold(&BackOffKey::of_pod(uid), now),
                },
            };
            Some(mark)
        });
        if let Err(e) = done {
            said(uid, &e);
        }
    }

    /// Returns the reason why the pod's containers start again, if the pod may start anew now.
    pub fn over(&self, uid: &PodUid, now: Moment) -> Option<String> {
        let state = self.lock();
        let mark = state.marks.get(uid).filter(|mark| mark.is_over(now));
        mark.map(Mark::cause)
    }

    /// Removes the mark of a pod that starts anew. Returns false if the pod must end, because another order has come.
    ///
    /// # Errors
    /// Returns the disk's error if the mark stays on the disk. The next daemon would then end the pod.
    pub fn begin_anew(&self, uid: &PodUid, now: Moment) -> std::io::Result<bool> {
        let _writing = self.writing();
        // An order may have come since the mark was found to be over.
        if self.is_evicted(uid, now) {
            return Ok(false);
        }
        mark::remove(&self.layout.eviction(uid))?;
        let mut state = self.lock();
        if let Some(Mark {
            stage: Stage::Waiting { since, .. },
            deletion: None,
            hold: None,
            ..
        }) = state.marks.remove(uid)
        {
            // the delay after the next eviction of the pod is longer
            let _ = state.back_off.start(&BackOffKey::of_pod(uid), since, now);
        }
        Ok(true)
    }

    /// Removes the mark of a pod that was removed, or that had ended by itself before its eviction.
    pub fn forget(&self, uid: &PodUid) {
        let _writing = self.writing();
        if self.lock().marks.remove(uid).is_some()
            && let Err(e) = mark::remove(&self.layout.eviction(uid))
        {
            log::warn!("cannot remove the record of an eviction of pod {uid}: {e}");
        }
    }

    /// Changes a mark, on the disk first. Returns false if nothing needed a change. The sync loop does not write marks
    /// or wait for the disk, so it may change the mark in memory while this function writes. This function then repeats
    /// its change on the mark that the sync loop has changed.
    ///
    /// # Errors
    /// Returns the disk's error if the mark cannot be written. The mark is then kept in memory. The mark is lost only
    /// if the daemon is killed, and the next daemon measures the volumes again.
    fn change(
        &self,
        uid: &PodUid,
        change: impl Fn(Option<&Mark>, &mut BackOff) -> Option<Mark>,
    ) -> std::io::Result<bool> {
        let _writing = self.writing();
        self.change_written(uid, false, change)
    }

    /// Changes a mark like [`Self::change`]. If `strictly` is true, a mark that cannot be written is not kept in
    /// memory. Call this function while the lock `writing` is held.
    fn change_written(
        &self,
        uid: &PodUid,
        strictly: bool,
        change: impl Fn(Option<&Mark>, &mut BackOff) -> Option<Mark>,
    ) -> std::io::Result<bool> {
        loop {
            let (before, after) = {
                let mut state = self.lock();
                let State { marks, back_off } = &mut *state;
                let before = marks.get(uid);
                let Some(after) = change(before, back_off) else {
                    return Ok(false);
                };
                (before.cloned(), after)
            };
            let written = mark::write(&self.layout.eviction(uid), &after);
            if strictly && written.is_err() {
                return written.map(|()| true);
            }
            #[cfg(test)]
            if let Some(between) = self.between.locked().take() {
                between();
            }
            let mut state = self.lock();
            if state.marks.get(uid) == before.as_ref() {
                state.marks.insert(uid.clone(), after);
                return written.map(|()| true);
            }
        }
    }

    /// Runs `act` once, after the next mark is on the disk and before it is in memory.
    #[cfg(test)]
    pub(crate) fn during_the_next_write(&self, act: impl FnOnce() + Send + 'static) {
        *self.between.locked() = Some(Box::new(act));
    }

    fn writing(&self) -> MutexGuard<'_, ()> {
        self.writing.locked()
    }

    fn those(&self, are: impl Fn(&Mark) -> bool) -> Vec<PodUid> {
        let state = self.lock();
        let found = state.marks.iter().filter(|(_, mark)| are(mark));
        found.map(|(uid, _)| uid.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }
}

fn said(uid: &PodUid, e: &std::io::Error) {
    log::warn!("cannot record the eviction of pod {uid}: {e}; it is kept in memory");
}

/// Reads the mark of a pod. If the mark cannot be read, the pod runs as if it had no mark, and its volumes are
/// measured.
fn restored(layout: &Layout, uid: &PodUid) -> Option<Mark> {
    let path = layout.eviction(uid);
    mark::read(&path).unwrap_or_else(|e| {
        log::warn!(
            "cannot read {}: {e}; the pod starts as if it had not been evicted",
            path.display()
        );
        let _ = move_aside(&path, CORRUPT);
        None
    })
}

#[cfg(test)]
mod tests;
