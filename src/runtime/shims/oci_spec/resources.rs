//! `linux.resources`: cpu, memory and huge pages.

use serde_json::{Map, Value, json};

use crate::api::huge_pages::cgroup_size;
use crate::runtime::Resources;

/// Only what is asked for. A limit whose controller the node lacks is an error; a weight (which every container has) is
/// left out, as all containers are without it. So are the limits of huge pages, as in containerd.
pub(super) fn linux_resources(
    r: &Resources,
    missing: &[&str],
) -> Result<Map<String, Value>, String> {
    let mut out = Map::new();
    let lacks = |name| missing.contains(&name);
    if lacks("cpu") && r.cpu_quota.is_some() {
        return Err(no_controller("cpu"));
    }
    if lacks("memory") && r.memory_limit.is_some() {
        return Err(no_controller("memory"));
    }
    if !lacks("cpu") {
        let mut cpu = json!({ "shares": r.cpu_shares });
        if let Some(quota) = r.cpu_quota {
            cpu["quota"] = quota.into();
            cpu["period"] = r.cpu_period.into();
        }
        out.insert("cpu".into(), cpu);
    }
    if let Some(limit) = r.memory_limit {
        out.insert("memory".into(), json!({ "limit": limit }));
    }
    if !lacks("hugetlb") && !r.huge_pages.is_empty() {
        let limit =
            |(size, bytes): &(u64, u64)| json!({ "pageSize": cgroup_size(*size), "limit": bytes });
        let limits: Vec<Value> = r.huge_pages.iter().map(limit).collect();
        out.insert("hugepageLimits".into(), limits.into());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_controller_costs_the_weight_and_refuses_the_limit() {
        let plain = Resources::default();
        let memory = Resources {
            memory_limit: Some(1000),
            ..plain.clone()
        };
        let cpu = Resources {
            cpu_quota: Some(50_000),
            ..plain.clone()
        };
        let of = |r: &Resources, missing: &[&str]| linux_resources(r, missing).map(Value::Object);
        assert_eq!(of(&plain, &["cpu", "memory"]), Ok(json!({})));
        assert_eq!(
            of(&memory, &["cpu"]),
            Ok(json!({ "memory": { "limit": 1000 } }))
        );
        assert_eq!(
            of(&cpu, &[]),
            Ok(json!({ "cpu": { "shares": 2, "quota": 50_000, "period": 100_000 } }))
        );
        let huge = Resources {
            huge_pages: vec![(2 << 20, 4 << 20), (1 << 30, 0)],
            ..plain.clone()
        };
        assert_eq!(of(&huge, &["cpu", "hugetlb"]), Ok(json!({})));
        let limits =
            json!([{ "pageSize": "2MB", "limit": 4 << 20 }, { "pageSize": "1GB", "limit": 0 }]);
        assert_eq!(of(&huge, &["cpu"]), Ok(json!({ "hugepageLimits": limits })));
        for (name, r) in [("cpu", cpu), ("memory", memory)] {
            let text = of(&r, &[name]).unwrap_err();
            assert!(
                text.starts_with(&format!(
                    "cannot set resources.limits.{name}: this node has no {name} cgroup controller"
                )),
                "{text}"
            );
        }
    }
}
