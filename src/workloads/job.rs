//! Decides what a Job does next (workloads 6).
//!
//! Invariants: pure. The caller writes [`JobStep::state`] to the disk before it acts (workloads 9.1), applies all
//! actions of a step before it takes the next snapshot (workloads 1.1), takes the next step when they show, and takes no
//! step before all pods have been listed once (workloads 9.6). A deletion that is in the state is asked for until the pod ends, so that a crash
//! between the two leaves no pod that is neither wanted nor counted.

mod back_off;
mod condition;
mod counting;
mod end_time;
mod facts;
mod failure_policy;
mod finish;
mod indexes;
mod job_pod;
#[cfg(test)]
mod model_tests;
mod pod_count;
mod pod_fields;
mod rebuild;
mod retention;
mod state;
mod status;
mod stepping;
mod success_policy;
#[cfg(test)]
mod test_node;
#[cfg(test)]
mod tests;
mod wanted;

use jiff::Timestamp;

pub use back_off::BackOff;
pub use condition::{Condition, ConditionType, JobReason};
pub use end_time::end_time;
pub use failure_policy::{FailureVerdict, failure_verdict};
pub use indexes::Indexes;
pub use job_pod::{COMPLETION_INDEX, INDEX_FAILURE_COUNT, INDEX_IGNORED_FAILURE_COUNT};
pub use pod_count::{IndexFailures, PodCreation, first_pending};
pub use pod_fields::{
    PodFields, completion_index_variable, indexed_name_prefix, pod_fields, selector,
    wants_completion_index,
};
pub use rebuild::{rebuild, rerun};
pub use state::{DeletionReason, JobState};
pub use status::{JobCondition, JobStatus};
pub use stepping::step;
pub use success_policy::met_rule;

use super::{ControllerEvent, ObservedPod};
use crate::api::PodUid;
use crate::api::pod::ObjectMeta;
use crate::api::workload::JobSpec;

/// The input of a Job's step.
#[derive(Clone, Copy, Debug)]
pub struct JobInput<'a> {
    /// Namespace, name and UID of the Job.
    pub metadata: &'a ObjectMeta,
    /// Generation of the spec.
    pub generation: i64,
    /// Spec of the Job.
    pub spec: &'a JobSpec,
    /// True if the Job is being deleted: its file is gone.
    pub is_deleted: bool,
    /// State of the Job, as it was written last.
    pub state: &'a JobState,
    /// All pods of the Job, those that have ended included.
    pub pods: &'a [ObservedPod],
    /// Time of the step.
    pub now: Timestamp,
}

/// The decisions of a Job's step.
#[derive(Clone, Debug, PartialEq)]
pub struct JobStep {
    /// New state, which is written before anything else is done.
    pub state: JobState,
    /// Pods to make.
    pub creations: Vec<PodCreation>,
    /// Pods to end.
    pub deletions: Vec<PodDeletion>,
    /// Pods that have ended and whose records may be removed now.
    pub removable: Vec<JobPodName>,
    /// Status of the Job.
    pub status: JobStatus,
    /// Events about the Job.
    pub events: Vec<ControllerEvent>,
    /// Time of the next step if nothing changes before; None if no time matters.
    pub wake_at: Option<Timestamp>,
}

/// A pod that is to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodDeletion {
    /// Name and UID of the pod.
    pub pod: JobPodName,
    /// Reason of the deletion.
    pub reason: DeletionReason,
}

/// The name and the UID of a pod of a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobPodName {
    /// `metadata.name` of the pod.
    pub name: String,
    /// `metadata.uid` of the pod.
    pub uid: PodUid,
}

impl JobPodName {
    fn new(pod: &ObservedPod) -> Self {
        Self {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
        }
    }
}
