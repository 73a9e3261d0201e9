//! Computes cpu, memory and the out-of-memory score by the kubelet's formulas (pkg/kubelet/cm and pkg/kubelet/qos).

use std::collections::BTreeMap;

use super::SwapBehavior;
use super::{NodeFacts, ResourcePolicy};
use crate::api::huge_pages::page_size;
use crate::api::pod::{Pod, ResourceRequirements};
use crate::api::priority;
use crate::api::qos::QosClass;
use crate::api::quantity::Quantity;
use crate::api::{Container, pod_resources};
use crate::engine::runtime::{Limits, PodResources, Resources};

/// The CFS period in microseconds.
const PERIOD: i64 = 100_000;

/// A resource amount is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot set {name} to {quantity:?}: not a quantity such as 100m, 64Mi or 1.5")]
pub struct ResourceError {
    /// The name of the resource.
    pub name: String,
    /// The quantity as written.
    pub quantity: String,
}

/// Returns the limits and weights of a container. A limit of 0 means no limit.
pub fn resources(
    pod: &Pod,
    container: &Container,
    node: &NodeFacts,
    policy: ResourcePolicy,
) -> Result<Resources, ResourceError> {
    let r = &container.resources;
    let limit =
        |name, unit| Ok::<_, ResourceError>(amount(&r.limits, name, unit)?.filter(|l| *l > 0));
    let cpu_limit = limit("cpu", 1000)?;
    let request = amount(&r.requests, "cpu", 1000)?.or(amount(&r.limits, "cpu", 1000)?);
    Ok(Resources {
        limits: limits(request.unwrap_or(0), cpu_limit, limit("memory", 1)?),
        oom_score_adj: oom_score_adj(pod, container, node.memory_capacity)?,
        huge_pages: huge_pages(r, &node.huge_page_sizes),
        swap_limit: swap_limit(pod, container, node, policy.swap)?,
        oom_group: node.pure_cgroup_v2 && policy.single_process_oom_kill != Some(true),
    })
}

/// Returns the limits and weights of the pod as a whole, like the kubelet's `ResourceConfigForPod`. The pod has a limit
/// only if every container has a limit. Validation has checked the quantities.
pub fn pod_resources(pod: &Pod, policy: ResourcePolicy) -> PodResources {
    let of = |map: &BTreeMap<String, Quantity>, name, unit| amount(map, name, unit).ok().flatten();
    let cpu_limit = |c: &Container| of(&c.resources.limits, "cpu", 1000).unwrap_or(0);
    let memory_limit = |c: &Container| of(&c.resources.limits, "memory", 1).unwrap_or(0);
    let cpu_request =
        |c: &Container| of(&c.resources.requests, "cpu", 1000).unwrap_or_else(|| cpu_limit(c));
    PodResources {
        limits: limits(
            pod_resources::needed(pod, cpu_request),
            pod_resources::limit(pod, cpu_limit),
            pod_resources::limit(pod, memory_limit),
        ),
        pids_limit: policy.pod_pids_limit,
    }
}

/// Returns the larger of two weights and limits. No limit is the largest.
pub fn larger(a: &PodResources, b: &PodResources) -> PodResources {
    let limit = |a: Option<i64>, b: Option<i64>| a.zip(b).map(|(a, b)| a.max(b));
    PodResources {
        limits: Limits {
            cpu_shares: a.limits.cpu_shares.max(b.limits.cpu_shares),
            cpu_quota: limit(a.limits.cpu_quota, b.limits.cpu_quota),
            cpu_period: b.limits.cpu_period,
            memory_limit: limit(a.limits.memory_limit, b.limits.memory_limit),
        },
        pids_limit: b.pids_limit,
    }
}

/// Makes cgroup limits. The cpu arguments are thousandths of a core, the memory limit is in bytes.
fn limits(cpu_request: i64, cpu_limit: Option<i64>, memory_limit: Option<i64>) -> Limits {
    Limits {
        cpu_shares: shares(cpu_request),
        cpu_quota: cpu_limit.map(quota),
        cpu_period: PERIOD,
        memory_limit,
    }
}

