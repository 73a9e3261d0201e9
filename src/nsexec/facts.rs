//! What `/proc` says of the container's first process and of us, read once per exec.
//!
//! Invariants: the pidfd and the `/proc/PID` directory are opened before the start time is compared, and the pidfd is
//! looked at again by the caller after the last read, so everything here is of the process that was meant.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, open, openat, openat2};
use nix::sys::stat::{Mode, fstatat};

use super::Target;
use super::error::ExecError;
use crate::sys;

/// Namespace files of `/proc/PID/ns` and their CLONE_NEW* flags.
const NAMESPACES: [(&str, i32); 7] = [
    ("user", libc::CLONE_NEWUSER),
    ("mnt", libc::CLONE_NEWNS),
    ("pid", libc::CLONE_NEWPID),
    ("net", libc::CLONE_NEWNET),
    ("ipc", libc::CLONE_NEWIPC),
    ("uts", libc::CLONE_NEWUTS),
    ("cgroup", libc::CLONE_NEWCGROUP),
];

/// The largest passwd file of a container that is read, in bytes.
const PASSWD_LIMIT: u64 = 1 << 20;

/// The most that is read of a file of `/proc`, in bytes; those read here have a few hundred.
const PROC_LIMIT: u64 = 1 << 20;

#[derive(Debug)]
pub(super) struct Facts {
    pub(super) pidfd: OwnedFd,
    /// Host `/proc`.
    pub(super) proc: OwnedFd,
    /// The container's root directory.
    pub(super) root: OwnedFd,
    /// Lines of `/proc/PID/cgroup`.
    pub(super) cgroups: String,
    pub(super) known: Known,
}

/// The part that the plan decides by.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// CLONE_NEW* flags of the namespaces that are not ours.
    pub(super) namespaces: i32,
    /// Our permitted capabilities.
    pub(super) permitted: u64,
    /// Our `oom_score_adj`.
    pub(super) oom_score_adj: i64,
    /// The container's `/etc/passwd`, empty when it has none that can be read.
    pub(super) passwd: String,
}

impl Facts {
    pub(super) fn read(target: &Target<'_>) -> Result<Facts, ExecError> {
        let gone = |e: Errno, what: &str| match e {
            Errno::ESRCH | Errno::ENOENT | Errno::EINVAL => ExecError::NotRunning { pid: target.pid },
            e => ExecError::os(format!("cannot {what} of process {}", target.pid), e),
        };
        if target.pid <= 0 {
            return Err(ExecError::NotRunning { pid: target.pid });
        }
        let path = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let proc = open("/proc", path, Mode::empty()).map_err(|e| ExecError::os("cannot open /proc", e))?;
        let pidfd = sys::pidfd::open(target.pid).map_err(|e| gone(e, "open a pidfd"))?;
        let dir = openat(&proc, target.pid.to_string().as_str(), path, Mode::empty()).map_err(|e| gone(e, "read /proc"))?;
        let stat = read_at(&dir, "stat").map_err(|e| gone(e, "read stat"))?;
        if start_time(&stat) != Some(target.start_time) || ended(&stat) {
            return Err(ExecError::NotRunning { pid: target.pid });
        }
        let root = openat(&dir, "root", path, Mode::empty()).map_err(|e| gone(e, "open the root directory"))?;
        let cgroups = read_at(&dir, "cgroup").map_err(|e| gone(e, "read the cgroups"))?;
        let known = Known {
            namespaces: namespaces(&proc, &dir).map_err(|e| gone(e, "read the namespaces"))?,
            permitted: sys::permitted_capabilities().map_err(|e| ExecError::os("cannot read our capabilities", e))?,
            oom_score_adj: read_at(&proc, "self/oom_score_adj").ok().and_then(|s| s.trim().parse().ok()).unwrap_or(0),
            passwd: String::new(),
        };
        check_time_namespace(&proc, &dir)?;
        Ok(Facts { pidfd, proc, root, cgroups, known })
    }

