//! The restart of all containers by a rule of one of them (kubelet-probes 8.6): every instance is removed, then the pod
//! starts as at its beginning.

use super::restart::restarts_all;
use crate::api::pod::PodSpec;
use crate::api::{Container, Pod, PodStatus};
use crate::runtime::{ContainerId, RuntimeContainerStatus, RuntimePodStatus, RuntimeState};

/// The condition that is True while every container is removed because a rule of one of them asked for it.
pub const ALL_CONTAINERS_RESTARTING: &str = "AllContainersRestarting";
/// Why a container that a restart of all removes is said to have ended, and what it waits for.
pub const RESTARTING_ALL_CONTAINERS: &str = "RestartingAllContainers";

/// An instance to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToRemove {
    /// Which one.
    pub id: ContainerId,
    /// The container's name.
    pub name: String,
    /// It has not ended yet.
    pub kill: bool,
}

/// Whether any container of the pod may ask for it: such pods have the condition AllContainersRestarting.
pub fn may_restart_all(spec: &PodSpec) -> bool {
    let asks = |c: &Container| {
        c.restart_policy.is_some()
            && c.restart_policy_rules
                .iter()
                .any(|r| r.action == "RestartAllContainers")
    };
    spec.all_containers().any(asks)
}

/// Whether the newest instance of a container has ended in a way that asks for it.
pub fn restart_all_wanted(pod: &Pod, status: &RuntimePodStatus) -> bool {
    restart_all_asked_by(pod, status).is_some()
}

/// The first such instance.
pub fn restart_all_asked_by<'a>(
    pod: &Pod,
    status: &'a RuntimePodStatus,
) -> Option<&'a RuntimeContainerStatus> {
    pod.spec.all_containers().find_map(|c| {
        let newest = status.container(&c.name);
        newest.filter(|s| s.state == RuntimeState::Exited && restarts_all(c, s.exit_code))
    })
}

/// The same of the API status, or the restart is going on already (2.5).
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
        || spec.all_containers().any(asks)
}

/// Every instance, in spec order: regular, then init; those that asked for it come last, so that who asked is known
/// until the end.
pub(super) fn removals(pod: &Pod, status: &RuntimePodStatus) -> Vec<ToRemove> {
    let (mut first, mut last) = (Vec::new(), Vec::new());
    for container in pod.spec.containers.iter().chain(&pod.spec.init_containers) {
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
