//! The columns of `get pods` for a pod, filled as kubectl's printer (`printPod`) fills them. All functions are pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::Value;

use super::human;
use crate::api::status::{ContainerState, PodPhase};
use crate::api::{ContainerStatus, PodStatus};
use crate::base::clock::Time;
use crate::base::json;
use crate::face::views::PodView;
use crate::pods::status::{EVICTED, is_of_ended};

/// A pod's row of `get pods`, as texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The pod's `metadata.namespace`.
    pub namespace: String,
    /// The pod's `metadata.name`.
    pub name: String,
    /// The number of ready containers and of all containers, for example `1/2`.
    pub ready: String,
    /// The status word, for example `Running` or `CrashLoopBackOff`.
    pub status: String,
    /// The number of restarts, and the time since the last restart, for example `3 (12s ago)`.
    pub restarts: String,
    /// The time since the pod was first seen.
    pub age: String,
    /// The primary address; `<none>` if there is no address, or `loopback` if nothing outside of the pod can reach it.
    pub ip: String,
    /// The pod's `spec.nodeName`, or `<none>`.
    pub node: String,
    /// The number of readiness gates with a True condition and the number of all gates, for example `1/2`; `<none>`
    /// without gates.
    pub gates: String,
    /// The paused probes and the time left for each, for example `main/liveness (29m)`, or `<none>`.
    pub paused: String,
    /// The file that the pod comes from.
    pub file: String,
}

impl Row {
    /// Makes the row of a pod at the time `now`.
    pub fn new(view: &PodView, now: Time) -> Self {
        let (count, last) = restarts(view);
        let none = || "<none>".to_owned();
        Self {
            namespace: namespace(view).into(),
            name: name(view).into(),
            ready: ready(view),
            status: status_word(view),
            restarts: match last {
                Some(_) if count > 0 => format!("{count} ({} ago)", human::since(last, now)),
                _ => count.to_string(),
            },
            // A pod without a creation time and a start time has only just been read by the daemon.
            age: human::since(first_seen(view).or(Some(now)), now),
            ip: match view.status.pod_ip.as_str() {
                "" => none(),
                _ if is_loopback_only(view) => "loopback".into(),
                ip => ip.into(),
            },
            node: view.object["spec"]["nodeName"]
                .as_str()
                .map_or_else(none, str::to_owned),
            gates: gates(view).unwrap_or_else(none),
            paused: paused(view, now).unwrap_or_else(none),
            file: view.file.clone(),
        }
    }
}

/// Returns the types of condition that the pod's readiness gates name, in their order.
pub fn readiness_gates(view: &PodView) -> Vec<&str> {
    listed(view, "readinessGates")
        .filter_map(|gate| gate["conditionType"].as_str())
        .collect()
}

fn gates(view: &PodView) -> Option<String> {
    let all = readiness_gates(view);
    let is_open = |type_: &&&str| {
        view.status
            .condition(type_)
            .is_some_and(|c| c.status == "True")
    };
    (!all.is_empty()).then(|| format!("{}/{}", all.iter().filter(is_open).count(), all.len()))
}

