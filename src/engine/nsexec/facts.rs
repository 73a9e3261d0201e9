//! Facts from `/proc` about the container's first process and about this process.
//!
//! Invariants: the pidfd of the first process is opened before its facts are read, and the caller checks the pidfd
//! again after the last read. So all facts are about the process of the pidfd, and the start time shows that this is
//! the right process. Facts that do not change while a container runs are read once. They are kept as numbers and
//! texts, never as descriptors: after a container's end only a small [`Seen`] is left.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, open, openat, openat2};
use nix::sys::stat::{Mode, fstat, fstatat};

use super::Target;
use super::cgroup::{self, Place};
use super::error::ExecError;
use crate::base::locks::Locked;
use crate::base::sys;
use crate::base::sys::task::{PidFd, parse_start_time};

/// Namespace files of `/proc/PID/ns`, with their CLONE_NEW* flags. User namespaces are not in the list, because
/// podprobe gives containers no user namespace, and a user namespace that the first process has made is not for
/// commands.
const NAMESPACES: [(&str, i32); 6] = [
    ("mnt", libc::CLONE_NEWNS),
    ("pid", libc::CLONE_NEWPID),
    ("net", libc::CLONE_NEWNET),
    ("ipc", libc::CLONE_NEWIPC),
    ("uts", libc::CLONE_NEWUTS),
    ("cgroup", libc::CLONE_NEWCGROUP),
];

/// Upper limit in bytes for the part of a container's passwd file that is read.
const PASSWD_LIMIT: u64 = 1 << 20;

/// Upper limit in bytes for the part of a file of `/proc` that is read. The files that are read have a few hundred
/// bytes.
const PROC_LIMIT: u64 = 1 << 20;

/// Largest number of containers with kept facts. A node has some hundred containers. At this limit all kept facts are
/// dropped, and read again when they are needed.
const SEEN_LIMIT: usize = 512;

#[derive(Debug)]
pub(super) struct Facts {
    pub(super) pidfd: PidFd,
    /// Descriptor of the container's root directory.
    pub(super) root: OwnedFd,
    /// The kept facts about the container's first process, including its cgroups.
    pub(super) seen: Arc<Seen>,
    pub(super) known: Known,
}

/// The facts about a container's first process that do not change while the process runs. Its cgroups change only when
/// the process is moved.
#[derive(Debug)]
pub(super) struct Seen {
    /// Inode of the pidfd. From Linux 6.9 on, this number identifies the process: no other process of this boot has the
    /// same number. None on older kernels.
    pub(super) inode: Option<u64>,
    /// CLONE_NEW* flags of the container's namespaces that differ from those of this process.
    pub(super) namespaces: i32,
    /// Content of `/proc/PID/cgroup`.
    pub(super) cgroups: String,
    pub(super) places: Vec<Place>,
}

/// The facts that are kept about containers. The key is the pid and the start time of a container's first process.
pub(super) static SEEN: Mutex<BTreeMap<(i32, u64), Arc<Seen>>> = Mutex::new(BTreeMap::new());

/// The facts from which the plan for a command is made.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// CLONE_NEW* flags of the container's namespaces that differ from those of this process.
    pub(super) namespaces: i32,
    /// Permitted capabilities of this process.
    pub(super) permitted: u64,
    /// Content of the container's `/etc/passwd`. Empty if the container has no such file, or if the file cannot be
    /// read.
    pub(super) passwd: String,
}

