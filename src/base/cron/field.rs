//! The five fields of a schedule: lists, ranges, steps and names (workloads 7.1, 7.2).
//!
//! Invariants: pure. What is accepted, and the text of each error, is that of robfig/cron's parser.

use std::num::IntErrorKind;

use super::error::ScheduleError;

/// A field of a schedule: its bounds, and the names of its values.
pub struct Field {
    min: u8,
    max: u8,
    /// Names of the values from `min` on.
    names: &'static [&'static str],
}

pub const MINUTE: Field = Field::numbers(0, 59);
pub const HOUR: Field = Field::numbers(0, 23);
pub const DAY_OF_MONTH: Field = Field::numbers(1, 31);
pub const MONTH: Field = Field {
    min: 1,
    max: 12,
    names: &[
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ],
};
pub const DAY_OF_WEEK: Field = Field {
    min: 0,
    max: 6,
    names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
};

/// The values of a field that a schedule names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Values {
    /// A bit for each value.
    bits: u64,
    /// True if the field has a star, which matters for the two fields of days (workloads 7.3).
    is_star: bool,
}

impl Values {
    const NONE: Self = Self {
        bits: 0,
        is_star: false,
    };

    /// Returns every `step`-th value from `first` to `last`.
    fn range(first: u8, last: u8, step: u64) -> Self {
        let step = usize::try_from(step).unwrap_or(usize::MAX).max(1);
        let values = (first..=last).step_by(step);
        Self {
            bits: values.fold(0, |bits, value| bits | bit(value)),
            is_star: false,
        }
    }

    /// True if the schedule names this value.
    pub fn contains(self, value: u8) -> bool {
        self.bits & bit(value) != 0
    }

    /// True if the schedule names no value, as with a lone comma.
    pub fn is_empty(self) -> bool {
        self.bits == 0
    }

    /// True if the field has a star, and is no longer restricted by a step (workloads 7.3).
    pub fn is_star(self) -> bool {
        self.is_star
    }

    /// Returns the values in their order.
    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..64).filter(move |value| self.contains(*value))
    }

    fn and(self, other: Self) -> Self {
        Self {
            bits: self.bits | other.bits,
            is_star: self.is_star || other.is_star,
        }
    }
}

fn bit(value: u8) -> u64 {
    1_u64.checked_shl(value.into()).unwrap_or(0)
}

impl Field {
    const fn numbers(min: u8, max: u8) -> Self {
        Self {
            min,
            max,
            names: &[],
        }
    }

    /// Reads a list of ranges. Empty items of the list are ignored.
    ///
    /// # Errors
    /// Returns a [`ScheduleError`] with the first range that is wrong.
    pub fn parse(&self, text: &str) -> Result<Values, ScheduleError> {
        text.split(',')
            .filter(|range| !range.is_empty())
            .try_fold(Values::NONE, |values, range| {
                Ok(values.and(self.parse_range(range)?))
            })
    }

    /// Reads `*`, `N`, `N-M`, each with or without `/STEP`. What stands between a star and the slash is ignored.
    fn parse_range(&self, range: &str) -> Result<Values, ScheduleError> {
        let mut parts = range.split('/');
        let ends = parts.next().unwrap_or_default();
        let mut span = self.parse_ends(ends, range)?;
        let mut every = 1;
        match (parts.next(), parts.next()) {
            (None, _) => {}
            (Some(step), None) => {
                every = parse_number(step)?;
                // `N/STEP` goes on to the maximum.
                if !ends.contains('-') {
                    span.last = self.max.into();
                }
                span.is_star &= every <= 1;
            }
            _ => return Err(ScheduleError::TooManySlashes(range.to_owned())),
        }
        self.values(span, every, range)
    }

    /// Returns the two ends of a range.
    fn parse_ends(&self, ends: &str, range: &str) -> Result<Span, ScheduleError> {
        let mut ends = ends.split('-');
        let low = ends.next().unwrap_or_default();
        if low == "*" || low == "?" {
            return Ok(Span {
                first: self.min.into(),
                last: self.max.into(),
                is_star: true,
            });
        }
        let first = self.parse_value(low)?;
        let last = match (ends.next(), ends.next()) {
            (None, _) => first,
            (Some(high), None) => self.parse_value(high)?,
            _ => return Err(ScheduleError::TooManyHyphens(range.to_owned())),
        };
        Ok(Span {
            first,
            last,
            is_star: false,
        })
    }

    /// Reads a number, or a name in any case.
    fn parse_value(&self, text: &str) -> Result<u64, ScheduleError> {
        let mut values = (u64::from(self.min)..).zip(self.names);
        match values.find(|(_, name)| name.eq_ignore_ascii_case(text)) {
            Some((value, _)) => Ok(value),
            None => parse_number(text),
        }
    }

