//! The state of a workload: what its controller has written down.
//!
//! Invariants: a state is on the disk before the action that depends on it. A daemon that does not know the form of a
//! state leaves the workload and its pods as they are (workloads 9.7).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cron_job::CronJobState;
use super::daemon_set::DaemonSetState;
use super::deployment::DeploymentState;
use super::job::JobState;
use super::names::fnv1a_32;
use super::overrides::Overrides;
use super::replica_set::{ReplacementDelays, SetFailure};
use super::stateful_set::StatefulSetState;
use crate::api::workload::{Workload, WorkloadKey, WorkloadSpec};

/// Number of the form of states that this podprobe writes.
pub const FORM: u32 = 1;

/// The state of a workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadState {
    /// Number of the form of the state. An older podprobe leaves a newer form alone.
    pub form: u32,
    /// The workload.
    pub workload: WorkloadKey,
    /// Time of the wall clock at which the file was first seen (workloads 7.17).
    pub first_seen: Timestamp,
    /// Time of the wall clock at which the state was written.
    pub written: Timestamp,
    /// Number of the accepted changes of the spec, from 1.
    pub generation: i64,
    /// Hash of the object that was accepted last.
    #[serde(default)]
    object_hash: u32,
    /// Hash of the spec that was accepted last.
    #[serde(default)]
    spec_hash: u32,
    /// State of the controller of this kind.
    pub controller: ControllerState,
}

/// The state of a controller, by kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ControllerState {
    /// State of a Deployment.
    Deployment(DeploymentState),
    /// State of a ReplicaSet or a ReplicationController.
    ReplicaSet(ReplicaSetState),
    /// State of a DaemonSet.
    DaemonSet(DaemonSetRecord),
    /// State of a StatefulSet.
    StatefulSet(StatefulSetRecord),
    /// State of a Job.
    Job(JobRecord),
    /// State of a CronJob.
    CronJob(CronJobRecord),
}

/// The state of a ReplicaSet's controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaSetState {
    /// Overrides of the file by verbs.
    pub overrides: Overrides,
    /// Delays before pods that ended by themselves are replaced.
    pub delays: ReplacementDelays,
    /// The last failure to make or end a pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<SetFailure>,
}

/// The state of a DaemonSet's controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSetRecord {
    /// Overrides of the file by verbs.
    pub overrides: Overrides,
    /// Revisions of the template, and the back-off of failed pods.
    pub state: DaemonSetState,
}

/// The state of a StatefulSet's controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetRecord {
    /// Overrides of the file by verbs.
    pub overrides: Overrides,
    /// Revisions of the template, and the owners of claims.
    pub state: StatefulSetState,
    /// Claims that were made for pods: v1 objects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<Value>,
}

/// The state of a Job's controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobRecord {
    /// The state of the Job.
    pub state: JobState,
    /// True if the state of the Job was lost, so that nobody knows whether the Job has run. It waits for a person
    /// (workloads 9.5).
    pub is_held: bool,
}

/// The state of a CronJob's controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CronJobRecord {
    /// When Jobs were started.
    pub state: CronJobState,
    /// The Jobs that were made, oldest first.
    pub jobs: Vec<MadeJob>,
}

/// A Job that a CronJob has made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MadeJob {
    /// The Job as it was made: a batch/v1 object with its template as it was written.
    pub object: Value,
    /// Scheduled time. None for a Job that a person asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_at: Option<Timestamp>,
    /// State of the Job's own controller.
    pub state: JobState,
    /// True if the Job is being removed.
    #[serde(default)]
    pub is_deleted: bool,
}

impl WorkloadState {
    /// Begins a state with this state of the controller. `wall` is the wall clock.
    pub(super) fn begin(workload: &Workload, controller: ControllerState, wall: Timestamp) -> Self {
        let (object_hash, spec_hash) = hashes(workload);
        Self {
            form: FORM,
            workload: workload.key(),
            first_seen: wall,
            written: wall,
            generation: 1,
            object_hash,
            spec_hash,
            controller,
        }
    }

    /// Returns the state after a look at the file: a changed spec has a new generation, and overrides of what the file
    /// has changed are gone (workloads 8.4).
    pub fn follow(&self, workload: &Workload) -> Self {
        let mut state = self.clone();
        let text = object_hash(workload);
        if text == state.object_hash {
            if let Some(overrides) = state.overrides_mut() {
                overrides.know(workload);
            }
            return state;
        }
        let (object_hash, spec_hash) = hashes(workload);
        if spec_hash != state.spec_hash {
            state.generation = state.generation.saturating_add(1);
        }
        (state.object_hash, state.spec_hash) = (object_hash, spec_hash);
        if let Some(overrides) = state.overrides_mut() {
            overrides.follow(workload);
        }
        state
    }

    /// Returns what verbs have changed against the file. None for kinds that have no such changes.
    pub fn overrides_mut(&mut self) -> Option<&mut Overrides> {
        match &mut self.controller {
            ControllerState::Deployment(of) => Some(&mut of.overrides),
            ControllerState::ReplicaSet(of) => Some(&mut of.overrides),
            ControllerState::DaemonSet(of) => Some(&mut of.overrides),
            ControllerState::StatefulSet(of) => Some(&mut of.overrides),
            ControllerState::Job(_) | ControllerState::CronJob(_) => None,
        }
    }

    /// Returns the state with another state of its controller.
    pub(super) fn with(&self, controller: ControllerState) -> Self {
        Self {
            controller,
            ..self.clone()
        }
    }

    /// True if the state must be on the disk before anything follows from it. Numbers of a status may be stale there.
    pub fn must_be_written(&self, written: &Self) -> bool {
        match (&self.controller, &written.controller) {
            (ControllerState::Deployment(now), ControllerState::Deployment(then)) => {
                now.must_be_written(then)
                    || self.generation != written.generation
                    || self.object_hash != written.object_hash
            }
            _ => self != written,
        }
    }
}

/// Returns the hash of the text of an object.
pub fn object_hash(workload: &Workload) -> u32 {
    fnv1a_32(workload.raw.text().bytes())
}

fn hashes(workload: &Workload) -> (u32, u32) {
    let spec = workload.raw.at("/spec").unwrap_or_default().to_string();
    (object_hash(workload), fnv1a_32(spec.bytes()))
}

/// Returns the state in which a kind begins when nothing is there.
pub(super) fn initial(workload: &Workload) -> ControllerState {
    match &workload.spec {
        WorkloadSpec::Deployment(_) => ControllerState::Deployment(DeploymentState::default()),
        WorkloadSpec::ReplicaSet(_) | WorkloadSpec::ReplicationController(_) => {
            ControllerState::ReplicaSet(ReplicaSetState::default())
        }
        WorkloadSpec::DaemonSet(_) => ControllerState::DaemonSet(DaemonSetRecord::default()),
        WorkloadSpec::StatefulSet(_) => ControllerState::StatefulSet(StatefulSetRecord::default()),
        WorkloadSpec::Job(_) => ControllerState::Job(JobRecord::default()),
        WorkloadSpec::CronJob(_) => ControllerState::CronJob(CronJobRecord::default()),
    }
}
