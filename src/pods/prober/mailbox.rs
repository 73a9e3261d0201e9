//! Wakes a waiting worker: to stop, or to probe now.
//!
//! Invariants: waking never blocks. At most one trigger waits to be read: the newest, which was sent for the newest status
//! of the pod. A stop takes precedence over the trigger and is never cleared. A wait on one lock and one condition variable costs a third of a select over two channels and a
//! timeout.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::base::locks::Locked;

/// The reason why a wait ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Woken<T> {
    /// The worker must end.
    Stop,
    /// A trigger came for the worker.
    Trigger(T),
    /// The time ran out, and neither a stop nor a trigger came.
    TimeUp,
}

/// The mailbox of one worker. Any number of threads may wake the worker.
pub(super) struct Mailbox<T> {
    /// True if the worker must end. The flag is written under the lock of `trigger`, so that no wait misses the change.
    stop: AtomicBool,
    trigger: Mutex<Option<T>>,
    came: Condvar,
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        Self {
            stop: AtomicBool::new(false),
            trigger: Mutex::new(None),
            came: Condvar::new(),
        }
    }
}

impl<T> Mailbox<T> {
    /// Stops the worker: from now on every wait ends at once.
    pub(super) fn stop(&self) {
        let _lock = self.lock();
        self.stop.store(true, Ordering::Release);
        self.came.notify_one();
    }

    /// Leaves a trigger in place of the one that is there.
    pub(super) fn trigger(&self, trigger: T) {
        *self.lock() = Some(trigger);
        self.came.notify_one();
    }

    /// True if the worker must end.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Waits for a stop, at most for `limit`. Returns true if the stop came. A trigger stays in the mailbox.
    pub(super) fn wait_for_stop(&self, limit: Duration) -> bool {
        drop(self.wait_until(limit, |_| self.is_stopped()));
        self.is_stopped()
    }

    /// Waits for a stop or a trigger, at most for `limit`.
    pub(super) fn wait(&self, limit: Duration) -> Woken<T> {
        let mut trigger = self.wait_until(limit, |trigger| self.is_stopped() || trigger.is_some());
        if self.is_stopped() {
            Woken::Stop
        } else {
            trigger.take().map_or(Woken::TimeUp, Woken::Trigger)
        }
    }

    /// Waits until `told` returns true, at most for `limit`. Reads the clock again only after an early wake-up, which
    /// is rare.
    fn wait_until(
        &self,
        limit: Duration,
        told: impl Fn(&Option<T>) -> bool,
    ) -> MutexGuard<'_, Option<T>> {
        let mut trigger = self.lock();
        let (begun, mut left) = (Instant::now(), limit);
        while !told(&trigger) && !left.is_zero() {
            let (guard, result) = self
                .came
                .wait_timeout(trigger, left)
                .unwrap_or_else(PoisonError::into_inner);
            trigger = guard;
            if result.timed_out() {
                break;
            }
            left = limit.saturating_sub(begun.elapsed());
        }
        trigger
    }

    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.trigger.locked()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn the_newest_trigger_waits_and_stop_wins_and_stays() {
        let mailbox = Mailbox::default();
        assert_eq!(mailbox.wait(Duration::ZERO), Woken::TimeUp);
        mailbox.trigger(1);
        mailbox.trigger(2);
        assert!(
            !mailbox.wait_for_stop(Duration::ZERO),
            "a trigger is no stop"
        );
        assert_eq!(
            mailbox.wait(LONG),
            Woken::Trigger(2),
            "and it is still there"
        );
        assert_eq!(
            mailbox.wait(Duration::from_millis(1)),
            Woken::TimeUp,
            "read once"
        );
        mailbox.trigger(3);
        assert!(!mailbox.is_stopped());
        mailbox.stop();
        for _ in 0..2 {
            assert!(mailbox.is_stopped() && mailbox.wait_for_stop(LONG));
            assert_eq!(mailbox.wait(LONG), Woken::Stop);
        }
    }

    #[test]
    fn who_waits_is_woken() {
        let mailbox = Mailbox::default();
        std::thread::scope(|s| {
            let reader = s.spawn(|| (mailbox.wait(LONG), mailbox.wait_for_stop(LONG)));
            mailbox.trigger(7);
            // The trigger must be read before the stop comes, because the stop takes precedence.
            while mailbox.lock().is_some() {
                std::thread::yield_now();
            }
            mailbox.stop();
            assert_eq!(reader.join().unwrap(), (Woken::Trigger(7), true));
        });
    }

    #[test]
    fn who_is_woken_for_nothing_waits_no_longer() {
        const CEILING: Duration = Duration::from_secs(10);
        let (mailbox, limit, over) = (
            Mailbox::<()>::default(),
            Duration::from_millis(50),
            AtomicBool::new(false),
        );
        std::thread::scope(|s| {
            s.spawn(|| {
                let begun = Instant::now();
                while !over.load(Ordering::Relaxed) && begun.elapsed() < CEILING {
                    mailbox.came.notify_one();
                    std::thread::yield_now();
                }
            });
            let begun = Instant::now();
            assert_eq!(mailbox.wait(limit), Woken::TimeUp);
            over.store(true, Ordering::Relaxed);
            assert!(
                (limit..CEILING).contains(&begun.elapsed()),
                "{:?}",
                begun.elapsed()
            );
        });
    }

    #[test]
    fn a_wait_without_end_is_none_that_ends() {
        let mailbox = Mailbox::<()>::default();
        mailbox.stop();
        assert_eq!(mailbox.wait(Duration::MAX), Woken::Stop);
    }
}
