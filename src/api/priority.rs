//! The two priority classes that exist without an API server, and the rule for which pods are critical.

use serde_json::Value;

use super::pod::Pod;
use super::source::MIRROR_ANNOTATION;

/// Class of pods without which the node does not work.
pub const SYSTEM_NODE_CRITICAL: &str = "system-node-critical";
/// Class of pods without which the cluster does not work.
pub const SYSTEM_CLUSTER_CRITICAL: &str = "system-cluster-critical";
/// Lowest priority of a critical pod.
pub const SYSTEM_CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// Returns the priority of a class that every node knows. Returns None for any other class.
pub fn of_class(name: &str) -> Option<i32> {
    match name {
        SYSTEM_NODE_CRITICAL => Some(SYSTEM_CRITICAL_PRIORITY + 1000),
        SYSTEM_CLUSTER_CRITICAL => Some(SYSTEM_CRITICAL_PRIORITY),
        _ => None,
    }
}

/// Sets `spec.priority` from the class, as the admission plugin of the API server does. A priority in the file stays.
pub fn resolve(raw: &mut Value) {
    let Some(spec) = raw.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    let class = spec.get("priorityClassName").and_then(Value::as_str);
    if let Some(priority) = class.and_then(of_class) {
        spec.entry("priority").or_insert(priority.into());
    }
}

/// True if the pod is critical: it is static, mirrors a static pod, or has a critical priority.
pub fn is_critical(pod: &Pod) -> bool {
    pod.source().is_static()
        || pod.metadata.annotations.contains_key(MIRROR_ANNOTATION)
        || pod
            .spec
            .priority
            .is_some_and(|p| p >= SYSTEM_CRITICAL_PRIORITY)
}

/// True if the pod is critical and has the class `system-node-critical`. The kernel should kill such a pod last.
pub fn is_node_critical(pod: &Pod) -> bool {
    is_critical(pod) && pod.spec.priority_class_name == SYSTEM_NODE_CRITICAL
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::test_pods::pod;

    #[test]
    fn a_known_class_gives_its_priority() {
        let resolved = |spec: Value| {
            let mut raw = json!({ "spec": spec });
            resolve(&mut raw);
            raw["spec"]["priority"].clone()
        };
        let class = |name: &str| json!({ "priorityClassName": name });
        assert_eq!(resolved(class(SYSTEM_NODE_CRITICAL)), 2_000_001_000);
        assert_eq!(resolved(class(SYSTEM_CLUSTER_CRITICAL)), 2_000_000_000);
        assert_eq!(resolved(class("high")), Value::Null);
        let given = json!({"priorityClassName": SYSTEM_NODE_CRITICAL, "priority": 7});
        assert_eq!(resolved(given), 7);
    }

    #[test]
    fn static_and_mirror_pods_and_those_of_a_critical_priority_are_critical() {
        let of_api = || pod("p").annotation("kubernetes.io/config.source", "api");
        assert!(is_critical(&pod("p").build()));
        assert!(!is_critical(&of_api().build()));
        assert!(is_critical(
            &of_api().annotation(MIRROR_ANNOTATION, "x").build()
        ));
        let priority = |p: i32| of_api().spec(json!({ "priority": p })).build();
        assert!(is_critical(&priority(2_000_000_000)) && !is_critical(&priority(1_999_999_999)));
        let class = |name: &str| pod("p").spec(json!({ "priorityClassName": name })).build();
        assert!(is_node_critical(&class(SYSTEM_NODE_CRITICAL)));
        assert!(!is_node_critical(&class(SYSTEM_CLUSTER_CRITICAL)));
    }
}
