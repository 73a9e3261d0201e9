//! The wall clock of schedules, and when it can be trusted (workloads 7.16).
//!
//! Invariants: pure. A node without a battery starts with a wrong time, often 1970. No Job is started by a clock that
//! is not trusted.

use std::time::Duration;

use jiff::Timestamp;

/// Time after the boot from which the clock is trusted, because nobody may ever set it.
pub const PATIENCE: Duration = Duration::from_secs(5 * 60);

/// 1 January 2020. An earlier time is that of a clock that nobody has set.
const UNSET_BEFORE: i64 = 1_577_836_800;

/// The wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallClock {
    /// Time of the wall clock.
    pub now: Timestamp,
    /// True if Jobs may be started by this clock.
    pub is_trusted: bool,
}

impl WallClock {
    /// Returns the clock, and whether it can be trusted: it has been set, and is later than the newest time that
    /// podprobe has ever written; or the node has been up for five minutes. A caller without trust looks again when the
    /// clock is set and after these minutes.
    pub fn new(now: Timestamp, newest_written: Option<Timestamp>, since_boot: Duration) -> Self {
        let is_plausible = !is_unset(now) && newest_written.is_none_or(|written| now > written);
        Self {
            now,
            is_trusted: is_plausible || since_boot >= PATIENCE,
        }
    }
}

/// True for a time that comes from a clock that nobody has set.
fn is_unset(time: Timestamp) -> bool {
    time.as_second() < UNSET_BEFORE
}

/// True if a time was written down on the same line of time as `now`: it is not in the future, and not from a clock
/// that was not set.
pub(super) fn is_on_line(time: Timestamp, now: Timestamp) -> bool {
    time <= now && (!is_unset(time) || is_unset(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(now: &str, written: Option<&str>, since_boot: u64, is_trusted: bool) {
        let time = |text: &str| text.parse().unwrap();
        let since_boot = Duration::from_secs(since_boot);
        let clock = WallClock::new(time(now), written.map(time), since_boot);
        assert_eq!(clock.is_trusted, is_trusted);
    }

    #[test]
    fn a_clock_is_trusted_when_it_is_later_than_all_that_was_written_or_after_five_minutes() {
        let written = Some("2026-11-23T10:00:00Z");
        check("2026-11-23T10:00:01Z", written, 0, true);
        check("2026-11-23T10:00:00Z", written, 0, false);
        check("2026-11-23T09:00:00Z", written, 299, false);
        check("2026-11-23T09:00:00Z", written, 300, true);
        check("2026-11-23T09:00:00Z", None, 0, true);
        check("1970-01-01T00:00:09Z", None, 9, false);
        check("2019-12-31T23:59:59Z", None, 9, false);
        check("1970-01-01T00:05:00Z", written, 300, true);
    }
}
