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

pub(in crate::workloads) use cron_job::made_job;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::event::ControllerEvent;
use super::observed::ObservedPod;
use super::overrides::Overrides;
use super::record::{Owner, PodRecord};
use super::settings::Settings;
use super::state::{ControllerState, FORM, WorkloadState};
use super::view::WorkloadView;
use crate::api::identity::workload_uid;
use crate::api::objects::LocalObject;
use crate::api::pod::PodSpec;
use crate::api::workload::{Workload, WorkloadKey};
use crate::base::cron::Zones;
use crate::base::pod_uid::PodUid;

/// The time and the node, on which each step may depend.
pub struct World<'a> {
    /// Time on the line of the steady clock.
    pub now: Timestamp,
    /// The wall clock.
    pub wall: Timestamp,
    /// True if the wall clock may be trusted for schedules (workloads 7.16).
    pub trusts_wall: bool,
    /// The node.
    pub node: &'a dyn Node,
    /// The settings of controllers, from the configuration.
    pub settings: &'a Settings,
}

/// A workload with its file.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// The workload, as the file has it.
    pub workload: Arc<Workload>,
    /// Path of the file.
    pub file: String,
    /// Advice about the file and the workload, one sentence each.
    pub warnings: Vec<String>,
    /// Error of the file, if the file has become bad.
    pub file_error: Option<String>,
}

/// A pod that a controller has made: its record, and how it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownPod {
    /// The record on the disk.
    pub record: PodRecord,
    /// The pod as it is now.
    pub observed: ObservedPod,
}

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
    /// Names of claims whose directories go into the trash.
    pub released_claims: Vec<String>,
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
}

/// The questions that controllers ask the node.
pub trait Node {
    /// Returns the name of the node.
    fn name(&self) -> &str;

    /// True if the node is one that the spec selects: by name, labels and required affinity (workloads 4.1).
    fn is_selected_by(&self, spec: &PodSpec) -> bool;

    /// Returns how far the images of a pod are. `key` names the template. The first call begins to pull what is missing.
    fn images(&self, key: &str, pod: &Value, now: Timestamp) -> ImagesState;

    /// Returns whether a further pod finds room beside all pods of the node, and whether it would find room in the place
    /// of the pods `leaving`.
    fn room_for(&self, pod: &Value, leaving: &[PodUid]) -> Room;

    /// Returns the names of all pods of a namespace except these.
    fn pod_names(&self, namespace: &str, except: &BTreeSet<PodUid>) -> BTreeSet<String>;

    /// Returns the time zones of the node.
    fn zones(&self) -> &Zones;

    /// Returns a new UID for a pod.
    fn new_uid(&self) -> PodUid;
}

/// How far the images of a template are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImagesState {
    /// All images are on the node.
    Ready,
    /// Images are being pulled.
    Pulling {
        /// Time at which the pull last made progress.
        progressed_at: Timestamp,
    },
    /// An image could not be pulled.
    Failed {
        /// Sentence that says why.
        message: String,
    },
}

/// The room that the node has for a further pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Room {
    /// There is room beside all pods.
    Beside,
    /// There is room only in the place of the pods that leave. The text says what lacks.
    InPlace(String),
    /// There is no room even when the pods have left. The text says what lacks.
    Never(String),
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
        LastState::New => WorkloadState::new(world, &wanted.workload, pods, false),
        LastState::Lost => WorkloadState::new(world, &wanted.workload, pods, true),
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

/// The last state of a workload, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub enum LastState<'a> {
    /// The workload is new.
    New,
    /// The state was damaged, and nobody knows what it said.
    Lost,
    /// The state.
    Known(&'a WorkloadState),
}

impl<'a> LastState<'a> {
    /// Returns the state, if it is known.
    pub fn known(self) -> Option<&'a WorkloadState> {
        match self {
            Self::Known(state) => Some(state),
            Self::New | Self::Lost => None,
        }
    }
}

/// Leaves a workload as it is whose state a newer podprobe has written (workloads 9.7).
fn too_new(state: &WorkloadState, wanted: &Wanted) -> Step {
    let waiting = format!(
        "a newer podprobe has written its state (form {}, known here is {FORM}): it is left as it is until that podprobe runs again",
        state.form
    );
    let view = WorkloadView {
        object: wanted.workload.raw.value(),
        file: Some(wanted.file.clone()),
        waiting: Some(waiting),
        ..WorkloadView::default()
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
    fn effective(&self, overrides: &Overrides) -> Cow<'_, Workload> {
        match effective::workload(&self.wanted.workload, overrides) {
            Some(workload) => Cow::Owned(workload),
            None => Cow::Borrowed(&*self.wanted.workload),
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
