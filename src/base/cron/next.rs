//! The search for the next time of a schedule (robfig/cron: spec.go, constantdelay.go; workloads 7.6, 7.7).
//!
//! Invariants: the steps are upstream's, also around changes of the clock, so the answers are. Unlike upstream's,
//! each step moves on: a search ends when the year is more than five years after the first one. The answer is later
//! than the time asked about.

use jiff::Timestamp;
use jiff::civil::DateTime;

use super::local_time::LocalTime;
use super::parse::{Schedule, SpecSchedule};

/// The number of years after which a search ends.
const YEARS: i16 = 5;

const HOUR: i64 = 3600;

impl Schedule {
    /// Returns the first time after `after`, or None if the schedule does not come within five years.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let second = second_of(after)?;
        match self {
            Self::Spec(schedule) => schedule.next(second.checked_add(1)?),
            Self::Every(delay) => Timestamp::from_second(second.checked_add(*delay)?).ok(),
        }
    }

    /// True if the schedule does not come within five years, as the 30th of February (workloads 7.6).
    pub fn never_comes(&self, now: Timestamp) -> bool {
        self.next(now).is_none()
    }
}

/// Returns the second that a time is in.
fn second_of(time: Timestamp) -> Option<i64> {
    i64::try_from(time.as_nanosecond().div_euclid(1_000_000_000)).ok()
}

impl SpecSchedule {
    /// Returns the first time that is not before the second `from`.
    fn next(&self, from: i64) -> Option<Timestamp> {
        // Without this, a lone comma would be searched for minute by minute.
        if self.minute.is_empty() || self.hour.is_empty() || self.month.is_empty() {
            return None;
        }
        let at = LocalTime::at(&self.zone, from)?;
        let last_year = at.civil().year().checked_add(YEARS)?;
        let mut search = Search {
            schedule: self,
            at,
            has_moved: false,
        };
        while search.at.civil().year() <= last_year {
            if search.find()? {
                if search.at.unix() >= from {
                    return search.at.timestamp();
                }
                // A day that begins twice was entered at its first midnight. Upstream would return a time that has
                // passed.
                search.at = LocalTime::at(&self.zone, from)?;
            }
        }
        None
    }

    /// True if the schedule names this day. With a star in one of the two fields of days both must match, else one
    /// suffices (workloads 7.3).
    pub(super) fn has_day(&self, date: DateTime) -> bool {
        let in_month = self.day_of_month.contains(unsigned(date.day()));
        let in_week = self
            .day_of_week
            .contains(unsigned(date.weekday().to_sunday_zero_offset()));
        match self.day_of_month.is_star() || self.day_of_week.is_star() {
            true => in_month && in_week,
            false => in_month || in_week,
        }
    }

    pub(super) fn has_month(&self, date: DateTime) -> bool {
        self.month.contains(unsigned(date.month()))
    }

    pub(super) fn has_hour(&self, time: DateTime) -> bool {
        self.hour.contains(unsigned(time.hour()))
    }

    pub(super) fn has_minute(&self, time: DateTime) -> bool {
        self.minute.contains(unsigned(time.minute()))
    }
}

/// Converts a part of a date or a time, which is never negative.
fn unsigned(part: i8) -> u8 {
    part.unsigned_abs()
}

/// A search under way.
struct Search<'s> {
    schedule: &'s SpecSchedule,
    at: LocalTime<'s>,
    /// True after the first step. Before it, the smaller fields are set to their beginning.
    has_moved: bool,
}

/// The end of a search for one field.
#[derive(PartialEq, Eq)]
enum Found {
    /// The field matches.
    Here,
    /// A larger field has changed and must be looked at again.
    Wrapped,
}

impl<'s> Search<'s> {
    /// Looks for the fields from the month to the second. Returns false where a larger field must be looked at again,
    /// and None beyond the last year that there is.
    fn find(&mut self) -> Option<bool> {
        let fields = [
            Self::find_month,
            Self::find_day,
            Self::find_hour,
            Self::find_minute,
            Self::find_second,
        ];
        for find in fields {
            if find(self)? == Found::Wrapped {
                return Some(false);
            }
        }
        Some(true)
    }

    fn find_month(&mut self) -> Option<Found> {
        while !self.schedule.has_month(self.at.civil()) {
            self.begin(LocalTime::start_of_month)?;
            self.at = self.at.plus_month()?;
            if self.at.civil().month() == 1 {
                return Some(Found::Wrapped);
            }
        }
        Some(Found::Here)
    }

