//! The choice of the container instance for a request for logs.
//!
//! Invariants: pure.

use crate::api::ContainerStatus;

/// The reasons why there is no log to show.
#[derive(Debug, PartialEq, Eq)]
pub enum NoLog {
    /// There is no instance before the current one.
    NoPrevious,
    /// The container has not started. The text is the reason of its state.
    Waiting(String),
}

impl NoLog {
    /// Returns the sentence for the client, in the words of kubectl and the kubelet.
    pub fn text(&self, container: &str, pod: &str) -> String {
        match self {
            Self::NoPrevious => {
                format!("previous terminated container \"{container}\" in pod \"{pod}\" not found")
            }
            Self::Waiting(reason) => {
                format!("container \"{container}\" in pod \"{pod}\" is waiting to start: {reason}")
            }
        }
    }
}

/// Returns the number of the instance with the requested log. A container that waits for its restart has only the ended
/// instance, which also counts as its previous instance.
///
/// # Errors
/// Returns [`NoLog`] if there is no log.
pub fn attempt(status: Option<&ContainerStatus>, previous: bool) -> Result<u32, NoLog> {
    let creating = || NoLog::Waiting("ContainerCreating".into());
    let s = status.ok_or_else(|| {
        if previous {
            NoLog::NoPrevious
        } else {
            creating()
        }
    })?;
    let started = s.state.running.is_some() || s.state.terminated.is_some();
    let ended_before = s.last_state.terminated.is_some();
    match (started, previous) {
        (true, false) => Ok(s.restart_count),
        (true, true) => s.restart_count.checked_sub(1).ok_or(NoLog::NoPrevious),
        (false, _) if ended_before => Ok(s.restart_count),
        (false, true) => Err(NoLog::NoPrevious),
        (false, false) => {
            let reason = s
                .state
                .waiting
                .as_ref()
                .map(|w| w.reason.clone())
                .filter(|r| !r.is_empty());
            Err(reason.map_or_else(creating, NoLog::Waiting))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[track_caller]
    fn check_attempt(status: Value, previous: bool, expected: Result<u32, NoLog>) {
        let status: Option<ContainerStatus> = serde_json::from_value(status).unwrap();
        assert_eq!(attempt(status.as_ref(), previous), expected);
    }

    #[test]
    fn the_instance_follows_from_the_state() {
        let running = |restarts: u32| json!({"restartCount": restarts, "state": {"running": {"startedAt": null}}});
        let backing_off = json!({"restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 1}}});
        check_attempt(running(0), false, Ok(0));
        check_attempt(running(3), false, Ok(3));
        check_attempt(running(3), true, Ok(2));
        check_attempt(running(0), true, Err(NoLog::NoPrevious));
        check_attempt(
            json!({"restartCount": 1, "state": {"terminated": {"exitCode": 0}}}),
            false,
            Ok(1),
        );
        check_attempt(backing_off.clone(), false, Ok(2));
        check_attempt(backing_off, true, Ok(2));
        check_attempt(
            json!({"state": {"waiting": {"reason": "ErrImageNeverPull"}}}),
            false,
            Err(NoLog::Waiting("ErrImageNeverPull".into())),
        );
        check_attempt(
            json!({"state": {"waiting": {"reason": ""}}}),
            false,
            Err(NoLog::Waiting("ContainerCreating".into())),
        );
        check_attempt(
            json!({"state": {"waiting": {"reason": "ErrImageNeverPull"}}}),
            true,
            Err(NoLog::NoPrevious),
        );
        check_attempt(
            Value::Null,
            false,
            Err(NoLog::Waiting("ContainerCreating".into())),
        );
    }
}
