//! Opens paths in the container's root, and makes missing files and directories.
//!
//! Invariants: a path is resolved with the container's root as the root, and no link of /proc into a process is
//! followed. A file that was found is used by its descriptor.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2, readlinkat};
use nix::libc::{dev_t, ino_t};
use nix::sys::stat::{Mode, SFlag, fstat, mkdirat, mknodat};

use super::Root;

/// Maximum number of links that are followed on the way to a missing file, the same as in the kernel.
const MAX_LINKS: usize = 40;
/// Maximum number of times that a path is resolved again because other processes changed it meanwhile.
const TRIES: usize = 64;

/// The kind of file to make at a path where no file exists.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Directory,
    File,
}

impl Root {
    pub(super) fn open(&self, path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
        self.resolve(path, flags, ResolveFlag::RESOLVE_NO_MAGICLINKS)
    }

    fn resolve(&self, path: &Path, flags: OFlag, links: ResolveFlag) -> nix::Result<OwnedFd> {
        let resolve = ResolveFlag::RESOLVE_IN_ROOT | links;
        let how = OpenHow::new()
            .flags(flags | OFlag::O_CLOEXEC)
            .resolve(resolve);
        let mut tries = 0;
        loop {
            match openat2(&self.0, path, how) {
                Err(Errno::EAGAIN) if tries < TRIES => tries += 1,
                other => return other,
            }
        }
    }

    /// Opens `path`. If it does not exist, makes it with its parent directories. If a link leads to a missing file,
    /// makes that file.
    pub(super) fn make(&self, path: &Path, kind: Kind) -> nix::Result<OwnedFd> {
        let mut todo: VecDeque<OsString> = names(path).collect();
        let (mut done, mut links) = (PathBuf::from("/"), 0);
        let mut at = self.open(&done, OFlag::O_PATH)?;
        while let Some(name) = todo.pop_front() {
            let next = done.join(&name);
            at = match self.open(&next, OFlag::O_PATH) {
                Err(Errno::ENOENT) => {
                    if let Ok(target) = readlinkat(&at, name.as_os_str()) {
                        links += 1;
                        if links > MAX_LINKS {
                            return Err(Errno::ELOOP);
                        }
                        let target = PathBuf::from(target);
                        names(&target).rev().for_each(|n| todo.push_front(n));
                        if target.is_absolute() {
                            done = "/".into();
                            at = self.open(&done, OFlag::O_PATH)?;
                        }
                        continue;
                    }
                    let kind = if todo.is_empty() {
                        kind
                    } else {
                        Kind::Directory
                    };
                    make_one(&at, &name, kind)?;
                    self.open(&next, OFlag::O_PATH)?
                }
                other => other?,
            };
            done = next;
        }
        Ok(at)
    }

    /// Returns device and inode of the file at `path`; None if there is no file.
    pub(super) fn identity(&self, path: &str) -> Option<(dev_t, ino_t)> {
        let found = self.open(Path::new(path), OFlag::O_PATH);
        let found = found.and_then(|found| fstat(&found)).ok()?;
        Some((found.st_dev, found.st_ino))
    }

    pub(super) fn leads_a_link_to(&self, destination: &str) -> bool {
        let links = ResolveFlag::RESOLVE_NO_SYMLINKS;
        self.resolve(Path::new(destination), OFlag::O_PATH, links)
            .is_err()
    }
}

fn make_one(above: &OwnedFd, name: &OsStr, kind: Kind) -> nix::Result<()> {
    let mode = Mode::from_bits_truncate(0o755);
    let made = match kind {
        Kind::Directory => mkdirat(above, name, mode),
        Kind::File => mknodat(
            above,
            name,
            SFlag::S_IFREG,
            Mode::from_bits_truncate(0o644),
            0,
        ),
    };
    match made {
        // Another process has made the file meanwhile.
        Err(Errno::EEXIST) => Ok(()),
        other => other,
    }
}

/// Returns the parts of a path: names and `..`.
fn names(path: &Path) -> impl DoubleEndedIterator<Item = OsString> + '_ {
    let all = path.components();
    all.filter(|c| matches!(c, Component::Normal(_) | Component::ParentDir))
        .map(|c| OsStr::from_bytes(c.as_os_str().as_bytes()).to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::tests::root;
    use super::*;

    #[test]
    fn what_is_made_stays_below_the_root_whatever_the_links() {
        let dir = tempfile::tempdir().unwrap();
        let (inside, outside) = (dir.path().join("root"), dir.path().join("outside"));
        fs::create_dir_all(inside.join("a")).unwrap();
        fs::create_dir(&outside).unwrap();
        for (name, target) in [
            ("out", outside.to_str().unwrap()),
            ("a/up", "../../../new"),
            ("var", "/run"),
            ("loop", "/loop/x"),
        ] {
            symlink(target, inside.join(name)).unwrap();
        }
        let root = root(&inside);
        let make = |path: &str, kind| root.make(Path::new(path), kind).map(drop);
        let made = |path: &Path| fs::metadata(path).map(|m| m.is_dir()).ok();
        assert_eq!(make("/out/x", Kind::Directory), Ok(()));
        assert_eq!(made(&outside.join("x")), None);
        let same = inside.join(outside.strip_prefix("/").unwrap()).join("x");
        assert_eq!(made(&same), Some(true));
        assert_eq!(make("/a/up/b", Kind::File), Ok(()));
        assert_eq!(made(&inside.join("new/b")), Some(false));
        assert_eq!(make("/var/lock/../log", Kind::Directory), Ok(()));
        assert_eq!(made(&inside.join("run/log")), Some(true));
        assert_eq!(make("/../../b", Kind::Directory), Ok(()));
        assert_eq!(made(&inside.join("b")), Some(true));
        assert_eq!(make("/loop", Kind::Directory), Err(Errno::ELOOP));
        // An existing file keeps its kind.
        assert_eq!(make("/new/b", Kind::Directory), Ok(()));
        assert_eq!(made(&inside.join("new/b")), Some(false));
        assert_eq!(make("/new/b/c", Kind::Directory), Err(Errno::ENOTDIR));
    }

    #[test]
    fn no_link_of_a_process_is_followed() {
        let root = root(Path::new("/"));
        for link in ["/proc/self/root/tmp", "/proc/self/cwd", "/proc/self/fd/0"] {
            let found = root.make(Path::new(link), Kind::Directory).map(drop);
            assert_eq!(found, Err(Errno::ELOOP), "{link}");
        }
    }
}
