//! Makes container statuses from the runtime's status, the previous status and recorded start failures
//! (kubelet-probes 9.3).

use crate::api::pod::{ResourceRequirements, VolumeMount};
use crate::api::status::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerUser, LinuxContainerUser, VolumeMountStatus,
};
use crate::api::{Container, ContainerStatus, Pod, PodStatus};
use crate::base::clock::Time;
use crate::engine::runtime::{LinuxUser, RuntimeContainerStatus, RuntimePodStatus, RuntimeState};
use crate::pods::actions::{
    RESTARTING_ALL_CONTAINERS, has_initialized, should_be_restarted, should_restart_after,
};

/// Message of a container that was running and has become unknown to the runtime (S5).
const NOT_LOCATED: &str = "The container could not be located when the pod was terminated";
/// The exit code of a container with an unrecorded end (S3, S4).
pub(super) const UNSEEN_EXIT_CODE: i32 = 137;
/// The message of a container that was removed by a restart of all containers (8.6).
const REMOVED_FOR_RESTART: &str = "The container is removed because RestartAllContainers in place";
/// Upper limit in bytes of all termination messages of a pod together (8.8).
const MAX_MESSAGES: usize = 12_288;

/// The reason why the last start of a container failed. The reason becomes `state.waiting` (S7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartFailure {
    /// The reason in one word: `CrashLoopBackOff`, `ErrImageNeverPull`, …
    pub reason: String,
    /// The cause, and what to do about it.
    pub message: String,
}

/// The inputs of container statuses.
pub(super) struct Inputs<'a> {
    pub(super) pod: &'a Pod,
    pub(super) runtime: &'a RuntimePodStatus,
    pub(super) old: Option<&'a PodStatus>,
    pub(super) failure: &'a dyn Fn(&str) -> Option<StartFailure>,
    /// True if all containers are being restarted (8.6).
    pub(super) restarting: bool,
}

/// Makes one status per regular container, sorted by name (S9). `ready` is false in all these statuses, and `started`
/// is only inherited. The probe manager sets both fields (S10).
pub(super) fn regular(inputs: &Inputs) -> Vec<ContainerStatus> {
    let mut statuses: Vec<_> = inputs
        .pod
        .spec
        .containers
        .iter()
        .map(|c| one(inputs, c, true))
        .collect();
    statuses.sort_by(|a, b| a.name.cmp(&b.name));
    statuses
}

/// Makes the statuses of ephemeral containers in spec order. They are never ready.
pub(super) fn ephemeral(inputs: &Inputs) -> Vec<ContainerStatus> {
    let all = inputs.pod.spec.ephemeral_containers.iter();
    all.map(|c| one(inputs, &c.container, true)).collect()
}

/// Makes the statuses of init containers in spec order, with rule S8.
pub(super) fn init(inputs: &Inputs) -> Vec<ContainerStatus> {
    let has_initialized = has_initialized(inputs.pod, inputs.runtime);
    let init = |container: &Container| {
        let newest = inputs.runtime.container(&container.name);
        let succeeded = newest.is_some_and(|s| s.state == RuntimeState::Exited && s.exit_code == 0);
        let mut status = one(inputs, container, !succeeded);
        let forgotten = has_initialized && newest.is_none() && !container.always_restarts();
        if forgotten && status.state.terminated.is_none() {
            let message = "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally";
            status.state = terminated(ContainerStateTerminated {
                reason: "Completed".into(),
                message: message.into(),
                ..ContainerStateTerminated::default()
            });
        }
        status
    };
    inputs.pod.spec.init_containers.iter().map(init).collect()
}