fn paused(view: &PodView, now: Time) -> Option<String> {
    let one = |p: &crate::pods::prober::pauses::PausedProbe| {
        format!(
            "{}/{} ({})",
            p.container,
            p.probe_type.word(),
            human::since(Some(now), p.until)
        )
    };
    let all: Vec<String> = view.paused.iter().map(one).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// Returns true if the pod has a network of its own with nothing but loopback in it.
pub fn is_loopback_only(view: &PodView) -> bool {
    let is_loopback = |ip: &str| ip.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    view.object["spec"]["hostNetwork"] != true && is_loopback(&view.status.pod_ip)
}

/// Returns the pod's `metadata.name`.
pub fn name(view: &PodView) -> &str {
    view.object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Returns the pod's `metadata.namespace`, or `default`.
pub fn namespace(view: &PodView) -> &str {
    view.object["metadata"]["namespace"]
        .as_str()
        .unwrap_or("default")
}

/// Returns the names of the pod's regular containers in spec order.
pub fn containers(view: &PodView) -> Vec<&str> {
    names_in(view, "containers").collect()
}

/// Returns the names of the pod's init containers, sidecars included, in spec order.
pub fn init_containers(view: &PodView) -> Vec<&str> {
    names_in(view, "initContainers").collect()
}

/// Returns the names of the pod's ephemeral containers, in spec order.
pub fn ephemeral_containers(view: &PodView) -> Vec<&str> {
    names_in(view, "ephemeralContainers").collect()
}

/// Returns every container in the pod's spec.
pub fn every_container(view: &PodView) -> impl Iterator<Item = &Value> {
    let lists = ["containers", "initContainers", "ephemeralContainers"];
    lists.into_iter().flat_map(|list| listed(view, list))
}

fn names_in<'a>(view: &'a PodView, list: &str) -> impl Iterator<Item = &'a str> {
    listed(view, list).filter_map(|c| c["name"].as_str())
}

fn listed<'a>(view: &'a PodView, list: &str) -> impl Iterator<Item = &'a Value> {
    view.object["spec"][list].as_array().into_iter().flatten()
}

/// Returns true if the init container with this name is a sidecar.
fn is_sidecar(view: &PodView, name: &str) -> bool {
    listed(view, "initContainers").any(|c| c["name"] == name && c["restartPolicy"] == "Always")
}

/// Returns the number of restarts in the column RESTARTS.
pub fn restart_count(view: &PodView) -> u32 {
    restarts(view).0
}

/// Returns the pod's `metadata.creationTimestamp`, or else its start time. A static pod has no timestamp until an API
/// server has its mirror pod.
fn first_seen(view: &PodView) -> Option<Time> {
    let created = json::from_value(&view.object["metadata"]["creationTimestamp"]).ok();
    created.or(view.status.start_time)
}

/// Returns the column READY, for example `1/2`. The first number counts the regular containers that run and are ready,
/// and the ready sidecars. The second number counts the regular containers and the sidecars in the spec.
pub fn ready(view: &PodView) -> String {
    let regular = if counts(view).1 {
        &view.status.container_statuses[..]
    } else {
        &[]
    };
    let sidecars = view
        .status
        .init_container_statuses
        .iter()
        .filter(|c| is_sidecar(view, &c.name) && c.started == Some(true));
    let ready =
        regular.iter().filter(|c| is_ready(c)).count() + sidecars.filter(|c| c.ready).count();
    let all = containers(view).len()
        + init_containers(view)
            .into_iter()
            .filter(|n| is_sidecar(view, n))
            .count();
    format!("{ready}/{all}")
}

/// Returns true if the container runs and is ready. As in kubectl's printer, a container that waits or has ended does
/// not count, whatever its `ready` is.
fn is_ready(c: &ContainerStatus) -> bool {
    c.ready
        && c.state.running.is_some()
        && c.state.terminated.is_none()
        && waiting_reason(&c.state).is_none()
}

/// Returns the status word while the pod is being initialised, or else None. The second value is true if the regular
/// containers count for the columns.
fn counts(view: &PodView) -> (Option<String>, bool) {
    let word = init_word(view);
    let initialized = view
        .status
        .condition("Initialized")
        .is_some_and(|c| c.status == "True");
    let regular = initialized || word.is_none();
    (word, regular)
}

/// Returns the number of restarts, and the time at which an instance last ended. While the pod is being initialised,
/// the init containers count. Afterwards the sidecars and the regular containers count.
fn restarts(view: &PodView) -> (u32, Option<Time>) {
    let PodStatus {
        init_container_statuses: init,
        container_statuses: regular,
        ..
    } = &*view.status;
    let counted: Vec<&ContainerStatus> = match counts(view).1 {
        false => init.iter().collect(),
        true => init
            .iter()
            .filter(|c| is_sidecar(view, &c.name))
            .chain(regular)
            .collect(),
    };
    let last = counted
        .iter()
        .filter_map(|c| c.last_state.terminated.as_ref()?.finished_at)
        .max();
    (
        counted
            .iter()
            .map(|c| c.restart_count)
            .fold(0, u32::saturating_add),
        last,
    )
}

