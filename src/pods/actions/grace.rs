//! Grace periods: the time between the stop signal and the kill (kubelet-probes 8.1, 8.5).

use std::time::Duration;

use super::KillReason;
use crate::api::{Container, Pod};

/// The shortest grace period given to the runtime, in seconds (8.5).
pub const MINIMUM_GRACE_SECONDS: i64 = 2;

/// Returns the grace period in seconds for the kill of one container, before any override (8.5 rules 1–3). The grace
/// period of the failed probe replaces the pod's, even if it is longer (lessons E1).
pub fn kill_grace_period(pod: &Pod, container: Option<&Container>, reason: KillReason) -> i64 {
    if let Some(seconds) = pod.metadata.deletion_grace_period_seconds {
        return seconds;
    }
    let Some(of_pod) = pod.spec.termination_grace_period_seconds else {
        return MINIMUM_GRACE_SECONDS;
    };
    let probe = match reason {
        KillReason::StartupProbe => container.and_then(|c| c.startup_probe.as_ref()),
        KillReason::LivenessProbe => container.and_then(|c| c.liveness_probe.as_ref()),
        KillReason::None | KillReason::Unknown => None,
    };
    probe
        .and_then(|p| p.termination_grace_period_seconds)
        .unwrap_or(of_pod)
}

/// Returns the grace period of a terminating pod in seconds (8.1). The grace period can only shrink from `current` and
/// is at least 1. A `current` of 0 means that there is no grace period yet.
pub fn pod_grace_period(pod: &Pod, current: i64, kill_override: Option<i64>) -> i64 {
    let given = [pod.metadata.deletion_grace_period_seconds, kill_override]
        .into_iter()
        .flatten()
        .filter(|s| *s >= 0);
    let lowest = given.fold(
        current,
        |grace, s| if grace == 0 || s < grace { s } else { grace },
    );
    let grace = if lowest == 0
        && kill_override.is_none()
        && pod.metadata.deletion_grace_period_seconds.is_none()
    {
        pod.spec.termination_grace_period_seconds.unwrap_or(0)
    } else {
        lowest
    };
    grace.max(1)
}

/// Converts a grace period in seconds to a duration. A negative number becomes zero.
pub fn grace_of(seconds: i64) -> Duration {
    Duration::from_secs(seconds.max(0) as u64)
}

/// Returns the grace period that is left after a hook or a wait of length `taken`. Only whole seconds of `taken` count,
/// as in the kubelet.
pub fn left_of(grace: Duration, taken: Duration) -> Duration {
    grace.saturating_sub(Duration::from_secs(taken.as_secs()))
}

/// Returns the grace period for the runtime: the time that is left, but never less than the minimum.
pub fn stop_grace(left: Duration) -> Duration {
    left.max(grace_of(MINIMUM_GRACE_SECONDS))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(v: &Value) -> Pod {
        let probe = |key: &str| {
            v[key]
                .as_i64()
                .map(|s| json!({"terminationGracePeriodSeconds": s}))
        };
        let spec = json!({"terminationGracePeriodSeconds": v["pod"], "containers": [
            {"name": "c", "startupProbe": probe("startup"), "livenessProbe": probe("liveness")}]});
        let metadata = json!({"deletionGracePeriodSeconds": v["deletionGracePeriodSeconds"]});
        Pod {
            metadata: serde_json::from_value(metadata).unwrap(),
            spec: serde_json::from_value(spec).unwrap(),
            raw: Default::default(),
        }
    }

    /// Lessons E1: the grace period of the failed probe counts, even if it is longer than the pod's. The grace period
    /// of another probe does not count.
    #[test]
    fn e1_the_probe_that_kills_brings_its_grace_period() {
        let grace = |pod: &Pod, reason| kill_grace_period(pod, pod.container("c"), reason);
        let both = pod(&json!({"pod": 30, "startup": 5, "liveness": 600}));
        assert_eq!(
            (
                grace(&both, KillReason::StartupProbe),
                grace(&both, KillReason::LivenessProbe)
            ),
            (5, 600)
        );
        assert_eq!(
            (
                grace(&both, KillReason::None),
                grace(&both, KillReason::Unknown)
            ),
            (30, 30)
        );
        let one = pod(&json!({"pod": 30, "startup": 5}));
        assert_eq!(
            (
                grace(&one, KillReason::StartupProbe),
                grace(&one, KillReason::LivenessProbe)
            ),
            (5, 30)
        );
    }

    #[test]
    fn a_terminating_pods_grace_only_shrinks() {
        let of_spec = pod(&json!({"pod": 30}));
        assert_eq!(pod_grace_period(&of_spec, 0, None), 30);
        assert_eq!(pod_grace_period(&of_spec, 30, Some(5)), 5);
        assert_eq!(pod_grace_period(&of_spec, 5, Some(20)), 5);
        assert_eq!(pod_grace_period(&of_spec, 0, Some(0)), 1);
        assert_eq!(
            pod_grace_period(
                &pod(&json!({"pod": 30, "deletionGracePeriodSeconds": 7})),
                0,
                None
            ),
            7
        );
    }

    #[test]
    fn whole_seconds_are_used_up_and_two_are_always_left() {
        let stop = |grace: u64, taken_ms: u64| {
            let taken = Duration::from_millis(taken_ms);
            stop_grace(left_of(Duration::from_secs(grace), taken)).as_secs()
        };
        assert_eq!((stop(30, 0), stop(30, 999), stop(30, 1000)), (30, 30, 29));
        assert_eq!((stop(30, 28_999), stop(30, 29_000)), (2, 2));
        assert_eq!((stop(30, 99_000), stop(1, 0), stop(0, 0)), (2, 2, 2));
        assert_eq!(grace_of(-1), Duration::ZERO);
    }
}
