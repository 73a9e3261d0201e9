//! cpu, memory and the out-of-memory score, by the kubelet's formulas (pkg/kubelet/cm and pkg/kubelet/qos).

use serde_json::{Map, Value, json};

use crate::api::Container;
use crate::api::pod::{Pod, ResourceRequirements};
use crate::api::priority;
use crate::api::qos::QosClass;
use crate::api::quantity::Quantity;

/// CFS period in microseconds.
const PERIOD: i64 = 100_000;

/// `linux.resources` without devices: cpu and memory, only what the container sets. A limit whose controller the node
/// lacks is an error; a weight (which every container has) is left out, as all containers are without it.
pub(super) fn linux_resources(
    r: &ResourceRequirements,
    missing: &[&str],
) -> Result<Map<String, Value>, String> {
    let mut out = Map::new();
    for name in missing {
        if amount(&r.limits, name, 1)?.is_some_and(|l| l > 0) {
            return Err(no_controller(name));
        }
    }
    let cpu = cpu(r)?;
    if !missing.contains(&"cpu") {
        out.insert("cpu".into(), cpu);
    }
    if let Some(limit) = amount(&r.limits, "memory", 1)?.filter(|l| *l > 0) {
        out.insert("memory".into(), json!({ "limit": limit }));
    }
    Ok(out)
}

fn no_controller(name: &str) -> String {
    let boot = if name == "memory" {
        " (often by booting with cgroup_enable=memory)"
    } else {
        ""
    };
    format!(
        "cannot set resources.limits.{name}: this node has no {name} cgroup controller; enable it{boot}, or remove the limit"
    )
}

/// Shares from the request (the limit when there is none), quota from the limit. No limit, no quota.
fn cpu(r: &ResourceRequirements) -> Result<Value, String> {
    let limit = amount(&r.limits, "cpu", 1000)?;
    let request = amount(&r.requests, "cpu", 1000)?.or(limit).unwrap_or(0);
    let mut cpu = json!({ "shares": shares(request) });
    if let Some(milli) = limit.filter(|m| *m > 0) {
        cpu["quota"] = quota(milli).into();
        cpu["period"] = PERIOD.into();
    }
    Ok(cpu)
}

/// 1024 a core, 2–262144 (the kernel's range).
fn shares(milli: i64) -> i64 {
    (milli.saturating_mul(1024) / 1000).clamp(2, 262_144)
}

/// Microseconds in a period; at least 1 ms, the least the kernel takes.
fn quota(milli: i64) -> i64 {
    (milli.saturating_mul(PERIOD) / 1000).max(1000)
}

/// The container's `oom_score_adj`, not below `floor` (the daemon's own where it may not lower it).
pub(super) fn oom_score_adj(
    pod: &Pod,
    container: &Container,
    memory_capacity: u64,
    floor: Option<i32>,
) -> Result<i32, String> {
    let of = |request| burstable(request, memory_capacity);
    let score = match QosClass::of(pod) {
        _ if priority::is_node_critical(pod) => -997,
        QosClass::Guaranteed => -997,
        QosClass::BestEffort => 1000,
        QosClass::Burstable => {
            let own = of(request(&container.resources, "memory", 1)?);
            // A sidecar is not killed before the containers that it serves.
            match least_regular_request(pod, container)? {
                Some(least) => own.min(of(least)),
                None => own,
            }
        }
    };
    Ok(score.max(floor.unwrap_or(i32::MIN)))
}

/// Of a sidecar: the smallest memory request among the regular containers.
fn least_regular_request(pod: &Pod, container: &Container) -> Result<Option<i64>, String> {
    if !pod.spec.is_sidecar(&container.name) {
        return Ok(None);
    }
    let requests = pod.spec.containers.iter();
    let requests: Result<Vec<i64>, String> = requests
        .map(|regular| request(&regular.resources, "memory", 1))
        .collect();
    Ok(requests?.into_iter().min())
}

/// 1000 less the thousandths of the node's memory asked for; 3–999, between Guaranteed and BestEffort.
fn burstable(request: i64, capacity: u64) -> i32 {
    let capacity = i128::from(capacity.max(1));
    let score = 1000 - i128::from(request) * 1000 / capacity;
    if score < 1000 - 997 {
        3
    } else {
        score.min(999) as i32
    }
}

/// The request; the limit when there is none (kubelet-probes 1.1); 0 when there is neither.
fn request(r: &ResourceRequirements, name: &str, unit: i64) -> Result<i64, String> {
    Ok(amount(&r.requests, name, unit)?
        .or(amount(&r.limits, name, unit)?)
        .unwrap_or(0))
}

