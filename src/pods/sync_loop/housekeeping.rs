//! The clean-up of what nobody wants any more: workers, statuses, pods of earlier daemons and their data (kubelet-probes 5.5).
//!
//! Invariants: nothing here waits. A pod that nobody wants is ended by a worker of its own, as every other.

use std::sync::Arc;
use std::time::Duration;

use super::Parts;
use crate::api::Pod;
use crate::base::clock::Moment;
use crate::engine::runtime::RuntimePodStatus;
use crate::pods::workers::{Update, UpdateKind};

/// A housekeeping pass that takes longer is logged as an error (5.2).
const HOUSEKEEPING_WARNING: Duration = Duration::from_secs(1);
/// Grace period of a runtime pod that nobody wants, in seconds (5.5 step 6).
const ORPHAN_GRACE_SECONDS: i64 = 1;

impl Parts {
    /// The clean-up pass of kubelet-probes 5.5.
    pub(super) fn handle_housekeeping(&mut self) {
        if !self.config.all_seen() {
            return;
        }
        let started = Moment::now();
        self.clean_up_workers();
        self.probes.clean_up(&self.workers.probed());
        self.probes.reap();
        self.end_orphans();
        self.garbage.collect(started);
        let took = Moment::now().since(started);
        if took > HOUSEKEEPING_WARNING {
            log::error!("housekeeping took {took:?}, more than {HOUSEKEEPING_WARNING:?}");
        }
    }

    /// 5.5 steps 1, 4 and 5.
    pub(super) fn clean_up_workers(&self) {
        let desired = self.pods.uids();
        let dropped = self.workers.sync_known(&desired);
        let mut known = desired;
        known.extend(
            self.workers
                .working()
                .into_iter()
                .map(|(pod, _)| pod.uid().clone()),
        );
        // a pod that was re-created with its UID starts with a clean record
        known.retain(|uid| !dropped.contains(uid));
        self.statuses.remove_orphans(&known);
        let is_left = |pod: &Arc<Pod>| {
            let uid = pod.uid();
            let waits = self.places.borrow().waits(uid);
            !waits && !self.workers.contains(uid) && !self.phase(uid).is_terminal()
        };
        let left = self.pods.all().into_iter().filter(is_left).collect();
        self.admit(left);
    }

    /// 5.5 step 6: ends the pods that the runtime holds and nobody wants, and removes what is left of those that have ended.
    /// 5.5 step 4: removes the data of pods that an earlier daemon did not get to remove. Each is ended once: a worker tries
    /// again when its removal fails. A pod that is wanted now may have completed before the node was started again; then
    /// the runtime does not know it, and nothing else removes its data when its file goes.
    fn end_orphans(&mut self) {
        self.runtime.pods().iter().for_each(|r| self.end_orphan(r));
        let with_data = std::mem::take(&mut self.pods_with_data);
        let (wanted, left): (Vec<_>, Vec<_>) = with_data
            .into_iter()
            .partition(|uid| self.pods.get(uid).is_some());
        self.pods_with_data = wanted;
        for uid in left {
            self.end_orphan(&RuntimePodStatus {
                uid,
                ..Default::default()
            });
        }
    }

    fn end_orphan(&self, runtime: &RuntimePodStatus) {
        if self.workers.contains(&runtime.uid) || self.pods.get(&runtime.uid).is_some() {
            return;
        }
        self.workers.update(Update {
            kind: UpdateKind::Kill {
                grace_override: Some(ORPHAN_GRACE_SECONDS),
            },
            pod: Arc::new(only_metadata(runtime)),
            runtime_only: true,
            phase_is_terminal: false,
            is_running: runtime.is_running(),
        });
    }

    /// Forgets the statuses that the last daemon wrote down of pods that are gone. A pod that comes back with its UID before the
    /// next housekeeping would be ready before it runs.
    pub(super) fn forget_lost_statuses(&self) {
        let mut known = self.pods.uids();
        let working = self.workers.working().into_iter();
        known.extend(working.map(|(pod, _)| pod.uid().clone()));
        known.extend(self.runtime.pods().iter().map(|r| r.uid.clone()));
        self.statuses.remove_orphans(&known);
    }

    /// Ends pods of the same names that an earlier daemon started from an older version of their files. They are told to
    /// end before the new pods are told to start, so that the new ones wait for them.
    pub(super) fn end_predecessors(&self, pods: &[Arc<Pod>]) {
        let new = |r: &RuntimePodStatus| {
            pods.iter()
                .any(|p| p.metadata.name == r.name && p.metadata.namespace == r.namespace)
        };
        let wanted = |r: &RuntimePodStatus| pods.iter().any(|p| *p.uid() == r.uid);
        self.runtime
            .pods()
            .iter()
            .filter(|r| new(r) && !wanted(r))
            .for_each(|r| self.end_orphan(r));
    }
}

/// Makes a pod of the name, namespace and UID, which are all that is known of a pod whose spec is gone.
fn only_metadata(runtime: &RuntimePodStatus) -> Pod {
    let mut metadata = crate::api::pod::ObjectMeta::default();
    metadata.name.clone_from(&runtime.name);
    metadata.namespace.clone_from(&runtime.namespace);
    metadata.uid = runtime.uid.clone();
    Pod {
        metadata,
        spec: Default::default(),
        raw: Default::default(),
    }
}
