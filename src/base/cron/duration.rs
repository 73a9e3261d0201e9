//! Durations as Go reads them, for `@every` (time.ParseDuration).
//!
//! Invariants: pure. Errors have Go's texts.

use super::go_text::quote_bytes;

/// The largest number of nanoseconds that Go counts with before it looks at the sign.
const LIMIT: u64 = 1 << 63;

/// Nanoseconds of each unit. The micro sign and the Greek letter are two characters.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// A text that is not a duration, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// The text does not have the form of a duration, or the duration is too long.
    #[error("time: invalid duration {}", quote_bytes(.text))]
    Invalid {
        /// The whole text.
        text: String,
    },
    /// A number has no unit.
    #[error("time: missing unit in duration {}", quote_bytes(.text))]
    MissingUnit {
        /// The whole text.
        text: String,
    },
    /// A unit is unknown; Go has no days.
    #[error("time: unknown unit {} in duration {}", quote_bytes(.unit), quote_bytes(.text))]
    UnknownUnit {
        /// The unit.
        unit: String,
        /// The whole text.
        text: String,
    },
}

/// A fault in a part of a duration.
enum Fault<'t> {
    Invalid,
    MissingUnit,
    UnknownUnit(&'t str),
}

/// Returns the nanoseconds of a duration such as `1h30m`.
///
/// # Errors
/// Returns a [`DurationError`] for a text that Go does not read as a duration.
pub fn parse_nanoseconds(text: &str) -> Result<i64, DurationError> {
    let (negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if unsigned == "0" {
        return Ok(0);
    }
    let total = sum(unsigned).map_err(|fault| described(fault, text))?;
    signed(negative, total).ok_or_else(|| described(Fault::Invalid, text))
}

fn described(fault: Fault, text: &str) -> DurationError {
    let text = text.to_owned();
    match fault {
        Fault::Invalid => DurationError::Invalid { text },
        Fault::MissingUnit => DurationError::MissingUnit { text },
        Fault::UnknownUnit(unit) => DurationError::UnknownUnit {
            unit: unit.to_owned(),
            text,
        },
    }
}

fn signed(negative: bool, nanoseconds: u64) -> Option<i64> {
    match negative {
        true => 0_i64.checked_sub_unsigned(nanoseconds),
        false => i64::try_from(nanoseconds).ok(),
    }
}

/// Adds up the numbers with their units.
fn sum(text: &str) -> Result<u64, Fault<'_>> {
    if text.is_empty() {
        return Err(Fault::Invalid);
    }
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (nanoseconds, tail) = leading_part(rest)?;
        total = within(total.checked_add(nanoseconds))?;
        rest = tail;
    }
    Ok(total)
}

fn within<'t>(nanoseconds: Option<u64>) -> Result<u64, Fault<'t>> {
    nanoseconds
        .filter(|sum| *sum <= LIMIT)
        .ok_or(Fault::Invalid)
}

/// Reads one number with its unit from the beginning of the text.
fn leading_part(text: &str) -> Result<(u64, &str), Fault<'_>> {
    let (whole, rest) = digits(text);
    let (fraction, rest) = rest.strip_prefix('.').map_or(("", rest), digits);
    if whole.is_empty() && fraction.is_empty() {
        return Err(Fault::Invalid);
    }
    let number = number(whole)?;
    let end = rest
        .find(|c: char| c == '.' || c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    let unit = unit(name)?;
    let nanoseconds = within(number.checked_mul(unit))?;
    Ok((
        within(nanoseconds.checked_add(part_of(unit, fraction)))?,
        rest,
    ))
}

fn digits(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(end)
}

fn number(digits: &str) -> Result<u64, Fault<'_>> {
    match digits {
        "" => Ok(0),
        _ => within(digits.parse().ok()),
    }
}

fn unit(name: &str) -> Result<u64, Fault<'_>> {
    if name.is_empty() {
        return Err(Fault::MissingUnit);
    }
    let known = UNITS.iter().find(|(unit, _)| *unit == name);
    known
        .map(|(_, nanoseconds)| *nanoseconds)
        .ok_or(Fault::UnknownUnit(name))
}

/// Returns the nanoseconds of a decimal fraction of a unit. Go ignores digits that its integer cannot hold.
fn part_of(unit: u64, fraction: &str) -> u64 {
    let mut value: u64 = 0;
    let mut scale = 1.0;
    for digit in fraction.bytes() {
        let more = value
            .checked_mul(10)
            .and_then(|tens| tens.checked_add(u64::from(digit.saturating_sub(b'0'))));
        let Some(more) = more.filter(|more| *more <= LIMIT) else {
            break;
        };
        value = more;
        scale *= 10.0;
    }
    (value as f64 * (unit as f64 / scale)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, nanoseconds: i64) {
        assert_eq!(parse_nanoseconds(text), Ok(nanoseconds));
    }

    #[track_caller]
    fn refused(text: &str, error: &str) {
        assert_eq!(parse_nanoseconds(text).unwrap_err().to_string(), error);
    }

    #[test]
    fn durations_are_read_as_go_does() {
        check("0", 0);
        check("-0", 0);
        check("1h30m", 5_400_000_000_000);
        check("1.5h", 5_400_000_000_000);
        check(".5s", 500_000_000);
        check("5.s", 5_000_000_000);
        check("+1µs1μs1us1ns", 3_001);
        check("-1m", -60_000_000_000);
        check("0.3333333333333333333h", 1_200_000_000_000);
        check("0.100000000000000000000000s", 100_000_000);
        check("9223372036854775807ns", i64::MAX);
        check("-9223372036854775808ns", i64::MIN);
    }

    #[test]
    fn texts_that_are_no_durations_are_refused_in_gos_words() {
        refused("", r#"time: invalid duration """#);
        refused("-", r#"time: invalid duration "-""#);
        refused(".s", r#"time: invalid duration ".s""#);
        refused("1s x", r#"time: unknown unit "s x" in duration "1s x""#);
        refused("3", r#"time: missing unit in duration "3""#);
        refused("1s2", r#"time: missing unit in duration "1s2""#);
        refused("1d", r#"time: unknown unit "d" in duration "1d""#);
        refused(
            "1ä",
            r#"time: unknown unit "\xc3\xa4" in duration "1\xc3\xa4""#,
        );
        for text in [
            "9223372036854775808ns",
            "9223372036854775809ns",
            "99999999999999999999s",
            "2562048h",
            "2562047h2562047h",
        ] {
            refused(text, &format!("time: invalid duration \"{text}\""));
        }
    }
}
