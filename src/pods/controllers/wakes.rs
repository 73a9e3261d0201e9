//! The moments at which workloads are stepped although nothing changes.
//!
//! Invariants: pure. A workload has one such moment, the earliest of all that ask for one.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;

use super::steady_clock::SteadyClock;
use super::waits::Waits;
use crate::api::workload::{WorkloadKey, WorkloadKind};
use crate::base::clock::Moment;
use crate::workloads::cron_job::PATIENCE;
use crate::workloads::step::Step;

/// Longest time between two looks when nothing is to come.
pub const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The moments of the next steps.
#[derive(Default)]
pub struct Wakes {
    at: HashMap<WorkloadKey, Moment>,
    /// The workloads that wait, whose sentence about that grows old.
    waits: Waits,
}

impl Wakes {
    /// Lets a workload be stepped at this moment, and at no other.
    pub fn set(&mut self, key: &WorkloadKey, at: Moment) {
        self.at.insert(key.clone(), at);
    }

    /// Forgets the moment of a workload, which is stepped now.
    pub fn forget(&mut self, key: &WorkloadKey) {
        self.at.remove(key);
    }

    /// Forgets all moments.
    pub fn clear(&mut self) {
        self.at.clear();
    }

    /// Returns the workloads whose moment has come.
    pub fn due(&self, now: Moment) -> impl Iterator<Item = &WorkloadKey> {
        let due = self.at.iter().filter(move |(_, at)| **at <= now);
        due.map(|(key, _)| key)
    }

    /// Returns the earliest moment.
    pub fn next(&self) -> Option<Moment> {
        self.at.values().min().copied()
    }

    /// Plans the next step of a workload after this one.
    pub fn plan(&mut self, key: &WorkloadKey, made: &Step, clock: &SteadyClock, now: Moment) {
        let wall = clock.wall(now);
        let after = |at: Timestamp, from: Timestamp| {
            let left = Duration::try_from(at.duration_since(from)).unwrap_or_default();
            now + left.min(LONGEST)
        };
        let steady = made.wake_at.map(|at| after(at, clock.at(now)));
        let scheduled = made.look_at.map(|at| after(at, wall.now));
        // Schedules are looked at again when the clock may be trusted.
        let trusted = (key.kind == WorkloadKind::CronJob && !wall.is_trusted)
            .then(|| Moment::from_boot(PATIENCE));
        let is_waiting = made.views.iter().any(|view| view.waiting.is_some());
        let old = self.waits.note(key, is_waiting, now);
        let all = [steady, scheduled, trusted, old];
        if let Some(at) = all.into_iter().flatten().min() {
            self.set(key, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::view::WorkloadView;

    fn key(kind: WorkloadKind) -> WorkloadKey {
        WorkloadKey {
            kind,
            namespace: "default".into(),
            name: "web".into(),
        }
    }

    #[test]
    fn the_earliest_moment_counts() {
        let now = Moment::from_boot(PATIENCE * 2);
        let start = Timestamp::from_second(1_800_000_000).unwrap();
        let clock = SteadyClock::start(start, start, now);
        let key = key(WorkloadKind::Deployment);
        let mut wakes = Wakes::default();
        let mut next_of = |wake: Option<i64>, is_waiting: bool| {
            let waiting = is_waiting.then(|| "for 1 s".to_owned());
            let view = WorkloadView {
                waiting,
                ..WorkloadView::default()
            };
            let at = |seconds| Timestamp::from_second(start.as_second() + seconds).unwrap();
            let step = Step {
                wake_at: wake.map(at),
                views: vec![view],
                ..Step::default()
            };
            wakes.forget(&key);
            wakes.plan(&key, &step, &clock, now);
            wakes.next().map(|at| at.since(now).as_secs())
        };
        assert_eq!(next_of(None, false), None);
        assert_eq!(next_of(Some(30), false), Some(30));
        // The sentence about the wait is made anew before that.
        assert_eq!(next_of(Some(30), true), Some(1));
        assert_eq!(next_of(Some(-5), false), Some(0));
        assert_eq!(next_of(Some(i64::from(i32::MAX)), false), Some(24 * 3600));
    }

    #[test]
    fn what_is_due_is_stepped_and_forgotten() {
        let now = Moment::from_boot(Duration::from_secs(100));
        let (first, second) = (key(WorkloadKind::Job), key(WorkloadKind::CronJob));
        let mut wakes = Wakes::default();
        wakes.set(&first, now);
        wakes.set(&second, now + Duration::from_secs(1));
        assert_eq!(wakes.due(now).collect::<Vec<_>>(), [&first]);
        wakes.forget(&first);
        assert_eq!(wakes.next(), Some(now + Duration::from_secs(1)));
        wakes.clear();
        assert_eq!(wakes.next(), None);
    }
}
