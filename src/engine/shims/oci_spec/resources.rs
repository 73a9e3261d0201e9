//! Makes the object `linux.resources`: limits of cpu, memory and huge pages.

use std::collections::BTreeMap;

use super::Host;
use super::error::SpecError;
use crate::api::huge_pages::cgroup_size;
use crate::engine::oci::{self, Cpu, HugepageLimit, Memory};
use crate::engine::runtime::Resources;

/// Makes `linux.resources` with the requested limits. A limit whose controller the node lacks is an error. A weight is
/// no error: every container has a weight, so it is left out if the node lacks the controller. The limits of huge pages
/// are left out too in this case, as in containerd.
pub(super) fn linux_resources(r: &Resources, host: &Host) -> Result<oci::Resources, SpecError> {
    let mut out = oci::Resources::default();
    let lacks = |name| host.missing_controllers.contains(&name);
    if lacks("cpu") && r.limits.cpu_quota.is_some() {
        return Err(SpecError::NoController { name: "cpu" });
    }
    if lacks("memory") && r.limits.memory_limit.is_some() {
        return Err(SpecError::NoController { name: "memory" });
    }
    if !lacks("cpu") {
        out.cpu = Some(Cpu {
            shares: Some(r.limits.cpu_shares),
            quota: r.limits.cpu_quota,
            period: r.limits.cpu_quota.map(|_| r.limits.cpu_period),
        });
    }
    if let Some(limit) = r.limits.memory_limit {
        // v1 has one limit for memory and swap together.
        let is_limited = host.counts_swap && !host.cgroup_v2_only;
        out.memory = Some(Memory {
            limit: Some(limit),
            swap: is_limited.then(|| limit.saturating_add_unsigned(r.swap_limit)),
        });
    }
    if host.cgroup_v2_only && !lacks("memory") {
        out.unified = unified(r, host);
    }
    if !lacks("hugetlb") {
        let limit = |(size, bytes): &(u64, u64)| HugepageLimit {
            page_size: cgroup_size(*size),
            limit: *bytes,
        };
        out.hugepage_limits = r.huge_pages.iter().map(limit).collect();
    }
    Ok(out)
}

/// Returns files of cgroup v2 for settings that the object `memory` cannot express. The object cannot limit swap
/// without a memory limit, and takes 0 for no limit.
fn unified(r: &Resources, host: &Host) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    if host.counts_swap {
        files.insert("memory.swap.max".into(), r.swap_limit.to_string());
    }
    if r.oom_group {
        files.insert("memory.oom.group".into(), "1".into());
    }
    files
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::engine::runtime::Limits;

    fn memory_limit(bytes: i64) -> Limits {
        Limits {
            memory_limit: Some(bytes),
            ..Limits::default()
        }
    }

    #[track_caller]
    fn check_swap(host: &Host, r: &Resources, expected: Value) {
        let mut found = json!(linux_resources(r, host).unwrap());
        found.as_object_mut().unwrap().remove("cpu");
        assert_eq!(found, expected);
    }

    #[test]
    fn swap_is_limited_where_the_kernel_counts_it() {
        let (free, limited) = (
            Resources::default(),
            Resources {
                limits: memory_limit(1000),
                ..Resources::default()
            },
        );
        let memory = json!({ "memory": { "limit": 1000 } });
        let v1 = |counts_swap| Host {
            counts_swap,
            ..Host::default()
        };
        check_swap(&v1(false), &limited, memory.clone());
        check_swap(&v1(true), &free, json!({}));
        let both = json!({ "memory": { "limit": 1000, "swap": 1000 } });
        check_swap(&v1(true), &limited, both);
        let v2 = |counts_swap| Host {
            cgroup_v2_only: true,
            counts_swap,
            ..Host::default()
        };
        check_swap(&v2(false), &limited, memory);
        let none = json!({ "memory.swap.max": "0" });
        check_swap(&v2(true), &free, json!({ "unified": none }));
        let some = Resources {
            swap_limit: 7,
            ..limited
        };
        let some_of_it =
            json!({ "memory": { "limit": 1000 }, "unified": { "memory.swap.max": "7" } });
        check_swap(&v2(true), &some, some_of_it);
        let without_memory = Host {
            missing_controllers: vec!["memory"],
            ..v2(true)
        };
        check_swap(&without_memory, &free, json!({}));
    }

    #[test]
    fn a_container_that_dies_as_a_whole_says_so_to_the_kernel() {
        let whole = Resources {
            oom_group: true,
            ..Resources::default()
        };
        let host = Host {
            cgroup_v2_only: true,
            ..Host::default()
        };
        let group = json!({ "unified": { "memory.oom.group": "1" } });
        check_swap(&host, &whole, group);
    }

    #[test]
    fn a_missing_controller_costs_the_weight_and_refuses_the_limit() {
        let plain = Resources::default();
        let memory = Resources {
            limits: memory_limit(1000),
            ..plain.clone()
        };
        let cpu = Resources {
            limits: Limits {
                cpu_quota: Some(50_000),
                ..Limits::default()
            },
            ..plain.clone()
        };
        let of = |r: &Resources, missing: &[&'static str]| {
            let host = Host {
                missing_controllers: missing.to_vec(),
                ..Host::default()
            };
            let found = linux_resources(r, &host);
            found.map(|found| json!(found)).map_err(|e| e.to_string())
        };
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
