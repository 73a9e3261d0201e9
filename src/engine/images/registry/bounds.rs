//! Bounds of a pull: how long the pull waits, and how many bytes it accepts from a server.

use std::time::Duration;

use crate::base::http_client::Pacing;

/// The bounds of one pull. A daemon uses the defaults; tests use shorter times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Longest time to connect to one address; default 10 s.
    pub connect: Duration,
    /// Time in which a connection must give at least [`Bounds::least`] bytes while a read waits; default 60 s. A slower
    /// connection is closed.
    pub idle: Duration,
    /// Smallest number of bytes that a connection must give within [`Bounds::idle`]; default 4 KiB.
    pub least: u64,
    /// Longest time for a whole manifest, configuration or token; default 2 minutes.
    pub document: Duration,
    /// Largest number of times that a layer is continued after a cut without [`Bounds::progress`] in between; default
    /// 5.
    pub retries: u32,
    /// Number of bytes of a layer after which cuts are counted from 0 again; default 64 KiB.
    pub progress: u64,
    /// Wait before the first continuation of a layer; default 1 s. The wait doubles with each further continuation, up
    /// to 30 s.
    pub first_delay: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            least: 4 << 10,
            document: Duration::from_secs(120),
            retries: 5,
            progress: 64 << 10,
            first_delay: Duration::from_secs(1),
        }
    }
}

impl Bounds {
    /// Returns the time limits and the least speed for a connection of the pull.
    pub(super) fn pacing(&self) -> Pacing {
        Pacing {
            connect: self.connect,
            idle: self.idle,
            least: self.least,
        }
    }

    /// Returns the wait before continuation number `n`, counted from 1.
    pub(super) fn delay(&self, n: u32) -> Duration {
        let doubled = self.first_delay.saturating_mul(1 << (n - 1).min(16));
        doubled.min(Duration::from_secs(30))
    }
}

/// Largest manifest or index in bytes. Registries have the same limit.
pub(super) const MAX_MANIFEST: u64 = 4 << 20;
/// Largest image configuration in bytes.
pub(super) const MAX_CONFIG: u64 = 4 << 20;
/// Largest answer of a token server in bytes.
pub(super) const MAX_TOKEN: u64 = 256 << 10;
/// Size in bytes up to which every layer may unpack, however small the layer is.
pub(super) const MIN_UNPACKED: u64 = 256 << 20;
/// Greatest ratio of unpacked to compressed size of a layer that unpacks to more than [`MIN_UNPACKED`]. Deflate alone
/// reaches 1000 with zeros.
pub(super) const MAX_RATIO: u64 = 100;

/// Returns the size in bytes up to which a layer of this compressed size may unpack, at most `most`. This limits what a
/// decompression bomb can write.
pub(super) fn unpacked(compressed: u64, most: u64) -> u64 {
    most.min(compressed.saturating_mul(MAX_RATIO).max(MIN_UNPACKED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_and_layers_may_grow() {
        let bounds = Bounds::default();
        let seconds = |n| bounds.delay(n).as_secs();
        assert_eq!([1, 2, 3, 6, 99].map(seconds), [1, 2, 4, 30, 30]);
        assert_eq!(unpacked(1, 16 << 30), MIN_UNPACKED);
        assert_eq!(unpacked(10 << 20, 16 << 30), 1000 << 20);
        assert_eq!(unpacked(u64::MAX, 16 << 30), 16 << 30);
    }
}