    fn find_day(&mut self) -> Option<Found> {
        while !self.schedule.has_day(self.at.civil()) {
            self.begin(LocalTime::start_of_day)?;
            self.at = next_day(self.at)?;
            if self.at.civil().day() == 1 {
                return Some(Found::Wrapped);
            }
        }
        Some(Found::Here)
    }

    fn find_hour(&mut self) -> Option<Found> {
        while !self.schedule.has_hour(self.at.civil()) {
            self.begin(LocalTime::start_of_hour)?;
            self.at = self.at.plus_seconds(HOUR)?;
            if self.at.civil().hour() == 0 {
                return Some(Found::Wrapped);
            }
        }
        Some(Found::Here)
    }

    fn find_minute(&mut self) -> Option<Found> {
        while !self.schedule.has_minute(self.at.civil()) {
            self.begin(LocalTime::start_of_minute)?;
            self.at = self.at.plus_seconds(60)?;
            if self.at.civil().minute() == 0 {
                return Some(Found::Wrapped);
            }
        }
        Some(Found::Here)
    }

    /// Goes to the full minute. Upstream counts the seconds one by one.
    fn find_second(&mut self) -> Option<Found> {
        let second = i64::from(self.at.civil().second());
        if second == 0 {
            return Some(Found::Here);
        }
        self.has_moved = true;
        self.at = self.at.plus_seconds(60_i64.checked_sub(second)?)?;
        Some(Found::Wrapped)
    }

    /// Sets the smaller fields to their beginning before the first step.
    fn begin(&mut self, start: fn(LocalTime<'s>) -> Option<LocalTime<'s>>) -> Option<()> {
        if !self.has_moved {
            self.has_moved = true;
            self.at = start(self.at)?;
        }
        Some(())
    }
}

/// Returns midnight of the next day, or upstream's idea of it where midnight does not exist. A day that does not
/// exist at all (30 December 2011 in Apia) is left out; upstream would try it for ever.
fn next_day(at: LocalTime) -> Option<LocalTime> {
    (1..=3)
        .map_while(|days| to_midnight(at.plus_days(days)?))
        .find(|day| day.unix() > at.unix())
}

/// Moves a time that should be midnight by full hours.
fn to_midnight(day: LocalTime) -> Option<LocalTime> {
    let hour = i64::from(day.civil().hour());
    let hours = match hour {
        0 => return Some(day),
        13.. => 24_i64.checked_sub(hour)?,
        _ => 0_i64.checked_sub(hour)?,
    };
    day.plus_seconds(hours.checked_mul(HOUR)?)
}

#[cfg(test)]
mod tests {
    use super::super::Zones;
    use super::*;
    use crate::time_zones::{BERLIN, NEW_YORK, Random, schedule, time, with_rule, with_zoneinfo};

    /// Compares as many times as there are texts; `never` is the end.
    #[track_caller]
    fn check(zones: &Zones, text: &str, after: &str, expected: &[&str]) {
        let schedule = schedule(text, zones);
        let mut after = time(after);
        for expected in expected {
            let next = schedule.next(after);
            assert_eq!(
                next.map_or("never".to_owned(), |next| next.to_string()),
                *expected
            );
            after = next.unwrap_or(after);
        }
    }

    #[test]
    fn a_skipped_time_does_not_run_and_a_doubled_one_runs_twice() {
        let berlin = with_rule(BERLIN);
        let spring = ["2026-03-28T01:30:00Z", "2026-03-30T00:30:00Z"];
        check(&berlin, "30 2 * * *", "2026-03-27T12:00:00Z", &spring);
        let autumn = [
            "2026-10-24T00:30:00Z",
            "2026-10-25T00:30:00Z",
            "2026-10-25T01:30:00Z",
            "2026-10-26T01:30:00Z",
        ];
        check(&berlin, "30 2 * * *", "2026-10-23T12:00:00Z", &autumn);
        let new_york = with_rule(NEW_YORK);
        let hourly = ["2026-03-08T06:00:00Z", "2026-03-08T07:00:00Z"];
        check(&new_york, "@hourly", "2026-03-08T05:30:00Z", &hourly);
    }

