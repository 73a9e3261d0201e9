//! Seconds in a time zone, with Go's arithmetic in the gaps and overlaps that a change of the clock makes.
//!
//! Invariants: pure. Nothing overflows: beyond the years that a [`Timestamp`] has, the answer is None.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

/// A second in a time zone, with its date and time there.
#[derive(Clone, Copy, Debug)]
pub struct LocalTime<'z> {
    zone: &'z TimeZone,
    /// Seconds since 1970.
    unix: i64,
    civil: DateTime,
}

impl<'z> LocalTime<'z> {
    /// Returns the second that is so many seconds after 1970.
    pub fn at(zone: &'z TimeZone, unix: i64) -> Option<Self> {
        let time = Timestamp::from_second(unix).ok()?;
        let civil = zone.to_offset(time).to_datetime(time);
        Some(Self { zone, unix, civil })
    }

    /// Returns the second with this date and time in the zone, as Go's `time.Date` does: the offset is the one that
    /// is valid at the result, or the one behind the change where no result has its own offset.
    fn on(zone: &'z TimeZone, civil: DateTime) -> Option<Self> {
        let wall = Offset::UTC.to_timestamp(civil).ok()?.as_second();
        let first = wall.checked_sub(offset(zone, wall)?)?;
        Self::at(zone, wall.checked_sub(offset(zone, first)?)?)
    }

    /// Returns the time in UTC.
    pub fn timestamp(self) -> Option<Timestamp> {
        Timestamp::from_second(self.unix).ok()
    }

    /// Returns the seconds since 1970.
    pub fn unix(self) -> i64 {
        self.unix
    }

    /// Returns the date and time in the zone.
    pub fn civil(self) -> DateTime {
        self.civil
    }

    /// Returns the second that is so many seconds later.
    pub fn plus_seconds(self, seconds: i64) -> Option<Self> {
        Self::at(self.zone, self.unix.checked_add(seconds)?)
    }

    /// Returns the same time on a later day (Go's `AddDate(0, 0, days)`).
    pub fn plus_days(self, days: i64) -> Option<Self> {
        let hours = SignedDuration::from_hours(days.checked_mul(24)?);
        Self::on(self.zone, self.civil.checked_add(hours).ok()?)
    }

    /// Returns the same time on the same day of the next month (Go's `AddDate(0, 1, 0)`). A day that the month does
    /// not have is one of the month after it.
    pub fn plus_month(self) -> Option<Self> {
        let date = self.civil.date();
        let first = match date.month() {
            12 => Date::new(date.year().checked_add(1)?, 1, 1),
            month => Date::new(date.year(), month.checked_add(1)?, 1),
        };
        let days_on = i64::from(date.day()).checked_sub(1)?;
        let hours = SignedDuration::from_hours(days_on.checked_mul(24)?);
        let next = first.ok()?.to_datetime(self.civil.time());
        Self::on(self.zone, next.checked_add(hours).ok()?)
    }

    /// Returns the beginning of the month.
    pub fn start_of_month(self) -> Option<Self> {
        let first = self.civil.date().first_of_month();
        Self::on(self.zone, first.to_datetime(Time::midnight()))
    }

    /// Returns the beginning of the day.
    pub fn start_of_day(self) -> Option<Self> {
        Self::on(self.zone, self.civil.date().to_datetime(Time::midnight()))
    }

    /// Returns the beginning of the hour.
    pub fn start_of_hour(self) -> Option<Self> {
        let hour = Time::new(self.civil.hour(), 0, 0, 0).ok()?;
        Self::on(self.zone, self.civil.date().to_datetime(hour))
    }

    /// Returns the beginning of the minute of UTC (Go's `Truncate(time.Minute)`).
    pub fn start_of_minute(self) -> Option<Self> {
        self.plus_seconds(0_i64.checked_sub(self.unix.rem_euclid(60))?)
    }
}

fn offset(zone: &TimeZone, unix: i64) -> Option<i64> {
    let time = Timestamp::from_second(unix).ok()?;
    Some(i64::from(zone.to_offset(time).seconds()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time_zones::{BERLIN, NEW_YORK};

    #[track_caller]
    fn check(zone: &str, civil: &str, expected: &str) {
        let zone = TimeZone::posix(zone).unwrap();
        let time = LocalTime::on(&zone, civil.parse().unwrap()).unwrap();
        let expected: Timestamp = expected.parse().unwrap();
        assert_eq!(time.timestamp().unwrap(), expected);
    }

    #[test]
    fn a_time_in_a_gap_is_an_hour_off() {
        // East of Greenwich before the change, west of it after the change.
        check(BERLIN, "2026-03-29T02:30", "2026-03-29T01:30:00Z");
        check(NEW_YORK, "2026-03-08T02:30", "2026-03-08T06:30:00Z");
    }

    #[test]
    fn a_time_that_comes_twice_is_the_first_or_the_second() {
        check(BERLIN, "2026-10-25T02:30", "2026-10-25T01:30:00Z");
        check(NEW_YORK, "2026-11-01T01:30", "2026-11-01T05:30:00Z");
    }

    #[test]
    fn a_day_that_a_month_lacks_is_one_of_the_month_after_it() {
        let utc = TimeZone::UTC;
        let at = |text: &str| LocalTime::on(&utc, text.parse().unwrap()).unwrap();
        let month_later = |text| at(text).plus_month().unwrap().civil();
        assert_eq!(
            month_later("2026-01-31T05:00"),
            at("2026-03-03T05:00").civil()
        );
        assert_eq!(
            month_later("2026-12-01T00:00"),
            at("2027-01-01T00:00").civil()
        );
    }

    #[test]
    fn the_last_year_ends_without_a_panic() {
        let utc = TimeZone::UTC;
        let last = LocalTime::at(&utc, Timestamp::MAX.as_second()).unwrap();
        assert!(last.plus_seconds(1).is_none());
        assert!(last.plus_days(1).is_none());
        assert!(last.plus_days(i64::MAX).is_none());
        assert!(last.plus_month().is_none());
    }
}
