//! The actions of a sync on a pod, and the inputs of the decision.

use super::restart_all::ToRemove;
use crate::api::Pod;
use crate::engine::runtime::{ContainerId, RuntimeContainerStatus, RuntimePodStatus};
use crate::pods::probe_result::ProbeResult;

/// The reason for which a container is killed. The reason decides the grace period (8.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KillReason {
    /// No probe failed: the pod ends, the spec changed, or a restart was requested.
    None,
    /// The startup probe failed.
    StartupProbe,
    /// The liveness probe failed.
    LivenessProbe,
    /// The runtime has lost track of the container.
    Unknown,
}

/// A container to kill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToKill {
    /// The instance to kill.
    pub id: ContainerId,
    /// The name of the container.
    pub name: String,
    /// The text of the Killing event.
    pub message: String,
    /// The reason for the kill, which decides the grace period.
    pub reason: KillReason,
}

/// The actions of one sync, in this order: kill the pod or single containers, remove, create the sandbox, start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodActions {
    /// True if every running container and the sandbox must be killed first.
    pub kill_pod: bool,
    /// True if a sandbox must be created.
    pub create_sandbox: bool,
    /// The attempt number of the sandbox.
    pub attempt: u32,
    /// The init containers to start: indexes into `spec.initContainers`, in spec order.
    pub init_start: Vec<usize>,
    /// The regular containers to start: indexes into `spec.containers`, in spec order.
    pub start: Vec<usize>,
    /// The ephemeral containers to start: indexes into `spec.ephemeralContainers`, in spec order.
    pub ephemeral_start: Vec<usize>,
    /// The single containers to kill.
    pub kill: Vec<ToKill>,
    /// The instances to remove one after the other, if all containers restart (8.6).
    pub remove: Vec<ToRemove>,
}

impl PodActions {
    /// True if the sync has nothing to do.
    pub fn is_empty(&self) -> bool {
        !self.kill_pod && !self.starts() && self.kill.is_empty() && self.remove.is_empty()
    }

    /// Tells whether a sandbox or a container must be started.
    pub fn starts(&self) -> bool {
        self.create_sandbox
            || !self.init_start.is_empty()
            || !self.start.is_empty()
            || !self.ephemeral_start.is_empty()
    }
}

/// The inputs from which a sync's actions are decided.
pub struct Inputs<'a> {
    /// The pod to decide about.
    pub pod: &'a Pod,
    /// The pod's status as the runtime last reported it.
    pub status: &'a RuntimePodStatus,
    /// Returns the last result of an instance's liveness probe from the cache, or `None` if the cache has no result.
    pub liveness: &'a dyn Fn(&ContainerId) -> Option<ProbeResult>,
    /// Returns the last result of an instance's startup probe from the cache, or `None` if the cache has no result.
    pub startup: &'a dyn Fn(&ContainerId) -> Option<ProbeResult>,
    /// True if the pod has the condition AllContainersRestarting (8.6).
    pub restart_all: bool,
    /// The names of containers that the runtime does not know and that have ended for good: see
    /// [`super::ended_before`].
    pub ended_before: &'a [String],
    /// The instances that a person has asked to replace.
    pub asked: &'a [ContainerId],
    /// The instances that end because the next ones have other resources (8.13).
    pub resized: &'a [ContainerId],
    /// The instances whose stop an earlier daemon has begun.
    pub begun: &'a [ContainerId],
}

/// Makes the kill of one instance. `message` is the text of the Killing event.
pub(super) fn to_kill(
    status: &RuntimeContainerStatus,
    message: String,
    reason: KillReason,
) -> ToKill {
    ToKill {
        id: status.id.clone(),
        name: status.name.clone(),
        message,
        reason,
    }
}

/// Makes the kill of an instance that the runtime has lost track of. The parameter `what` begins the message:
/// `Container` or `Init container`.
pub(super) fn kill_unknown(what: &str, status: &RuntimeContainerStatus) -> ToKill {
    to_kill(
        status,
        format!("{what} is in \"unknown\" state, try killing it before restart"),
        KillReason::Unknown,
    )
}
