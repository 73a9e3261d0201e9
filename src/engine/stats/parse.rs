//! Parses the kernel's texts about cgroups (v1 and v2) and in /proc.
//!
//! Invariants: pure. A figure that a text does not have is None, never 0.

use std::time::Duration;

/// Processor time of a cgroup or the node, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// Nanoseconds of all processor time.
    pub usage: u64,
    /// Nanoseconds of processor time in programs.
    pub user: Option<u64>,
    /// Nanoseconds of processor time in the kernel.
    pub system: Option<u64>,
}

/// Figures about the processes of a cgroup that its processor quota has delayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttling {
    /// Number of periods in which processes wanted to run.
    pub periods: u64,
    /// Number of periods in which the quota was used up.
    pub throttled: u64,
    /// Nanoseconds for which processes were delayed.
    pub time: u64,
}

/// Memory of a cgroup or the node, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// All memory in use, including the page cache.
    pub usage: u64,
    /// Memory in use without the part of the page cache that was not used lately.
    pub working_set: u64,
    /// Anonymous memory (RSS).
    pub rss: u64,
    /// Page cache.
    pub cache: Option<u64>,
    /// Memory of mapped files.
    pub mapped_file: Option<u64>,
    /// Memory that is swapped to the disk; None if the kernel does not count it.
    pub swap: Option<u64>,
    /// Number of page faults.
    pub page_faults: Option<u64>,
    /// Number of page faults for which a disk had to be read.
    pub major_page_faults: Option<u64>,
    /// Limit of the memory; None if there is no limit.
    pub limit: Option<u64>,
    /// Limit of the memory that is swapped to the disk. None if there is no limit, or if the kernel has no such limit.
    pub swap_limit: Option<u64>,
}

/// Reads and writes of a cgroup on one block device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Io {
    /// Major and minor number of the device, as in `8:0`. The reader replaces the numbers by the device's path.
    pub device: String,
    /// Number of read operations.
    pub reads: u64,
    /// Number of write operations.
    pub writes: u64,
    /// Number of bytes that were read.
    pub read_bytes: u64,
    /// Number of bytes that were written.
    pub write_bytes: u64,
}

/// Parses `io.stat` of v2.
pub fn io_v2(stat: &str) -> Vec<Io> {
    let line = |line: &str| {
        let (device, rest) = line.split_once(' ')?;
        let value = |key: &str| {
            let mut words = rest.split_whitespace();
            let found = words.find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
            found.and_then(number).unwrap_or(0)
        };
        let is_numbers = device.bytes().all(|b| b.is_ascii_digit() || b == b':');
        is_numbers.then(|| Io {
            device: device.to_owned(),
            reads: value("rios"),
            writes: value("wios"),
            read_bytes: value("rbytes"),
            write_bytes: value("wbytes"),
        })
    };
    stat.lines().filter_map(line).collect()
}

/// Parses `blkio.throttle.io_service_bytes` and `blkio.throttle.io_serviced` of v1, or the `…_recursive` forms of these
/// files, which include the cgroups below.
pub fn io_v1(bytes: &str, operations: &str) -> Vec<Io> {
    let mut found: Vec<Io> = Vec::new();
    for (text, are_bytes) in [(bytes, true), (operations, false)] {
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let &[device, what @ ("Read" | "Write"), n] = words.as_slice() else {
                continue;
            };
            let at = found.iter().position(|io| io.device == device);
            let at = at.unwrap_or_else(|| {
                let device = device.to_owned();
                found.push(Io {
                    device,
                    ..Io::default()
                });
                found.len() - 1
            });
            let io = &mut found[at];
            let to = match (what, are_bytes) {
                ("Read", true) => &mut io.read_bytes,
                ("Read", false) => &mut io.reads,
                (_, true) => &mut io.write_bytes,
                (_, false) => &mut io.writes,
            };
            *to = number(n).unwrap_or(0);
        }
    }
    found
}