/// The value in 1/`unit`, 1 or 1000, rounded up as Kubernetes does.
fn amount(
    map: &std::collections::BTreeMap<String, Quantity>,
    name: &str,
    unit: i64,
) -> Result<Option<i64>, String> {
    let Some(q) = map.get(name) else {
        return Ok(None);
    };
    let value = if unit == 1 {
        q.value()
    } else {
        q.milli_value()
    };
    value.map(Some).ok_or_else(|| {
        format!(
            "cannot set {name} to {:?}: not a quantity such as 100m, 64Mi or 1.5",
            q.0
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::test_pods::pod;

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

    #[track_caller]
    fn check(limits: &[(&str, &str)], requests: &[(&str, &str)], expected: Value) {
        assert_eq!(
            linux_resources(&requirements(limits, requests), &[]).map(Value::Object),
            Ok(expected)
        );
    }

    #[test]
    fn cgroup_values() {
        check(&[], &[], json!({ "cpu": { "shares": 2 } }));
        check(
            &[("cpu", "500m")],
            &[],
            json!({ "cpu": { "shares": 512, "quota": 50000, "period": 100000 } }),
        );
        check(
            &[("cpu", "2")],
            &[("cpu", "0.1")],
            json!({ "cpu": { "shares": 102, "quota": 200000, "period": 100000 } }),
        );
        check(
            &[("cpu", "1m")],
            &[("cpu", "1m")],
            json!({ "cpu": { "shares": 2, "quota": 1000, "period": 100000 } }),
        );
        check(
            &[("memory", "64Mi")],
            &[("cpu", "1e3")],
            json!({ "cpu": { "shares": 262144 }, "memory": { "limit": 67108864 } }),
        );
        check(
            &[("memory", "1.5k")],
            &[],
            json!({ "cpu": { "shares": 2 }, "memory": { "limit": 1500 } }),
        );
        check(
            &[("memory", "100m")],
            &[],
            json!({ "cpu": { "shares": 2 }, "memory": { "limit": 1 } }),
        );
        // the most that validation lets pass is the most that the kernel takes
        let most = json!({ "shares": 262144, "quota": 17_592_186_000_000_u64, "period": 100_000 });
        check(&[("cpu", "175921860")], &[], json!({ "cpu": most }));
        check(
            &[("memory", "1e19")],
            &[],
            json!({ "cpu": { "shares": 2 }, "memory": { "limit": i64::MAX } }),
        );
        assert!(
            linux_resources(&requirements(&[("cpu", "much")], &[]), &[])
                .is_err_and(|e| e.contains("cannot set cpu to \"much\""))
        );
    }

    #[test]
    fn a_missing_controller_costs_the_weight_and_refuses_the_limit() {
        let of = |limits: &[(&str, &str)], missing: &[&str]| {
            linux_resources(&requirements(limits, &[]), missing)
        };
        assert_eq!(of(&[], &["cpu", "memory"]), Ok(Map::new()));
        assert_eq!(
            of(&[("memory", "1k")], &["cpu"]).map(Value::Object),
            Ok(json!({ "memory": { "limit": 1000 } }))
        );
        for name in ["cpu", "memory"] {
            let text = of(&[(name, "500m")], &[name]).unwrap_err();
            assert!(
                text.starts_with(&format!(
                    "cannot set resources.limits.{name}: this node has no {name} cgroup controller"
                )),
                "{text}"
            );
        }
    }

    #[track_caller]
    fn check_oom(
        limits: &[(&str, &str)],
        requests: &[(&str, &str)],
        floor: Option<i32>,
        expected: i32,
    ) {
        let container = Container {
            resources: requirements(limits, requests),
            ..Default::default()
        };
        let mut pod = pod("p").build();
        pod.spec.containers.push(container.clone());
        assert_eq!(
            oom_score_adj(&pod, &container, 1_000_000, floor),
            Ok(expected)
        );
    }

    #[test]
    fn the_pod_that_the_node_needs_is_killed_last() {
        let score = |class: &str| {
            let containers = json!([{"name": "a", "resources": {"requests": {"memory": "250k"}}}]);
            let spec = json!({"priorityClassName": class, "containers": containers});
            let pod = pod("p").spec(spec).build();
            oom_score_adj(&pod, &pod.spec.containers[0], 1_000_000, None)
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
        let score = |name: &str| oom_score_adj(&pod, pod.container(name).unwrap(), 1_000_000, None);
        assert_eq!(
            ["s", "i", "a", "b"].map(score),
            [750, 990, 600, 750].map(Ok)
        );
    }

    #[test]
    fn oom_score_by_qos() {
        check_oom(&[], &[], None, 1000);
        check_oom(&[("cpu", "1"), ("memory", "1k")], &[], None, -997);
        check_oom(&[("cpu", "1"), ("memory", "1k")], &[], Some(0), 0);
        check_oom(&[("cpu", "1")], &[], None, 999);
        check_oom(&[], &[("memory", "250k")], None, 750);
        check_oom(&[], &[("memory", "250k")], Some(800), 800);
        check_oom(&[], &[("memory", "999k")], None, 3);
        check_oom(&[], &[("memory", "5M")], None, 3);
        check_oom(
            &[("cpu", "1"), ("memory", "1k")],
            &[("cpu", "500m")],
            None,
            999,
        );
    }
}