    /// Reads the container's passwd file, never leaving its root and never waiting on what is not a plain file.
    pub(super) fn read_passwd(&mut self) {
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let Ok(fd) = openat2(&self.root, "etc/passwd", how) else { return };
        let file = std::fs::File::from(fd);
        if file.metadata().is_ok_and(|m| m.is_file()) {
            let mut bytes = Vec::new();
            let _ = file.take(PASSWD_LIMIT).read_to_end(&mut bytes);
            self.known.passwd = String::from_utf8_lossy(&bytes).into_owned();
        }
    }

    /// Whether the container's first process still runs: what was read before is of it.
    pub(super) fn still_running(&self) -> bool {
        !sys::pidfd::ended(&self.pidfd, std::time::Duration::ZERO)
    }
}

/// Reads a small file below a directory, without the path of it.
pub(super) fn read_at(dir: &OwnedFd, name: &str) -> Result<String, Errno> {
    let fd = openat(dir, name, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    // The kernel gives no size to read at once by; without room for all of it each is read in many small pieces.
    let mut bytes = Vec::with_capacity(2048);
    let read = std::fs::File::from(fd).take(PROC_LIMIT).read_to_end(&mut bytes);
    read.map_err(|e| e.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
    // A process gives itself its name, and that may be no text.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn namespaces(proc: &OwnedFd, dir: &OwnedFd) -> Result<i32, Errno> {
    let mut flags = 0;
    for (name, flag) in NAMESPACES {
        // A probe thread may stand in another network namespace than the rest of the daemon; all else is shared for good.
        let ours = match flag {
            libc::CLONE_NEWNET => identity(proc, "thread-self/ns/net")?,
            _ => own(proc, name)?,
        };
        if identity(dir, &format!("ns/{name}"))? != ours {
            flags |= flag;
        }
    }
    Ok(flags)
}

/// Device and inode of a namespace.
type Identity = (libc::dev_t, libc::ino_t);

fn identity(dir: &OwnedFd, path: &str) -> Result<Identity, Errno> {
    let stat = fstatat(dir, path, AtFlags::empty())?;
    Ok((stat.st_dev, stat.st_ino))
}

/// A namespace that this whole process is in from its start to its end, read once.
fn own(proc: &OwnedFd, name: &'static str) -> Result<Identity, Errno> {
    static OWN: Mutex<BTreeMap<&str, Identity>> = Mutex::new(BTreeMap::new());
    let mut known = OWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(identity) = known.get(name) {
        return Ok(*identity);
    }
    let found = identity(proc, &format!("self/ns/{name}"))?;
    known.insert(name, found);
    Ok(found)
}

/// No process that shares its memory may enter a time namespace, and nothing for Kubernetes makes one.
fn check_time_namespace(proc: &OwnedFd, dir: &OwnedFd) -> Result<(), ExecError> {
    let same = own(proc, "time").and_then(|ours| Ok(ours == identity(dir, "ns/time")?));
    match same {
        Ok(false) => Err(ExecError::Invalid("it has a time namespace of its own, which is not supported".into())),
        _ => Ok(()),
    }
}

/// Field 22 of `/proc/PID/stat`, in clock ticks since boot. The name, field 2, may contain blanks and parentheses.
pub fn start_time(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// A process that is a zombie has no namespaces left to enter.
fn ended(stat: &str) -> bool {
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
    matches!(state, Some("Z" | "X") | None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_is_found_behind_any_name() {
        let tail = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        assert_eq!(start_time(&format!("12 (sh) {tail}")), Some(4711));
        assert_eq!(start_time(&format!("12 (a) R 1 (b) {tail}")), Some(4711));
        assert_eq!(start_time("12 (sh"), None);
        assert!(!ended(&format!("12 (Z) {tail}")));
        assert!(ended("12 (sh) Z 1"));
    }
}
