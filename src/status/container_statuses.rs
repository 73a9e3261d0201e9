//! Container statuses from the runtime's word, the status before, and recorded start failures (kubelet-probes 9.3).

use crate::api::status::{ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting};
use crate::api::{Container, ContainerStatus, Pod, PodStatus};
use crate::clock::Time;
use crate::pod_actions::should_be_restarted;
use crate::runtime::{RuntimeContainerStatus, RuntimePodStatus, RuntimeState};

/// Exit code of a container whose end nobody saw (S3, S4).
pub(super) const UNSEEN_EXIT_CODE: i32 = 137;

/// Why the last start of a container failed: becomes `state.waiting` (S7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartFailure {
    /// `CrashLoopBackOff`, `ErrImageNeverPull`, …
    pub reason: String,
    /// Why, and what to do.
    pub message: String,
}

/// One status per regular container, sorted by name (S9). Ready is false in all of them and `started` only inherited:
/// the probe manager sets both (S10).
pub(super) fn generate(
    pod: &Pod,
    runtime: &RuntimePodStatus,
    old: Option<&PodStatus>,
    failure: &dyn Fn(&str) -> Option<StartFailure>,
) -> Vec<ContainerStatus> {
    let one = |container: &Container| {
        let old = old.and_then(|s| s.container_statuses.iter().find(|c| c.name == container.name));
        let mut status = from_runtime(pod, container, runtime, old);
        let newest = runtime.container(&container.name);
        let deleted = pod.metadata.deletion_timestamp.is_some();
        if should_be_restarted(pod.spec.restart_policy, newest, deleted)
            && let Some(StartFailure { reason, message }) = failure(&container.name)
        {
            if status.state.terminated.is_some() {
                status.last_state = std::mem::take(&mut status.state);
            }
            status.state = waiting(&reason, &message);
        }
        status
    };
    let mut statuses: Vec<_> = pod.spec.containers.iter().map(one).collect();
    statuses.sort_by(|a, b| a.name.cmp(&b.name));
    statuses
}

fn waiting(reason: &str, message: &str) -> ContainerState {
    let waiting = ContainerStateWaiting { reason: reason.into(), message: message.into() };
    ContainerState { waiting: Some(waiting), ..ContainerState::default() }
}

fn terminated(ended: ContainerStateTerminated) -> ContainerState {
    ContainerState { terminated: Some(ended), ..ContainerState::default() }
}

/// S1–S6 for one container.
fn from_runtime(pod: &Pod, container: &Container, runtime: &RuntimePodStatus, old: Option<&ContainerStatus>) -> ContainerStatus {
    let mut instances = runtime.containers.iter().filter(|c| c.name == container.name);
    let Some(newest) = instances.next() else { return without_runtime(pod, container, old) };
    let mut status = instance(newest, old);
    status.image.clone_from(&container.image);
    if let Some(second) = instances.next() {
        status.last_state = instance(second, None).state;
    } else if let Some(old) = old {
        // the instance before may have been pruned; what is known of it stays
        let ended = old.state.terminated.is_some() && old.container_id != status.container_id;
        status.last_state = if ended { old.state.clone() } else { old.last_state.clone() };
    }
    status
}

