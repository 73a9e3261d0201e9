//! The quality-of-service class of a pod, by the amounts of cpu and memory that its containers ask for.

use super::pod::{Pod, ResourceRequirements};
use super::quantity::Amount;

/// The class of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QosClass {
    /// Every container limits cpu and memory to what it requests.
    Guaranteed,
    /// Some container asks for cpu or memory.
    Burstable,
    /// No container asks for cpu or memory.
    BestEffort,
}

impl QosClass {
    /// The value of `status.qosClass`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }

    /// The class of a valid pod. Other resources than cpu and memory do not count, nor does how an amount is written.
    pub fn of(pod: &Pod) -> Self {
        let (mut any, mut guaranteed) = (false, true);
        for container in pod.spec.all_containers() {
            for name in ["cpu", "memory"] {
                let (request, limit) = request_and_limit(&container.resources, name);
                any |= request.is_some() || limit.is_some();
                guaranteed &= limit.is_some() && request == limit;
            }
        }
        match (any, guaranteed) {
            (false, _) => Self::BestEffort,
            (true, true) => Self::Guaranteed,
            (true, false) => Self::Burstable,
        }
    }
}

/// The amounts that are not 0. A request that is left out is the limit (kubelet-probes 1.1).
fn request_and_limit(r: &ResourceRequirements, name: &str) -> (Option<Amount>, Option<Amount>) {
    let amount = |of: &std::collections::BTreeMap<String, super::quantity::Quantity>| {
        of.get(name).and_then(|quantity| quantity.parse().ok())
    };
    let asked = |amount: &Amount| amount.milli_value() > 0;
    let limit = amount(&r.limits);
    let request = amount(&r.requests).or(limit);
    (request.filter(asked), limit.filter(asked))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::test_pods::pod;

    #[track_caller]
    fn check(resources: Value, expected: &str) {
        let containers = json!([{"name": "a", "resources": resources}]);
        let pod = pod("p").spec(json!({"containers": containers})).build();
        assert_eq!(QosClass::of(&pod).as_str(), expected, "{resources}");
    }

    #[test]
    fn amounts_of_cpu_and_memory_decide() {
        check(json!({}), "BestEffort");
        check(
            json!({"limits": {"ephemeral-storage": "1Gi"}}),
            "BestEffort",
        );
        check(
            json!({"requests": {"cpu": "0", "memory": "0"}}),
            "BestEffort",
        );
        check(json!({"requests": {"cpu": "1m"}}), "Burstable");
        check(
            json!({"limits": {"cpu": "1", "memory": "64Mi"}}),
            "Guaranteed",
        );
        let written_otherwise = json!({
            "limits": {"cpu": "1", "memory": "64Mi", "ephemeral-storage": "2Gi"},
            "requests": {"cpu": "1000m", "memory": "67108864", "ephemeral-storage": "1Gi"},
        });
        check(written_otherwise, "Guaranteed");
        check(
            json!({"limits": {"cpu": "1", "memory": "64Mi"}, "requests": {"cpu": "999m", "memory": "64Mi"}}),
            "Burstable",
        );
    }
}
