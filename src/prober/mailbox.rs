//! What a worker is told while it waits: to stop, or to look now.
//!
//! Invariants: telling never blocks. Of each kind at most one waits to be read; stop wins over a trigger and stays. One
//! lock and one condition cost a worker's waiting a third of what a select over two channels and a timeout does.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What there is to do after a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Told<T> {
    /// End.
    Stop,
    /// A trigger came.
    Trigger(T),
    /// Nobody said anything.
    Nothing,
}

/// One reader, any number of others.
pub(super) struct Mailbox<T> {
    letters: Mutex<Letters<T>>,
    came: Condvar,
}

struct Letters<T> {
    stop: bool,
    trigger: Option<T>,
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        Self { letters: Mutex::new(Letters { stop: false, trigger: None }), came: Condvar::new() }
    }
}

impl<T> Mailbox<T> {
    /// From now on every wait ends at once.
    pub(super) fn stop(&self) {
        self.lock().stop = true;
        self.came.notify_one();
    }

    /// Leaves a trigger; false when one waits there already.
    pub(super) fn trigger(&self, trigger: T) -> bool {
        let mut letters = self.lock();
        if letters.trigger.is_some() {
            return false;
        }
        letters.trigger = Some(trigger);
        self.came.notify_one();
        true
    }

    /// Whether the reader is to end.
    pub(super) fn is_stopped(&self) -> bool {
        self.lock().stop
    }

    /// Waits for a stop at most that long; true when it came. A trigger stays where it is.
    pub(super) fn wait_for_stop(&self, limit: Duration) -> bool {
        self.wait_while(limit, |letters| !letters.stop).stop
    }

    /// Waits for anything at most that long.
    pub(super) fn wait(&self, limit: Duration) -> Told<T> {
        let mut letters = self.wait_while(limit, |letters| !letters.stop && letters.trigger.is_none());
        match letters.stop {
            true => Told::Stop,
            false => letters.trigger.take().map_or(Told::Nothing, Told::Trigger),
        }
    }

    fn wait_while(&self, limit: Duration, nothing: impl Fn(&Letters<T>) -> bool) -> MutexGuard<'_, Letters<T>> {
        let mut letters = self.lock();
        // A limit that no clock reaches is waited out in parts.
        let end = Instant::now().checked_add(limit);
        while nothing(&letters) {
            let left = end.map_or(limit, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                break;
            }
            letters = self.came.wait_timeout(letters, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        letters
    }

    fn lock(&self) -> MutexGuard<'_, Letters<T>> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn one_trigger_waits_and_stop_wins_and_stays() {
        let mailbox = Mailbox::default();
        assert_eq!(mailbox.wait(Duration::ZERO), Told::Nothing);
        assert!(mailbox.trigger(1));
        assert!(!mailbox.trigger(2), "one is there");
        assert!(!mailbox.wait_for_stop(Duration::ZERO), "a trigger is no stop");
        assert_eq!(mailbox.wait(LONG), Told::Trigger(1), "and it is still there");
        assert_eq!(mailbox.wait(Duration::from_millis(1)), Told::Nothing, "read once");
        assert!(mailbox.trigger(3) && !mailbox.is_stopped());
        mailbox.stop();
        for _ in 0..2 {
            assert!(mailbox.is_stopped() && mailbox.wait_for_stop(LONG));
            assert_eq!(mailbox.wait(LONG), Told::Stop);
        }
    }

    #[test]
    fn who_waits_is_woken() {
        let mailbox = Mailbox::default();
        std::thread::scope(|s| {
            let reader = s.spawn(|| (mailbox.wait(LONG), mailbox.wait_for_stop(LONG)));
            assert!(mailbox.trigger(7));
            // Read before the stop, which would win.
            while mailbox.lock().trigger.is_some() {
                std::thread::yield_now();
            }
            mailbox.stop();
            assert_eq!(reader.join().unwrap(), (Told::Trigger(7), true));
        });
    }

    #[test]
    fn a_wait_without_end_is_none_that_ends() {
        let mailbox = Mailbox::<()>::default();
        mailbox.stop();
        assert_eq!(mailbox.wait(Duration::MAX), Told::Stop);
    }
}
