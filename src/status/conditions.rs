//! The pod's conditions (kubelet-probes 9.4).

use crate::api::pod::PodSpec;
use crate::api::{ContainerStatus, PodCondition, PodPhase, PodStatus};
use crate::clock::Time;

fn condition(type_: &str, status: bool, reason: &str, message: String) -> PodCondition {
    PodCondition {
        type_: type_.into(),
        status: if status { "True" } else { "False" }.into(),
        last_transition_time: None,
        reason: reason.into(),
        message,
    }
}

/// Every condition podprobe owns, in the order of 9.4. Transition times are set by [`keep_transition_times`].
pub(super) fn generate(spec: &PodSpec, status: &PodStatus, sandbox_ready: bool) -> Vec<PodCondition> {
    let containers_ready = containers_ready(spec, Some(&status.container_statuses), status.phase);
    vec![
        condition("PodReadyToStartContainers", sandbox_ready, "", String::new()),
        initialized(spec, status),
        ready(&containers_ready),
        containers_ready,
        condition("PodScheduled", true, "", String::new()),
    ]
}

/// Without readiness gates (refused at decoding: nobody sets them) Ready says what ContainersReady says.
pub(super) fn ready(containers_ready: &PodCondition) -> PodCondition {
    PodCondition { type_: "Ready".into(), ..containers_ready.clone() }
}

/// Without init containers a pod is initialised from the start.
fn initialized(spec: &PodSpec, status: &PodStatus) -> PodCondition {
    let unknown = unknown_containers(spec, &status.container_statuses);
    let reason = if status.phase == PodPhase::Succeeded && unknown.is_empty() { "PodCompleted" } else { "" };
    condition("Initialized", true, reason, String::new())
}

fn unknown_containers<'a>(spec: &'a PodSpec, statuses: &[ContainerStatus]) -> Vec<&'a str> {
    let known = |name: &str| statuses.iter().any(|s| s.name == name);
    spec.containers.iter().map(|c| c.name.as_str()).filter(|n| !known(n)).collect()
}

/// ContainersReady; None while nothing is known of the containers.
pub fn containers_ready(spec: &PodSpec, statuses: Option<&[ContainerStatus]>, phase: PodPhase) -> PodCondition {
    let no = |reason, message| condition("ContainersReady", false, reason, message);
    let Some(statuses) = statuses else {
        return no("UnknownContainerStatuses", String::new());
    };
    let unknown = unknown_containers(spec, statuses);
    let is_unready = |name: &str| statuses.iter().any(|s| s.name == name && !s.ready);
    let unready: Vec<&str> = spec.containers.iter().map(|c| c.name.as_str()).filter(|n| is_unready(n)).collect();
    match phase {
        PodPhase::Succeeded if unknown.is_empty() => return no("PodCompleted", String::new()),
        PodPhase::Failed => return no("PodFailed", String::new()),
        _ => {}
    }
    let part = |names: &[&str], what: &str| (!names.is_empty()).then(|| format!("containers with {what} status: [{}]", names.join(" ")));
    let parts: Vec<String> = [part(&unknown, "unknown"), part(&unready, "unready")].into_iter().flatten().collect();
    match parts.is_empty() {
        true => condition("ContainersReady", true, "", String::new()),
        false => no("ContainersNotReady", parts.join(", ")),
    }
}

/// `lastTransitionTime` changes only when the status value does.
pub(super) fn keep_transition_times(new: &mut [PodCondition], old: &[PodCondition], now: Time) {
    for condition in new {
        let before = old.iter().find(|o| o.type_ == condition.type_ && o.status == condition.status);
        condition.last_transition_time = before.and_then(|o| o.last_transition_time).or(Some(now));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// lifecycle.json `containersReady`, those without sidecars.
    #[test]
    fn containers_ready_holds() {
        let vectors: Value = serde_json::from_str(include_str!("../../tests/vectors/lifecycle.json")).unwrap();
        let mut ran = 0;
        for case in vectors["containersReady"].as_array().unwrap().iter().filter(|c| c["sidecars"].as_array().is_none_or(Vec::is_empty)) {
            let named: Vec<Value> = case["containers"].as_array().unwrap().iter().map(|n| json!({"name": n})).collect();
            let spec: PodSpec = serde_json::from_value(json!({"containers": named})).unwrap();
            let status = |(name, ready): (&String, &Value)| ContainerStatus {
                name: name.clone(),
                ready: ready == true,
                ..ContainerStatus::default()
            };
            let statuses: Option<Vec<_>> = case["statuses"].as_object().map(|s| s.iter().map(status).collect());
            let phase: PodPhase = serde_json::from_value(case["phase"].clone()).unwrap();
            let got = containers_ready(&spec, statuses.as_deref(), phase);
            let got = json!({"status": got.status, "reason": got.reason, "message": got.message});
            let expect = json!({"status": case["status"], "reason": case["reason"], "message": case["message"]});
            assert_eq!(got, expect, "{}", case["id"]);
            ran += 1;
        }
        assert!(ran >= 5, "only {ran} cases ran");
    }

    #[test]
    fn transition_times_change_with_the_status_only() {
        let t = |s: &str| serde_json::from_value::<Time>(json!(s)).unwrap();
        let (before, now) = (t("2026-01-01T00:00:00Z"), t("2026-01-02T00:00:00Z"));
        let mut old = vec![condition("Ready", true, "", String::new()), condition("ContainersReady", false, "A", String::new())];
        keep_transition_times(&mut old, &[], before);
        let mut new = vec![condition("Ready", false, "", String::new()), condition("ContainersReady", false, "B", String::new())];
        keep_transition_times(&mut new, &old, now);
        assert_eq!((new[0].last_transition_time, new[1].last_transition_time), (Some(now), Some(before)));
    }
}
