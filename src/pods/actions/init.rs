//! Decides about the init containers and sidecars of a pod (kubelet-probes 8.3.1). The containers are visited from the
//! last to the first. The first visited container that has a status shows how far the pod's initialisation has come.

use super::pod_actions::{Inputs, KillReason, ToKill, kill_unknown, to_kill};
use super::restart::{RESIZE_RESTARTS, RESTART_REQUESTED, STOP_GOES_ON, should_restart_after};
use crate::api::Container;
use crate::api::pod::RestartPolicy;
use crate::engine::runtime::{RuntimeContainerStatus, RuntimePodStatus, RuntimeState};
use crate::pods::container_config::spec_hash;
use crate::pods::probe_result::ProbeResult;

/// The decision about all init containers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Init {
    /// True if the regular containers may start.
    pub(super) initialized: bool,
    /// True if initialisation has failed for good. The pod is then killed.
    pub(super) kill_pod: bool,
    /// Indexes into `spec.initContainers` of the containers to start, in spec order.
    pub(super) start: Vec<usize>,
    pub(super) kill: Vec<ToKill>,
}

pub(super) fn decide(inputs: &Inputs) -> Init {
    let containers = &inputs.pod.spec.init_containers;
    let began = any_regular_alive(inputs);
    let mut walk = Walk {
        inputs,
        began,
        all: Init {
            initialized: began || containers.is_empty(),
            ..Init::default()
        },
    };
    for (index, container) in containers.iter().enumerate().rev() {
        walk.visit(index, container);
    }
    if !walk.began && !containers.is_empty() {
        walk.all.start.push(0);
    }
    walk.all.start.sort_unstable();
    walk.all
}

fn any_regular_alive(inputs: &Inputs) -> bool {
    let newest = inputs
        .pod
        .spec
        .containers
        .iter()
        .filter_map(|c| inputs.status.container(&c.name));
    newest
        .into_iter()
        .any(|s| matches!(s.state, RuntimeState::Created | RuntimeState::Running))
}

/// Tells whether a regular container was ever created in the present sandbox. If so, the pod has been initialised (9.1,
/// 9.3 S8).
pub fn has_initialized(pod: &crate::api::Pod, status: &RuntimePodStatus) -> bool {
    let Some(sandbox) = status.sandboxes.first() else {
        return false;
    };
    let regular = |name: &str| pod.spec.containers.iter().any(|c| c.name == name);
    status
        .containers
        .iter()
        .any(|c| c.sandbox == sandbox.id && regular(&c.name))
}

struct Walk<'a> {
    inputs: &'a Inputs<'a>,
    /// True if the pod has already come as far as the visited container: a regular container was created, or a later
    /// init container has a status.
    began: bool,
    all: Init,
}

impl Walk<'_> {
    fn visit(&mut self, index: usize, container: &Container) {
        let sidecar = container.always_restarts();
        let Some(status) = self.inputs.status.container(&container.name) else {
            if self.began && sidecar {
                self.all.start.push(index);
            }
            return;
        };
        match sidecar {
            true => self.sidecar(index, container, status),
            false if self.began => {}
            false => self.plain(index, container, status),
        }
        self.began = true;
    }

    fn plain(&mut self, index: usize, container: &Container, status: &RuntimeContainerStatus) {
        let policy = self.inputs.pod.spec.restart_policy;
        match status.state {
            RuntimeState::Running => {}
            RuntimeState::Created => self.all.start.push(index),
            RuntimeState::Exited if status.exit_code == 0 => self.done(index),
            RuntimeState::Exited if should_restart_after(policy, container, status.exit_code) => {
                self.all.start.push(index)
            }
            RuntimeState::Unknown
                if container.restart_policy.unwrap_or(policy) != RestartPolicy::Never =>
            {
                self.restart(index, kill_unknown("Init container", status));
            }
            RuntimeState::Exited | RuntimeState::Unknown => self.all.kill_pod = true,
        }
    }

    fn sidecar(&mut self, index: usize, container: &Container, status: &RuntimeContainerStatus) {
        match status.state {
            RuntimeState::Created | RuntimeState::Exited => self.all.start.push(index),
            RuntimeState::Unknown => self.restart(index, kill_unknown("Init container", status)),
            RuntimeState::Running => self.running_sidecar(index, container, status),
        }
    }

    fn running_sidecar(
        &mut self,
        index: usize,
        container: &Container,
        status: &RuntimeContainerStatus,
    ) {
        let kill = |what: &str, reason| {
            to_kill(
                status,
                format!("Init container {} {what}", container.name),
                reason,
            )
        };
        if self.inputs.asked.contains(&status.id) {
            return self.restart(index, kill(RESTART_REQUESTED, KillReason::None));
        }
        if self.inputs.begun.contains(&status.id) {
            return self.restart(index, kill(STOP_GOES_ON, KillReason::None));
        }
        if container.startup_probe.is_some() {
            match (self.inputs.startup)(&status.id) {
                Some(ProbeResult::Success) => {}
                Some(ProbeResult::Failure) => {
                    return self.restart(
                        index,
                        kill("failed startup probe", KillReason::StartupProbe),
                    );
                }
                Some(ProbeResult::Unknown) | None => return,
            }
        }
        if !self.began || index + 1 == self.inputs.pod.spec.init_containers.len() {
            self.done(index);
        }
        // A restart for one of the two reasons below does not delay the next container.
        if status.hash != spec_hash(container) {
            self.restart(index, kill("definition changed", KillReason::None));
        } else if self.inputs.resized.contains(&status.id) {
            self.restart(index, kill(RESIZE_RESTARTS, KillReason::None));
        } else if container.liveness_probe.is_some()
            && (self.inputs.liveness)(&status.id) == Some(ProbeResult::Failure)
        {
            self.restart(
                index,
                kill("failed liveness probe", KillReason::LivenessProbe),
            );
        }
    }

    /// Marks the init container as done: starts the next one, or reports the pod as initialised after the last one.
    fn done(&mut self, index: usize) {
        match index + 1 == self.inputs.pod.spec.init_containers.len() {
            true => self.all.initialized = true,
            false => self.all.start.push(index + 1),
        }
    }

    fn restart(&mut self, index: usize, kill: ToKill) {
        self.all.kill.push(kill);
        self.all.start.push(index);
    }
}
