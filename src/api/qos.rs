//! The quality-of-service class of a pod, which follows from the cpu and memory of its containers.

use super::pod::{Pod, ResourceRequirements};
use super::quantity::Amount;

/// The quality-of-service class of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QosClass {
    /// Every container has the same limit and request of cpu, and of memory.
    Guaranteed,
    /// At least one container has a limit or a request of cpu or memory, but the pod is not Guaranteed.
    Burstable,
    /// No container has a limit or a request of cpu or memory.
    BestEffort,
}

impl QosClass {
    /// Returns the value of `status.qosClass`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }

    /// Returns the class of a valid pod. Only the amounts of cpu and memory count, however they are written.
    pub fn of(pod: &Pod) -> Self {
        let (mut any, mut guaranteed) = (false, true);
        for container in pod.spec.lasting_containers() {
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

/// Returns request and limit as amounts; None for an amount of 0. The limit is the default of the request
/// (kubelet-probes 1.1).
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
    use crate::test_pods::pod;

    #[track_caller]
    fn check(resources: Value, expected: &str) {
        let containers = json!([{"name": "a", "resources": resources}]);
        let pod = pod("p").spec(json!({"containers": containers})).build();
        assert_eq!(QosClass::of(&pod).as_str(), expected, "{resources}");
    }

    #[test]
    fn an_ephemeral_container_changes_no_class() {
        let resources = json!({"limits": {"cpu": "1", "memory": "64Mi"}});
        let spec = json!({"containers": [{"name": "a", "resources": resources}],
            "ephemeralContainers": [{"name": "look"}]});
        let pod = pod("p").spec(spec).build();
        assert_eq!(QosClass::of(&pod).as_str(), "Guaranteed");
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
