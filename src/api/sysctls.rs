//! The kernel parameters of pods: their names, the namespace that each belongs to, and which of them pods may set
//! (the kubelet's `pkg/kubelet/sysctl`; kubelet-probes 10).
//!
//! Invariant: pure.

use std::fmt;

/// Largest number of characters in a name.
const NAME_MAX: usize = 253;
const NAME_FORM: &str = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
const PATTERN_FORM: &str =
    r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*([a-z0-9][-_a-z0-9]*)?[a-z0-9*]$";

/// Safe parameters, which do not affect other pods. Each has the kernel version (major, minor) from which each
/// namespace has its own value.
const SAFE: [(&str, (u32, u32)); 12] = [
    ("kernel.shm_rmid_forced", (0, 0)),
    ("net.ipv4.ip_local_port_range", (0, 0)),
    ("net.ipv4.tcp_syncookies", (0, 0)),
    ("net.ipv4.ping_group_range", (0, 0)),
    ("net.ipv4.ip_unprivileged_port_start", (0, 0)),
    ("net.ipv4.ip_local_reserved_ports", (3, 16)),
    ("net.ipv4.tcp_keepalive_time", (4, 5)),
    ("net.ipv4.tcp_fin_timeout", (4, 6)),
    ("net.ipv4.tcp_keepalive_intvl", (4, 5)),
    ("net.ipv4.tcp_keepalive_probes", (4, 5)),
    ("net.ipv4.tcp_rmem", (4, 15)),
    ("net.ipv4.tcp_wmem", (4, 15)),
];

/// The reasons for which a parameter, or a pattern of parameters, is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SysctlError {
    /// The name has a bad form.
    #[error("must have at most {NAME_MAX} characters and match regex {NAME_FORM}")]
    Name,
    /// The configured pattern has a bad form.
    #[error(
        "sysctl \"{0}\" must have at most {NAME_MAX} characters and match regex {PATTERN_FORM}"
    )]
    Pattern(String),
    /// The configured pattern matches no namespaced parameters.
    #[error("the sysctls \"{0}\" are not known to be namespaced")]
    NotNamespaced(String),
    /// The parameter is not safe, and no configured pattern names it.
    #[error("\"{0}\" not allowlisted")]
    NotAllowlisted(String),
    /// The pod uses the node's namespace instead of its own.
    #[error("\"{name}\" not allowed with host {namespace} enabled")]
    OfTheNode {
        /// Normalized name of the parameter.
        name: String,
        /// Namespace that the parameter belongs to.
        namespace: SysctlNamespace,
    },
}

/// The type of the namespace that a parameter belongs to. Each namespace has its own value of the parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SysctlNamespace {
    /// The namespace of System V IPC and message queues.
    Ipc,
    /// The network namespace.
    Net,
}

impl fmt::Display for SysctlNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipc => "IPC",
            Self::Net => "Net",
        })
    }
}

/// Returns the name with dots between its parts: `net/ipv4/conf/eth0.1/mtu` becomes `net.ipv4.conf.eth0/1.mtu`.
pub fn normalized(name: &str) -> String {
    let swap = |c| match c {
        '.' => '/',
        '/' => '.',
        c => c,
    };
    match name.find(['.', '/']) {
        Some(at) if name[at..].starts_with('/') => name.chars().map(swap).collect(),
        _ => name.to_owned(),
    }
}

/// Returns the path of the parameter's file below /proc/sys, from its normalized name.
pub fn path(normalized: &str) -> String {
    let swap = |c| match c {
        '.' => '/',
        '/' => '.',
        c => c,
    };
    normalized.chars().map(swap).collect()
}

/// Returns the namespace that a parameter belongs to, by its normalized name; None if the parameter is not known to
/// belong to a namespace.
pub fn namespace_of(name: &str) -> Option<SysctlNamespace> {
    match name {
        "kernel.sem"
        | "kernel.shmall"
        | "kernel.shmmax"
        | "kernel.shmmni"
        | "kernel.shm_rmid_forced"
        | "kernel.shm"
        | "kernel.msgmax"
        | "kernel.msgmnb"
        | "kernel.msgmni"
        | "kernel.msg" => Some(SysctlNamespace::Ipc),
        name if name.starts_with("fs.mqueue.") => Some(SysctlNamespace::Ipc),
        name if name.starts_with("net.") => Some(SysctlNamespace::Net),
        _ => None,
    }
}

