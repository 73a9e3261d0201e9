//! The pace of requests: a bucket of tokens, as client-go's rate limiter (kubelet-probes 9.9).
//!
//! Invariant: pure; the clock is an argument.

use std::time::Duration;

use crate::base::clock::Moment;

/// Number of requests that may follow one another at once (the kubelet's default `kubeAPIBurst`).
const BURST: u32 = 100;
/// Time after which one more request may be sent (the kubelet's default `kubeAPIQPS`: 50 a second).
const REFILL: Duration = Duration::from_millis(20);

/// The requests that may be sent.
#[derive(Debug)]
pub(super) struct Pace {
    /// The moment at which the bucket is full again. It is kept instead of a number of tokens, so that nothing is rounded.
    full_at: Moment,
}

impl Pace {
    /// Begins with a full bucket.
    pub(super) fn new(now: Moment) -> Self {
        Self { full_at: now }
    }

    /// The moment of the next token.
    pub(super) fn next(&self, now: Moment) -> Moment {
        (self.full_at + REFILL - REFILL * BURST).max(now)
    }

    /// Takes a token. Returns false if there is none.
    pub(super) fn take(&mut self, now: Moment) -> bool {
        let is_there = self.next(now) <= now;
        if is_there {
            self.full_at = self.full_at.max(now) + REFILL;
        }
        is_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_goes_at_once_and_the_rest_at_its_pace() {
        let start = Moment::from_boot(Duration::from_secs(100));
        let mut pace = Pace::new(start);
        let taken = (0..200).filter(|_| pace.take(start)).count();
        assert_eq!(taken, 100);
        assert_eq!(pace.next(start), start + REFILL);
        assert!(pace.take(start + REFILL));
        assert!(!pace.take(start + REFILL));
        assert_eq!(pace.next(start + REFILL), start + REFILL * 2);
        let later = start + Duration::from_secs(3600);
        let taken = (0..200).filter(|_| pace.take(later)).count();
        assert_eq!(taken, 100, "an hour saves up no more than a burst");
    }
}
