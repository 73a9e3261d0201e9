//! The two clocks: [`Moment`] for every delay and comparison, wall-clock [`Time`] for display only.
//!
//! Invariants: a `Moment` never jumps with the wall clock, and goes on while the machine sleeps (`CLOCK_BOOTTIME`). A
//! `Moment` means the same in every process of one boot, so a shim may record a `Moment` and the daemon may compare it.
//! In another boot, a `Moment` means nothing. A file that holds a `Moment` therefore also holds the [`boot_id`].

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::{Add, Sub};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

/// Returns a random number, at least 0 and below 1, for the jitter of a delay.
pub fn random_fraction() -> f64 {
    // Each `RandomState` has new random keys. An f64 has 53 bits for the fraction.
    (RandomState::new().build_hasher().finish() >> 11) as f64 / (1_u64 << 53) as f64
}

/// A point in time, as the duration since this boot with nanoseconds. Subtraction stops at zero.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Moment(Duration);

impl Moment {
    /// The present moment, from `CLOCK_BOOTTIME`.
    pub fn now() -> Self {
        let t = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME)
            .expect("CLOCK_BOOTTIME exists since Linux 2.6.39");
        Self(Duration::from(t))
    }

    /// Returns the moment `since_boot` after this boot; for tests and for values read from files.
    pub const fn from_boot(since_boot: Duration) -> Self {
        Self(since_boot)
    }

    /// Returns the time between this boot and the moment.
    pub const fn since_boot(self) -> Duration {
        self.0
    }

    /// Returns the time between `earlier` and this moment, or zero if `earlier` is the later of the two.
    pub const fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;
    fn add(self, d: Duration) -> Moment {
        Moment(self.0.saturating_add(d))
    }
}

impl Sub<Duration> for Moment {
    type Output = Moment;
    fn sub(self, d: Duration) -> Moment {
        Moment(self.0.saturating_sub(d))
    }
}

/// Returns the kernel's random id of this boot. Each boot has another id, so a record with another id is of an earlier
/// boot.
pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|s| s.trim().to_owned())
        .unwrap_or_default()
}

/// A wall-clock time of the v1 API with a precision of seconds (`metav1.Time`). Serialises as RFC 3339 in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(jiff::Timestamp);

impl Time {
    /// The present wall-clock time, for display only.
    pub fn now() -> Self {
        SystemTime::now().into()
    }

    /// Returns the whole seconds since 1970.
    pub fn unix_seconds(self) -> i64 {
        self.0.as_second()
    }

    /// Writes a time as RFC 3339 with a fraction of nine digits, as in `kubernetes.io/config.seen` and CRI logs.
    pub fn with_nanos(t: SystemTime) -> String {
        let t = jiff::Timestamp::try_from(t).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        format!("{t:.9}")
    }

    /// Writes a time as RFC 3339 with a fraction of exactly six digits, the form of `metav1.MicroTime`. An API server takes
    /// no other number of digits.
    pub fn with_micros(t: SystemTime) -> String {
        let t = jiff::Timestamp::try_from(t).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        format!("{t:.6}")
    }

    /// Parses an RFC 3339 text with its fraction of a second. Returns None for any other text.
    pub fn instant(text: &str) -> Option<SystemTime> {
        text.parse::<jiff::Timestamp>().ok().map(Into::into)
    }

    /// Writes a time as Go prints its `time.Time` in UTC: `2006-01-02 15:04:05.5 +0000 UTC`. None prints as Go's zero time.
    pub fn go(t: Option<SystemTime>) -> String {
        let t = t.and_then(|t| jiff::Timestamp::try_from(t).ok());
        t.map_or_else(
            || "0001-01-01 00:00:00 +0000 UTC".to_owned(),
            |t| t.to_string().replace('T', " ").replace('Z', " +0000 UTC"),
        )
    }
}

impl From<SystemTime> for Time {
    fn from(t: SystemTime) -> Self {
        let t = jiff::Timestamp::try_from(t).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        Self(jiff::Timestamp::from_second(t.as_second()).unwrap_or(jiff::Timestamp::UNIX_EPOCH))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0}", self.0)
    }
}

impl Serialize for Time {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let s = String::deserialize(d)?;
        s.parse().map(Time).map_err(serde::de::Error::custom)
    }
}

