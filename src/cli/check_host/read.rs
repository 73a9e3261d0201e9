//! Collects the facts about this node.
//!
//! Invariants: nothing on the node is changed. Features that must be tried are tried in a new mount or network
//! namespace, which ends with the attempt. The kernel may load modules for an attempt, as it would for the daemon.
//! This file judges nothing.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::SystemTime;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::statvfs::{FsFlags, statvfs};

use super::facts::{AppArmorFacts, CgroupFacts, Disk, Facts, Inotify, Memory, Share};
use crate::base::clock::Moment;
use crate::base::paths::Layout;
use crate::base::sys;
use crate::base::sys::calls::Call;
use crate::base::sys::cgroup::Cgroups;
use crate::base::sys::cgroup_mounts;
use crate::daemon::settings::{Overrides, Settings};
use crate::engine::shims::app_armor::{AppArmor, load};
use crate::engine::shims::device_program;
use crate::net::netfilter::{Family, Netfilter};
use crate::net::network;

/// Collects all facts, for a daemon with this root.
pub fn facts(layout: &Layout, config: Option<&Path>) -> Facts {
    let is_root = nix::unistd::geteuid().is_root();
    let settings = Settings::load(layout, config, &Overrides::default());
    let release = nix::sys::utsname::uname();
    Facts {
        is_root,
        capabilities: sys::permitted_capabilities().unwrap_or_default(),
        kernel: release.map_or_else(
            |e| e.to_string(),
            |name| name.release().to_string_lossy().into_owned(),
        ),
        missing_namespaces: missing_namespaces(),
        calls: Call::ALL.map(|call| (call, call.attempt())).to_vec(),
        cgroups: cgroups(),
        device_filter: is_root.then(device_filter).flatten(),
        overlay: is_root
            .then(|| aside(CloneFlags::CLONE_NEWNS, try_overlay).and_then(|tried| tried)),
        network: is_root.then(network::lacks),
        packet_filter: is_root
            .then(|| aside(CloneFlags::CLONE_NEWNET, try_packet_filter).and_then(|tried| tried)),
        inotify: inotify(),
        seccomp: Path::new("/proc/sys/kernel/seccomp/actions_avail").exists(),
        app_armor: app_armor(settings.as_ref().is_ok_and(|s| s.load_app_armor_profile)),
        now: SystemTime::now(),
        up: Moment::now().since_boot(),
        disks: disks(layout),
        random: random().map_err(|e| e.to_string()),
        memory: memory(),
        has_swap: fs::read_to_string("/proc/swaps").is_ok_and(|text| text.lines().count() > 1),
        configuration: settings.map(drop).map_err(|e| e.to_string()),
    }
}

fn app_armor(is_allowed: bool) -> AppArmorFacts {
    let kernel = AppArmor::of_the_kernel();
    AppArmorFacts {
        is_enabled: kernel.is_enabled(),
        is_loaded: kernel.has_default(),
        is_allowed,
        has_parser: load::parser().is_some(),
    }
}

fn missing_namespaces() -> Vec<&'static str> {
    let mut kinds = vec!["mnt", "pid", "net", "uts", "ipc", "cgroup"];
    kinds.retain(|kind| fs::symlink_metadata(format!("/proc/self/ns/{kind}")).is_err());
    kinds
}

fn cgroups() -> CgroupFacts {
    let Ok(cgroups) = Cgroups::detect() else {
        return CgroupFacts::default();
    };
    let mut missing = vec!["cpu", "memory"];
    missing.retain(|controller| !cgroups.can_limit(controller));
    CgroupFacts {
        versions: cgroups.versions(),
        beside: cgroup_mounts::read().unwrap_or_default().beside,
        read_only: cgroups.read_only().map(Path::to_owned),
        missing,
    }
}

fn device_filter() -> Option<Result<(), String>> {
    let by_v1 = Cgroups::detect().is_ok_and(|c| c.has_v1("devices"));
    (!by_v1).then(|| device_program::attempt().map_err(|e| e.to_string()))
}

/// Runs `attempt` on a new thread in a new namespace. The namespace ends with the thread.
fn aside<T: Send>(namespace: CloneFlags, attempt: impl FnOnce() -> T + Send) -> Result<T, String> {
    let run = || unshare(namespace).map(|()| attempt());
    let ended = thread::scope(|scope| {
        let thread = thread::Builder::new()
            .stack_size(256 << 10)
            .spawn_scoped(scope, run);
        thread.map(|thread| thread.join())
    });
    match ended {
        Ok(Ok(Ok(result))) => Ok(result),
        Ok(Ok(Err(e))) => Err(format!("no namespace of its own: {}", e.desc())),
        Ok(Err(_)) => Err("the attempt panicked".into()),
        Err(e) => Err(format!("no thread: {e}")),
    }
}

