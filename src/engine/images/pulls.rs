//! The list of the pulls under way, for display to people. The status of a pod does not say how far a pull is, because
//! a kubelet's status does not say it either.
//!
//! Invariants: no decision depends on this list. A pull stays on the list until it has ended, in any way. The lock of
//! the list is held only for a look at the list.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::registry::{PullProgress, PullState};
use crate::base::clock::{Moment, Time};
use crate::base::locks::Locked;

/// Shortest time between two reports of one pull to the watchers of the pull's pod.
const EVERY: Duration = Duration::from_millis(500);

/// A pull for a pod, as it is shown beside the pod's status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImagePull {
    /// Name of the image, as the container's spec has it.
    pub image: String,
    /// The stage that the pull has reached.
    pub stage: PullStage,
}

/// The stage that a pull has reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum PullStage {
    /// The pull waits for a slot (`serializeImagePulls`, `maxParallelImagePulls`).
    Queued {
        /// Milliseconds since the container asked for the image.
        millis: u64,
    },
    /// The pull runs.
    Pulling {
        /// The figures of the pull.
        state: PullState,
        /// Reason why a layer was cut off last. None while no layer waits to be continued.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cut_off: Option<String>,
    },
    /// The last try of the pull has failed, and the next try comes later.
    BackOff {
        /// The time of the next try.
        until: Time,
    },
}

/// The list of the pulls that run or wait for a slot.
#[derive(Default)]
pub(super) struct Pulls(Mutex<List>);

#[derive(Default)]
struct List {
    next: u64,
    pulls: Vec<Pull>,
}

struct Pull {
    id: u64,
    pod_uid: String,
    image: String,
    asked: Moment,
    /// Progress of the pull; None while the pull waits for its slot.
    progress: Option<Arc<PullProgress>>,
    /// The time at which the watchers of the pod last got a report of this pull.
    told: Moment,
}

/// A pull on the list. Dropping the value takes the pull off the list.
pub(super) struct UnderWay<'a> {
    pulls: &'a Pulls,
    id: u64,
}

impl Pulls {
    /// Puts a new pull on the list.
    pub(super) fn begin(&self, pod_uid: &str, image: &str, now: Moment) -> UnderWay<'_> {
        let mut list = self.lock();
        list.next += 1;
        let id = list.next;
        list.pulls.push(Pull {
            id,
            pod_uid: pod_uid.to_owned(),
            image: image.to_owned(),
            asked: now,
            progress: None,
            told: now,
        });
        UnderWay { pulls: self, id }
    }

    /// Returns the pulls for a pod.
    pub(super) fn of(&self, pod_uid: &str, now: Moment) -> Vec<ImagePull> {
        let list = self.lock();
        let of_pod = list.pulls.iter().filter(|p| p.pod_uid == pod_uid);
        of_pod.map(|p| p.shown(now)).collect()
    }

    /// Returns the UID of a pod for each pull that must be reported to the watchers of this pod. The call itself counts
    /// as the report.
    pub(super) fn due(&self, now: Moment) -> Vec<String> {
        let mut list = self.lock();
        let due = list.pulls.iter_mut();
        let due = due.filter(|p| now.since(p.told) >= EVERY);
        due.map(|p| {
            p.told = now;
            p.pod_uid.clone()
        })
        .collect()
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.0.locked()
    }
}

impl Pull {
    fn shown(&self, now: Moment) -> ImagePull {
        let stage = match &self.progress {
            None => PullStage::Queued {
                millis: u64::try_from(now.since(self.asked).as_millis()).unwrap_or(u64::MAX),
            },
            Some(progress) => PullStage::Pulling {
                state: progress.state(),
                cut_off: progress.cut_off(),
            },
        };
        ImagePull {
            image: self.image.clone(),
            stage,
        }
    }
}

impl UnderWay<'_> {
    /// Notes that the pull has got its slot. Returns the object into which the pull writes its progress.
    pub(super) fn starts(&self) -> Arc<PullProgress> {
        let progress = Arc::<PullProgress>::default();
        let mut list = self.pulls.lock();
        let own = list.pulls.iter_mut().find(|p| p.id == self.id);
        if let Some(own) = own {
            own.progress = Some(progress.clone());
        }
        progress
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.pulls.lock().pulls.retain(|p| p.id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_boot(Duration::from_millis(millis))
    }

    #[test]
    fn a_pull_is_shown_for_its_pod_until_it_ends() {
        let pulls = Pulls::default();
        let (web, db) = (
            pulls.begin("web", "app:1", at(0)),
            pulls.begin("db", "app:1", at(100)),
        );
        let queued = |millis| {
            vec![ImagePull {
                image: "app:1".into(),
                stage: PullStage::Queued { millis },
            }]
        };
        assert_eq!(pulls.of("web", at(1500)), queued(1500));
        let progress = web.starts();
        let PullStage::Pulling { state, cut_off } = pulls.of("web", at(1500)).remove(0).stage
        else {
            panic!("it has begun");
        };
        assert_eq!((state.of_bytes, cut_off), (progress.state().of_bytes, None));
        drop(web);
        assert_eq!(pulls.of("web", at(1500)), []);
        assert_eq!(pulls.of("db", at(1500)), queued(1400));
        drop(db);
        assert!(pulls.lock().pulls.is_empty());
    }

    #[test]
    fn watchers_are_told_of_a_pull_twice_a_second_at_most() {
        let pulls = Pulls::default();
        let _web = pulls.begin("web", "app:1", at(1000));
        let _db = pulls.begin("db", "app:1", at(1200));
        let told: Vec<_> = (1000..3000)
            .step_by(50)
            .flat_map(|now| pulls.due(at(now)).into_iter().map(move |uid| (now, uid)))
            .collect();
        let of = |uid: &str| {
            let of = told.iter().filter(|(_, of)| of == uid);
            of.map(|(now, _)| *now).collect::<Vec<_>>()
        };
        assert_eq!(of("web"), [1500, 2000, 2500]);
        assert_eq!(of("db"), [1700, 2200, 2700]);
    }
}
