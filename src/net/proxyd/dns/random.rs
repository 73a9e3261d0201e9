//! Random numbers that nobody can guess.

use ring::rand::{SecureRandom, SystemRandom};

/// A source of random numbers. The numbers come from the kernel, many at a time.
pub struct Random {
    source: SystemRandom,
    bytes: [u8; 256],
    used: usize,
}

impl Default for Random {
    fn default() -> Self {
        Self {
            source: SystemRandom::new(),
            bytes: [0; 256],
            used: 256,
        }
    }
}

impl Random {
    /// Returns the next random number.
    pub fn next(&mut self) -> u16 {
        if self.used >= self.bytes.len() {
            // From the first second after a boot on, the kernel gives all 256 bytes at once (getrandom(2)). Before
            // that the old bytes are used again, and only the random port protects the question.
            let _ = self.source.fill(&mut self.bytes);
            self.used = 0;
        }
        let pair = [self.bytes[self.used], self.bytes[self.used + 1]];
        self.used += 2;
        u16::from_ne_bytes(pair)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_differ() {
        let mut random = Random::default();
        let numbers: std::collections::HashSet<u16> = (0..1000).map(|_| random.next()).collect();
        assert!(numbers.len() > 900, "{}", numbers.len());
    }
}
