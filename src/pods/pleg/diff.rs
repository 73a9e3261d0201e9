//! The table of kubelet-probes 7: from two statuses of a pod to its events. Pure.

use crate::api::PodUid;
use crate::engine::runtime::{ContainerId, RuntimePodStatus, RuntimeState};

/// A change of a container or a sandbox. (`ContainerChanged` is computed and never delivered in the kubelet, so it does
/// not exist here.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// The container or sandbox runs.
    ContainerStarted,
    /// The container or sandbox has ended.
    ContainerDied,
    /// The record of the container or sandbox is gone.
    ContainerRemoved,
    /// Something else of the pod changed; look at the whole pod.
    PodSync,
}

/// An item of the PLEG channel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodLifecycleEvent {
    /// The UID of the pod.
    pub uid: PodUid,
    /// The kind of change.
    pub kind: EventKind,
    /// The container or sandbox that changed.
    pub id: ContainerId,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Exited,
    Unknown,
    NonExistent,
}

impl From<RuntimeState> for State {
    fn from(s: RuntimeState) -> Self {
        match s {
            RuntimeState::Running => Self::Running,
            RuntimeState::Exited => Self::Exited,
            RuntimeState::Created | RuntimeState::Unknown => Self::Unknown,
        }
    }
}

/// Sandboxes take part like containers: ready is running, not ready is exited.
fn states(status: &RuntimePodStatus) -> impl Iterator<Item = (&ContainerId, State)> {
    let sandbox = |ready| if ready { State::Running } else { State::Exited };
    let containers = status.containers.iter().map(|c| (&c.id, c.state.into()));
    containers.chain(
        status
            .sandboxes
            .iter()
            .map(move |s| (&s.id, sandbox(s.ready))),
    )
}

fn state_of(status: &RuntimePodStatus, id: &ContainerId) -> State {
    states(status)
        .find(|(i, _)| *i == id)
        .map_or(State::NonExistent, |(_, s)| s)
}

fn kinds(old: State, new: State) -> &'static [EventKind] {
    use EventKind::{ContainerDied, ContainerRemoved, ContainerStarted};
    match (old, new) {
        (old, new) if old == new => &[],
        (_, State::Running) => &[ContainerStarted],
        (_, State::Exited) => &[ContainerDied],
        (_, State::Unknown) => &[],
        (State::Exited, State::NonExistent) => &[ContainerRemoved],
        (_, State::NonExistent) => &[ContainerDied, ContainerRemoved],
    }
}

/// The events between two statuses of one pod; an absent pod is an empty status. The order is that of the new status, then
/// what is no longer in it.
pub fn events(old: &RuntimePodStatus, new: &RuntimePodStatus) -> Vec<PodLifecycleEvent> {
    let uid = if new.uid.as_str().is_empty() {
        &old.uid
    } else {
        &new.uid
    };
    let now = states(new).map(|(id, state)| (id, state_of(old, id), state));
    let gone = states(old)
        .filter(|(id, _)| state_of(new, id) == State::NonExistent)
        .map(|(id, state)| (id, state, State::NonExistent));
    let event = |id: &ContainerId, kind| PodLifecycleEvent {
        uid: uid.clone(),
        kind,
        id: id.clone(),
    };
    now.chain(gone)
        .flat_map(|(id, old, new)| kinds(old, new).iter().map(move |&kind| event(id, kind)))
        .collect()
}