/// Checks the form of a parameter's name.
///
/// # Errors
/// Returns [`SysctlError::Name`] if the form is bad.
pub fn check_name(name: &str) -> Result<(), SysctlError> {
    let good = name.len() <= NAME_MAX && name.split(['.', '/']).all(is_segment);
    good.then_some(()).ok_or(SysctlError::Name)
}

/// True if the text has the form `[a-z0-9]([-_a-z0-9]*[a-z0-9])?`.
fn is_segment(text: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = text.as_bytes();
    let inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_".contains(b);
    edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(inner)
}

/// True if the text has the form `([a-z0-9][-_a-z0-9]*)?[a-z0-9*]`.
fn is_last_of_pattern(text: &str) -> bool {
    match text.strip_suffix('*') {
        None => is_segment(text),
        Some("") => true,
        Some(start) => is_segment(start.trim_end_matches(['-', '_'])),
    }
}

/// The parameters that pods may set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SysctlAllowlist {
    /// Normalized names. A name that ends with `*` stands for every parameter that begins with the text before the
    /// `*`.
    patterns: Vec<(String, SysctlNamespace)>,
}

impl SysctlAllowlist {
    /// Returns the list of the safe parameters of this kernel and the configured patterns.
    ///
    /// # Errors
    /// Returns a [`SysctlError`] if a pattern has a bad form or matches no namespaced parameters.
    pub fn new(kernel: (u32, u32), unsafe_patterns: &[String]) -> Result<Self, SysctlError> {
        let safe = SAFE.iter().filter(|(_, since)| kernel >= *since);
        let mut patterns: Vec<(String, SysctlNamespace)> = safe
            .filter_map(|(name, _)| Some(((*name).to_owned(), namespace_of(name)?)))
            .collect();
        for pattern in unsafe_patterns {
            patterns.push(checked_pattern(pattern)?);
        }
        Ok(Self { patterns })
    }

    /// Checks that a pod may set this parameter.
    ///
    /// # Errors
    /// Returns a [`SysctlError`], in the kubelet's words, if the pod may not set the parameter.
    pub fn check(&self, name: &str, host_network: bool, host_ipc: bool) -> Result<(), SysctlError> {
        let name = normalized(name);
        let exact = self.patterns.iter().find(|(p, _)| *p == name);
        let by_pattern = || {
            let begins = |p: &str| p.strip_suffix('*').is_some_and(|p| name.starts_with(p));
            self.patterns.iter().find(|(p, _)| begins(p))
        };
        match exact.or_else(by_pattern) {
            None => Err(SysctlError::NotAllowlisted(name)),
            Some((_, namespace)) => {
                let of_the_node = match namespace {
                    SysctlNamespace::Ipc => host_ipc,
                    SysctlNamespace::Net => host_network,
                };
                let namespace = *namespace;
                match of_the_node {
                    true => Err(SysctlError::OfTheNode { name, namespace }),
                    false => Ok(()),
                }
            }
        }
    }
}

