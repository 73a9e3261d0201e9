//! A collection of records, which are found by their own id and by their pod.
//!
//! Invariants: both indices always agree. Finding the records of one pod does not examine the records of other pods.

use std::collections::HashMap;
use std::collections::hash_map::{self, Entry};

/// A record that belongs to a pod.
pub(super) trait OfPod {
    /// Returns the UID of the record's pod, which never changes.
    fn uid(&self) -> &str;
}

/// A collection of records, which are found by their own id and by their pod.
pub(super) struct ByPod<T> {
    all: HashMap<String, T>,
    /// Ids of each pod's records, by the pod's UID. A pod without records has no entry.
    of_pods: HashMap<String, Vec<String>>,
}

impl<T> Default for ByPod<T> {
    fn default() -> Self {
        Self {
            all: HashMap::new(),
            of_pods: HashMap::new(),
        }
    }
}

impl<T: OfPod> ByPod<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn contains(&self, id: &str) -> bool {
        self.all.contains_key(id)
    }

    pub(super) fn get(&self, id: &str) -> Option<&T> {
        self.all.get(id)
    }

    pub(super) fn get_mut(&mut self, id: &str) -> Option<&mut T> {
        self.all.get_mut(id)
    }

    pub(super) fn ids(&self) -> hash_map::Keys<'_, String, T> {
        self.all.keys()
    }

    pub(super) fn iter(&self) -> hash_map::Iter<'_, String, T> {
        self.all.iter()
    }

    pub(super) fn values(&self) -> hash_map::Values<'_, String, T> {
        self.all.values()
    }

    pub(super) fn values_mut(&mut self) -> hash_map::ValuesMut<'_, String, T> {
        self.all.values_mut()
    }

    /// Lists the UIDs of the pods that have a record.
    pub(super) fn pods(&self) -> impl Iterator<Item = &String> {
        self.of_pods.keys()
    }

    pub(super) fn has_any_of(&self, uid: &str) -> bool {
        self.of_pods.contains_key(uid)
    }

    /// Returns the ids of a pod's records.
    pub(super) fn ids_of(&self, uid: &str) -> &[String] {
        self.of_pods.get(uid).map_or(&[], Vec::as_slice)
    }

    /// Returns the records of a pod.
    pub(super) fn of(&self, uid: &str) -> impl Iterator<Item = &T> {
        self.ids_of(uid).iter().filter_map(|id| self.all.get(id))
    }

    /// Adds a record. A record with the same id is replaced.
    pub(super) fn add(&mut self, id: String, record: T) {
        self.remove(&id);
        let of_pod = self.of_pods.entry(record.uid().to_owned()).or_default();
        of_pod.push(id.clone());
        self.all.insert(id, record);
    }

    pub(super) fn remove(&mut self, id: &str) {
        let Some(record) = self.all.remove(id) else {
            return;
        };
        if let Entry::Occupied(mut of_pod) = self.of_pods.entry(record.uid().to_owned()) {
            of_pod.get_mut().retain(|other| other != id);
            if of_pod.get().is_empty() {
                of_pod.remove();
            }
        }
    }

    pub(super) fn retain(&mut self, stays: impl Fn(&String) -> bool) {
        let go: Vec<String> = self.all.keys().filter(|id| !stays(id)).cloned().collect();
        for id in go {
            self.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl OfPod for &str {
        fn uid(&self) -> &str {
            self
        }
    }

    #[track_caller]
    fn check(known: &ByPod<&'static str>, ids_of_a: &[&str], pods: &[&str]) {
        let mut found: Vec<&String> = known.pods().collect();
        found.sort();
        assert_eq!(
            (known.ids_of("a"), found),
            (&*owned(ids_of_a), owned(pods).iter().collect())
        );
        assert_eq!(known.of("a").count(), ids_of_a.len());
        assert_eq!(known.has_any_of("a"), !ids_of_a.is_empty());
    }

    fn owned(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn a_pods_records_are_those_that_are_there() {
        let mut known = ByPod::default();
        for (id, uid) in [("1", "a"), ("2", "b"), ("3", "a"), ("4", "a")] {
            known.add(id.into(), uid);
        }
        check(&known, &["1", "3", "4"], &["a", "b"]);
        known.remove("3");
        known.remove("3");
        check(&known, &["1", "4"], &["a", "b"]);
        known.add("4".into(), "b");
        check(&known, &["1"], &["a", "b"]);
        known.retain(|id| id == "4");
        check(&known, &[], &["b"]);
        known.remove("4");
        check(&known, &[], &[]);
        assert!(known.is_empty());
    }
}