/// Tries to mount an overlay of directories in memory. The mounts are on /proc, because that directory always
/// exists.
fn try_overlay() -> Result<(), String> {
    let no_data = None::<&str>;
    let on = |kind: &str, target: &str, flags: MsFlags, data: Option<&str>| {
        mount(Some(kind), target, Some(kind), flags, data)
            .map_err(|e| format!("cannot mount {kind}: {}", e.desc()))
    };
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(no_data, "/", no_data, private, no_data)
        .map_err(|e| format!("cannot leave the mounts of the node: {}", e.desc()))?;
    on("tmpfs", "/proc", MsFlags::empty(), Some("size=1m"))?;
    for dir in ["lower", "upper", "work", "merged"] {
        let made = fs::create_dir(Path::new("/proc").join(dir));
        made.map_err(|e| format!("cannot make a directory in memory: {e}"))?;
    }
    let layers = "lowerdir=/proc/lower,upperdir=/proc/upper,workdir=/proc/work";
    on("overlay", "/proc/merged", MsFlags::empty(), Some(layers))
}

/// Tests the packet filter as the daemon does. Returns the reason why IPv6 is missing, or `None` if IPv6 works.
fn try_packet_filter() -> Result<Option<String>, String> {
    let mut filter = Netfilter::open().map_err(|e| e.to_string())?;
    let mut attempt = |family| filter.can_translate(family, "check-host");
    attempt(Family::Ip).map_err(|e| e.to_string())?;
    Ok(attempt(Family::Ip6).err().map(|e| e.to_string()))
}

/// Counts the inotify instances and watches of root. The kernel limits these numbers by user, but shows them only
/// by process.
fn inotify() -> Inotify {
    let limit = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/fs/inotify/{name}")).ok()?;
        text.trim().parse().ok()
    };
    let (mut watches, mut instances) = (0, 0);
    for process in entries(Path::new("/proc")) {
        let is_root = fs::metadata(&process).is_ok_and(|m| m.uid() == 0);
        let is_process = process.join("fd").is_dir();
        if !is_root || !is_process {
            continue;
        }
        for fd in entries(&process.join("fd")) {
            let target = fs::read_link(&fd).unwrap_or_default();
            let name = fd.file_name().unwrap_or_default();
            if target == Path::new("anon_inode:inotify") {
                let info = fs::read_to_string(process.join("fdinfo").join(name));
                let lines = info.unwrap_or_default();
                instances += 1;
                watches += lines.lines().filter(|l| l.starts_with("inotify ")).count() as u64;
            }
        }
    }
    Inotify {
        watches: Share {
            used: watches,
            limit: limit("max_user_watches"),
        },
        instances: Share {
            used: instances,
            limit: limit("max_user_instances"),
        },
    }
}

fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path()))
}

/// Returns the file systems of podprobe's directories. If a directory does not exist yet, its nearest existing
/// parent is used instead.
fn disks(layout: &Layout) -> Vec<Disk> {
    let mut found: Vec<(u64, Disk)> = Vec::new();
    for (dir, is_small) in [
        (layout.lib_dir(), false),
        (layout.images(), false),
        (layout.logs_dir(), false),
        (layout.run_dir(), true),
    ] {
        let Some((there, device)) = dir
            .ancestors()
            .find_map(|d| Some((d, fs::metadata(d).ok()?.dev())))
        else {
            continue;
        };
        match found.iter_mut().find(|(known, _)| *known == device) {
            Some((_, disk)) => {
                let is_part = disk.dirs.iter().any(|known| dir.starts_with(known));
                disk.dirs.extend((!is_part).then_some(dir));
                disk.is_small &= is_small;
            }
            None => found.extend(disk(there, &dir, is_small).map(|disk| (device, disk))),
        }
    }
    found.into_iter().map(|(_, disk)| disk).collect()
}

fn disk(there: &Path, dir: &Path, is_small: bool) -> Option<Disk> {
    let fs = statvfs(there).ok()?;
    // The integer types of these numbers depend on the machine.
    let unit = u128::from(fs.fragment_size());
    let bytes = |blocks| u64::try_from(u128::from(blocks) * unit).unwrap_or(u64::MAX);
    Some(Disk {
        dirs: vec![dir.to_owned()],
        is_small,
        capacity: bytes(fs.blocks()),
        available: bytes(fs.blocks_available()),
        inodes: fs.files() as u64,
        free_inodes: fs.files_available() as u64,
        read_only: fs.flags().contains(FsFlags::ST_RDONLY),
    })
}

fn random() -> io::Result<()> {
    fs::File::open("/dev/urandom")?.read_exact(&mut [0; 16])
}

fn memory() -> Option<Memory> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let value = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
        Some(kib * 1024)
    };
    Some(Memory {
        total: value("MemTotal:")?,
        available: value("MemAvailable:")?,
    })
}