fn checked_pattern(pattern: &str) -> Result<(String, SysctlNamespace), SysctlError> {
    let mut segments: Vec<&str> = pattern.split(['.', '/']).collect();
    let last = segments.pop().unwrap_or_default();
    if pattern.len() > NAME_MAX
        || !is_last_of_pattern(last)
        || !segments.into_iter().all(is_segment)
    {
        return Err(SysctlError::Pattern(pattern.to_owned()));
    }
    let name = normalized(pattern);
    match namespace_of(name.trim_end_matches('*')) {
        Some(namespace) => Ok((name, namespace)),
        None => Err(SysctlError::NotNamespaced(pattern.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: (u32, u32) = (6, 1);

    fn patterns(list: &[&str]) -> Result<SysctlAllowlist, SysctlError> {
        let list: Vec<String> = list.iter().map(|p| (*p).to_owned()).collect();
        SysctlAllowlist::new(NEW, &list)
    }

    #[test]
    fn slashes_and_dots_change_places() {
        for (name, dots, file) in [
            (
                "net.ipv4.tcp_rmem",
                "net.ipv4.tcp_rmem",
                "net/ipv4/tcp_rmem",
            ),
            (
                "net/ipv4/tcp_rmem",
                "net.ipv4.tcp_rmem",
                "net/ipv4/tcp_rmem",
            ),
            ("net/a.b/mtu", "net.a/b.mtu", "net/a.b/mtu"),
            ("net.a/b.mtu", "net.a/b.mtu", "net/a.b/mtu"),
            ("one", "one", "one"),
        ] {
            assert_eq!(normalized(name), dots);
            assert_eq!(path(&normalized(name)), file);
        }
    }

    #[test]
    fn a_name_cannot_lead_out_of_its_directory() {
        for good in ["a", "kernel.sem", "net/ipv4/ip_forward", "a.b-c_d.9"] {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
        let long = "a".repeat(254);
        for bad in [
            "", ".", "a..b", "a.", "/a", "A", "a.-b", "a.b_", "a/../b", "a b", &long,
        ] {
            let error = check_name(bad).unwrap_err();
            assert_eq!(
                error.to_string(),
                r"must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
            );
        }
    }

    #[test]
    fn what_is_not_safe_needs_a_pattern() {
        let none = SysctlAllowlist::new(NEW, &[]).unwrap();
        assert_eq!(none.check("net.ipv4.tcp_rmem", false, false), Ok(()));
        assert_eq!(none.check("kernel/shm_rmid_forced", true, false), Ok(()));
        let refused = none.check("net.core.somaxconn", false, false);
        assert_eq!(
            refused.unwrap_err().to_string(),
            "\"net.core.somaxconn\" not allowlisted"
        );
        let some = patterns(&["net.core.*", "kernel.msg*", "net/ipv4/route/min_pmtu"]).unwrap();
        for name in [
            "net.core.somaxconn",
            "kernel.msgmax",
            "net.ipv4.route.min_pmtu",
        ] {
            assert_eq!(some.check(name, false, false), Ok(()));
        }
        assert!(some.check("net.corex", false, false).is_err());
    }

    #[test]
    fn the_node_s_namespaces_are_not_for_pods() {
        let list = patterns(&["net.core.*", "kernel.sem"]).unwrap();
        for (name, text) in [
            ("net.core.somaxconn", "Net"),
            ("net.ipv4.tcp_syncookies", "Net"),
            ("kernel.sem", "IPC"),
        ] {
            let refused = list.check(name, true, true);
            let expected = format!("\"{name}\" not allowed with host {text} enabled");
            assert_eq!(refused.unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn an_old_kernel_has_fewer_safe_ones() {
        let old = SysctlAllowlist::new((4, 5), &[]).unwrap();
        let allowed = |name| old.check(name, false, false).is_ok();
        assert!(allowed("net.ipv4.tcp_keepalive_time"));
        assert!(!allowed("net.ipv4.tcp_fin_timeout") && !allowed("net.ipv4.tcp_wmem"));
    }

    #[test]
    fn a_pattern_is_of_one_namespace() {
        for bad in ["*", "kernel.*", "vm.swappiness", "kernel.pid_max", "net*"] {
            let expected = format!("the sysctls \"{bad}\" are not known to be namespaced");
            assert_eq!(patterns(&[bad]).unwrap_err().to_string(), expected);
        }
        for bad in ["net.*.a", "net.**", "Net.*", "", "net."] {
            let error = patterns(&[bad]).unwrap_err().to_string();
            assert!(error.contains("match regex"), "{bad}: {error}");
        }
        assert!(patterns(&["net.*", "kernel.shm*", "fs.mqueue.*", "net.ipv4.tcp_*"]).is_ok());
    }
}
