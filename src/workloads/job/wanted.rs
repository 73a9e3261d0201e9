//! Reads a Job's spec with upstream's defaults (workloads 1.12).

use crate::api::workload::{JobSpec, PodReplacementPolicy};

/// Default number of failures after which a Job fails.
const BACKOFF_LIMIT: i32 = 6;

/// Returns the largest number of pods at the same time.
pub(super) fn parallelism(spec: &JobSpec) -> i32 {
    spec.parallelism.unwrap_or(1)
}

/// Returns the number of pods that must succeed; None for a work queue. Only a Job that gives neither number has the
/// default 1: with parallelism alone it is a work queue.
pub(super) fn completions(spec: &JobSpec) -> Option<i32> {
    let default = spec.parallelism.is_none().then_some(1);
    spec.completions.or(default)
}

/// Returns the number above all indexes of an indexed Job. Validation refuses an indexed Job without completions.
pub(super) fn index_count(spec: &JobSpec) -> i32 {
    completions(spec).unwrap_or_default()
}

/// Returns the number of failures that the Job may have.
pub(super) fn backoff_limit(spec: &JobSpec) -> i32 {
    let default = match spec.backoff_limit_per_index {
        Some(_) => i32::MAX,
        None => BACKOFF_LIMIT,
    };
    spec.backoff_limit.unwrap_or(default)
}

/// Returns the number of failures that each index may have; None if failures count for the whole Job.
pub(super) fn limit_per_index(spec: &JobSpec) -> Option<i32> {
    spec.backoff_limit_per_index.filter(|_| spec.is_indexed())
}

/// True if a pod is replaced only when it has ended, and counts as failed only then (onlyReplaceFailedPods).
pub(super) fn replaces_only_ended(spec: &JobSpec) -> bool {
    spec.pod_failure_policy.is_some() || spec.replacement() == PodReplacementPolicy::Failed
}

/// True if the completion mode is a word that nobody knows.
pub(super) fn has_unknown_mode(spec: &JobSpec) -> bool {
    let known = ["NonIndexed", "Indexed"];
    let mode = spec.completion_mode.as_deref();
    mode.is_some_and(|mode| !known.contains(&mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_completions(
        parallelism: Option<i32>,
        completions: Option<i32>,
        expected: Option<i32>,
    ) {
        let spec = JobSpec {
            parallelism,
            completions,
            ..Default::default()
        };
        assert_eq!(super::completions(&spec), expected);
    }

    #[test]
    fn completions_are_1_only_if_both_numbers_are_missing() {
        check_completions(None, None, Some(1));
        check_completions(Some(2), None, None);
        check_completions(None, Some(3), Some(3));
    }

    #[test]
    fn a_failure_policy_replaces_only_pods_that_have_ended() {
        let mut spec = JobSpec {
            pod_replacement_policy: Some("TerminatingOrFailed".into()),
            ..Default::default()
        };
        assert!(!replaces_only_ended(&spec));
        spec.pod_failure_policy = Some(Default::default());
        assert!(replaces_only_ended(&spec));
    }

    #[test]
    fn a_limit_per_index_lifts_the_limit_of_the_job() {
        let mut spec = JobSpec::default();
        assert_eq!(backoff_limit(&spec), 6);
        spec.backoff_limit_per_index = Some(0);
        assert_eq!(backoff_limit(&spec), i32::MAX);
        spec.backoff_limit = Some(2);
        assert_eq!(backoff_limit(&spec), 2);
    }
}
