//! Ended Jobs that are no longer kept (cronjob_controllerv2.go: cleanupFinishedJobs; workloads 7.14).
//!
//! Invariants: pure. Only Jobs that have ended are removed, the oldest start first.

use crate::api::workload::CronJobSpec;

use super::{ChildJob, JobEnd};

/// Returns the names of the ended Jobs beyond the two limits: first those that are complete, then those that failed.
pub fn surplus(spec: &CronJobSpec, jobs: &[ChildJob]) -> Vec<String> {
    let is_complete = |end: JobEnd| matches!(end, JobEnd::Complete(_));
    let complete = beyond(spec.successful_jobs_history_limit, jobs, is_complete);
    let failed = beyond(spec.failed_jobs_history_limit, jobs, |end| {
        !is_complete(end)
    });
    [complete, failed].concat()
}

fn beyond(limit: Option<i32>, jobs: &[ChildJob], wanted: impl Fn(JobEnd) -> bool) -> Vec<String> {
    let Some(limit) = limit else {
        return Vec::new();
    };
    let limit = usize::try_from(limit).unwrap_or(0);
    let mut ended: Vec<&ChildJob> = jobs
        .iter()
        .filter(|job| job.is_ours && !job.is_deleted && job.end.is_some_and(&wanted))
        .collect();
    // A Job without a start time is the newest.
    ended.sort_by_key(|job| (job.started_at.is_none(), job.started_at, &job.name));
    let surplus = ended.len().saturating_sub(limit);
    let oldest = ended.into_iter().take(surplus);
    oldest.map(|job| job.name.clone()).collect()
}
