//! Judges the resources of a node that can run out: inotify, disk space and memory. Also judges the clock.
//!
//! Invariants: pure.

use std::time::{Duration, SystemTime};

use super::facts::{Disk, Facts, Share};
use super::finding::Finding;
use crate::base::clock::Time;
use crate::cli::human::{duration, size};

/// The number of inotify watches and instances that must be free. podprobe itself needs only a few watches and
/// instances, but containers and other programs of root share the limits.
const LEAST_WATCHES: u64 = 64;
const LEAST_INSTANCES: u64 = 8;
/// 2026-01-01, as time since 1970. Certificates that are in use today were not valid before this date, so an
/// earlier clock is wrong.
const EARLIEST: Duration = Duration::from_secs(1_767_225_600);
/// 2100-01-01, as time since 1970.
const LATEST: Duration = Duration::from_secs(4_102_444_800);
const MIB: u64 = 1 << 20;
/// The available memory in bytes below which the kernel may kill processes under a small load.
const LEAST_MEMORY: u64 = 32 * MIB;
const LEAST_INODES: u64 = 1000;

/// Judges the resources, in the order of the facts.
pub fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![inotify(facts), clock(facts.now, facts.up)];
    findings.extend(facts.disks.iter().map(disk));
    findings.push(match &facts.random {
        Ok(()) => Finding::pass("random", "/dev/urandom"),
        Err(e) => Finding::fail(
            "random",
            format!("/dev/urandom: {e}"),
            "no TLS connection can be made, and no UID; make it: mknod -m 666 /dev/urandom c 1 9",
        ),
    });
    findings.push(memory(facts));
    findings
}

fn inotify(facts: &Facts) -> Finding {
    let short = |share: Share, least: u64| {
        share
            .limit
            .is_some_and(|limit| limit.saturating_sub(share.used) < least)
    };
    let text = |share: Share| match share.limit {
        Some(limit) => format!("{} of {limit}", share.used),
        None => share.used.to_string(),
    };
    let (watches, instances) = (facts.inotify.watches, facts.inotify.instances);
    let found = format!(
        "root uses {} watches, {} instances",
        text(watches),
        text(instances)
    );
    let keys = [
        (
            short(watches, LEAST_WATCHES),
            "fs.inotify.max_user_watches=65536",
        ),
        (
            short(instances, LEAST_INSTANCES),
            "fs.inotify.max_user_instances=512",
        ),
    ];
    let keys: Vec<&str> = keys
        .iter()
        .filter(|(short, _)| *short)
        .map(|(_, key)| *key)
        .collect();
    match keys.is_empty() {
        true => Finding::pass("inotify", found),
        false => Finding::warn(
            "inotify",
            found,
            format!(
                "changes of pod files and ends of containers are seen late, by looking; raise the limit: sysctl -w {}",
                keys.join(" ")
            ),
        ),
    }
}

fn clock(now: SystemTime, up: Duration) -> Finding {
    let found = format!(
        "{}, up for {}",
        Time::from(now),
        duration(up.as_secs() as i64)
    );
    let since_1970 = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    match (EARLIEST..LATEST).contains(&since_1970) {
        true => Finding::pass("clock", found),
        false => Finding::warn(
            "clock",
            found,
            "certificates are not valid then, so that images are not pulled, and times of events and logs are wrong; set the \
             clock with 'date -s', or run an NTP client",
        ),
    }
}

/// Judges the free space of a disk against two sizes: the smallest size that is enough, and a comfortable size.
fn disk(disk: &Disk) -> Finding {
    const NAME: &str = "disk";
    let (least, comfortable) = match disk.is_small {
        true => (MIB, 8 * MIB),
        false => (16 * MIB, (disk.capacity / 10).clamp(64 * MIB, 1024 * MIB)),
    };
    let dirs: Vec<String> = disk.dirs.iter().map(|d| d.display().to_string()).collect();
    let free = format!("{} of {} free", size(disk.available), size(disk.capacity));
    let found = |what: &str| format!("{}: {what}", dirs.join(", "));
    match () {
        () if disk.read_only => Finding::fail(
            NAME,
            found("read-only"),
            "no record can be written, so no pod starts; mount it writable, or give another --root",
        ),
        () if disk.available < least => Finding::fail(
            NAME,
            found(&free),
            "no pod starts; make room: remove unused images ('podprobe image rm'), old logs and files",
        ),
        () if disk.inodes > 0 && disk.free_inodes < LEAST_INODES => Finding::warn(
            NAME,
            found(&format!(
                "{} of {} inodes free",
                disk.free_inodes, disk.inodes
            )),
            "an image with many files does not fit; remove many small files, or use a file system with more inodes",
        ),
        () if disk.available < comfortable => Finding::warn(
            NAME,
            found(&free),
            "images may not fit, and unused ones are removed; make room, or use a larger disk",
        ),
        () => Finding::pass(NAME, found(&free)),
    }
}

