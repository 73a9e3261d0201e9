//! The pod's conditions (kubelet-probes 9.4).

use crate::api::conditions::{ConditionChange, is_kubelets};
use crate::api::pod::{PodReadinessGate, PodSpec};
use crate::api::status::POD_TERMINATING;
use crate::api::{Container, ContainerStatus, PodCondition, PodPhase, PodStatus};
use crate::base::clock::Time;
use crate::pods::actions::{ALL_CONTAINERS_RESTARTING, ResizeState, may_restart_all};

fn condition(type_: &str, status: bool, reason: &str, message: String) -> PodCondition {
    PodCondition {
        type_: type_.into(),
        status: if status { "True" } else { "False" }.into(),
        last_transition_time: None,
        reason: reason.into(),
        message,
    }
}

/// The inputs of the conditions besides the spec and the status.
pub(super) struct ConditionInputs<'a> {
    pub(super) sandbox_ready: bool,
    /// True if all containers are being restarted (8.6).
    pub(super) restarting: bool,
    /// True if the pod is being stopped.
    pub(super) terminating: bool,
    /// The state of the pod's resize (8.13).
    pub(super) resize: &'a ResizeState,
    /// The message about the end of a pod that podprobe itself has ended (workloads 6.13).
    pub(super) disrupted: Option<&'a str>,
    /// The conditions in the previous status.
    pub(super) old: &'a [PodCondition],
}

/// Returns all conditions of a pod: first the conditions that podprobe does not set, then the conditions that podprobe
/// sets, in the order of kubelet-probes 9.4. Transition times are set by [`keep_transition_times`].
pub(super) fn generate(
    spec: &PodSpec,
    status: &PodStatus,
    inputs: &ConditionInputs,
) -> Vec<PodCondition> {
    let containers_ready = containers_ready(spec, Some(status), status.phase);
    let mut all: Vec<PodCondition> = of_others(inputs.old).cloned().collect();
    all.extend(disruption_target(inputs));
    all.extend(of_resize(inputs.resize));
    all.push(condition(
        "PodReadyToStartContainers",
        inputs.sandbox_ready,
        "",
        String::new(),
    ));
    all.push(initialized(
        spec,
        status,
        is_true(inputs.old, "Initialized"),
    ));
    let ready = if inputs.terminating && !status.phase.is_terminal() {
        leaving()
    } else {
        ready(spec, &all, &containers_ready)
    };
    let scheduled = condition("PodScheduled", true, "", String::new());
    all.extend([ready, containers_ready, scheduled]);
    if may_restart_all(spec) {
        all.push(all_containers_restarting(status.phase, inputs.restarting));
    }
    all
}

/// The type of the condition of a pod that was ended for the sake of the node.
const DISRUPTION_TARGET: &str = "DisruptionTarget";

/// Makes the condition of a pod that podprobe itself has ended. The condition stays with the pod.
fn disruption_target(inputs: &ConditionInputs) -> Option<PodCondition> {
    let kept = || {
        let mut old = inputs.old.iter();
        old.find(|c| c.type_ == DISRUPTION_TARGET).cloned()
    };
    let of_order =
        |why: &str| condition(DISRUPTION_TARGET, true, "TerminationByKubelet", why.into());
    inputs.disrupted.map(of_order).or_else(kept)
}

/// Makes the conditions of a pod that is to have other resources. A pod without such a wish has none of them.
fn of_resize(resize: &ResizeState) -> impl Iterator<Item = PodCondition> {
    let pending = resize.no_room.as_ref().map(|why| {
        let message = why.message().to_owned();
        condition("PodResizePending", true, why.reason(), message)
    });
    let in_progress = resize.is_in_progress.then(|| {
        let error = resize.error.clone();
        let reason = if error.is_some() { "Error" } else { "" };
        condition(
            "PodResizeInProgress",
            true,
            reason,
            error.unwrap_or_default(),
        )
    });
    pending.into_iter().chain(in_progress)
}

/// Makes the condition AllContainersRestarting. The condition is never True in a terminal phase, because a pod in such
/// a phase restarts nothing.
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

/// True if the condition of this type exists and is True.
pub(super) fn is_true(conditions: &[PodCondition], type_: &str) -> bool {
    conditions
        .iter()
        .any(|c| c.type_ == type_ && c.status == "True")
}