    /// Checks a range and returns its values.
    fn values(&self, span: Span, every: u64, range: &str) -> Result<Values, ScheduleError> {
        let Span { first, last, .. } = span;
        let range = || range.to_owned();
        if first < self.min.into() {
            let (min, range) = (self.min, range());
            return Err(ScheduleError::BelowMinimum { first, min, range });
        }
        // A number that does not fit into a byte is above each maximum.
        let Some(end) = u8::try_from(last).ok().filter(|end| *end <= self.max) else {
            let (max, range) = (self.max, range());
            return Err(ScheduleError::AboveMaximum { last, max, range });
        };
        let Some(begin) = u8::try_from(first).ok().filter(|begin| *begin <= end) else {
            let range = range();
            return Err(ScheduleError::Backwards { first, last, range });
        };
        if every == 0 {
            return Err(ScheduleError::ZeroStep(range()));
        }
        let mut values = Values::range(begin, end, every);
        values.is_star = span.is_star;
        Ok(values)
    }
}

/// The two ends of a range.
struct Span {
    first: u64,
    last: u64,
    is_star: bool,
}

/// Reads a number as Go's `strconv.Atoi` does, with a sign and leading zeros.
fn parse_number(text: &str) -> Result<u64, ScheduleError> {
    let (is_negative, digits) = match text.strip_prefix(['+', '-']) {
        Some(digits) => (text.starts_with('-'), digits),
        None => (false, text),
    };
    let magnitude = match digits.parse::<u64>() {
        // Rust reads a second sign.
        _ if digits.starts_with('+') => return Err(not_a_number(text)),
        Ok(magnitude) => magnitude,
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => return Err(too_large(text)),
        Err(_) => return Err(not_a_number(text)),
    };
    let limit = i64::MAX.unsigned_abs();
    match is_negative && magnitude > 0 {
        false if magnitude > limit => Err(too_large(text)),
        false => Ok(magnitude),
        true if magnitude > limit.saturating_add(1) => Err(too_large(text)),
        true => Err(ScheduleError::Negative {
            magnitude,
            text: text.to_owned(),
        }),
    }
}

fn not_a_number(text: &str) -> ScheduleError {
    ScheduleError::NotANumber {
        text: text.to_owned(),
    }
}

fn too_large(text: &str) -> ScheduleError {
    ScheduleError::TooLarge {
        text: text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(field: &Field, text: &str, values: &[u8], is_star: bool) {
        let read = field.parse(text).unwrap();
        assert_eq!(read.iter().collect::<Vec<_>>(), values);
        assert_eq!(read.is_star(), is_star);
        assert_eq!(read.is_empty(), values.is_empty());
    }

    #[track_caller]
    fn refused(text: &str, error: &str) {
        assert_eq!(MINUTE.parse(text).unwrap_err().to_string(), error);
    }

    #[test]
    fn odd_fields_are_read_as_upstream_does() {
        check(&DAY_OF_WEEK, "*-x-y", &[0, 1, 2, 3, 4, 5, 6], true);
        check(&DAY_OF_WEEK, "*-x/3", &[0, 3, 6], false);
        check(&DAY_OF_WEEK, "?/1", &[0, 1, 2, 3, 4, 5, 6], true);
        check(&DAY_OF_WEEK, "2,*/2", &[0, 2, 4, 6], false);
        check(&DAY_OF_WEEK, "2,*", &[0, 1, 2, 3, 4, 5, 6], true);
        check(&DAY_OF_WEEK, "Wed/2", &[3, 5], false);
        check(&DAY_OF_WEEK, "1-5/9223372036854775807", &[1], false);
        check(&MONTH, "+5,007,DEC", &[5, 7, 12], false);
        check(&DAY_OF_MONTH, ",,", &[], false);
    }

    #[test]
    fn numbers_are_refused_in_the_words_of_go() {
        for text in ["++5", "1_0", "0x1", "٣", "9999999999999999999x"] {
            refused(
                text,
                &format!(
                    "failed to parse int from {text}: strconv.Atoi: parsing \"{text}\": invalid syntax"
                ),
            );
        }
        for text in ["9223372036854775808", "99999999999999999999x"] {
            refused(
                text,
                &format!(
                    "failed to parse int from {text}: strconv.Atoi: parsing \"{text}\": value out of range"
                ),
            );
        }
        refused("*/-0", "step of range should be a positive number: */-0");
        refused("*/-3", "negative number (-3) not allowed: -3");
        refused(
            "9223372036854775807",
            "end of range (9223372036854775807) above maximum (59): 9223372036854775807",
        );
        refused(
            "300-5",
            "beginning of range (300) beyond end of range (5): 300-5",
        );
        refused(
            "5/",
            "failed to parse int from : strconv.Atoi: parsing \"\": invalid syntax",
        );
    }
}
