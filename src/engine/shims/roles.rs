//! Shims and sandbox holders as the kernel knows them: found without their records, to write lost records again.
//!
//! Invariants: a process counts only if root has put it where shims are. What a container calls itself is never
//! believed, and neither is what it holds.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::{SysconfVar, sysconf};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::state::{ContainerRecord, ContainerState, Process};
use crate::base::clock::Moment;
use crate::base::record_file;
use crate::base::sys::cgroup::Cgroups;

/// The role of a shim, as its command line has it.
pub const SHIM: &str = "shim";
/// The role of a sandbox holder.
pub const SANDBOX: &str = "sandbox";
/// Name of a role's own copy of its record, as the links below /proc/PID/fd show it.
const COPY: &str = "/memfd:podprobe-record (deleted)";
/// Longest copy that is read, in bytes.
const MAX_COPY: u64 = 1 << 20;

/// Keeps a copy of a record in memory that nobody can change, for as long as this process keeps the descriptor.
pub fn keep_copy<T: Serialize>(record: &T) -> Option<OwnedFd> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let mut file = File::from(memfd_create(c"podprobe-record", flags).ok()?);
    file.write_all(&record_file::to_bytes(record).ok()?).ok()?;
    let seals = SealFlag::F_SEAL_SEAL
        | SealFlag::F_SEAL_WRITE
        | SealFlag::F_SEAL_GROW
        | SealFlag::F_SEAL_SHRINK;
    let _ = fcntl(&file, FcntlArg::F_ADD_SEALS(seals));
    Some(file.into())
}

/// The copy that a role has kept. One of an older podprobe has none.
pub fn copy_of<T: DeserializeOwned>(role: Process) -> Option<T> {
    let open = fs::read_dir(format!("/proc/{}/fd", role.pid)).ok()?;
    let copy = open
        .flatten()
        .find(|fd| fs::read_link(fd.path()).is_ok_and(|to| to == Path::new(COPY)))?;
    let mut bytes = Vec::new();
    // Opened anew, so from its begin.
    let file = File::open(copy.path()).ok()?;
    file.take(MAX_COPY).read_to_end(&mut bytes).ok()?;
    let what = format!("the copy of process {}", role.pid);
    let record = record_file::parse(&what, &bytes).ok()?;
    role.alive().then_some(record)
}

/// The running roles of a kind and their record directories, there or not. `shims_cgroup` is where they have moved to.
pub fn running(role: &str, shims_cgroup: &str) -> Vec<(Process, PathBuf)> {
    running_of(role, shims_cgroup, |_| true)
}

/// The running role of a record directory.
pub fn of_dir(role: &str, dir: &Path, shims_cgroup: &str) -> Option<Process> {
    let found = running_of(role, shims_cgroup, |of| of == dir);
    found.first().map(|(process, _)| *process)
}

/// The running roles of a kind whose record directory is `wanted`. Of all other processes only the command line is read.
fn running_of(
    role: &str,
    shims_cgroup: &str,
    wanted: impl Fn(&Path) -> bool,
) -> Vec<(Process, PathBuf)> {
    let Ok(cgroups) = Cgroups::detect() else {
        return Vec::new();
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|e| e.file_name().to_str()?.parse().ok());
    let found = pids.filter_map(|pid: i32| {
        let process = Process::of(pid)?;
        let dir = dir_of(pid, role).filter(|dir| wanted(dir))?;
        // Looked at last: so all of it is of this process.
        (is_ours(pid, &cgroups, shims_cgroup) && process.alive()).then_some((process, dir))
    });
    found.collect()
}

/// `podprobe <role> <dir>`.
fn dir_of(pid: i32, role: &str) -> Option<PathBuf> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut words = line.split(|b| *b == 0).skip(1);
    let is_role = words.next()? == role.as_bytes();
    let dir = Path::new(std::ffi::OsStr::from_bytes(words.next()?));
    (is_role && dir.is_absolute()).then(|| dir.to_owned())
}

