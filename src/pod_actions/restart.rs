//! Should a container restart? (kubelet-probes 8.2)

use crate::api::pod::RestartPolicy;
use crate::runtime::{RuntimeContainerStatus, RuntimeState};

/// After an exit with that code (8.2, "after an exit"). Container policies and rules are a later step.
pub fn should_restart_after(policy: RestartPolicy, exit_code: i32) -> bool {
    match policy {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => exit_code != 0,
        RestartPolicy::Never => false,
    }
}

/// At a start decision (8.2, second table): `newest` is the newest instance, if the runtime knows one.
pub fn should_be_restarted(policy: RestartPolicy, newest: Option<&RuntimeContainerStatus>, deleted: bool) -> bool {
    if deleted {
        return false;
    }
    let Some(newest) = newest else { return true };
    match newest.state {
        RuntimeState::Running => false,
        RuntimeState::Created | RuntimeState::Unknown => true,
        RuntimeState::Exited => should_restart_after(policy, newest.exit_code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod_actions::compute::tests::container_status;

    /// lifecycle.json `shouldRestart`: rows by last state, columns Never, OnFailure, Always.
    #[test]
    fn the_restart_matrix_holds() {
        let vectors: serde_json::Value = serde_json::from_str(include_str!("../../tests/vectors/lifecycle.json")).unwrap();
        let rows = vectors["shouldRestart"]["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 5);
        for row in rows {
            let newest = match row[0].as_str().unwrap() {
                "no status" => None,
                "running" => Some(container_status("a", "1", RuntimeState::Running, 0)),
                "exited 0" => Some(container_status("a", "1", RuntimeState::Exited, 0)),
                "exited 1" => Some(container_status("a", "1", RuntimeState::Exited, 1)),
                "unknown" => Some(container_status("a", "1", RuntimeState::Unknown, 0)),
                other => panic!("unknown row {other}"),
            };
            for (column, policy) in [(1, RestartPolicy::Never), (2, RestartPolicy::OnFailure), (3, RestartPolicy::Always)] {
                assert_eq!(should_be_restarted(policy, newest.as_ref(), false), row[column].as_bool().unwrap(), "{row} {policy:?}");
                assert!(!should_be_restarted(policy, newest.as_ref(), true), "{row} {policy:?} with a deletion timestamp");
            }
        }
    }
}
