//! How far a pull is, for whoever watches it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Written by the threads of one pull, read by another.
#[derive(Debug, Default)]
pub struct PullProgress {
    bytes: AtomicU64,
    of_bytes: AtomicU64,
    layers: AtomicU64,
    of_layers: AtomicU64,
}

/// One reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PullState {
    /// Compressed bytes that have arrived.
    pub bytes: u64,
    /// Compressed bytes of all layers that are not on the node; 0 until the manifest is there.
    pub of_bytes: u64,
    /// Layers unpacked.
    pub layers: u64,
    /// Layers to pull.
    pub of_layers: u64,
}

impl PullProgress {
    /// How far it is now.
    pub fn state(&self) -> PullState {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PullState {
            bytes: read(&self.bytes),
            of_bytes: read(&self.of_bytes),
            layers: read(&self.layers),
            of_layers: read(&self.of_layers),
        }
    }

    pub(super) fn begins(&self, layers: usize, bytes: u64) {
        for (counter, value) in [
            (&self.bytes, 0),
            (&self.layers, 0),
            (&self.of_layers, layers as u64),
            (&self.of_bytes, bytes),
        ] {
            counter.store(value, Ordering::Relaxed);
        }
    }

    pub(super) fn arrived(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A layer is unpacked; `bytes` of it came by another pull.
    pub(super) fn layer(&self, bytes: u64) {
        self.arrived(bytes);
        self.layers.fetch_add(1, Ordering::Relaxed);
    }
}
