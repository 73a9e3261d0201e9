//! The change feed: a log of which part of which pod has changed, in order, and a way to wait for the next change.
//!
//! Invariants: the version grows by one with each change, and only when the new state can already be read. The log keeps
//! the last [`LOG`] changes. A reader that has missed more gets None and reads everything again. A thread that records a
//! change never waits for a reader.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::base::bell::Bell;
use crate::base::locks::Locked;
use crate::base::pod_uid::PodUid;

/// Number of changes that the log keeps.
pub const LOG: usize = 1024;

/// A part of a pod that can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Aspect {
    /// The pod's object, and whether the pod is wanted at all.
    Spec,
    /// The pod's status.
    Status,
    /// The pod's events.
    Events,
    /// The set of the pod's probes that are paused.
    Probes,
    /// The file that the pod comes from: its path, advice, errors.
    File,
    /// Progress of the pulls of the pod's images. Recorded only while somebody watches.
    Pulls,
}

impl Aspect {
    const COUNT: usize = 6;
}

/// The aspects of one pod that have changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aspects(u8);

impl Aspects {
    /// Tells whether `aspect` has changed.
    pub fn contains(self, aspect: Aspect) -> bool {
        self.0 & (1 << aspect as u8) != 0
    }

    fn add(&mut self, aspect: Aspect) {
        self.0 |= 1 << aspect as u8;
    }
}

#[derive(Clone, Debug)]
enum Subject {
    Pod(PodUid, Aspect),
    /// A change of the list of problems that were found in pod files without a running pod.
    Files,
    /// Nothing has changed: readers wake up to check whether they must end.
    Wake,
}

/// The changes since a version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The aspects that have changed, by pod.
    pub pods: BTreeMap<PodUid, Aspects>,
    /// True if the list of problems that were found in pod files has changed.
    pub files: bool,
}

/// A log of the last changes of pods and pod files. Readers ask for the changes since a version, or wait for the next.
#[derive(Default)]
pub struct ChangeFeed {
    /// The version of the last change. The version is read without the lock of `log`, because each probe reads the
    /// version. Writers hold that lock, so no waiting thread misses a change.
    version: AtomicU64,
    /// The version of the last change of each aspect, over all pods.
    by_aspect: [AtomicU64; Aspect::COUNT],
    /// The last changes, oldest first. The newest has the present version.
    log: Mutex<VecDeque<Subject>>,
    grown: Condvar,
    /// The bell of a reader that waits for other things too.
    bell: OnceLock<Arc<Bell>>,
}

impl ChangeFeed {
    /// Rings `bell` after each change from now on, for a reader that waits for other things too. There is one such reader.
    pub fn ring(&self, bell: Arc<Bell>) {
        let _ = self.bell.set(bell);
    }

    /// Records a change of one aspect of a pod, and returns the new version.
    pub fn tell(&self, uid: &PodUid, aspect: Aspect) -> u64 {
        let mut log = self.log();
        let version = self.push(&mut log, Subject::Pod(uid.clone(), aspect));
        self.by_aspect[aspect as usize].store(version, Ordering::Release);
        version
    }

    /// Records that the list of problems that were found in pod files has changed.
    pub fn tell_files(&self) {
        self.push(&mut self.log(), Subject::Files);
    }

    /// Wakes all waiting readers, because the daemon ends.
    pub fn wake(&self) {
        let mut log = self.log();
        let version = self.push(&mut log, Subject::Wake);
        for aspect in &self.by_aspect {
            aspect.store(version, Ordering::Release);
        }
    }

    fn push(&self, log: &mut VecDeque<Subject>, subject: Subject) -> u64 {
        if log.len() >= LOG {
            log.pop_front();
        }
        log.push_back(subject);
        self.grown.notify_all();
        let version = self.version.fetch_add(1, Ordering::Release) + 1;
        self.bell.get().inspect(|bell| bell.ring());
        version
    }

    /// Returns the present version. Everything that changed up to this version can be read.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Returns the version of the last change of `aspect`, over all pods.
    pub fn version_of(&self, aspect: Aspect) -> u64 {
        self.by_aspect[aspect as usize].load(Ordering::Acquire)
    }

    /// Returns the changes after `version`, and the present version. The changes are None if the log no longer has them
    /// all, or if `version` comes from another daemon.
    pub fn since(&self, version: u64) -> (Option<Changes>, u64) {
        let log = self.log();
        let now = self.version();
        let missed = now
            .checked_sub(version)
            .and_then(|missed| usize::try_from(missed).ok())
            .filter(|missed| *missed <= log.len());
        let Some(missed) = missed else {
            return (None, now);
        };
        let mut changes = Changes::default();
        for subject in log.range(log.len() - missed..) {
            match subject {
                Subject::Pod(uid, aspect) => {
                    changes.pods.entry(uid.clone()).or_default().add(*aspect)
                }
                Subject::Files => changes.files = true,
                Subject::Wake => {}
            }
        }
        (Some(changes), now)
    }

