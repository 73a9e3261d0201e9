//! The progress of a pull. The threads of the pull write the progress, and other threads read it to show it to people.
//!
//! Invariants: no decision depends on the progress. The lock is held only to copy a text.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use serde::{Deserialize, Serialize};

use crate::base::clock::Moment;
use crate::base::locks::Locked;

/// Counters for the progress of a pull.
#[derive(Debug)]
pub struct PullProgress {
    bytes: AtomicU64,
    of_bytes: AtomicU64,
    layers: AtomicU64,
    of_layers: AtomicU64,
    cuts: AtomicU64,
    /// Time at which the present try of the pull began, in milliseconds of [`Moment`]. The field `last_byte` is the
    /// time of the last byte, in the same unit.
    began: AtomicU64,
    last_byte: AtomicU64,
    cut: Mutex<Cut>,
}

/// The layers that were cut off and have got no byte since.
#[derive(Debug, Default)]
struct Cut {
    layers: u64,
    /// Reason why the last of these layers was cut off.
    why: String,
}

/// The progress of a pull at the time of reading it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PullState {
    /// Number of compressed bytes that have arrived.
    pub bytes: u64,
    /// Number of compressed bytes in all layers to pull; 0 until the manifest has arrived.
    pub of_bytes: u64,
    /// Number of layers that are unpacked.
    pub layers: u64,
    /// Number of layers to pull.
    pub of_layers: u64,
    /// Number of times that a layer was cut off and had to be continued.
    pub cuts: u64,
    /// Milliseconds since the pull of the layers began. Until the layers begin, milliseconds since the registry was
    /// asked.
    pub millis: u64,
    /// Milliseconds since the last byte of a layer arrived.
    pub quiet_millis: u64,
}

impl Default for PullProgress {
    /// Returns the progress of a pull that begins now.
    fn default() -> Self {
        Self {
            bytes: AtomicU64::new(0),
            of_bytes: AtomicU64::new(0),
            layers: AtomicU64::new(0),
            of_layers: AtomicU64::new(0),
            cuts: AtomicU64::new(0),
            began: AtomicU64::new(now()),
            last_byte: AtomicU64::new(now()),
            cut: Mutex::default(),
        }
    }
}

impl PullProgress {
    /// Returns the present state of the pull's progress.
    pub fn state(&self) -> PullState {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let since = |counter: &AtomicU64| now().saturating_sub(read(counter));
        PullState {
            bytes: read(&self.bytes),
            of_bytes: read(&self.of_bytes),
            layers: read(&self.layers),
            of_layers: read(&self.of_layers),
            cuts: read(&self.cuts),
            millis: since(&self.began),
            quiet_millis: since(&self.last_byte),
        }
    }

    /// Returns the reason why a layer was cut off last. Returns None while no layer waits to be continued.
    pub fn cut_off(&self) -> Option<String> {
        let cut = self.lock();
        (cut.layers > 0).then(|| cut.why.clone())
    }

    /// Notes that the pull of the layers begins at a server. Sets the figures of an earlier server, which has failed,
    /// back to 0.
    pub(super) fn begins(&self, layers: usize, bytes: u64) {
        *self.lock() = Cut::default();
        let now = now();
        for (counter, value) in [
            (&self.bytes, 0),
            (&self.layers, 0),
            (&self.cuts, 0),
            (&self.began, now),
            (&self.last_byte, now),
            (&self.of_layers, layers as u64),
            (&self.of_bytes, bytes),
        ] {
            counter.store(value, Ordering::Relaxed);
        }
    }

    pub(super) fn arrived(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.last_byte.store(now(), Ordering::Relaxed);
    }

    /// Notes that a layer is unpacked. If another pull has fetched the layer, `bytes` is the layer's number of bytes.
    /// Otherwise `bytes` is 0.
    pub(super) fn layer(&self, bytes: u64) {
        self.arrived(bytes);
        self.layers.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a layer was cut off and will be continued. `again` is true if no byte of the layer has come since its
    /// last cut.
    pub(super) fn cut(&self, why: &str, again: bool) {
        self.cuts.fetch_add(1, Ordering::Relaxed);
        let mut cut = self.lock();
        cut.layers += u64::from(!again);
        why.clone_into(&mut cut.why);
    }

    /// Notes that a byte of a layer has come after the layer was cut off.
    pub(super) fn continued(&self) {
        let mut cut = self.lock();
        cut.layers = cut.layers.saturating_sub(1);
    }

    fn lock(&self) -> MutexGuard<'_, Cut> {
        self.cut.locked()
    }
}

fn now() -> u64 {
    u64::try_from(Moment::now().since_boot().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_is_told_until_every_layer_goes_on() {
        let progress = PullProgress::default();
        progress.begins(2, 100);
        assert_eq!(progress.cut_off(), None);
        progress.cut("first", false);
        progress.cut("second", false);
        progress.cut("second again", true);
        assert_eq!(progress.cut_off().as_deref(), Some("second again"));
        progress.continued();
        assert!(progress.cut_off().is_some());
        progress.continued();
        assert_eq!((progress.cut_off(), progress.state().cuts), (None, 3));
        progress.cut("of a server that failed", false);
        progress.begins(2, 100);
        assert_eq!((progress.cut_off(), progress.state().cuts), (None, 0));
    }
}