/// S1–S3: the runtime knows no instance.
fn without_runtime(pod: &Pod, container: &Container, old: Option<&ContainerStatus>) -> ContainerStatus {
    let mut status = ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone(),
        state: waiting("ContainerCreating", ""),
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

/// S4, S5 for one instance.
fn instance(runtime: &RuntimeContainerStatus, old: Option<&ContainerStatus>) -> ContainerStatus {
    let id = runtime.id.uri();
    let was_running = old.is_some_and(|o| o.state.running.is_some());
    let mut status = ContainerStatus {
        name: runtime.name.clone(),
        image: runtime.image.clone(),
        image_id: runtime.image_id.clone(),
        restart_count: runtime.attempt,
        container_id: id.clone(),
        started: Some(false),
        ..ContainerStatus::default()
    };
    status.state = match runtime.state {
        RuntimeState::Running => {
            // inherited by container id, not by name (15 O2)
            status.started = old.filter(|o| o.container_id == id).and_then(|o| o.started).or(Some(false));
            let running = ContainerStateRunning { started_at: runtime.started_at.map(Time::from) };
            ContainerState { running: Some(running), ..ContainerState::default() }
        }
        RuntimeState::Exited => terminated(ended(runtime)),
        RuntimeState::Unknown if was_running => {
            status.restart_count += 1;
            terminated(ContainerStateTerminated {
                exit_code: UNSEEN_EXIT_CODE,
                reason: "ContainerStatusUnknown".into(),
                message: "The container could not be located when the pod was terminated".into(),
                container_id: id,
                ..ContainerStateTerminated::default()
            })
        }
        RuntimeState::Created | RuntimeState::Unknown => waiting("", ""),
    };
    status
}

fn ended(runtime: &RuntimeContainerStatus) -> ContainerStateTerminated {
    ContainerStateTerminated {
        exit_code: runtime.exit_code,
        signal: runtime.signal,
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
    use crate::pod_actions::tests_support::container_status;

    fn pod(spec: Value) -> Pod {
        Pod { metadata: Default::default(), spec: serde_json::from_value(spec).unwrap(), raw: Value::Null }
    }

    fn runtime(containers: Vec<RuntimeContainerStatus>) -> RuntimePodStatus {
        RuntimePodStatus { containers, ..Default::default() }
    }

    fn two_instances() -> RuntimePodStatus {
        let mut new = container_status("a", "2", RuntimeState::Running, 0);
        new.attempt = 1;
        runtime(vec![new, container_status("a", "1", RuntimeState::Exited, 3)])
    }

    #[track_caller]
    fn check(runtime: &RuntimePodStatus, old: Option<Value>, failure: Option<&str>, expected: Value) {
        let old = old.map(|c| PodStatus { container_statuses: vec![serde_json::from_value(c).unwrap()], ..Default::default() });
        let failure = failure.map(|reason| StartFailure { reason: reason.into(), message: "why".into() });
        let got = generate(&pod(json!({"containers": [{"name": "a"}]})), runtime, old.as_ref(), &|_| failure.clone());
        let got = serde_json::to_value(&got[0]).unwrap();
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

    #[test]
    fn s3_a_running_container_that_vanished_counts_as_137() {
        let old = json!({"name": "a", "state": {"running": {"startedAt": null}}, "restartCount": 2});
        let got = generate(
            &pod(json!({"containers": [{"name": "a"}]})),
            &runtime(vec![]),
            Some(&PodStatus { container_statuses: vec![serde_json::from_value(old).unwrap()], ..Default::default() }),
            &|_| None,
        );
        assert_eq!((got[0].restart_count, got[0].last_state.terminated.as_ref().unwrap().exit_code), (3, 137));
    }

    #[test]
    fn s5_started_is_inherited_by_id_not_by_name() {
        let old = |id: &str| json!({"name": "a", "containerID": format!("podprobe://{id}"), "started": true, "state": {"running": {"startedAt": null}}});
        check(&two_instances(), Some(old("2")), None, json!({"started": true}));
        check(&two_instances(), Some(old("1")), None, json!({"started": false}));
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
        let new = runtime(vec![container_status("a", "2", RuntimeState::Running, 0)]);
        let old = json!({"name": "a", "containerID": "podprobe://1", "state": {"terminated": {"exitCode": 9}}});
        check(&new, Some(old), None, json!({"lastState": {"terminated": {"exitCode": 9}}}));
    }

    #[test]
    fn s7_a_start_failure_shows_as_waiting_and_moves_the_end_to_last_state() {
        let exited = runtime(vec![container_status("a", "1", RuntimeState::Exited, 3)]);
        check(
            &exited,
            None,
            Some("CrashLoopBackOff"),
            json!({
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "why"}},
            "lastState": {"terminated": {"exitCode": 3, "containerID": "podprobe://1"}}}),
        );
        // a running container has no start failure to show
        check(&two_instances(), None, Some("CrashLoopBackOff"), json!({"state": {"running": {"startedAt": null}}}));
    }

    #[test]
    fn s9_statuses_are_sorted_by_name() {
        let pod = pod(json!({"containers": [{"name": "b"}, {"name": "a"}]}));
        let names: Vec<_> = generate(&pod, &runtime(vec![]), None, &|_| None).into_iter().map(|s| s.name).collect();
        assert_eq!(names, ["a", "b"]);
    }
}
