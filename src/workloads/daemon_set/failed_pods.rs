//! The back-off between deletions of a DaemonSet's failed pods: a pod that fails again and again must not be replaced
//! in a hot loop (workloads 4.2).
//!
//! Invariants: pure. A new generation of the DaemonSet begins anew.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::workloads::observed::later;

/// First delay, in seconds.
const FIRST: u32 = 1;
/// Longest delay, in seconds.
const LONGEST: u32 = 15 * 60;

/// The back-off after the last failed pod that was deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FailedPodBackOff {
    /// Generation of the DaemonSet for which the back-off counts.
    pub generation: i64,
    /// Delay after the last deletion, in seconds.
    pub delay_seconds: u32,
    /// Time of the last deletion.
    pub last: Timestamp,
}

impl FailedPodBackOff {
    /// Returns the time at which the next failed pod may be deleted, or None if it may be deleted now (client-go
    /// util/flowcontrol: IsInBackOffSinceUpdate).
    pub fn until(&self, generation: i64, now: Timestamp) -> Option<Timestamp> {
        let until = later(self.last, seconds(self.delay_seconds));
        (self.counts(generation, now) && now < until).then_some(until)
    }

    /// Returns the back-off after another failed pod is deleted now: twice the delay, at most 15 minutes. After twice
    /// the longest delay without a failure it begins anew (util/flowcontrol: Next).
    pub fn next(before: Option<Self>, generation: i64, now: Timestamp) -> Self {
        let delay_seconds = match before {
            Some(before) if before.counts(generation, now) => {
                before.delay_seconds.saturating_mul(2).clamp(FIRST, LONGEST)
            }
            _ => FIRST,
        };
        Self {
            generation,
            delay_seconds,
            last: now,
        }
    }

    fn counts(&self, generation: i64, now: Timestamp) -> bool {
        let expired = later(self.last, seconds(LONGEST.saturating_mul(2)));
        self.generation == generation && now <= expired
    }
}

fn seconds(seconds: u32) -> Duration {
    Duration::from_secs(seconds.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_delay_doubles_up_to_fifteen_minutes() {
        let mut delays = Vec::new();
        let (mut back_off, mut now) = (None, at(0));
        for _ in 0..12 {
            let next = FailedPodBackOff::next(back_off, 1, now);
            delays.push(next.delay_seconds);
            now = next.until(1, now).unwrap();
            assert_eq!(next.until(1, now), None);
            back_off = Some(next);
        }
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]);
    }

    #[test]
    fn a_new_generation_and_half_an_hour_of_peace_begin_anew() {
        #[track_caller]
        fn check(generation: i64, now: i64, delay: u32) {
            let before = FailedPodBackOff {
                generation: 1,
                delay_seconds: 900,
                last: at(0),
            };
            let next = FailedPodBackOff::next(Some(before), generation, at(now));
            assert_eq!(next.delay_seconds, delay);
            let is_over = before.until(generation, at(now)).is_none();
            assert_eq!(is_over, now >= 900 || generation != 1);
        }
        check(1, 899, 900);
        check(1, 900, 900);
        check(1, 1800, 900);
        check(1, 1801, 1);
        check(2, 10, 1);
    }
}
