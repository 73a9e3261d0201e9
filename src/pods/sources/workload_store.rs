//! The Deployments, Jobs and other workloads of all sources.
//!
//! Invariants: a source always passes its full set. If the file of a workload has become bad, the set has the last good
//! version of the workload. If two sources have the same workload, the first source in the order of [`PodSource`] counts.
//! Each reader of changes has its own account. Hooks are called after the lock of the store is released.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use super::{FiledWorkload, PodFile};
use crate::api::PodSource;
use crate::api::validation::validate_update;
use crate::api::workload::{Workload, WorkloadKey};
use crate::base::locks::Locked;

type Set = BTreeMap<WorkloadKey, FiledWorkload>;
type Hook = Arc<dyn Fn() + Send + Sync>;

/// A workload that should be there.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptWorkload {
    /// The workload: valid, with its defaults.
    pub workload: Arc<Workload>,
    /// The file of the workload, with the warnings for the person who wrote it.
    pub file: PodFile,
    /// Number of the workload's life. A workload that was removed and came back has another number, even if no reader
    /// has looked in between. A workload whose new version changes a field that may not change counts as removed too.
    pub life: u64,
}

/// The changes that one reader has not taken yet.
struct Account {
    changed: BTreeSet<WorkloadKey>,
    hook: Hook,
}

#[derive(Default)]
struct State {
    sets: BTreeMap<PodSource, Set>,
    /// The workloads in use: of each key, the one of the first source that has it.
    used: BTreeMap<WorkloadKey, KeptWorkload>,
    /// The number of the last life that began.
    lives: u64,
    watches: Vec<Account>,
}

impl State {
    /// Brings the workloads in use up to date. Returns the keys of the workloads that changed.
    fn update(&mut self) -> BTreeSet<WorkloadKey> {
        // The first source is inserted last, so its workloads replace the same workloads of later sources.
        let new: BTreeMap<&WorkloadKey, &FiledWorkload> =
            self.sets.values().rev().flatten().collect();
        let mut used = BTreeMap::new();
        for (key, filed) in new {
            let old = self.used.get(key);
            let lives_on = old.filter(|old| goes_on(old, filed));
            let life = lives_on.map(|old| old.life);
            let life = life.unwrap_or_else(|| {
                self.lives = self.lives.saturating_add(1);
                self.lives
            });
            let kept = KeptWorkload {
                workload: filed.workload.clone(),
                file: filed.file.clone(),
                life,
            };
            used.insert(key.clone(), kept);
        }
        let old = std::mem::replace(&mut self.used, used);
        let keys = old.keys().chain(self.used.keys());
        let differs = |key: &&WorkloadKey| old.get(*key) != self.used.get(*key);
        keys.filter(differs).cloned().collect()
    }

    /// Notes changes in all accounts. Returns the hooks to call.
    fn note(&mut self, changed: &BTreeSet<WorkloadKey>, is_first: bool) -> Vec<Hook> {
        if changed.is_empty() && !is_first {
            return Vec::new();
        }
        let watches = self.watches.iter_mut();
        let noted = watches.map(|watch| {
            watch.changed.extend(changed.iter().cloned());
            watch.hook.clone()
        });
        noted.collect()
    }
}

/// True if the new version of a workload is an update of the old one.
fn goes_on(old: &KeptWorkload, new: &FiledWorkload) -> bool {
    old.workload == new.workload || validate_update(&new.workload, &old.workload).is_empty()
}

/// The store of workloads. The sources write the workloads, and the controllers and the views read them.
#[derive(Default)]
pub struct WorkloadStore {
    state: Mutex<State>,
}

impl WorkloadStore {
    /// Returns all workloads in use, in the order of kind, namespace and name.
    pub fn all(&self) -> Vec<KeptWorkload> {
        self.lock().used.values().cloned().collect()
    }

    /// Returns the workload in use with this key.
    pub fn get(&self, key: &WorkloadKey) -> Option<KeptWorkload> {
        self.lock().used.get(key).cloned()
    }

    /// True if this source has passed its workloads, even an empty set. Before that, a missing workload may still come
    /// (workloads 9.6).
    pub fn has_spoken(&self, source: PodSource) -> bool {
        self.lock().sets.contains_key(&source)
    }

    /// Replaces the whole set of a source, and calls the hooks of all readers if a workload changed or this is the
    /// source's first set.
    pub fn replace(&self, source: PodSource, workloads: Vec<FiledWorkload>) {
        let keyed = workloads
            .into_iter()
            .map(|filed| (filed.workload.key(), filed));
        let new: Set = keyed.collect();
        let mut state = self.lock();
        let old = state.sets.insert(source, new);
        let changed = state.update();
        let hooks = state.note(&changed, old.is_none());
        drop(state);
        hooks.iter().for_each(|hook| hook());
    }

