//! The time that each pod has been active, for activeDeadlineSeconds (kubelet-probes 9.2).
//!
//! Invariants: this module is pure. Ages are counted on the boot clock. So a change of the wall clock, as on a board
//! without a battery, does not end a pod early or late (lessons B5). Only the time before this boot comes from the wall
//! clock, because there is no other source.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::api::{PodStatus, PodUid};
use crate::base::clock::{Moment, Time};

/// The age of a pod: its start in this boot, and its age before this boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Age {
    since: Moment,
    before: Duration,
}

/// The age of each pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ages(HashMap<PodUid, Age>);

impl Ages {
    /// Starts the age of a pod at `now`, unless the pod is already active.
    pub fn begin(&mut self, uid: &PodUid, now: Moment) {
        self.0.entry(uid.clone()).or_insert(Age {
            since: now,
            before: Duration::ZERO,
        });
    }

    /// Returns the time that the pod has been active, or `None` if the pod is not active.
    pub fn of(&self, uid: &PodUid, now: Moment) -> Option<Duration> {
        self.0.get(uid).map(|age| age.before + now.since(age.since))
    }

    /// Forgets the age of a pod.
    pub fn forget(&mut self, uid: &PodUid) {
        self.0.remove(uid);
    }

    /// Forgets the ages of the pods outside `known`.
    pub fn retain(&mut self, known: &HashSet<PodUid>) {
        self.0.retain(|uid, _| known.contains(uid));
    }

    /// Takes over the ages of an earlier daemon in the same boot. After a reboot, or for a pod without an age, the age
    /// comes from the start time in the status.
    pub fn restored(
        self,
        same_boot: bool,
        statuses: &HashMap<PodUid, PodStatus>,
        now: Moment,
        wall: Time,
    ) -> Self {
        let by_wall = |status: &PodStatus| {
            let passed = status
                .start_time
                .map_or(0, |start| wall.unix_seconds() - start.unix_seconds());
            Age {
                since: now,
                before: Duration::from_secs(passed.max(0) as u64),
            }
        };
        let noted = |uid: &PodUid| self.0.get(uid).copied().filter(|_| same_boot);
        Self(
            statuses
                .iter()
                .map(|(uid, status)| (uid.clone(), noted(uid).unwrap_or_else(|| by_wall(status))))
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(seconds))
    }

    fn wall(seconds: u64) -> Time {
        Time::from(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
    }

    fn seconds(ages: &Ages, now: u64) -> Option<u64> {
        ages.of(&"u".into(), at(now)).map(|d| d.as_secs())
    }

    #[test]
    fn an_age_begins_once_and_goes_with_its_pod() {
        let mut ages = Ages::default();
        assert_eq!(seconds(&ages, 5), None);
        ages.begin(&"u".into(), at(5));
        ages.begin(&"u".into(), at(8));
        assert_eq!((seconds(&ages, 5), seconds(&ages, 9)), (Some(0), Some(4)));
        ages.retain(&HashSet::new());
        assert_eq!(seconds(&ages, 9), None);
    }

    /// Checks the age of a pod that became active 100 s after boot, at 10000 s on the wall clock. A new daemon sees the
    /// pod 300 s after the same boot, or 30 s after another boot.
    #[track_caller]
    fn check(noted: bool, same_boot: bool, wall_now: u64, expected: u64) {
        let mut ages = Ages::default();
        if noted {
            ages.begin(&"u".into(), at(100));
        }
        let status = PodStatus {
            start_time: Some(wall(10_000)),
            ..PodStatus::default()
        };
        let now = if same_boot { 300 } else { 30 };
        let restored = ages.restored(
            same_boot,
            &HashMap::from([("u".into(), status)]),
            at(now),
            wall(wall_now),
        );
        assert_eq!(
            (seconds(&restored, now), seconds(&restored, now + 7)),
            (Some(expected), Some(expected + 7))
        );
    }

    #[test]
    fn the_boot_clock_counts_within_a_boot_and_the_wall_clock_across() {
        for wall_now in [0, 10_200, 99_999_999] {
            check(true, true, wall_now, 200);
        }
        check(true, false, 10_050, 50);
        check(true, false, 0, 0);
        check(false, true, 10_050, 50);
    }
}
