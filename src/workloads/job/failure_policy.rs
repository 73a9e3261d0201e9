//! Decides what the failure of a pod means to its Job (workloads 6.13).
//!
//! Invariants: the first rule that matches decides. A rule with an unknown action or operator matches nothing.

use crate::api::workload::{
    ExitCodeOperator, ExitCodes, FailureAction, PodFailurePolicy, PodFailureRule,
};
use crate::workloads::{ContainerKind, ObservedContainer, ObservedPod};

/// The meaning of a pod's failure to its Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureVerdict {
    /// Action of the rule that matches; None if no rule matches.
    pub action: Option<FailureAction>,
    /// Message for people if the Job fails.
    pub message: Option<String>,
}

impl FailureVerdict {
    /// True if the failure counts against the back-off limits.
    pub fn is_counted(&self) -> bool {
        self.action != Some(FailureAction::Ignore)
    }
}

/// Returns the meaning of a pod's failure (matchPodFailurePolicy).
pub fn failure_verdict(
    policy: Option<&PodFailurePolicy>,
    namespace: &str,
    pod: &ObservedPod,
) -> FailureVerdict {
    let rules = policy.map(|policy| policy.rules.as_slice());
    let mut rules = rules.unwrap_or_default().iter().enumerate();
    let first = rules.find_map(|(position, rule)| {
        let action = rule.failure_action()?;
        let cause = cause(rule, namespace, pod)?;
        let message = format!("{cause} matching {} rule at index {position}", rule.action);
        Some((action, message))
    });
    let action = first.as_ref().map(|(action, _)| *action);
    let failed = first.filter(|(action, _)| *action == FailureAction::FailJob);
    FailureVerdict {
        action,
        message: failed.map(|(_, message)| message),
    }
}

/// Returns what the rule found in the pod; None if the rule does not match.
fn cause(rule: &PodFailureRule, namespace: &str, pod: &ObservedPod) -> Option<String> {
    let name = &pod.name;
    if let Some(codes) = &rule.on_exit_codes {
        let (container, code) = matching_container(codes, pod)?;
        return Some(format!(
            "Container {container} for pod {namespace}/{name} failed with exit code {code}"
        ));
    }
    let asked = |(type_, status): &&(String, String)| {
        let mut patterns = rule.on_pod_conditions.iter();
        patterns.any(|it| it.type_ == *type_ && it.status == *status)
    };
    let (type_, _) = pod.conditions.iter().find(asked)?;
    Some(format!("Pod {namespace}/{name} has condition {type_}"))
}

/// Returns the first container whose exit code matches, with the code. Regular containers come before init containers.
fn matching_container<'a>(codes: &ExitCodes, pod: &'a ObservedPod) -> Option<(&'a str, i32)> {
    let is_regular = |it: &&ObservedContainer| it.kind == ContainerKind::Regular;
    let regular = pod.containers.iter().filter(is_regular);
    let init = pod.containers.iter().filter(|it| !is_regular(it));
    regular.chain(init).find_map(|it| {
        let code = it
            .exit_code
            .filter(|&code| matches(codes, &it.name, code))?;
        Some((it.name.as_str(), code))
    })
}

/// True if the exit code of this container matches. Exit code 0 never does, not even with `NotIn`.
fn matches(codes: &ExitCodes, container: &str, code: i32) -> bool {
    let names = codes.container_name.iter();
    let is_asked = names.into_iter().all(|name| name == container);
    let is_listed = codes.values.contains(&code);
    let is_related = match codes.relation() {
        Some(ExitCodeOperator::In) => is_listed,
        Some(ExitCodeOperator::NotIn) => !is_listed,
        None => false,
    };
    is_asked && code != 0 && is_related
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn container(name: &str, kind: ContainerKind, code: Option<i32>) -> ObservedContainer {
        ObservedContainer {
            name: name.into(),
            kind,
            exit_code: code,
            ..Default::default()
        }
    }

    /// The action of one rule for a pod with these containers.
    #[track_caller]
    fn check(rule: Value, containers: &[ObservedContainer], expected: Option<FailureAction>) {
        let policy = serde_json::from_value(json!({ "rules": [rule] })).unwrap();
        let pod = ObservedPod {
            containers: containers.to_vec(),
            ..Default::default()
        };
        let verdict = failure_verdict(Some(&policy), "default", &pod);
        assert_eq!(verdict.action, expected);
    }

    #[test]
    fn not_in_matches_no_success_and_nothing_that_runs() {
        use ContainerKind::Regular;
        let rule = json!({"action": "Count", "onExitCodes": {"operator": "NotIn", "values": [1]}});
        check(rule.clone(), &[container("c", Regular, Some(0))], None);
        check(rule.clone(), &[container("c", Regular, None)], None);
        let count = Some(FailureAction::Count);
        check(rule, &[container("c", Regular, Some(2))], count);
    }

    #[test]
    fn an_unknown_operator_matches_nothing() {
        let rule = json!({"action": "Count", "onExitCodes": {"operator": "Out", "values": [1]}});
        check(
            rule,
            &[container("c", ContainerKind::Regular, Some(2))],
            None,
        );
    }

    #[test]
    fn regular_containers_come_before_init_containers_and_sidecars() {
        use ContainerKind::{Init, Regular, Sidecar};
        let codes = serde_json::from_value(json!({"operator": "NotIn", "values": [9]})).unwrap();
        let pod = ObservedPod {
            containers: vec![
                container("i", Init, Some(1)),
                container("s", Sidecar, Some(2)),
                container("c", Regular, Some(3)),
            ],
            ..Default::default()
        };
        assert_eq!(matching_container(&codes, &pod), Some(("c", 3)));
    }
}
