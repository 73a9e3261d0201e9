//! The metrics of the sync loop and of the events that it handles.
//!
//! Invariants: the metrics keep no channel open. The loop has the only receivers, so a sender notices when the loop has
//! ended.

use std::sync::{OnceLock, Weak};
use std::time::Duration;

use super::Channels;
use crate::base::clock::Moment;
use crate::base::metrics::counters::{Durations, Tally};
use crate::base::metrics::{Family, Kind};
use crate::pods::workers::metrics::container_type;

/// The metrics of the loop. The loop counts its work, and a scrape reads the counts.
#[derive(Debug, Default)]
pub struct LoopMetrics {
    iterations: Durations,
    rejections: Tally,
    terminated: Tally,
    /// The channels of the loop. They are not set before the loop is made, and are dropped when the loop has ended.
    channels: OnceLock<Weak<Channels>>,
}

impl LoopMetrics {
    /// Sets the channels that the loop reads.
    pub(super) fn watch(&self, channels: Weak<Channels>) {
        let _ = self.channels.set(channels);
    }

    /// Records the duration of the handling of one event.
    pub(super) fn turned(&self, took: Duration) {
        self.iterations.observe(took);
    }

    /// Counts a rejected pod.
    pub(super) fn rejected(&self, reason: &str) {
        self.rejections.count(&[("reason", reason)]);
    }

    /// Counts a container that has ended.
    pub(super) fn ended(&self, is_init: bool, exit_code: i32, reason: &str) {
        let code = exit_code.to_string();
        let labels = [
            container_type(is_init),
            ("exit_code", code.as_str()),
            ("reason", reason),
        ];
        self.terminated.count(&labels);
    }

    /// Returns the number of rejections and ends that have no series of their own.
    pub fn left_out(&self) -> u64 {
        self.rejections.left_out() + self.terminated.left_out()
    }

    /// Appends all metric families. `last` is the time of the loop's last turn. Without a turn, `started` counts as
    /// this time.
    pub fn write(&self, last: Option<Moment>, started: Moment, now: Moment, out: &mut String) {
        let name = "podprobe_sync_loop_iteration_duration_seconds";
        let help = "Duration in seconds of the handling of one event by the sync loop.";
        self.iterations
            .write("", &mut Family::new(out, name, Kind::Histogram, help));
        let name = "podprobe_sync_loop_seconds_since_progress";
        let help = "Seconds since the sync loop last turned; it turns at least once a second.";
        let since = now.since(last.unwrap_or(started)).as_secs_f64();
        Family::new(out, name, Kind::Gauge, help).real(&[], since);
        self.write_channels(out);
        let name = "kubelet_admission_rejections_total";
        let help = "Cumulative number pod admission rejections by the Kubelet.";
        self.rejections
            .write(&mut Family::new(out, name, Kind::Counter, help));
        let name = "kubelet_terminated_containers_total";
        let help = "Cumulative number of containers that have ended, by exit code and reason";
        self.terminated
            .write(&mut Family::new(out, name, Kind::Counter, help));
    }

    fn write_channels(&self, out: &mut String) {
        let Some(channels) = self.channels.get().and_then(Weak::upgrade) else {
            return;
        };
        let name = "podprobe_sync_loop_channel_depth";
        let help = "What waits for the sync loop, by channel.";
        let mut depth = Family::new(out, name, Kind::Gauge, help);
        for (channel, waiting, _) in channels.depths() {
            depth.value(&[("channel", channel)], waiting as u64);
        }
        let name = "podprobe_sync_loop_channel_capacity";
        let help = "How much may wait for the sync loop, by channel.";
        let mut capacity = Family::new(out, name, Kind::Gauge, help);
        for (channel, _, most) in channels.depths() {
            capacity.value(&[("channel", channel)], most as u64);
        }
    }
}
