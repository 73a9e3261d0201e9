//! `spec` of a Job.

use serde::{Deserialize, Serialize};

use super::label_selector::LabelSelector;
use super::template::PodTemplate;

/// Labels with the name of a Job on its pods: the older one and the one of today.
pub const JOB_NAME_LABELS: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];

/// Labels with the UID of a Job on its pods: the older one and the one of today. The selector of a Job selects the
/// second one.
pub const CONTROLLER_UID_LABELS: [&str; 2] =
    ["controller-uid", "batch.kubernetes.io/controller-uid"];

/// `spec` of a Job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSpec {
    /// Largest number of pods at the same time; default 1.
    pub parallelism: Option<i32>,
    /// Number of pods that must succeed. None means a work queue: any success ends the Job.
    pub completions: Option<i32>,
    /// Time in seconds, from the start, after which the Job fails.
    pub active_deadline_seconds: Option<i64>,
    /// Rules that say what the failure of a pod means.
    pub pod_failure_policy: Option<PodFailurePolicy>,
    /// Rules that say when an indexed Job has succeeded before all indexes have.
    pub success_policy: Option<SuccessPolicy>,
    /// Number of failures after which the Job fails; default 6.
    pub backoff_limit: Option<i32>,
    /// Number of failures of one index after which the index fails.
    pub backoff_limit_per_index: Option<i32>,
    /// Number of failed indexes after which the Job fails.
    pub max_failed_indexes: Option<i32>,
    /// Selector of the pods. It is made by podprobe unless `manualSelector` is true.
    pub selector: Option<LabelSelector>,
    /// True if the person wrote the selector.
    pub manual_selector: Option<bool>,
    /// Template of the pods.
    pub template: PodTemplate,
    /// Time in seconds after the end at which the Job is removed.
    pub ttl_seconds_after_finished: Option<i32>,
    /// `NonIndexed` (default) or `Indexed`, as written.
    pub completion_mode: Option<String>,
    /// True if the Job has no pods for now.
    pub suspend: Option<bool>,
    /// `TerminatingOrFailed` (default) or `Failed`, as written.
    pub pod_replacement_policy: Option<String>,
    /// Name of the controller of the Job. Podprobe refuses all but `kubernetes.io/job-controller`.
    pub managed_by: Option<String>,
}

/// `completionMode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompletionMode {
    /// Pods are alike.
    #[default]
    NonIndexed,
    /// Each pod has a number below `completions`.
    Indexed,
}

/// `podReplacementPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodReplacementPolicy {
    /// A pod is replaced when it begins to end.
    #[default]
    TerminatingOrFailed,
    /// A pod is replaced when it has ended.
    Failed,
}

impl JobSpec {
    /// Returns the value of `completionMode`.
    pub fn mode(&self) -> CompletionMode {
        match self.completion_mode.as_deref() {
            Some("Indexed") => CompletionMode::Indexed,
            _ => CompletionMode::NonIndexed,
        }
    }

    /// True if the pods of the Job have numbers.
    pub fn is_indexed(&self) -> bool {
        self.mode() == CompletionMode::Indexed
    }

    /// True if the Job has no pods for now.
    pub fn is_suspended(&self) -> bool {
        self.suspend.unwrap_or_default()
    }

    /// Returns the value of `podReplacementPolicy`. A `podFailurePolicy` makes it Failed.
    pub fn replacement(&self) -> PodReplacementPolicy {
        match self.pod_replacement_policy.as_deref() {
            Some("Failed") => PodReplacementPolicy::Failed,
            None if self.pod_failure_policy.is_some() => PodReplacementPolicy::Failed,
            _ => PodReplacementPolicy::TerminatingOrFailed,
        }
    }
}

/// Rules that say what the failure of a pod means. The first rule that matches counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodFailurePolicy {
    /// The rules in their order.
    pub rules: Vec<PodFailureRule>,
}

/// A rule about failed pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodFailureRule {
    /// `FailJob`, `FailIndex`, `Ignore` or `Count`, as written.
    pub action: String,
    /// Condition on the exit codes of containers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_exit_codes: Option<ExitCodes>,
    /// Conditions of the pod, of which one must be there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub on_pod_conditions: Vec<PodConditionPattern>,
}

/// The effect of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureAction {
    /// The Job fails.
    FailJob,
    /// The pod's index fails.
    FailIndex,
    /// The failure does not count.
    Ignore,
    /// The failure counts.
    Count,
}

impl PodFailureRule {
    /// Returns what the rule does; None for an unknown word.
    pub fn failure_action(&self) -> Option<FailureAction> {
        Some(match self.action.as_str() {
            "FailJob" => FailureAction::FailJob,
            "FailIndex" => FailureAction::FailIndex,
            "Ignore" => FailureAction::Ignore,
            "Count" => FailureAction::Count,
            _ => return None,
        })
    }
}

/// Condition on the exit codes of containers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExitCodes {
    /// Name of the container. None means any container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_name: Option<String>,
    /// `In` or `NotIn`, as written.
    pub operator: String,
    /// The exit codes.
    pub values: Vec<i32>,
}

/// The relation between an exit code and the values of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitCodeOperator {
    /// The exit code is one of the values.
    In,
    /// The exit code is none of the values.
    NotIn,
}

impl ExitCodes {
    /// Returns the operator; None for an unknown word.
    pub fn relation(&self) -> Option<ExitCodeOperator> {
        Some(match self.operator.as_str() {
            "In" => ExitCodeOperator::In,
            "NotIn" => ExitCodeOperator::NotIn,
            _ => return None,
        })
    }
}

/// A condition that a failed pod may have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodConditionPattern {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub type_: String,
    /// Status of the condition; default True.
    pub status: String,
}

/// Rules that say when an indexed Job has succeeded. The first rule that is met counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SuccessPolicy {
    /// The rules in their order.
    pub rules: Vec<SuccessRule>,
}

/// A rule about succeeded indexes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SuccessRule {
    /// Indexes that must have succeeded, such as `0-2,5`. None means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub succeeded_indexes: Option<String>,
    /// Number of these indexes that is enough. None means all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub succeeded_count: Option<i32>,
}