    /// Adds a reader of changes. `on_change` is called after each change, and when a source has passed its first set.
    /// The call comes on the thread of a source, so it must not block. Workloads that already exist count as changed, but
    /// without a call of `on_change`.
    pub fn watch(self: &Arc<Self>, on_change: impl Fn() + Send + Sync + 'static) -> WorkloadWatch {
        let mut state = self.lock();
        let account = Account {
            changed: state.used.keys().cloned().collect(),
            hook: Arc::new(on_change),
        };
        state.watches.push(account);
        WorkloadWatch {
            store: self.clone(),
            place: state.watches.len() - 1,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }
}

/// A reader of changes, which [`WorkloadStore::watch`] makes.
pub struct WorkloadWatch {
    store: Arc<WorkloadStore>,
    place: usize,
}

impl WorkloadWatch {
    /// Returns the keys of the workloads that were added, changed or removed since the last call.
    pub fn take_changed(&self) -> BTreeSet<WorkloadKey> {
        let mut state = self.store.lock();
        let account = state.watches.get_mut(self.place);
        account
            .map(|account| std::mem::take(&mut account.changed))
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;

    use super::*;
    use crate::api::decode::made_workload;

    fn filed(name: &str, app: &str, replicas: u32) -> FiledWorkload {
        let workload = made_workload(json!({"kind": "Deployment", "metadata": {"name": name},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": app}}}}));
        FiledWorkload {
            workload: Arc::new(workload.unwrap()),
            file: PodFile {
                file: format!("/p/{name}.yaml"),
                ..PodFile::default()
            },
        }
    }

    fn names(changed: BTreeSet<WorkloadKey>) -> Vec<String> {
        changed.into_iter().map(|key| key.name).collect()
    }

    fn life(store: &WorkloadStore, name: &str) -> Option<u64> {
        Some(store.get(&filed(name, "", 1).workload.key())?.life)
    }

    #[test]
    fn a_change_is_told_once_to_each_reader() {
        let store = Arc::new(WorkloadStore::default());
        store.replace(PodSource::File, vec![filed("a", "a", 1)]);
        let calls = Arc::new(AtomicUsize::new(0));
        let seen = calls.clone();
        let watch = store.watch(move || _ = seen.fetch_add(1, Ordering::Relaxed));
        assert_eq!(names(watch.take_changed()), ["a"], "what was there before");
        assert_eq!(calls.load(Ordering::Relaxed), 0);
        store.replace(
            PodSource::File,
            vec![filed("a", "a", 1), filed("b", "b", 1)],
        );
        store.replace(
            PodSource::File,
            vec![filed("a", "a", 1), filed("b", "b", 1)],
        );
        assert_eq!(names(watch.take_changed()), ["b"]);
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        let mut warned = filed("a", "a", 1);
        warned.file.warnings.push("spec.x: not acted on".into());
        store.replace(PodSource::File, vec![warned]);
        assert_eq!(names(watch.take_changed()), ["a", "b"], "warned and gone");
        assert_eq!(names(watch.take_changed()), [""; 0]);
    }

    #[test]
    fn the_first_set_of_a_source_is_told_even_if_it_is_empty() {
        let store = Arc::new(WorkloadStore::default());
        let calls = Arc::new(AtomicUsize::new(0));
        let seen = calls.clone();
        let _watch = store.watch(move || _ = seen.fetch_add(1, Ordering::Relaxed));
        assert!(!store.has_spoken(PodSource::File));
        store.replace(PodSource::File, vec![]);
        assert!(store.has_spoken(PodSource::File) && !store.has_spoken(PodSource::Http));
        store.replace(PodSource::File, vec![]);
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn of_two_sources_the_file_comes_first() {
        let store = WorkloadStore::default();
        store.replace(
            PodSource::Http,
            vec![filed("a", "a", 7), filed("b", "b", 7)],
        );
        store.replace(PodSource::File, vec![filed("a", "a", 1)]);
        let of_a = filed("a", "a", 1).workload;
        assert_eq!(store.get(&of_a.key()).unwrap().workload, of_a);
        assert_eq!(store.all().len(), 2);
        store.replace(PodSource::File, vec![]);
        assert_ne!(store.get(&of_a.key()).unwrap().workload, of_a);
    }

    #[test]
    fn an_update_lives_on_and_a_workload_that_comes_back_does_not() {
        let store = WorkloadStore::default();
        let set = |filed: Vec<FiledWorkload>| store.replace(PodSource::File, filed);
        set(vec![filed("a", "a", 1), filed("b", "b", 1)]);
        let first = life(&store, "a");
        set(vec![filed("a", "a", 2), filed("b", "b", 1)]);
        assert_eq!(life(&store, "a"), first);
        set(vec![filed("b", "b", 1)]);
        assert_eq!(life(&store, "a"), None);
        set(vec![filed("a", "a", 2), filed("b", "b", 1)]);
        let second = life(&store, "a");
        assert_ne!(second, first);
        // Another file may bring another selector, which no update can.
        set(vec![filed("a", "other", 2), filed("b", "b", 1)]);
        assert_ne!(life(&store, "a"), second);
        assert_eq!(life(&store, "b"), Some(2), "others live on");
    }
}
