//! The times of a worker's steps: a fixed cadence that never drifts and never piles up (lessons B4), and the start
//! jitter (kubelet-probes 2.2, deviations: start-jitter).
//!
//! Invariants: this module is pure. Ticks are whole periods apart, counted from the last reset, however long a step
//! takes. Of the ticks that pass during a step, only one is kept.

use std::time::Duration;

use crate::base::clock::Moment;

/// The longest start jitter (lessons B2).
pub const MAX_JITTER: Duration = Duration::from_secs(10);

/// The shortest period. Validation never accepts zero.
const MIN_PERIOD: Duration = Duration::from_millis(10);

/// A ticker with a fixed period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cadence {
    period: Duration,
    next: Moment,
}

impl Cadence {
    /// Makes a ticker with its first tick one period from now.
    pub fn new(period: Duration, now: Moment) -> Self {
        let period = period.max(MIN_PERIOD);
        Self {
            period,
            next: now + period,
        }
    }

    /// Restarts the cadence: the next tick is a full period from now.
    pub fn reset(&mut self, now: Moment) {
        self.next = now + self.period;
    }

    /// Returns the time at which the next tick is due.
    pub fn next(&self) -> Moment {
        self.next
    }

    /// Consumes the tick that is due and all later ticks that have passed. Returns the time at which the first of these
    /// ticks was due, or `None` if no tick is due yet.
    pub fn take(&mut self, now: Moment) -> Option<Moment> {
        let due = self.next;
        if now < due {
            return None;
        }
        let missed = now.since(due).as_nanos() / self.period.as_nanos();
        let skip = u32::try_from(missed + 1).unwrap_or(u32::MAX);
        self.next = due + self.period.saturating_mul(skip);
        Some(due)
    }
}

/// Returns the upper bound of a worker's start jitter. Only a container that is older than the daemon has jitter, and
/// only soon after a start of the daemon. A new container is probed at its initial delay.
pub fn max_jitter(period: Duration, manager_age: Duration, container_is_older: bool) -> Duration {
    if container_is_older && manager_age < period {
        period.min(MAX_JITTER)
    } else {
        Duration::ZERO
    }
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
        assert_eq!(c.take(at(999)), None);
        assert_eq!(c.take(at(1300)), Some(at(1000)), "a late step");
        assert_eq!(c.next(), at(2000), "does not move the next tick");
        assert_eq!(c.take(at(4500)), Some(at(2000)), "three ticks have passed");
        assert_eq!(c.take(at(4500)), None, "one was kept");
        assert_eq!(c.next(), at(5000));
        c.reset(at(4600));
        assert_eq!(c.next(), at(5600));
    }

    #[test]
    fn a_tick_at_its_very_moment_is_taken_once() {
        let mut c = Cadence::new(Duration::from_secs(1), at(0));
        assert_eq!(c.take(at(1000)), Some(at(1000)));
        assert_eq!(c.next(), at(2000));
        assert!(
            Cadence::new(Duration::ZERO, at(0)).next() > at(0),
            "no spinning"
        );
    }

    /// Ticks do not drift, although each step is late by a different part of a millisecond, as on a real scheduler.
    #[test]
    fn an_hour_of_late_steps_does_not_drift() {
        for period in [10, 1000, 7000] {
            let mut c = Cadence::new(Duration::from_millis(period), at(500));
            for tick in 1..=3_600_000 / period {
                let due = at(500 + tick * period);
                assert_eq!(c.next(), due);
                let late = Duration::from_micros(tick * 7919 % 9000);
                assert_eq!(c.take(due + late), Some(due));
            }
        }
    }

    /// A suspended machine or a stopped process gets one step for all missed ticks. Later ticks come at the old
    /// instants.
    #[test]
    fn a_stall_of_any_length_leaves_one_step_and_the_same_instants() {
        for stalled in [1, 999, 1000, 1001, 5000, 3_600_000, 30 * 86_400_000] {
            let mut c = Cadence::new(Duration::from_secs(1), at(250));
            let woken = at(1250 + stalled);
            assert_eq!(c.take(woken), Some(at(1250)));
            assert_eq!(c.take(woken), None, "after {stalled} ms: nothing is queued");
            assert!(
                c.next() > woken && c.next() <= woken + Duration::from_secs(1),
                "after {stalled} ms"
            );
            assert_eq!(
                c.next().since_boot().as_millis() % 1000,
                250,
                "after {stalled} ms"
            );
        }
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
