//! Metrics of the pulls and of the registries.

use std::time::Duration;

use super::reference::Reference;
use crate::base::metrics::counters::{Counter, Durations, Tally};
use crate::base::metrics::{Family, Kind};

/// Upper bounds of the histogram's buckets in seconds. They are the bounds of the kubelet.
const BUCKETS: [f64; 14] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 180.0, 300.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];

/// The way in which a pull ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pulled {
    Success,
    Failed,
    RegistryUnavailable,
    Cancelled,
}

/// Counters and durations of pulls. A pull writes them when it ends. A scrape reads them.
#[derive(Debug)]
pub struct PullMetrics {
    succeeded: Durations,
    failed: Counter,
    unavailable: Counter,
    cancelled: Counter,
    errors: Tally,
}

impl Default for PullMetrics {
    fn default() -> Self {
        Self {
            succeeded: Durations::new(&BUCKETS),
            failed: Counter::default(),
            unavailable: Counter::default(),
            cancelled: Counter::default(),
            errors: Tally::default(),
        }
    }
}

impl PullMetrics {
    /// Counts a pull that has ended. `how` is the way in which it ended, and `took` its duration without the wait for a
    /// slot.
    pub(super) fn pulled(&self, image: &Reference, how: Pulled, took: Duration) {
        let (counter, reason) = match how {
            Pulled::Success => return self.succeeded.observe(took),
            Pulled::Cancelled => return self.cancelled.count(),
            Pulled::Failed => (&self.failed, "failed"),
            Pulled::RegistryUnavailable => (&self.unavailable, "unavailable"),
        };
        counter.count();
        let registry = image.repository.split('/').next().unwrap_or_default();
        let labels = [("registry", registry), ("reason", reason)];
        self.errors.count(&labels);
    }

    /// Returns the number of pull errors that were not counted, because there were too many label sets.
    pub fn left_out(&self) -> u64 {
        self.errors.left_out()
    }

    /// Appends all metric families to `out`.
    pub fn write(&self, out: &mut String) {
        let help = "Pulls of images that have ended, by how.";
        let mut family = Family::new(out, "podprobe_image_pulls_total", Kind::Counter, help);
        for (result, n) in [
            ("cancelled", self.cancelled.get()),
            ("failed", self.failed.get()),
            ("registry_unavailable", self.unavailable.get()),
            ("success", self.succeeded.total()),
        ] {
            family.value(&[("result", result)], n);
        }
        let name = "podprobe_image_pull_duration_seconds";
        let help = "Duration in seconds of pulls that worked, without the wait for their turn.";
        self.succeeded
            .write("", &mut Family::new(out, name, Kind::Histogram, help));
        let name = "podprobe_registry_errors_total";
        let help = "Pulls that did not work, by the registry of the image; a mirror's errors count for it too.";
        self.errors
            .write(&mut Family::new(out, name, Kind::Counter, help));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pulls_are_counted_by_how_they_end_and_errors_by_registry() {
        let metrics = PullMetrics::default();
        let image = Reference::parse("registry.example:5000/web:1").unwrap();
        let ended = |how, s| metrics.pulled(&image, how, Duration::from_secs(s));
        ended(Pulled::Success, 4);
        ended(Pulled::Success, 40);
        ended(Pulled::Cancelled, 1);
        ended(Pulled::Failed, 1);
        ended(Pulled::RegistryUnavailable, 1);
        let mut out = String::new();
        metrics.write(&mut out);
        let errors = "podprobe_registry_errors_total{reason=";
        for line in [
            "podprobe_image_pulls_total{result=\"success\"} 2".to_owned(),
            "podprobe_image_pulls_total{result=\"failed\"} 1".to_owned(),
            "podprobe_image_pulls_total{result=\"cancelled\"} 1".to_owned(),
            "podprobe_image_pulls_total{result=\"registry_unavailable\"} 1".to_owned(),
            "podprobe_image_pull_duration_seconds_bucket{le=\"5\"} 1".to_owned(),
            "podprobe_image_pull_duration_seconds_count 2".to_owned(),
            format!("{errors}\"failed\",registry=\"registry.example:5000\"}} 1"),
            format!("{errors}\"unavailable\",registry=\"registry.example:5000\"}} 1"),
        ] {
            assert!(out.lines().any(|l| l == line), "{line} in\n{out}");
        }
        assert!(!out.contains("reason=\"cancelled\""), "{out}");
    }
}
