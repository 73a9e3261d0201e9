//! `spec` of a DaemonSet.

use serde::{Deserialize, Serialize};

use super::int_or_percent::IntOrPercent;
use super::label_selector::LabelSelector;
use super::template::PodTemplate;

/// `spec` of a DaemonSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSetSpec {
    /// Selector of the pods. It may not change.
    pub selector: LabelSelector,
    /// Template of the pods.
    pub template: PodTemplate,
    /// How a new pod takes the place of an old one.
    pub update_strategy: DaemonSetUpdateStrategy,
    /// Time in seconds for which a pod must be ready before it counts as available; default 0.
    pub min_ready_seconds: i32,
    /// Number of old revisions that are kept to go back to; default 10.
    pub revision_history_limit: i32,
}

/// How a new pod takes the place of an old one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSetUpdateStrategy {
    /// `RollingUpdate` or `OnDelete`, as written. Validation refuses unknown words.
    #[serde(rename = "type")]
    pub type_: String,
    /// Limits of a rolling update.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rolling_update: Option<RollingUpdateDaemonSet>,
}

/// Limits of a rolling update of a DaemonSet. Both percentages are rounded up (workloads 4.3).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RollingUpdateDaemonSet {
    /// Number of pods that may be unavailable; default 1.
    pub max_unavailable: Option<IntOrPercent>,
    /// Number of nodes on which a new pod may start beside the old one; default 0.
    pub max_surge: Option<IntOrPercent>,
}