/// Makes the status of one container by rules S1–S7. A start failure is shown only if `may_fail` is true.
fn one(inputs: &Inputs, container: &Container, may_fail: bool) -> ContainerStatus {
    let Inputs {
        pod, runtime, old, ..
    } = inputs;
    let old = old.and_then(|s| s.container(&container.name));
    let mut status = from_runtime(inputs, container, old);
    let instance = (runtime.containers.iter()).find(|c| c.id.uri() == status.container_id);
    let in_effect = instance.and_then(|instance| instance.resources.as_deref());
    fill_from_spec(&mut status, container, in_effect, old);
    let deleted = pod.metadata.deletion_timestamp.is_some();
    let newest = runtime.container(&container.name);
    let policy = pod.spec.restart_policy;
    // True if only the previous status knows the container's end, as after a reboot.
    let ended_before = newest.is_none()
        && old
            .and_then(|o| o.state.terminated.as_ref())
            .is_some_and(|t| !should_restart_after(policy, container, t.exit_code));
    let starts = !ended_before && should_be_restarted(policy, container, newest, deleted);
    if may_fail
        && starts
        && !inputs.restarting
        && let Some(StartFailure { reason, message }) = (inputs.failure)(&container.name)
    {
        if status.state.terminated.is_some() {
            status.last_state = std::mem::take(&mut status.state);
        }
        status.state = waiting(&reason, &message);
    }
    status
}

/// Returns the `recursiveReadOnly` of a mount's status. `IfPossible` becomes `Enabled`: of the kernels that podprobe
/// runs on, only the oldest cannot make a mount read-only with all mounts below it.
fn recursive_read_only(mount: &VolumeMount) -> &'static str {
    match mount.recursive_read_only.as_deref() {
        Some("Enabled" | "IfPossible") => "Enabled",
        _ => "Disabled",
    }
}

/// Adds the fields that the kubelet copies from the spec: the mounts of each container, and the resources of each
/// created container. A container of an older podprobe keeps the resources that its status had first.
fn fill_from_spec(
    status: &mut ContainerStatus,
    container: &Container,
    in_effect: Option<&ResourceRequirements>,
    old: Option<&ContainerStatus>,
) {
    let mount = |m: &VolumeMount| VolumeMountStatus {
        name: m.name.clone(),
        mount_path: m.mount_path.clone(),
        read_only: m.read_only,
        recursive_read_only: m.read_only.then(|| recursive_read_only(m).into()),
    };
    status.volume_mounts = container.volume_mounts.iter().map(mount).collect();
    if status.container_id.is_empty() {
        return;
    }
    if let Some(in_effect) = in_effect {
        status.allocated_resources = container.resources.requests.clone();
        status.resources = Some(in_effect.clone());
        return;
    }
    let same = old.filter(|old| old.container_id == status.container_id);
    match same.filter(|old| old.resources.is_some()) {
        Some(old) => {
            status
                .allocated_resources
                .clone_from(&old.allocated_resources);
            status.resources.clone_from(&old.resources);
        }
        None => {
            status.allocated_resources = container.resources.requests.clone();
            status.resources = Some(container.resources.clone());
        }
    }
}

/// Cuts the termination messages of a pod (8.8). All containers get an equal part of the size limit.
pub(super) fn cut_messages(pod: &Pod, statuses: &mut [ContainerStatus]) {
    let limit = MAX_MESSAGES / pod.spec.all_containers().count().max(1);
    let states = statuses
        .iter_mut()
        .flat_map(|s| [&mut s.state, &mut s.last_state]);
    for ended in states.filter_map(|s| s.terminated.as_mut()) {
        let end = ended.message.floor_char_boundary(limit);
        ended.message.truncate(end);
    }
}

fn waiting(reason: &str, message: &str) -> ContainerState {
    let waiting = ContainerStateWaiting {
        reason: reason.into(),
        message: message.into(),
    };
    ContainerState {
        waiting: Some(waiting),
        ..ContainerState::default()
    }
}

fn terminated(ended: ContainerStateTerminated) -> ContainerState {
    ContainerState {
        terminated: Some(ended),
        ..ContainerState::default()
    }
}