/// Returns how many bytes of the container may be swapped out. With LimitedSwap, a burstable container that requests
/// less memory than its limit gets a part of the node's swap. The part is the container's request as a share of the
/// node's memory. Every other container gets 0.
fn swap_limit(
    pod: &Pod,
    container: &Container,
    node: &NodeFacts,
    behavior: SwapBehavior,
) -> Result<u64, ResourceError> {
    let r = &container.resources;
    let memory = |map| Ok::<_, ResourceError>(amount(map, "memory", 1)?.unwrap_or(0));
    let (request, limit) = (request(r, "memory", 1)?, memory(&r.limits)?);
    // In the kubelet every static pod is critical. Podprobe looks only at the priority (deviations:
    // swap-of-static-pods).
    let priority = pod.spec.priority;
    let has_critical_priority = priority.is_some_and(|p| p >= priority::SYSTEM_CRITICAL_PRIORITY);
    let may_swap = behavior == SwapBehavior::LimitedSwap
        && node.pure_cgroup_v2
        && QosClass::of(pod) == QosClass::Burstable
        && !has_critical_priority
        && request > 0
        && request != limit;
    let part = u128::try_from(request).unwrap_or(0) * u128::from(node.swap_capacity);
    let most = u128::from(node.memory_capacity);
    let part = part.checked_div(most).filter(|_| may_swap).unwrap_or(0);
    Ok(u64::try_from(part).unwrap_or(0).min(node.swap_capacity))
}

/// Returns the limit in bytes of each page size that the node supports. The limit is 0 if the container requests no
/// pages of the size, as in the kubelet.
fn huge_pages(r: &ResourceRequirements, sizes: &[u64]) -> Vec<(u64, u64)> {
    let limit = |size: u64| {
        let named = |(name, _): &(&String, &Quantity)| page_size(name) == Some(size);
        let limits = r.limits.iter().filter(named);
        let bytes = limits.filter_map(|(_, q)| u64::try_from(q.value()?).ok());
        (size, bytes.max().unwrap_or(0))
    };
    sizes.iter().map(|size| limit(*size)).collect()
}

/// Returns the cpu shares: 1024 per core, within the kernel's range of 2–262144.
fn shares(milli: i64) -> i64 {
    (milli.saturating_mul(1024) / 1000).clamp(2, 262_144)
}

/// Returns the cpu quota in microseconds per period. The quota is at least 1 ms, the kernel's minimum.
fn quota(milli: i64) -> i64 {
    (milli.saturating_mul(PERIOD) / 1000).max(1000)
}

/// Returns the container's `oom_score_adj`.
fn oom_score_adj(
    pod: &Pod,
    container: &Container,
    memory_capacity: u64,
) -> Result<i32, ResourceError> {
    let of = |request| burstable(request, memory_capacity);
    Ok(match QosClass::of(pod) {
        _ if priority::is_node_critical(pod) => -997,
        QosClass::Guaranteed => -997,
        QosClass::BestEffort => 1000,
        QosClass::Burstable => {
            let own = of(request(&container.resources, "memory", 1)?);
            // The kernel kills a sidecar after the containers that it serves.
            match least_regular_request(pod, container)? {
                Some(least) => own.min(of(least)),
                None => own,
            }
        }
    })
}

/// Returns the smallest memory request of the regular containers if the container is a sidecar, else `None`.
fn least_regular_request(pod: &Pod, container: &Container) -> Result<Option<i64>, ResourceError> {
    if !pod.spec.is_sidecar(&container.name) {
        return Ok(None);
    }
    let requests = pod.spec.containers.iter();
    let requests: Result<Vec<i64>, ResourceError> = requests
        .map(|regular| request(&regular.resources, "memory", 1))
        .collect();
    Ok(requests?.into_iter().min())
}

/// Returns the `oom_score_adj` of a burstable container: 1000 minus the container's request in thousandths of the
/// node's memory. The result is cut to the range 3–999, between the values of Guaranteed and BestEffort.
fn burstable(request: i64, capacity: u64) -> i32 {
    let capacity = i128::from(capacity.max(1));
    let score = 1000 - i128::from(request) * 1000 / capacity;
    if score < 1000 - 997 {
        3
    } else {
        score.min(999) as i32
    }
}

