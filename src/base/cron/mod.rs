//! Schedules in the form of cron: how they are read, and when they come next (workloads 7.1 to 7.7).
//!
//! Invariants: the answers are those of robfig/cron v3 and of the controller of Kubernetes, so that a manifest means
//! the same here. Every search ends. Only [`Zones`] reads files, those of the node's zoneinfo.

mod clock_changes;
mod duration;
mod error;
mod field;
mod go_text;
mod local_time;
mod next;
mod parse;
mod zone;

pub use clock_changes::{ChangedDay, ClockChange, clock_changes};
pub use duration::DurationError;
pub use error::ScheduleError;
pub use field::Values;
pub use parse::{Schedule, SpecSchedule};
pub use zone::{ZoneError, Zones, rfc3339_in};

pub use go_text::quote;
