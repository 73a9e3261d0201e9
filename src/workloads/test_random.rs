//! Random numbers for model tests, the same in every run.

/// A generator of random numbers (xorshift).
pub(crate) struct Random(u64);

impl Random {
    /// Makes a generator. Each seed gives its own numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }

    /// True once in `times` calls.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}