/// Makes the status of one container by rules S1–S6.
fn from_runtime(
    inputs: &Inputs,
    container: &Container,
    old: Option<&ContainerStatus>,
) -> ContainerStatus {
    let mut instances = inputs
        .runtime
        .containers
        .iter()
        .filter(|c| c.name == container.name);
    let Some(newest) = instances.next() else {
        let gone =
            old.filter(|o| inputs.restarting && (is_restarting(o) || !o.container_id.is_empty()));
        return gone.map_or_else(
            || without_runtime(inputs.pod, container, old),
            |old| removed(container, old),
        );
    };
    let mut status = instance(newest, old);
    status.image.clone_from(&container.image);
    status.user = newest.user.as_ref().map(user);
    if let Some(second) = instances.next() {
        status.last_state = instance(second, None).state;
    } else if let Some(old) = old {
        // The previous instance may have been pruned, so its last known state stays.
        let ended = old.state.terminated.is_some() && old.container_id != status.container_id;
        status.last_state = if ended {
            old.state.clone()
        } else {
            old.last_state.clone()
        };
    }
    status
}

fn user(user: &LinuxUser) -> ContainerUser {
    let linux = LinuxContainerUser {
        uid: user.uid,
        gid: user.gid,
        supplemental_groups: user.supplemental_groups.clone(),
    };
    ContainerUser { linux: Some(linux) }
}

fn is_restarting(status: &ContainerStatus) -> bool {
    status
        .state
        .waiting
        .as_ref()
        .is_some_and(|w| w.reason == RESTARTING_ALL_CONTAINERS)
}

/// Makes the status of a container that was removed because all containers restart (8.6). The restart counts once, even
/// if this function runs several times.
fn removed(container: &Container, old: &ContainerStatus) -> ContainerStatus {
    ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone(),
        state: waiting(RESTARTING_ALL_CONTAINERS, REMOVED_FOR_RESTART),
        last_state: terminated(ContainerStateTerminated {
            exit_code: UNSEEN_EXIT_CODE,
            reason: RESTARTING_ALL_CONTAINERS.into(),
            message: REMOVED_FOR_RESTART.into(),
            ..ContainerStateTerminated::default()
        }),
        restart_count: old.restart_count + u32::from(!is_restarting(old)),
        started: Some(false),
        ..ContainerStatus::default()
    }
}

/// Makes the status of a container without a known instance in the runtime (S1–S3).
fn without_runtime(
    pod: &Pod,
    container: &Container,
    old: Option<&ContainerStatus>,
) -> ContainerStatus {
    let reason = if pod.spec.init_containers.is_empty() {
        "ContainerCreating"
    } else {
        "PodInitializing"
    };
    let mut status = ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone(),
        state: waiting(reason, ""),
        started: Some(false),
        ..ContainerStatus::default()
    };
    let Some(old) = old else { return status };
    if old.state.terminated.is_some() {
        return old.clone();
    }
    status.restart_count = old.restart_count;
    status.last_state = old.last_state.clone();
    if old.state.running.is_some() {
        let message = "The container could not be located when the pod was deleted.  The container used to be Running";
        status.last_state = terminated(ContainerStateTerminated {
            exit_code: UNSEEN_EXIT_CODE,
            reason: "ContainerStatusUnknown".into(),
            message: message.into(),
            ..ContainerStateTerminated::default()
        });
        status.restart_count += u32::from(pod.metadata.deletion_timestamp.is_none());
    }
    status
}

/// Returns the number of the newest instance that has run. The old status counts where it tells of a newer one than the
/// runtime: the record of that one is lost (deviations: `lost-instance`).
pub fn newest_number(newest: &RuntimeContainerStatus, old: Option<&ContainerStatus>) -> u32 {
    let has_run = |old: &&ContainerStatus| {
        let ended = old.state.terminated.as_ref().or_else(|| {
            // While a container waits for its next start, its end is in the last state (S7).
            let last = old.last_state.terminated.as_ref()?;
            let waits = old.state.waiting.is_some() && last.container_id == old.container_id;
            waits.then_some(last)
        });
        match ended {
            // S5 counts the next instance already, and the unknown one may be known again.
            Some(ended) => !old.container_id.is_empty() && ended.message != NOT_LOCATED,
            None => old.state.running.is_some(),
        }
    };
    let before = old.filter(has_run).map_or(0, |old| old.restart_count);
    newest.attempt.max(before)
}

