//! The state of the pod files for readers: the file of each pod, and the problems of files.
//!
//! Invariants: each source writes its own part before it sends the pods. The change hook is called after the lock is
//! released.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use super::problem::FileProblem;
use crate::api::workload::Workload;
use crate::api::{PodSource, PodUid};
use crate::base::locks::Locked;
use crate::workloads::Owner;

/// The number of removed pods that are remembered. So a pod that is being stopped still shows its file.
const MAX_REMOVED: usize = 200;

/// The file from which a pod or a workload comes, with its state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFile {
    /// The path of the file.
    pub file: String,
    /// The advice from decoding, one sentence each.
    pub warnings: Vec<String>,
    /// The error of the file, if it has become bad and its last good version goes on.
    pub file_error: Option<String>,
    /// The controller that has made the pod; None for a pod or a workload of the file itself.
    pub owner: Option<Arc<Owner>>,
}

/// A workload with the file from which it comes.
#[derive(Clone, Debug, PartialEq)]
pub struct FiledWorkload {
    /// The workload: valid, with its defaults.
    pub workload: Arc<Workload>,
    /// The file, with its state.
    pub file: PodFile,
}

#[derive(Default)]
struct PodFiles {
    sources: BTreeMap<PodSource, OfSource>,
    removed: VecDeque<(PodUid, PodFile)>,
}

#[derive(Default, PartialEq)]
struct OfSource {
    pods: BTreeMap<PodUid, PodFile>,
    problems: Vec<FileProblem>,
}

/// The change hook, which is called with the pods whose file or file state has changed.
type OnChange = dyn Fn(&[PodUid]) + Send + Sync;

/// The state of the pod files. The sources write the state, and the snapshot reads it.
pub struct FileStates {
    files: Mutex<PodFiles>,
    on_change: Box<OnChange>,
}

impl FileStates {
    /// Makes an empty state. `on_change` is called after each change with the pods concerned. The call comes on the
    /// thread of a source, so it must not block.
    pub fn new(on_change: impl Fn(&[PodUid]) + Send + Sync + 'static) -> Self {
        Self {
            files: Mutex::default(),
            on_change: Box::new(on_change),
        }
    }

    fn lock(&self) -> MutexGuard<'_, PodFiles> {
        self.files.locked()
    }

    /// Returns the file of a pod, even if the file was removed recently. Returns `None` if the pod did not come from a
    /// file.
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
        let of_source = |s: &'_ OfSource| s.pods.get(uid).cloned();
        let there = files.sources.values().find_map(of_source);
        there.or_else(|| removed().cloned())
    }

    /// Returns the controllers of the pods that controllers have made.
    pub fn owners(&self) -> BTreeMap<PodUid, Arc<Owner>> {
        let files = self.lock();
        let made = files.sources.get(&PodSource::Controller);
        let pods = made.into_iter().flat_map(|of_source| &of_source.pods);
        let owned = |(uid, file): (&PodUid, &PodFile)| Some((uid.clone(), file.owner.clone()?));
        pods.filter_map(owned).collect()
    }

    /// True if a source has reported a problem, and a file is not in use because of this problem.
    pub fn has_problem(&self, source: PodSource) -> bool {
        let files = self.lock();
        let of_source = files.sources.get(&source);
        of_source.is_some_and(|s| s.problems.iter().any(|p| !p.is_in_use))
    }

    /// Returns all problems, sorted by source and file.
    pub fn problems(&self) -> Vec<FileProblem> {
        let files = self.lock();
        let of_sources = files.sources.values();
        of_sources.flat_map(|s| s.problems.clone()).collect()
    }

    /// Returns all problems of each source.
    pub fn problems_by_source(&self) -> BTreeMap<PodSource, Vec<FileProblem>> {
        let files = self.lock();
        let of_sources = files.sources.iter();
        of_sources
            .map(|(of, s)| (*of, s.problems.clone()))
            .collect()
    }

    /// Replaces the files and problems of a source. Calls the change hook if something has changed.
    pub(super) fn replace(
        &self,
        source: PodSource,
        pods: BTreeMap<PodUid, PodFile>,
        problems: Vec<FileProblem>,
    ) {
        let new = OfSource { pods, problems };
        let mut files = self.lock();
        let of_source = files.sources.entry(source).or_default();
        if *of_source == new {
            return;
        }
        let old = std::mem::replace(of_source, new);
        let new = &of_source.pods;
        let all = old.pods.keys().chain(new.keys());
        let changed = all.filter(|uid| old.pods.get(*uid) != new.get(*uid));
        let changed: Vec<PodUid> = changed.cloned().collect();
        let gone = old
            .pods
            .into_iter()
            .filter(|(uid, _)| !new.contains_key(uid));
        let gone: Vec<_> = gone.collect();
        let PodFiles { sources, removed } = &mut *files;
        removed.extend(gone);
        let excess = removed.len().saturating_sub(MAX_REMOVED);
        removed.drain(..excess);
        removed.retain(|(uid, _)| !sources.values().any(|s| s.pods.contains_key(uid)));
        drop(files);
        (self.on_change)(&changed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        states.replace(PodSource::File, pods(), vec![]);
        states.replace(PodSource::File, pods(), vec![]);
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        states.replace(PodSource::Http, BTreeMap::new(), vec![]);
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        states.replace(PodSource::File, BTreeMap::new(), vec![]);
        assert_eq!(states.get(&"1".into()).unwrap().file, "/p/a.json");
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }
}