/// Writes a duration in Go's form (`1s`, `1m30s`, `1.5s`, `100ms`), which the kubelet's texts use.
pub fn go_duration(d: Duration) -> String {
    let n = d.as_nanos();
    if n == 0 {
        return "0s".into();
    }
    let fraction = |n: u128, unit: u128| {
        let s = format!("{}.{:0w$}", n / unit, n % unit, w = unit.ilog10() as usize);
        s.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    if n < 1_000 {
        return format!("{n}ns");
    }
    if n < 1_000_000 {
        return format!("{}µs", fraction(n, 1_000));
    }
    if n < 1_000_000_000 {
        return format!("{}ms", fraction(n, 1_000_000));
    }
    let seconds = n / 1_000_000_000;
    let (h, m) = (seconds / 3600, seconds / 60 % 60);
    let s = fraction(
        n - u128::from(h as u64 * 3600 + m as u64 * 60) * 1_000_000_000,
        1_000_000_000,
    );
    match (h, m) {
        (0, 0) => format!("{s}s"),
        (0, m) => format!("{m}m{s}s"),
        (h, m) => format!("{h}h{m}m{s}s"),
    }
}

/// The error for a text that is not a Go duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not a duration such as \"20s\", \"1m30s\" or \"100ms\"")]
pub struct DurationError {
    text: String,
}

/// Parses a Go duration: `20s`, `1m30s`, `1.5h`, `100ms`. A sign is an error. Every number except `0` needs a unit.
///
/// # Errors
/// Returns a [`DurationError`] if the text is not a Go duration.
pub fn parse_go_duration(text: &str) -> Result<Duration, DurationError> {
    const UNITS: [(&str, f64); 7] = [
        ("ns", 1e-9),
        ("us", 1e-6),
        ("µs", 1e-6),
        ("ms", 1e-3),
        ("s", 1.0),
        ("m", 60.0),
        ("h", 3600.0),
    ];
    let bad = || DurationError {
        text: text.to_owned(),
    };
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(bad)?;
        let (number, tail) = rest.split_at(digits);
        let unit = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        let (_, factor) = UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or_else(bad)?;
        seconds += number.parse::<f64>().map_err(|_| bad())? * factor;
        rest = tail;
    }
    if text.is_empty() {
        Err(bad())
    } else {
        Duration::try_from_secs_f64(seconds).map_err(|_| bad())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_go(nanos: u64, expected: &str) {
        assert_eq!(go_duration(Duration::from_nanos(nanos)), expected);
    }

    #[test]
    fn a_random_fraction_lies_between_0_and_1_and_differs() {
        let fractions: Vec<f64> = (0..100).map(|_| random_fraction()).collect();
        assert!(fractions.iter().all(|f| (0.0..1.0).contains(f)));
        assert!(fractions.windows(2).any(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn durations_print_as_go_prints_them() {
        check_go(0, "0s");
        check_go(1, "1ns");
        check_go(1_100, "1.1µs");
        check_go(2_200_000, "2.2ms");
        check_go(1_000_000_000, "1s");
        check_go(1_500_000_000, "1.5s");
        check_go(90_000_000_000, "1m30s");
        check_go(300_000_000_000, "5m0s");
        check_go(3_661_000_000_000, "1h1m1s");
    }

    #[test]
    fn a_moment_ahead_is_zero_ago() {
        let t = Moment::from_boot(Duration::from_secs(5));
        assert_eq!(t.since(t + Duration::from_secs(1)), Duration::ZERO);
        assert_eq!(
            (t + Duration::from_secs(1)).since(t),
            Duration::from_secs(1)
        );
    }

    #[test]
    fn times_round_trip_as_rfc3339_seconds() {
        let t: Time = serde_json::from_str("\"2026-11-21T01:02:03Z\"").unwrap();
        assert_eq!(
            serde_json::to_string(&t).unwrap(),
            "\"2026-11-21T01:02:03Z\""
        );
        assert_eq!(
            Time::with_nanos(SystemTime::UNIX_EPOCH),
            "1970-01-01T00:00:00.000000000Z"
        );
        let whole = Time::instant("2026-11-21T01:02:03Z").unwrap();
        assert_eq!(Time::with_micros(whole), "2026-11-21T01:02:03.000000Z");
        let micros = whole + Duration::from_nanos(12_345_999);
        assert_eq!(Time::with_micros(micros), "2026-11-21T01:02:03.012345Z");
    }

    #[test]
    fn durations_as_go_writes_them() {
        let ms = |t| parse_go_duration(t).map(|d| d.as_millis()).ok();
        assert_eq!(
            [ms("20s"), ms("1m30s"), ms("1.5h"), ms("100ms"), ms("0")],
            [
                Some(20_000),
                Some(90_000),
                Some(5_400_000),
                Some(100),
                Some(0)
            ]
        );
        assert_eq!(
            [ms(""), ms("5"), ms("s"), ms("-1s"), ms("1x"), ms("1.2.3s")],
            [None; 6]
        );
    }
}
