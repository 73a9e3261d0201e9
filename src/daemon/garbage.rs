//! What is kept of pods goes with them.

use std::sync::Arc;

use super::adapters::Prober;
use crate::base::change_feed::{Aspect, ChangeFeed};
use crate::base::clock::Moment;
use crate::pods::events::Recorder;
use crate::pods::eviction::Evictions;
use crate::pods::manager::PodManager;
use crate::pods::sync_loop::GarbageCollector;
use crate::pods::workers::{PodWorkers, Syncer};

/// The sync loop's garbage collector. It runs on the loop's thread and touches memory only.
pub(super) struct Garbage {
    pub(super) syncer: Arc<Syncer>,
    pub(super) pods: Arc<PodManager>,
    pub(super) workers: Arc<PodWorkers>,
    pub(super) prober: Arc<Prober>,
    pub(super) recorder: Arc<Recorder>,
    pub(super) evictions: Arc<Evictions>,
    pub(super) feed: Arc<ChangeFeed>,
}

impl GarbageCollector for Garbage {
    fn collect(&self, now: Moment) {
        self.syncer.collect_garbage(now);
        let mut known = self.pods.uids();
        let working = self.workers.working();
        known.extend(working.into_iter().map(|(pod, _)| pod.uid().clone()));
        self.prober.records.history.retain(&known);
        self.recorder.tidy(&known, now);
        self.evictions.retain(&known, now);
        for uid in self.prober.manager.pauses().tidy(&known, now) {
            self.feed.tell(&uid, Aspect::Probes);
        }
    }
}
