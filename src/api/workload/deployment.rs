//! `spec` of a Deployment, a ReplicaSet and a ReplicationController.

use serde::{Deserialize, Serialize};

use super::int_or_percent::IntOrPercent;
use super::label_selector::LabelSelector;
use super::template::PodTemplate;

/// `spec` of a Deployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploymentSpec {
    /// Number of pods; default 1.
    pub replicas: i32,
    /// Selector of the pods. It may not change.
    pub selector: LabelSelector,
    /// Template of the pods.
    pub template: PodTemplate,
    /// How new pods take the place of old ones.
    pub strategy: DeploymentStrategy,
    /// Time in seconds for which a pod must be ready before it counts as available; default 0.
    pub min_ready_seconds: i32,
    /// Number of old sets that are kept to go back to; default 10.
    pub revision_history_limit: i32,
    /// True if changes of the template have no effect until the Deployment is resumed.
    pub paused: bool,
    /// Time in seconds without progress after which a rollout counts as failed; default 600. 2147483647 means never.
    pub progress_deadline_seconds: i32,
}

/// How new pods take the place of old ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploymentStrategy {
    /// The way, as written. Validation refuses unknown words.
    #[serde(rename = "type")]
    pub type_: String,
    /// Limits of a rolling update. Decoded Deployments of type RollingUpdate have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rolling_update: Option<RollingUpdateDeployment>,
}

/// `strategy.type` of a Deployment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StrategyType {
    /// New pods start while old ones serve.
    #[default]
    RollingUpdate,
    /// All old pods end before the first new one starts.
    Recreate,
}

impl DeploymentStrategy {
    /// Returns the type of the strategy.
    pub fn strategy_type(&self) -> StrategyType {
        match self.type_.as_str() {
            "Recreate" => StrategyType::Recreate,
            _ => StrategyType::RollingUpdate,
        }
    }
}

/// Limits of a rolling update.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RollingUpdateDeployment {
    /// Number of pods by which the Deployment may be below its replicas; default 25 %, rounded down.
    pub max_unavailable: Option<IntOrPercent>,
    /// Number of pods by which the Deployment may be above its replicas; default 25 %, rounded up.
    pub max_surge: Option<IntOrPercent>,
}

/// `spec` of a ReplicaSet or a ReplicationController.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaSetSpec {
    /// Number of pods; default 1.
    pub replicas: i32,
    /// Selector of the pods.
    pub selector: LabelSelector,
    /// Template of the pods.
    pub template: PodTemplate,
    /// Time in seconds for which a pod must be ready before it counts as available; default 0.
    pub min_ready_seconds: i32,
}
