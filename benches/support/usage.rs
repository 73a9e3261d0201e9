//! Memory and processor time of processes, from /proc.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Kilobytes of a process, from `smaps_rollup`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    pub(crate) rss: u64,
    pub(crate) pss: u64,
    /// Pages that no other process shares: what one more of the kind costs.
    pub(crate) private: u64,
    /// Pages of no file: what other processes of the same program do not change.
    pub(crate) anonymous: u64,
}

pub(crate) fn memory(pid: i32) -> Memory {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let of = |key: &str| -> u64 {
        let line = text
            .lines()
            .find(|l| l.split(':').next() == Some(key))
            .unwrap_or_else(|| panic!("no {key} in {text}"));
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    Memory {
        rss: of("Rss"),
        pss: of("Pss"),
        private: of("Private_Clean") + of("Private_Dirty"),
        anonymous: of("Anonymous"),
    }
}

/// The kernel's own peak of a process's RSS begins anew.
pub(crate) fn reset_peak(pid: i32) {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
}

/// That peak, in kB.
pub(crate) fn peak(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Bytes that a process has caused to be written to a disk, without those in memory.
pub(crate) fn written(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    let line = text.lines().find_map(|l| l.strip_prefix("write_bytes: "));
    line.unwrap().trim().parse().unwrap()
}

/// Nanoseconds on a processor (not in ticks) and times a thread gave it up by itself, of all threads that live.
pub(crate) fn cpu(pid: i32) -> (u64, u64) {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    tasks
        .map(|t| one(&t.path()))
        .fold((0, 0), |(ns, n), (more, m)| (ns + more, n + m))
}

fn one(task: &std::path::Path) -> (u64, u64) {
    // A thread that has just ended counts for nothing.
    let ns = fs::read_to_string(task.join("schedstat")).unwrap_or_default();
    let status = fs::read_to_string(task.join("status")).unwrap_or_default();
    let switches = status
        .lines()
        .find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
    (
        ns.split(' ')
            .next()
            .and_then(|n| n.parse().ok())
            .unwrap_or(0),
        switches.and_then(|n| n.trim().parse().ok()).unwrap_or(0),
    )
}

/// Microseconds of processor time of this thread and of the children that this process has waited for. Not of the whole
/// process: what it costs the kernel to add up a thousand threads would be part of it.
pub(crate) fn own_cpu_us() -> u64 {
    use nix::sys::resource::{UsageWho, getrusage};
    let of = |who| {
        let u = getrusage(who).unwrap();
        [u.user_time(), u.system_time()]
            .iter()
            .map(|t| t.tv_sec() as u64 * 1_000_000 + t.tv_usec() as u64)
            .sum::<u64>()
    };
    of(UsageWho::RUSAGE_THREAD) + of(UsageWho::RUSAGE_CHILDREN)
}

/// Processor time of this process, all its threads.
pub(crate) fn process_cpu() -> Duration {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)
        .unwrap()
        .into()
}

/// The names of a process's threads and what its descriptors are, each with its number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holdings {
    pub(crate) threads: BTreeMap<String, usize>,
    pub(crate) descriptors: BTreeMap<String, usize>,
}

impl Holdings {
    /// What the process holds all the time: of several looks the one with the fewest, for threads and for descriptors.
    /// What a probe holds while it runs is not in it.
    pub(crate) fn at_rest(pid: i32) -> Self {
        let looks: Vec<Self> = (0..60)
            .map(|_| {
                std::thread::sleep(Duration::from_millis(37));
                Self::now(pid)
            })
            .collect();
        let fewest = |of: fn(&Self) -> &BTreeMap<String, usize>| {
            looks
                .iter()
                .map(of)
                .min_by_key(|m| total(m))
                .unwrap()
                .clone()
        };
        Self {
            threads: fewest(|h| &h.threads),
            descriptors: fewest(|h| &h.descriptors),
        }
    }

    /// What it holds at this moment.
    pub(crate) fn now(pid: i32) -> Self {
        let mut held = Self::default();
        for task in entries(&format!("/proc/{pid}/task")) {
            let name = fs::read_to_string(task.join("comm")).unwrap_or_default();
            // `pod:<uid>` and `<type>:<container>` are one kind each
            *held
                .threads
                .entry(name.trim().split(':').next().unwrap().to_owned())
                .or_default() += 1;
        }
        for fd in entries(&format!("/proc/{pid}/fd")) {
            let Ok(to) = fs::read_link(fd) else { continue };
            // `socket:[4711]` is a socket
            *held
                .descriptors
                .entry(to.to_string_lossy().split(":[").next().unwrap().to_owned())
                .or_default() += 1;
        }
        held
    }
}

/// How many of all kinds.
pub(crate) fn total(held: &BTreeMap<String, usize>) -> usize {
    held.values().sum()
}

/// `pipe 4 -> 6`: the kinds of which there are now more or fewer.
pub(crate) fn difference(
    before: &BTreeMap<String, usize>,
    after: &BTreeMap<String, usize>,
) -> String {
    let of = |held: &BTreeMap<String, usize>, kind: &String| held.get(kind).copied().unwrap_or(0);
    let kinds: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let changed = kinds.into_iter().filter(|k| of(before, k) != of(after, k));
    changed
        .map(|k| format!("{k} {} -> {}", of(before, k), of(after, k)))
        .collect::<Vec<_>>()
        .join(", ")
}

pub(crate) fn entries(dir: &str) -> Vec<PathBuf> {
    fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path())
        .collect()
}
