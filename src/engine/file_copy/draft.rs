//! A file that is being written. Until the file is whole, it has no name, or a temporary name that podprobe has given.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{Mode, fchmod, futimens};
use nix::sys::time::TimeSpec;
use nix::unistd::{UnlinkatFlags, linkat, unlinkat};

/// Mask of the permission bits that a new file keeps. Set-user-id and set-group-id are dropped.
const MODE: u32 = 0o1777;
/// Number of temporary names that are tried for one file.
const TRIES: usize = 100;

pub(super) fn time_spec((seconds, nanos): (i64, i64)) -> TimeSpec {
    TimeSpec::new(seconds as _, nanos as _)
}

pub(super) fn set_mode_and_time(fd: impl AsFd, mode: u32, time: TimeSpec) -> Result<(), Errno> {
    let fd = fd.as_fd();
    fchmod(fd, Mode::from_bits_truncate(mode & MODE))?;
    futimens(fd, &time, &time)
}

/// Calls `make` with temporary names, one after the other, until a name is free.
pub(super) fn free_name<T>(
    mut make: impl FnMut(&str) -> Result<T, Errno>,
) -> Result<(T, String), Errno> {
    let from = std::process::id();
    // The time makes the temporary names of each copy different, so a file that a killed process has left is hardly
    // ever in the way.
    let salt = Instant::now();
    for n in 0..TRIES {
        let name = format!(".podprobe-cp-{from}-{}-{n}", salt.elapsed().as_nanos());
        match make(&name) {
            Err(Errno::EEXIST) => {}
            made => return made.map(|made| (made, name)),
        }
    }
    Err(Errno::EEXIST)
}

/// A file that is being written.
pub(super) struct Draft {
    pub(super) file: File,
    /// Temporary name of the file; None if the file system can keep the file without a name.
    name: Option<String>,
}

impl Draft {
    pub(super) fn new(dir: &OwnedFd) -> Result<Self, Errno> {
        let flags = OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        if let Ok(fd) = openat(dir, ".", flags | OFlag::O_TMPFILE, mode) {
            return Ok(Self {
                file: fd.into(),
                name: None,
            });
        }
        let flags = flags | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW;
        let (fd, name) = free_name(|name| openat(dir, name, flags, mode))?;
        Ok(Self {
            file: fd.into(),
            name: Some(name),
        })
    }

    /// Gives the file its final name in `dir`. Replaces a file that has this name already.
    pub(super) fn publish(&self, dir: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
        let draft = match &self.name {
            Some(draft) => draft.clone(),
            None => match self.link(dir, name) {
                // If a file has the final name already, the new file first gets a temporary name, and is then renamed
                // over the old file.
                Err(Errno::EEXIST) => free_name(|draft| self.link(dir, draft.as_bytes()))?.1,
                linked => return linked,
            },
        };
        let renamed = renameat(dir, draft.as_str(), dir, name);
        if renamed.is_err() {
            let _ = unlinkat(dir, draft.as_str(), UnlinkatFlags::NoRemoveDir);
        }
        renamed
    }

    /// Gives the file, which has no name yet, a name in `dir`.
    fn link(&self, dir: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        linkat(
            AT_FDCWD,
            path.as_str(),
            dir,
            name,
            AtFlags::AT_SYMLINK_FOLLOW,
        )
    }

    /// Removes the file if it has a temporary name. Called when a copy has failed.
    pub(super) fn discard(&self, dir: &OwnedFd) {
        if let Some(name) = &self.name {
            let _ = unlinkat(dir, name.as_str(), UnlinkatFlags::NoRemoveDir);
        }
    }
}
