//! Time zones and schedules for tests.
#![allow(dead_code, reason = "each wing takes what it needs")]

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use crate::base::cron::{Schedule, Zones};

/// The change of the clock in Berlin, for nodes without zoneinfo.
pub const BERLIN: &str = "CET-1CEST,M3.5.0,M10.5.0/3";

/// The change of the clock in New York, for nodes without zoneinfo.
pub const NEW_YORK: &str = "EST5EDT,M3.2.0,M11.1.0";

/// Returns zones whose own zone has this rule and that know no other but UTC.
pub fn with_rule(rule: &str) -> Zones {
    Zones::new(TimeZoneDatabase::none(), TimeZone::posix(rule).unwrap())
}

/// Returns the zones of a node with zoneinfo, with UTC as its own. None if this machine has none.
pub fn with_zoneinfo() -> Option<Zones> {
    let zones = Zones::new(TimeZoneDatabase::from_env(), TimeZone::UTC);
    if !zones.has_zoneinfo() {
        crate::skip::skip("zoneinfo (tzdata)");
        return None;
    }
    Some(zones)
}

/// Returns a schedule in the node's own zone.
#[track_caller]
pub fn schedule(text: &str, zones: &Zones) -> Schedule {
    Schedule::parse(text, zones).unwrap()
}

/// Returns a time.
#[track_caller]
pub fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A generator of numbers that are the same in each run.
pub struct Random(pub u64);

impl Random {
    /// Returns a number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    /// Returns an item.
    pub fn of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        let index = self.below(items.len() as u64);
        &items[index as usize]
    }

    /// Returns a field of a schedule.
    pub fn field(&mut self, min: u64, max: u64) -> String {
        let first = min + self.below(max - min + 1);
        let last = first + self.below(max - first + 1);
        let step = 1 + self.below(max);
        match self.below(6) {
            0 | 1 => "*".to_owned(),
            2 => format!("*/{step}"),
            3 => format!("{first}"),
            4 => format!("{first}-{last}/{step}"),
            _ => format!("{first},{last}"),
        }
    }

    /// Returns five fields.
    pub fn fields(&mut self) -> String {
        [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)]
            .map(|(min, max)| self.field(min, max))
            .join(" ")
    }
}
