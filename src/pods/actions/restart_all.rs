//! Restarts all containers of a pod if a rule of one container requests such a restart (kubelet-probes 8.6). Every
//! instance is removed, then the pod starts as at its beginning.

use super::restart::restarts_all;
use crate::api::pod::PodSpec;
use crate::api::{Container, Pod, PodStatus};
use crate::engine::runtime::{ContainerId, RuntimeContainerStatus, RuntimePodStatus, RuntimeState};

/// The pod condition that is True while all containers are removed because a rule of one container requested a restart
/// of all.
pub const ALL_CONTAINERS_RESTARTING: &str = "AllContainersRestarting";
/// The reason in the status of a container that was removed by a restart of all containers. Both the terminated and the
/// waiting state have this reason.
pub const RESTARTING_ALL_CONTAINERS: &str = "RestartingAllContainers";

/// An instance to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToRemove {
    /// The id of the instance to remove.
    pub id: ContainerId,
    /// The container's name.
    pub name: String,
    /// True if the instance still runs and must be killed first.
    pub kill: bool,
}

/// Tells whether a rule of some container can request a restart of all containers. A pod with such a rule has the
/// condition AllContainersRestarting.
pub fn may_restart_all(spec: &PodSpec) -> bool {
    let asks = |c: &Container| {
        c.restart_policy.is_some()
            && c.restart_policy_rules
                .iter()
                .any(|r| r.action == "RestartAllContainers")
    };
    spec.lasting_containers().any(asks)
}

/// True if the newest instance of a container has ended with an exit code that requests a restart of all containers.
pub fn restart_all_wanted(pod: &Pod, status: &RuntimePodStatus) -> bool {
    restart_all_asked_by(pod, status).is_some()
}

/// Returns the first instance with an exit code that requests a restart of all containers.
pub fn restart_all_asked_by<'a>(
    pod: &Pod,
    status: &'a RuntimePodStatus,
) -> Option<&'a RuntimeContainerStatus> {
    pod.spec.lasting_containers().find_map(|c| {
        let newest = status.container(&c.name);
        newest.filter(|s| s.state == RuntimeState::Exited && restarts_all(c, s.exit_code))
    })
}

/// True if a container of the API status has ended with an exit code that requests a restart of all containers, or if
/// that restart has already begun (2.5).
pub fn restart_all_going_on(spec: &PodSpec, status: &PodStatus) -> bool {
    let asks = |c: &Container| {
        let ended = status
            .container(&c.name)
            .and_then(|s| s.state.terminated.as_ref());
        ended.is_some_and(|t| restarts_all(c, t.exit_code))
    };
    status
        .condition(ALL_CONTAINERS_RESTARTING)
        .is_some_and(|c| c.status == "True")
        || spec.lasting_containers().any(asks)
}

/// Returns every instance to remove: first the instances of regular containers, then the instances of init containers,
/// each in spec order. The instances that requested the restart come last, so that the cause stays visible to the end.
pub(super) fn removals(pod: &Pod, status: &RuntimePodStatus) -> Vec<ToRemove> {
    let (mut first, mut last) = (Vec::new(), Vec::new());
    // An ephemeral container goes on: it belongs to nobody's start.
    let (regular, init) = (&pod.spec.containers, &pod.spec.init_containers);
    for container in regular.iter().chain(init) {
        for (age, s) in status
            .containers
            .iter()
            .filter(|s| s.name == container.name)
            .enumerate()
        {
            let trigger =
                age == 0 && s.state == RuntimeState::Exited && restarts_all(container, s.exit_code);
            let remove = ToRemove {
                id: s.id.clone(),
                name: s.name.clone(),
                kill: s.state != RuntimeState::Exited,
            };
            if trigger {
                last.push(remove)
            } else {
                first.push(remove)
            }
        }
    }
    first.append(&mut last);
    first
}
