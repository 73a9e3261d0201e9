//! Times as kubectl prints them, and sizes as crictl prints them.

use std::fmt::Write as _;

use crate::base::clock::Time;

/// Returns a number of seconds in the form of apimachinery's `duration.HumanDuration`: `5s`, `2m3s`, `10m`, `3h5m`,
/// `9d`, `2y3d`.
pub fn duration(seconds: i64) -> String {
    const YEAR: i64 = 365;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let pair = |a: i64, a_unit: &str, b: i64, b_unit: &str| match b {
        0 => format!("{a}{a_unit}"),
        b => format!("{a}{a_unit}{b}{b_unit}"),
    };
    match () {
        () if seconds < -1 => "<invalid>".into(),
        () if seconds < 0 => "0s".into(),
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => pair(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => pair(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => pair(days, "d", hours % 24, "h"),
        () if days < 2 * YEAR => format!("{days}d"),
        () if days < 8 * YEAR => pair(days / YEAR, "y", days % YEAR, "d"),
        () => format!("{}y", days / YEAR),
    }
}

/// Returns the time between `then` and `now` as text; `<unknown>` for None.
pub fn since(then: Option<Time>, now: Time) -> String {
    then.map_or_else(
        || "<unknown>".into(),
        |t| duration(now.unix_seconds() - t.unix_seconds()),
    )
}

/// Returns how long ago something happened, for example `5s`. If it happened several times, the count and the time
/// since the first follow, for example `5s (x3 over 2m)`.
pub fn last_seen(count: u32, first: Time, last: Time, now: Time) -> String {
    let begun = since(Some(first), now);
    match count {
        0 | 1 => begun,
        n => format!("{} (x{n} over {begun})", since(Some(last), now)),
    }
}

/// Returns a time in the form of `describe`, for example `Mon, 02 Jan 2006 15:04:05 +0000`. This form is Go's RFC1123Z,
/// in UTC.
pub fn date(t: Time) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    // RFC 3339 in UTC has its fields at fixed places. 1 January 1970 was a Thursday.
    let s = t.to_string();
    let day = DAYS[t.unix_seconds().div_euclid(86400).rem_euclid(7) as usize];
    let month = s
        .get(5..7)
        .and_then(|m| m.parse::<usize>().ok())
        .and_then(|m| MONTHS.get(m.wrapping_sub(1)));
    match (s.get(8..10), month, s.get(0..4), s.get(11..19)) {
        (Some(d), Some(m), Some(y), Some(clock)) => {
            let mut out = String::new();
            let _ = write!(out, "{day}, {d} {m} {y} {clock} +0000");
            out
        }
        _ => s,
    }
}

/// Returns a size with three digits in decimal units, as `crictl images` prints it.
pub fn size(bytes: u64) -> String {
    let (mut value, mut unit) = (bytes as f64, "B");
    for next in ["kB", "MB", "GB", "TB"] {
        if value < 999.5 {
            break;
        }
        (value, unit) = (value / 1000.0, next);
    }
    match (unit, value) {
        ("B", _) => format!("{bytes}B"),
        (_, v) if v < 9.995 => format!("{v:.2}{unit}"),
        (_, v) if v < 99.95 => format!("{v:.1}{unit}"),
        (_, v) => format!("{v:.0}{unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits() {
        for (bytes, text) in [
            (0, "0B"),
            (999, "999B"),
            (1000, "1.00kB"),
            (12_345, "12.3kB"),
            (999_499, "999kB"),
            (999_500, "1.00MB"),
            (1_234_567_890, "1.23GB"),
        ] {
            assert_eq!(size(bytes), text, "{bytes}");
        }
    }

    #[track_caller]
    fn check(seconds: i64, expected: &str) {
        assert_eq!(duration(seconds), expected, "{seconds} s");
    }

    /// The cases of apimachinery's duration_test.go, and the limits of each row.
    #[test]
    fn durations_are_kubectls() {
        const M: i64 = 60;
        const H: i64 = 3600;
        const D: i64 = 24 * H;
        const Y: i64 = 365 * D;
        check(-2, "<invalid>");
        check(-1, "0s");
        check(0, "0s");
        check(1, "1s");
        check(70, "70s");
        check(119, "119s");
        check(120, "2m");
        check(190, "3m10s");
        check(10 * M - 1, "9m59s");
        check(10 * M, "10m");
        check(179 * M + 59, "179m");
        check(3 * H, "3h");
        check(3 * H + 5 * M, "3h5m");
        check(8 * H - 1, "7h59m");
        check(8 * H, "8h");
        check(47 * H + 59 * M, "47h");
        check(2 * D, "2d");
        check(2 * D + 3 * H, "2d3h");
        check(8 * D - 1, "7d23h");
        check(8 * D, "8d");
        check(2 * Y - 1, "729d");
        check(2 * Y, "2y");
        check(2 * Y + D, "2y1d");
        check(8 * Y - D, "7y364d");
        check(8 * Y, "8y");
    }

    #[test]
    fn dates_are_gos_rfc1123z() {
        let t: Time = serde_json::from_str("\"2026-11-21T01:02:03Z\"").unwrap();
        assert_eq!(date(t), "Sat, 21 Nov 2026 01:02:03 +0000");
        let t: Time = serde_json::from_str("\"1970-01-01T00:00:00Z\"").unwrap();
        assert_eq!(date(t), "Thu, 01 Jan 1970 00:00:00 +0000");
    }

    #[test]
    fn a_time_that_never_was_is_unknown() {
        assert_eq!(since(None, Time::now()), "<unknown>");
    }
}
