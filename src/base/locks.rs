//! The rule for locks that a panic has poisoned: the next thread uses the lock as if nothing had happened.
//!
//! Invariants: no code fails because a lock is poisoned. The panic was caught, counted and logged at the top of its
//! thread. That thread's state is then made anew or no longer trusted ([`crate::base::threads`], the sync loop's
//! heartbeat). A second panic in every thread that only wants to read would mend nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A lock that can be taken even if it is poisoned.
pub trait Locked<T: ?Sized> {
    /// Waits for the lock. The content is used as a panicking thread may have left it.
    fn locked(&self) -> MutexGuard<'_, T>;
}

impl<T: ?Sized> Locked<T> for Mutex<T> {
    fn locked(&self) -> MutexGuard<'_, T> {
        self.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poisoned_lock_is_used_on() {
        let lock = Mutex::new(1);
        let poisoned = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            *lock.locked() = 2;
            let _held = lock.locked();
            panic!("made up");
        }));
        assert!(poisoned.is_err() && lock.is_poisoned());
        assert_eq!(*lock.locked(), 2);
    }
}