    #[test]
    fn a_day_that_does_not_exist_is_left_out_where_upstream_never_returns() {
        let Some(zones) = with_zoneinfo() else {
            return;
        };
        let first = ["2011-12-31T10:00:00Z", "2012-01-31T10:00:00Z"];
        check(
            &zones,
            "TZ=Pacific/Apia 0 0 1 * *",
            "2011-12-29T12:00:00Z",
            &first,
        );
        // Both are Fridays; the 30th was one too.
        let fridays = ["2011-12-23T10:00:00Z", "2012-01-05T10:00:00Z"];
        check(
            &zones,
            "TZ=Pacific/Apia 0 0 * * fri",
            "2011-12-20T12:00:00Z",
            &fridays,
        );
    }

    #[test]
    fn a_time_that_has_passed_is_never_the_next_one() {
        let Some(zones) = with_zoneinfo() else {
            return;
        };
        // 25 October began twice in Newfoundland, because the clock was put back at 0:01.
        let schedule = schedule("TZ=America/St_Johns 23 * 31 * 0", &zones);
        let after = time("1998-10-25T02:53:00Z");
        assert!(schedule.next(after).is_some_and(|next| next > after));
    }

    #[test]
    fn the_search_ends_after_five_years() {
        let utc = with_rule("UTC0");
        let never = [
            "0 0 30 2 *",
            ", * * * *",
            "* , * * *",
            "* * , * *",
            "* * * , *",
        ];
        for text in never {
            let schedule = schedule(text, &utc);
            assert!(schedule.never_comes(time("2026-01-01T00:00:00Z")), "{text}");
        }
        check(
            &utc,
            "0 0 29 2 *",
            "2095-12-31T23:59:59Z",
            &["2096-02-29T00:00:00Z", "never"],
        );
        check(
            &utc,
            "0 0 29 2 *",
            "2099-01-01T00:00:00Z",
            &["2104-02-29T00:00:00Z"],
        );
        // The year after the last one.
        check(&utc, "0 0 29 2 *", "2098-06-01T00:00:00Z", &["never"]);
    }

    #[test]
    fn every_counts_from_the_full_second() {
        let utc = with_rule("UTC0");
        check(
            &utc,
            "@every 90s",
            "2026-01-01T00:00:00.9Z",
            &["2026-01-01T00:01:30Z"],
        );
        check(
            &utc,
            "@every 1s",
            "1969-12-31T23:59:58.5Z",
            &["1969-12-31T23:59:59Z"],
        );
        check(&utc, "@every 2562047h", "9999-01-01T00:00:00Z", &["never"]);
        check(&utc, "@hourly", "9999-12-30T22:00:00Z", &["never"]);
    }

    #[test]
    fn the_next_time_is_later_and_at_a_minute_of_the_schedule() {
        let mut random = Random(88_172_645_463_325_252);
        let zones: Vec<Zones> = ["UTC0", BERLIN, NEW_YORK, "LHST-10:30LHDT-11,M10.1.0,M4.1.0"]
            .map(with_rule)
            .into();
        let node = with_zoneinfo();
        let named = [
            "Africa/Cairo",
            "America/Havana",
            "America/St_Johns",
            "Antarctica/Troll",
            "Asia/Beirut",
            "Europe/Dublin",
            "Pacific/Apia",
        ];
        for round in 0..1500 {
            let schedule = match &node {
                Some(node) if round % 2 == 0 => {
                    let text = format!("TZ={} {}", random.of(&named), random.fields());
                    schedule(&text, node)
                }
                _ => schedule(&random.fields(), random.of(&zones)),
            };
            walk(&schedule, &mut random, round % 3 == 0);
        }
    }

    /// Follows a schedule from a random time, or from a time near a change of the clock.
    fn walk(schedule: &Schedule, random: &mut Random, near_a_change: bool) {
        let Schedule::Spec(spec) = schedule else {
            unreachable!("it has fields");
        };
        let years_60 = 60 * 365 * 86_400;
        let mut after = Timestamp::from_second(random.below(years_60) as i64).unwrap();
        if let Some(change) = spec.zone.following(after).next().filter(|_| near_a_change) {
            let earlier = jiff::SignedDuration::from_secs(random.below(100_000) as i64);
            after = change.timestamp().checked_sub(earlier).unwrap();
        }
        for _ in 0..5 {
            let Some(next) = schedule.next(after) else {
                return;
            };
            let local = spec.zone.to_datetime(next);
            assert!(next > after, "{schedule:?} {after} {next}");
            // Not the hour: where the clock is changed by half an hour upstream misses it.
            assert!(spec.has_minute(local) && local.second() == 0);
            after = next;
        }
    }
}
