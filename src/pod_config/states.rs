//! The state of the pod files for readers: the file of each pod, and the problems of files.
//!
//! Invariants: written only by the file source, before it sends the pods; the change hook runs outside the lock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

use super::problem::FileProblem;
use crate::api::PodUid;

/// How many removed pods are remembered, so that a pod that is being stopped still shows its file.
const MAX_REMOVED: usize = 200;

/// The file of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFile {
    /// Path of the file.
    pub file: String,
    /// Advice from decoding, one sentence each.
    pub warnings: Vec<String>,
    /// The error of the file when it has become bad and the pod runs from its last good version.
    pub file_error: Option<String>,
}

#[derive(Default)]
struct PodFiles {
    pods: BTreeMap<PodUid, PodFile>,
    removed: VecDeque<(PodUid, PodFile)>,
    problems: Vec<FileProblem>,
}

/// Called with the pods whose file or its state has changed.
type OnChange = dyn Fn(&[PodUid]) + Send + Sync;

/// Shared between the file source, which writes, and the snapshot, which reads.
pub struct FileStates {
    files: Mutex<PodFiles>,
    on_change: Box<OnChange>,
}

impl FileStates {
    /// Starts empty. `on_change` is called after each change, with the pods concerned, on the file
    /// source's thread; it must not block.
    pub fn new(on_change: impl Fn(&[PodUid]) + Send + Sync + 'static) -> Self {
        Self {
            files: Mutex::default(),
            on_change: Box::new(on_change),
        }
    }

    fn lock(&self) -> MutexGuard<'_, PodFiles> {
        self.files.lock().expect("no panic while the lock is held")
    }

    /// The file of a pod, also when the file was removed recently. None when the pod did not come
    /// from a file.
    pub fn get(&self, uid: &PodUid) -> Option<PodFile> {
        let files = self.lock();
        let removed = || {
            files
                .removed
                .iter()
                .rev()
                .find(|(u, _)| u == uid)
                .map(|(_, f)| f)
        };
        files.pods.get(uid).or_else(removed).cloned()
    }

    /// All problems, sorted by file.
    pub fn problems(&self) -> Vec<FileProblem> {
        self.lock().problems.clone()
    }

    /// Replaces everything; calls the hook when something has changed.
    pub(super) fn replace(&self, pods: BTreeMap<PodUid, PodFile>, problems: Vec<FileProblem>) {
        let mut files = self.lock();
        if files.pods == pods && files.problems == problems {
            return;
        }
        let changed: Vec<PodUid> = files
            .pods
            .keys()
            .chain(pods.keys())
            .filter(|uid| files.pods.get(*uid) != pods.get(*uid))
            .cloned()
            .collect();
        for (uid, file) in std::mem::take(&mut files.pods) {
            if !pods.contains_key(&uid) {
                files.removed.push_back((uid, file));
            }
        }
        let excess = files.removed.len().saturating_sub(MAX_REMOVED);
        files.removed.drain(..excess);
        files.removed.retain(|(uid, _)| !pods.contains_key(uid));
        files.pods = pods;
        files.problems = problems;
        drop(files);
        (self.on_change)(&changed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_change_is_told_once_and_a_removed_pod_keeps_its_file() {
        let calls = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&calls);
        let states = FileStates::new(move |_| {
            seen.fetch_add(1, Ordering::Relaxed);
        });
        let pods = || {
            BTreeMap::from([(
                PodUid::from("1"),
                PodFile {
                    file: "/p/a.json".into(),
                    ..PodFile::default()
                },
            )])
        };
        states.replace(pods(), vec![]);
        states.replace(pods(), vec![]);
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        states.replace(BTreeMap::new(), vec![]);
        assert_eq!(states.get(&"1".into()).unwrap().file, "/p/a.json");
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }
}
