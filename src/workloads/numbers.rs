//! The numbers of a rolling update: how many pods may be there beside the replicas, and how many may be missing.
//!
//! Invariants: pure. No number is negative, and none overflows.

use crate::api::workload::{DeploymentSpec, IntOrPercent, StrategyType};

/// How far a rolling update may go above and below the replicas (deployment_util.go: ResolveFenceposts, MaxSurge,
/// MaxUnavailable; workloads 3.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fenceposts {
    /// Number of pods by which the Deployment may be above its replicas.
    pub max_surge: i32,
    /// Number of pods by which the Deployment may be below its replicas.
    pub max_unavailable: i32,
}

impl Fenceposts {
    /// Returns the numbers of a Deployment as they are written. With Recreate both are 0.
    pub fn of(spec: &DeploymentSpec) -> Self {
        let Some(limits) = spec.strategy.rolling_update.as_ref() else {
            return Self::resolve(0, 0, spec);
        };
        let scaled = |number: &Option<IntOrPercent>, round_up| {
            number
                .as_ref()
                .and_then(|number| number.of(spec.replicas, round_up))
                .unwrap_or_default()
        };
        Self::resolve(
            scaled(&limits.max_surge, true),
            scaled(&limits.max_unavailable, false),
            spec,
        )
    }

    fn resolve(max_surge: i32, max_unavailable: i32, spec: &DeploymentSpec) -> Self {
        if spec.strategy.strategy_type() == StrategyType::Recreate {
            return Self::default();
        }
        // A percentage that is rounded down can make both 0, and the rollout would never move.
        let max_unavailable = match (max_surge, max_unavailable) {
            (0, 0) => 1,
            (_, number) => number,
        };
        Self {
            max_surge: max_surge.max(0),
            max_unavailable: max_unavailable.clamp(0, spec.replicas.max(0)),
        }
    }

    /// Returns the numbers of a rollout that may not go above the replicas: at least one old pod must go before a new
    /// one comes (workloads 3.20, 3.21).
    pub fn without_surge(self, replicas: i32) -> Self {
        Self {
            max_surge: 0,
            max_unavailable: self.max_unavailable.max(1).min(replicas.max(0)),
        }
    }

    /// Returns the number of pods that must be available (MinAvailable). With Recreate it is 0.
    pub fn min_available(self, spec: &DeploymentSpec) -> i32 {
        match spec.strategy.strategy_type() {
            StrategyType::Recreate => 0,
            StrategyType::RollingUpdate => spec.replicas.saturating_sub(self.max_unavailable),
        }
    }

    /// Returns the largest number of pods that a rollout has at once, apart from those that are ending. The node needs
    /// room for so many (workloads 3.27).
    pub fn most_pods(self, replicas: i32) -> i32 {
        replicas.saturating_add(self.max_surge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::workload::{DeploymentStrategy, RollingUpdateDeployment};

    fn spec(replicas: i32, surge: IntOrPercent, unavailable: IntOrPercent) -> DeploymentSpec {
        DeploymentSpec {
            replicas,
            strategy: DeploymentStrategy {
                type_: "RollingUpdate".into(),
                rolling_update: Some(RollingUpdateDeployment {
                    max_surge: Some(surge),
                    max_unavailable: Some(unavailable),
                }),
            },
            ..DeploymentSpec::default()
        }
    }

    fn percent(text: &str) -> IntOrPercent {
        IntOrPercent::Text(text.into())
    }

    #[track_caller]
    fn check(spec: &DeploymentSpec, max_surge: i32, max_unavailable: i32) {
        let expected = Fenceposts {
            max_surge,
            max_unavailable,
        };
        assert_eq!(Fenceposts::of(spec), expected);
    }

    #[test]
    fn surge_is_rounded_up_and_unavailable_down() {
        for replicas in 1..4 {
            check(&spec(replicas, percent("25%"), percent("25%")), 1, 0);
        }
        check(&spec(4, percent("25%"), percent("25%")), 1, 1);
    }

    #[test]
    fn huge_numbers_do_not_overflow() {
        let huge = spec(i32::MAX, IntOrPercent::Int(i32::MAX), percent("100%"));
        check(&huge, i32::MAX, i32::MAX);
        assert_eq!(Fenceposts::of(&huge).most_pods(i32::MAX), i32::MAX);
    }

    #[test]
    fn without_surge_one_pod_may_be_missing() {
        let written = Fenceposts::of(&spec(1, percent("25%"), percent("25%")));
        assert_eq!(written.most_pods(1), 2);
        let lowered = |replicas| {
            let numbers = written.without_surge(replicas);
            (numbers.max_surge, numbers.max_unavailable)
        };
        assert_eq!(lowered(1), (0, 1));
        assert_eq!(lowered(0), (0, 0));
        let several = Fenceposts {
            max_surge: 1,
            max_unavailable: 3,
        };
        assert_eq!(several.without_surge(4).max_unavailable, 3);
    }
}
