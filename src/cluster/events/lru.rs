//! A map of bounded size that forgets what has not been used for the longest time.

use std::collections::HashMap;

/// The largest number of entries.
pub(super) const CAPACITY: usize = 4096;

/// A map from hashes of keys to values.
#[derive(Debug)]
pub(super) struct Lru<T> {
    entries: HashMap<u64, (u64, T)>,
    uses: u64,
}

impl<T> Lru<T> {
    pub(super) fn new() -> Self {
        Self {
            entries: HashMap::new(),
            uses: 0,
        }
    }

    /// The value of a key, which counts as a use. A key without a value gets `new`.
    pub(super) fn get_or_insert(&mut self, key: u64, new: T) -> &mut T {
        if self.entries.len() >= CAPACITY && !self.entries.contains_key(&key) {
            let oldest = self.entries.iter().min_by_key(|(_, (used, _))| *used);
            if let Some(oldest) = oldest.map(|(key, _)| *key) {
                self.entries.remove(&oldest);
            }
        }
        self.uses += 1;
        let entry = self.entries.entry(key).or_insert((0, new));
        entry.0 = self.uses;
        &mut entry.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_for_the_longest_time_is_forgotten() {
        let mut lru = Lru::new();
        for key in 0..CAPACITY as u64 {
            lru.get_or_insert(key, key);
        }
        assert_eq!(*lru.get_or_insert(0, 99), 0);
        lru.get_or_insert(9999, 1);
        assert_eq!(lru.entries.len(), CAPACITY);
        assert_eq!(*lru.get_or_insert(0, 99), 0);
        assert_eq!(*lru.get_or_insert(1, 99), 99);
    }
}