    /// Waits for a change after `version`, at most for `ceiling`. Returns the version at the end of the wait.
    pub fn wait_newer(&self, version: u64, ceiling: Duration) -> u64 {
        self.wait(ceiling, || self.version(), version)
    }

    /// Waits like [`Self::wait_newer`], but only for a change of `aspect`. Returns the version of the aspect's last
    /// change.
    pub fn wait_newer_of(&self, aspect: Aspect, version: u64, ceiling: Duration) -> u64 {
        self.wait(ceiling, || self.version_of(aspect), version)
    }

    /// Waits like [`Self::wait_newer`], but only for a change of one of these aspects. Returns the version of the
    /// newest change of these aspects.
    pub fn wait_newer_of_any(&self, aspects: &[Aspect], version: u64, ceiling: Duration) -> u64 {
        let newest = || aspects.iter().map(|aspect| self.version_of(*aspect)).max();
        self.wait(ceiling, || newest().unwrap_or(0), version)
    }

    fn wait(&self, ceiling: Duration, now: impl Fn() -> u64, version: u64) -> u64 {
        let waited = self
            .grown
            .wait_timeout_while(self.log(), ceiling, |_| now() <= version);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        now()
    }

    fn log(&self) -> MutexGuard<'_, VecDeque<Subject>> {
        self.log.locked()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uids(changes: &Changes) -> Vec<&str> {
        changes.pods.keys().map(PodUid::as_str).collect()
    }

    #[test]
    fn a_reader_sees_what_changed_since_it_looked_and_nothing_else() {
        let feed = ChangeFeed::default();
        assert_eq!(feed.since(0), (Some(Changes::default()), 0));
        feed.tell(&"a".into(), Aspect::Status);
        let seen = feed.tell(&"b".into(), Aspect::Events);
        feed.tell(&"c".into(), Aspect::Status);
        feed.tell(&"c".into(), Aspect::Spec);
        let (changes, now) = feed.since(seen);
        let changes = changes.unwrap();
        assert_eq!((uids(&changes), changes.files, now), (vec!["c"], false, 4));
        let of_c = changes.pods[&PodUid::from("c")];
        assert!(of_c.contains(Aspect::Status) && of_c.contains(Aspect::Spec));
        assert!(!of_c.contains(Aspect::Events));
        feed.tell_files();
        assert!(feed.since(now).0.unwrap().files);
        let versions = [Aspect::Spec, Aspect::Status, Aspect::Events, Aspect::File];
        assert_eq!(versions.map(|a| feed.version_of(a)), [4, 3, 2, 0]);
    }

    #[test]
    fn a_reader_that_fell_behind_is_told_so() {
        let feed = ChangeFeed::default();
        for _ in 0..LOG + 1 {
            feed.tell(&"a".into(), Aspect::Status);
        }
        let now = LOG as u64 + 1;
        assert_eq!(feed.since(0), (None, now));
        assert_eq!(uids(&feed.since(1).0.unwrap()), ["a"]);
        assert_eq!(feed.since(now), (Some(Changes::default()), now));
        assert_eq!(feed.since(now + 7), (None, now), "of another daemon");
    }

    #[test]
    fn a_waiter_is_woken_by_its_aspect_and_by_the_end() {
        const LONG: Duration = Duration::from_secs(3600);
        const BOTH: [Aspect; 2] = [Aspect::Status, Aspect::Spec];
        let feed = ChangeFeed::default();
        feed.tell(&"a".into(), Aspect::Events);
        assert_eq!(feed.wait_newer(0, LONG), 1);
        assert_eq!(feed.wait_newer_of(Aspect::Status, 0, Duration::ZERO), 0);
        std::thread::scope(|s| {
            let waits = s.spawn(|| feed.wait_newer_of(Aspect::Status, 0, LONG));
            feed.tell(&"b".into(), Aspect::Events);
            feed.tell(&"b".into(), Aspect::Status);
            assert_eq!(waits.join().unwrap(), 3);
            let waits = s.spawn(|| feed.wait_newer_of_any(&BOTH, 3, LONG));
            feed.tell(&"b".into(), Aspect::Events);
            feed.tell(&"b".into(), Aspect::Spec);
            assert_eq!(waits.join().unwrap(), 5);
            let waits = s.spawn(|| feed.wait_newer_of(Aspect::Probes, 5, LONG));
            feed.wake();
            assert_eq!(waits.join().unwrap(), 6);
        });
    }
}
