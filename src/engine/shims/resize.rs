//! Changes the limits of cpu and memory of a container that runs. The values of its cgroup are written in an order that the
//! kernel takes, whether a limit grows or shrinks.
//!
//! Invariants: a limit of memory below what the container uses is not written, because the kernel would kill the container
//! for it. All runtimes use the cgroup that the record names, so none of them is asked.

use std::path::Path;

use super::pod_cgroup::{self, LimitError, number};
use crate::base::sys::cgroup::Cgroups;
use crate::engine::runtime::{PodResources, Resources};

/// The limit of memory and swap together in cgroup v1.
const MEMORY_AND_SWAP: &str = "memory.memsw.limit_in_bytes";
/// The limit of memory in cgroup v1.
const MEMORY_V1: &str = "memory.limit_in_bytes";

/// Sets the limits of the container's cgroup `path`. Nothing is written if its memory would not fit.
pub(super) fn container(
    cgroups: &Cgroups,
    path: &str,
    resources: &Resources,
) -> Result<(), LimitError> {
    let limits = &resources.limits;
    // cgroup v2 has only the files of the controllers that are enabled in a directory.
    let of = |controller, files: [&str; 2]| {
        let found = cgroups.of_controller(controller, path);
        found.filter(|(dir, v2)| dir.join(files[usize::from(*v2)]).exists())
    };
    let memory = of("memory", [MEMORY_V1, "memory.max"]);
    let cpu = of("cpu", ["cpu.shares", "cpu.weight"]);
    if memory.is_none() && limits.memory_limit.is_some() {
        return Err(LimitError::NoController("memory"));
    }
    if cpu.is_none() && limits.cpu_quota.is_some() {
        return Err(LimitError::NoController("cpu"));
    }
    if let (Some((dir, v2)), Some(limit)) = (&memory, limits.memory_limit)
        && let Some(used) = pod_cgroup::used_above(dir, limit, *v2)
    {
        return Err(LimitError::BelowUse { limit, used });
    }
    let all = PodResources {
        limits: *limits,
        pids_limit: None,
    };
    if let Some((dir, v2)) = cpu {
        let values = pod_cgroup::values("cpu", &all, v2).into_iter();
        let values = values.chain(pod_cgroup::unlimited("cpu", &all, v2));
        write(&dir, values)?;
    }
    let Some((dir, v2)) = memory else {
        return Ok(());
    };
    let before = number(&dir, MEMORY_V1);
    let has = |file: &str| dir.join(file).exists();
    let values = memory_values(v2, limits.memory_limit, resources.swap_limit, before, has);
    write(&dir, values)
}

fn write(
    dir: &Path,
    values: impl IntoIterator<Item = (&'static str, String)>,
) -> Result<(), LimitError> {
    values.into_iter().try_for_each(|(file, value)| {
        let written = pod_cgroup::write(dir, file, &value);
        written.map_err(|e| LimitError::Set(dir.join(file), value, e))
    })
}

/// Returns the files with their values in the order in which they are written. `before` is the limit so far of cgroup v1.
fn memory_values(
    v2: bool,
    limit: Option<i64>,
    swap: u64,
    before: Option<i64>,
    has: impl Fn(&str) -> bool,
) -> Vec<(&'static str, String)> {
    let text = |limit: Option<i64>, none: &str| limit.map_or(none.to_owned(), |n| n.to_string());
    if v2 {
        let mut values = vec![("memory.max", text(limit, "max"))];
        if has("memory.swap.max") {
            values.push(("memory.swap.max", swap.to_string()));
        }
        return values;
    }
    let mut values = vec![(MEMORY_V1, text(limit, "-1"))];
    if has(MEMORY_AND_SWAP) {
        let both = limit.map(|limit| limit.saturating_add_unsigned(swap));
        values.push((MEMORY_AND_SWAP, text(both, "-1")));
        // The limit of both together is never below that of memory alone.
        let grows = limit.is_none_or(|limit| before.is_some_and(|before| before < limit));
        if grows {
            values.reverse();
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(
        v2: bool,
        limit: Option<i64>,
        before: Option<i64>,
        files: &[&str],
        expected: &[(&str, &str)],
    ) {
        let values = memory_values(v2, limit, 10, before, |file| files.contains(&file));
        let values: Vec<_> = values.iter().map(|(f, v)| (*f, v.as_str())).collect();
        assert_eq!(values, expected);
    }

    #[test]
    fn the_limit_of_memory_and_swap_is_never_below_that_of_memory() {
        let both = [MEMORY_AND_SWAP];
        let alone = |value| (MEMORY_V1, value);
        let with_swap = |value| (MEMORY_AND_SWAP, value);
        let grown = [with_swap("110"), alone("100")];
        check(false, Some(100), Some(50), &both, &grown);
        let shrunk = [alone("100"), with_swap("110")];
        check(false, Some(100), Some(200), &both, &shrunk);
        check(
            false,
            None,
            Some(200),
            &both,
            &[with_swap("-1"), alone("-1")],
        );
        check(false, Some(100), Some(200), &[], &[alone("100")]);
    }

    #[test]
    fn with_v2_memory_and_swap_are_two_limits() {
        let max = ("memory.max", "100");
        check(true, Some(100), None, &[], &[max]);
        let swap = ("memory.swap.max", "10");
        check(true, Some(100), None, &["memory.swap.max"], &[max, swap]);
        check(true, None, None, &[], &[("memory.max", "max")]);
    }
}
