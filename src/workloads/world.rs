//! The world of a step: the time, the node, the file of a workload, its pods, and what is known of its last state.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::cron_job::WallClock;
use super::observed::ObservedPod;
use super::record::PodRecord;
use super::settings::Settings;
use super::state::WorkloadState;
use crate::api::pod::PodSpec;
use crate::api::workload::Workload;
use crate::base::cron::Zones;
use crate::base::pod_uid::PodUid;

/// The time and the node, on which each step may depend.
pub struct World<'a> {
    /// Time on the line of the steady clock.
    pub now: Timestamp,
    /// The wall clock, and whether schedules may trust it (workloads 7.16).
    pub wall: WallClock,
    /// The node.
    pub node: &'a dyn Node,
    /// The settings of controllers, from the configuration.
    pub settings: Settings,
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
    /// Number of the workload's life. A workload that was removed and came back, or changed a field that may not change,
    /// has another number.
    pub life: u64,
}

/// A pod that a controller has made: its record, and how it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownPod {
    /// The record on the disk.
    pub record: PodRecord,
    /// The pod as it is now.
    pub observed: ObservedPod,
}

/// The questions that controllers ask the node.
pub trait Node {
    /// Returns the name of the node.
    fn name(&self) -> &str;

    /// Tells whether the spec selects the node: by name, labels and required affinity (workloads 4.1). None if that is not
    /// known, because the node waits for its labels.
    fn is_selected_by(&self, spec: &PodSpec) -> Option<bool>;

    /// Returns how far the images of a pod are. `key` names the template. The first call begins to pull what is missing.
    fn images(&self, key: &str, pod: &Value, now: Timestamp) -> ImagesState;

    /// Returns whether a further pod finds room beside all pods of the node, and whether it would find room in the place
    /// of the pods `leaving`.
    fn room_for(&self, pod: &Value, leaving: &[PodUid]) -> Room;

    /// Returns the names of all pods of a namespace except these.
    fn pod_names(&self, namespace: &str, except: &BTreeSet<PodUid>) -> BTreeSet<String>;

    /// Returns the time zones of the node.
    fn zones(&self) -> &Zones;

    /// True if pods may start on the node: it is not cordoned, drained or shutting down.
    fn takes_pods(&self) -> bool;

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
