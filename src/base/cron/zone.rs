//! Time zones of schedules, from the node's zoneinfo (workloads 7.5).
//!
//! Invariants: a zone has exactly the name that the zoneinfo has; upper and lower case differ. No zone is built into
//! the program except UTC. The zoneinfo is read by [`Zones::of_node`] and [`Zones::find`] alone.

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};

/// A name of a time zone that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZoneError {
    /// The zoneinfo has no such zone.
    #[error("unknown time zone {name}")]
    Unknown {
        /// Name of the zone.
        name: String,
    },
    /// The name is a path that leads out of the zoneinfo.
    #[error("time: invalid location name")]
    Invalid,
    /// The node has no zoneinfo.
    #[error(
        "unknown time zone {name}: this node has no zoneinfo and knows only UTC; install tzdata, or \
         use the time zone UTC"
    )]
    NoZoneinfo {
        /// Name of the zone.
        name: String,
    },
}

/// The time zones of the node: its zoneinfo, and its own zone for schedules that name none.
#[derive(Clone, Debug)]
pub struct Zones {
    database: TimeZoneDatabase,
    local: TimeZone,
}

impl Zones {
    /// Reads which zones the node has, and which is its own. The names take about 200 KiB of memory, so a caller
    /// makes this when the first CronJob appears. A change of the node's own zone is seen by the next call, after at
    /// most five minutes. A node without a zone of its own is in UTC.
    pub fn of_node() -> Self {
        Self::new(
            TimeZoneDatabase::from_env(),
            TimeZone::try_system().unwrap_or(TimeZone::UTC),
        )
    }

    /// Returns the zones of a database, with this zone for schedules that name none.
    pub fn new(database: TimeZoneDatabase, local: TimeZone) -> Self {
        Self { database, local }
    }

    /// Returns the zone for schedules that name none.
    pub fn local(&self) -> &TimeZone {
        &self.local
    }

    /// Returns the name of the zone for schedules that name none: `Local` if the node has a zone without a name.
    pub fn local_name(&self) -> &str {
        self.local.iana_name().unwrap_or("Local")
    }

    /// True if the node has zoneinfo. Without it only UTC is known, and a caller may look again later.
    pub fn has_zoneinfo(&self) -> bool {
        !self.database.is_definitively_empty()
    }

    /// Returns the zone with this name, as Go's `time.LoadLocation` does: the empty name is UTC, and `Local` is the
    /// node's zone.
    ///
    /// # Errors
    /// Returns a [`ZoneError`] for an unknown name.
    pub fn find(&self, name: &str) -> Result<TimeZone, ZoneError> {
        match name {
            "" | "UTC" => return Ok(TimeZone::UTC),
            "Local" => return Ok(self.local.clone()),
            _ if name.contains("..") || name.starts_with(['/', '\\']) => {
                return Err(ZoneError::Invalid);
            }
            "Etc/UTC" if !self.has_zoneinfo() => return Ok(TimeZone::UTC),
            _ => {}
        }
        let name = || name.to_owned();
        if !self.has_zoneinfo() {
            return Err(ZoneError::NoZoneinfo { name: name() });
        }
        // The database ignores case, and has a zone `Etc/Unknown` without a name.
        let found = self.database.get(&name()).ok();
        found
            .filter(|zone| zone.iana_name() == Some(&name()))
            .ok_or_else(|| ZoneError::Unknown { name: name() })
    }
}

/// Writes a time with its date and offset in a zone, to the second, as Go's `time.RFC3339` does.
pub fn rfc3339_in(time: Timestamp, zone: &TimeZone) -> String {
    let offset = zone.to_offset(time);
    let local = offset
        .to_datetime(time)
        .strftime("%Y-%m-%dT%H:%M:%S")
        .to_string();
    if offset.seconds() == 0 {
        return local + "Z";
    }
    let minutes = offset.seconds() / 60;
    let sign = if minutes < 0 { '-' } else { '+' };
    let minutes = minutes.unsigned_abs();
    format!("{local}{sign}{:02}:{:02}", minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time_zones::{BERLIN, with_rule, with_zoneinfo};

    fn without_zoneinfo() -> Zones {
        Zones::new(TimeZoneDatabase::none(), TimeZone::UTC)
    }

    #[track_caller]
    fn refused(zones: &Zones, name: &str, text: &str) {
        assert_eq!(zones.find(name).unwrap_err().to_string(), text);
    }

    #[test]
    fn a_zone_has_its_exact_name() {
        let Some(zones) = with_zoneinfo() else {
            return;
        };
        let berlin = zones.find("Europe/Berlin").unwrap();
        assert_eq!(berlin.iana_name(), Some("Europe/Berlin"));
        for name in [
            "europe/berlin",
            "Europe",
            "Nowhere/City",
            "utc",
            "local",
            "UTC+1",
            "Etc/Unknown",
            "Europe//Berlin",
        ] {
            refused(&zones, name, &format!("unknown time zone {name}"));
        }
    }

    #[test]
    fn a_path_out_of_the_zoneinfo_is_no_zone() {
        for name in ["../etc/passwd", "/Europe/Berlin", "\\a", "a..b"] {
            refused(&without_zoneinfo(), name, "time: invalid location name");
        }
    }

    #[test]
    fn a_node_without_zoneinfo_knows_only_utc() {
        let zones = without_zoneinfo();
        assert!(!zones.has_zoneinfo());
        for name in ["", "UTC", "Etc/UTC"] {
            assert_eq!(zones.find(name), Ok(TimeZone::UTC));
        }
        refused(
            &zones,
            "Europe/Berlin",
            "unknown time zone Europe/Berlin: this node has no zoneinfo and knows only UTC; install tzdata, or use the \
             time zone UTC",
        );
    }

    #[test]
    fn the_local_zone_has_a_name() {
        let zones = with_rule(BERLIN);
        assert_eq!(zones.local_name(), "Local");
        assert_eq!(zones.find("Local").as_ref(), Ok(zones.local()));
        assert_eq!(without_zoneinfo().local_name(), "UTC");
    }

    #[test]
    fn times_are_written_as_go_does() {
        let time = "2026-03-29T00:59:59.9Z".parse().unwrap();
        for (zone, text) in [
            ("UTC0", "2026-03-29T00:59:59Z"),
            ("GMT0BST,M3.5.0/1,M10.5.0", "2026-03-29T00:59:59Z"),
            ("NST3:30NDT,M3.2.0,M11.1.0", "2026-03-28T22:29:59-02:30"),
            ("XXX-5:45", "2026-03-29T06:44:59+05:45"),
            ("XXX0:00:30", "2026-03-29T00:59:29+00:00"),
        ] {
            let zone = TimeZone::posix(zone).unwrap();
            assert_eq!(rfc3339_in(time, &zone), text);
        }
    }
}
