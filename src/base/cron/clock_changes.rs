//! Days on which a schedule is skipped or doubled, because the clock of its zone is changed (workloads 7.7).
//!
//! Invariants: pure. What runs is what the search for the next time says, so the days are those of upstream, also the
//! odd ones. A schedule that runs in every hour has no such days: it runs through.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::parse::{Schedule, SpecSchedule};

/// Number of days before and after a change of the clock that are looked at. The search may go wrong on the day after
/// it.
const NEAR: i64 = 2;

/// Number of days before those at which the search starts. Its answer depends on where it comes from.
const LEAD: i64 = 2;

/// Seconds of a year.
const YEAR: SignedDuration = SignedDuration::from_hours(365 * 24);

/// Number of times of a day that a text names.
const NAMED: usize = 3;

/// The effect of a change of the clock on times of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClockChange {
    /// The times do not run.
    Skipped,
    /// The times run twice.
    Doubled,
    /// The times run although the schedule does not name them.
    Added,
}

/// A day on which a schedule does not run as it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedDay {
    /// The day in the schedule's zone.
    pub date: Date,
    /// The effect on the times.
    pub change: ClockChange,
    /// The times of the day that are affected.
    pub times: Vec<Time>,
}

impl fmt::Display for ChangedDay {
    /// Prints as `2026-03-29: 02:30 is skipped`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.date)?;
        for (index, time) in self.times.iter().take(NAMED).enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{}", time.strftime("%H:%M"))?;
        }
        let more = self.times.len().saturating_sub(NAMED);
        let is_one = self.times.len() == 1;
        if more > 0 {
            write!(f, " and {more} more times")?;
        }
        f.write_str(match (self.change, is_one) {
            (ClockChange::Skipped, true) => " is skipped",
            (ClockChange::Skipped, false) => " are skipped",
            (ClockChange::Doubled, true) => " runs twice",
            (ClockChange::Doubled, false) => " run twice",
            (ClockChange::Added, true) => " runs too",
            (ClockChange::Added, false) => " run too",
        })
    }
}

/// Returns the days of the year after `now` on which the schedule is skipped or doubled, in their order.
pub fn clock_changes(schedule: &Schedule, now: Timestamp) -> Vec<ChangedDay> {
    let Schedule::Spec(spec) = schedule else {
        return Vec::new();
    };
    if spec.runs_in_every_hour() {
        return Vec::new();
    }
    let mut days = BTreeMap::new();
    for change in changes(&spec.zone, now) {
        for day in days_near(schedule, spec, change).unwrap_or_default() {
            days.insert((day.date, day.change), day);
        }
    }
    let today = spec.zone.to_datetime(now).date();
    days.into_values().filter(|day| day.date >= today).collect()
}

impl SpecSchedule {
    fn runs_in_every_hour(&self) -> bool {
        self.hour.iter().count() == 24
    }

    /// Returns the times of a day that the schedule names.
    fn times_on(&self, date: Date) -> BTreeSet<Time> {
        let midnight = date.to_datetime(Time::midnight());
        if !self.has_month(midnight) || !self.has_day(midnight) {
            return BTreeSet::new();
        }
        self.hour
            .iter()
            .flat_map(|hour| self.minute.iter().map(move |minute| (hour, minute)))
            .filter_map(|(hour, minute)| {
                let hour = i8::try_from(hour).ok()?;
                Time::new(hour, i8::try_from(minute).ok()?, 0, 0).ok()
            })
            .collect()
    }
}

/// Returns the times from two days ago to a year ahead at which the clock of a zone is changed.
fn changes(zone: &TimeZone, now: Timestamp) -> Vec<Timestamp> {
    let end = now.checked_add(YEAR).unwrap_or(Timestamp::MAX);
    let near = SignedDuration::from_hours(NEAR.saturating_mul(24));
    let start = now.checked_sub(near).unwrap_or(now);
    let times = zone.following(start).map(|change| change.timestamp());
    times.take_while(|time| *time <= end).collect()
}

/// Compares the times that the schedule names with those that it has, on each day near a change of the clock.
fn days_near(
    schedule: &Schedule,
    spec: &SpecSchedule,
    change: Timestamp,
) -> Option<Vec<ChangedDay>> {
    let midnight = spec
        .zone
        .to_datetime(change)
        .date()
        .to_datetime(Time::midnight());
    let lead = LEAD.checked_add(NEAR)?;
    let runs = Runs::between(
        schedule,
        &spec.zone,
        days_later(midnight, lead.checked_neg()?)?,
        days_later(midnight, NEAR.checked_add(1)?)?,
    )?;
    let days = (-NEAR..=NEAR).filter_map(|days| Some(days_later(midnight, days)?.date()));
    Some(
        days.flat_map(|date| runs.changes_of(date, &spec.times_on(date)))
            .collect(),
    )
}

fn days_later(time: DateTime, days: i64) -> Option<DateTime> {
    let hours = SignedDuration::from_hours(days.checked_mul(24)?);
    time.checked_add(hours).ok()
}

