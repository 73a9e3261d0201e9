//! The names of Linux's capabilities.

/// Returns the capability that `name` means. `name` may be in any case and may begin with `CAP_`.
pub fn canonical(name: &str) -> Option<&'static str> {
    let upper = name.to_ascii_uppercase();
    let plain = upper.strip_prefix("CAP_").unwrap_or(&upper);
    CAPABILITIES.iter().find(|known| **known == plain).copied()
}

/// True if `name` begins with `CAP_`, as in the kernel's headers. containerd does not know such names.
pub fn has_prefix(name: &str) -> bool {
    name.get(..4)
        .is_some_and(|start| start.eq_ignore_ascii_case("CAP_"))
}

/// True if `name` means every capability.
pub fn is_all(name: &str) -> bool {
    name.eq_ignore_ascii_case("ALL")
}

/// Every capability (linux/capability.h), without `CAP_`, in the order of their numbers.
pub const CAPABILITIES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_in_any_case_with_or_without_their_prefix() {
        for name in ["NET_ADMIN", "net_admin", "CAP_NET_ADMIN", "cap_Net_Admin"] {
            assert_eq!(canonical(name), Some("NET_ADMIN"), "{name}");
        }
        for name in ["NET_ADMN", "CAP_CAP_KILL", "CAP_", ""] {
            assert_eq!(canonical(name), None, "{name}");
        }
        assert!(has_prefix("cap_kill") && !has_prefix("kill") && !has_prefix("CAP"));
        assert!(is_all("all") && is_all("ALL") && !is_all("CAP_ALL"));
    }
}
