//! One step of all controllers: from what is wanted, what is there and what was written down to what is done next.
//!
//! Invariants: pure. Each action of a step depends only on states that the step returns, so the caller writes the states
//! first, then the records of pods, and tells others last. A step with nothing to do returns nothing, and a second step
//! after the actions of the first goes on where the first ended (workloads 1.1).

mod cron_job;
mod daemon_set;
mod deployment;
mod effective;
mod job;
mod making;
mod removal;
mod replica_set;
mod revisions;
mod shown;
mod stateful_set;
#[cfg(test)]
pub(crate) mod test_world;
#[cfg(test)]
mod tests;

pub(crate) use cron_job::made_job;

use std::sync::Arc;

use jiff::Timestamp;

use super::event::ControllerEvent;
use super::observed::ObservedPod;
use super::overrides::Overrides;
use super::rebuild;
use super::record::{Owner, PodRecord};
use super::state::{ControllerState, FORM, WorkloadState};
use super::view::WorkloadView;
use super::world::{ImagesState, KnownPod, LastState, Room, Wanted, World};
use crate::api::identity::workload_uid;
use crate::api::objects::LocalObject;
use crate::api::workload::{Workload, WorkloadKey};
use crate::base::pod_uid::PodUid;

/// The results of one step of one workload.
#[derive(Debug, Default)]
pub struct Step {
    /// The state to write. None removes the state: nothing of the workload is left.
    pub state: Option<WorkloadState>,
    /// Records of the pods to make.
    pub create: Vec<PodRecord>,
    /// Pods to delete.
    pub delete: Vec<PodUid>,
    /// Claims that pods of the workload need.
    pub claims: Vec<LocalObject>,
    /// The workload and what it has made, as people see it.
    pub views: Vec<WorkloadView>,
    /// Events, each with kind, name and UID of the object that it is about.
    pub events: Vec<(Owner, ControllerEvent)>,
    /// Time on the steady line at which the next step is needed even if nothing changes.
    pub wake_at: Option<Timestamp>,
    /// Time of the wall clock at which the next step is needed even if nothing changes.
    pub look_at: Option<Timestamp>,
    /// Keys of the templates whose images are needed on the node ahead.
    pub image_keys: Vec<String>,
    /// True if a pod waits for a name or for room that pods of others have. The next step is needed when any pod of the
    /// node changes.
    pub waits_for_others: bool,
}

/// Decides what a workload needs next. `wanted` is None if no file has the workload any more.
pub fn step(
    world: &World<'_>,
    key: &WorkloadKey,
    wanted: Option<&Wanted>,
    last: LastState<'_>,
    pods: &[KnownPod],
) -> Step {
    let Some(wanted) = wanted else {
        return removal::step(last.known(), pods);
    };
    let state = match last {
        LastState::Known(state) if state.form > FORM => return too_new(state, wanted),
        LastState::Known(state) => state.follow(&wanted.workload),
        LastState::New => rebuild::state(world, &wanted.workload, pods, false),
        LastState::Lost => rebuild::state(world, &wanted.workload, pods, true),
    };
    let stepping = Stepping {
        world,
        key,
        wanted,
        pods,
    };
    let mut step = match &state.controller {
        ControllerState::Deployment(of) => stepping.deployment(&state, of),
        ControllerState::ReplicaSet(of) => stepping.replica_set(&state, of),
        ControllerState::DaemonSet(of) => stepping.daemon_set(&state, of),
        ControllerState::StatefulSet(of) => stepping.stateful_set(&state, of),
        ControllerState::Job(of) => stepping.job(&state, of),
        ControllerState::CronJob(of) => stepping.cron_job(&state, of),
    };
    let is_new = |uid: &PodUid| {
        let mut pods = pods.iter();
        pods.any(|pod| pod.record.uid == *uid && pod.record.deleted_at.is_none())
    };
    step.delete.retain(is_new);
    step
}

/// Leaves a workload as it is whose state a newer podprobe has written (workloads 9.7).
fn too_new(state: &WorkloadState, wanted: &Wanted) -> Step {
    let waiting = format!(
        "a newer podprobe has written its state (form {}, known here is {FORM}): it is left as it is until that podprobe runs again",
        state.form
    );
    let view = WorkloadView {
        waiting: Some(waiting),
        is_held: true,
        ..WorkloadView::of_file(wanted)
    };
    Step {
        state: Some(state.clone()),
        views: vec![view],
        ..Step::default()
    }
}

/// A step of one workload under way.
#[derive(Clone, Copy)]
struct Stepping<'a> {
    world: &'a World<'a>,
    key: &'a WorkloadKey,
    wanted: &'a Wanted,
    pods: &'a [KnownPod],
}

impl Stepping<'_> {
    /// Returns the workload as its controller must act on it: the file's, with what verbs have changed.
    fn effective(&self, overrides: &Overrides) -> Arc<Workload> {
        match effective::workload(&self.wanted.workload, overrides) {
            Some(workload) => Arc::new(workload),
            None => self.wanted.workload.clone(),
        }
    }

    /// Returns the workload as the owner of pods.
    fn owner(&self) -> Owner {
        owner_of(self.key)
    }

    /// Returns the pods of an owner, as controllers see them.
    fn pods_of(&self, owner: &str) -> Vec<ObservedPod> {
        let of_owner = self
            .pods
            .iter()
            .filter(|pod| pod.record.owner.name == owner);
        of_owner.map(|pod| pod.observed.clone()).collect()
    }

    /// Returns the UIDs of the pods that have these names and are not being deleted.
    fn uids<'n>(&self, names: impl Iterator<Item = &'n str>) -> Vec<PodUid> {
        let there = |name: &str| {
            let mut pods = self.pods.iter();
            let pod = pods.find(|p| p.record.name == name && p.record.deleted_at.is_none())?;
            Some(pod.record.uid.clone())
        };
        names.filter_map(there).collect()
    }
}

/// Returns a workload as the owner of its children. Its UID follows from its key.
pub fn owner_of(key: &WorkloadKey) -> Owner {
    Owner {
        api_version: key.kind.api_version().to_owned(),
        kind: key.kind.as_str().to_owned(),
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        uid: workload_uid(key).to_string(),
    }
}
