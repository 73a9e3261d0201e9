//! A slab of connections and UDP clients, with queues that need no memory of their own.
//!
//! Invariants: a key leads to the entry that was inserted with it, or to nothing, even after its index is used again.
//! An entry is in at most one [`Queue`], and the caller knows in which. The caller must dequeue an entry before
//! removing it.

const NONE: u32 = u32::MAX;

/// The key of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The entry's index in the slab.
    pub index: u32,
    /// A number that distinguishes the entry from earlier and later entries with the same index.
    pub generation: u16,
}

#[derive(Debug)]
struct Entry<T> {
    value: Option<T>,
    generation: u16,
    queued: bool,
    previous: u32,
    /// The next entry in the queue. For a free place, this is the next free place.
    next: u32,
}

/// A list of entries. The index of a removed entry is used again.
#[derive(Debug)]
pub struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: u32,
    len: usize,
}

/// An ordered list of entries of a slab.
#[derive(Clone, Copy, Debug)]
pub struct Queue {
    first: u32,
    last: u32,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            first: NONE,
            last: NONE,
        }
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            free: NONE,
            len: 0,
        }
    }
}

impl<T> Slab<T> {
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an entry, and returns its key.
    pub fn insert(&mut self, value: T) -> Key {
        self.len += 1;
        let Some(entry) = self.entries.get_mut(self.free as usize) else {
            self.entries.push(Entry {
                value: Some(value),
                generation: 0,
                queued: false,
                previous: NONE,
                next: NONE,
            });
            return Key {
                index: (self.entries.len() - 1) as u32,
                generation: 0,
            };
        };
        let index = std::mem::replace(&mut self.free, entry.next);
        entry.value = Some(value);
        Key {
            index,
            generation: entry.generation,
        }
    }

    /// Returns the entry, if it is still there.
    pub fn get(&self, key: Key) -> Option<&T> {
        let entry = self.entries.get(key.index as usize)?;
        (entry.generation == key.generation).then_some(entry.value.as_ref())?
    }

    /// Returns the entry for changes, if it is still there.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let entry = self.entries.get_mut(key.index as usize)?;
        (entry.generation == key.generation).then_some(entry.value.as_mut())?
    }

    /// Removes an entry and returns it, if it is still there.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let entry = self.entries.get_mut(key.index as usize)?;
        if entry.generation != key.generation {
            return None;
        }
        let value = entry.value.take()?;
        debug_assert!(!entry.queued, "an entry leaves its queue first");
        entry.generation = entry.generation.wrapping_add(1);
        entry.next = std::mem::replace(&mut self.free, key.index);
        self.len -= 1;
        Some(value)
    }

    /// Returns every entry with its key.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.entries.iter().enumerate().filter_map(|(index, e)| {
            let key = Key {
                index: index as u32,
                generation: e.generation,
            };
            e.value.as_ref().map(|value| (key, value))
        })
    }

    /// Adds an entry at the end of a queue. Does nothing if the entry is already in a queue.
    pub fn enqueue(&mut self, queue: &mut Queue, key: Key) {
        if self.get(key).is_none() || self.entries[key.index as usize].queued {
            return;
        }
        let last = queue.last;
        let entry = &mut self.entries[key.index as usize];
        (entry.queued, entry.previous, entry.next) = (true, last, NONE);
        match self.entries.get_mut(last as usize) {
            Some(last) => last.next = key.index,
            None => queue.first = key.index,
        }
        queue.last = key.index;
    }

    /// Takes an entry out of its queue.
    pub fn dequeue(&mut self, queue: &mut Queue, key: Key) {
        if self.get(key).is_none() || !self.entries[key.index as usize].queued {
            return;
        }
        let entry = &mut self.entries[key.index as usize];
        entry.queued = false;
        let (previous, next) = (entry.previous, entry.next);
        match self.entries.get_mut(previous as usize) {
            Some(previous) => previous.next = next,
            None => queue.first = next,
        }
        match self.entries.get_mut(next as usize) {
            Some(next) => next.previous = previous,
            None => queue.last = previous,
        }
    }

    /// Returns the first entry of a queue; `None` if the queue is empty.
    pub fn first(&self, queue: &Queue) -> Option<Key> {
        let entry = self.entries.get(queue.first as usize)?;
        Some(Key {
            index: queue.first,
            generation: entry.generation,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(slab: &mut Slab<u32>, queue: &mut Queue) -> Vec<u32> {
        let mut found = Vec::new();
        while let Some(key) = slab.first(queue) {
            found.push(*slab.get(key).unwrap());
            slab.dequeue(queue, key);
        }
        found
    }

    #[test]
    fn an_old_key_does_not_lead_to_the_next_owner_of_its_place() {
        let mut slab = Slab::default();
        let old = slab.insert(1);
        assert_eq!(slab.remove(old), Some(1));
        let new = slab.insert(2);
        assert_eq!(new.index, old.index);
        assert_eq!(slab.get(old), None);
        assert_eq!(slab.get_mut(old), None);
        assert_eq!(slab.remove(old), None);
        assert_eq!(slab.get(new), Some(&2));
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn entries_leave_a_queue_from_any_place_and_the_rest_keeps_its_order() {
        for gone in [vec![0], vec![4], vec![2], vec![0, 4], vec![1, 2, 3]] {
            let mut slab = Slab::default();
            let mut queue = Queue::default();
            let keys: Vec<Key> = (0..5).map(|n| slab.insert(n)).collect();
            keys.iter().for_each(|k| slab.enqueue(&mut queue, *k));
            for n in &gone {
                slab.dequeue(&mut queue, keys[*n as usize]);
                slab.dequeue(&mut queue, keys[*n as usize]);
            }
            let left: Vec<u32> = (0..5).filter(|n| !gone.contains(n)).collect();
            assert_eq!(drain(&mut slab, &mut queue), left, "without {gone:?}");
        }
    }

    #[test]
    fn an_entry_that_is_used_goes_to_the_end() {
        let mut slab = Slab::default();
        let mut queue = Queue::default();
        let keys: Vec<Key> = (0..3).map(|n| slab.insert(n)).collect();
        keys.iter().for_each(|k| slab.enqueue(&mut queue, *k));
        slab.dequeue(&mut queue, keys[0]);
        slab.enqueue(&mut queue, keys[0]);
        slab.enqueue(&mut queue, keys[0]);
        assert_eq!(drain(&mut slab, &mut queue), [1, 2, 0]);
    }
}
