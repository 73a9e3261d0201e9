//! Computes the phase of a pod from its spec and container statuses (kubelet-probes 9.1).

use crate::api::pod::PodSpec;
use crate::api::status::{ContainerState, ContainerStateTerminated};
use crate::api::{Container, ContainerStatus, PodPhase};
use crate::pods::actions::{RESTARTING_ALL_CONTAINERS, should_restart_after};

/// The inputs of the phase besides the spec and the statuses.
#[derive(Clone, Copy, Debug, Default)]
pub struct PhaseInputs {
    /// True if all containers of the pod were stopped for good. For a static pod this field has no effect.
    pub pod_is_terminal: bool,
    /// True if a regular container of the present sandbox was created.
    pub has_initialized: bool,
    /// True if the pod is static: see `PodSource::is_static`.
    pub static_pod: bool,
}

#[derive(Default)]
struct Counts {
    pending_init: usize,
    init_failed_for_good: usize,
    pending_sidecar: usize,
    unknown: usize,
    running: usize,
    waiting: usize,
    stopped: usize,
    stopped_for_good: usize,
    succeeded: usize,
}

/// Returns the phase of the pod. `statuses` holds init and regular containers and is searched by name.
pub fn phase(spec: &PodSpec, statuses: &[ContainerStatus], inputs: PhaseInputs) -> PodPhase {
    let mut n = Counts::default();
    let found = |c: &Container| statuses.iter().find(|s| s.name == c.name);
    for container in &spec.init_containers {
        match container.always_restarts() {
            true => count_sidecar(&mut n, found(container)),
            false => count_init(&mut n, spec, container, found(container)),
        }
    }
    for container in &spec.containers {
        count(&mut n, spec, container, found(container));
    }
    decide(&n, inputs)
}

fn decide(n: &Counts, inputs: PhaseInputs) -> PodPhase {
    let ended = || {
        if n.stopped == n.succeeded {
            PodPhase::Succeeded
        } else {
            PodPhase::Failed
        }
    };
    if n.init_failed_for_good > 0 {
        PodPhase::Failed
    } else if n.pending_init > 0
        || (n.pending_sidecar > 0 && !inputs.has_initialized)
        || n.waiting > 0
    {
        PodPhase::Pending
    } else if n.running > 0 && n.unknown == 0 {
        PodPhase::Running
    } else if n.running == 0 && n.stopped > 0 && n.unknown == 0 {
        match () {
            () if inputs.pod_is_terminal && !inputs.static_pod => ended(),
            () if n.stopped != n.stopped_for_good => PodPhase::Running,
            () => ended(),
        }
    } else {
        PodPhase::Pending
    }
}

/// Returns the termination of a container that has ended. For a waiting container, returns its last termination.
fn end(state: &ContainerState, last: &ContainerState) -> Option<ContainerStateTerminated> {
    let before = state.waiting.as_ref().and(last.terminated.as_ref());
    state
        .terminated
        .as_ref()
        .or(before)
        .filter(|_| state.running.is_none())
        .cloned()
}

/// True if the container may start again after this end. A container that was removed by a restart of all containers
/// always starts again, whatever its policy.
fn may_restart(spec: &PodSpec, container: &Container, end: &ContainerStateTerminated) -> bool {
    end.reason == RESTARTING_ALL_CONTAINERS
        || should_restart_after(spec.restart_policy, container, end.exit_code)
}

fn count_init(
    n: &mut Counts,
    spec: &PodSpec,
    container: &Container,
    status: Option<&ContainerStatus>,
) {
    match status.and_then(|s| end(&s.state, &s.last_state)) {
        None => n.pending_init += 1,
        Some(end) if end.exit_code == 0 => {}
        Some(end) => n.init_failed_for_good += usize::from(!may_restart(spec, container, &end)),
    }
}

fn count_sidecar(n: &mut Counts, status: Option<&ContainerStatus>) {
    let Some(status) = status else {
        n.unknown += 1;
        return;
    };
    if status.state.running.is_some() {
        n.running += 1;
        n.pending_sidecar += usize::from(status.started != Some(true));
    } else if end(&status.state, &status.last_state).is_none() {
        n.pending_sidecar += 1;
        if status.state.waiting.is_some() {
            n.waiting += 1
        } else {
            n.unknown += 1
        }
    }
}

/// Counts a regular container by its row of the table of phases. A waiting container with a last termination counts by
/// that termination.
fn count(n: &mut Counts, spec: &PodSpec, container: &Container, status: Option<&ContainerStatus>) {
    let Some(status) = status else {
        n.unknown += 1;
        return;
    };
    if status.state.running.is_some() {
        n.running += 1;
    } else if let Some(end) = end(&status.state, &status.last_state) {
        n.stopped += 1;
        n.succeeded += usize::from(status.state.terminated.is_some() && end.exit_code == 0);
        n.stopped_for_good += usize::from(!may_restart(spec, container, &end));
    } else if status.state.waiting.is_some() {
        n.waiting += 1;
    } else {
        n.unknown += 1;
    }
}
