//! What a person should know about a CronJob before it runs (workloads 7.6, 7.7, 7.10, 7.11).
//!
//! Invariants: pure. An advice is a warning: the CronJob is valid.

use std::fmt;

use jiff::Timestamp;

use crate::api::workload::CronJobSpec;
use crate::base::cron::{ChangedDay, Schedule, Zones, clock_changes};

/// Seconds of `startingDeadlineSeconds` below which a busy node may miss a run.
const SHORT_DEADLINE: i64 = 10;

/// A warning about a CronJob that is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CronJobAdvice {
    /// The schedule does not come within five years.
    NeverComes,
    /// The deadline is so short that a busy node misses runs.
    ShortDeadline(i64),
    /// The schedule comes more than once a minute, but Jobs are named by their minute.
    TooOften(i64),
    /// The schedule is skipped or doubled on these days of the coming year.
    ClockChanges(Vec<ChangedDay>),
}

impl fmt::Display for CronJobAdvice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeverComes => f.write_str("the schedule does not come within five years"),
            Self::ShortDeadline(seconds) => write!(
                f,
                "startingDeadlineSeconds {seconds} is short: a run is missed when the node is busy for \
                 so long; use at least {SHORT_DEADLINE}"
            ),
            Self::TooOften(seconds) => write!(
                f,
                "the schedule comes every {seconds} seconds, but at most one Job a minute is started"
            ),
            Self::ClockChanges(days) => {
                let days: Vec<String> = days.iter().map(ToString::to_string).collect();
                write!(f, "the clock is changed: {}", days.join("; "))
            }
        }
    }
}

/// Returns the warnings about a CronJob. A schedule that cannot be read has none: its validation says so.
pub fn advice(spec: &CronJobSpec, zones: &Zones, now: Timestamp) -> Vec<CronJobAdvice> {
    let Ok(schedule) = super::parse(spec, zones) else {
        return Vec::new();
    };
    let never = schedule
        .never_comes(now)
        .then_some(CronJobAdvice::NeverComes);
    let short = spec
        .starting_deadline_seconds
        .filter(|seconds| *seconds < SHORT_DEADLINE)
        .map(CronJobAdvice::ShortDeadline);
    let often = match schedule {
        Schedule::Every(seconds @ ..60) => Some(CronJobAdvice::TooOften(seconds)),
        _ => None,
    };
    let days = clock_changes(&schedule, now);
    let changes = (!days.is_empty()).then_some(CronJobAdvice::ClockChanges(days));
    [never, short, often, changes]
        .into_iter()
        .flatten()
        .collect()
}
