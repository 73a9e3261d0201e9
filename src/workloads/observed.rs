//! A pod as controllers see it.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::api::PodPhase;
use crate::base::pod_uid::PodUid;

/// A pod of a workload, as it is now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedPod {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: PodUid,
    /// Labels of the pod.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the pod.
    pub annotations: BTreeMap<String, String>,
    /// Time at which the pod was made.
    pub created: Timestamp,
    /// `status.phase`.
    pub phase: PodPhase,
    /// True if the pod has no place on the node yet, as upstream's pod that no scheduler has given a node.
    pub waits_for_room: bool,
    /// True if the pod is being deleted and has not ended yet, or has ended and is not gone yet.
    pub is_deleted: bool,
    /// Time at which the deletion began, before the grace period; None if the pod is not being deleted.
    pub deleted_at: Option<Timestamp>,
    /// True if the condition Ready is True.
    pub is_ready: bool,
    /// Time at which the condition Ready changed last; None if it never did.
    pub ready_changed: Option<Timestamp>,
    /// True if a table of services that takes the pod's readiness into account is in force (workloads 3.23).
    pub is_in_table: bool,
    /// All containers that have a status.
    pub containers: Vec<ObservedContainer>,
    /// Types of the conditions that the pod has, each with its status.
    pub conditions: Vec<(String, String)>,
}

/// A container of an observed pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedContainer {
    /// Name of the container.
    pub name: String,
    /// Which list of the spec the container is in.
    pub kind: ContainerKind,
    /// Number of restarts.
    pub restarts: i32,
    /// Exit code of a container that has terminated and does not run again.
    pub exit_code: Option<i32>,
    /// Time at which the container terminated.
    pub finished_at: Option<Timestamp>,
}

/// Which list of the spec a container is in, and whether it goes on beside the regular ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContainerKind {
    /// A regular container.
    #[default]
    Regular,
    /// An init container that runs to its end.
    Init,
    /// An init container that goes on beside the regular ones.
    Sidecar,
}

impl ObservedPod {
    /// True if the pod has not ended and is not being deleted (controller_utils.go: IsPodActive).
    pub fn is_active(&self) -> bool {
        !self.phase.is_terminal() && !self.is_deleted
    }

    /// True if the pod is being deleted and has not ended (IsPodTerminating).
    pub fn is_terminating(&self) -> bool {
        !self.phase.is_terminal() && self.is_deleted
    }

    /// Returns the time at which the pod became or becomes available, if it stays as it is: it is ready, the table of
    /// services knows it, and it has been ready for `min_ready` (pkg/api/v1/pod/util.go: IsPodAvailable). None if it is
    /// not ready.
    pub fn available_at(&self, min_ready: Duration) -> Option<Timestamp> {
        if !self.is_ready || !self.is_in_table {
            return None;
        }
        match min_ready.is_zero() {
            true => Some(self.ready_changed.unwrap_or(Timestamp::MIN)),
            false => Some(later(self.ready_changed?, min_ready)),
        }
    }

    /// True if the pod is available now.
    pub fn is_available(&self, min_ready: Duration, now: Timestamp) -> bool {
        match min_ready.is_zero() {
            true => self.is_ready && self.is_in_table,
            false => self.available_at(min_ready).is_some_and(|at| at <= now),
        }
    }
}

/// Returns the time `after` later, or the last time that there is.
pub fn later(time: Timestamp, after: Duration) -> Timestamp {
    time.checked_add(after).unwrap_or(Timestamp::MAX)
}
