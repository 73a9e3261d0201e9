//! The garbage collector of the sync loop. The collector drops the data that the daemon keeps about pods that are
//! gone.

use std::sync::Arc;

use super::adapters::Prober;
use super::stores::PodStores;
use crate::base::change_feed::Aspect;
use crate::base::clock::Moment;
use crate::pods::eviction::Evictions;
use crate::pods::sync_loop::GarbageCollector;
use crate::pods::workers::{PodWorkers, Syncer};

/// The sync loop's garbage collector. The collector runs on the loop's thread and works on memory only.
pub(super) struct Garbage {
    pub(super) syncer: Arc<Syncer>,
    pub(super) pods: PodStores,
    pub(super) workers: Arc<PodWorkers>,
    pub(super) prober: Arc<Prober>,
    pub(super) evictions: Arc<Evictions>,
}

impl GarbageCollector for Garbage {
    fn collect(&self, now: Moment) {
        self.syncer.collect_garbage(now);
        let mut known = self.pods.manager.uids();
        let working = self.workers.working();
        known.extend(working.into_iter().map(|(pod, _)| pod.uid().clone()));
        self.pods.records.history.retain(&known);
        self.pods.recorder.tidy(&known, now);
        self.evictions.retain(&known, now);
        for uid in self.prober.manager.pauses().tidy(&known, now) {
            self.pods.feed.tell(&uid, Aspect::Probes);
        }
    }
}
