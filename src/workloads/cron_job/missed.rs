//! Which scheduled time is due, and when to look again (cronjob/utils.go: mostRecentScheduleTime, nextScheduleTime,
//! nextScheduleTimeDuration; workloads 7.8 to 7.11).
//!
//! Invariants: pure. The number of missed times is upstream's estimate. The work is bounded also after years of
//! outage.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::base::cron::Schedule;
use crate::workloads::event::ControllerEvent;

/// The time after a scheduled time at which the controller looks (workloads 7.11).
pub const LOOK_DELAY: Duration = Duration::from_millis(100);

/// Number of missed times above which there are many.
const MANY: i64 = 100;

const TOO_MANY: &str = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";

/// Number of times that are listed one by one. Behind it the last one is found by halving.
const LISTED: usize = 1000;

/// How many times were missed before the most recent one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissedTimes {
    /// None.
    None,
    /// A few.
    Few,
    /// More than 100, by the estimate from the first interval.
    Many,
}

/// The time that has become due, and how many were missed before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recent {
    /// Time after which scheduled times count.
    pub earliest: Timestamp,
    /// The most recent time that is due; None if none is.
    pub most_recent: Option<Timestamp>,
    /// How many times were missed before.
    pub missed: MissedTimes,
}

impl Recent {
    /// Returns the warning that many times were missed. The most recent one is due all the same (workloads 7.9).
    pub fn warning(&self) -> Option<ControllerEvent> {
        let is_many = self.missed == MissedTimes::Many && self.most_recent.is_some();
        is_many.then(|| ControllerEvent::warning("TooManyMissedTimes", TOO_MANY))
    }
}

/// The error of a schedule without two times within five years, in upstream's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("time difference between two schedules is less than 1 second")]
pub struct NoInterval {
    /// Time after which scheduled times count.
    pub earliest: Timestamp,
}

/// Returns the most recent scheduled time after `from` and not after `now` (workloads 7.8). A deadline in seconds
/// leaves out times that are older.
///
/// # Errors
/// Returns [`NoInterval`] if the schedule never comes.
pub fn most_recent(
    schedule: &Schedule,
    from: Timestamp,
    deadline: Option<i64>,
    now: Timestamp,
) -> Result<Recent, NoInterval> {
    let limit = deadline.map_or(Timestamp::MIN, |seconds| earlier(now, seconds));
    let earliest = from.max(limit);
    let (first, second) = first_two(schedule, earliest);
    let recent = |most_recent, missed| Recent {
        earliest,
        most_recent,
        missed,
    };
    let never = NoInterval { earliest };
    let first = first.ok_or(never)?;
    if now < first {
        return Ok(recent(None, MissedTimes::None));
    }
    let second = second.ok_or(never)?;
    if now < second {
        return Ok(recent(Some(first), MissedTimes::None));
    }
    let interval = second.duration_since(first).as_secs();
    let missed = estimate(now.duration_since(first), interval).ok_or(never)?;
    let start = one_interval_early(first, interval, missed);
    let most_recent = last_between(schedule, start, now);
    Ok(match missed {
        ..=MANY => recent(most_recent, MissedTimes::Few),
        _ => recent(most_recent, MissedTimes::Many),
    })
}

fn first_two(schedule: &Schedule, after: Timestamp) -> (Option<Timestamp>, Option<Timestamp>) {
    let first = schedule.next(after);
    (first, first.and_then(|first| schedule.next(first)))
}

/// Estimates the number of times since the first one from the first interval (workloads 7.9).
fn estimate(elapsed: SignedDuration, interval: i64) -> Option<i64> {
    let intervals = elapsed.as_secs().checked_div(interval)?;
    intervals.checked_add(1)
}

/// Returns the time one interval before the estimated last time, since not all intervals are equally long.
fn one_interval_early(first: Timestamp, interval: i64, missed: i64) -> Timestamp {
    let seconds = missed.saturating_sub(2).saturating_mul(interval);
    let later = first.checked_add(SignedDuration::from_secs(seconds));
    later.unwrap_or(first)
}

/// Returns the last scheduled time after `from` and not after `now`.
fn last_between(schedule: &Schedule, from: Timestamp, now: Timestamp) -> Option<Timestamp> {
    let mut last = None;
    for _ in 0..LISTED {
        match schedule.next(last.unwrap_or(from)) {
            Some(next) if next <= now => last = Some(next),
            _ => return last,
        }
    }
    last.map(|last| last_by_halving(schedule, last, now))
}

