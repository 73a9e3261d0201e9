//! How far a pull is, for whoever watches it: counted by the threads of one pull, read by others.
//!
//! Invariants: nothing is decided from it. The lock is held for a copy of a text only.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use serde::{Deserialize, Serialize};

use crate::base::clock::Moment;
use crate::base::locks::Locked;

/// The counters that say how far a pull is.
#[derive(Debug)]
pub struct PullProgress {
    bytes: AtomicU64,
    of_bytes: AtomicU64,
    layers: AtomicU64,
    of_layers: AtomicU64,
    cuts: AtomicU64,
    /// When this try began, and when the last byte came, in milliseconds of [`Moment`].
    began: AtomicU64,
    last_byte: AtomicU64,
    cut: Mutex<Cut>,
}

/// The layers that were cut and have had no byte since.
#[derive(Debug, Default)]
struct Cut {
    layers: u64,
    /// Why the last of the layers was cut.
    why: String,
}

/// A reading of how far a pull is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PullState {
    /// Compressed bytes that have arrived.
    pub bytes: u64,
    /// Compressed bytes of all layers that are not on the node; 0 until the manifest is there.
    pub of_bytes: u64,
    /// Layers unpacked.
    pub layers: u64,
    /// Layers to pull.
    pub of_layers: u64,
    /// How often a layer was cut and had to be continued.
    pub cuts: u64,
    /// Milliseconds since the registry was asked; with layers to pull, since they began.
    pub millis: u64,
    /// Milliseconds since the last byte of a layer.
    pub quiet_millis: u64,
}

impl Default for PullProgress {
    /// Makes the progress of a pull that begins now.
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
    /// Returns how far the pull is now.
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

    /// Returns why the last cut layer was cut, while a cut layer waits to be continued.
    pub fn cut_off(&self) -> Option<String> {
        let cut = self.lock();
        (cut.layers > 0).then(|| cut.why.clone())
    }

    /// The layers of one server begin; those of a server before have failed.
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

    /// A layer is unpacked; `bytes` of it came by another pull.
    pub(super) fn layer(&self, bytes: u64) {
        self.arrived(bytes);
        self.layers.fetch_add(1, Ordering::Relaxed);
    }

    /// A layer is cut and will be continued; `again` without a byte since its last cut.
    pub(super) fn cut(&self, why: &str, again: bool) {
        self.cuts.fetch_add(1, Ordering::Relaxed);
        let mut cut = self.lock();
        cut.layers += u64::from(!again);
        why.clone_into(&mut cut.why);
    }

    /// A byte has come of a layer that was cut.
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
