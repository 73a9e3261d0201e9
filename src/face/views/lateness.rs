//! The lateness of probes: one histogram for all probes, whatever their number.
//!
//! Invariants: counting takes no lock and no allocation. The number of series does not grow with pods or probes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::base::metrics::{Family, Kind};

/// Upper bounds of the buckets in seconds. Below 5 ms the bounds are finer than the bounds of durations, because a
/// probe should begin at the instant at which it is due.
pub const BOUNDS: [f64; 14] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 10.0,
];

/// Number of probes of a [`Lateness`] in each bucket, not cumulative. The last bucket counts the probes beyond every
/// bound.
pub type Counts = [u64; BOUNDS.len() + 1];

/// The delay before each probe begins. The delay counts from the instant at which the probe was due. If the previous
/// run of the probe ended later, the delay counts from the end of that run.
#[derive(Default)]
pub struct Lateness {
    counts: [AtomicU64; BOUNDS.len() + 1],
    nanoseconds: AtomicU64,
}

impl Lateness {
    /// Counts a probe that began with this delay.
    pub fn observe(&self, late: Duration) {
        let seconds = late.as_secs_f64();
        let at = BOUNDS
            .iter()
            .position(|b| seconds <= *b)
            .unwrap_or(BOUNDS.len());
        self.counts[at].fetch_add(1, Ordering::Relaxed);
        self.nanoseconds.fetch_add(
            u64::try_from(late.as_nanos()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
    }

    /// Returns the number of probes counted so far, for each bucket.
    pub fn counts(&self) -> Counts {
        self.counts.each_ref().map(|n| n.load(Ordering::Relaxed))
    }

    /// Appends the family `podprobe_prober_probe_lateness_seconds`. Appends nothing before the first probe.
    pub fn write(&self, out: &mut String) {
        let counts = self.counts();
        if counts.iter().any(|n| *n > 0) {
            let name = "podprobe_prober_probe_lateness_seconds";
            let help = "Seconds from the instant a probe was due, or the end of its previous run, to its beginning.";
            let sum = Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed)).as_secs_f64();
            Family::new(out, name, Kind::Histogram, help).buckets_of(&[], &BOUNDS, &counts, sum);
        }
    }
}

/// Returns the quantile `share` (0 to 1) of `counts` in seconds. Within a bucket the quantile is linear, as in
/// Prometheus' `histogram_quantile`. Returns the largest bound if the quantile lies beyond it, and 0 if nothing was
/// counted.
pub fn quantile(counts: &Counts, share: f64) -> f64 {
    let rank = share * counts.iter().sum::<u64>() as f64;
    let (mut below, mut lower) = (0.0, 0.0);
    for (n, upper) in counts.iter().zip(BOUNDS) {
        let n = *n as f64;
        if n > 0.0 && below + n >= rank {
            return lower + (upper - lower) * (rank - below) / n;
        }
        (below, lower) = (below + n, upper);
    }
    if below > 0.0 || counts[BOUNDS.len()] > 0 {
        BOUNDS[BOUNDS.len() - 1]
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(micros: &[u64]) -> Lateness {
        let lateness = Lateness::default();
        micros
            .iter()
            .for_each(|us| lateness.observe(Duration::from_micros(*us)));
        lateness
    }

    fn text(lateness: &Lateness) -> String {
        let mut out = String::new();
        lateness.write(&mut out);
        out
    }

    #[test]
    fn one_family_without_labels_counts_all_probes() {
        let text = text(&counted(&[0, 100, 101, 5000, 11_000_000]));
        let name = "podprobe_prober_probe_lateness_seconds";
        let expected = [
            ("0.0001", 2),
            ("0.00025", 3),
            ("0.0025", 3),
            ("0.005", 4),
            ("10", 4),
            ("+Inf", 5),
        ];
        for (bound, n) in expected {
            assert!(
                text.contains(&format!("{name}_bucket{{le=\"{bound}\"}} {n}\n")),
                "{bound}\n{text}"
            );
        }
        assert!(
            text.contains(&format!("{name}_sum 11.005201\n{name}_count 5\n")),
            "{text}"
        );
        assert_eq!(text.lines().count(), 2 + BOUNDS.len() + 1 + 2, "bounded");
    }

    #[test]
    fn nothing_is_shown_before_the_first_probe() {
        assert_eq!(text(&Lateness::default()), "");
    }

    #[track_caller]
    fn check(micros: &[u64], share: f64, expected: f64) {
        let got = quantile(&counted(micros).counts(), share);
        assert!((got - expected).abs() < 1e-9, "{got}, expected {expected}");
    }

    #[test]
    fn quantiles_are_those_of_prometheus() {
        check(&[], 0.5, 0.0);
        check(&[50, 50], 0.5, 0.00005);
        check(&[50, 2000], 0.5, 0.0001);
        check(&[50, 2000, 2000, 2000], 0.5, 0.0015);
        check(&[50, 4000], 1.0, 0.005);
        check(&[50, 99_000_000], 0.99, 10.0);
    }
}
