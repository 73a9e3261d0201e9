//! The Deployment controller: which sets of pods a Deployment has and how large they are (workloads 3).
//!
//! Invariants: pure. [`step`] looks at sets and never at pods: [`super::replica_set`] makes a set's pods out of its
//! size. A step does one kind of action, in upstream's order, and the next step follows as soon as its actions are
//! applied. A step that is called again with the same input and the state that it returned changes nothing.

mod cleanup;
mod conditions;
mod new_set;
mod progress;
mod recreate;
mod rollback;
mod rolling;
mod scale;
mod state;
mod status;
mod sync;

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::event::ControllerEvent;
use super::replica_set::{PodCounts, SetFailure};
use crate::api::workload::DeploymentSpec;

pub use progress::DOES_NOT_FIT;
pub use rollback::{OnDeadline, UndoTarget, undo_target, wants_way_back};
pub use state::{DeploymentState, SetRecord};
pub use status::{
    AVAILABLE, DeploymentCondition, DeploymentStatus, HISTORY_LOST, PROGRESSING, REPLICA_FAILURE,
    ROLLED_BACK, SURGE_LOWERED,
};
use sync::Sync;

/// Label that tells the sets of a Deployment, and their pods, apart.
pub const POD_TEMPLATE_HASH: &str = "pod-template-hash";
/// Value of `progressDeadlineSeconds` that means no deadline.
const NO_DEADLINE: i32 = i32::MAX;

/// Everything that a step of a Deployment looks at, apart from the Deployment's state.
#[derive(Clone, Debug)]
pub struct DeploymentInput<'a> {
    /// Name of the Deployment.
    pub name: &'a str,
    /// Generation of the Deployment: 1, and 1 more for each accepted change.
    pub generation: i64,
    /// True if the Deployment is being deleted. Only its status is kept up to date then.
    pub is_deleted: bool,
    /// Annotations of the Deployment, after [`super::overrides::effective`].
    pub annotations: &'a BTreeMap<String, String>,
    /// Spec of the Deployment, after [`super::overrides::effective`].
    pub spec: &'a DeploymentSpec,
    /// Template of the spec as canonical JSON: sorted keys, with defaults, without empty values (workloads 1.6).
    pub canonical_template: &'a str,
    /// Observations of the sets in the state. A set that is missing here has no pods.
    pub sets: &'a [ObservedSet],
    /// Names that the namespace's other ReplicaSets have.
    pub taken_names: &'a [String],
    /// Facts about a new pod of the spec's template on this node.
    pub node: &'a NodeFacts,
    /// Reaction to a missed progress deadline, if the Deployment's annotation does not name one.
    pub on_deadline: OnDeadline,
    /// Present time.
    pub now: Timestamp,
}

/// An observed set: the pods that the node has of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedSet {
    /// Name of the set.
    pub name: String,
    /// True if the set's template equals the spec's (workloads 1.7). The oldest such set is the new set.
    pub is_current: bool,
    /// True if the set is being deleted. It is not part of the history any more.
    pub is_deleted: bool,
    /// Numbers of the set's pods.
    pub pods: PodCounts,
    /// Error that came up when the set's pods were made or ended.
    pub failure: Option<SetFailure>,
}

/// Facts about a new pod of the spec's template on this node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFacts {
    /// Permission of a new pod to run beside an old one.
    pub surge: SurgeAllowance,
    /// State of the new pod's images.
    pub images: ImagesState,
    /// True while no pod may start on the node: it is cordoned, drained or shutting down.
    pub is_closed: bool,
}

/// The permission of a new pod to run beside an old one (workloads 3.20, 3.21).
#[derive(Clone, Debug, Default, PartialEq)]
pub enum SurgeAllowance {
    /// The spec's `maxSurge` holds.
    #[default]
    AsWritten,
    /// A new pod can only take the place of an old one.
    None {
        /// Reason why not.
        reason: SurgeReason,
        /// Sentence for a person, such as `hostPort 80 is held by the old pod`.
        message: String,
    },
    /// A new pod does not fit, even in the place of an old one. The text has admission's words.
    DoesNotFit(String),
}