fn memory(facts: &Facts) -> Finding {
    const NAME: &str = "memory-free";
    let Some(memory) = facts.memory else {
        let advice = "the capacity of the node is not known; mount /proc";
        return Finding::fail(NAME, "/proc/meminfo cannot be read", advice);
    };
    let found = format!("{} of {}", size(memory.available), size(memory.total));
    match memory.available < LEAST_MEMORY {
        false => Finding::pass(NAME, found),
        true => Finding::warn(
            NAME,
            found,
            "the kernel may end containers at any time; end other programs, or give pods memory limits",
        ),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::facts::{AppArmorFacts, CgroupFacts, Inotify, Memory};
    use super::super::finding::Grade;
    use super::*;

    /// Returns the facts of a node that lacks nothing.
    pub fn good() -> Facts {
        let share = |limit| Share {
            used: 10,
            limit: Some(limit),
        };
        Facts {
            is_root: true,
            capabilities: u64::MAX,
            kernel: "6.18.44".into(),
            missing_namespaces: vec![],
            calls: crate::base::sys::calls::Call::ALL
                .map(|call| (call, Ok(())))
                .to_vec(),
            cgroups: CgroupFacts {
                versions: vec!["v2"],
                ..CgroupFacts::default()
            },
            device_filter: Some(Ok(())),
            overlay: Some(Ok(())),
            network: Some(vec![]),
            packet_filter: Some(Ok(None)),
            inotify: Inotify {
                watches: share(8192),
                instances: share(128),
            },
            seccomp: true,
            app_armor: AppArmorFacts {
                is_enabled: true,
                is_loaded: Some(true),
                is_allowed: false,
                has_parser: true,
            },
            now: SystemTime::UNIX_EPOCH + EARLIEST,
            up: Duration::from_secs(100),
            disks: vec![Disk {
                dirs: vec!["/var/lib/podprobe".into()],
                capacity: 8 << 30,
                available: 4 << 30,
                inodes: 1 << 20,
                free_inodes: 1 << 19,
                ..Disk::default()
            }],
            random: Ok(()),
            memory: Some(Memory {
                total: 512 * MIB,
                available: 256 * MIB,
            }),
            has_swap: false,
            configuration: Ok(()),
        }
    }

    /// Changes the facts of a good node, and checks the only finding that is not PASS.
    #[track_caller]
    fn check(change: impl FnOnce(&mut Facts), grade: Grade, found: &str, advice: &str) {
        let mut facts = good();
        change(&mut facts);
        let mut bad = judge(&facts);
        bad.retain(|f| f.grade != Grade::Pass);
        let [only] = bad.as_slice() else {
            panic!("{bad:?}")
        };
        assert_eq!((only.grade, only.found.as_str()), (grade, found));
        assert!(only.advice.contains(advice), "{}", only.advice);
    }

    #[test]
    fn inotify_that_is_nearly_used_up_names_the_limit_to_raise() {
        let watches = "root uses 8129 of 8192 watches, 10 of 128 instances";
        let key = "sysctl -w fs.inotify.max_user_watches=65536";
        check(|f| f.inotify.watches.used = 8129, Grade::Warn, watches, key);
        let instances = "root uses 10 of 8192 watches, 130 of 128 instances";
        let key = "sysctl -w fs.inotify.max_user_instances=512";
        check(
            |f| f.inotify.instances.used = 130,
            Grade::Warn,
            instances,
            key,
        );
        let mut facts = good();
        facts.inotify.watches.used = 8192 - LEAST_WATCHES;
        facts.inotify.instances.limit = None;
        assert!(judge(&facts).iter().all(|f| f.grade == Grade::Pass));
    }

    #[test]
    fn a_clock_that_cannot_be_right_is_named() {
        let at = |since: Duration| move |f: &mut Facts| f.now = SystemTime::UNIX_EPOCH + since;
        let boot = "1970-01-01T00:01:40Z, up for 100s";
        check(at(Duration::from_secs(100)), Grade::Warn, boot, "NTP");
        let late = "2100-01-01T00:00:00Z, up for 100s";
        check(at(LATEST), Grade::Warn, late, "NTP");
    }

    #[test]
    fn disks_are_judged_by_what_lies_on_them() {
        let free = |available| move |f: &mut Facts| f.disks[0].available = available;
        let found = |free: &str| format!("/var/lib/podprobe: {free} of 8.59GB free");
        check(
            free(15 * MIB),
            Grade::Fail,
            &found("15.7MB"),
            "no pod starts",
        );
        check(free(700 * MIB), Grade::Warn, &found("734MB"), "make room");
        let run = |f: &mut Facts| {
            f.disks[0].is_small = true;
            f.disks[0].available = 2 * MIB;
        };
        check(run, Grade::Warn, &found("2.10MB"), "make room");
        let read_only = "/var/lib/podprobe: read-only";
        check(
            |f| f.disks[0].read_only = true,
            Grade::Fail,
            read_only,
            "--root",
        );
        let inodes = "/var/lib/podprobe: 999 of 1048576 inodes free";
        check(
            |f| f.disks[0].free_inodes = 999,
            Grade::Warn,
            inodes,
            "inodes",
        );
        let mut without_inodes = good();
        (
            without_inodes.disks[0].inodes,
            without_inodes.disks[0].free_inodes,
        ) = (0, 0);
        assert!(
            judge(&without_inodes)
                .iter()
                .all(|f| f.grade == Grade::Pass)
        );
    }

    #[test]
    fn memory_and_random_bytes() {
        let little = |f: &mut Facts| f.memory.as_mut().unwrap().available = LEAST_MEMORY - 1;
        check(little, Grade::Warn, "33.6MB of 537MB", "limits");
        let unknown = "/proc/meminfo cannot be read";
        check(|f| f.memory = None, Grade::Fail, unknown, "mount /proc");
        let none = "/dev/urandom: not there";
        check(
            |f| f.random = Err("not there".into()),
            Grade::Fail,
            none,
            "mknod",
        );
    }
}
