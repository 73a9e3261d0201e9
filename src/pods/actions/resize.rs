//! Decides how a pod gets the resources that its spec asks for since its containers were made (kubelet-probes 8.13).
//!
//! Invariants: pure. A container has the resources in effect until all that the pod asks for has room on the node: then all
//! of its containers get theirs.

use std::sync::Arc;

use crate::api::pod::{ResourceRequirements, RestartPolicy};
use crate::api::{Container, Pod, PodStatus};
use crate::engine::runtime::{ContainerId, RuntimePodStatus, RuntimeState};

/// The resources that a running container can get more or less of.
const RESIZABLE: [&str; 2] = ["cpu", "memory"];
/// The restart policy of a resource that a container takes only when it starts.
const RESTART_CONTAINER: &str = "RestartContainer";

/// The reason why a pod keeps the resources in effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// The node never has as much.
    Infeasible(String),
    /// Other pods use what the pod asks for.
    Deferred(String),
}

impl NoRoom {
    /// The reason of the condition PodResizePending.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Infeasible(_) => "Infeasible",
            Self::Deferred(_) => "Deferred",
        }
    }

    /// The message of the condition.
    pub fn message(&self) -> &str {
        let (Self::Infeasible(message) | Self::Deferred(message)) = self;
        message
    }
}

/// The state of a pod whose containers have other resources than its spec.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResizeState {
    /// The reason why the resources in effect stay.
    pub no_room: Option<NoRoom>,
    /// True while containers are to get other resources.
    pub is_in_progress: bool,
    /// The reason why a container did not get its resources.
    pub error: Option<String>,
}

/// A container that is to have other resources while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToResize {
    /// The running instance.
    pub id: ContainerId,
    /// The name of the container.
    pub name: String,
}

/// The plan for the resources of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Resize {
    /// The pod with the resources that its containers have or get now.
    pub pod: Arc<Pod>,
    /// The pod with the resources in effect.
    pub before: Arc<Pod>,
    /// The reason why the resources in effect stay.
    pub no_room: Option<NoRoom>,
    /// The containers that get other resources while they run.
    pub update: Vec<ToResize>,
    /// The instances that end, because their next ones start with other resources.
    pub restart: Vec<ContainerId>,
}

impl Resize {
    /// True if a container is to get other resources.
    pub fn is_due(&self) -> bool {
        !self.update.is_empty() || !self.restart.is_empty()
    }
}

/// Plans the resources of a pod. `old` is its last status, which knows what containers had that went with a reboot. `room`
/// tells whether the node has room for the pod in place of what it has now, which it gets; it is asked only if something
/// has changed.
pub fn plan(
    pod: &Arc<Pod>,
    runtime: &RuntimePodStatus,
    old: Option<&PodStatus>,
    room: impl FnOnce(&Arc<Pod>) -> Result<(), NoRoom>,
) -> Resize {
    let mut plan = Resize {
        pod: pod.clone(),
        before: pod.clone(),
        no_room: None,
        update: Vec::new(),
        restart: Vec::new(),
    };
    let Some(before) = in_effect(pod, runtime, old) else {
        return plan;
    };
    plan.before = Arc::new(before);
    for (container, had) in resizable(pod).zip(resizable(&plan.before)) {
        let changed = changed(&had.resources, &container.resources);
        let instance = runtime.container(&container.name);
        let running = instance.filter(|instance| instance.state == RuntimeState::Running);
        let Some(instance) = running.filter(|_| !changed.is_empty()) else {
            continue;
        };
        match restarts(pod, container, &changed) {
            true => plan.restart.push(instance.id.clone()),
            false => plan.update.push(ToResize {
                id: instance.id.clone(),
                name: container.name.clone(),
            }),
        }
    }
    if let Err(why) = room(&plan.before) {
        plan.pod = plan.before.clone();
        plan.no_room = Some(why);
        plan.update.clear();
        plan.restart.clear();
    }
    plan
}

/// Returns the pod with the resources that its containers have or had last; None if those are what it asks for.
pub fn in_effect(pod: &Pod, runtime: &RuntimePodStatus, old: Option<&PodStatus>) -> Option<Pod> {
    let mut before: Option<Pod> = None;
    for container in resizable(pod) {
        let instance = runtime.container(&container.name);
        let of_status = old.and_then(|old| old.container(&container.name));
        let of_status = of_status.filter(|status| match instance {
            Some(instance) => status.container_id == instance.id.uri(),
            None => !status.container_id.is_empty(),
        });
        let of_status = of_status.and_then(|status| status.resources.as_ref());
        let of_instance = instance.and_then(|instance| instance.resources.as_deref());
        let Some(now) = of_instance.or(of_status) else {
            continue;
        };
        if !changed(now, &container.resources).is_empty() {
            let before = before.get_or_insert_with(|| pod.clone());
            set_resources(before, &container.name, now);
        }
    }
    before
}

/// Iterates over the containers that can get other resources.
fn resizable(pod: &Pod) -> impl Iterator<Item = &Container> {
    let sidecars = pod.spec.init_containers.iter();
    let sidecars = sidecars.filter(|container| container.always_restarts());
    sidecars.chain(&pod.spec.containers)
}

/// Returns the resources of which a container is to have another amount.
fn changed(now: &ResourceRequirements, wanted: &ResourceRequirements) -> Vec<&'static str> {
    let differs = |name: &&str| {
        let of = |r: &ResourceRequirements| {
            [&r.requests, &r.limits].map(|map| map.get(*name)?.parse().ok())
        };
        of(now) != of(wanted)
    };
    RESIZABLE.into_iter().filter(differs).collect()
}

fn restarts(pod: &Pod, container: &Container, changed: &[&str]) -> bool {
    let policy = container.restart_policy.unwrap_or(pod.spec.restart_policy);
    let asks = container.resize_policy.iter().any(|policy| {
        policy.restart_policy == RESTART_CONTAINER
            && changed.contains(&policy.resource_name.as_str())
    });
    // A container that would not start again is never ended for its resources.
    asks && policy != RestartPolicy::Never
}

fn set_resources(pod: &mut Pod, name: &str, resources: &ResourceRequirements) {
    let spec = Arc::make_mut(&mut pod.spec);
    let all = spec.init_containers.iter_mut().chain(&mut spec.containers);
    for container in all.filter(|container| container.name == name) {
        for kind in RESIZABLE {
            let pairs = [
                (&mut container.resources.requests, &resources.requests),
                (&mut container.resources.limits, &resources.limits),
            ];
            for (to, from) in pairs {
                match from.get(kind) {
                    Some(amount) => to.insert(kind.to_owned(), amount.clone()),
                    None => to.remove(kind),
                };
            }
        }
    }
}

#[cfg(test)]
mod tests;
