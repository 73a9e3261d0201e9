//! The clock of controllers: a line of time that never jumps.
//!
//! Invariants: the line moves with the boot clock, so a jump of the wall clock neither holds a rollout up nor hurries it.
//! Over restarts and reboots the line never goes back, because each time that is written to the disk is its lower end
//! at the next start.

use std::time::SystemTime;

use jiff::Timestamp;

use crate::base::clock::Moment;
use crate::workloads::cron_job::WallClock;
use crate::workloads::observed::later;

/// A clock that begins at the wall clock, and never jumps with it.
#[derive(Clone, Copy, Debug)]
pub struct SteadyClock {
    /// The time on the line at the moment `began`.
    base: Timestamp,
    began: Moment,
    /// The newest time of the wall clock that was on the disk at the start.
    newest_written: Timestamp,
}

impl SteadyClock {
    /// Starts the line at the wall clock, or at the newest written time if that is later.
    pub fn start(wall: Timestamp, newest_written: Timestamp, now: Moment) -> Self {
        Self {
            base: wall.max(newest_written),
            began: now,
            newest_written,
        }
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
    fn the_line_moves_with_the_boot_clock_and_begins_at_the_later_time() {
        let clock = SteadyClock::start(time(1_000), time(5_000), moment(10));
        assert_eq!(clock.at(moment(10)), time(5_000));
        assert_eq!(clock.at(moment(70)), time(5_060));
        let clock = SteadyClock::start(time(9_000), time(5_000), moment(10));
        assert_eq!(clock.at(moment(11)), time(9_001));
    }
}