/// Returns the number after `key` and a space, in a text of lines that hold a key and a number.
pub fn flat(text: &str, key: &str) -> Option<u64> {
    let value = |line: &str| {
        line.strip_prefix(key)?
            .strip_prefix(' ')?
            .trim()
            .parse()
            .ok()
    };
    text.lines().find_map(value)
}

/// Parses a text that holds a single number.
pub fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// Parses the processor time in `cpu.stat` of v2.
pub fn cpu_v2(stat: &str) -> Option<Cpu> {
    let nanoseconds = |key| Some(flat(stat, key)?.saturating_mul(1000));
    Some(Cpu {
        usage: nanoseconds("usage_usec")?,
        user: nanoseconds("user_usec"),
        system: nanoseconds("system_usec"),
    })
}

/// Parses the throttling in `cpu.stat` of v1 or v2. Returns None if there is no quota.
pub fn throttling(stat: &str) -> Option<Throttling> {
    let periods = flat(stat, "nr_periods").filter(|n| *n > 0)?;
    let v2 = flat(stat, "throttled_usec").map(|us| us.saturating_mul(1000));
    Some(Throttling {
        periods,
        throttled: flat(stat, "nr_throttled")?,
        time: v2.or_else(|| flat(stat, "throttled_time"))?,
    })
}

/// Parses `memory.stat` of v2. `current` is the number in the file `memory.current`.
pub fn memory_v2(current: u64, stat: &str) -> Memory {
    let inactive = flat(stat, "inactive_file").unwrap_or(0);
    Memory {
        usage: current,
        working_set: current.saturating_sub(inactive),
        rss: flat(stat, "anon").unwrap_or(0),
        cache: flat(stat, "file"),
        mapped_file: flat(stat, "file_mapped"),
        page_faults: flat(stat, "pgfault"),
        major_page_faults: flat(stat, "pgmajfault"),
        ..Memory::default()
    }
}

/// Parses `memory.stat` of v1. The figures include the cgroups below. `usage` is the number in the file
/// `memory.usage_in_bytes`.
pub fn memory_v1(usage: u64, stat: &str) -> Memory {
    let inactive = flat(stat, "total_inactive_file").unwrap_or(0);
    Memory {
        usage,
        working_set: usage.saturating_sub(inactive),
        rss: flat(stat, "total_rss").unwrap_or(0),
        cache: flat(stat, "total_cache"),
        mapped_file: flat(stat, "total_mapped_file"),
        swap: flat(stat, "total_swap"),
        page_faults: flat(stat, "total_pgfault"),
        major_page_faults: flat(stat, "total_pgmajfault"),
        limit: None,
        swap_limit: None,
    }
}

/// A number of bytes that no machine has. On v1 a limit at least as large means that there is no limit.
const NO_LIMIT: u64 = 1 << 62;

/// Parses a memory limit, `memory.max` or `memory.limit_in_bytes`. Returns None if there is no limit.
pub fn limit(text: &str) -> Option<u64> {
    number(text).filter(|bytes| *bytes < NO_LIMIT)
}

/// Parses `cpu.max`: the quota (None if there is none) and the period, both in microseconds.
pub fn cpu_max(text: &str) -> Option<(Option<u64>, u64)> {
    let (quota, period) = text.trim().split_once(' ')?;
    Some((number(quota), number(period)?))
}

/// Converts `cpu.weight` into shares of v1. This is the inverse of the formula with which runc 1.3.2 and crun 1.23
/// compute weights. Both runtimes round up, so the result for small shares is slightly larger than the shares that were
/// set.
pub fn shares_of_weight(weight: u64) -> u64 {
    let exponent = (weight.clamp(1, 10_000) as f64).log10();
    let l = (15_625.0 + 4.0 * 612.0 * (exponent + 7.0 / 34.0)).sqrt();
    ((l - 125.0) / 2.0).exp2().round() as u64
}

/// Figures of a network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Name of the network interface.
    pub name: String,
    /// Received traffic.
    pub rx: Traffic,
    /// Sent traffic.
    pub tx: Traffic,
}

/// Traffic of an interface in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Number of bytes.
    pub bytes: u64,
    /// Number of packets.
    pub packets: u64,
    /// Number of broken packets.
    pub errors: u64,
    /// Number of packets that were dropped.
    pub dropped: u64,
}