/// The reason why a new pod cannot run beside an old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SurgeReason {
    /// The old pod holds a port of the node that the new pod needs.
    HostPort,
    /// The node has no room for both.
    NoRoom,
}

impl SurgeReason {
    /// Returns the reason of the condition `SurgeLowered`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HostPort => "HostPort",
            Self::NoRoom => "NoRoomForSurge",
        }
    }
}

/// The state of a template's images: those of all containers, init containers and image volumes (workloads 3.22).
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ImagesState {
    /// All images are there.
    #[default]
    Ready,
    /// An image is being pulled or waits for its turn.
    Pulling {
        /// Time at which a pull last got something; None if none did yet.
        progressed_at: Option<Timestamp>,
    },
    /// A pull failed and will be tried again.
    Failed {
        /// Error of the pull.
        message: String,
        /// Time at which a pull last got something; None if none did yet.
        progressed_at: Option<Timestamp>,
    },
}

impl ImagesState {
    /// True if all images are on the node.
    pub fn is_ready(&self) -> bool {
        *self == Self::Ready
    }
}

/// The way that a step took (workloads 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The selector is empty: nothing was done.
    SelectingAll,
    /// The Deployment is being deleted: only its status was kept up to date.
    Deleted,
    /// The Deployment is paused: its sets were scaled and its history cleaned up.
    Paused,
    /// The annotation asked for an earlier revision.
    Rollback,
    /// The replicas of the Deployment have changed.
    Scale,
    /// A rollout of the strategy RollingUpdate, also one that is complete.
    Rolling,
    /// A rollout of the strategy Recreate, also one that is complete.
    Recreate,
}

/// A change of a set. The state that the step returned has it already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A set is new.
    Create {
        /// Name of the set.
        set: String,
        /// Revision number of the set.
        revision: i64,
        /// Number of pods that the set should have.
        replicas: i32,
    },
    /// The number of a set's pods has changed.
    Scale {
        /// Name of the set.
        set: String,
        /// Number of pods before.
        from: i32,
        /// Number of pods now.
        to: i32,
    },
    /// A set was taken up again and has a new revision number.
    SetRevision {
        /// Name of the set.
        set: String,
        /// New revision number.
        revision: i64,
        /// Earlier revision numbers, separated by commas.
        history: String,
    },
    /// A set has new annotations or a new `minReadySeconds`, and the same revision number.
    Annotate {
        /// Name of the set.
        set: String,
    },
    /// A set is gone. It had no pods but those that have ended.
    Delete {
        /// Name of the set.
        set: String,
    },
}

/// The decisions of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The way that the step took.
    pub mode: Mode,
    /// Changes of sets, in upstream's order.
    pub actions: Vec<Action>,
    /// The state from now on. It must be on the disk before pods are made or ended for it.
    pub state: DeploymentState,
    /// True if the state has changed. Another step must follow as soon as the state is written and applied.
    pub is_changed: bool,
    /// Events about the Deployment.
    pub events: Vec<ControllerEvent>,
    /// Name of the set whose template is in force from now on, because of a rollback by annotation or by itself. The
    /// undo is in the state's overrides.
    pub rolled_back_to: Option<String>,
    /// Time at which the next step must be made, if nothing else happens before.
    pub wake_at: Option<Timestamp>,
}

impl Outcome {
    /// Returns the status of the Deployment.
    pub fn status(&self) -> &DeploymentStatus {
        &self.state.status
    }
}

/// Makes one step of a Deployment (deployment_controller.go: syncDeployment).
pub fn step(input: &DeploymentInput, state: &DeploymentState) -> Outcome {
    let mut sync = Sync::new(input, state);
    let mode = sync.begin();
    match mode {
        Mode::SelectingAll => sync.refuse_empty_selector(),
        Mode::Deleted => sync.renew_status(),
        Mode::Paused => sync.scale_paused(),
        Mode::Rollback => sync.roll_back_by_annotation(),
        Mode::Scale => sync.scale(),
        Mode::Rolling => sync.roll(),
        Mode::Recreate => sync.recreate(),
    }
    sync.outcome(mode, state)
}

#[cfg(test)]
pub(super) mod tests;
