//! Reads schedules as robfig/cron's `ParseStandard` does (workloads 7.1 to 7.5).
//!
//! Invariants: what is accepted, and the text of each error, is upstream's. A prefix `TZ=` is read here; that new
//! objects may not have it is a matter of their validation.

use jiff::tz::TimeZone;

use super::duration;
use super::error::ScheduleError;
use super::field::{DAY_OF_MONTH, DAY_OF_WEEK, HOUR, MINUTE, MONTH, Values};
use super::zone::Zones;

/// A schedule of a CronJob.
#[derive(Clone, Debug, PartialEq)]
pub enum Schedule {
    /// Times that are named by their minutes, hours and days.
    Spec(SpecSchedule),
    /// A number of seconds after the last time (`@every`), at least 1.
    Every(i64),
}

/// The times that five fields name, in a time zone.
#[derive(Clone, Debug, PartialEq)]
pub struct SpecSchedule {
    /// Minutes from 0 to 59.
    pub minute: Values,
    /// Hours from 0 to 23.
    pub hour: Values,
    /// Days of the month from 1 to 31.
    pub day_of_month: Values,
    /// Months from 1 to 12.
    pub month: Values,
    /// Days of the week from 0, which is Sunday, to 6.
    pub day_of_week: Values,
    /// The time zone.
    pub zone: TimeZone,
}

impl Schedule {
    /// Reads a schedule. Without a prefix `TZ=` or `CRON_TZ=` it is in the node's zone.
    ///
    /// # Errors
    /// Returns a [`ScheduleError`] for a text that upstream refuses.
    pub fn parse(text: &str, zones: &Zones) -> Result<Self, ScheduleError> {
        if text.is_empty() {
            return Err(ScheduleError::Empty);
        }
        let (text, zone) = match text
            .strip_prefix("TZ=")
            .or_else(|| text.strip_prefix("CRON_TZ="))
        {
            Some(rest) => {
                let (name, rest) = rest.split_once(' ').ok_or(ScheduleError::OnlyZone)?;
                (rest.trim(), find_zone(name, zones)?)
            }
            None => (text, zones.local().clone()),
        };
        match text.starts_with('@') {
            true => parse_descriptor(text, zone),
            false => parse_fields(text, zone),
        }
    }
}

fn find_zone(name: &str, zones: &Zones) -> Result<TimeZone, ScheduleError> {
    zones.find(name).map_err(|error| ScheduleError::Zone {
        name: name.to_owned(),
        error,
    })
}

fn parse_fields(text: &str, zone: TimeZone) -> Result<Schedule, ScheduleError> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let &[minute, hour, day_of_month, month, day_of_week] = fields.as_slice() else {
        let fields = fields.into_iter().map(str::to_owned).collect();
        return Err(ScheduleError::FieldCount(fields));
    };
    Ok(Schedule::Spec(SpecSchedule {
        minute: MINUTE.parse(minute)?,
        hour: HOUR.parse(hour)?,
        day_of_month: DAY_OF_MONTH.parse(day_of_month)?,
        month: MONTH.parse(month)?,
        day_of_week: DAY_OF_WEEK.parse(day_of_week)?,
        zone,
    }))
}

/// Reads a word such as `@daily`. It is in lower case.
fn parse_descriptor(word: &str, zone: TimeZone) -> Result<Schedule, ScheduleError> {
    let fields = match word {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => return parse_every(word),
    };
    parse_fields(fields, zone)
}

fn parse_every(word: &str) -> Result<Schedule, ScheduleError> {
    let Some(duration) = word.strip_prefix("@every ") else {
        return Err(ScheduleError::Descriptor(word.to_owned()));
    };
    match duration::parse_nanoseconds(duration) {
        // Parts of a second are cut off.
        Ok(nanoseconds) => Ok(Schedule::Every((nanoseconds / 1_000_000_000).max(1))),
        Err(error) => Err(ScheduleError::Duration {
            descriptor: word.to_owned(),
            error,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time_zones::with_rule;

    fn parse(text: &str) -> Result<Schedule, ScheduleError> {
        Schedule::parse(text, &with_rule("XXX-5"))
    }

    #[track_caller]
    fn in_zone(text: &str, zone: &TimeZone) {
        let Ok(Schedule::Spec(schedule)) = parse(text) else {
            panic!("{text} has no fields");
        };
        assert_eq!(&schedule.zone, zone);
    }

    #[track_caller]
    fn refused(text: &str, error: &str) {
        assert_eq!(parse(text).unwrap_err().to_string(), error);
    }

    #[test]
    fn a_prefix_names_the_zone() {
        let local = TimeZone::posix("XXX-5").unwrap();
        in_zone("* * * * *", &local);
        in_zone("TZ=Local @daily", &local);
        in_zone("TZ=UTC  * *\t* * * ", &TimeZone::UTC);
        in_zone("CRON_TZ= @daily", &TimeZone::UTC);
    }

    #[test]
    fn a_prefix_makes_blanks_before_a_word_harmless() {
        in_zone("TZ=UTC  @daily", &TimeZone::UTC);
        refused(" @daily", "expected exactly 5 fields, found 1: [@daily]");
        refused("TZ=UTC ", "expected exactly 5 fields, found 0: []");
    }

    #[test]
    fn a_prefix_without_a_blank_is_an_error() {
        refused(
            "TZ=UTC\t* * * * *",
            "provided bad location UTC\t*: unknown time zone UTC\t*: this node has no zoneinfo and \
             knows only UTC; install tzdata, or use the time zone UTC",
        );
        refused(
            "CRON_TZ=0",
            "invalid schedule format: runtime error: slice bounds out of range [:-1]",
        );
    }

    #[test]
    fn every_is_at_least_a_second() {
        for (text, seconds) in [
            ("@every -5m", 1),
            ("@every 0", 1),
            ("TZ=UTC @every 90s500ms", 90),
        ] {
            assert_eq!(parse(text), Ok(Schedule::Every(seconds)));
        }
        refused("@every\t1s", "unrecognized descriptor: @every\t1s");
        refused(
            "@every  1s",
            "failed to parse duration @every  1s: time: invalid duration \" 1s\"",
        );
    }
}
