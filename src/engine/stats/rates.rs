//! Computes the present use of processor time from two requests. No thread takes samples while there are no requests.
//!
//! Invariants: pure. The memory is bounded by the last request: a cgroup that is not part of the last request is
//! forgotten.

use std::collections::HashMap;
use std::time::Duration;

use crate::base::clock::Moment;

/// Shortest time between two samples. If a new sample is nearer, the earlier sample is kept, because the figure would
/// jump.
const NEAREST: Duration = Duration::from_secs(1);
/// Longest time between two samples. A mean over a longer time says nothing about the present.
const FARTHEST: Duration = Duration::from_secs(120);

/// The last sample of each cgroup.
#[derive(Debug, Default)]
pub struct Rates(HashMap<String, Sample>);

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Moment,
    usage: u64,
    rate: Option<u64>,
}

impl Rates {
    /// Takes the nanoseconds of processor time that each cgroup has used until now. Returns the nanoseconds that each
    /// cgroup has used per second since its earlier sample. A cgroup is left out if it has no earlier sample, if this
    /// sample is too old, or if the cgroup's count has started anew. If the earlier sample is too near, the last result
    /// for the cgroup is returned again.
    pub fn next(
        &mut self,
        now: Moment,
        usages: impl Iterator<Item = (String, u64)>,
    ) -> HashMap<String, u64> {
        let old = std::mem::take(&mut self.0);
        let next = |(id, usage): (String, u64)| {
            let sample = old
                .get(&id)
                .map_or(Sample::first(now, usage), |s| s.next(now, usage));
            (id, sample)
        };
        self.0 = usages.map(next).collect();
        let rates = self.0.iter();
        rates
            .filter_map(|(id, s)| Some((id.clone(), s.rate?)))
            .collect()
    }
}

impl Sample {
    fn first(at: Moment, usage: u64) -> Self {
        Self {
            at,
            usage,
            rate: None,
        }
    }

    fn next(self, now: Moment, usage: u64) -> Self {
        let apart = now.since(self.at);
        if apart < NEAREST {
            return self;
        }
        let used = usage.checked_sub(self.usage).filter(|_| apart <= FARTHEST);
        Self {
            rate: used.map(|used| (used as f64 / apart.as_secs_f64()) as u64),
            ..Self::first(now, usage)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_needs_two_asks_between_a_second_and_two_minutes_apart() {
        let mut rates = Rates::default();
        let mut ask = |ms: u64, usage: u64| {
            let now = Moment::from_boot(Duration::from_millis(ms));
            let all = rates.next(now, [("a".to_owned(), usage)].into_iter());
            all.get("a").copied()
        };
        assert_eq!(ask(10_000, 1000), None, "the first");
        assert_eq!(ask(10_500, 9000), None, "too near: the first one counts on");
        assert_eq!(ask(12_000, 5000), Some(2000));
        assert_eq!(ask(12_900, 5000), Some(2000), "the last one stands");
        assert_eq!(ask(132_000, 5120), Some(1));
        assert_eq!(ask(252_001, 9000), None, "too far");
        assert_eq!(ask(254_001, 10), None, "a new cgroup of the same name");
        assert_eq!(ask(256_001, 30), Some(10));
    }

    #[test]
    fn who_is_not_asked_for_is_forgotten() {
        let mut rates = Rates::default();
        let mut ask = |s: u64, ids: &[&str]| {
            let now = Moment::from_boot(Duration::from_secs(s));
            let usages = ids.iter().map(|id| ((*id).to_owned(), s));
            rates.next(now, usages).len()
        };
        assert_eq!(ask(1, &["a", "b"]), 0);
        assert_eq!(ask(11, &["a"]), 1);
        assert_eq!(ask(21, &["a", "b"]), 1);
        assert_eq!(rates.0.len(), 2);
    }
}
