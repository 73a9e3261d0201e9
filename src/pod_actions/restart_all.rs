//! The restart of all containers by a rule of one of them (kubelet-probes 8.6): every instance is removed, then the pod
//! starts as at its beginning.

use super::restart::restarts_all;
use crate::api::pod::PodSpec;
use crate::api::{Container, Pod, PodStatus};
use crate::runtime::{ContainerId, RuntimePodStatus, RuntimeState};

/// The condition that is True while every container is removed because a rule of one of them asked for it.
pub const ALL_CONTAINERS_RESTARTING: &str = "AllContainersRestarting";
/// Why a container that a restart of all removes is said to have ended, and what it waits for.
pub const RESTARTING_ALL_CONTAINERS: &str = "RestartingAllContainers";

/// An instance to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToRemove {
    /// Which one.
    pub id: ContainerId,
    /// The container's name.
    pub name: String,
    /// It has not ended yet.
    pub kill: bool,
}

/// Whether any container of the pod may ask for it: such pods have the condition AllContainersRestarting.
pub fn may_restart_all(spec: &PodSpec) -> bool {
    let asks = |c: &Container| c.restart_policy.is_some() && c.restart_policy_rules.iter().any(|r| r.action == "RestartAllContainers");
    spec.all_containers().any(asks)
}

/// Whether the newest instance of a container has ended in a way that asks for it.
pub fn restart_all_wanted(pod: &Pod, status: &RuntimePodStatus) -> bool {
    pod.spec.all_containers().any(|c| {
        let newest = status.container(&c.name);
        newest.is_some_and(|s| s.state == RuntimeState::Exited && restarts_all(c, s.exit_code))
    })
}

/// The same of the API status, or the restart is going on already (2.5).
pub fn restart_all_going_on(spec: &PodSpec, status: &PodStatus) -> bool {
    let asks = |c: &Container| {
        let ended = status.container(&c.name).and_then(|s| s.state.terminated.as_ref());
        ended.is_some_and(|t| restarts_all(c, t.exit_code))
    };
    status.condition(ALL_CONTAINERS_RESTARTING).is_some_and(|c| c.status == "True") || spec.all_containers().any(asks)
}

