//! What readers may know of the pod files: the file behind each pod, and what is wrong with which file.
//!
//! Invariants: written only by the file source, before it sends the pods; the change hook runs outside the lock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

use serde::{Deserialize, Serialize};

use crate::api::PodUid;

/// How many removed pods are remembered, so that a pod that is being stopped still shows its file.
const MAX_REMOVED: usize = 200;

/// The file side of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFile {
    /// Path of the file.
    pub file: String,
    /// Advice from decoding, one sentence each.
    pub warnings: Vec<String>,
    /// Set when the file has turned bad and this is its last good version.
    pub file_error: Option<String>,
}

/// A file in the pods directory that is not (or no longer) what runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileProblem {
    /// Path of the file.
    pub file: String,
    /// What is wrong, where, and what to do.
    pub error: String,
}

impl FileProblem {
    /// `/p/a.json:1:20: not running: kind: …`: the file, the place in it if the error begins with one, `what`, the error.
    pub fn line(&self, what: &str) -> String {
        let placed = self
            .error
            .strip_prefix(&self.file)
            .and_then(|e| e.split_once(": "))
            .filter(|(place, _)| place.starts_with(':'));
        let (place, error) = placed.unwrap_or(("", &self.error));
        format!("{}{place}: {what}: {error}", self.file)
    }
}

#[derive(Default)]
struct Inner {
    pods: BTreeMap<PodUid, PodFile>,
    removed: VecDeque<(PodUid, PodFile)>,
    problems: Vec<FileProblem>,
}

/// Shared between the file source, which writes, and the snapshot, which reads.
pub struct FileStates {
    inner: Mutex<Inner>,
    on_change: Box<dyn Fn() + Send + Sync>,
}

impl FileStates {
    /// Empty; `on_change` is called after each change, on the file source's thread, and must not block.
    pub fn new(on_change: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            inner: Mutex::default(),
            on_change: Box::new(on_change),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no panic while the lock is held")
    }

    /// The file side of a pod; also of one whose file went recently. None when the pod came from no file.
    pub fn get(&self, uid: &PodUid) -> Option<PodFile> {
        let inner = self.lock();
        let removed = || {
            inner
                .removed
                .iter()
                .rev()
                .find(|(u, _)| u == uid)
                .map(|(_, f)| f)
        };
        inner.pods.get(uid).or_else(removed).cloned()
    }

    /// What is wrong, sorted by file.
    pub fn problems(&self) -> Vec<FileProblem> {
        self.lock().problems.clone()
    }

    /// Replaces everything; the hook is called when something differs.
    pub(super) fn replace(&self, pods: BTreeMap<PodUid, PodFile>, problems: Vec<FileProblem>) {
        let mut inner = self.lock();
        if inner.pods == pods && inner.problems == problems {
            return;
        }
        for (uid, file) in std::mem::take(&mut inner.pods) {
            if !pods.contains_key(&uid) {
                inner.removed.push_back((uid, file));
            }
        }
        let excess = inner.removed.len().saturating_sub(MAX_REMOVED);
        inner.removed.drain(..excess);
        inner.removed.retain(|(uid, _)| !pods.contains_key(uid));
        inner.pods = pods;
        inner.problems = problems;
        drop(inner);
        (self.on_change)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[track_caller]
    fn check(error: &str, line: &str) {
        let problem = FileProblem {
            file: "/p/a".into(),
            error: error.into(),
        };
        assert_eq!(problem.line("not running"), line);
    }

    #[test]
    fn a_line_names_the_file_once() {
        check("/p/a:1:20: kind: bad", "/p/a:1:20: not running: kind: bad");
        check("/p/a b: same pod", "/p/a: not running: /p/a b: same pod");
        check("the file is empty", "/p/a: not running: the file is empty");
    }

    #[test]
    fn a_change_is_told_once_and_a_removed_pod_keeps_its_file() {
        let calls = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&calls);
        let states = FileStates::new(move || {
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