impl Facts {
    pub(super) fn read(target: &Target<'_>) -> Result<Facts, ExecError> {
        let gone = |e: Errno, what: &str| match e {
            Errno::ESRCH | Errno::ENOENT | Errno::EINVAL => {
                forget(target);
                ExecError::NotRunning { pid: target.pid }
            }
            e => ExecError::os(format!("cannot {what} of process {}", target.pid), e),
        };
        if target.pid <= 0 {
            return Err(ExecError::NotRunning { pid: target.pid });
        }
        let proc = host_proc().map_err(|e| ExecError::os("cannot open /proc", e))?;
        let pidfd = PidFd::of(target.pid).map_err(|e| match e.raw_os_error() {
            Some(errno) => gone(Errno::from_raw(errno), "open a pidfd"),
            None => gone(Errno::ESRCH, "open a pidfd"),
        })?;
        let seen = Seen::of(target, proc, &pidfd, &gone)?;
        let path = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root = path_of(target.pid, "root");
        let root = openat(proc, root.as_c_str(), path, Mode::empty())
            .map_err(|e| gone(e, "open the root directory"))?;
        let known = Known {
            namespaces: seen.namespaces,
            permitted: sys::permitted_capabilities()
                .map_err(|e| ExecError::os("cannot read our capabilities", e))?,
            passwd: String::new(),
        };
        Ok(Facts {
            pidfd,
            root,
            seen,
            known,
        })
    }

    /// Tells whether the container's first process still runs. If it runs, everything that was read before is about
    /// this process.
    pub(super) fn still_running(&self) -> bool {
        self.pidfd
            .wait(std::time::Duration::ZERO)
            .is_ok_and(|ended| !ended)
    }
}

