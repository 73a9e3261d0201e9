//! Judges a node: each finding says what was found, what the consequence is, and what to do.
//!
//! Invariants: pure. Every item that was checked has a finding. FAIL means that the daemon or all pods cannot run.
//! WARN means that only some pods are affected, or that something works worse.

use nix::errno::Errno;

use super::facts::{CgroupFacts, Facts};
use super::finding::Finding;
use super::resources;
use crate::base::sys::calls::Call;
use crate::base::sys::mountinfo::Mount;
use crate::net::network::{Missing, Part};

/// The oldest kernel that podprobe supports.
const OLDEST_KERNEL: (u32, u32) = (5, 12);
/// The first kernel that can keep a tmpfs out of swap.
const NO_SWAP_KERNEL: (u32, u32) = (6, 4);

/// Judges all facts. Findings about basic facts come first, because a finding about a basic fact often explains
/// the later findings.
pub fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![root(facts), kernel(facts)];
    findings.extend(
        facts
            .calls
            .iter()
            .filter_map(|(call, tried)| lacks(*call, *tried)),
    );
    findings.push(namespaces(facts));
    findings.extend(cgroups(&facts.cgroups));
    findings.extend(facts.device_filter.as_ref().map(device_filter));
    findings.push(overlay(facts));
    findings.extend(network(facts.network.as_deref()));
    findings.push(packet_filter(facts));
    findings.push(seccomp(facts));
    findings.push(app_armor(facts));
    findings.extend(resources::judge(facts));
    findings.push(swap(facts));
    findings.push(match &facts.configuration {
        Ok(()) => Finding::pass("configuration", "can be used"),
        Err(e) => Finding::fail(
            "configuration",
            e,
            "the daemon does not start; correct the file",
        ),
    });
    findings
}

/// Returns the finding for an item that was not checked, because the check needs root.
fn untried(name: &'static str) -> Finding {
    Finding::warn(
        name,
        "not looked at",
        "only root can try it; run check-host again with sudo",
    )
}

/// Bit masks of capabilities.
const NET_ADMIN: u64 = 1 << 12;
const SYS_ADMIN: u64 = 1 << 21;
const SYS_RESOURCE: u64 = 1 << 24;

fn root(facts: &Facts) -> Finding {
    let lacks = |bit: u64| facts.capabilities & bit == 0;
    match () {
        () if !facts.is_root => Finding::fail(
            "root",
            "this is not root",
            "the daemon needs root for mounts, namespaces and cgroups; run it, and check-host, with sudo",
        ),
        () if lacks(SYS_ADMIN) => Finding::fail(
            "root",
            "root without CAP_SYS_ADMIN",
            "nothing can be mounted, so no pod starts; give the service or container that runs podprobe CAP_SYS_ADMIN",
        ),
        () if lacks(NET_ADMIN) => Finding::warn(
            "root",
            "root without CAP_NET_ADMIN",
            "pods have a loopback interface only, and services go through a process; give podprobe CAP_NET_ADMIN",
        ),
        () if lacks(SYS_RESOURCE) => Finding::warn(
            "root",
            "root without CAP_SYS_RESOURCE",
            "oom_score_adj of containers is not set below the daemon's own; give podprobe CAP_SYS_RESOURCE",
        ),
        () => Finding::pass("root", "root with its capabilities"),
    }
}

/// Parses the version of a kernel: 6 and 18 for `6.18.44-arch1`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn kernel(facts: &Facts) -> Finding {
    let found = format!("Linux {}", facts.kernel);
    match version(&facts.kernel) {
        Some(version) if version < OLDEST_KERNEL => Finding::fail(
            "kernel",
            found,
            "no container starts with the built-in runtime; use Linux 5.12 or newer, or from 5.11 on set runtime to the path of runc or crun",
        ),
        _ => Finding::pass("kernel", found),
    }
}