/// Parses `/proc/PID/net/dev`. Returns the interfaces without loopback.
pub fn interfaces(net_dev: &str) -> Vec<Interface> {
    let line = |line: &str| {
        let (name, numbers) = line.split_once(':')?;
        let n: Vec<u64> = numbers.split_whitespace().map_while(number).collect();
        let traffic = |at: usize| {
            Some(Traffic {
                bytes: *n.get(at)?,
                packets: *n.get(at + 1)?,
                errors: *n.get(at + 2)?,
                dropped: *n.get(at + 3)?,
            })
        };
        Some(Interface {
            name: name.trim().to_owned(),
            rx: traffic(0)?,
            tx: traffic(8)?,
        })
    };
    let all = net_dev.lines().filter_map(line);
    all.filter(|i| i.name != "lo").collect()
}

/// Returns the interface of the default route in `/proc/net/route`. If there are several default routes, the route with
/// the least metric counts.
pub fn default_interface(route: &str) -> Option<&str> {
    let default = |line: &'_ str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let &[_, destination, _, _, _, _, metric, mask, ..] = fields.as_slice() else {
            return None;
        };
        number(metric).filter(|_| destination == "00000000" && mask == destination)
    };
    let routes = route.lines().filter_map(|l| Some((default(l)?, l)));
    let (_, line) = routes.min_by_key(|(metric, _)| *metric)?;
    line.split_whitespace().next()
}

/// Parses the line `cpu` of `/proc/stat`, whose figures are in ticks. The figures for user and nice include the time of
/// guests.
pub fn node_cpu(stat: &str, ticks_per_second: u64) -> Option<Cpu> {
    let line = stat.lines().find_map(|l| l.strip_prefix("cpu "))?;
    let n: Vec<u64> = line.split_whitespace().map_while(number).collect();
    let &[user, nice, system, _, _, irq, soft_irq, ref rest @ ..] = n.as_slice() else {
        return None;
    };
    let steal = rest.first().copied().unwrap_or(0);
    let nanoseconds = |t: u64| {
        let time = ticks(t, ticks_per_second);
        u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
    };
    Some(Cpu {
        usage: nanoseconds(user + nice + system + irq + soft_irq + steal),
        user: Some(nanoseconds(user + nice)),
        system: Some(nanoseconds(system + irq + soft_irq)),
    })
}

/// Returns the time at which the node booted, in seconds since 1970, from `/proc/stat`.
pub fn boot_time(stat: &str) -> Option<u64> {
    flat(stat, "btime")
}

/// Parses `/proc/meminfo` and `/proc/vmstat`. Returns the size of the memory in bytes, and the figures of the memory in
/// use.
pub fn node_memory(meminfo: &str, vmstat: &str) -> Option<(u64, Memory)> {
    let bytes = |key: &str| {
        let value = |l: &str| {
            l.strip_prefix(key)?
                .strip_prefix(':')?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        };
        let kib: Option<u64> = meminfo.lines().find_map(value);
        Some(kib?.saturating_mul(1024))
    };
    let all = bytes("MemTotal")?;
    let usage = all.saturating_sub(bytes("MemFree")?);
    let swap = bytes("SwapTotal").zip(bytes("SwapFree"));
    let memory = Memory {
        usage,
        working_set: usage.saturating_sub(bytes("Inactive(file)")?),
        rss: bytes("AnonPages")?,
        cache: bytes("Cached"),
        mapped_file: bytes("Mapped"),
        swap: swap.map(|(all, free)| all.saturating_sub(free)),
        page_faults: flat(vmstat, "pgfault"),
        major_page_faults: flat(vmstat, "pgmajfault"),
        limit: None,
        swap_limit: None,
    };
    Some((all, memory))
}

/// Returns the number of the node's threads, from `/proc/loadavg`.
pub fn threads(loadavg: &str) -> Option<u64> {
    let (_, all) = loadavg.split_whitespace().nth(3)?.split_once('/')?;
    number(all)
}

