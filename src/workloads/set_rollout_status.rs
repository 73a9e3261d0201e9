//! What `rollout status` says about a StatefulSet or a DaemonSet, in kubectl's words (kubectl polymorphichelpers/
//! rollout_status.go; workloads 8.6).
//!
//! Invariants: pure. The texts are kubectl's without the line break at their end.

use super::daemon_set::DaemonSetStatus;
use super::stateful_set::StatefulSetStatus;
use crate::api::workload::{DaemonSetSpec, StatefulSetSpec};

/// How far a rollout is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetRolloutStatus {
    /// Line for a person.
    pub message: String,
    /// True if there is nothing left to wait for.
    pub is_done: bool,
}

/// The reason for which a set has no rollout status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetRolloutStatusError {
    /// A person replaces the pods.
    #[error("rollout status is only available for RollingUpdate strategy type")]
    OnDelete,
}

/// Returns how far the rollout of a DaemonSet is.
pub fn daemon_set_rollout(
    name: &str,
    generation: i64,
    spec: &DaemonSetSpec,
    status: &DaemonSetStatus,
) -> Result<SetRolloutStatus, SetRolloutStatusError> {
    check_strategy(&spec.update_strategy.type_)?;
    let (desired, updated) = (
        status.desired_number_scheduled,
        status.updated_number_scheduled,
    );
    let available = status.number_available;
    if generation > status.observed_generation {
        return waits("Waiting for daemon set spec update to be observed...".to_owned());
    }
    if updated < desired {
        return waits(format!(
            "Waiting for daemon set \"{name}\" rollout to finish: {updated} out of {desired} new pods have been updated..."
        ));
    }
    if available < desired {
        return waits(format!(
            "Waiting for daemon set \"{name}\" rollout to finish: {available} of {desired} updated pods are available..."
        ));
    }
    is_done(format!("daemon set \"{name}\" successfully rolled out"))
}

/// Returns how far the rollout of a StatefulSet is. Every set with a rollingUpdate block has a "partitioned roll out",
/// also one with partition 0.
pub fn stateful_set_rollout(
    generation: i64,
    spec: &StatefulSetSpec,
    status: &StatefulSetStatus,
) -> Result<SetRolloutStatus, SetRolloutStatusError> {
    check_strategy(&spec.update_strategy.type_)?;
    if status.observed_generation == 0 || generation > status.observed_generation {
        return waits("Waiting for statefulset spec update to be observed...".to_owned());
    }
    if status.ready_replicas < spec.replicas {
        let missing = spec.replicas.saturating_sub(status.ready_replicas);
        return waits(format!("Waiting for {missing} pods to be ready..."));
    }
    match &spec.update_strategy.rolling_update {
        Some(settings) => partitioned(spec.replicas, settings.partition, status),
        None => whole(status),
    }
}

fn partitioned(
    replicas: i32,
    partition: Option<i32>,
    status: &StatefulSetStatus,
) -> Result<SetRolloutStatus, SetRolloutStatusError> {
    let updated = status.updated_replicas;
    let wanted = partition.map(|it| replicas.saturating_sub(it));
    if let Some(wanted) = wanted
        && updated < wanted
    {
        return waits(format!(
            "Waiting for partitioned roll out to finish: {updated} out of {wanted} new pods have been updated..."
        ));
    }
    is_done(format!(
        "partitioned roll out complete: {updated} new pods have been updated..."
    ))
}

fn whole(status: &StatefulSetStatus) -> Result<SetRolloutStatus, SetRolloutStatusError> {
    if status.update_revision != status.current_revision {
        return waits(format!(
            "waiting for statefulset rolling update to complete {} pods at revision {}...",
            status.updated_replicas, status.update_revision
        ));
    }
    is_done(format!(
        "statefulset rolling update complete {} pods at revision {}...",
        status.current_replicas, status.current_revision
    ))
}