/// Makes the status of one instance (S4, S5).
fn instance(runtime: &RuntimeContainerStatus, old: Option<&ContainerStatus>) -> ContainerStatus {
    let id = runtime.id.uri();
    let was_running = old.is_some_and(|o| o.state.running.is_some());
    let mut status = ContainerStatus {
        name: runtime.name.clone(),
        image: runtime.image.clone(),
        image_id: runtime.image_id.clone(),
        restart_count: newest_number(runtime, old),
        container_id: id.clone(),
        started: Some(false),
        ..ContainerStatus::default()
    };
    status.state = match runtime.state {
        RuntimeState::Running => {
            // `started` is inherited by container id, not by name (15 O2)
            status.started = old
                .filter(|o| o.container_id == id)
                .and_then(|o| o.started)
                .or(Some(false));
            let running = ContainerStateRunning {
                started_at: runtime.started_at.map(Time::from),
            };
            ContainerState {
                running: Some(running),
                ..ContainerState::default()
            }
        }
        RuntimeState::Exited => terminated(ended(runtime)),
        RuntimeState::Unknown if was_running => {
            status.restart_count += 1;
            terminated(ContainerStateTerminated {
                exit_code: UNSEEN_EXIT_CODE,
                reason: "ContainerStatusUnknown".into(),
                message: NOT_LOCATED.into(),
                container_id: id,
                ..ContainerStateTerminated::default()
            })
        }
        RuntimeState::Created | RuntimeState::Unknown => waiting("", ""),
    };
    status
}

/// Makes the status with which a pod starts anew. The restart counts continue from the instances that are removed for
/// the new start. The status leaves out how these instances ended, because their ends would count for the pod's phase.
pub fn taken_over(pod: &Pod, runtime: &RuntimePodStatus, old: Option<&PodStatus>) -> PodStatus {
    let of = |container: &Container| {
        let newest = runtime.container(&container.name)?;
        let old = old.and_then(|old| old.container(&container.name));
        Some(ContainerStatus {
            name: container.name.clone(),
            restart_count: newest_number(newest, old) + 1,
            ..ContainerStatus::default()
        })
    };
    PodStatus {
        init_container_statuses: pod.spec.init_containers.iter().filter_map(of).collect(),
        container_statuses: pod.spec.containers.iter().filter_map(of).collect(),
        ..PodStatus::default()
    }
}

/// Makes the status with which a pod starts anew like [`taken_over`], for a pod whose instances a reboot has removed.
pub fn counted_on(old: &PodStatus) -> PodStatus {
    let of = |container: &ContainerStatus| ContainerStatus {
        name: container.name.clone(),
        restart_count: container.restart_count + u32::from(!container.container_id.is_empty()),
        ..ContainerStatus::default()
    };
    PodStatus {
        init_container_statuses: old.init_container_statuses.iter().map(of).collect(),
        container_statuses: old.container_statuses.iter().map(of).collect(),
        ..PodStatus::default()
    }
}

