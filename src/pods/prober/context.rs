//! The parts that all workers of a manager share: the statuses that they read, the prober that they use, and the caches
//! for their results.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::container_view::StatusSource;
use super::outcome::Outcome;
use super::pauses::Pauses;
use super::prober::Prober;
use super::results::Results;
use super::streaks::Streaks;
use super::worker::Verdict;
use crate::api::{PodRef, PodUid, ProbeType};
use crate::base::clock::Moment;
use crate::engine::runtime::ContainerId;

/// Records what probes do, for people. No decision uses the records.
pub trait ProbeRecords: Send + Sync {
    /// Opens the record of one probe. Called when the worker starts.
    fn open(&self, pod: &PodRef, container: &str, probe_type: ProbeType) -> Box<dyn ProbeRecord>;
}

/// The record of one probe. The worker calls these functions on its thread, so the functions must not block.
pub trait ProbeRecord: Send {
    /// Records that a run begins, `late` after it was due.
    fn begun(&self, late: Duration);
    /// Records that a run has ended.
    fn ran(&self, verdict: Verdict, outcome: &Outcome);
    /// Records that the worker has ended.
    fn close(&self);
}

/// The state of a container that still runs, as an earlier daemon has recorded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoredReady {
    /// True if the container was ready according to the record of the earlier daemon.
    pub ready: bool,
    /// True if the container's startup probe had passed, or the container has no startup probe.
    pub started: bool,
}

/// The key of a worker: pod, container and probe type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct WorkerKey {
    pub(super) uid: PodUid,
    pub(super) container: String,
    pub(super) probe_type: ProbeType,
}

impl WorkerKey {
    /// Returns the name of the worker's thread, for example `readiness:web`.
    pub(super) fn thread_name(&self) -> String {
        format!("{}:{}", self.probe_type.word(), self.container)
    }
}

/// The parts that all workers of a manager share.
pub(super) struct Context {
    pub(super) statuses: Arc<dyn StatusSource>,
    pub(super) results: Results,
    pub(super) prober: Prober,
    /// The time at which the manager was made.
    pub(super) started: Moment,
    pub(super) restored: HashMap<ContainerId, RestoredReady>,
    pub(super) pauses: Arc<Pauses>,
    pub(super) records: Arc<dyn ProbeRecords>,
    pub(super) streaks: Streaks,
    pub(super) panics: AtomicU64,
}

impl Context {
    /// True if an earlier daemon knew this container.
    pub(super) fn is_restored(&self, id: &ContainerId) -> bool {
        self.restored.contains_key(id)
    }

    /// Counts a panic of a worker.
    pub(super) fn count_panic(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
    }
}
