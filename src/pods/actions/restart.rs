//! Decides whether a container should restart (kubelet-probes 8.2).

use std::fmt;

use crate::api::Container;
use crate::api::pod::{RestartPolicy, RestartRule};
use crate::engine::runtime::{ContainerId, RuntimeContainerStatus, RuntimeState};

/// The cause of a restart that a person has requested. The Killing event of the container has this text.
pub const RESTART_REQUESTED: &str = "restart requested";
/// The words of the Killing event of a container that must start again for other resources.
pub(super) const RESIZE_RESTARTS: &str = "resize requires restart";
/// The words of the Killing event of a container whose stop an earlier daemon has begun.
pub(super) const STOP_GOES_ON: &str = "is still being stopped";

/// The reason why a container cannot be restarted on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CannotRestart {
    /// The container's restart policy is Never: after a kill the container would not start again.
    Never,
    /// The container has ended with this exit code, and its restart policy does not restart it.
    HasEnded(i32),
    /// The container has no instance yet.
    NotStarted,
}

impl fmt::Display for CannotRestart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => write!(
                f,
                "its restartPolicy is Never: it would be killed and not start again"
            ),
            Self::HasEnded(code) => write!(
                f,
                "it has ended with exit code {code}, and its restartPolicy leaves it so"
            ),
            Self::NotStarted => write!(f, "it has not started yet"),
        }
    }
}

/// Returns the instance to replace when a person requests a restart. A running instance is then killed. A container
/// that waits for its back-off starts at once.
///
/// # Errors
/// Returns [`CannotRestart`] if the container would not start again.
pub fn on_request(
    pod: RestartPolicy,
    container: &Container,
    newest: Option<&RuntimeContainerStatus>,
) -> Result<ContainerId, CannotRestart> {
    let newest = newest.ok_or(CannotRestart::NotStarted)?;
    match newest.state {
        RuntimeState::Exited => match should_restart_after(pod, container, newest.exit_code) {
            true => Ok(newest.id.clone()),
            false => Err(CannotRestart::HasEnded(newest.exit_code)),
        },
        _ if container.restart_policy.unwrap_or(pod) == RestartPolicy::Never => {
            Err(CannotRestart::Never)
        }
        _ => Ok(newest.id.clone()),
    }
}

/// Decides whether a container restarts after an exit with this code (8.2, "after an exit"): by the container's rules,
/// then by its policy, then by the pod's policy.
pub fn should_restart_after(pod: RestartPolicy, container: &Container, exit_code: i32) -> bool {
    if matching_rule(container, exit_code).is_some() {
        return true;
    }
    match container.restart_policy.unwrap_or(pod) {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => exit_code != 0,
        RestartPolicy::Never => false,
    }
}

/// Tells whether an exit with this code requests a restart of all containers (8.6).
pub fn restarts_all(container: &Container, exit_code: i32) -> bool {
    matching_rule(container, exit_code).is_some_and(|rule| rule.action == "RestartAllContainers")
}

/// Returns the first rule that matches this exit code. Rules count only if the container has a restart policy of its
/// own.
fn matching_rule(container: &Container, exit_code: i32) -> Option<&RestartRule> {
    let rules = container
        .restart_policy
        .map_or(&[][..], |_| &container.restart_policy_rules);
    rules.iter().find(|rule| {
        rule.exit_codes
            .as_ref()
            .is_some_and(|codes| match codes.operator.as_str() {
                "In" => codes.values.contains(&exit_code),
                "NotIn" => !codes.values.contains(&exit_code),
                _ => false,
            })
    })
}

/// Decides whether a container starts (8.2, second table). `newest` is the container's newest instance, if the runtime
/// knows one.
pub fn should_be_restarted(
    pod: RestartPolicy,
    container: &Container,
    newest: Option<&RuntimeContainerStatus>,
    deleted: bool,
) -> bool {
    if deleted {
        return false;
    }
    let Some(newest) = newest else { return true };
    match newest.state {
        RuntimeState::Running => false,
        RuntimeState::Created | RuntimeState::Unknown => true,
        RuntimeState::Exited => should_restart_after(pod, container, newest.exit_code),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Each entry of `rules` is an action, an operator and the exit codes.
    #[track_caller]
    fn check(own: Value, rules: &[(&str, &str, &[i32])], code: i32, restart: bool, all: bool) {
        let rules: Vec<Value> = rules
            .iter()
            .map(|(a, o, v)| json!({"action": a, "exitCodes": {"operator": o, "values": v}}))
            .collect();
        let container: Container =
            serde_json::from_value(json!({"restartPolicy": own, "restartPolicyRules": rules}))
                .unwrap();
        assert_eq!(
            (
                should_restart_after(RestartPolicy::Never, &container, code),
                restarts_all(&container, code)
            ),
            (restart, all)
        );
    }

    #[test]
    fn a_container_s_rules_and_policy_win_over_the_pod_s() {
        check(json!(null), &[], 1, false, false);
        check(json!("Always"), &[], 0, true, false);
        check(json!("OnFailure"), &[], 0, false, false);
        check(json!("OnFailure"), &[], 1, true, false);
        check(
            json!("Never"),
            &[("Restart", "In", &[3, 4])],
            4,
            true,
            false,
        );
        check(
            json!("Never"),
            &[("Restart", "In", &[3, 4])],
            5,
            false,
            false,
        );
        check(
            json!("Never"),
            &[("Restart", "NotIn", &[3])],
            3,
            false,
            false,
        );
        check(
            json!("Never"),
            &[("Restart", "NotIn", &[3])],
            0,
            true,
            false,
        );
        check(json!(null), &[("Restart", "In", &[1])], 1, false, false);
        // the first matching rule decides; if no rule matches, the policy decides
        check(
            json!("Never"),
            &[
                ("RestartAllContainers", "In", &[1]),
                ("Restart", "In", &[1]),
            ],
            1,
            true,
            true,
        );
        check(
            json!("Never"),
            &[
                ("Restart", "In", &[1]),
                ("RestartAllContainers", "In", &[1]),
            ],
            1,
            true,
            false,
        );
        check(
            json!("OnFailure"),
            &[("RestartAllContainers", "In", &[1])],
            2,
            true,
            false,
        );
    }
}
