//! Cleans up what is no longer needed: workers, statuses, pods of earlier daemons and their data (kubelet-probes 5.5).
//!
//! Invariants: this file never waits. A pod that should not run is ended by a worker of its own, like every other pod.

use std::sync::Arc;
use std::time::Duration;

use super::Parts;
use crate::api::Pod;
use crate::base::clock::Moment;
use crate::engine::runtime::RuntimePodStatus;
use crate::pods::workers::{Update, UpdateKind};

/// The time after which a housekeeping pass is logged as an error (5.2).
const HOUSEKEEPING_WARNING: Duration = Duration::from_secs(1);
/// The grace period in seconds of a pod in the runtime that should not run (5.5 step 6).
const ORPHAN_GRACE_SECONDS: i64 = 1;

impl Parts {
    /// Does the clean-up pass of kubelet-probes 5.5.
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

    /// Drops finished workers and the statuses of removed pods, and starts pods that have no worker (5.5 steps 1, 4 and
    /// 5).
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
        // a pod that was re-created with its UID starts without the old status, unless it only was held
        known.retain(|uid| !dropped.contains(uid) || self.evictions.keeps_volumes(uid));
        self.statuses.remove_orphans(&known);
        let is_left = |pod: &Arc<Pod>| {
            let uid = pod.uid();
            let waits = self.places.borrow().waits(uid);
            !waits && !self.workers.contains(uid) && !self.phase(uid).is_terminal()
        };
        let left = self.pods.all().into_iter().filter(is_left).collect();
        self.admit(left);
    }

    /// 5.5 step 6: ends the pods that the runtime knows and that should not run, and removes what is left of ended
    /// pods. 5.5 step 4: removes the data of pods that an earlier daemon could not remove. Each such pod is ended once,
    /// because its worker tries again if the removal fails. A pod that should run now may have completed before a
    /// restart of the node. The runtime then does not know the pod, so this function removes the pod's data when the
    /// pod's file goes.
    fn end_orphans(&mut self) {
        self.runtime.pods().iter().for_each(|r| self.end_orphan(r));
        let with_data = self.pods_with_data.take();
        let (wanted, left): (Vec<_>, Vec<_>) = with_data
            .into_iter()
            .partition(|uid| self.pods.get(uid).is_some());
        self.pods_with_data.replace(wanted);
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

    /// Forgets the statuses that the last daemon wrote for pods that are removed now. Otherwise a pod that comes back
    /// with its UID before the next housekeeping would be ready before it runs.
    pub(super) fn forget_lost_statuses(&self) {
        let mut known = self.pods.uids();
        let working = self.workers.working().into_iter();
        known.extend(working.map(|(pod, _)| pod.uid().clone()));
        known.extend(self.runtime.pods().iter().map(|r| r.uid.clone()));
        self.statuses.remove_orphans(&known);
    }

    /// Ends the pods that have the same names as `pods` and that an earlier daemon started from an older version of
    /// their files. The old pods are ended before the new pods are started, so that the new pods wait for the old pods.
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

/// Makes a pod from the name, namespace and UID: nothing else is known of a pod without its spec.
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
