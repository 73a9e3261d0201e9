//! The stores of pods and of pod sources. Many parts of the daemon write to these stores, and more parts read them.

use std::path::PathBuf;
use std::sync::Arc;

use crossbeam_channel::Sender;

use crate::api::PodSource;
use crate::base::change_feed::{Aspect, ChangeFeed};
use crate::face::views::Records;
use crate::pods::checkpoint::{Checkpoint, Restored};
use crate::pods::controllers::Board;
use crate::pods::events::Recorder;
use crate::pods::manager::PodManager;
use crate::pods::objects::Objects;
use crate::pods::sources::workload_store::WorkloadStore;
use crate::pods::sources::{FileStates, Outlet, PodConfig, PodUpdate};
use crate::pods::status::{KeptStatuses, StatusManager};

/// The stores of pods: changes, events, the pods themselves, statuses, and records of probes.
#[derive(Clone)]
pub(super) struct PodStores {
    /// Feed that tells which pod has changed, and which aspect of it.
    pub(super) feed: Arc<ChangeFeed>,
    pub(super) recorder: Arc<Recorder>,
    /// Pods that should run.
    pub(super) manager: Arc<PodManager>,
    pub(super) statuses: Arc<StatusManager>,
    /// Writer of the statuses to the disk.
    pub(super) checkpoint: Arc<Checkpoint>,
    /// Records of the runs of probes.
    pub(super) records: Arc<Records>,
}

impl PodStores {
    /// Makes the stores with the data of an earlier daemon. Statuses are written to `kept` and to the file `checkpoint`.
    pub(super) fn new(restored: Restored, kept: KeptStatuses, checkpoint: PathBuf) -> Self {
        let feed = Arc::new(ChangeFeed::default());
        let statuses = StatusManager::new(restored.statuses, feed.clone());
        let statuses = Arc::new(statuses.with_ages(restored.ages).with_kept(kept));
        Self {
            recorder: Arc::new(Recorder::new(feed.clone())),
            manager: Arc::new(PodManager::new(feed.clone())),
            checkpoint: Arc::new(Checkpoint::new(checkpoint, statuses.clone())),
            statuses,
            records: Arc::default(),
            feed,
        }
    }
}

/// The pod sources, and the pods, workloads, objects and file states that they give.
#[derive(Clone)]
pub(super) struct SourceStores {
    /// Sources that the configuration names.
    pub(super) all: Vec<PodSource>,
    /// Pods of all sources.
    pub(super) config: Arc<PodConfig>,
    /// Objects beside pods, of all sources.
    pub(super) objects: Arc<Objects>,
    /// Workloads of all sources.
    pub(super) workloads: Arc<WorkloadStore>,
    /// States of the pod files.
    pub(super) files: Arc<FileStates>,
    /// Board with the workloads that are shown, and with requests for the controllers.
    pub(super) board: Arc<Board>,
}

impl SourceStores {
    /// Makes the stores. At most one notice of changed objects waits for the sync loop. A waiting notice also stands
    /// for later changes.
    pub(super) fn new(
        all: Vec<PodSource>,
        feed: Arc<ChangeFeed>,
        objects_changed: Sender<()>,
    ) -> Self {
        let woken = feed.clone();
        let files = FileStates::new(move |uids| {
            for uid in uids {
                feed.tell(uid, Aspect::File);
            }
            feed.tell_files();
        });
        Self {
            config: Arc::new(PodConfig::new(&all)),
            objects: Arc::new(Objects::new(move || _ = objects_changed.try_send(()))),
            workloads: Arc::default(),
            files: Arc::new(files),
            board: Arc::new(Board::new(move || woken.wake())),
            all,
        }
    }

    /// Returns the outlet for a source. The source writes the pods and objects that it reads to the outlet.
    pub(super) fn outlet(&self, pods: &PodStores, updates: &Sender<PodUpdate>) -> Outlet {
        Outlet {
            config: self.config.clone(),
            objects: self.objects.clone(),
            workloads: self.workloads.clone(),
            updates: updates.clone(),
            states: self.files.clone(),
            events: pods.recorder.clone(),
        }
    }
}