/// How often each local time runs.
struct Runs(BTreeMap<DateTime, usize>);

impl Runs {
    fn between(
        schedule: &Schedule,
        zone: &TimeZone,
        start: DateTime,
        end: DateTime,
    ) -> Option<Self> {
        let end = zone.to_timestamp(end).ok()?;
        let mut last = zone.to_timestamp(start).ok()?;
        let mut runs = BTreeMap::new();
        while let Some(next) = schedule.next(last).filter(|next| *next < end) {
            let count: &mut usize = runs.entry(zone.to_datetime(next)).or_default();
            *count = count.saturating_add(1);
            last = next;
        }
        Some(Self(runs))
    }

    /// Returns what is different from the named times of a day.
    fn changes_of(&self, date: Date, named: &BTreeSet<Time>) -> Vec<ChangedDay> {
        let runs: BTreeMap<Time, usize> = self
            .0
            .iter()
            .filter(|(time, _)| time.date() == date)
            .map(|(time, count)| (time.time(), *count))
            .collect();
        let skipped = named.iter().filter(|time| !runs.contains_key(time));
        let doubled = runs.iter().filter(|(_, count)| **count > 1);
        let added = runs.keys().filter(|time| !named.contains(time));
        [
            (ClockChange::Skipped, skipped.copied().collect()),
            (
                ClockChange::Doubled,
                doubled.map(|(time, _)| *time).collect(),
            ),
            (ClockChange::Added, added.copied().collect()),
        ]
        .into_iter()
        .filter(|(_, times): &(_, Vec<Time>)| !times.is_empty())
        .map(|(change, times)| ChangedDay {
            date,
            change,
            times,
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::cron::Zones;
    use crate::time_zones::{BERLIN, schedule, time, with_rule, with_zoneinfo};

    #[track_caller]
    fn check(zones: &Zones, text: &str, expected: &[&str]) {
        let days = clock_changes(&schedule(text, zones), time("2026-01-30T12:00:00Z"));
        let days: Vec<String> = days.iter().map(ToString::to_string).collect();
        assert_eq!(days, expected);
    }

    #[test]
    fn skipped_and_doubled_days_of_a_year_are_listed() {
        let berlin = with_rule(BERLIN);
        let both = [
            "2026-03-29: 02:30 is skipped",
            "2026-10-25: 02:30 runs twice",
        ];
        check(&berlin, "30 2 * * *", &both);
        check(&berlin, "30 2 * * sun", &both);
        check(
            &berlin,
            "*/15 2 * * *",
            &[
                "2026-03-29: 02:00, 02:15, 02:30 and 1 more times are skipped",
                "2026-10-25: 02:00, 02:15, 02:30 and 1 more times run twice",
            ],
        );
        check(
            &berlin,
            "0,30 2 * * *",
            &[
                "2026-03-29: 02:00, 02:30 are skipped",
                "2026-10-25: 02:00, 02:30 run twice",
            ],
        );
    }

    #[test]
    fn other_schedules_have_no_such_days() {
        let berlin = with_rule(BERLIN);
        for text in [
            "30 3 * * *",
            "30 2 * * mon",
            "30 2 1 * *",
            "* * * * *",
            "@hourly",
            "@every 1h",
        ] {
            check(&berlin, text, &[]);
        }
        check(&with_rule("UTC0"), "30 2 * * *", &[]);
    }

    #[test]
    fn only_days_from_today_to_a_year_ahead_are_listed() {
        let schedule = schedule("30 2 * * *", &with_rule(BERLIN));
        let dates = |now| -> Vec<String> {
            let days = clock_changes(&schedule, time(now));
            days.iter().map(|day| day.date.to_string()).collect()
        };
        let today = ["2026-03-29", "2026-10-25", "2027-03-28"];
        assert_eq!(dates("2026-03-29T12:00:00Z"), today);
        assert_eq!(dates("2026-03-30T12:00:00Z"), today[1..]);
    }

    #[test]
    fn odd_days_of_upstream_are_listed() {
        let Some(zones) = with_zoneinfo() else {
            return;
        };
        check(
            &zones,
            "TZ=Australia/Lord_Howe 0 0 * * *",
            &[
                "2026-04-06: 00:00 is skipped",
                "2026-10-05: 00:00 is skipped",
            ],
        );
        check(
            &zones,
            "TZ=Australia/Lord_Howe 30 1 * * *",
            &["2026-04-05: 01:30 runs twice", "2026-10-04: 02:30 runs too"],
        );
        check(
            &zones,
            "TZ=Africa/Cairo @daily",
            &["2026-04-24: 00:00 is skipped"],
        );
        let apia = schedule("TZ=Pacific/Apia 0 5 * * *", &zones);
        let days = clock_changes(&apia, time("2011-12-01T00:00:00Z"));
        assert_eq!(days[0].to_string(), "2011-12-30: 05:00 is skipped");
    }
}