/// Returns a finding if a system call cannot be used. Returns None for a usable call, because the finding about
/// the kernel covers usable calls.
fn lacks(call: Call, tried: Result<(), Errno>) -> Option<Finding> {
    let errno = tried.err()?;
    let (found, way) = match errno {
        Errno::EPERM => ("a seccomp filter forbids it", "allow it to podprobe"),
        _ => ("the kernel does not have it", "use a newer kernel"),
    };
    let follows = match call {
        Call::PidfdOpen | Call::Openat2 | Call::CloseRange => {
            let follows = "exec probes and hooks fail, or no container starts";
            return Some(Finding::fail(
                call.name(),
                found,
                format!("{follows}; {way}"),
            ));
        }
        Call::Clone3 => "exec probes are a little slower: each joins its cgroup itself",
        Call::MountSetattr => {
            let follows = "no container starts with the built-in runtime";
            return Some(Finding::fail(
                call.name(),
                found,
                format!("{follows}; {way}, or set runtime to the path of runc or crun"),
            ));
        }
    };
    Some(Finding::warn(
        call.name(),
        found,
        format!("{follows}; {way}"),
    ))
}

fn namespaces(facts: &Facts) -> Finding {
    match facts.missing_namespaces.as_slice() {
        [] => Finding::pass("namespaces", "mount, pid, network, uts, ipc, cgroup"),
        missing => Finding::fail(
            "namespaces",
            format!("the kernel has no namespaces of {}", missing.join(", ")),
            "no pod starts; use a kernel with CONFIG_NAMESPACES, or mount /proc",
        ),
    }
}

fn cgroups(cgroups: &CgroupFacts) -> Vec<Finding> {
    if cgroups.versions.is_empty() {
        let advice = "no container starts; mount them: mount -t cgroup2 none /sys/fs/cgroup";
        return vec![Finding::fail("cgroups", "none is mounted", advice)];
    }
    let versions = cgroups.versions.join(" and ");
    if let Some(at) = &cgroups.read_only {
        let found = format!("{versions}, read-only at {}", at.display());
        let advice = "no container starts; mount cgroups writable, or make the container that runs podprobe privileged";
        return vec![Finding::fail("cgroups", found, advice)];
    }
    let controller = |name: &'static str| {
        if !cgroups.missing.contains(&name) {
            return Finding::pass(name, "can be limited");
        }
        let is_of_v1 = |m: &&Mount| m.options.iter().any(|o| o == name);
        if let Some(v1) = cgroups.beside.iter().find(is_of_v1) {
            let found = format!(
                "the v1 hierarchy at {} holds it, and cgroups here are v2",
                v1.at.display()
            );
            let advice = format!(
                "a container with a {name} limit does not start; do not mount it, or boot with cgroup_no_v1=all"
            );
            return Finding::warn(name, found, advice);
        }
        let way = match name {
            "memory" => "boot with cgroup_enable=memory, on a Raspberry Pi in cmdline.txt",
            _ => "use a kernel with CONFIG_CGROUP_SCHED and CONFIG_CFS_BANDWIDTH",
        };
        let advice = format!("a container with a {name} limit does not start; {way}");
        Finding::warn(name, "no cgroup controller limits it", advice)
    };
    let beside: Vec<String> = cgroups
        .beside
        .iter()
        .map(|m| m.at.display().to_string())
        .collect();
    let versions = match beside.is_empty() {
        true => versions,
        false => format!("{versions}; left alone, of v1: {}", beside.join(", ")),
    };
    vec![
        Finding::pass("cgroups", versions),
        controller("cpu"),
        controller("memory"),
    ]
}

fn device_filter(tried: &Result<(), String>) -> Finding {
    match tried {
        Ok(()) => Finding::pass("devices", "bpf(2) filters them"),
        Err(e) => Finding::fail(
            "devices",
            format!("bpf(2) cannot filter them: {e}"),
            "only privileged containers start, for any image could read and write the node's disks; use a kernel with \
             CONFIG_CGROUP_BPF and give podprobe CAP_BPF and CAP_NET_ADMIN, or take the risk with allowUnfilteredDevices in \
             the configuration",
        ),
    }
}

