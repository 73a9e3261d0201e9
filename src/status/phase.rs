//! The phase of a pod from its spec and container statuses (kubelet-probes 9.1).

use crate::api::pod::PodSpec;
use crate::api::status::ContainerState;
use crate::api::{ContainerStatus, PodPhase};
use crate::pod_actions::should_restart_after;

#[derive(Default)]
struct Counts {
    unknown: usize,
    running: usize,
    waiting: usize,
    stopped: usize,
    stopped_for_good: usize,
    succeeded: usize,
}

/// The phase. `pod_is_terminal`: its containers were all stopped for good by us; it does not count for a static pod,
/// and podprobe has no others yet, so it is passed for the day it does.
pub fn phase(spec: &PodSpec, statuses: &[ContainerStatus], pod_is_terminal: bool, static_pod: bool) -> PodPhase {
    let mut n = Counts::default();
    for container in &spec.containers {
        count(&mut n, spec, statuses.iter().find(|s| s.name == container.name));
    }
    let ended = || if n.stopped == n.succeeded { PodPhase::Succeeded } else { PodPhase::Failed };
    if n.waiting > 0 {
        PodPhase::Pending
    } else if n.running > 0 && n.unknown == 0 {
        PodPhase::Running
    } else if n.running == 0 && n.stopped > 0 && n.unknown == 0 {
        match () {
            () if pod_is_terminal && !static_pod => ended(),
            () if n.stopped != n.stopped_for_good => PodPhase::Running,
            () => ended(),
        }
    } else {
        PodPhase::Pending
    }
}

/// The three rows of the table for a regular container; "waiting with last termination" counts by that termination.
fn count(n: &mut Counts, spec: &PodSpec, status: Option<&ContainerStatus>) {
    let Some(status) = status else {
        n.unknown += 1;
        return;
    };
    let ContainerState { waiting, running, terminated } = &status.state;
    if running.is_some() {
        n.running += 1;
    } else if let Some(ended) = terminated {
        n.stopped += 1;
        n.succeeded += usize::from(ended.exit_code == 0);
        n.stopped_for_good += usize::from(!should_restart_after(spec.restart_policy, ended.exit_code));
    } else if let (Some(_), Some(last)) = (waiting, &status.last_state.terminated) {
        n.stopped += 1;
        n.stopped_for_good += usize::from(!should_restart_after(spec.restart_policy, last.exit_code));
    } else if waiting.is_some() {
        n.waiting += 1;
    } else {
        n.unknown += 1;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn status(v: &Value) -> ContainerStatus {
        let code = |v: &Value| json!({"exitCode": v.as_i64().unwrap_or(0)});
        let state = match v["state"].as_str().unwrap() {
            "running" => json!({"running": {"startedAt": null}}),
            "terminated" => json!({"terminated": code(&v["exitCode"])}),
            "waiting" => json!({"waiting": {}}),
            other => panic!("unknown state {other}"),
        };
        let last = match &v["last"] {
            Value::Null => json!({}),
            last => json!({"terminated": code(last.get("exitCode").unwrap_or(last))}),
        };
        serde_json::from_value(json!({"name": v["name"], "state": state, "lastState": last})).unwrap()
    }

    /// phase.json, those without init containers, container policies and rules.
    #[test]
    fn phases_hold() {
        let vectors: Value = serde_json::from_str(include_str!("../../tests/vectors/phase.json")).unwrap();
        let mut ran = 0;
        for case in vectors["cases"].as_array().unwrap() {
            let containers = case["spec"]["containers"].to_string();
            if case["spec"]["initContainers"] != json!([]) || containers.contains("restartPolicy") {
                continue;
            }
            let spec: PodSpec = serde_json::from_value(case["spec"].clone()).unwrap();
            let statuses: Vec<_> = case["allStatuses"].as_array().unwrap().iter().map(status).collect();
            let got = phase(&spec, &statuses, case["podIsTerminal"] == true, case["staticPod"] == true);
            assert_eq!(got.as_str(), case["expectPhase"], "{}: {case}", case["id"]);
            ran += 1;
        }
        assert!(ran >= 15, "only {ran} cases ran");
    }
}