/// Makes the condition Ready. Ready equals ContainersReady while ContainersReady is not True. After that Ready waits
/// for the readiness gates. The gates look at `before_ready`, the conditions that stand before Ready in the status.
pub(super) fn ready(
    spec: &PodSpec,
    before_ready: &[PodCondition],
    containers_ready: &PodCondition,
) -> PodCondition {
    if containers_ready.status != "True" {
        return PodCondition {
            type_: READY.into(),
            ..containers_ready.clone()
        };
    }
    let gates = spec.readiness_gates.iter();
    let closed: Vec<String> = gates
        .filter_map(|gate| closed(gate, before_ready))
        .collect();
    match closed.is_empty() {
        true => condition(READY, true, "", String::new()),
        false => condition(READY, false, "ReadinessGatesNotReady", closed.join(", ")),
    }
}

const READY: &str = "Ready";

/// Returns the reason why a readiness gate is closed, in the kubelet's words, or `None` if the gate's condition is
/// True.
fn closed(gate: &PodReadinessGate, conditions: &[PodCondition]) -> Option<String> {
    let type_ = &gate.condition_type;
    match conditions.iter().find(|c| c.type_ == *type_) {
        None => Some(format!(
            "corresponding condition of pod readiness gate \"{type_}\" does not exist."
        )),
        Some(c) if c.status != "True" => Some(format!(
            "the status of pod readiness gate \"{type_}\" is not \"True\", but {}",
            c.status
        )),
        Some(_) => None,
    }
}

/// Recomputes ContainersReady and Ready after a part of the status has changed. `before` has the transition times. If
/// Ready says that the pod is being stopped, Ready does not change.
pub(super) fn refresh_ready(
    spec: &PodSpec,
    status: &mut PodStatus,
    before: &[PodCondition],
    now: Time,
) {
    let containers_ready = containers_ready(spec, Some(status), status.phase);
    let mut parts = status.conditions.split(|c| c.type_ == READY);
    let before_ready = parts.next().unwrap_or_default();
    let mut fresh = [
        ready(spec, before_ready, &containers_ready),
        containers_ready,
    ];
    keep_transition_times(&mut fresh, before, now);
    for condition in fresh {
        let same = |c: &&mut PodCondition| c.type_ == condition.type_ && !is_leaving(c);
        if let Some(present) = status.conditions.iter_mut().find(same) {
            *present = condition;
        }
    }
}

/// Returns the conditions that podprobe does not set.
fn of_others(conditions: &[PodCondition]) -> impl Iterator<Item = &PodCondition> {
    conditions.iter().filter(|c| !is_kubelets(&c.type_))
}

/// Replaces the conditions that podprobe does not set by the same conditions in `stored`. Returns true if they
/// differed, because a client set a condition while the status was being computed.
pub(super) fn take_those_of_others(status: &mut PodStatus, stored: &[PodCondition]) -> bool {
    let differs = !of_others(&status.conditions).eq(of_others(stored));
    if differs {
        let own = status.conditions.iter().filter(|c| is_kubelets(&c.type_));
        status.conditions = of_others(stored).chain(own).cloned().collect();
    }
    differs
}

/// Returns a status with only the conditions that podprobe does not set, or `None` if there are no such conditions.
pub fn conditions_of_others(status: &PodStatus) -> Option<PodStatus> {
    let conditions: Vec<PodCondition> = of_others(&status.conditions).cloned().collect();
    (!conditions.is_empty()).then(|| PodStatus {
        conditions,
        ..PodStatus::default()
    })
}

/// The largest number of conditions that a pod may have besides the conditions of its readiness gates and the
/// conditions that podprobe sets.
const MAX_WITHOUT_GATE: usize = 32;

/// The pod already has the largest number of conditions that it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyConditions;

impl std::fmt::Display for TooManyConditions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the pod has {MAX_WITHOUT_GATE} conditions that no readiness gate of it names, which is the most; remove one first"
        )
    }
}

impl std::error::Error for TooManyConditions {}

/// Returns the conditions of a pod after the change of a condition that podprobe does not set. A new condition follows
/// the last of the conditions that podprobe does not set. The removal of a missing condition changes nothing.
///
/// # Errors
/// Returns [`TooManyConditions`] if there is no room for another condition.
pub(super) fn changed(
    spec: &PodSpec,
    conditions: &[PodCondition],
    change: &ConditionChange,
    now: Time,
) -> Result<Vec<PodCondition>, TooManyConditions> {
    let mut all = conditions.to_vec();
    let Some(mut condition) = change.condition() else {
        all.retain(|c| c.type_ != change.type_);
        return Ok(all);
    };
    keep_transition_times(std::slice::from_mut(&mut condition), conditions, now);
    if let Some(present) = all.iter_mut().find(|c| c.type_ == change.type_) {
        *present = condition;
    } else if has_room(spec, conditions, &change.type_) {
        all.insert(of_others(conditions).count(), condition);
    } else {
        return Err(TooManyConditions);
    }
    Ok(all)
}

