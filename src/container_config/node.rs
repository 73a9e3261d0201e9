//! Facts about the node that configurations depend on.

use std::fs;
use std::path::Path;

/// Read once, at the daemon's start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// `MemTotal` in bytes; 0 when it cannot be read.
    pub memory_capacity: u64,
    /// The existing `/sys/devices/system/cpu/cpu*/thermal_throttle` directories: they show the load
    /// of other tenants, so they are hidden from containers.
    pub thermal_throttle: Vec<String>,
}

impl NodeFacts {
    /// Reads the facts.
    pub fn read() -> Self {
        Self {
            memory_capacity: memory(&fs::read_to_string("/proc/meminfo").unwrap_or_default()),
            thermal_throttle: thermal_throttle(Path::new("/sys/devices/system/cpu")),
        }
    }
}

fn memory(meminfo: &str) -> u64 {
    let field = meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:"));
    field
        .and_then(|v| v.split_whitespace().next()?.parse::<u64>().ok())
        .unwrap_or(0)
        * 1024
}

fn thermal_throttle(cpus: &Path) -> Vec<String> {
    let mut found: Vec<String> = fs::read_dir(cpus)
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path().join("thermal_throttle"))
        .filter(|p| p.exists())
        .filter_map(|p| p.to_str().map(str::to_owned))
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_in_bytes() {
        assert_eq!(memory("MemTotal:        8 kB\nMemFree: 1 kB\n"), 8192);
        assert_eq!(memory(""), 0);
        assert!(NodeFacts::read().memory_capacity > 1 << 20);
    }

    #[test]
    fn each_processor_with_a_throttle_is_named() {
        let dir = tempfile::tempdir().unwrap();
        for cpu in [
            "cpu1/thermal_throttle",
            "cpu0/thermal_throttle",
            "cpu2/topology",
        ] {
            fs::create_dir_all(dir.path().join(cpu)).unwrap();
        }
        let at = |cpu| format!("{}/{cpu}/thermal_throttle", dir.path().display());
        assert_eq!(thermal_throttle(dir.path()), [at("cpu0"), at("cpu1")]);
    }
}