/// Every instance, in spec order: regular, then init; those that asked for it come last, so that who asked is known
/// until the end.
pub(super) fn removals(pod: &Pod, status: &RuntimePodStatus) -> Vec<ToRemove> {
    let (mut first, mut last) = (Vec::new(), Vec::new());
    for container in pod.spec.containers.iter().chain(&pod.spec.init_containers) {
        for (age, s) in status.containers.iter().filter(|s| s.name == container.name).enumerate() {
            let trigger = age == 0 && s.state == RuntimeState::Exited && restarts_all(container, s.exit_code);
            let remove = ToRemove { id: s.id.clone(), name: s.name.clone(), kill: s.state != RuntimeState::Exited };
            if trigger { last.push(remove) } else { first.push(remove) }
        }
    }
    first.append(&mut last);
    first
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::pod_actions::compute::tests::container_status;
    use crate::pod_actions::{Inputs, compute};
    use crate::runtime::RuntimeSandboxStatus;

    /// Regular containers foo1–foo3 and those init containers; a `+` asks for a restart of all at exit code 1, a `*`
    /// makes a sidecar.
    fn pod(init: &[&str], asks: &[&str]) -> Pod {
        let container = |name: &str| {
            let plain = name.trim_end_matches('*');
            let rules = json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}]);
            let rules = if asks.contains(&plain) { rules } else { json!([]) };
            let policy = if name.ends_with('*') { "Always" } else { "Never" };
            json!({"name": plain, "restartPolicy": policy, "restartPolicyRules": rules})
        };
        let list = |names: &[&str]| names.iter().map(|n| container(n)).collect::<Vec<_>>();
        let spec = json!({"restartPolicy": "Never", "initContainers": list(init), "containers": list(&["foo1", "foo2", "foo3"])});
        Pod { metadata: Default::default(), spec: serde_json::from_value(spec).unwrap(), raw: Value::Null }
    }

    /// `known`: name, id, exit code or None while it runs; newest first.
    fn status(known: &[(&str, &str, Option<i32>)]) -> RuntimePodStatus {
        let one = |(name, id, code): &(&str, &str, Option<i32>)| {
            container_status(name, id, if code.is_some() { RuntimeState::Exited } else { RuntimeState::Running }, code.unwrap_or(0))
        };
        let sandbox = RuntimeSandboxStatus {
            id: "sandbox".into(),
            attempt: 0,
            ready: true,
            host_network: false,
            created_at: std::time::SystemTime::UNIX_EPOCH,
            ips: vec!["10.0.0.1".parse().unwrap()],
        };
        RuntimePodStatus { containers: known.iter().map(one).collect(), sandboxes: vec![sandbox], ..Default::default() }
    }

    /// The case of that id in podactions.json `restartAll`, against what comes of this pod.
    #[track_caller]
    fn check(id: &str, init: &[&str], asks: &[&str], known: &[(&str, &str, Option<i32>)]) {
        let vectors: Value = serde_json::from_str(include_str!("../../tests/vectors/podactions.json")).unwrap();
        let case = vectors["restartAll"].as_array().unwrap().iter().find(|c| c["id"] == id).unwrap().clone();
        let (pod, status) = (pod(init, asks), status(known));
        let restart_all = case["restartAll"] == true;
        assert_eq!(restart_all_wanted(&pod, &status), restart_all && !asks.is_empty());
        let got = compute(&Inputs { pod: &pod, status: &status, liveness: &|_| None, startup: &|_| None, restart_all });
        if let Some(expected) = case.get("expectReset") {
            let removed: Vec<_> = got.remove.iter().map(|r| json!([r.name, r.id.as_str(), r.kill])).collect();
            assert_eq!(&Value::from(removed), expected, "{id}");
        }
        if let Some(expected) = case.get("expectInitStart") {
            assert_eq!(&json!(got.init_start), expected, "{id}");
        }
        assert!(!restart_all || (got.start.is_empty() && got.init_start.is_empty() && !got.kill_pod), "nothing else is done");
    }

    const INIT: [&str; 3] = ["init1", "init2", "init3"];
    const SIDECARS: [&str; 3] = ["restartable-init-1*", "restartable-init-2*", "restartable-init-3*"];

    #[test]
    fn the_cases_of_a_restart_of_all_hold() {
        let (end, fail) = (Some(0), Some(1));
        let regular = [("foo1", "id1", None), ("foo2", "id2", None), ("foo3", "id3", None)];
        check("ra-01", &[], &[], &regular);
        check("ra-02", &[], &[], &regular);
        check("ra-03", &INIT, &[], &[("init1", "initid1", end), ("init2", "initid2", end), ("init3", "initid3", end)]);
        let [s1, s2, s3] = SIDECARS.map(|s| s.trim_end_matches('*'));
        check("ra-04", &SIDECARS, &[], &[(s1, "initid1", None), (s2, "initid2", None), (s3, "initid3", None)]);
        check(
            "ra-05",
            &["init1", "init2*", "init3"],
            &["init3"],
            &[("init1", "initid1", end), ("init2", "initid2", None), ("init3", "initid3", fail)],
        );
        check("ra-06", &SIDECARS, &[s3], &[("foo1", "id1", None), (s1, "initid1", None), (s2, "initid2", None), (s3, "initid3", fail)]);
        let sidecars = [(s1, "initid1", None), (s2, "initid2", None), (s3, "initid3", None)];
        check(
            "ra-07",
            &SIDECARS,
            &["foo3"],
            &[&[("foo1", "id1", None), ("foo2", "id2", None), ("foo3", "id3", fail)][..], &sidecars].concat(),
        );
        let past = [("foo1", "id1-past", end), ("foo2", "id2-past", end), ("foo3", "id3-past", fail)];
        check("ra-08", &[], &["foo3"], &[&[("foo1", "id1", None), ("foo2", "id2", None), ("foo3", "id3", fail)][..], &past].concat());
        check("ra-09", &INIT, &[], &[]);
    }
}
