//! What a sync can do to a pod, and what the decision rests on.

use super::restart_all::ToRemove;
use crate::api::Pod;
use crate::engine::runtime::{ContainerId, RuntimeContainerStatus, RuntimePodStatus};
use crate::pods::probe_result::ProbeResult;

/// The reason for which a container is killed. It decides the grace period (8.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KillReason {
    /// The pod ends, or the spec changed.
    None,
    /// The startup probe failed.
    StartupProbe,
    /// The liveness probe failed.
    LivenessProbe,
    /// The runtime lost track of it.
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
    /// The reason, which decides the grace period.
    pub reason: KillReason,
}

/// The work of one sync, in this order: kill the pod or single containers, remove, create the sandbox, start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodActions {
    /// Kill every running container and the sandbox first.
    pub kill_pod: bool,
    /// Create a sandbox.
    pub create_sandbox: bool,
    /// Number of the sandbox to create.
    pub attempt: u32,
    /// Indexes into `spec.initContainers`, in spec order.
    pub init_start: Vec<usize>,
    /// Indexes into `spec.containers`, in spec order.
    pub start: Vec<usize>,
    /// Single containers to kill.
    pub kill: Vec<ToKill>,
    /// Instances to remove, one after the other: all containers are to restart (8.6).
    pub remove: Vec<ToRemove>,
}

impl PodActions {
    /// True if there is nothing to do.
    pub fn is_empty(&self) -> bool {
        !self.kill_pod && !self.starts() && self.kill.is_empty() && self.remove.is_empty()
    }

    /// Tells whether a sandbox or a container is to start.
    pub fn starts(&self) -> bool {
        self.create_sandbox || !self.init_start.is_empty() || !self.start.is_empty()
    }
}

/// The inputs of a decision.
pub struct Inputs<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The pod's status as the runtime last reported it.
    pub status: &'a RuntimePodStatus,
    /// The liveness cache.
    pub liveness: &'a dyn Fn(&ContainerId) -> Option<ProbeResult>,
    /// The startup cache.
    pub startup: &'a dyn Fn(&ContainerId) -> Option<ProbeResult>,
    /// The pod has the condition AllContainersRestarting (8.6).
    pub restart_all: bool,
    /// Containers of which the runtime knows nothing and that are known to have ended for good: see [`super::ended_before`].
    pub ended_before: &'a [String],
    /// Instances that a person wants to be replaced.
    pub asked: &'a [ContainerId],
}

/// The kill of one instance; `message` is the event's.
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

/// The kill of an instance the runtime has lost track of; `what` is `Container` or `Init container`.
pub(super) fn kill_unknown(what: &str, status: &RuntimeContainerStatus) -> ToKill {
    to_kill(
        status,
        format!("{what} is in \"unknown\" state, try killing it before restart"),
        KillReason::Unknown,
    )
}
