//! `spec` of a CronJob.

use serde::{Deserialize, Serialize};

use super::job::JobSpec;
use crate::api::pod::ObjectMeta;

/// `spec` of a CronJob.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CronJobSpec {
    /// The schedule, as written: five fields or a macro.
    pub schedule: String,
    /// Name of the time zone of the schedule. None means the node's zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// Time in seconds after a scheduled time within which its Job may still start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starting_deadline_seconds: Option<i64>,
    /// `Allow` (default), `Forbid` or `Replace`, as written.
    pub concurrency_policy: String,
    /// True if no Jobs are started for now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// The Job that is made at each time.
    pub job_template: JobTemplate,
    /// Number of complete Jobs that are kept; default 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub successful_jobs_history_limit: Option<i32>,
    /// Number of failed Jobs that are kept; default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_jobs_history_limit: Option<i32>,
}

/// The rule for a Job of the CronJob that still runs at the next time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConcurrencyPolicy {
    /// Both run.
    #[default]
    Allow,
    /// The new one does not start.
    Forbid,
    /// The old one is removed.
    Replace,
}

impl CronJobSpec {
    /// Returns the value of `concurrencyPolicy`.
    pub fn concurrency(&self) -> ConcurrencyPolicy {
        match self.concurrency_policy.as_str() {
            "Forbid" => ConcurrencyPolicy::Forbid,
            "Replace" => ConcurrencyPolicy::Replace,
            _ => ConcurrencyPolicy::Allow,
        }
    }

    /// True if no Jobs are started for now.
    pub fn is_suspended(&self) -> bool {
        self.suspend.unwrap_or_default()
    }
}

/// The Job that is made at each time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobTemplate {
    /// Labels and annotations of the Jobs.
    pub metadata: ObjectMeta,
    /// Spec of the Jobs.
    pub spec: JobSpec,
}