fn overlay(facts: &Facts) -> Finding {
    match &facts.overlay {
        None => untried("overlayfs"),
        Some(Ok(())) => Finding::pass("overlayfs", "can be mounted"),
        Some(Err(e)) => Finding::fail(
            "overlayfs",
            e,
            "no container starts; load it with 'modprobe overlay', or use a kernel with CONFIG_OVERLAY_FS",
        ),
    }
}

/// Judges the network of pods. If the kernel cannot make bridges, the packet filter's parts could not be tested
/// and have no finding.
fn network(lacks: Option<&[Missing]>) -> Vec<Finding> {
    let Some(lacks) = lacks else {
        return vec![untried("bridge")];
    };
    let parts = [
        (Part::Bridge, "bridges and veth pairs"),
        (Part::Nat, "addresses can be translated"),
        (Part::FrameFilter, "frames can be filtered"),
    ];
    let has_bridge = lacks.iter().all(|m| m.what != Part::Bridge);
    let tried = parts
        .iter()
        .filter(|(part, _)| has_bridge || *part == Part::Bridge);
    let judged = tried.map(|(part, good)| {
        let name = part.as_str();
        match lacks.iter().find(|m| m.what == *part) {
            None => Finding::pass(name, *good),
            Some(missing) => {
                let modules = match part {
                    Part::Bridge => "bridge and veth; pods with hostNetwork need neither",
                    Part::Nat | Part::FrameFilter => "nf_tables, nft_chain_nat and nft_masq",
                };
                let advice = format!("{}; load the modules {modules}", missing.text);
                Finding::warn(name, "the kernel cannot", advice)
            }
        }
    });
    judged.collect()
}

fn packet_filter(facts: &Facts) -> Finding {
    const NAME: &str = "services";
    match &facts.packet_filter {
        None => untried(NAME),
        Some(Ok(None)) => Finding::pass(NAME, "in nftables, IPv4 and IPv6"),
        Some(Ok(Some(why))) => Finding::warn(
            NAME,
            format!("in nftables, IPv4 only: {why}"),
            "services have no IPv6 addresses; load the modules nf_tables and nft_fib_ipv6",
        ),
        Some(Err(why)) => Finding::warn(
            NAME,
            why,
            "a process, podprobe proxy, hands connections on, which is slower; load the modules nf_tables, nft_chain_nat and nft_masq",
        ),
    }
}

fn seccomp(facts: &Facts) -> Finding {
    match facts.seccomp {
        true => Finding::pass("seccomp", "filters"),
        false => Finding::warn(
            "seccomp",
            "the kernel has no filters",
            "a container with a seccomp profile does not start; use a kernel with CONFIG_SECCOMP_FILTER",
        ),
    }
}

/// Judges AppArmor. Most nodes work without AppArmor, so its absence is no warning.
fn app_armor(facts: &Facts) -> Finding {
    let of = facts.app_armor;
    match (of.is_enabled, of.is_allowed, of.has_parser, of.is_loaded) {
        (false, ..) => Finding::pass(
            "apparmor",
            "off: only a container that names a profile does not start",
        ),
        (_, true, false, _) => Finding::warn(
            "apparmor",
            "on, but there is no apparmor_parser for loadAppArmorProfile",
            "the daemon cannot load podprobe-default; install the package apparmor",
        ),
        (_, true, true, _) => Finding::pass("apparmor", "on; the daemon loads podprobe-default"),
        (.., Some(true)) => Finding::pass("apparmor", "on, with podprobe-default"),
        (.., Some(false)) => Finding::warn(
            "apparmor",
            "on, without podprobe-default",
            "containers with RuntimeDefault do not start, and those that ask for nothing run unconfined; set loadAppArmorProfile, or load \
             the profile with apparmor_parser",
        ),
        (.., None) => Finding::pass("apparmor", "on"),
    }
}