/// Figures about a process from `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    /// Processor time in programs and in the kernel together, in ticks.
    pub cpu_ticks: u64,
    /// Number of threads.
    pub threads: u64,
    /// Time at which the process started, in ticks since boot.
    pub start_ticks: u64,
    /// Size of the virtual memory in bytes.
    pub virtual_bytes: u64,
    /// Size of the resident memory in pages.
    pub resident_pages: u64,
}

/// Parses `/proc/PID/stat`. Returns None if the text has too few fields.
pub fn process_stat(stat: &str) -> Option<ProcessStat> {
    // The process's name may have spaces and parentheses. Field 3 follows the last parenthesis.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |n: usize| number(fields.get(n - 3)?);
    Some(ProcessStat {
        cpu_ticks: field(14)? + field(15)?,
        threads: field(20)?,
        start_ticks: field(22)?,
        virtual_bytes: field(23)?,
        resident_pages: field(24)?,
    })
}

/// Returns the soft limit of the number of open descriptors, from `/proc/PID/limits`.
pub fn max_open_files(limits: &str) -> Option<u64> {
    let line = |l: &str| {
        number(
            l.strip_prefix("Max open files")?
                .split_whitespace()
                .next()?,
        )
    };
    limits.lines().find_map(line)
}

/// Returns the duration of `n` ticks. `per_second` is the number of ticks per second.
pub fn ticks(n: u64, per_second: u64) -> Duration {
    let per_second = per_second.max(1);
    Duration::from_secs(n / per_second)
        + Duration::from_secs(1).mul_f64((n % per_second) as f64 / per_second as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_time_of_v2_is_in_microseconds() {
        let stat = "usage_usec 1500\nuser_usec 1000\nsystem_usec 500\nnr_periods 4\nnr_throttled 1\nthrottled_usec 7\n";
        let cpu = Cpu {
            usage: 1_500_000,
            user: Some(1_000_000),
            system: Some(500_000),
        };
        assert_eq!(cpu_v2(stat), Some(cpu));
        let throttled = Throttling {
            periods: 4,
            throttled: 1,
            time: 7000,
        };
        assert_eq!(throttling(stat), Some(throttled));
        let v1 = "nr_periods 4\nnr_throttled 1\nthrottled_time 7000\n";
        assert_eq!(throttling(v1), Some(throttled));
        assert_eq!(cpu_v2(v1), None, "the text of the other version");
        let unlimited = "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n";
        assert_eq!(throttling(unlimited), None);
    }

    #[test]
    fn the_working_set_is_the_usage_without_inactive_files() {
        let v2 = "anon 100\nfile 300\nfile_mapped 20\ninactive_file 250\npgfault 9\npgmajfault 2\n";
        let m = memory_v2(400, v2);
        assert_eq!((m.usage, m.working_set, m.rss), (400, 150, 100));
        assert_eq!(
            (m.cache, m.mapped_file, m.swap),
            (Some(300), Some(20), None)
        );
        assert_eq!((m.page_faults, m.major_page_faults), (Some(9), Some(2)));
        assert_eq!(memory_v2(200, v2).working_set, 0, "counted a moment apart");
        let v1 = "inactive_file 1\nrss 1\ntotal_cache 300\ntotal_rss 100\ntotal_inactive_file 250\ntotal_swap 5\ntotal_pgfault 9\n";
        let m = memory_v1(400, v1);
        assert_eq!((m.working_set, m.rss, m.swap), (150, 100, Some(5)));
        assert_eq!((m.cache, m.mapped_file), (Some(300), None));
    }

    #[test]
    fn limits_of_both_versions() {
        assert_eq!(limit("67108864\n"), Some(64 << 20));
        assert_eq!(limit("max\n"), None);
        assert_eq!(limit("9223372036854771712\n"), None, "v1 without a limit");
        assert_eq!(cpu_max("max 100000\n"), Some((None, 100_000)));
        assert_eq!(cpu_max("25000 100000\n"), Some((Some(25_000), 100_000)));
        assert_eq!(cpu_max(""), None);
        let shares = [1, 17, 59, 100, 174, 10_000].map(shares_of_weight);
        assert_eq!(shares, [2, 102, 521, 1024, 2060, 262_144]);
    }

    #[test]
    fn interfaces_are_read_without_loopback() {
        let text = "Inter-|   Receive | Transmit\n face |bytes    packets errs drop fifo frame compressed multicast|bytes\n\
            \x20   lo:    3193      29    0    0    0     0          0         0     3193      29    0    0    0     0       0          0\n\
            \x20 eth0:10 1 2 3 0 0 0 0 20 4 5 6 0 0 0 0\n";
        let traffic = |[bytes, packets, errors, dropped]: [u64; 4]| Traffic {
            bytes,
            packets,
            errors,
            dropped,
        };
        let eth0 = Interface {
            name: "eth0".into(),
            rx: traffic([10, 1, 2, 3]),
            tx: traffic([20, 4, 5, 6]),
        };
        assert_eq!(interfaces(text), [eth0]);
        assert_eq!(interfaces("eth0: 1 2\nx"), []);
    }

    #[test]
    fn the_interface_of_the_node_has_the_default_route_with_the_least_metric() {
        let head =
            "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n";
        let line = |name, destination, metric, mask| {
            format!("{name}\t{destination}\t010200C0\t0003\t0\t0\t{metric}\t{mask}\t0\t0\t0\n")
        };
        let zero = "00000000";
        let routes = [
            line("lan", "000200C0", 0, "00FFFFFF"),
            line("wlan0", zero, 600, zero),
            line("eth0", zero, 100, zero),
        ];
        let text = format!("{head}{}", routes.concat());
        assert_eq!(default_interface(&text), Some("eth0"));
        assert_eq!(default_interface(&format!("{head}{}", routes[0])), None);
    }

    #[test]
    fn the_node_s_time_and_memory_are_those_of_proc() {
        let stat = "cpu  100 10 50 1000 20 5 5 30 40 0\ncpu0 1 2 3 4 5 6 7\nbtime 1700000000\n";
        let cpu = node_cpu(stat, 100).unwrap();
        assert_eq!(cpu.usage, 2_000_000_000, "neither idle nor a guest twice");
        assert_eq!(
            (cpu.user, cpu.system),
            (Some(1_100_000_000), Some(600_000_000))
        );
        assert_eq!(node_cpu("cpu  1 2 3\n", 100), None);
        assert_eq!(boot_time(stat), Some(1_700_000_000));
        let meminfo = "MemTotal:  1000 kB\nMemFree:  400 kB\nCached:  90 kB\nInactive(file):  100 kB\nAnonPages:  50 kB\n\
            Mapped: 7 kB\nSwapTotal:  30 kB\nSwapFree:  10 kB\n";
        let (all, m) = node_memory(meminfo, "pgfault 3\npgmajfault 1\n").unwrap();
        assert_eq!(
            (all, m.usage, m.working_set),
            (1000 << 10, 600 << 10, 500 << 10)
        );
        assert_eq!(
            (m.rss, m.swap, m.page_faults),
            (50 << 10, Some(20 << 10), Some(3))
        );
        assert_eq!(node_memory("MemTotal: 1 kB\n", ""), None);
        assert_eq!(threads("0.55 1.13 0.61 1/234 5678\n"), Some(234));
    }

    #[test]
    fn a_process_may_have_any_name() {
        let stat = "42 (a) b) S 1 42 42 0 -1 4194560 1 0 0 0 70 30 0 0 20 0 5 0 1000 4096 8 184467";
        let expected = ProcessStat {
            cpu_ticks: 100,
            threads: 5,
            start_ticks: 1000,
            virtual_bytes: 4096,
            resident_pages: 8,
        };
        assert_eq!(process_stat(stat), Some(expected));
        assert_eq!(process_stat("42 (a) S 1"), None);
        let limits = "Limit   Soft Limit  Hard Limit  Units\nMax open files  1024  4096  files\n";
        assert_eq!(max_open_files(limits), Some(1024));
        assert_eq!(ticks(150, 100), Duration::from_millis(1500));
    }
}
