//! `spec` of a StatefulSet.

use serde::{Deserialize, Serialize};

use super::int_or_percent::IntOrPercent;
use super::label_selector::LabelSelector;
use super::template::{ClaimTemplate, PodTemplate};

/// `spec` of a StatefulSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetSpec {
    /// Number of pods; default 1.
    pub replicas: i32,
    /// Selector of the pods. It may not change.
    pub selector: LabelSelector,
    /// Template of the pods.
    pub template: PodTemplate,
    /// Claims that each pod has for itself. They may not change.
    pub volume_claim_templates: Vec<ClaimTemplate>,
    /// Name of the headless Service that gives the pods their names. It may be empty.
    pub service_name: String,
    /// `OrderedReady` (default) or `Parallel`, as written.
    pub pod_management_policy: String,
    /// How a new pod takes the place of an old one.
    pub update_strategy: StatefulSetUpdateStrategy,
    /// Number of old revisions that are kept to go back to; default 10. A negative number keeps all.
    pub revision_history_limit: i32,
    /// Time in seconds for which a pod must be ready before it counts as available; default 0.
    pub min_ready_seconds: i32,
    /// The fate of the claims of pods that are gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim_retention_policy: Option<ClaimRetentionPolicy>,
    /// The number of the first pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordinals: Option<Ordinals>,
}

/// `podManagementPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodManagement {
    /// A pod starts when the pods before it are ready, and ends when the pods after it have ended.
    #[default]
    OrderedReady,
    /// Pods start and end without regard to one another.
    Parallel,
}

impl StatefulSetSpec {
    /// Returns the value of `podManagementPolicy`.
    pub fn pod_management(&self) -> PodManagement {
        match self.pod_management_policy.as_str() {
            "Parallel" => PodManagement::Parallel,
            _ => PodManagement::OrderedReady,
        }
    }

    /// Returns the number of the first pod.
    pub fn start(&self) -> i32 {
        self.ordinals.as_ref().map_or(0, |it| it.start)
    }
}

/// How a new pod takes the place of an old one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetUpdateStrategy {
    /// `RollingUpdate` or `OnDelete`, as written. Validation refuses unknown words.
    #[serde(rename = "type")]
    pub type_: String,
    /// Settings of a rolling update.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rolling_update: Option<RollingUpdateStatefulSet>,
}

/// Settings of a rolling update of a StatefulSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RollingUpdateStatefulSet {
    /// Number of the first pod that is updated; default 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<i32>,
    /// Accepted and ignored, as upstream does by default: one pod is updated at a time (workloads 5.8).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrPercent>,
}

/// The fate of the claims of pods that are gone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimRetentionPolicy {
    /// `Retain` (default) or `Delete`: the claims when the StatefulSet is removed.
    pub when_deleted: String,
    /// `Retain` (default) or `Delete`: the claims of pods beyond the replicas.
    pub when_scaled: String,
}

/// The fate of a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClaimRetention {
    /// The claim stays.
    #[default]
    Retain,
    /// The claim goes.
    Delete,
}

impl ClaimRetentionPolicy {
    /// Returns what becomes of the claims when the StatefulSet is removed.
    pub fn deleted(&self) -> ClaimRetention {
        retention(&self.when_deleted)
    }

    /// Returns what becomes of the claims of pods beyond the replicas.
    pub fn scaled(&self) -> ClaimRetention {
        retention(&self.when_scaled)
    }
}

fn retention(word: &str) -> ClaimRetention {
    match word {
        "Delete" => ClaimRetention::Delete,
        _ => ClaimRetention::Retain,
    }
}

/// The number of the first pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ordinals {
    /// Number of the first pod; default 0.
    pub start: i32,
}
