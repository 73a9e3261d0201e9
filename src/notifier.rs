//! One version number for everything a person sees, and a way to wait for the next.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// Grows with every change of statuses, files or events.
#[derive(Default)]
pub struct Notifier {
    version: Mutex<u64>,
    grown: Condvar,
}

impl Notifier {
    /// Something changed.
    pub fn changed(&self) {
        *self.version.lock().expect("no panic while the lock is held") += 1;
        self.grown.notify_all();
    }

    /// The version now.
    pub fn version(&self) -> u64 {
        *self.version.lock().expect("no panic while the lock is held")
    }

    /// Waits until the version is above `after`, at most `ceiling`; returns the version then.
    pub fn wait_newer(&self, after: u64, ceiling: Duration) -> u64 {
        let version = self.version.lock().expect("no panic while the lock is held");
        let (version, _) = self.grown.wait_timeout_while(version, ceiling, |v| *v <= after).expect("no panic while the lock is held");
        *version
    }
}