/// True if root has started the process in our namespaces, and it is in the cgroup of shims, or in ours where it could not
/// leave.
fn is_ours(pid: i32, cgroups: &Cgroups, shims_cgroup: &str) -> bool {
    let same = |name: &str| {
        let of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/{name}")).ok();
        of(&pid.to_string()).is_some_and(|ns| Some(ns) == of("self"))
    };
    let cgroup = |pid: &str| fs::read_to_string(format!("/proc/{pid}/cgroup")).ok();
    let is_in_place = !cgroups.dirs_of(pid, shims_cgroup).is_empty()
        || cgroup(&pid.to_string()).is_some_and(|of| Some(of) == cgroup("self"));
    is_in_place && same("pid") && same("user") && is_root(pid)
}

/// Real, effective, saved and file system uid are 0.
fn is_root(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let uids = status.lines().find_map(|l| l.strip_prefix("Uid:"));
    uids.is_some_and(|uids| uids.split_whitespace().all(|uid| uid == "0"))
}

/// Finds by the kernel what runs for a container: its shim, and the first process of its cgroup. Returns `None` when neither
/// is there.
pub fn state_of(record: &ContainerRecord, dir: &Path) -> Option<ContainerState> {
    let shim = of_dir(SHIM, dir, &record.shims_cgroup);
    let cgroups = Cgroups::detect().ok()?;
    let process = first_process(&cgroups.dirs(&record.cgroup), dir);
    if shim.is_none() && process.is_none() {
        return None;
    }
    // A shim gives its input up when the container has started.
    let waits = shim.is_some_and(|shim| {
        let stdin = fs::read_link(format!("/proc/{}/fd/0", shim.pid));
        !stdin.is_ok_and(|to| to == Path::new("/dev/null"))
    });
    let started = process.filter(|_| !waits).map(started);
    Some(ContainerState {
        boot_id: record.boot_id.clone(),
        shim: shim.unwrap_or_default(),
        process,
        cgroups: process
            .map(|p| cgroups.dirs_of(p.pid, &record.cgroup))
            .unwrap_or_default(),
        started_at: started.and_then(wall_clock),
        started,
    })
}

/// The process that the OCI runtime has named, if it is in the cgroup; else the oldest there. Commands that are executed in
/// the container have cgroups of their own below.
fn first_process(cgroups: &[PathBuf], dir: &Path) -> Option<Process> {
    let inside = |cgroup: &PathBuf| {
        let listed = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
        let pids = listed.lines().filter_map(|l| l.parse().ok());
        let all: Vec<Process> = pids.filter_map(Process::of).collect();
        (!all.is_empty()).then_some(all)
    };
    let all = cgroups.iter().find_map(inside)?;
    let named = fs::read_to_string(dir.join("pid")).unwrap_or_default();
    let named = named.trim().parse().unwrap_or(0);
    let oldest = all.iter().min_by_key(|p| (p.start_time, p.pid));
    all.iter().find(|p| p.pid == named).or(oldest).copied()
}

/// Returns the moment when a process was made.
fn started(process: Process) -> Moment {
    let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten();
    let ticks = ticks.and_then(|n| u64::try_from(n).ok()).unwrap_or(100);
    let hundredths = process.start_time.saturating_mul(100) / ticks.max(1);
    Moment::from_boot(Duration::from_millis(hundredths.saturating_mul(10)))
}

fn wall_clock(at: Moment) -> Option<SystemTime> {
    SystemTime::now().checked_sub(Moment::now().since(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_read_back_from_the_process_that_keeps_it_and_cannot_be_changed() {
        let me = Process::of(std::process::id().cast_signed()).unwrap();
        let record = Process {
            pid: 5,
            start_time: 7,
        };
        let copy = keep_copy(&record).unwrap();
        assert_eq!(copy_of::<Process>(me), Some(record));
        let mut file = File::from(copy);
        assert!(file.write_all(b"x").is_err());
        drop(file);
    }

    #[test]
    fn the_start_of_a_process_is_on_the_boot_clock() {
        let before = Moment::now();
        let mut child = std::process::Command::new("/bin/sleep")
            .arg("100")
            .spawn()
            .unwrap();
        let at = started(Process::of(child.id().cast_signed()).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        let tick = Duration::from_millis(20);
        assert!(at + tick >= before && at <= Moment::now() + tick, "{at:?}");
    }
}