/// Returns the request of a resource, else its limit (kubelet-probes 1.1), else 0.
fn request(r: &ResourceRequirements, name: &str, unit: i64) -> Result<i64, ResourceError> {
    Ok(amount(&r.requests, name, unit)?
        .or(amount(&r.limits, name, unit)?)
        .unwrap_or(0))
}

/// Returns the amount of a resource in units of 1/`unit`, rounded up as Kubernetes does. `unit` is 1 or 1000.
fn amount(
    map: &BTreeMap<String, Quantity>,
    name: &str,
    unit: i64,
) -> Result<Option<i64>, ResourceError> {
    let Some(q) = map.get(name) else {
        return Ok(None);
    };
    let value = if unit == 1 {
        q.value()
    } else {
        q.milli_value()
    };
    value.map(Some).ok_or_else(|| ResourceError {
        name: name.to_owned(),
        quantity: q.0.clone(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::test_pods::pod;

    fn requirements(limits: &[(&str, &str)], requests: &[(&str, &str)]) -> ResourceRequirements {
        let map = |l: &[(&str, &str)]| {
            l.iter()
                .map(|(k, v)| ((*k).to_owned(), Quantity((*v).to_owned())))
                .collect()
        };
        ResourceRequirements {
            limits: map(limits),
            requests: map(requests),
        }
    }

    fn of(limits: &[(&str, &str)], requests: &[(&str, &str)]) -> Result<Resources, String> {
        let container = Container {
            resources: requirements(limits, requests),
            ..Default::default()
        };
        let node = NodeFacts {
            memory_capacity: 1_000_000,
            huge_page_sizes: vec![2 << 20, 1 << 30],
            ..Default::default()
        };
        resources(
            &pod_of(&container),
            &container,
            &node,
            ResourcePolicy::default(),
        )
        .map_err(|e| e.to_string())
    }

    #[track_caller]
    fn check_limits(l: Limits, expected: (i64, Option<i64>, Option<i64>)) {
        assert_eq!((l.cpu_shares, l.cpu_quota, l.memory_limit), expected);
        assert_eq!(l.cpu_period, 100_000);
    }

    /// Checks the cpu shares, cpu quota and memory limit of a pod with this spec.
    #[track_caller]
    fn check_pod(spec: serde_json::Value, expected: (i64, Option<i64>, Option<i64>)) {
        let pod = pod("p").spec(spec).build();
        let r = pod_resources(&pod, ResourcePolicy::default());
        check_limits(r.limits, expected);
        assert_eq!(r.pids_limit, None);
    }

    #[test]
    fn a_pod_has_the_weight_and_the_limits_of_its_containers_together() {
        let c = |name: &str, limits: serde_json::Value, requests: serde_json::Value| json!({"name": name, "resources": {"limits": limits, "requests": requests}});
        let (none, cpu) = (json!({}), |n: &str| json!({"cpu": n}));
        let pod = |all: &[serde_json::Value]| json!({"containers": all});
        check_pod(pod(&[c("a", none.clone(), none.clone())]), (2, None, None));
        let two = [
            c("a", none.clone(), cpu("1")),
            c("b", none.clone(), cpu("500m")),
        ];
        check_pod(pod(&two), (1536, None, None));
        let limited = json!({"cpu": "500m", "memory": "64Mi"});
        let both = [
            c("a", limited.clone(), none.clone()),
            c("b", limited.clone(), cpu("250m")),
        ];
        let of_two = (768, Some(100_000), Some(128 << 20));
        check_pod(pod(&both), of_two);
        let with_one_free = [both[0].clone(), c("b", cpu("1"), none.clone())];
        check_pod(pod(&with_one_free), (1536, Some(150_000), None));
        let mut sidecar = c("s", limited, none.clone());
        sidecar["restartPolicy"] = "Always".into();
        let start = json!({
            "initContainers": [sidecar, c("i", json!({"cpu": "2", "memory": "1Gi"}), none)],
            "containers": both,
        });
        let of_start = Some((1 << 30) + (64 << 20));
        check_pod(start, (2560, Some(250_000), of_start));
    }

    #[test]
    fn a_pod_has_as_many_processes_as_the_configuration_gives() {
        let policy = ResourcePolicy {
            pod_pids_limit: Some(100),
            ..ResourcePolicy::default()
        };
        let limit = pod_resources(&pod("p").build(), policy).pids_limit;
        assert_eq!(limit, Some(100));
    }

    /// Checks the swap limit on a node with 1,000,000 bytes of memory and half as much swap.
    #[track_caller]
    fn check_swap(spec: serde_json::Value, (limited, v2): (bool, bool), expected: u64) {
        let pod = pod("p").spec(spec).build();
        let node = NodeFacts {
            memory_capacity: 1_000_000,
            swap_capacity: 500_000,
            pure_cgroup_v2: v2,
            ..NodeFacts::default()
        };
        let policy = ResourcePolicy {
            swap: match limited {
                true => SwapBehavior::LimitedSwap,
                false => SwapBehavior::NoSwap,
            },
            ..ResourcePolicy::default()
        };
        let r = resources(&pod, &pod.spec.containers[0], &node, policy).unwrap();
        assert_eq!(r.swap_limit, expected);
    }

    #[test]
    fn swap_is_for_burstable_containers_where_the_configuration_says_so() {
        let of = |resources: serde_json::Value| json!({"containers": [{"name": "a", "resources": resources}]});
        let burstable = of(json!({"requests": {"memory": "200k"}}));
        check_swap(burstable.clone(), (true, true), 100_000);
        check_swap(burstable.clone(), (false, true), 0);
        check_swap(burstable.clone(), (true, false), 0);
        let mut critical = burstable;
        critical["priority"] = 2_000_000_000.into();
        check_swap(critical, (true, true), 0);
        check_swap(of(json!({})), (true, true), 0);
        let guaranteed = json!({"limits": {"memory": "200k", "cpu": "1"}});
        check_swap(of(guaranteed), (true, true), 0);
        let request_is_limit = json!({"limits": {"memory": "200k"}});
        check_swap(of(request_is_limit), (true, true), 0);
        let less = json!({"limits": {"memory": "400k"}, "requests": {"memory": "200k"}});
        check_swap(of(less), (true, true), 100_000);
        let no_memory = json!({"requests": {"cpu": "1"}});
        check_swap(of(no_memory), (true, true), 0);
        let more_than_there_is = json!({"requests": {"memory": "2M"}});
        check_swap(of(more_than_there_is), (true, true), 500_000);
    }

    #[test]
    fn a_container_dies_as_a_whole_on_v2_unless_the_configuration_says_otherwise() {
        let group = |v2: bool, single: Option<bool>| {
            let node = NodeFacts {
                pure_cgroup_v2: v2,
                ..NodeFacts::default()
            };
            let policy = ResourcePolicy {
                single_process_oom_kill: single,
                ..ResourcePolicy::default()
            };
            let container = Container::default();
            let r = resources(&pod_of(&container), &container, &node, policy);
            r.unwrap().oom_group
        };
        assert_eq!(
            [None, Some(false), Some(true)].map(|single| group(true, single)),
            [true, true, false]
        );
        assert!(!group(false, None) && !group(false, Some(true)));
    }

    #[test]
    fn a_page_size_that_is_not_asked_for_has_the_limit_0() {
        let r = of(&[("hugepages-2Mi", "4Mi"), ("memory", "1Gi")], &[]).unwrap();
        assert_eq!(r.huge_pages, [(2 << 20, 4 << 20), (1 << 30, 0)]);
        assert_eq!(huge_pages(&ResourceRequirements::default(), &[]), []);
    }

    fn pod_of(container: &Container) -> Pod {
        let mut pod = pod("p").build();
        pod.spec_mut().containers.push(container.clone());
        pod
    }

    /// Checks the cpu shares, cpu quota and memory limit of a container.
    #[track_caller]
    fn check(
        limits: &[(&str, &str)],
        requests: &[(&str, &str)],
        expected: (i64, Option<i64>, Option<i64>),
    ) {
        check_limits(of(limits, requests).unwrap().limits, expected);
    }

    #[test]
    fn cgroup_values() {
        check(&[], &[], (2, None, None));
        check(&[("cpu", "500m")], &[], (512, Some(50_000), None));
        check(
            &[("cpu", "2")],
            &[("cpu", "0.1")],
            (102, Some(200_000), None),
        );
        check(&[("cpu", "1m")], &[("cpu", "1m")], (2, Some(1000), None));
        let memory = Some(67_108_864);
        check(
            &[("memory", "64Mi")],
            &[("cpu", "1e3")],
            (262_144, None, memory),
        );
        check(&[("memory", "1.5k")], &[], (2, None, Some(1500)));
        check(&[("memory", "100m")], &[], (2, None, Some(1)));
        // The largest cpu limit that validation accepts is the largest that the kernel accepts.
        let most = Some(17_592_186_000_000);
        check(&[("cpu", "175921860")], &[], (262_144, most, None));
        check(&[("memory", "1e19")], &[], (2, None, Some(i64::MAX)));
        assert!(
            of(&[("cpu", "much")], &[]).is_err_and(|e| e.contains("cannot set cpu to \"much\""))
        );
    }

    #[track_caller]
    fn check_oom(limits: &[(&str, &str)], requests: &[(&str, &str)], expected: i32) {
        assert_eq!(of(limits, requests).unwrap().oom_score_adj, expected);
    }

    #[test]
    fn the_pod_that_the_node_needs_is_killed_last() {
        let score = |class: &str| {
            let containers = json!([{"name": "a", "resources": {"requests": {"memory": "250k"}}}]);
            let spec = json!({"priorityClassName": class, "containers": containers});
            let pod = pod("p").spec(spec).build();
            oom_score_adj(&pod, &pod.spec.containers[0], 1_000_000)
        };
        assert_eq!(score("system-node-critical"), Ok(-997));
        assert_eq!(score("system-cluster-critical"), Ok(750));
    }

    #[test]
    fn a_sidecar_is_not_killed_before_the_containers_it_serves() {
        let with = |name: &str, request: &str| json!({"name": name, "resources": {"requests": {"memory": request}}});
        let mut sidecar = with("s", "10k");
        sidecar["restartPolicy"] = "Always".into();
        let spec = json!({
            "initContainers": [with("i", "10k"), sidecar],
            "containers": [with("a", "400k"), with("b", "250k")],
        });
        let pod = pod("p").spec(spec).build();
        let score = |name: &str| oom_score_adj(&pod, pod.container(name).unwrap(), 1_000_000);
        assert_eq!(
            ["s", "i", "a", "b"].map(score),
            [750, 990, 600, 750].map(Ok)
        );
    }

    #[test]
    fn oom_score_by_qos() {
        check_oom(&[], &[], 1000);
        check_oom(&[("cpu", "1"), ("memory", "1k")], &[], -997);
        check_oom(&[("cpu", "1")], &[], 999);
        check_oom(&[], &[("memory", "250k")], 750);
        check_oom(&[], &[("memory", "999k")], 3);
        check_oom(&[], &[("memory", "5M")], 3);
        let both = [("cpu", "1"), ("memory", "1k")];
        check_oom(&both, &[("cpu", "500m")], 999);
    }

    #[test]
    fn no_limit_is_the_larger_one() {
        let of = |shares, quota, memory| PodResources {
            limits: Limits {
                cpu_shares: shares,
                cpu_quota: quota,
                cpu_period: PERIOD,
                memory_limit: memory,
            },
            pids_limit: Some(9),
        };
        let both = larger(&of(2, Some(10), Some(7)), &of(1, Some(20), Some(5)));
        assert_eq!(both, of(2, Some(20), Some(7)));
        for (a, b) in [(None, Some(5)), (Some(5), None), (None, None)] {
            let without = larger(&of(1, a, b), &of(1, b, a));
            assert_eq!(without, of(1, None, None), "{a:?} {b:?}");
        }
    }
}
