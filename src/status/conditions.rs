//! The pod's conditions (kubelet-probes 9.4).

use crate::api::pod::PodSpec;
use crate::api::{Container, ContainerStatus, PodCondition, PodPhase, PodStatus};
use crate::clock::Time;
use crate::pod_actions::{ALL_CONTAINERS_RESTARTING, may_restart_all};

fn condition(type_: &str, status: bool, reason: &str, message: String) -> PodCondition {
    PodCondition {
        type_: type_.into(),
        status: if status { "True" } else { "False" }.into(),
        last_transition_time: None,
        reason: reason.into(),
        message,
    }
}

/// The inputs of the conditions besides spec and status.
pub(super) struct ConditionInputs<'a> {
    pub(super) sandbox_ready: bool,
    /// All containers are being restarted (8.6).
    pub(super) restarting: bool,
    /// The pod is being stopped.
    pub(super) terminating: bool,
    /// The conditions before.
    pub(super) old: &'a [PodCondition],
}

/// Every condition that podprobe sets, in the order of kubelet-probes 9.4. Transition times are set
/// by [`keep_transition_times`].
pub(super) fn generate(
    spec: &PodSpec,
    status: &PodStatus,
    inputs: &ConditionInputs,
) -> Vec<PodCondition> {
    let containers_ready = containers_ready(spec, Some(status), status.phase);
    let mut all = vec![
        condition(
            "PodReadyToStartContainers",
            inputs.sandbox_ready,
            "",
            String::new(),
        ),
        initialized(spec, status, is_true(inputs.old, "Initialized")),
        if inputs.terminating && !status.phase.is_terminal() {
            leaving()
        } else {
            ready(&containers_ready)
        },
        containers_ready,
        condition("PodScheduled", true, "", String::new()),
    ];
    if may_restart_all(spec) {
        all.push(all_containers_restarting(status.phase, inputs.restarting));
    }
    all
}

/// The condition AllContainersRestarting; never True in a terminal phase, because such a pod
/// restarts nothing.
fn all_containers_restarting(phase: PodPhase, restarting: bool) -> PodCondition {
    let no = |reason| condition(ALL_CONTAINERS_RESTARTING, false, reason, String::new());
    match phase {
        PodPhase::Succeeded => no("PodCompleted"),
        PodPhase::Failed => no("PodFailed"),
        _ if !restarting => no(""),
        _ => condition(
            ALL_CONTAINERS_RESTARTING,
            true,
            "RestartAllContainersStarted",
            "container exited with restart policy rule".into(),
        ),
    }
}

/// Whether the condition of this type exists and is True.
pub(super) fn is_true(conditions: &[PodCondition], type_: &str) -> bool {
    conditions
        .iter()
        .any(|c| c.type_ == type_ && c.status == "True")
}

/// Ready equals ContainersReady, because there are no readiness gates (decoding refuses them:
/// nothing on the node sets them).
pub(super) fn ready(containers_ready: &PodCondition) -> PodCondition {
    PodCondition {
        type_: "Ready".into(),
        ..containers_ready.clone()
    }
}

/// Ready of a pod that is being stopped is False, so that it gets no new traffic while its
/// containers still answer their readiness probes (lessons A8). The probes continue, and their
/// results show in the containers and in ContainersReady.
fn leaving() -> PodCondition {
    condition(
        "Ready",
        false,
        TERMINATING,
        "the pod is being stopped".into(),
    )
}

/// Whether the condition is the one for a pod that is being stopped.
pub(super) fn is_leaving(ready: &PodCondition) -> bool {
    ready.reason == TERMINATING
}

const TERMINATING: &str = "PodTerminating";

/// Once True it stays True: init containers that run again belong to a restart, not to the
/// initialisation.
fn initialized(spec: &PodSpec, status: &PodStatus, was: bool) -> PodCondition {
    let yes = |reason| condition("Initialized", true, reason, String::new());
    let (unknown, known) = by_knowledge(spec.init_containers.iter(), status);
    let begun = status
        .container_statuses
        .iter()
        .any(|s| s.state.running.is_some() || s.state.terminated.is_some());
    let incomplete = |(c, s): &(&Container, &ContainerStatus)| {
        if c.always_restarts() {
            s.started != Some(true)
        } else {
            !s.ready
        }
    };
    let incomplete: Vec<&str> = known
        .into_iter()
        .filter(incomplete)
        .map(|(c, _)| c.name.as_str())
        .collect();
    if status.phase == PodPhase::Succeeded && unknown.is_empty() {
        yes("PodCompleted")
    } else if begun || was || (unknown.is_empty() && incomplete.is_empty()) {
        yes("")
    } else {
        let message = listing(&[("unknown", unknown), ("incomplete", incomplete)]);
        condition("Initialized", false, "ContainersNotInitialized", message)
    }
}

/// The containers without a status, and the containers with one and their statuses.
fn by_knowledge<'a>(
    containers: impl Iterator<Item = &'a Container>,
    status: &'a PodStatus,
) -> (Vec<&'a str>, Vec<(&'a Container, &'a ContainerStatus)>) {
    let (mut unknown, mut known) = (Vec::new(), Vec::new());
    for container in containers {
        match status.container(&container.name) {
            Some(status) => known.push((container, status)),
            None => unknown.push(container.name.as_str()),
        }
    }
    (unknown, known)
}

