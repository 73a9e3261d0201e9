//! The time of the sync loop's last turn, and the check for a loop that stands still (kubelet-probes 5.1, 11.2).
//!
//! Invariant: a turn counts only while the state that pods share is known to be consistent.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use crate::base::clock::{Moment, go_duration};

/// The time without a turn after which the loop counts as standing still (11.2). The ticks alone turn the loop each
/// second.
const STALL_THRESHOLD: Duration = Duration::from_secs(120);

/// The time of the loop's last turn, for the health check (5.1, 11.2). A pause of the loop does not count as a turn,
/// because nothing is done during the pause.
#[derive(Default)]
pub struct Heartbeat {
    /// The time of the last turn in nanoseconds since boot, or 0 before the first turn.
    last: AtomicU64,
    panics: AtomicU64,
    /// The bits of the events in [`WHOLE_PASS`] that have not been handled since the last panic.
    doubts: AtomicU8,
}

/// The bit of a sync tick, which touches every pod.
pub(super) const SYNC_PASS: u8 = 0b01;
/// The bit of a housekeeping tick, which touches every pod.
pub(super) const HOUSEKEEPING_PASS: u8 = 0b10;
/// The bits of the events that touch every pod.
const WHOLE_PASS: u8 = SYNC_PASS | HOUSEKEEPING_PASS;

impl Heartbeat {
    /// Records a turn, unless a panic may have left the state that pods share half changed. In that case the loop
    /// continues, but does not count as turning until both passes over all pods have been handled. If these passes
    /// panic too, only a restart of the daemon repairs the state.
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

    /// Records that an event was handled completely. `pass` is the bit of an event that touches every pod, or 0.
    pub(super) fn handled(&self, pass: u8) {
        self.doubts.fetch_and(!pass, Ordering::Relaxed);
    }

    /// Returns the number of panics that were caught.
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Sets the time of the last turn to `at`.
    pub fn turned(&self, at: Moment) {
        self.last
            .store(at.since_boot().as_nanos() as u64, Ordering::Relaxed);
    }

    /// Returns the time of the last turn, or `None` before the first turn.
    pub fn last(&self) -> Option<Moment> {
        let nanos = self.last.load(Ordering::Relaxed);
        (nanos != 0).then(|| Moment::from_boot(Duration::from_nanos(nanos)))
    }

    /// Returns the text for clients if the loop stands still (lessons F3), or `None` if the loop turns. Clients still
    /// get answers, because other threads send the answers. Before the first turn, `started` counts as the time of the
    /// last turn.
    pub fn stalled(&self, started: Moment, now: Moment) -> Option<String> {
        let ago = now.since(self.last().unwrap_or(started));
        let seconds = go_duration(Duration::from_secs(ago.as_secs()));
        (ago > STALL_THRESHOLD).then(|| {
            format!("the sync loop has not turned for {seconds}: what is shown may be old; the log says why, or start the daemon again")
        })
    }
}
