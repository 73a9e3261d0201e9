//! Sets the limits of the container's cgroup: writes `linux.resources` of the configuration into files of cgroup v1 or
//! v2.

use std::io;

use nix::errno::Errno;

use super::cgroups::Hierarchy;
use super::error::Error;
use crate::base::sys::cgroup::Cgroups;
use crate::engine::oci::{HugepageLimit, Resources};
use crate::engine::runtime::{Limits, PodResources};
use crate::engine::shims::device_program::Rule;
use crate::engine::shims::pod_cgroup::{self, write};

/// Sets the limits of the cgroup at `cgroups_path`. The container's first process is in the cgroup already, so the
/// memory of this process counts.
///
/// # Errors
/// Returns an error if the kernel refuses a value, or if a controller is missing.
pub(super) fn apply(resources: &Resources, cgroups_path: &str) -> Result<(), Error> {
    let cgroups = Cgroups::detect().map_err(|e| Error::step("find", "the cgroups", e))?;
    for controller in ["cpu", "memory", "hugetlb"] {
        let Some((dir, v2)) = cgroups.of_controller(controller, cgroups_path) else {
            continue;
        };
        for (file, value) in values(controller, resources, v2) {
            write(&dir, &file, &value)
                .map_err(|e| refused(controller, memory_limit(resources), e))?;
        }
    }
    for (file, value) in &resources.unified {
        let controller = file.split('.').next().unwrap_or_default();
        let dir = cgroups.of_controller(controller, cgroups_path);
        let (Some((dir, true)), false) = (dir, file.contains('/')) else {
            return Err(Error::NoCgroupFile(file.clone()));
        };
        write(&dir, file, value)
            .map_err(|e| Error::step("set", format_args!("{file} of cgroup v2"), e))?;
    }
    Ok(())
}

/// Lets the controller `devices` of cgroup v1 filter devices by these rules.
///
/// # Errors
/// Returns an error about a rule that the kernel refuses, because the parent cgroup allows less.
pub(super) fn filter_devices(h: &Hierarchy, path: &str, rules: &[Rule]) -> Result<(), Error> {
    let dir = h.dir(path);
    rules.iter().try_for_each(|rule| {
        let (file, text) = rule.on_v1();
        write(&dir, file, &text).map_err(|e| {
            let file = dir.join(file);
            Error::step("write", format_args!("{text:?} to {}", file.display()), e)
        })
    })
}

/// Returns the files of a controller with their values, in the order in which they are written.
fn values(controller: &str, resources: &Resources, v2: bool) -> Vec<(String, String)> {
    let (cpu, memory) = (resources.cpu.as_ref(), resources.memory.as_ref());
    let shares = cpu.and_then(|cpu| cpu.shares);
    let limits = Limits {
        cpu_shares: shares.unwrap_or_default(),
        cpu_quota: cpu.and_then(|cpu| cpu.quota),
        cpu_period: cpu.and_then(|cpu| cpu.period).unwrap_or(100_000),
        memory_limit: memory.and_then(|memory| memory.limit),
    };
    let all = PodResources {
        limits,
        pids_limit: None,
    };
    let given = match controller {
        "hugetlb" => return huge_pages(resources, v2),
        controller => pod_cgroup::values(controller, &all, v2),
    };
    let given = given
        .into_iter()
        .filter(|(file, _)| !(shares.is_none() && matches!(*file, "cpu.shares" | "cpu.weight")));
    let mut given: Vec<(String, String)> = given.map(|(f, v)| (f.to_owned(), v)).collect();
    if let ("memory", Some(both)) = (controller, memory.and_then(|memory| memory.swap)) {
        let swap = both.saturating_sub(limits.memory_limit.unwrap_or_default());
        given.push(match v2 {
            true => ("memory.swap.max".into(), swap.to_string()),
            false => ("memory.memsw.limit_in_bytes".into(), both.to_string()),
        });
    }
    given
}

fn huge_pages(resources: &Resources, v2: bool) -> Vec<(String, String)> {
    let last = if v2 { "max" } else { "limit_in_bytes" };
    let of = |l: &HugepageLimit| {
        let file = format!("hugetlb.{}.{last}", l.page_size);
        (file, l.limit.to_string())
    };
    resources.hugepage_limits.iter().map(of).collect()
}

/// Returns the limit of memory in bytes; None if there is no limit.
pub(super) fn memory_limit(resources: &Resources) -> Option<u64> {
    let limit = resources.memory.as_ref()?.limit?;
    u64::try_from(limit).ok()
}

fn refused(controller: &str, limit: Option<u64>, e: io::Error) -> Error {
    // The kernel returns EBUSY if the cgroup already uses more than the limit. Only v1 refuses such a limit; v2 kills
    // processes instead.
    let is_busy = e.raw_os_error() == Some(Errno::EBUSY as i32);
    match (controller, limit) {
        ("memory", Some(limit)) if is_busy => Error::MemoryTooSmall { limit },
        _ => Error::step("set", format_args!("the {controller} limits"), e),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[track_caller]
    fn check(resources: Value, v2: bool, expected: &[(&str, &str)]) {
        let resources = serde_json::from_value(resources).unwrap();
        let found = ["cpu", "memory", "hugetlb"].map(|c| values(c, &resources, v2));
        let found = found.concat();
        let found: Vec<_> = found
            .iter()
            .map(|(f, v)| (f.as_str(), v.as_str()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn limits_are_files_of_v1_or_v2() {
        let all = || {
            json!({
                "cpu": {"shares": 1024, "quota": 50_000, "period": 100_000},
                "memory": {"limit": 4096, "swap": 8192},
                "hugepageLimits": [{"pageSize": "2MB", "limit": 4_194_304}],
            })
        };
        let v1 = [
            ("cpu.shares", "1024"),
            ("cpu.cfs_period_us", "100000"),
            ("cpu.cfs_quota_us", "50000"),
            ("memory.limit_in_bytes", "4096"),
            ("memory.memsw.limit_in_bytes", "8192"),
            ("hugetlb.2MB.limit_in_bytes", "4194304"),
        ];
        check(all(), false, &v1);
        let v2 = [
            ("cpu.weight", "100"),
            ("cpu.max", "50000 100000"),
            ("memory.max", "4096"),
            ("memory.swap.max", "4096"),
            ("hugetlb.2MB.max", "4194304"),
        ];
        check(all(), true, &v2);
        check(json!({}), true, &[]);
        check(
            json!({"cpu": {"quota": 1000, "period": 2000}}),
            true,
            &[("cpu.max", "1000 2000")],
        );
    }

    #[test]
    fn a_memory_limit_that_cannot_be_set_is_one_sentence() {
        let busy = || io::Error::from_raw_os_error(Errno::EBUSY as i32);
        let said = |limit: u64| refused("memory", Some(limit), busy()).to_string();
        assert_eq!(
            said(4096),
            "cannot set a memory limit of 4096 B: a container needs more to start; raise resources.limits.memory"
        );
        assert!(said(1).ends_with("(the suffix m means thousandths, M and Mi megabytes)"));
        let other = refused("cpu", None, io::Error::from_raw_os_error(22)).to_string();
        assert_eq!(
            other,
            "cannot set the cpu limits: Invalid argument (os error 22)"
        );
    }
}
