//! Counters for use all over the code: cheap to count with, and written as text at a scrape.
//!
//! Invariants: memory is bounded. [`Durations`] has one number for each bucket and takes no lock. A [`Tally`] has at most
//! [`MAX_SERIES`] series, and counts the events that it has left out.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use super::{DEFAULT_BUCKETS, Family, Labels, pairs};

use crate::base::locks::Locked;

/// Largest number of series that a [`Tally`] keeps.
pub const MAX_SERIES: usize = 100;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one to the counter.
    pub fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A histogram of durations that several threads may add to at once.
#[derive(Debug)]
pub struct Durations {
    bounds: &'static [f64],
    /// Number of durations in each bucket, not cumulative. The last number counts durations above every bound.
    counts: Box<[AtomicU64]>,
    nanoseconds: AtomicU64,
}

impl Default for Durations {
    fn default() -> Self {
        Self::new(&DEFAULT_BUCKETS)
    }
}

impl Durations {
    /// Makes an empty histogram. `bounds` are the upper bounds of its buckets in seconds, ascending.
    pub fn new(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0));
        Self {
            bounds,
            counts: counts.collect(),
            nanoseconds: AtomicU64::new(0),
        }
    }

    /// Counts a duration.
    pub fn observe(&self, d: Duration) {
        let seconds = d.as_secs_f64();
        let at = self.bounds.iter().position(|b| seconds <= *b);
        self.counts[at.unwrap_or(self.bounds.len())].fetch_add(1, Ordering::Relaxed);
        let nanoseconds = u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// Returns the number of durations that were counted.
    pub fn total(&self) -> u64 {
        let counts = self.counts.iter();
        counts.map(|n| n.load(Ordering::Relaxed)).sum()
    }

    /// Writes the durations as a histogram, with labels that [`pairs`] has already written.
    pub fn write(&self, pairs: &str, family: &mut Family<'_>) {
        let counts = self.counts.iter().map(|n| n.load(Ordering::Relaxed));
        let counts: Vec<u64> = counts.collect();
        let sum = Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed));
        family.buckets_of(&[pairs], self.bounds, &counts, sum.as_secs_f64());
    }
}

/// Counts of events by labels with values that are not known in advance. For rare events, because counting takes a lock and
/// writes the labels as text.
#[derive(Debug, Default)]
pub struct Tally(Mutex<Tallied>);

#[derive(Debug, Default)]
struct Tallied {
    by_pairs: BTreeMap<String, u64>,
    left_out: u64,
}

impl Tally {
    /// Adds one to the count for these labels.
    pub fn count(&self, labels: &Labels<'_>) {
        let pairs = pairs(labels);
        let mut all = self.lock();
        if let Some(n) = all.by_pairs.get_mut(&pairs) {
            *n += 1;
        } else if all.by_pairs.len() < MAX_SERIES {
            all.by_pairs.insert(pairs, 1);
        } else {
            all.left_out += 1;
        }
    }

    /// Returns the number of events that have no series, because the tally had [`MAX_SERIES`] series already.
    pub fn left_out(&self) -> u64 {
        self.lock().left_out
    }

    /// Writes all series.
    pub fn write(&self, family: &mut Family<'_>) {
        for (pairs, n) in &self.lock().by_pairs {
            family.value_of(&[pairs], *n);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Tallied> {
        self.0.locked()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::metrics::Kind;

    fn text(write: impl FnOnce(&mut Family<'_>)) -> String {
        let mut out = String::new();
        write(&mut Family::new(&mut out, "x", Kind::Histogram, "X."));
        out
    }

    #[test]
    fn a_duration_is_in_the_first_bucket_that_holds_it() {
        let durations = Durations::new(&[0.5, 1.0]);
        for ms in [500, 501, 1000, 3000] {
            durations.observe(Duration::from_millis(ms));
        }
        let expected = "# HELP x X.\n# TYPE x histogram\nx_bucket{t=\"a\",le=\"0.5\"} 1\nx_bucket{t=\"a\",le=\"1\"} 3\n\
            x_bucket{t=\"a\",le=\"+Inf\"} 4\nx_sum{t=\"a\"} 5.001\nx_count{t=\"a\"} 4\n";
        assert_eq!(text(|f| durations.write("t=\"a\"", f)), expected);
        assert_eq!(durations.total(), 4);
    }

    #[test]
    fn a_tally_is_bounded_and_says_what_it_has_left_out() {
        let tally = Tally::default();
        for i in 0..MAX_SERIES + 2 {
            tally.count(&[("reason", &i.to_string())]);
        }
        tally.count(&[("reason", "7")]);
        let text = text(|f| tally.write(f));
        assert_eq!(text.lines().count(), 2 + MAX_SERIES);
        assert!(text.contains("x{reason=\"7\"} 2\n"), "{text}");
        assert_eq!(tally.left_out(), 2);
    }
}