fn ended(runtime: &RuntimeContainerStatus) -> ContainerStateTerminated {
    ContainerStateTerminated {
        exit_code: runtime.exit_code,
        // The kubelet leaves this field empty, because the exit code tells the signal.
        signal: None,
        reason: runtime.reason.clone(),
        message: runtime.message.clone(),
        started_at: runtime.started_at.map(Time::from),
        finished_at: runtime.finished_at.map(Time::from),
        container_id: runtime.id.uri(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fake_runtime::runtime_container_status;
    use crate::test_pods;

    fn pod(spec: Value) -> Pod {
        test_pods::pod("p").spec(spec).build()
    }

    fn runtime(containers: Vec<RuntimeContainerStatus>) -> RuntimePodStatus {
        RuntimePodStatus {
            containers,
            ..Default::default()
        }
    }

    fn two_instances() -> RuntimePodStatus {
        let mut new = runtime_container_status("a", "2", RuntimeState::Running, 0);
        new.attempt = 1;
        runtime(vec![
            new,
            runtime_container_status("a", "1", RuntimeState::Exited, 3),
        ])
    }

    #[track_caller]
    fn check(
        runtime: &RuntimePodStatus,
        old: Option<Value>,
        failure: Option<&str>,
        expected: Value,
    ) {
        let old = old.map(|c| PodStatus {
            container_statuses: vec![serde_json::from_value(c).unwrap()],
            ..Default::default()
        });
        let failure = failure.map(|reason| StartFailure {
            reason: reason.into(),
            message: "why".into(),
        });
        let pod = pod(json!({"containers": [{"name": "a"}]}));
        let inputs = Inputs {
            pod: &pod,
            runtime,
            old: old.as_ref(),
            failure: &|_| failure.clone(),
            restarting: false,
        };
        let got = serde_json::to_value(&regular(&inputs)[0]).unwrap();
        for (key, value) in expected.as_object().unwrap() {
            assert_eq!(&got[key], value, "{key} of {got}");
        }
    }

    #[test]
    fn s1_nothing_known_is_container_creating() {
        check(
            &runtime(vec![]),
            None,
            None,
            json!({"state": {"waiting": {"reason": "ContainerCreating"}}, "restartCount": 0, "started": false}),
        );
    }

    /// A damaged disk must not make two starts one restart.
    #[test]
    fn a_newer_instance_that_is_lost_counts() {
        let left = runtime(vec![{
            let mut left = runtime_container_status("a", "1", RuntimeState::Exited, 3);
            left.attempt = 4;
            left
        }]);
        let of_lost = |state: Value, id: &str| json!({"name": "a", "state": state, "restartCount": 5, "containerID": id});
        let ended = |message: &str, id: &str| json!({"terminated": {"exitCode": 3, "reason": "ContainerStatusUnknown", "message": message, "containerID": id}});
        let waits = |message: &str, id: &str| {
            let waiting = json!({"waiting": {"reason": "CrashLoopBackOff"}});
            let mut status = of_lost(waiting, "fake://2");
            status["lastState"] = ended(message, id);
            status
        };
        let running = json!({"running": {"startedAt": null}});
        for old in [
            of_lost(running.clone(), "fake://2"),
            of_lost(ended("", "fake://2"), "fake://2"),
            waits("", "fake://2"),
            // What was made of it is the old status of the next one.
            of_lost(ended("", "fake://1"), "fake://1"),
        ] {
            check(&left, Some(old), None, json!({"restartCount": 5}));
        }
        for old in [
            of_lost(ended(NOT_LOCATED, "fake://1"), "fake://1"),
            of_lost(ended("", "fake://1"), ""),
            waits(NOT_LOCATED, "fake://2"),
            // An instance that was created and never started has the end of the one before it as its last state.
            waits("", "fake://1"),
        ] {
            check(&left, Some(old), None, json!({"restartCount": 4}));
        }
    }

    /// The number stays while the pod waits for its next start, however often its status is made.
    #[test]
    fn a_lost_instance_counts_through_a_back_off() {
        let mut left = runtime_container_status("a", "1", RuntimeState::Exited, 3);
        left.attempt = 4;
        let (pod, runtime) = (
            pod(json!({"containers": [{"name": "a"}]})),
            runtime(vec![left]),
        );
        let back_off = StartFailure {
            reason: "CrashLoopBackOff".into(),
            message: "why".into(),
        };
        let mut old = PodStatus {
            container_statuses: vec![serde_json::from_value(json!({"name": "a", "restartCount": 5, "containerID": "fake://2",
                "state": {"terminated": {"exitCode": 3, "reason": "Error", "containerID": "fake://2"}}})).unwrap()],
            ..Default::default()
        };
        for failure in [None, Some(back_off.clone()), Some(back_off), None] {
            let inputs = Inputs {
                pod: &pod,
                runtime: &runtime,
                old: Some(&old),
                failure: &|_| failure.clone(),
                restarting: false,
            };
            let statuses = regular(&inputs);
            assert_eq!(statuses[0].restart_count, 5, "{statuses:?}");
            old.container_statuses = statuses;
        }
        let begun = taken_over(&pod, &runtime, Some(&old));
        assert_eq!(begun.container_statuses[0].restart_count, 6);
    }

    #[test]
    fn s3_a_running_container_that_vanished_counts_as_137() {
        let old =
            json!({"name": "a", "state": {"running": {"startedAt": null}}, "restartCount": 2});
        let reason = json!({"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown",
            "message": "The container could not be located when the pod was deleted.  The container used to be Running"}});
        check(
            &runtime(vec![]),
            Some(old),
            None,
            json!({"restartCount": 3, "lastState": reason}),
        );
    }

    /// Checks kubelet-probes 9.3 S5: `started` is inherited by container id.
    #[test]
    fn a1_started_is_inherited_by_id_not_by_name() {
        let old = |id: &str| json!({"name": "a", "containerID": format!("podprobe://{id}"), "started": true, "state": {"running": {"startedAt": null}}});
        check(
            &two_instances(),
            Some(old("2")),
            None,
            json!({"started": true}),
        );
        check(
            &two_instances(),
            Some(old("1")),
            None,
            json!({"started": false}),
        );
    }

    #[test]
    fn s6_the_second_newest_is_the_last_state() {
        check(
            &two_instances(),
            None,
            None,
            json!({"restartCount": 1, "containerID": "podprobe://2",
            "lastState": {"terminated": {"exitCode": 3, "containerID": "podprobe://1"}}}),
        );
    }

    #[test]
    fn a_pruned_instance_stays_the_last_state() {
        let new = runtime(vec![runtime_container_status(
            "a",
            "2",
            RuntimeState::Running,
            0,
        )]);
        let old = json!({"name": "a", "containerID": "podprobe://1", "state": {"terminated": {"exitCode": 9}}});
        check(
            &new,
            Some(old),
            None,
            json!({"lastState": {"terminated": {"exitCode": 9}}}),
        );
    }

    #[test]
    fn s7_a_start_failure_shows_as_waiting_and_moves_the_end_to_last_state() {
        let exited = runtime(vec![runtime_container_status(
            "a",
            "1",
            RuntimeState::Exited,
            3,
        )]);
        check(
            &exited,
            None,
            Some("CrashLoopBackOff"),
            json!({
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "why"}},
            "lastState": {"terminated": {"exitCode": 3, "containerID": "podprobe://1"}}}),
        );
        // a running container does not show a start failure
        check(
            &two_instances(),
            None,
            Some("CrashLoopBackOff"),
            json!({"state": {"running": {"startedAt": null}}}),
        );
    }

    /// Checks the fields that a status copies from the spec. The kubelet 1.36 fills the same fields.
    #[test]
    fn a_status_repeats_mounts_and_resources_of_the_spec() {
        let resources = json!({"limits": {"memory": "64Mi"}, "requests": {"memory": "32Mi"}});
        let mounts = json!([{"name": "v", "mountPath": "/v"}, {"name": "r", "mountPath": "/r", "readOnly": true},
            {"name": "q", "mountPath": "/q", "readOnly": true, "recursiveReadOnly": "IfPossible"}]);
        let pod = pod(
            json!({"containers": [{"name": "a", "resources": resources, "volumeMounts": mounts}]}),
        );
        let got = |runtime: &RuntimePodStatus| {
            let inputs = Inputs {
                pod: &pod,
                runtime,
                old: None,
                failure: &|_| None,
                restarting: false,
            };
            serde_json::to_value(&regular(&inputs)[0]).unwrap()
        };
        let shown = json!([{"name": "v", "mountPath": "/v"},
            {"name": "r", "mountPath": "/r", "readOnly": true, "recursiveReadOnly": "Disabled"},
            {"name": "q", "mountPath": "/q", "readOnly": true, "recursiveReadOnly": "Enabled"}]);
        let running = got(&two_instances());
        assert_eq!(running["volumeMounts"], shown);
        assert_eq!(running["resources"], resources);
        assert_eq!(running["allocatedResources"], resources["requests"]);
        let waiting = got(&runtime(vec![]));
        assert_eq!(waiting["volumeMounts"], shown);
        assert!(waiting.get("resources").is_none() && waiting.get("allocatedResources").is_none());
    }

    /// An edit of the resources changes no container that is there.
    #[test]
    fn a_container_keeps_the_resources_that_it_was_created_with() {
        let asking = |memory: &str| {
            let resources = json!({"requests": {"memory": memory}});
            pod(json!({"containers": [{"name": "a", "resources": resources}]}))
        };
        let status = |pod: &Pod, old: Option<&PodStatus>, id: &str| {
            let container = runtime_container_status("a", id, RuntimeState::Running, 0);
            let inputs = Inputs {
                pod,
                runtime: &runtime(vec![container]),
                old,
                failure: &|_| None,
                restarting: false,
            };
            PodStatus {
                container_statuses: regular(&inputs),
                ..PodStatus::default()
            }
        };
        let memory = |status: &PodStatus| {
            let container = &status.container_statuses[0];
            let shown = container.resources.as_ref().unwrap().requests["memory"].clone();
            assert_eq!(container.allocated_resources["memory"], shown);
            shown.0
        };
        let first = status(&asking("1Mi"), None, "1");
        let same = status(&asking("2Mi"), Some(&first), "1");
        let other = status(&asking("2Mi"), Some(&same), "2");
        assert_eq!([&first, &same, &other].map(memory), ["1Mi", "1Mi", "2Mi"]);
    }

    /// Parity B10: the status shows the user and the groups of the container.
    #[test]
    fn a_status_says_whom_the_container_runs_as() {
        let mut known = two_instances();
        known.containers[0].user = Some(LinuxUser {
            uid: 1000,
            gid: 3000,
            supplemental_groups: vec![3000, 4000],
        });
        let linux = json!({"uid": 1000, "gid": 3000, "supplementalGroups": [3000, 4000]});
        check(&known, None, None, json!({"user": {"linux": linux}}));
        check(&two_instances(), None, None, json!({"user": null}));
    }

    #[test]
    fn a_terminated_state_names_no_signal() {
        let mut killed = runtime_container_status("a", "1", RuntimeState::Exited, 137);
        killed.signal = Some(9);
        check(
            &runtime(vec![killed]),
            None,
            None,
            json!({"state": {"terminated": {"exitCode": 137, "containerID": "podprobe://1"}}}),
        );
    }

    #[test]
    fn s9_statuses_are_sorted_by_name() {
        let pod = pod(json!({"containers": [{"name": "b"}, {"name": "a"}]}));
        let runtime = runtime(vec![]);
        let inputs = Inputs {
            pod: &pod,
            runtime: &runtime,
            old: None,
            failure: &|_| None,
            restarting: false,
        };
        let names: Vec<_> = regular(&inputs).into_iter().map(|s| s.name).collect();
        assert_eq!(names, ["a", "b"]);
    }

    /// Returns the init statuses of a pod with a plain init container `i`, a sidecar `s` and a regular container `a`.
    fn init_statuses(
        runtime: &RuntimePodStatus,
        old: Option<&PodStatus>,
        failed: &str,
    ) -> Vec<Value> {
        let spec = json!({"initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}], "containers": [{"name": "a"}]});
        let failure = |name: &str| {
            (name == failed).then(|| StartFailure {
                reason: "CrashLoopBackOff".into(),
                message: "why".into(),
            })
        };
        let pod = pod(spec);
        let inputs = Inputs {
            pod: &pod,
            runtime,
            old,
            failure: &failure,
            restarting: false,
        };
        init(&inputs)
            .iter()
            .map(|s| serde_json::to_value(s).unwrap())
            .collect()
    }

    #[test]
    fn init_containers_stand_in_spec_order_and_wait_for_the_pod() {
        let got = init_statuses(&runtime(vec![]), None, "");
        assert_eq!(
            (&got[0]["name"], &got[1]["name"]),
            (&json!("i"), &json!("s"))
        );
        assert_eq!(
            got[0]["state"],
            json!({"waiting": {"reason": "PodInitializing"}})
        );
    }

    #[test]
    fn s8_an_init_container_that_succeeded_has_no_start_failure() {
        let ended = |code| {
            runtime(vec![runtime_container_status(
                "i",
                "1",
                RuntimeState::Exited,
                code,
            )])
        };
        assert!(init_statuses(&ended(0), None, "i")[0]["state"]["terminated"].is_object());
        assert_eq!(
            init_statuses(&ended(1), None, "i")[0]["state"]["waiting"]["reason"],
            "CrashLoopBackOff"
        );
    }

    #[test]
    fn s8_a_forgotten_init_container_of_an_initialised_pod_counts_as_completed() {
        let sandbox = crate::engine::runtime::RuntimeSandboxStatus {
            id: "sandbox".into(),
            attempt: 0,
            ready: true,
            host_network: false,
            created_at: std::time::SystemTime::UNIX_EPOCH,
            ips: vec![],
        };
        let mut known = runtime(vec![runtime_container_status(
            "a",
            "1",
            RuntimeState::Running,
            0,
        )]);
        known.sandboxes = vec![sandbox];
        let got = init_statuses(&known, None, "");
        assert_eq!(
            (
                &got[0]["state"]["terminated"]["reason"],
                &got[0]["state"]["terminated"]["exitCode"]
            ),
            (&json!("Completed"), &json!(0))
        );
        assert!(
            got[1]["state"]["waiting"].is_object(),
            "a sidecar is to be started again"
        );
        // an instance in an earlier sandbox does not count for the present sandbox
        known.sandboxes[0].id = "another".into();
        assert!(init_statuses(&known, None, "")[0]["state"]["waiting"].is_object());
    }

    #[test]
    fn a_restart_of_all_is_counted_once_and_carried_over() {
        let pod = pod(json!({"containers": [{"name": "a"}, {"name": "never-ran"}]}));
        let mut old = PodStatus::default();
        old.container_statuses.push(
            serde_json::from_value(
                json!({"name": "a", "containerID": "podprobe://1", "restartCount": 2, "state": {"running": {"startedAt": null}}}),
            )
            .unwrap(),
        );
        for restarting in [true, true, false] {
            let runtime = runtime(vec![]);
            let inputs = Inputs {
                pod: &pod,
                runtime: &runtime,
                old: Some(&old),
                failure: &|_| None,
                restarting,
            };
            old.container_statuses = regular(&inputs);
            let a = &old.container_statuses[0];
            let reason = if restarting {
                "RestartingAllContainers"
            } else {
                "ContainerCreating"
            };
            assert_eq!(
                (
                    a.restart_count,
                    a.state.waiting.as_ref().unwrap().reason.as_str()
                ),
                (3, reason)
            );
            let last = a.last_state.terminated.as_ref().unwrap();
            assert_eq!(
                (last.exit_code, last.reason.as_str()),
                (137, "RestartingAllContainers")
            );
            let other = &old.container_statuses[1];
            assert_eq!(
                (other.restart_count, &other.last_state),
                (0, &ContainerState::default()),
                "a container that never ran is not restarted"
            );
        }
    }

    #[test]
    fn termination_messages_share_the_pod_s_limit() {
        let pod = pod(
            json!({"initContainers": [{"name": "i"}], "containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}),
        );
        let terminated_with = |text: String| {
            terminated(ContainerStateTerminated {
                message: text,
                ..Default::default()
            })
        };
        let mut statuses = [ContainerStatus {
            state: terminated_with("x".repeat(4096)),
            last_state: terminated_with("ä".repeat(2000)),
            ..Default::default()
        }];
        cut_messages(&pod, &mut statuses);
        let length = |s: &ContainerState| s.terminated.as_ref().unwrap().message.len();
        assert_eq!(
            (length(&statuses[0].state), length(&statuses[0].last_state)),
            (3072, 3072)
        );
        let mut odd = [ContainerStatus {
            state: terminated_with(format!("x{}", "ä".repeat(2000))),
            ..Default::default()
        }];
        cut_messages(&pod, &mut odd);
        assert_eq!(length(&odd[0].state), 3071, "no character is cut in two");
    }
}
