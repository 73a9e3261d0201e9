//! Memory and processor time of processes, from /proc.

use std::fs;

/// Kilobytes of a process, from `smaps_rollup`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    pub(crate) rss: u64,
    pub(crate) pss: u64,
    /// Pages that no other process shares: what one more of the kind costs.
    pub(crate) private: u64,
}

pub(crate) fn memory(pid: i32) -> Memory {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let of = |key: &str| -> u64 {
        let line = text.lines().find(|l| l.split(':').next() == Some(key)).unwrap_or_else(|| panic!("no {key} in {text}"));
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    Memory { rss: of("Rss"), pss: of("Pss"), private: of("Private_Clean") + of("Private_Dirty") }
}

/// Nanoseconds on a processor (not in ticks) and times a thread gave it up by itself, of all threads that live.
pub(crate) fn cpu(pid: i32) -> (u64, u64) {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    tasks.map(|t| one(&t.path())).fold((0, 0), |(ns, n), (more, m)| (ns + more, n + m))
}

fn one(task: &std::path::Path) -> (u64, u64) {
    // A thread that has just ended counts for nothing.
    let ns = fs::read_to_string(task.join("schedstat")).unwrap_or_default();
    let status = fs::read_to_string(task.join("status")).unwrap_or_default();
    let switches = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
    (ns.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0), switches.and_then(|n| n.trim().parse().ok()).unwrap_or(0))
}

/// Microseconds of processor time of this thread and of the children that this process has waited for. Not of the whole
/// process: what it costs the kernel to add up a thousand threads would be part of it.
pub(crate) fn own_cpu_us() -> u64 {
    use nix::sys::resource::{UsageWho, getrusage};
    let of = |who| {
        let u = getrusage(who).unwrap();
        [u.user_time(), u.system_time()].iter().map(|t| t.tv_sec() as u64 * 1_000_000 + t.tv_usec() as u64).sum::<u64>()
    };
    of(UsageWho::RUSAGE_THREAD) + of(UsageWho::RUSAGE_CHILDREN)
}
