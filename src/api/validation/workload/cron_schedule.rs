//! Validates the schedule and the time zone of a CronJob (pkg/apis/batch/validation: validateScheduleFormat,
//! validateTimeZone). The zone must be one of the node's zoneinfo, which [`Zones`] reads.

use crate::api::field::FieldError;
use crate::base::cron::{Schedule, Zones};

/// Longest part of a time zone's name.
const LONGEST_PART: usize = 14;

/// Adds the errors of a schedule. `old` is the schedule whose place it takes: an old one with a time zone in it may keep
/// it (workloads 7.5).
pub(super) fn schedule(
    errors: &mut Vec<FieldError>,
    schedule: &str,
    old: Option<&str>,
    zone: Option<&str>,
) {
    let path = "spec.schedule";
    if schedule.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    if let Err(why) = Schedule::parse(schedule, &Zones::of_node()) {
        errors.push(FieldError::invalid(path, schedule, why.to_string()));
    }
    let had_zone = old.is_some_and(|old| old.contains("TZ"));
    let detail = match (schedule.contains("TZ"), had_zone) {
        (true, true) if zone.is_some() => {
            "cannot use both timeZone field and TZ or CRON_TZ in schedule"
        }
        (true, false) => "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
        _ => return,
    };
    errors.push(FieldError::invalid(path, schedule, detail));
}

/// Adds the errors of a time zone's name.
pub(super) fn time_zone(errors: &mut Vec<FieldError>, zone: &str) {
    let path = "spec.timeZone";
    if zone.is_empty() {
        let detail = "timeZone must be nil or non-empty string";
        errors.push(FieldError::invalid(path, zone, detail));
    } else if !zone.split('/').all(is_part) {
        let detail = format!("unknown time zone {zone}");
        errors.push(FieldError::invalid(path, zone, detail));
    } else if zone.eq_ignore_ascii_case("Local") {
        let detail =
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errors.push(FieldError::invalid(path, zone, detail));
        // Only the name in this spelling is the node's zone.
        if zone != "Local" {
            let detail = format!("unknown time zone {zone}");
            errors.push(FieldError::invalid(path, zone, detail));
        }
    } else if let Err(why) = Zones::of_node().find(zone) {
        errors.push(FieldError::invalid(path, zone, why.to_string()));
    }
}

fn is_part(part: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_+".contains(&byte);
    let has_form = (1..=LONGEST_PART).contains(&part.len()) && part.bytes().all(is_allowed);
    has_form && part != "." && part != ".." && !part.starts_with('-')
}
