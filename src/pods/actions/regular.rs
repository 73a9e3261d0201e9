//! Decides about the regular containers of an initialised pod (kubelet-probes 8.3 step 5).

use super::pod_actions::{Inputs, KillReason, ToKill, kill_unknown, to_kill};
use super::restart::{RESIZE_RESTARTS, RESTART_REQUESTED, STOP_GOES_ON, should_be_restarted};
use crate::api::Container;
use crate::api::pod::RestartPolicy;
use crate::engine::runtime::RuntimeState;
use crate::pods::container_config::spec_hash;
use crate::pods::probe_result::ProbeResult;

/// The decision about all regular containers.
#[derive(Default)]
pub(super) struct Regular {
    /// Indexes into `spec.containers` of the containers to start, in spec order.
    pub(super) start: Vec<usize>,
    pub(super) kill: Vec<ToKill>,
    /// The number of containers that keep running.
    pub(super) kept: usize,
}

pub(super) fn decide(inputs: &Inputs) -> Regular {
    let mut all = Regular::default();
    for (index, container) in inputs.pod.spec.containers.iter().enumerate() {
        match one(inputs, container) {
            Decision::Leave => {}
            Decision::Keep => all.kept += 1,
            Decision::Start(kill) => {
                all.kill.extend(kill);
                all.start.push(index);
            }
            Decision::Kill(kill) => all.kill.push(kill),
        }
    }
    all
}

enum Decision {
    Leave,
    Keep,
    Start(Option<ToKill>),
    Kill(ToKill),
}

/// Decides about one container by the table for regular containers (kubelet-probes 8.3).
fn one(inputs: &Inputs, container: &Container) -> Decision {
    let policy = inputs.pod.spec.restart_policy;
    let newest = inputs.status.container(&container.name);
    let Some(running) = newest.filter(|s| s.state == RuntimeState::Running) else {
        if newest.is_none() && inputs.ended_before.contains(&container.name) {
            return Decision::Leave;
        }
        let deleted = inputs.pod.metadata.deletion_timestamp.is_some();
        return match should_be_restarted(policy, container, newest, deleted) {
            true => Decision::Start(
                newest
                    .filter(|s| s.state == RuntimeState::Unknown)
                    .map(|s| kill_unknown("Container", s)),
            ),
            false => Decision::Leave,
        };
    };
    // After a kill by a probe there is no exit code yet, so the restart rules cannot be applied.
    let restarts = container.restart_policy.unwrap_or(policy) != RestartPolicy::Never;
    let (what, reason, restart) = if running.hash != spec_hash(container) {
        ("definition changed", KillReason::None, true)
    } else if inputs.asked.contains(&running.id) {
        (RESTART_REQUESTED, KillReason::None, restarts)
    } else if inputs.resized.contains(&running.id) {
        (RESIZE_RESTARTS, KillReason::None, restarts)
    } else if (inputs.liveness)(&running.id) == Some(ProbeResult::Failure) {
        ("failed liveness probe", KillReason::LivenessProbe, restarts)
    } else if (inputs.startup)(&running.id) == Some(ProbeResult::Failure) {
        ("failed startup probe", KillReason::StartupProbe, restarts)
    } else if inputs.begun.contains(&running.id) {
        (STOP_GOES_ON, KillReason::None, restarts)
    } else {
        return Decision::Keep;
    };
    let then = if restart { ", will be restarted" } else { "" };
    let kill = to_kill(
        running,
        format!("Container {} {what}{then}", container.name),
        reason,
    );
    if restart {
        Decision::Start(Some(kill))
    } else {
        Decision::Kill(kill)
    }
}
