//! Whom the kernel kills first when memory is short.

use std::fs;

/// That of a process.
pub(crate) fn oom_score(pid: i32) -> i32 {
    let text = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
    text.trim().parse().unwrap()
}

/// What a process of ours can have: -999, or our own where a capability is missing (CAP_SYS_RESOURCE).
pub(crate) fn lowest_oom_score() -> i32 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let capabilities = status.lines().find_map(|l| l.strip_prefix("CapEff:\t"));
    let capabilities = u64::from_str_radix(capabilities.unwrap(), 16).unwrap();
    match capabilities & (1 << 24) {
        0 => oom_score(std::process::id().cast_signed()),
        _ => -999,
    }
}