fn swap(facts: &Facts) -> Finding {
    let too_old = version(&facts.kernel).is_some_and(|v| v < NO_SWAP_KERNEL);
    match (facts.has_swap, too_old) {
        (false, _) => Finding::pass("swap", "none"),
        (true, false) => Finding::pass("swap", "volumes in memory are kept out of it"),
        (true, true) => Finding::warn(
            "swap",
            "on, and this kernel swaps volumes in memory too",
            "Secrets may be written to the disk; switch it off with 'swapoff -a', or use Linux 6.4 or newer",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Grade::{self, Fail, Warn};
    use super::super::resources::tests::good;
    use super::*;

    /// Changes the facts of a good node, and checks the findings that are not PASS.
    #[track_caller]
    fn check(change: impl FnOnce(&mut Facts), expected: &[(Grade, &str, &str)]) {
        let mut facts = good();
        change(&mut facts);
        let findings = judge(&facts);
        let bad = findings.iter().filter(|f| f.grade != Grade::Pass);
        let bad: Vec<_> = bad.map(|f| (f.grade, f.name, f.found.as_str())).collect();
        assert_eq!(bad, expected);
        for finding in &findings {
            let has_advice = finding.advice.contains(';');
            assert_eq!(finding.grade != Grade::Pass, has_advice, "{finding:?}");
        }
    }

    #[test]
    fn a_good_node_passes_everything() {
        check(|_| {}, &[]);
        let names: Vec<&str> = judge(&good()).iter().map(|f| f.name).collect();
        let expected = "root kernel namespaces cgroups cpu memory devices overlayfs bridge nat frame-filter services seccomp \
                        apparmor inotify clock disk random memory-free swap configuration";
        assert_eq!(names.join(" "), expected);
    }

    #[test]
    fn rights_are_judged_by_what_needs_them() {
        let not_root = |facts: &mut Facts| {
            facts.is_root = false;
            (facts.overlay, facts.network, facts.packet_filter) = (None, None, None);
        };
        let untried = "not looked at";
        check(
            not_root,
            &[
                (Fail, "root", "this is not root"),
                (Warn, "overlayfs", untried),
                (Warn, "bridge", untried),
                (Warn, "services", untried),
            ],
        );
        for (capability, grade, found) in [
            (SYS_ADMIN, Fail, "root without CAP_SYS_ADMIN"),
            (NET_ADMIN, Warn, "root without CAP_NET_ADMIN"),
            (SYS_RESOURCE, Warn, "root without CAP_SYS_RESOURCE"),
        ] {
            check(|f| f.capabilities &= !capability, &[(grade, "root", found)]);
        }
    }

    #[test]
    fn old_kernels_fail() {
        let of = |release: &'static str| move |f: &mut Facts| f.kernel = release.into();
        check(of("5.10.200"), &[(Fail, "kernel", "Linux 5.10.200")]);
        check(of("4.19.0-rc1"), &[(Fail, "kernel", "Linux 4.19.0-rc1")]);
        check(of("5.11"), &[(Fail, "kernel", "Linux 5.11")]);
        check(of("5.12"), &[]);
        check(of("10.0.1"), &[]);
    }

    #[test]
    fn a_system_call_is_missing_or_forbidden() {
        let call = |call, errno| move |f: &mut Facts| f.calls = vec![(call, Err(errno))];
        let (missing, forbidden) = ("the kernel does not have it", "a seccomp filter forbids it");
        check(
            call(Call::Clone3, Errno::EPERM),
            &[(Warn, "clone3", forbidden)],
        );
        check(
            call(Call::Openat2, Errno::ENOSYS),
            &[(Fail, "openat2", missing)],
        );
        let mount = [(Fail, "mount_setattr", missing)];
        check(call(Call::MountSetattr, Errno::ENOSYS), &mount);
    }

    #[test]
    fn cgroups_must_be_there_and_writable() {
        check(
            |f| f.cgroups.versions.clear(),
            &[(Fail, "cgroups", "none is mounted")],
        );
        check(
            |f| f.cgroups.read_only = Some("/sys/fs/cgroup".into()),
            &[(Fail, "cgroups", "v2, read-only at /sys/fs/cgroup")],
        );
        let none = "no cgroup controller limits it";
        check(
            |f| f.cgroups.missing = vec!["memory"],
            &[(Warn, "memory", none)],
        );
        check(|f| f.cgroups.missing = vec!["cpu"], &[(Warn, "cpu", none)]);
    }

    #[test]
    fn a_v1_hierarchy_beside_v2_is_named() {
        let beside = |options: &str| {
            let line = format!("40 30 0:40 / /sys/fs/cgroup/x rw - cgroup x {options}");
            move |f: &mut Facts| {
                f.cgroups.beside = crate::base::sys::mountinfo::parse(&line);
                f.cgroups.missing = vec!["cpu"];
            }
        };
        let held = "the v1 hierarchy at /sys/fs/cgroup/x holds it, and cgroups here are v2";
        check(beside("rw,cpu,cpuacct"), &[(Warn, "cpu", held)]);
        let none = "no cgroup controller limits it";
        check(beside("rw,net_cls"), &[(Warn, "cpu", none)]);
        let mut facts = good();
        beside("rw,net_cls")(&mut facts);
        let found = judge(&facts).into_iter().find(|f| f.name == "cgroups");
        assert_eq!(
            found.unwrap().found,
            "v2; left alone, of v1: /sys/fs/cgroup/x"
        );
    }

    #[test]
    fn devices_must_be_filtered() {
        let refused = |f: &mut Facts| f.device_filter = Some(Err("Operation not permitted".into()));
        check(
            refused,
            &[(
                Fail,
                "devices",
                "bpf(2) cannot filter them: Operation not permitted",
            )],
        );
        check(|f| f.device_filter = None, &[]);
    }

    #[test]
    fn what_the_network_lacks_is_named_by_part() {
        let lack = |what| {
            let text = "what follows".to_owned();
            move |f: &mut Facts| f.network = Some(vec![Missing { what, text }])
        };
        check(lack(Part::Bridge), &[(Warn, "bridge", "the kernel cannot")]);
        check(lack(Part::Nat), &[(Warn, "nat", "the kernel cannot")]);
        let mut facts = good();
        lack(Part::Bridge)(&mut facts);
        let tried = judge(&facts).iter().any(|f| f.name == "nat");
        assert!(!tried, "without a bridge nothing is known of nat");
        let filter = |why: Result<Option<&str>, &str>| {
            let why = why.map(|w| w.map(str::to_owned)).map_err(str::to_owned);
            move |f: &mut Facts| f.packet_filter = Some(why)
        };
        check(
            filter(Err("no nftables")),
            &[(Warn, "services", "no nftables")],
        );
        let only = "in nftables, IPv4 only: no fib";
        check(filter(Ok(Some("no fib"))), &[(Warn, "services", only)]);
    }

    #[test]
    fn the_rest_of_the_kernel() {
        check(
            |f| f.missing_namespaces = vec!["pid", "uts"],
            &[(
                Fail,
                "namespaces",
                "the kernel has no namespaces of pid, uts",
            )],
        );
        check(
            |f| f.overlay = Some(Err("ENODEV".into())),
            &[(Fail, "overlayfs", "ENODEV")],
        );
        check(
            |f| f.seccomp = false,
            &[(Warn, "seccomp", "the kernel has no filters")],
        );
        check(|f| f.app_armor.is_enabled = false, &[]);
        check(|f| f.app_armor.is_loaded = None, &[]);
        check(
            |f| f.app_armor.is_loaded = Some(false),
            &[(Warn, "apparmor", "on, without podprobe-default")],
        );
        let allowed = |f: &mut Facts| {
            (f.app_armor.is_loaded, f.app_armor.is_allowed) = (Some(false), true);
        };
        check(allowed, &[]);
        check(
            |f| {
                allowed(f);
                f.app_armor.has_parser = false;
            },
            &[(
                Warn,
                "apparmor",
                "on, but there is no apparmor_parser for loadAppArmorProfile",
            )],
        );
        check(|f| f.app_armor.has_parser = false, &[]);
        check(
            |f| f.configuration = Err("bad".into()),
            &[(Fail, "configuration", "bad")],
        );
        check(|f| f.has_swap = true, &[]);
        let old = |f: &mut Facts| (f.has_swap, f.kernel) = (true, "6.3.1".into());
        let swapped = "on, and this kernel swaps volumes in memory too";
        check(old, &[(Warn, "swap", swapped)]);
    }
}
