//! How long workloads have been waiting, and when the sentence about it is made anew.
//!
//! Invariants: pure. The sentence has ages. It is made anew after a fourth of the time that the workload has waited, so
//! that its ages are never far behind and a workload that waits for days costs almost nothing.

use std::collections::HashMap;
use std::time::Duration;

use crate::api::workload::WorkloadKey;
use crate::base::clock::Moment;

/// Shortest time between two looks at a workload that waits.
const SHORTEST: Duration = Duration::from_secs(1);
/// Part of the time of waiting that passes until the next look.
const PART: u32 = 4;

/// The workloads that wait, each with the moment at which that was seen first.
#[derive(Default)]
pub struct Waits(HashMap<WorkloadKey, Moment>);

impl Waits {
    /// Notes whether a workload waits. Returns the moment of the next look at one that does.
    pub fn note(&mut self, key: &WorkloadKey, is_waiting: bool, now: Moment) -> Option<Moment> {
        if !is_waiting {
            self.0.remove(key);
            return None;
        }
        let since = *self.0.entry(key.clone()).or_insert(now);
        Some(now + (now.since(since) / PART).max(SHORTEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::workload::WorkloadKind;

    #[test]
    fn a_workload_that_waits_is_looked_at_less_and_less_often() {
        let key = WorkloadKey {
            kind: WorkloadKind::Deployment,
            namespace: "default".into(),
            name: "web".into(),
        };
        let begun = Moment::from_boot(Duration::from_secs(100));
        let mut waits = Waits::default();
        let mut next_after = |seconds, is_waiting| {
            let now = begun + Duration::from_secs(seconds);
            let next = waits.note(&key, is_waiting, now);
            next.map(|next| next.since(now).as_secs())
        };
        assert_eq!(next_after(0, true), Some(1));
        assert_eq!(next_after(2, true), Some(1));
        assert_eq!(next_after(40, true), Some(10));
        assert_eq!(next_after(4000, true), Some(1000));
        assert_eq!(next_after(4001, false), None);
        // It waits anew.
        assert_eq!(next_after(5000, true), Some(1));
    }
}