/// Returns the content of the passwd file below a container's root. Returns an empty text if the file is missing or
/// cannot be read. Does not leave the root, and does not wait on a file that is not a regular file.
pub(super) fn passwd_below(root: &OwnedFd) -> String {
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let how = OpenHow::new()
        .flags(flags)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let opened = openat2(root, "etc/passwd", how).map(std::fs::File::from);
    let plain = opened
        .ok()
        .filter(|f| f.metadata().is_ok_and(|m| m.is_file()));
    let mut bytes = Vec::new();
    if let Some(file) = plain {
        let _ = file.take(PASSWD_LIMIT).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Seen {
    /// Returns the facts about the container's first process: the kept facts if there are any, or else facts that are
    /// read now. Fails if the pid belongs to another process now.
    fn of(
        target: &Target<'_>,
        proc: BorrowedFd<'static>,
        pidfd: &PidFd,
        gone: &dyn Fn(Errno, &str) -> ExecError,
    ) -> Result<Arc<Seen>, ExecError> {
        let inode = inode(pidfd);
        let key = (target.pid, target.start_time);
        let old = SEEN.locked().get(&key).cloned();
        // Start times count in hundredths of a second, so two processes with the same pid may have the same start time.
        // The inode distinguishes the two.
        if old.as_ref().is_some_and(|s| s.inode != inode) {
            return Err(gone(Errno::ESRCH, "find the process"));
        }
        if old.is_none() || inode.is_none() {
            check_start(target, proc, gone)?;
        }
        let cgroups = read_at(proc, &path_of(target.pid, "cgroup"))
            .map_err(|e| gone(e, "read the cgroups"))?;
        if let Some(old) = old.as_ref().filter(|o| o.cgroups == cgroups) {
            return Ok(old.clone());
        }
        let namespaces = match old {
            Some(old) => old.namespaces,
            None => namespaces(proc, target.pid).map_err(|e| gone(e, "read the namespaces"))?,
        };
        check_time_namespace(proc, target.pid)?;
        let seen = Arc::new(Seen {
            inode,
            namespaces,
            places: cgroup::places_of(&cgroups),
            cgroups,
        });
        let mut all = SEEN.locked();
        if all.len() >= SEEN_LIMIT {
            all.clear();
        }
        all.insert(key, seen.clone());
        Ok(seen)
    }
}

fn forget(target: &Target<'_>) {
    SEEN.locked().remove(&(target.pid, target.start_time));
}

/// Returns a descriptor of the host's `/proc`, which is opened once.
pub(super) fn host_proc() -> Result<BorrowedFd<'static>, Errno> {
    static PROC: OnceLock<OwnedFd> = OnceLock::new();
    if let Some(proc) = PROC.get() {
        return Ok(proc.as_fd());
    }
    let opened = open(
        "/proc",
        OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )?;
    Ok(PROC.get_or_init(|| opened).as_fd())
}

/// Returns the path `PID/name`.
fn path_of(pid: i32, name: &str) -> CString {
    CString::new(format!("{pid}/{name}")).unwrap_or_default()
}

/// Returns the inode of a pidfd. Returns None if the kernel gives all pidfds the same inode.
fn inode(pidfd: &PidFd) -> Option<u64> {
    /// Type of the file system of pidfds (`PID_FS_MAGIC`).
    const PIDFS: u64 = 0x5049_4446;
    // On older kernels all pidfds share one anonymous inode. Any pidfd shows which kind of kernel this is.
    static UNIQUE: OnceLock<bool> = OnceLock::new();
    let unique =
        || nix::sys::statfs::fstatfs(pidfd).is_ok_and(|s| s.filesystem_type().0 as u64 == PIDFS);
    if !*UNIQUE.get_or_init(unique) {
        return None;
    }
    Some(fstat(pidfd).ok()?.st_ino)
}

/// Checks that the process with the target's pid has the start time of the container's first process and has not ended.
fn check_start(
    target: &Target<'_>,
    proc: BorrowedFd<'_>,
    gone: &dyn Fn(Errno, &str) -> ExecError,
) -> Result<(), ExecError> {
    let stat = read_at(proc, &path_of(target.pid, "stat")).map_err(|e| gone(e, "read stat"))?;
    if parse_start_time(stat.as_bytes()) == Some(target.start_time) {
        return Ok(());
    }
    forget(target);
    Err(ExecError::NotRunning { pid: target.pid })
}

/// Reads a small file of the kernel.
pub(super) fn read_at(dir: BorrowedFd<'_>, name: &CStr) -> Result<String, Errno> {
    let fd = openat(dir, name, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    // A single read gives the whole content if it fits.
    let mut first = [0u8; 2048];
    let n = nix::unistd::read(&fd, &mut first)?;
    let mut bytes = first[..n].to_vec();
    if n == first.len() {
        let read = std::fs::File::from(fd)
            .take(PROC_LIMIT)
            .read_to_end(&mut bytes);
        read.map_err(|e| e.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
    }
    // The file may hold the name of a process. A process can choose its own name, which may not be UTF-8.
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
}

fn namespaces(proc: BorrowedFd<'static>, pid: i32) -> Result<i32, Errno> {
    let mut flags = 0;
    for (name, flag) in NAMESPACES {
        if identity(proc, &path_of(pid, &format!("ns/{name}")))? != own(proc, name)? {
            flags |= flag;
        }
    }
    Ok(flags)
}

/// Device and inode number of a namespace.
type Identity = (libc::dev_t, libc::ino_t);

fn identity(dir: BorrowedFd<'_>, path: &CStr) -> Result<Identity, Errno> {
    let stat = fstatat(dir, path, AtFlags::empty())?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Returns the identity of a namespace of this process. All threads of this process stay in the same namespaces, except
/// the network namespace.
fn own(proc: BorrowedFd<'static>, name: &str) -> Result<Identity, Errno> {
    identity(
        proc,
        &CString::new(format!("self/ns/{name}")).unwrap_or_default(),
    )
}

/// Returns an error if the container has a time namespace. A process that shares the daemon's memory cannot enter a
/// time namespace, and no runtime for Kubernetes makes one.
fn check_time_namespace(proc: BorrowedFd<'static>, pid: i32) -> Result<(), ExecError> {
    let same =
        own(proc, "time").and_then(|ours| Ok(ours == identity(proc, &path_of(pid, "ns/time"))?));
    match same {
        Ok(false) => Err(ExecError::Invalid(
            "it has a time namespace of its own, which is not supported".into(),
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
pub(super) fn inode_of(pid: i32) -> Option<u64> {
    inode(&PidFd::of(pid).unwrap())
}
