//! Random numbers that are the same for a seed (Knuth, The Art of Computer Programming, volume 2, 3.3.4).

use std::time::Duration;

pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    /// A time shorter than `end`.
    pub(crate) fn within(&mut self, end: Duration) -> Duration {
        Duration::from_millis(self.below(end.as_millis() as usize) as u64)
    }

    /// One of several things.
    pub(crate) fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}
