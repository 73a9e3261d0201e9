//! Sets Ready and Started in a fresh status (kubelet-probes 4.3, 4.4).
//!
//! Invariants: this module is pure. Only the spec and the caches decide. The existence of a worker has no effect
//! (lessons A7, kubelet-probes 15 O14).

use crate::api::pod::PodSpec;
use crate::api::{Container, ContainerStatus};
use crate::pods::prober::results::ProbeResult;

/// The facts about a container that its fresh status does not have.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    /// The value of the startup cache for the container's id.
    pub startup: Option<ProbeResult>,
    /// The value of the readiness cache for the container's id.
    pub readiness: Option<ProbeResult>,
    /// True if the stored status has started=true for the same container id.
    pub was_started: bool,
}

/// Sets `started` and `ready` of a container by its kind.
pub fn update(entry: &mut ContainerStatus, spec: &PodSpec, known: Known) {
    match spec.find(&entry.name).map(|listed| listed.container) {
        Some(container) if is_plain_init(spec, container) => {
            update_plain_init(entry, container, known);
        }
        Some(container) => update_lasting(entry, container, known),
        None => {}
    }
}

/// True if a container's readiness worker must probe at once. According to the stored status, the container has started
/// but is not ready yet (kubelet-probes 4.3).
pub fn awaits_readiness(entry: &ContainerStatus, spec: &PodSpec) -> bool {
    let waits = entry.started == Some(true) && !entry.ready;
    let container = spec.find(&entry.name).map(|listed| listed.container);
    waits && container.is_some_and(|c| !is_plain_init(spec, c))
}

fn is_plain_init(spec: &PodSpec, container: &Container) -> bool {
    spec.is_init(&container.name) && !container.always_restarts()
}

/// Sets `started` and `ready` of a regular container or a sidecar.
fn update_lasting(entry: &mut ContainerStatus, spec: &Container, known: Known) {
    let running = entry.state.running.is_some();
    let started = running && is_started(entry, spec, known);
    entry.started = Some(started);
    if started {
        let success = known.readiness == Some(ProbeResult::Success);
        entry.ready = success || spec.readiness_probe.is_none();
    }
}

fn is_started(entry: &ContainerStatus, spec: &Container, known: Known) -> bool {
    match known.startup {
        Some(result) => result == ProbeResult::Success,
        None => entry.started == Some(true) || known.was_started || spec.startup_probe.is_none(),
    }
}

/// Sets `started` and `ready` of a plain init container. Such a container is ready when it has ended with exit code 0.
fn update_plain_init(entry: &mut ContainerStatus, spec: &Container, known: Known) {
    entry.started = Some(entry.state.running.is_some() && is_started(entry, spec, known));
    entry.ready = entry
        .state
        .terminated
        .as_ref()
        .is_some_and(|t| t.exit_code == 0);
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::api::Probe;
    use crate::api::status::{ContainerState, ContainerStateRunning, ContainerStateTerminated};

    fn running() -> ContainerState {
        ContainerState {
            running: Some(ContainerStateRunning { started_at: None }),
            ..Default::default()
        }
    }

    fn ended(exit_code: i32) -> ContainerState {
        ContainerState {
            terminated: Some(ContainerStateTerminated {
                exit_code,
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    /// Each letter of `probes` (s, r, l) is a probe of the spec: startup, readiness, liveness.
    #[track_caller]
    fn check(
        state: ContainerState,
        probes: &str,
        known: Known,
        started: bool,
        ready: bool,
        trigger: bool,
    ) {
        let probe = |c| probes.contains(c).then(Probe::default);
        let container = Container {
            startup_probe: probe('s'),
            readiness_probe: probe('r'),
            liveness_probe: probe('l'),
            ..Default::default()
        };
        let spec = PodSpec {
            containers: vec![container],
            ..Default::default()
        };
        let mut entry = ContainerStatus {
            state,
            ..Default::default()
        };
        update(&mut entry, &spec, known);
        assert_eq!(
            (entry.started, entry.ready, awaits_readiness(&entry, &spec),),
            (Some(started), ready, trigger)
        );
    }

    #[test]
    fn ready_and_started_follow_spec_and_caches() {
        let none = Known::default();
        let readiness = |r| Known {
            readiness: Some(r),
            ..none
        };
        let startup = |r| Known {
            startup: Some(r),
            ..none
        };
        check(running(), "l", none, true, true, false);
        check(
            running(),
            "r",
            readiness(ProbeResult::Success),
            true,
            true,
            false,
        );
        check(running(), "r", none, true, false, true);
        check(
            running(),
            "r",
            readiness(ProbeResult::Failure),
            true,
            false,
            true,
        );
        check(running(), "s", none, false, false, false);
        check(
            running(),
            "s",
            startup(ProbeResult::Unknown),
            false,
            false,
            false,
        );
        check(
            running(),
            "s",
            startup(ProbeResult::Failure),
            false,
            false,
            false,
        );
        check(
            running(),
            "s",
            startup(ProbeResult::Success),
            true,
            true,
            false,
        );
        check(
            running(),
            "sr",
            startup(ProbeResult::Success),
            true,
            false,
            true,
        );
        check(
            ended(0),
            "r",
            readiness(ProbeResult::Success),
            false,
            false,
            false,
        );
        check(ContainerState::default(), "", none, false, false, false);
    }

    #[test]
    fn started_once_stays_started_for_the_same_id_only() {
        let was = Known {
            was_started: true,
            ..Default::default()
        };
        check(running(), "s", was, true, true, false);
        check(
            running(),
            "s",
            Known {
                startup: Some(ProbeResult::Unknown),
                ..was
            },
            false,
            false,
            false,
        );
        check(ended(1), "s", was, false, false, false);
    }

    #[test]
    fn an_init_container_is_ready_when_it_has_ended_well() {
        for (state, started, ready) in [
            (running(), true, false),
            (ended(0), false, true),
            (ended(1), false, false),
        ] {
            let mut entry = ContainerStatus {
                state,
                ..Default::default()
            };
            let spec = PodSpec {
                init_containers: vec![Container::default()],
                ..Default::default()
            };
            update(&mut entry, &spec, Known::default());
            assert_eq!((entry.started, entry.ready), (Some(started), ready));
            assert!(!awaits_readiness(&entry, &spec));
        }
    }
}
