//! One version number for everything a person sees, and a way to wait for the next.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// Grows with every change of statuses, files or events.
#[derive(Default)]
pub struct Notifier {
    /// Read without the lock, for each probe looks at it; written with it, so that no waiter misses a change.
    version: AtomicU64,
    lock: Mutex<()>,
    grown: Condvar,
}

impl Notifier {
    /// Something changed.
    pub fn changed(&self) {
        let _lock = self.lock.lock().expect("no panic while the lock is held");
        self.version.fetch_add(1, Ordering::Release);
        self.grown.notify_all();
    }

    /// The version now. Who sees it sees what changed before it.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Waits until the version is above `after`, at most `ceiling`; returns the version then.
    pub fn wait_newer(&self, after: u64, ceiling: Duration) -> u64 {
        let lock = self.lock.lock().expect("no panic while the lock is held");
        let still = |_: &mut ()| self.version() <= after;
        drop(
            self.grown
                .wait_timeout_while(lock, ceiling, still)
                .expect("no panic while the lock is held"),
        );
        self.version()
    }
}
