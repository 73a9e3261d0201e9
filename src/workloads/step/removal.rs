//! The removal of a workload whose file is gone: its pods end in parallel with their grace, then its state goes (workloads
//! 8.2).

use super::{KnownPod, Step};
use crate::workloads::state::WorkloadState;

/// Decides what is left to do for a workload that no file has.
pub(super) fn step(state: Option<&WorkloadState>, pods: &[KnownPod]) -> Step {
    let left = pods.iter().filter(|pod| pod.record.deleted_at.is_none());
    let delete = left.map(|pod| pod.record.uid.clone()).collect();
    Step {
        // The state stays until the last pod is gone, so that a file that comes back meanwhile finds it.
        state: state.filter(|_| !pods.is_empty()).cloned(),
        delete,
        ..Step::default()
    }
}