/// Returns the last scheduled time that is not after `now`, where `known` is one of them. A year of every minute is
/// found in some twenty steps.
fn last_by_halving(schedule: &Schedule, known: Timestamp, now: Timestamp) -> Timestamp {
    let mut last = known;
    let mut end = now;
    // The times of fields are at least a minute apart.
    while let Some(middle) = middle(last, end) {
        match schedule.next(middle) {
            Some(next) if next <= now => last = next,
            _ => end = middle,
        }
    }
    last
}

/// Returns the time between two times, or None if less than two seconds lie between them.
fn middle(start: Timestamp, end: Timestamp) -> Option<Timestamp> {
    let half = SignedDuration::from_secs(end.duration_since(start).as_secs() / 2);
    start.checked_add(half).ok().filter(|_| half.is_positive())
}

/// Returns the time at which to look again: the next time after the most recent one, and 100 ms (workloads 7.11).
/// None if the schedule does not come again within five years.
pub fn next_look(schedule: &Schedule, from: Timestamp, now: Timestamp) -> Option<Timestamp> {
    let after = match most_recent(schedule, from, None, now) {
        Ok(Recent {
            most_recent: Some(time),
            ..
        }) => time,
        Ok(recent) if recent.missed == MissedTimes::None => recent.earliest,
        _ => now,
    };
    schedule.next(after)?.checked_add(LOOK_DELAY).ok()
}

fn earlier(time: Timestamp, seconds: i64) -> Timestamp {
    let earlier = time.checked_sub(SignedDuration::from_secs(seconds));
    // A negative number, which no valid object has, would be later.
    let bound = if seconds < 0 {
        Timestamp::MAX
    } else {
        Timestamp::MIN
    };
    earlier.unwrap_or(bound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time_zones::{Random, schedule, time, with_rule};

    #[test]
    fn a_year_of_every_minute_is_found_by_halving() {
        let utc = with_rule("UTC0");
        // The first interval is a month, so the list would have some 80,000 times.
        let schedule = schedule("* * * 1-11 *", &utc);
        let now = time("2026-11-30T22:00:30.5Z");
        let recent = most_recent(&schedule, time("2025-11-30T23:58:00Z"), None, now).unwrap();
        assert_eq!(recent.most_recent, Some(time("2026-11-30T22:00:00Z")));
        assert_eq!(recent.missed, MissedTimes::Few);
    }

    #[test]
    fn more_than_100_missed_times_are_many() {
        let schedule = schedule("* * * * *", &with_rule("UTC0"));
        let missed = |now| {
            let recent = most_recent(&schedule, time("2026-01-01T00:00:00Z"), None, time(now));
            recent.unwrap().missed
        };
        assert_eq!(missed("2026-01-01T01:40:59Z"), MissedTimes::Few);
        assert_eq!(missed("2026-01-01T01:41:00Z"), MissedTimes::Many);
    }

    #[test]
    fn halving_finds_what_a_list_finds() {
        let utc = with_rule("UTC0");
        let mut random = Random(1_234_567_891);
        for _ in 0..150 {
            let schedule = schedule(&random.fields(), &utc);
            let from = Timestamp::from_second(1_700_000_000 + random.below(100_000_000) as i64);
            let Some(known) = schedule.next(from.unwrap()) else {
                continue;
            };
            let now = later(known, random.below(200_000));
            let mut last = known;
            while let Some(next) = schedule.next(last).filter(|next| *next <= now) {
                last = next;
            }
            assert_eq!(last_by_halving(&schedule, known, now), last, "{schedule:?}");
        }
    }

    fn later(time: Timestamp, seconds: u64) -> Timestamp {
        time.checked_add(Duration::from_secs(seconds)).unwrap()
    }

    #[test]
    fn a_schedule_that_never_comes_has_no_interval() {
        let schedule = schedule("0 0 30 2 *", &with_rule("UTC0"));
        let earliest = time("2026-01-01T00:00:00Z");
        let now = time("2026-02-01T00:00:00Z");
        let error = most_recent(&schedule, earliest, None, now).unwrap_err();
        assert_eq!(error, NoInterval { earliest });
        assert_eq!(next_look(&schedule, earliest, now), None);
    }

    #[test]
    fn the_ends_of_time_are_no_panic() {
        let utc = with_rule("UTC0");
        for text in ["* * * * *", "@every 1h", "0 0 29 2 *"] {
            let schedule = schedule(text, &utc);
            for deadline in [None, Some(i64::MAX), Some(i64::MIN), Some(-1)] {
                for (from, now) in [
                    (Timestamp::MIN, Timestamp::MAX),
                    (Timestamp::MAX, Timestamp::MIN),
                ] {
                    let _ = most_recent(&schedule, from, deadline, now);
                    let _ = next_look(&schedule, from, now);
                }
            }
        }
    }
}