/// The status word of a pod that is being stopped.
const TERMINATING: &str = "Terminating";

fn has_running(status: &PodStatus) -> bool {
    let mut all = status
        .init_container_statuses
        .iter()
        .chain(&status.container_statuses);
    all.any(|c| c.state.running.is_some())
}

/// Returns true if a person or the node's shutdown has ended the pod.
fn was_ended(status: &PodStatus) -> bool {
    is_of_ended(status) && status.reason != EVICTED
}

/// Returns true while a pod is being stopped, because of its file, of `delete`, or with all pods of the node.
pub fn is_terminating(view: &PodView) -> bool {
    let status = &view.status;
    let is_stopped = was_ended(status) && has_running(status);
    let is_ending = view.terminating || view.object["metadata"]["deletionTimestamp"].is_string();
    is_stopped || is_ending && !status.phase.is_terminal()
}

/// Returns the column STATUS: the phase, unless the pod's reason, an init container, or the first container that waits
/// or has ended gives a more specific word.
pub fn status_word(view: &PodView) -> String {
    let status = &view.status;
    if is_terminating(view) {
        return TERMINATING.into();
    }
    let phase = if status.reason.is_empty() {
        status.phase.as_str()
    } else {
        &status.reason
    };
    if is_of_ended(status) {
        return phase.into();
    }
    match counts(view) {
        (Some(word), false) => word,
        (word, _) => container_word(status).unwrap_or_else(|| word.unwrap_or_else(|| phase.into())),
    }
}

/// Returns the status word of the first init container that is not done; None if all are done. A plain init container
/// is done when it has ended with success, a sidecar when it has started.
fn init_word(view: &PodView) -> Option<String> {
    let inits = &view.status.init_container_statuses;
    let completed = |c: &ContainerStatus| {
        c.state
            .terminated
            .as_ref()
            .is_some_and(|t| t.exit_code == 0)
    };
    let done = |c: &ContainerStatus| {
        completed(c) || (is_sidecar(view, &c.name) && c.started == Some(true))
    };
    let (at, c) = inits.iter().enumerate().find(|(_, c)| !done(c))?;
    Some(match (ended(&c.state), waiting_reason(&c.state)) {
        (Some(word), _) => format!("Init:{word}"),
        (None, Some(reason)) if reason != "PodInitializing" => format!("Init:{reason}"),
        _ => format!("Init:{at}/{}", init_containers(view).len()),
    })
}

/// Returns the status word of the first container that has a status word. A pod with a container that still runs is
/// never `Completed`.
fn container_word(status: &PodStatus) -> Option<String> {
    let all = || status.container_statuses.iter();
    let word = all().find_map(|c| {
        waiting_reason(&c.state)
            .map(str::to_owned)
            .or_else(|| ended(&c.state))
    })?;
    match word == "Completed" && all().any(is_ready) {
        true if status.is_ready() => Some("Running".into()),
        true => Some("NotReady".into()),
        false => Some(word),
    }
}

fn waiting_reason(state: &ContainerState) -> Option<&str> {
    state
        .waiting
        .as_ref()
        .map(|w| w.reason.as_str())
        .filter(|r| !r.is_empty())
}

fn ended(state: &ContainerState) -> Option<String> {
    let t = state.terminated.as_ref()?;
    Some(match (t.reason.as_str(), t.signal) {
        ("", Some(signal)) if signal != 0 => format!("Signal:{signal}"),
        ("", _) => format!("ExitCode:{}", t.exit_code),
        (reason, _) => reason.into(),
    })
}