/// Tells whether the pod may have another condition of type `type_`.
fn has_room(spec: &PodSpec, conditions: &[PodCondition], type_: &str) -> bool {
    let gates = || spec.readiness_gates.iter();
    let has_gate = |type_: &str| gates().any(|gate| gate.condition_type == type_);
    let without_gate = of_others(conditions).filter(|c| !has_gate(&c.type_));
    has_gate(type_) || without_gate.count() < MAX_WITHOUT_GATE
}

/// Makes the condition Ready of a pod that is being stopped. The condition is False, so that the pod gets no new
/// traffic while its containers still answer their readiness probes (lessons A8). The probes continue. The results of
/// the probes show in the containers and in ContainersReady.
fn leaving() -> PodCondition {
    condition(
        READY,
        false,
        POD_TERMINATING,
        "the pod is being stopped".into(),
    )
}

/// True if this Ready condition says that the pod is being stopped.
fn is_leaving(ready: &PodCondition) -> bool {
    ready.reason == POD_TERMINATING
}

/// Makes the condition Initialized. Once the condition is True it stays True, because init containers that run again
/// belong to a restart and not to the initialisation.
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

/// Returns the names of the containers without a status, and the containers with a status together with their statuses.
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

/// Returns a text like `containers with unknown status: [a b], containers with unready status: [c]`.
fn listing(groups: &[(&str, Vec<&str>)]) -> String {
    let named = groups.iter().filter(|(_, names)| !names.is_empty());
    named
        .map(|(what, names)| format!("containers with {what} status: [{}]", names.join(" ")))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Makes the condition ContainersReady from sidecars and regular containers. `status` is `None` while nothing is known
/// of the containers.
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

/// Sets `lastTransitionTime`, which changes only if the status of the condition changes.
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
    use crate::api::conditions::ConditionStatus;

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

    /// Checks the condition Initialized. `init` is `ready` of the plain init container `i` and `started` of the sidecar
    /// `s`. `None` means that the container has no status.
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

    fn gated(types: &[&str]) -> PodSpec {
        let gates: Vec<_> = types.iter().map(|t| json!({"conditionType": t})).collect();
        let spec = json!({"containers": [{"name": "a"}], "readinessGates": gates});
        serde_json::from_value(spec).unwrap()
    }

    fn of(type_: &str, status: &str) -> PodCondition {
        serde_json::from_value(json!({"type": type_, "status": status, "lastTransitionTime": null}))
            .unwrap()
    }

    #[track_caller]
    fn check_gates(conditions: &[(&str, &str)], expected: (&str, &str, &str)) {
        let all: Vec<_> = conditions.iter().map(|(t, s)| of(t, s)).collect();
        let containers_ready = condition("ContainersReady", true, "", String::new());
        let got = ready(&gated(&["a/x", "y"]), &all, &containers_ready);
        assert_eq!(got.type_, "Ready");
        assert_eq!((&*got.status, &*got.reason, &*got.message), expected);
    }

    /// Repeats the cases of the kubelet's own test of readiness gates, with its texts.
    #[test]
    fn every_readiness_gate_must_be_true() {
        let no = |message| ("False", "ReadinessGatesNotReady", message);
        check_gates(
            &[],
            no(
                r#"corresponding condition of pod readiness gate "a/x" does not exist., corresponding condition of pod readiness gate "y" does not exist."#,
            ),
        );
        check_gates(
            &[("a/x", "False")],
            no(
                r#"the status of pod readiness gate "a/x" is not "True", but False, corresponding condition of pod readiness gate "y" does not exist."#,
            ),
        );
        check_gates(
            &[("y", "Unknown"), ("a/x", "True")],
            no(r#"the status of pod readiness gate "y" is not "True", but Unknown"#),
        );
        check_gates(&[("a/x", "True"), ("y", "True")], ("True", "", ""));
        check_gates(
            &[("y", "True"), ("z", "False"), ("a/x", "True")],
            ("True", "", ""),
        );
    }

    #[test]
    fn containers_that_are_not_ready_are_told_before_the_gates() {
        let unready = condition("ContainersReady", false, "ContainersNotReady", "m".into());
        let got = ready(&gated(&["x"]), &[of("x", "True")], &unready);
        assert_eq!(
            (&*got.type_, &*got.status, &*got.reason, &*got.message),
            ("Ready", "False", "ContainersNotReady", "m")
        );
    }

    /// A refreshed Ready keeps the time of the stored Ready if the pod has become ready while a status was being
    /// computed.
    #[test]
    fn a_refreshed_ready_has_the_time_of_the_stored_one() {
        let t = |s: &str| serde_json::from_value::<Time>(json!(s)).unwrap();
        let (early, late) = (t("2026-01-01T00:00:00Z"), t("2026-01-02T00:00:00Z"));
        let since = |mut condition: PodCondition| {
            condition.last_transition_time = Some(early);
            condition
        };
        let stored = ["Ready", "ContainersReady"].map(|type_| since(of(type_, "True")));
        let mut status = PodStatus {
            container_statuses: vec![ContainerStatus {
                name: "a".into(),
                ready: true,
                ..ContainerStatus::default()
            }],
            conditions: vec![
                of("x", "True"),
                of("Ready", "False"),
                of("ContainersReady", "True"),
            ],
            ..PodStatus::default()
        };
        refresh_ready(&gated(&["x"]), &mut status, &stored, late);
        assert_eq!(status.conditions[1..], stored);
        refresh_ready(&gated(&["y"]), &mut status, &stored, late);
        let ready = status.condition("Ready").unwrap();
        assert_eq!(
            (&*ready.status, ready.last_transition_time),
            ("False", Some(late))
        );
    }

    fn change(type_: &str, status: Option<ConditionStatus>) -> ConditionChange {
        ConditionChange {
            type_: type_.into(),
            status,
            reason: String::new(),
            message: String::new(),
        }
    }

    fn names(conditions: &[PodCondition]) -> Vec<(&str, &str)> {
        conditions
            .iter()
            .map(|c| (c.type_.as_str(), c.status.as_str()))
            .collect()
    }

    #[test]
    fn a_condition_of_others_stands_first_and_keeps_its_time() {
        use ConditionStatus::{False, True};
        let t = |s: &str| serde_json::from_value::<Time>(json!(s)).unwrap();
        let (early, late) = (t("2026-01-01T00:00:00Z"), t("2026-01-02T00:00:00Z"));
        let spec = gated(&[]);
        let set = |all: &[PodCondition], c: ConditionChange, now| changed(&spec, all, &c, now);
        let begun = [of("Initialized", "True"), of("Ready", "True")];
        let one = set(&begun, change("x", Some(True)), early).unwrap();
        let two = set(&one, change("y", Some(False)), early).unwrap();
        let own = [("Initialized", "True"), ("Ready", "True")];
        let expected = [&[("x", "True"), ("y", "False")][..], &own].concat();
        assert_eq!(names(&two), expected);
        let why = ConditionChange {
            reason: "R".into(),
            ..change("x", Some(True))
        };
        let again = set(&two, why, late).unwrap();
        assert_eq!(
            (again[0].last_transition_time, &*again[0].reason),
            (Some(early), "R")
        );
        let flipped = set(&again, change("x", Some(False)), late).unwrap();
        assert_eq!(flipped[0].last_transition_time, Some(late));
        assert_eq!(flipped[1].last_transition_time, Some(early));
        let gone = set(&flipped, change("x", None), late).unwrap();
        assert_eq!(names(&gone), [&[("y", "False")][..], &own].concat());
        assert_eq!(set(&gone, change("x", None), late).unwrap(), gone);
    }

    #[test]
    fn conditions_without_a_gate_are_bounded() {
        let spec = gated(&["gate"]);
        let set = |all: &[PodCondition], type_: &str| {
            changed(
                &spec,
                all,
                &change(type_, Some(ConditionStatus::True)),
                Time::now(),
            )
        };
        let mut all = set(&[], "gate").unwrap();
        for n in 0..MAX_WITHOUT_GATE {
            all = set(&all, &format!("x{n}")).unwrap();
        }
        assert_eq!(set(&all, "another"), Err(TooManyConditions));
        assert!(set(&all, "x0").is_ok() && set(&all[1..], "gate").is_ok());
    }

    #[test]
    fn a_new_status_keeps_the_conditions_of_others_and_its_gates_see_them() {
        let spec = gated(&["x"]);
        let status = PodStatus {
            phase: PodPhase::Running,
            container_statuses: vec![ContainerStatus {
                name: "a".into(),
                ready: true,
                ..ContainerStatus::default()
            }],
            ..PodStatus::default()
        };
        let of_old = |old: &[PodCondition]| {
            let inputs = ConditionInputs {
                sandbox_ready: true,
                restarting: false,
                terminating: false,
                disrupted: None,
                resize: &crate::pods::actions::ResizeState::default(),
                old,
            };
            PodStatus {
                conditions: generate(&spec, &status, &inputs),
                ..status.clone()
            }
        };
        let (without, with) = (
            of_old(&[]),
            of_old(&[of("x", "True"), of("Ready", "False")]),
        );
        assert_eq!((without.is_ready(), with.is_ready()), (false, true));
        assert_eq!(names(&with.conditions)[0], ("x", "True"));
        assert_eq!(with.conditions.len(), without.conditions.len() + 1);
    }
}
