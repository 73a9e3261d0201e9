//! The delays between failed attempts of a reflector, as those of client-go.

use std::time::Duration;

use crate::base::clock::Moment;

/// First delay, before its jitter.
const SHORTEST: Duration = Duration::from_millis(800);
/// Longest delay, before its jitter.
const LONGEST: Duration = Duration::from_secs(30);
/// Time without a failure after which the delays begin anew.
const RESET: Duration = Duration::from_secs(120);

/// The delays, each of which doubles the one before. A jitter makes each delay longer, at most twice as long.
#[derive(Debug, Default)]
pub(super) struct BackOff {
    /// Delay of the last failure before its jitter, with its time.
    last: Option<(Duration, Moment)>,
}

impl BackOff {
    /// Returns the delay after a failure. `random` is at least 0 and below 1.
    pub(super) fn failed(&mut self, now: Moment, random: f64) -> Duration {
        let delay = match self.last {
            Some((delay, at)) if now.since(at) <= RESET => (delay * 2).min(LONGEST),
            _ => SHORTEST,
        };
        self.last = Some((delay, now));
        delay.mul_f64(1.0 + random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(seconds))
    }

    #[test]
    fn delays_double_up_to_the_longest_and_begin_anew_after_a_good_while() {
        let mut back_off = BackOff::default();
        let mut failed = |seconds, random| back_off.failed(at(seconds), random).as_millis();
        let delays: Vec<u128> = (0..7).map(|n| failed(n, 0.0)).collect();
        assert_eq!(delays, [800, 1600, 3200, 6400, 12_800, 25_600, 30_000]);
        assert_eq!(failed(126, 0.0), 30_000, "2 minutes are not yet over");
        assert_eq!(failed(247, 0.5), 1200, "a jitter of a half");
    }
}
