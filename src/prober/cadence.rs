//! When a worker's next step is due: a fixed cadence that never drifts and never piles up (lessons B4), and the start
//! jitter (kubelet-probes 2.2, DESIGN 3).
//!
//! Invariants: pure. Ticks lie at whole periods from the last reset, however long a step takes; of the ticks that pass
//! during a step one is kept.

use std::time::Duration;

use crate::clock::Moment;

/// Longest start jitter (lessons B2).
pub const MAX_JITTER: Duration = Duration::from_secs(10);

/// Shortest period; zero never passes validation.
const MIN_PERIOD: Duration = Duration::from_millis(10);

/// A ticker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cadence {
    period: Duration,
    next: Moment,
}

impl Cadence {
    /// Ticks one period from now, and so on.
    pub fn new(period: Duration, now: Moment) -> Self {
        let period = period.max(MIN_PERIOD);
        Self { period, next: now + period }
    }

    /// A full period from now.
    pub fn reset(&mut self, now: Moment) {
        self.next = now + self.period;
    }

    /// When the next tick is due.
    pub fn next(&self) -> Moment {
        self.next
    }

    /// Takes the tick that is due, and all others that have passed with it.
    pub fn take(&mut self, now: Moment) -> bool {
        if now < self.next {
            return false;
        }
        let missed = now.since(self.next).as_nanos() / self.period.as_nanos();
        let skip = u32::try_from(missed + 1).unwrap_or(u32::MAX);
        self.next = self.next + self.period.saturating_mul(skip);
        true
    }
}

/// Upper bound of a worker's start jitter: only after a start of the daemon, and only for a container that was there
/// before it; a new container is probed at its initial delay.
pub fn max_jitter(period: Duration, manager_age: Duration, container_is_older: bool) -> Duration {
    if container_is_older && manager_age < period { period.min(MAX_JITTER) } else { Duration::ZERO }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_boot(Duration::from_millis(ms))
    }

    #[test]
    fn b4_ticks_do_not_drift_and_do_not_pile_up() {
        let mut c = Cadence::new(Duration::from_secs(1), at(0));
        assert!(!c.take(at(999)));
        assert!(c.take(at(1300)), "a late step");
        assert_eq!(c.next(), at(2000), "does not move the next tick");
        assert!(c.take(at(4500)), "three ticks have passed");
        assert!(!c.take(at(4500)), "one was kept");
        assert_eq!(c.next(), at(5000));
        c.reset(at(4600));
        assert_eq!(c.next(), at(5600));
    }

    #[test]
    fn a_tick_at_its_very_moment_is_taken_once() {
        let mut c = Cadence::new(Duration::from_secs(1), at(0));
        assert!(c.take(at(1000)));
        assert_eq!(c.next(), at(2000));
        assert!(Cadence::new(Duration::ZERO, at(0)).next() > at(0), "no spinning");
    }

    #[test]
    fn jitter_is_for_old_containers_after_a_start_and_has_a_ceiling() {
        let s = Duration::from_secs;
        assert_eq!(max_jitter(s(5), s(1), true), s(5));
        assert_eq!(max_jitter(s(3600), s(1), true), s(10));
        assert_eq!(max_jitter(s(5), s(5), true), s(0));
        assert_eq!(max_jitter(s(5), s(1), false), s(0));
    }
}
