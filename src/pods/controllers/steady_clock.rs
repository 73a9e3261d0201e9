//! The clock of controllers: a line of time that never jumps.
//!
//! Invariants: the line moves with the boot clock, so a jump of the wall clock neither holds a rollout up nor hurries it.
//! Over restarts and reboots the line never goes back, because each time that is written to the disk is its lower end
//! at the next start.

use std::time::SystemTime;

use jiff::{SignedDuration, Timestamp};

use crate::base::clock::Moment;
use crate::workloads::cron_job::WallClock;
use crate::workloads::observed::later;

/// A smaller difference between the wall clock and the boot clock is none: a time server moves the clock a little.
const JUMP: SignedDuration = SignedDuration::from_secs(1);

/// A clock that begins at the wall clock, and never jumps with it.
#[derive(Clone, Copy, Debug)]
pub struct SteadyClock {
    /// The time on the line at the moment `began`.
    base: Timestamp,
    began: Moment,
    /// The newest time of the wall clock that was on the disk at the start.
    newest_written: Timestamp,
    /// The wall clock at the last look, and the moment of that look.
    looked: (Timestamp, Moment),
}

impl SteadyClock {
    /// Starts the line at the wall clock, or at the newest written time if that is later.
    pub fn start(wall: Timestamp, newest_written: Timestamp, now: Moment) -> Self {
        Self {
            base: wall.max(newest_written),
            began: now,
            newest_written,
            looked: (wall, now),
        }
    }

    /// True if somebody has set the wall clock since the last look. Times of schedules then come at other moments.
    pub fn has_jumped(&mut self, wall: Timestamp, now: Moment) -> bool {
        let (wall_then, then) = std::mem::replace(&mut self.looked, (wall, now));
        let expected = later(wall_then, now.since(then));
        wall.duration_since(expected).abs() > JUMP
    }

    /// Returns the time on the line.
    pub fn at(&self, now: Moment) -> Timestamp {
        later(self.base, now.since(self.began))
    }

    /// Returns the wall clock, and whether it can be trusted for schedules (workloads 7.16).
    pub fn wall(&self, now: Moment) -> WallClock {
        let since_boot = now.since_boot();
        WallClock::new(wall_clock(), Some(self.newest_written), since_boot)
    }
}

/// Returns the wall clock.
pub fn wall_clock() -> Timestamp {
    Timestamp::try_from(SystemTime::now()).unwrap_or(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn moment(seconds: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(seconds))
    }

    fn time(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn a_wall_clock_that_is_set_is_seen_once() {
        let mut clock = SteadyClock::start(time(1_000), time(0), moment(10));
        assert!(!clock.has_jumped(time(1_060), moment(70)));
        assert!(
            !clock.has_jumped(time(1_071), moment(80)),
            "a second is no jump"
        );
        assert!(clock.has_jumped(time(5_000), moment(81)));
        assert!(!clock.has_jumped(time(5_001), moment(82)));
        assert!(clock.has_jumped(time(10), moment(83)));
        assert!(!clock.has_jumped(time(11), moment(84)));
    }

    #[test]
    fn the_line_moves_with_the_boot_clock_and_begins_at_the_later_time() {
        let clock = SteadyClock::start(time(1_000), time(5_000), moment(10));
        assert_eq!(clock.at(moment(10)), time(5_000));
        assert_eq!(clock.at(moment(70)), time(5_060));
        let clock = SteadyClock::start(time(9_000), time(5_000), moment(10));
        assert_eq!(clock.at(moment(11)), time(9_001));
    }
}
