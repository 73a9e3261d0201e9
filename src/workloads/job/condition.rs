//! The conditions of a Job.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A condition of a Job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub type_: ConditionType,
    /// True if the condition's status is True, false if it is False.
    pub is_true: bool,
    /// Reason of the condition.
    pub reason: JobReason,
    /// Message for people.
    pub message: String,
    /// Time at which the condition changed last.
    pub changed: Timestamp,
}

/// The type of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConditionType {
    /// The Job has no pods for now.
    Suspended,
    /// The Job will be Complete when its pods have ended.
    SuccessCriteriaMet,
    /// The Job has succeeded.
    Complete,
    /// The Job will be Failed when its pods have ended.
    FailureTarget,
    /// The Job has failed.
    Failed,
}

/// The reason of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobReason {
    /// `suspend` is true.
    JobSuspended,
    /// `suspend` is no longer true.
    JobResumed,
    /// Enough pods or indexes have succeeded.
    CompletionsReached,
    /// A rule of the success policy is met.
    SuccessPolicy,
    /// A pod failed in a way for which the pod failure policy fails the Job.
    PodFailurePolicy,
    /// More pods have failed than `backoffLimit` allows.
    BackoffLimitExceeded,
    /// The Job has taken longer than `activeDeadlineSeconds`.
    DeadlineExceeded,
    /// More indexes have failed than `maxFailedIndexes` allows.
    MaxFailedIndexesExceeded,
    /// All indexes are decided, and some have failed.
    FailedIndexes,
}

impl JobReason {
    /// Returns upstream's word for the reason.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::JobSuspended => "JobSuspended",
            Self::JobResumed => "JobResumed",
            Self::CompletionsReached => "CompletionsReached",
            Self::SuccessPolicy => "SuccessPolicy",
            Self::PodFailurePolicy => "PodFailurePolicy",
            Self::BackoffLimitExceeded => "BackoffLimitExceeded",
            Self::DeadlineExceeded => "DeadlineExceeded",
            Self::MaxFailedIndexesExceeded => "MaxFailedIndexesExceeded",
            Self::FailedIndexes => "FailedIndexes",
        }
    }
}

impl fmt::Display for JobReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Adds a condition or changes the one of its type. Returns whether the list has changed. A condition that is False is
/// not added, because nothing and False are the same (ensureJobConditionStatus).
pub(super) fn ensure(conditions: &mut Vec<Condition>, new: Condition) -> bool {
    let same_type = conditions.iter_mut().find(|it| it.type_ == new.type_);
    match same_type {
        Some(old) => {
            let changes =
                (old.is_true, old.reason, &old.message) != (new.is_true, new.reason, &new.message);
            if changes {
                *old = new;
            }
            changes
        }
        None if new.is_true => {
            conditions.push(new);
            true
        }
        None => false,
    }
}

/// Returns the condition of a type if it is True.
pub(super) fn find_true(conditions: &[Condition], type_: ConditionType) -> Option<&Condition> {
    conditions.iter().find(|it| it.type_ == type_ && it.is_true)
}
