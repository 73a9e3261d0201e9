//! Decides how long a Job waits between a failure and the replacement (workloads 6.5).
//!
//! Invariants: the record is part of the Job's state, so that a restart of the daemon does not hurry a Job that fails
//! again and again. A failure time in the future makes the wait longer.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// The wait after the first failure.
const FIRST: SignedDuration = SignedDuration::from_secs(10);
/// The longest wait: ten minutes, although upstream's documentation says six (MaxJobPodFailureBackOff).
const LONGEST: SignedDuration = SignedDuration::from_mins(10);

/// The record of failures since the last success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackOff {
    /// Number of failures since the last success.
    pub failures: i32,
    /// End of the newest of these failures; None if there is none.
    pub last_failure: Option<Timestamp>,
}

impl BackOff {
    /// Returns the record after further pods have ended at these times. Failures before the newest success do not
    /// count (newBackoffRecord).
    pub fn after(self, succeeded: &[Timestamp], failed: &[Timestamp]) -> Self {
        let Some(&success) = succeeded.iter().max() else {
            return Self {
                failures: self.failures.saturating_add(count(failed.len())),
                last_failure: failed.iter().max().copied().or(self.last_failure),
            };
        };
        let later = failed.iter().filter(|&&failure| failure > success);
        Self {
            failures: count(later.clone().count()),
            last_failure: later.max().copied(),
        }
    }

    /// Returns the time that is left until a pod may be replaced.
    pub fn remaining(self, now: Timestamp) -> Duration {
        match self.last_failure {
            Some(last) => remaining(self.failures, last, now),
            None => Duration::ZERO,
        }
    }
}

/// Returns the time that is left after so many failures, of which the newest ended at `last_failure`
/// (getRemainingTimeForFailuresCount).
pub fn remaining(failures: i32, last_failure: Timestamp, now: Timestamp) -> Duration {
    let left = wait(failures).saturating_sub(now.duration_since(last_failure));
    match failures {
        0 => Duration::ZERO,
        _ => Duration::try_from(left).unwrap_or(Duration::ZERO),
    }
}

/// Returns the whole wait after so many failures.
fn wait(failures: i32) -> SignedDuration {
    let mut wait = FIRST;
    for _ in 1..failures {
        wait = wait.saturating_add(wait).min(LONGEST);
        if wait == LONGEST {
            break;
        }
    }
    wait
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[track_caller]
    fn check_remaining(failures: i32, last: i64, now: i64, expected: u64) {
        let left = remaining(failures, at(last), at(now));
        assert_eq!(left, Duration::from_secs(expected));
    }

    #[test]
    fn a_failure_in_the_future_makes_the_wait_longer() {
        check_remaining(1, 100, 40, 70);
        check_remaining(0, 100, 40, 0);
    }

    #[test]
    fn the_wait_ends_at_ten_minutes_whatever_the_number() {
        check_remaining(6, 0, 0, 320);
        check_remaining(7, 0, 0, 600);
        check_remaining(i32::MAX, 0, 0, 600);
        check_remaining(i32::MAX, 0, 599, 1);
    }

    #[test]
    fn no_number_of_failures_overflows() {
        let record = BackOff {
            failures: i32::MAX,
            last_failure: Some(at(1)),
        };
        let after = record.after(&[], &[at(2), at(3)]);
        assert_eq!(
            (after.failures, after.last_failure),
            (i32::MAX, Some(at(3)))
        );
    }

    #[test]
    fn nothing_new_changes_nothing() {
        let record = BackOff {
            failures: 2,
            last_failure: Some(at(1)),
        };
        assert_eq!(record.after(&[], &[]), record);
    }
}
