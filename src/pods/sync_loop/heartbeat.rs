//! When the sync loop last turned, and whether it stands still (kubelet-probes 5.1, 11.2).
//!
//! Invariant: a turn counts only while what pods share is known to be whole.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use crate::base::clock::{Moment, go_duration};

/// A loop that has not turned for this long stands still (11.2). Its ticks alone turn it each second.
const STALL_THRESHOLD: Duration = Duration::from_secs(120);

/// When the loop last turned, for the health check (5.1, 11.2). A rest does not count as a turn, because nothing is done
/// in it.
#[derive(Default)]
pub struct Heartbeat {
    /// Nanoseconds since boot of the last turn; 0 before the first.
    last: AtomicU64,
    panics: AtomicU64,
    /// After a panic: which of [`WHOLE_PASS`] has not gone through since.
    doubts: AtomicU8,
}

/// The bit of a tick of syncs, which touches every pod.
pub(super) const SYNC_PASS: u8 = 0b01;
/// The bit of a housekeeping, which touches every pod too.
pub(super) const HOUSEKEEPING_PASS: u8 = 0b10;
/// The events that touch every pod.
const WHOLE_PASS: u8 = SYNC_PASS | HOUSEKEEPING_PASS;

impl Heartbeat {
    /// After a panic what pods share may be half changed. The loop goes on, but it does not count as turning before both
    /// passes over all pods have gone through: if they panic too, only another daemon mends it.
    pub(super) fn beat(&self) {
        if self.doubts.load(Ordering::Relaxed) != 0 {
            return;
        }
        self.last.store(
            Moment::now().since_boot().as_nanos() as u64,
            Ordering::Relaxed,
        );
    }

    pub(super) fn panicked(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
        self.doubts.store(WHOLE_PASS, Ordering::Relaxed);
    }

    /// An event was handled as a whole; `pass` is its bit of the passes over all pods, or 0.
    pub(super) fn handled(&self, pass: u8) {
        self.doubts.fetch_and(!pass, Ordering::Relaxed);
    }

    /// Panics that were caught.
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Acts as if the loop had turned at `at`.
    #[cfg(test)]
    pub(crate) fn turned(&self, at: Moment) {
        self.last
            .store(at.since_boot().as_nanos() as u64, Ordering::Relaxed);
    }

    /// The last turn; None before the first.
    pub fn last(&self) -> Option<Moment> {
        let nanos = self.last.load(Ordering::Relaxed);
        (nanos != 0).then(|| Moment::from_boot(Duration::from_nanos(nanos)))
    }

    /// Returns the text that clients are told when the loop stands still (lessons F3). Clients still get answers,
    /// because other threads give them. `started` stands in for the first turn.
    pub fn stalled(&self, started: Moment, now: Moment) -> Option<String> {
        let ago = now.since(self.last().unwrap_or(started));
        let seconds = go_duration(Duration::from_secs(ago.as_secs()));
        (ago > STALL_THRESHOLD).then(|| {
            format!("the sync loop has not turned for {seconds}: what is shown may be old; the log says why, or start the daemon again")
        })
    }
}
