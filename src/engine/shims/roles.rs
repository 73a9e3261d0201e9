//! Finds shims and sandbox holders by their processes alone, without their records, so that lost records can be written
//! again.
//!
//! Invariants: a process counts only if root has put it where shims are. The name of a container's process and the
//! files that it holds are never believed.

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

/// Name of the shim's role in its command line.
pub const SHIM: &str = "shim";
/// Name of the sandbox holder's role in its command line.
pub const SANDBOX: &str = "sandbox";
/// Target of the link below /proc/PID/fd that leads to a process's own copy of its record.
const COPY: &str = "/memfd:podprobe-record (deleted)";
/// Maximum number of bytes that are read of a copy.
const MAX_COPY: u64 = 1 << 20;

/// Keeps a copy of a record in memory, as long as this process keeps the returned descriptor. No process can change the
/// copy. Returns None if no copy could be made.
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

/// Reads the copy of the record that a shim or holder has kept. The process of an older podprobe has no copy.
pub fn copy_of<T: DeserializeOwned>(role: Process) -> Option<T> {
    let open = fs::read_dir(format!("/proc/{}/fd", role.pid)).ok()?;
    let copy = open
        .flatten()
        .find(|fd| fs::read_link(fd.path()).is_ok_and(|to| to == Path::new(COPY)))?;
    let mut bytes = Vec::new();
    // The copy is opened again, so reading starts at its beginning.
    let file = File::open(copy.path()).ok()?;
    file.take(MAX_COPY).read_to_end(&mut bytes).ok()?;
    let what = format!("the copy of process {}", role.pid);
    let record = record_file::parse(&what, &bytes).ok()?;
    role.alive().then_some(record)
}

/// Returns the running processes of a role with their record directories, even if the directory is gone. `shims_cgroup`
/// is the cgroup to which these processes have moved.
pub fn running(role: &str, shims_cgroup: &str) -> Vec<(Process, PathBuf)> {
    running_of(role, shims_cgroup, |_| true)
}

/// Returns the running process of a role that has the record directory `dir`; None if no such process runs.
pub fn of_dir(role: &str, dir: &Path, shims_cgroup: &str) -> Option<Process> {
    let found = running_of(role, shims_cgroup, |of| of == dir);
    found.first().map(|(process, _)| *process)
}

/// Returns the running processes of a role with a record directory that `wanted` accepts. From other processes only the
/// command line is read.
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
        // Checked last: a process that is still alive had the pid during all checks.
        (is_ours(pid, &cgroups, shims_cgroup) && process.alive()).then_some((process, dir))
    });
    found.collect()
}

/// Returns the directory if the process has the command line `podprobe <role> <dir>`.
fn dir_of(pid: i32, role: &str) -> Option<PathBuf> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut words = line.split(|b| *b == 0).skip(1);
    let is_role = words.next()? == role.as_bytes();
    let dir = Path::new(std::ffi::OsStr::from_bytes(words.next()?));
    (is_role && dir.is_absolute()).then(|| dir.to_owned())
}

/// Returns true if root has started the process in the daemon's namespaces, and it is in the cgroup of shims. A shim
/// that could not move there is in the daemon's own cgroup, which counts too.
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

/// Returns true if the real, effective, saved and file system uid are all 0.
fn is_root(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let uids = status.lines().find_map(|l| l.strip_prefix("Uid:"));
    uids.is_some_and(|uids| uids.split_whitespace().all(|uid| uid == "0"))
}

/// Finds the running processes of a container: its shim, and the first process in its cgroup. Returns `None` if neither
/// process runs.
pub fn state_of(record: &ContainerRecord, dir: &Path) -> Option<ContainerState> {
    let shim = of_dir(SHIM, dir, &record.shims_cgroup);
    let cgroups = Cgroups::detect().ok()?;
    let process = first_process(&cgroups.dirs(&record.cgroup), dir);
    if shim.is_none() && process.is_none() {
        return None;
    }
    // Until the container has started, the shim's stdin is the daemon's pipe; afterwards it is /dev/null.
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

/// Returns the process that the OCI runtime has named, if it is in the cgroup, and otherwise the oldest process in the
/// cgroup. Commands that are executed in the container do not count, because they have cgroups of their own below it.
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

/// Returns the time at which a process was started.
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