fn check_strategy(strategy: &str) -> Result<(), SetRolloutStatusError> {
    if strategy == "OnDelete" {
        return Err(SetRolloutStatusError::OnDelete);
    }
    Ok(())
}

fn waits(message: String) -> Result<SetRolloutStatus, SetRolloutStatusError> {
    Ok(SetRolloutStatus {
        message,
        is_done: false,
    })
}

fn is_done(message: String) -> Result<SetRolloutStatus, SetRolloutStatusError> {
    Ok(SetRolloutStatus {
        message,
        is_done: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::workload::RollingUpdateStatefulSet;

    const ON_DELETE: &str = "rollout status is only available for RollingUpdate strategy type";

    /// Compares with the text, and with `true` or `false` for done. An error has no such word.
    #[track_caller]
    fn check(got: Result<SetRolloutStatus, SetRolloutStatusError>, expected: &str) {
        let text = match got {
            Ok(status) => format!("{}: {}", status.is_done, status.message),
            Err(error) => error.to_string(),
        };
        assert_eq!(text, expected);
    }

    #[test]
    fn a_daemon_set_says_how_far_it_is() {
        let mut spec = DaemonSetSpec::default();
        let mut status = DaemonSetStatus {
            observed_generation: 1,
            desired_number_scheduled: 1,
            ..DaemonSetStatus::default()
        };
        check(
            daemon_set_rollout("log", 2, &spec, &status),
            "false: Waiting for daemon set spec update to be observed...",
        );
        check(
            daemon_set_rollout("log", 1, &spec, &status),
            "false: Waiting for daemon set \"log\" rollout to finish: 0 out of 1 new pods have been updated...",
        );
        status.updated_number_scheduled = 1;
        check(
            daemon_set_rollout("log", 1, &spec, &status),
            "false: Waiting for daemon set \"log\" rollout to finish: 0 of 1 updated pods are available...",
        );
        status.number_available = 1;
        check(
            daemon_set_rollout("log", 1, &spec, &status),
            "true: daemon set \"log\" successfully rolled out",
        );
        spec.update_strategy.type_ = "OnDelete".to_owned();
        check(daemon_set_rollout("log", 1, &spec, &status), ON_DELETE);
    }

    #[test]
    fn a_stateful_set_says_how_far_it_is() {
        let mut spec = StatefulSetSpec {
            replicas: 3,
            ..StatefulSetSpec::default()
        };
        let mut status = StatefulSetStatus {
            ready_replicas: 1,
            updated_replicas: 1,
            current_replicas: 2,
            current_revision: "db-a".to_owned(),
            update_revision: "db-b".to_owned(),
            ..StatefulSetStatus::default()
        };
        let unseen = "false: Waiting for statefulset spec update to be observed...";
        check(stateful_set_rollout(0, &spec, &status), unseen);
        status.observed_generation = 1;
        check(stateful_set_rollout(2, &spec, &status), unseen);
        check(
            stateful_set_rollout(1, &spec, &status),
            "false: Waiting for 2 pods to be ready...",
        );
        status.ready_replicas = 3;
        check(
            stateful_set_rollout(1, &spec, &status),
            "false: waiting for statefulset rolling update to complete 1 pods at revision db-b...",
        );
        status.current_revision = "db-b".to_owned();
        check(
            stateful_set_rollout(1, &spec, &status),
            "true: statefulset rolling update complete 2 pods at revision db-b...",
        );
        spec.update_strategy.rolling_update = Some(RollingUpdateStatefulSet {
            partition: Some(1),
            max_unavailable: None,
        });
        check(
            stateful_set_rollout(1, &spec, &status),
            "false: Waiting for partitioned roll out to finish: 1 out of 2 new pods have been updated...",
        );
        status.updated_replicas = 2;
        check(
            stateful_set_rollout(1, &spec, &status),
            "true: partitioned roll out complete: 2 new pods have been updated...",
        );
        spec.update_strategy.type_ = "OnDelete".to_owned();
        check(stateful_set_rollout(1, &spec, &status), ON_DELETE);
    }
}
