//! A bounded number of slots for workers. The worker that has waited longest gets the next slot.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::base::locks::Locked;

/// Longest time until a waiting worker checks again whether its wait is cancelled.
const SLICE: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct State {
    free: usize,
    waiting: VecDeque<u64>,
    next: u64,
}

/// A bounded number of slots. Workers get the slots in the order in which they asked for a slot.
#[derive(Clone, Debug)]
pub(in crate::images) struct Slots(Arc<(Mutex<State>, Condvar)>);

/// A slot that a worker has taken. Dropping the value frees the slot.
#[derive(Debug)]
pub(in crate::images) struct Slot(Slots);

impl Slots {
    pub(in crate::images) fn new(free: usize) -> Self {
        let state = State {
            free,
            waiting: VecDeque::new(),
            next: 0,
        };
        Self(Arc::new((Mutex::new(state), Condvar::new())))
    }

    /// Waits for a slot. Returns None if `cancelled` returns true before a slot is free.
    pub(in crate::images) fn take(&self, cancelled: &dyn Fn() -> bool) -> Option<Slot> {
        let mut state = self.lock();
        let ticket = state.next;
        state.next += 1;
        state.waiting.push_back(ticket);
        loop {
            if cancelled() {
                state.waiting.retain(|t| *t != ticket);
                self.0.1.notify_all();
                return None;
            }
            if state.free > 0 && state.waiting.front() == Some(&ticket) {
                state.free -= 1;
                state.waiting.pop_front();
                self.0.1.notify_all();
                return Some(Slot(self.clone()));
            }
            let waited = self.0.1.wait_timeout(state, SLICE);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.0.locked()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.lock().free += 1;
        self.0.0.1.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_given_in_the_order_of_asking_and_a_wait_can_be_ended() {
        let slots = Slots::new(1);
        let first = slots.take(&|| false).unwrap();
        assert!(slots.take(&|| true).is_none());
        let (send, receive) = crossbeam_channel::bounded(2);
        std::thread::scope(|scope| {
            for n in 0..2 {
                // Each thread asks for a slot only when the thread before it waits.
                while slots.lock().waiting.len() < n {
                    std::thread::yield_now();
                }
                let (slots, send) = (slots.clone(), send.clone());
                scope.spawn(move || {
                    let slot = slots.take(&|| false);
                    send.send(n).unwrap();
                    drop(slot);
                });
            }
            while slots.lock().waiting.len() < 2 {
                std::thread::yield_now();
            }
            assert!(receive.try_recv().is_err());
            drop(first);
        });
        assert_eq!(receive.try_iter().collect::<Vec<_>>(), [0, 1]);
        assert_eq!(slots.lock().free, 1);
    }
}
