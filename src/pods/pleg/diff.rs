//! The table of kubelet-probes 7: compares two statuses of a pod and returns the events. All functions are pure.

use crate::api::PodUid;
use crate::engine::runtime::{ContainerId, RuntimePodStatus, RuntimeState};

/// The kind of a change of a container or a sandbox. `ContainerChanged` does not exist, because the kubelet computes it
/// but never delivers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// The container or sandbox runs.
    ContainerStarted,
    /// The container or sandbox has ended.
    ContainerDied,
    /// The record of the container or sandbox is gone.
    ContainerRemoved,
    /// Something else of the pod has changed. The whole pod must be looked at.
    PodSync,
}

/// An event of PLEG, sent over its channel.
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

/// Returns the states of containers and sandboxes. A ready sandbox counts as running, any other sandbox as exited.
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

/// Returns the events between two statuses of one pod. A missing pod has an empty status. First come the events of the
/// new status in its order, then the events of removed containers and sandboxes.
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
