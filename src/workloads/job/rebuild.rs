//! Makes the state of a Job anew: when it is lost (workloads 9.5), and when a person asks for another run (workloads
//! 8.3).

use super::state::{DeletionReason, JobState};
use crate::api::workload::JobSpec;
use crate::workloads::ObservedPod;

/// Makes a lost state from the pods that are there. The next step counts the pods that have ended; pods that are gone
/// are not counted. The deadline counts from the creation of the oldest pod. A Job that has no pods may have run
/// before: whether it starts is the caller's decision (workloads 9.5).
pub fn rebuild(spec: &JobSpec, pods: &[ObservedPod]) -> JobState {
    let oldest = pods.iter().map(|pod| pod.created).min();
    JobState {
        start: oldest.filter(|_| !spec.is_suspended()),
        ..Default::default()
    }
}

/// Makes the state of a Job that runs once more. The pods that are there belong to the run before: they end, count for
/// nothing, and may be removed.
pub fn rerun(pods: &[ObservedPod]) -> JobState {
    let uids = pods.iter().map(|pod| pod.uid.clone());
    JobState {
        settled: uids.clone().collect(),
        deletions: uids.map(|uid| (uid, DeletionReason::Rerun)).collect(),
        ..Default::default()
    }
}
