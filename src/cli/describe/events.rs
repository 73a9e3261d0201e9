//! The events in the output of `describe`, in kubectl's layout.

use std::sync::Arc;

use super::lines::{line, put};
use crate::base::clock::Time;
use crate::cli::human;
use crate::cli::terminal::one_line;
use crate::pods::events::Event;

/// Writes the events, or that there are none.
pub(super) fn write(w: &mut String, events: &[Arc<Event>], now: Time) {
    if events.is_empty() {
        return line(w, "Events", "<none>");
    }
    put!(
        w,
        "Events:\n  Type\tReason\tAge\tFrom\tMessage\n  ----\t------\t----\t----\t-------"
    );
    for e in events {
        let age = human::last_seen(e.count, e.first_timestamp, e.last_timestamp, now);
        // A message of several lines, such as a probe's output, becomes one row. kubectl only trims such a
        // message.
        put!(
            w,
            "  {:?}\t{}\t{age}\tpodprobe\t{}",
            e.type_,
            e.reason,
            one_line(e.message.trim())
        );
    }
}
