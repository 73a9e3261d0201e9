//! The objects that pods refer to, of all sources.
//!
//! Invariants: a source always hands over its full set, in which an object whose file has become bad
//! is still as it was. When two sources have the same object, the first of [`PodSource`]'s order is
//! used. The hook runs outside the lock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use crate::api::PodSource;
use crate::api::objects::{LocalObject, ObjectContent, ObjectKey, ObjectSet};

type Set = BTreeMap<ObjectKey, ObjectContent>;

#[derive(Default)]
struct State {
    sets: BTreeMap<PodSource, Set>,
    /// What has changed since [`Objects::take_changed`].
    changed: BTreeSet<ObjectKey>,
}

impl State {
    fn get(&self, key: &ObjectKey) -> Option<&ObjectContent> {
        self.sets.values().find_map(|set| set.get(key))
    }
}

/// Shared between the sources, which write, and the volumes and variables of pods, which read.
pub struct Objects {
    state: Mutex<State>,
    on_change: Box<dyn Fn() + Send + Sync>,
}

impl Default for Objects {
    fn default() -> Self {
        Self::new(|| {})
    }
}

impl Objects {
    /// Starts empty. `on_change` is called after each change, on the thread of a source; it must
    /// not block.
    pub fn new(on_change: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            state: Mutex::default(),
            on_change: Box::new(on_change),
        }
    }

    /// Those of the objects that are there.
    pub fn of(&self, keys: BTreeSet<ObjectKey>) -> ObjectSet {
        let state = self.lock();
        let there = |key: ObjectKey| {
            let content = state.get(&key)?.clone();
            Some(LocalObject { key, content })
        };
        keys.into_iter().filter_map(there).collect()
    }

    /// Replaces the set of a source.
    pub fn replace(&self, source: PodSource, objects: Vec<LocalObject>) {
        let new: Set = objects.into_iter().map(|o| (o.key, o.content)).collect();
        let mut state = self.lock();
        let old = state.sets.insert(source, new).unwrap_or_default();
        let new = &state.sets[&source];
        let differs = |key: &&ObjectKey| old.get(*key) != new.get(*key);
        let changed: Vec<ObjectKey> = old
            .keys()
            .chain(new.keys())
            .filter(differs)
            .cloned()
            .collect();
        if changed.is_empty() {
            return;
        }
        state.changed.extend(changed);
        drop(state);
        (self.on_change)();
    }

    /// What has changed, come or gone since the last call.
    pub fn take_changed(&self) -> BTreeSet<ObjectKey> {
        std::mem::take(&mut self.lock().changed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while the lock is held")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::api::objects::{ConfigMap, ObjectKind};

    fn map(name: &str, value: &str) -> LocalObject {
        LocalObject {
            key: ObjectKey::new(ObjectKind::ConfigMap, "default", name),
            content: ObjectContent::ConfigMap(Arc::new(ConfigMap {
                data: [("k".to_owned(), value.to_owned())].into(),
                ..ConfigMap::default()
            })),
        }
    }

    fn value(objects: &Objects, name: &str) -> Option<String> {
        let found = objects.of([map(name, "").key].into());
        let map = found.config_map("default", name)?;
        map.data.get("k").cloned()
    }

    fn names(changed: BTreeSet<ObjectKey>) -> Vec<String> {
        changed.into_iter().map(|key| key.name).collect()
    }

    #[test]
    fn a_change_is_told_once_and_names_what_has_changed() {
        let calls = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&calls);
        let objects = Objects::new(move || _ = seen.fetch_add(1, Ordering::Relaxed));
        objects.replace(PodSource::File, vec![map("a", "1"), map("b", "1")]);
        assert_eq!(names(objects.take_changed()), ["a", "b"]);
        objects.replace(PodSource::File, vec![map("a", "1"), map("b", "2")]);
        objects.replace(PodSource::File, vec![map("a", "1"), map("b", "2")]);
        assert_eq!(calls.load(Ordering::Relaxed), 2);
        objects.replace(PodSource::File, vec![map("b", "2")]);
        assert_eq!(names(objects.take_changed()), ["a", "b"]);
        assert_eq!(names(objects.take_changed()), [""; 0]);
        assert_eq!(value(&objects, "a"), None);
        assert_eq!(value(&objects, "b").as_deref(), Some("2"));
        let found = objects.of([map("a", "").key, map("b", "").key].into());
        assert!(found.config_map("default", "b").is_some());
        assert!(found.secret("default", "b").is_none());
        assert!(found.config_map("other", "b").is_none());
    }

    #[test]
    fn of_two_sources_the_file_comes_first() {
        let objects = Objects::default();
        objects.replace(PodSource::Http, vec![map("a", "http")]);
        assert_eq!(value(&objects, "a").as_deref(), Some("http"));
        objects.replace(PodSource::File, vec![map("a", "file")]);
        assert_eq!(value(&objects, "a").as_deref(), Some("file"));
        objects.replace(PodSource::File, Vec::new());
        assert_eq!(value(&objects, "a").as_deref(), Some("http"));
    }
}
