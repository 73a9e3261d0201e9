//! `status` of a Deployment: its numbers and its conditions, in the API's form.
//!
//! Invariants: pure. A condition's time of transition changes only with its status. All times are whole seconds, as in
//! the API.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Type of the condition that says whether enough pods are available.
pub const AVAILABLE: &str = "Available";
/// Type of the condition that says how the rollout goes.
pub const PROGRESSING: &str = "Progressing";
/// Type of the condition that says that pods could not be made or ended.
pub const REPLICA_FAILURE: &str = "ReplicaFailure";
/// Type of podprobe's own condition of a rollout that was rolled back by itself (workloads 3.25).
pub const ROLLED_BACK: &str = "RolledBack";
/// Type of podprobe's own condition of a Deployment that may not have more pods than replicas (workloads 3.20, 3.21).
pub const SURGE_LOWERED: &str = "SurgeLowered";

/// Type of podprobe's own condition of a Deployment whose state was lost (workloads 9.5).
pub const HISTORY_LOST: &str = "HistoryLost";

/// `status` of a Deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploymentStatus {
    /// Generation of the Deployment that the last step saw.
    #[serde(skip_serializing_if = "is_default")]
    pub observed_generation: i64,
    /// Number of pods that have not ended and are not ending.
    #[serde(skip_serializing_if = "is_default")]
    pub replicas: i32,
    /// Number of these pods that are of the newest template.
    #[serde(skip_serializing_if = "is_default")]
    pub updated_replicas: i32,
    /// Number of these pods that are ready.
    #[serde(skip_serializing_if = "is_default")]
    pub ready_replicas: i32,
    /// Number of these pods that have been ready for long enough.
    #[serde(skip_serializing_if = "is_default")]
    pub available_replicas: i32,
    /// Number of pods that are missing or not available (workloads 3.15).
    #[serde(skip_serializing_if = "is_default")]
    pub unavailable_replicas: i32,
    /// Number of pods that are ending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating_replicas: Option<i32>,
    /// Conditions of the Deployment. The one that changed last is the last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<DeploymentCondition>,
    /// Number of times that the name of a new set was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A condition of a Deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentCondition {
    /// Type of the condition, such as `Available` or `Progressing`.
    #[serde(rename = "type")]
    pub type_: String,
    /// Status of the condition: `True`, `False` or `Unknown`.
    pub status: String,
    /// Time at which the condition was written last. The progress deadline counts from here.
    pub last_update_time: Timestamp,
    /// Time at which `status` changed last.
    pub last_transition_time: Timestamp,
    /// Reason of the condition's status, one word.
    #[serde(default)]
    pub reason: String,
    /// Message about the condition, a sentence.
    #[serde(default)]
    pub message: String,
}

impl DeploymentCondition {
    /// Makes a condition that is new at `now`.
    pub fn new(
        type_: &str,
        status: &str,
        reason: &str,
        message: impl Into<String>,
        now: Timestamp,
    ) -> Self {
        let now = whole_seconds(now);
        Self {
            type_: type_.into(),
            status: status.into(),
            last_update_time: now,
            last_transition_time: now,
            reason: reason.into(),
            message: message.into(),
        }
    }
}

/// Returns the time without its fraction of a second.
pub(super) fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

impl DeploymentStatus {
    /// Returns the condition of that type.
    pub fn condition(&self, type_: &str) -> Option<&DeploymentCondition> {
        self.conditions.iter().find(|it| it.type_ == type_)
    }

    /// Returns the reason of the condition of that type; empty if there is none.
    pub fn reason(&self, type_: &str) -> &str {
        self.condition(type_).map_or("", |it| it.reason.as_str())
    }

    pub(super) fn condition_mut(&mut self, type_: &str) -> Option<&mut DeploymentCondition> {
        self.conditions.iter_mut().find(|it| it.type_ == type_)
    }

    /// Puts a condition in the place of the one of its type. Nothing changes if status and reason are as before
    /// (deployment_util.go: SetDeploymentCondition).
    pub(super) fn set(&mut self, condition: DeploymentCondition) {
        let before = self.condition(&condition.type_);
        let is_same = |it: &DeploymentCondition| {
            it.status == condition.status && it.reason == condition.reason
        };
        if !before.is_some_and(is_same) {
            self.replace(condition);
        }
    }

    /// Puts a condition in the place of the one of its type, and at the end, even if only its message or its time
    /// differs.
    pub(super) fn replace(&mut self, mut condition: DeploymentCondition) {
        if let Some(before) = self.condition(&condition.type_)
            && before.status == condition.status
        {
            condition.last_transition_time = before.last_transition_time;
        }
        self.remove(&condition.type_);
        self.conditions.push(condition);
    }

    pub(super) fn remove(&mut self, type_: &str) {
        self.conditions.retain(|it| it.type_ != type_);
    }

    /// True if all pods are of the newest template and available, and no old pod is left
    /// (deployment_util.go: DeploymentComplete).
    pub fn is_complete(&self, replicas: i32, generation: i64) -> bool {
        [
            self.updated_replicas,
            self.replicas,
            self.available_replicas,
        ] == [replicas; 3]
            && self.observed_generation >= generation
    }

    /// True if more pods are new, ready or available than `before`, or fewer are old (DeploymentProgressing).
    pub(super) fn has_progressed_since(&self, before: &Self) -> bool {
        let old = |it: &Self| it.replicas.saturating_sub(it.updated_replicas);
        self.updated_replicas > before.updated_replicas
            || old(self) < old(before)
            || self.ready_replicas > before.ready_replicas
            || self.available_replicas > before.available_replicas
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn condition(status: &str, reason: &str, second: i64) -> DeploymentCondition {
        DeploymentCondition::new(PROGRESSING, status, reason, "m", at(second))
    }

    #[test]
    fn the_transition_is_the_last_change_of_the_status() {
        let mut status = DeploymentStatus::default();
        status.set(condition("True", "A", 1));
        status.set(condition("True", "A", 2));
        let times = |status: &DeploymentStatus| {
            let it = status.condition(PROGRESSING).unwrap();
            (it.last_update_time, it.last_transition_time)
        };
        assert_eq!(times(&status), (at(1), at(1)));
        status.set(condition("True", "B", 3));
        assert_eq!(times(&status), (at(3), at(1)));
        status.set(condition("False", "B", 4));
        assert_eq!(times(&status), (at(4), at(4)));
        status.replace(condition("False", "B", 5));
        assert_eq!(times(&status), (at(5), at(4)));
    }

    #[test]
    fn zeros_are_left_out_and_the_number_of_ending_pods_is_not() {
        let mut status = DeploymentStatus {
            replicas: 2,
            terminating_replicas: Some(0),
            ..DeploymentStatus::default()
        };
        status.set(condition("True", "A", 0));
        let expected = serde_json::json!({
            "replicas": 2,
            "terminatingReplicas": 0,
            "conditions": [{
                "type": "Progressing",
                "status": "True",
                "lastUpdateTime": "1970-01-01T00:00:00Z",
                "lastTransitionTime": "1970-01-01T00:00:00Z",
                "reason": "A",
                "message": "m",
            }],
        });
        assert_eq!(serde_json::to_value(&status).unwrap(), expected);
        assert_eq!(
            serde_json::from_value::<DeploymentStatus>(expected).unwrap(),
            status
        );
    }
}