/// `containers with unknown status: [a b], containers with unready status: [c]`.
fn listing(groups: &[(&str, Vec<&str>)]) -> String {
    let named = groups.iter().filter(|(_, names)| !names.is_empty());
    named
        .map(|(what, names)| format!("containers with {what} status: [{}]", names.join(" ")))
        .collect::<Vec<_>>()
        .join(", ")
}

/// ContainersReady, of sidecars and regular containers; None while nothing is known of the containers.
pub fn containers_ready(
    spec: &PodSpec,
    status: Option<&PodStatus>,
    phase: PodPhase,
) -> PodCondition {
    let no = |reason, message| condition("ContainersReady", false, reason, message);
    let Some(status) = status else {
        return no("UnknownContainerStatuses", String::new());
    };
    let (unknown, known) = by_knowledge(spec.sidecars().chain(&spec.containers), status);
    let unready: Vec<&str> = known
        .into_iter()
        .filter(|(_, s)| !s.ready)
        .map(|(c, _)| c.name.as_str())
        .collect();
    match phase {
        PodPhase::Succeeded if unknown.is_empty() => no("PodCompleted", String::new()),
        PodPhase::Failed => no("PodFailed", String::new()),
        _ if unknown.is_empty() && unready.is_empty() => {
            condition("ContainersReady", true, "", String::new())
        }
        _ => no(
            "ContainersNotReady",
            listing(&[("unknown", unknown), ("unready", unready)]),
        ),
    }
}

/// `lastTransitionTime` changes only when the status value does.
pub(super) fn keep_transition_times(new: &mut [PodCondition], old: &[PodCondition], now: Time) {
    for condition in new {
        let before = old
            .iter()
            .find(|o| o.type_ == condition.type_ && o.status == condition.status);
        condition.last_transition_time = before.and_then(|o| o.last_transition_time).or(Some(now));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_pod_in_a_terminal_phase_restarts_nothing() {
        let check = |phase, restarting, expected: (&str, &str)| {
            let got = all_containers_restarting(phase, restarting);
            assert_eq!((got.status.as_str(), got.reason.as_str()), expected);
        };
        check(PodPhase::Succeeded, true, ("False", "PodCompleted"));
        check(PodPhase::Failed, true, ("False", "PodFailed"));
        check(PodPhase::Failed, false, ("False", "PodFailed"));
        check(PodPhase::Running, false, ("False", ""));
        check(
            PodPhase::Running,
            true,
            ("True", "RestartAllContainersStarted"),
        );
    }

    /// `init`: ready or started of the plain init container `i` and the sidecar `s`, where they have a status.
    #[track_caller]
    fn check_initialized(
        init: [Option<bool>; 2],
        app: Value,
        phase: PodPhase,
        was: bool,
        expected: (&str, &str, &str),
    ) {
        let spec = json!({"initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}], "containers": [{"name": "a"}]});
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let one = |(name, done): (&str, Option<bool>)| {
            Some(ContainerStatus {
                name: name.into(),
                ready: done?,
                started: done,
                ..ContainerStatus::default()
            })
        };
        let app: ContainerStatus =
            serde_json::from_value(json!({"name": "a", "state": app})).unwrap();
        let status = PodStatus {
            phase,
            init_container_statuses: ["i", "s"].into_iter().zip(init).filter_map(one).collect(),
            container_statuses: vec![app],
            ..PodStatus::default()
        };
        let got = initialized(&spec, &status, was);
        assert_eq!(
            (
                got.status.as_str(),
                got.reason.as_str(),
                got.message.as_str()
            ),
            expected
        );
    }

    #[test]
    fn initialized_when_every_init_container_is_done() {
        let waiting = || json!({"waiting": {}});
        let (done, not) = (Some(true), Some(false));
        let no = |message| ("False", "ContainersNotInitialized", message);
        let pending = PodPhase::Pending;
        check_initialized([done, done], waiting(), pending, false, ("True", "", ""));
        check_initialized(
            [done, not],
            waiting(),
            pending,
            false,
            no("containers with incomplete status: [s]"),
        );
        check_initialized(
            [not, None],
            waiting(),
            pending,
            false,
            no("containers with unknown status: [s], containers with incomplete status: [i]"),
        );
        check_initialized([not, not], waiting(), pending, true, ("True", "", ""));
        check_initialized(
            [not, not],
            json!({"running": {"startedAt": null}}),
            PodPhase::Running,
            false,
            ("True", "", ""),
        );
        check_initialized(
            [not, not],
            json!({"terminated": {"exitCode": 0}}),
            PodPhase::Running,
            false,
            ("True", "", ""),
        );
        check_initialized(
            [done, not],
            waiting(),
            PodPhase::Succeeded,
            false,
            ("True", "PodCompleted", ""),
        );
    }

    #[test]
    fn transition_times_change_with_the_status_only() {
        let t = |s: &str| serde_json::from_value::<Time>(json!(s)).unwrap();
        let (before, now) = (t("2026-01-01T00:00:00Z"), t("2026-01-02T00:00:00Z"));
        let mut old = vec![
            condition("Ready", true, "", String::new()),
            condition("ContainersReady", false, "A", String::new()),
        ];
        keep_transition_times(&mut old, &[], before);
        let mut new = vec![
            condition("Ready", false, "", String::new()),
            condition("ContainersReady", false, "B", String::new()),
        ];
        keep_transition_times(&mut new, &old, now);
        assert_eq!(
            (new[0].last_transition_time, new[1].last_transition_time),
            (Some(now), Some(before))
        );
    }
}