/// Returns true if the pod should run, or has failed to run. Returns false if it is being stopped, has done its work,
/// or was ended by `delete` or with all pods of the node.
pub fn is_at_work(view: &PodView) -> bool {
    let status = &view.status;
    !view.terminating && status.phase != PodPhase::Succeeded && !was_ended(status)
}

/// Returns the contents of a row without the times, because times change all the time.
pub fn visible(pod: &PodView) -> (String, String, u32, &str, Option<String>, &str) {
    let status = status_word(pod);
    let uid = pod.object["metadata"]["uid"].as_str().unwrap_or_default();
    (
        ready(pod),
        status,
        restart_count(pod),
        &pod.status.pod_ip,
        gates(pod),
        uid,
    )
}

/// Returns the labels or annotations of an object, sorted by key.
pub fn string_map(map: &Value) -> BTreeMap<&str, &str> {
    let entries = map.as_object().into_iter().flatten();
    entries
        .filter_map(|(k, v)| Some((k.as_str(), v.as_str()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Checks the columns READY, STATUS and RESTARTS of a pod at 2026-01-01T00:01:00Z. `status` is the pod's status as
    /// JSON, in the API's form.
    #[track_caller]
    fn check(status: Value, terminating: bool, expected: [&str; 3]) {
        let containers: Vec<Value> =
            (0..status["containerStatuses"].as_array().map_or(1, Vec::len))
                .map(|i| json!({"name": format!("c{i}")}))
                .collect();
        // An init container named `sidecar` is a sidecar.
        let init = |c: &Value| json!({"name": c["name"], "restartPolicy": (c["name"] == "sidecar").then_some("Always")});
        let inits: Vec<Value> = status["initContainerStatuses"]
            .as_array()
            .into_iter()
            .flatten()
            .map(init)
            .collect();
        let view = PodView {
            object: json!({"metadata": {"name": "p"}, "spec": {"containers": containers, "initContainers": inits}}).into(),
            status: serde_json::from_value(status).unwrap(),
            file: "f".into(),
            warnings: vec![],
            file_error: None,
            terminating,
            log_dir: String::new(),
            events: vec![],
            paused: vec![],
            pulls: vec![],
            network_lacks: vec![],
        };
        let now = serde_json::from_value(json!("2026-01-01T00:01:00Z")).unwrap();
        let row = Row::new(&view, now);
        assert_eq!([row.ready.as_str(), &row.status, &row.restarts], expected);
    }

    fn running(ready: bool) -> Value {
        json!({"name": "c", "ready": ready, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}})
    }

    fn ended(reason: &str, code: i32, signal: Option<i32>) -> Value {
        json!({"name": "c", "state": {"terminated": {"reason": reason, "exitCode": code, "signal": signal}}})
    }

    fn waiting(reason: &str) -> Value {
        json!({"name": "c", "state": {"waiting": {"reason": reason}}})
    }

    fn pod(phase: &str, containers: &[Value]) -> Value {
        json!({"phase": phase, "containerStatuses": containers})
    }

    #[test]
    fn nothing_known_is_the_phase() {
        check(json!({"phase": "Pending"}), false, ["0/1", "Pending", "0"]);
        check(
            pod("Pending", &[waiting("")]),
            false,
            ["0/1", "Pending", "0"],
        );
        check(
            json!({"phase": "Failed", "reason": "Evicted"}),
            false,
            ["0/1", "Evicted", "0"],
        );
    }

    #[test]
    fn an_evicted_pod_is_evicted_however_its_containers_ended() {
        let ended =
            json!({"name": "c", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
        let evicted = json!({"phase": "Failed", "reason": "Evicted", "containerStatuses": [ended]});
        check(evicted, false, ["0/1", "Evicted", "0"]);
    }

    #[test]
    fn a_deleted_pod_is_terminating_until_its_containers_have_ended() {
        let deleted = |container: Value| json!({"phase": "Failed", "reason": "Deleted", "containerStatuses": [container]});
        check(deleted(running(true)), false, ["1/1", "Terminating", "0"]);
        let ended = ended("Error", 137, None);
        check(deleted(ended), false, ["0/1", "Deleted", "0"]);
    }

    #[test]
    fn running_counts_ready_containers() {
        check(
            pod("Running", &[running(true)]),
            false,
            ["1/1", "Running", "0"],
        );
        check(
            pod("Running", &[running(true), running(false)]),
            false,
            ["1/2", "Running", "0"],
        );
    }

    #[test]
    fn a_waiting_container_gives_its_reason() {
        check(
            pod("Pending", &[waiting("ContainerCreating")]),
            false,
            ["0/1", "ContainerCreating", "0"],
        );
        check(
            pod("Running", &[running(true), waiting("CrashLoopBackOff")]),
            false,
            ["1/2", "CrashLoopBackOff", "0"],
        );
        check(
            pod(
                "Pending",
                &[waiting("ErrImageNeverPull"), ended("Error", 1, None)],
            ),
            false,
            ["0/2", "ErrImageNeverPull", "0"],
        );
    }

    /// A container that no longer runs does not count as ready, even if its status still reports it as ready for a
    /// moment.
    #[test]
    fn only_what_runs_counts_as_ready() {
        for (mut c, word) in [
            (waiting("CrashLoopBackOff"), "CrashLoopBackOff"),
            (ended("Error", 1, None), "Error"),
        ] {
            c["ready"] = true.into();
            check(pod("Running", &[c]), false, ["0/1", word, "0"]);
        }
    }

    #[test]
    fn an_ended_container_gives_reason_signal_or_code() {
        check(
            pod("Succeeded", &[ended("Completed", 0, None)]),
            false,
            ["0/1", "Completed", "0"],
        );
        check(
            pod("Failed", &[ended("Error", 3, None)]),
            false,
            ["0/1", "Error", "0"],
        );
        check(
            pod("Failed", &[ended("OOMKilled", 137, Some(9))]),
            false,
            ["0/1", "OOMKilled", "0"],
        );
        check(
            pod("Failed", &[ended("", 3, None)]),
            false,
            ["0/1", "ExitCode:3", "0"],
        );
        check(
            pod("Failed", &[ended("", 137, Some(9))]),
            false,
            ["0/1", "Signal:9", "0"],
        );
        check(
            pod("Failed", &[ended("", 4, Some(0))]),
            false,
            ["0/1", "ExitCode:4", "0"],
        );
    }

    #[test]
    fn completed_beside_a_running_one_is_not_completed() {
        let mut status = pod("Running", &[ended("Completed", 0, None), running(true)]);
        check(status.clone(), false, ["1/2", "NotReady", "0"]);
        status["conditions"] =
            json!([{"type": "Ready", "status": "True", "lastTransitionTime": null}]);
        check(status, false, ["1/2", "Running", "0"]);
        check(
            pod("Running", &[ended("Error", 1, None), running(true)]),
            false,
            ["1/2", "Error", "0"],
        );
        check(
            pod("Running", &[ended("Completed", 0, None), running(false)]),
            false,
            ["0/2", "Completed", "0"],
        );
    }

    #[test]
    fn terminating_wins_unless_the_phase_is_final() {
        check(
            pod("Running", &[running(true)]),
            true,
            ["1/1", "Terminating", "0"],
        );
        check(
            pod("Succeeded", &[ended("Completed", 0, None)]),
            true,
            ["0/1", "Completed", "0"],
        );
    }

    #[test]
    fn restarts_add_up_and_say_when() {
        let restarted = |n: u32, finished: &str| {
            let mut c = running(true);
            c["restartCount"] = n.into();
            c["lastState"] = json!({"terminated": {"exitCode": 1, "finishedAt": finished}});
            c
        };
        let two = [
            restarted(1, "2026-01-01T00:00:10Z"),
            restarted(2, "2026-01-01T00:00:48Z"),
        ];
        check(
            pod("Running", &two),
            false,
            ["2/2", "Running", "3 (12s ago)"],
        );
        let mut never = running(true);
        never["restartCount"] = 4.into();
        check(pod("Running", &[never]), false, ["1/1", "Running", "4"]);
    }

    #[test]
    fn init_containers_come_first_until_initialized() {
        let with_init = |inits: &[Value], initialized: &str| {
            json!({"phase": "Pending", "initContainerStatuses": inits, "containerStatuses": [waiting("PodInitializing")],
                   "conditions": [{"type": "Initialized", "status": initialized, "lastTransitionTime": null}]})
        };
        check(
            with_init(&[ended("Completed", 0, None), running(false)], "False"),
            false,
            ["0/1", "Init:1/2", "0"],
        );
        check(
            with_init(&[ended("Error", 1, None)], "False"),
            false,
            ["0/1", "Init:Error", "0"],
        );
        check(
            with_init(&[ended("", 2, None)], "False"),
            false,
            ["0/1", "Init:ExitCode:2", "0"],
        );
        check(
            with_init(&[waiting("CrashLoopBackOff")], "False"),
            false,
            ["0/1", "Init:CrashLoopBackOff", "0"],
        );
        check(
            with_init(&[waiting("PodInitializing")], "False"),
            false,
            ["0/1", "Init:0/1", "0"],
        );
        check(
            with_init(&[ended("Completed", 0, None)], "True"),
            false,
            ["0/1", "PodInitializing", "0"],
        );
        let mut restarted = waiting("CrashLoopBackOff");
        restarted["restartCount"] = 4.into();
        check(
            with_init(&[restarted], "False"),
            false,
            ["0/1", "Init:CrashLoopBackOff", "4"],
        );
    }

    #[test]
    fn sidecars_count_beside_the_regular_containers() {
        let sidecar = |started: bool, ready: bool| json!({"name": "sidecar", "started": started, "ready": ready, "restartCount": 2, "state": {"running": {"startedAt": null}}});
        let with = |inits: &[Value], app: Value, phase: &str, initialized: &str| {
            json!({"phase": phase, "initContainerStatuses": inits, "containerStatuses": [app],
                   "conditions": [{"type": "Initialized", "status": initialized, "lastTransitionTime": null}]})
        };
        let done = ended("Completed", 0, None);
        check(
            with(
                &[sidecar(true, true), done.clone()],
                running(true),
                "Running",
                "True",
            ),
            false,
            ["2/2", "Running", "2"],
        );
        check(
            with(&[sidecar(true, false)], running(true), "Running", "True"),
            false,
            ["1/2", "Running", "2"],
        );
        check(
            with(
                &[sidecar(false, false)],
                waiting("PodInitializing"),
                "Pending",
                "False",
            ),
            false,
            ["0/2", "Init:0/1", "2"],
        );
        // The restarts of a plain init container are shown only until it is done.
        let mut slow = done;
        slow["restartCount"] = 7.into();
        check(
            with(
                &[slow, sidecar(true, true)],
                running(true),
                "Running",
                "True",
            ),
            false,
            ["2/2", "Running", "2"],
        );
    }

    #[test]
    fn age_is_since_creation_or_start() {
        let mut view = PodView {
            object: json!({"metadata": {"name": "p"}, "spec": {}}).into(),
            status: serde_json::from_value(json!({"startTime": "2026-01-01T00:00:00Z"})).unwrap(),
            file: String::new(),
            warnings: vec![],
            file_error: None,
            terminating: false,
            log_dir: String::new(),
            events: vec![],
            paused: vec![],
            pulls: vec![],
            network_lacks: vec![],
        };
        let now = serde_json::from_value(json!("2026-01-01T00:01:00Z")).unwrap();
        assert_eq!(Row::new(&view, now).age, "60s");
        view.object = json!({"metadata": {"creationTimestamp": "2025-12-31T23:57:00Z"}}).into();
        assert_eq!(Row::new(&view, now).age, "4m");
        view.object = json!({"metadata": {"creationTimestamp": null}}).into();
        view.status = Default::default();
        assert_eq!(Row::new(&view, now).age, "0s");
    }
}
