//! A directory tree that no path can leave. Every path is resolved from the root of the tree, one component at a time.
//!
//! Invariants: no system call gets more than one path component from an archive. The code of this file, and not the
//! kernel, resolves symlinks: `/` in a target means the root of the tree, and `..` does not lead above it, as in a
//! chroot. No other process writes to the tree.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, readlinkat};
use nix::sys::stat::{FchmodatFlags, FileStat, Mode, SFlag, fchmodat, fstatat, mkdirat, mknodat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::base::sys::xattr;

/// Longest path of an entry in bytes (`PATH_MAX`).
const MAX_PATH: usize = 4096;
/// Longest path component in bytes (`NAME_MAX`).
const MAX_COMPONENT: usize = 255;
/// Largest number of directories inside one another. The limit bounds the descriptors of a walk and the recursion of a
/// removal.
const MAX_DEPTH: usize = 256;
/// Largest number of symlinks that are followed for one entry, as in the kernel.
const MAX_LINKS: usize = 40;

/// Returns a path of an archive in clean form: its components, joined by single slashes. The clean path of the root is
/// empty. Fails for a path with `..` or a NUL byte, and for a path or name that is too long.
pub(crate) fn clean(path: &[u8]) -> Result<Vec<u8>, &'static str> {
    if path.len() > MAX_PATH {
        return Err("the path is longer than 4096 bytes");
    }
    if path.contains(&0) {
        return Err("the path contains a NUL byte");
    }
    let mut out = Vec::with_capacity(path.len());
    for component in path
        .split(|b| *b == b'/')
        .filter(|c| !c.is_empty() && *c != b".")
    {
        if component == b".." {
            return Err("'..' in the path");
        }
        if component.len() > MAX_COMPONENT {
            return Err("a file name is longer than 255 bytes");
        }
        if !out.is_empty() {
            out.push(b'/');
        }
        out.extend_from_slice(component);
    }
    Ok(out)
}

/// Returns the parent and the last component of a clean path. Returns None for the root.
pub(crate) fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    match path.iter().rposition(|b| *b == b'/') {
        Some(i) => Some((&path[..i], &path[i + 1..])),
        None => (!path.is_empty()).then_some((&path[..0], path)),
    }
}

/// A directory tree, held by a descriptor of its root.
pub(super) struct Tree {
    root: Rc<OwnedFd>,
    /// The directory that was resolved last. Entries are sorted, so most entries have the same parent as the entry
    /// before. Every removal clears this field, because a removal may change the meaning of a path.
    last: Option<(Vec<u8>, Rc<OwnedFd>)>,
}

fn directory() -> OFlag {
    OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC
}

impl Tree {
    pub(super) fn open(path: &Path) -> Result<Self, Errno> {
        Ok(Self {
            root: Rc::new(openat(AT_FDCWD, path, directory(), Mode::empty())?),
            last: None,
        })
    }

    /// Returns a descriptor of the directory at a clean path. If `create` is true, missing directories are made (mode
    /// 0755, owner of this process). A whiteout on the way is replaced by an opaque directory, because the whiteout has
    /// deleted the content of the lower layers.
    pub(super) fn dir(&mut self, path: &[u8], create: bool) -> Result<Rc<OwnedFd>, Errno> {
        if let Some((known, fd)) = &self.last
            && known == path
        {
            return Ok(fd.clone());
        }
        let fd = self.walk(path, create)?;
        self.last = Some((path.to_vec(), fd.clone()));
        Ok(fd)
    }

    fn walk(&self, path: &[u8], create: bool) -> Result<Rc<OwnedFd>, Errno> {
        let mut above = vec![self.root.clone()];
        let mut todo: VecDeque<Vec<u8>> = components(path).collect();
        let mut links = 0;
        while let Some(component) = todo.pop_front() {
            let here = above.last().expect("the root is never popped").clone();
            if component == b".." {
                above.truncate((above.len() - 1).max(1));
                continue;
            }
            match openat(&*here, component.as_slice(), directory(), Mode::empty()) {
                Ok(fd) => above.push(Rc::new(fd)),
                Err(Errno::ENOENT) if create => {
                    make_dir(&here, &component)?;
                    todo.push_front(component);
                }
                Err(Errno::ENOTDIR)
                    if create
                        && Self::stat(&here, &component)?.is_some_and(|s| is_whiteout(&s)) =>
                {
                    unlinkat(&*here, component.as_slice(), UnlinkatFlags::NoRemoveDir)?;
                    make_dir(&here, &component)?;
                    make_opaque(&here, &component)?;
                    todo.push_front(component);
                }
                Err(Errno::ENOTDIR | Errno::ELOOP) => {
                    let target = readlinkat(&*here, component.as_slice())
                        .map_err(|_| Errno::ENOTDIR)?
                        .into_vec();
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Errno::ELOOP);
                    }
                    if target.starts_with(b"/") {
                        above.truncate(1);
                    }
                    components(&target).rev().for_each(|c| todo.push_front(c));
                }
                Err(e) => return Err(e),
            }
            if above.len() > MAX_DEPTH || todo.len() > MAX_PATH {
                return Err(Errno::ENAMETOOLONG);
            }
        }
        Ok(above.pop().expect("the root is never popped"))
    }

    /// Returns the status of the file `name` in a directory, or None if there is no such file. Symlinks are not followed.
    pub(super) fn stat(dir: &OwnedFd, name: &[u8]) -> Result<Option<FileStat>, Errno> {
        match fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::ENOENT) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Removes the file or directory `name` with everything below it.
    pub(super) fn remove(
        &mut self,
        dir: &OwnedFd,
        name: &[u8],
        is_dir: bool,
    ) -> std::io::Result<()> {
        self.last = None;
        if is_dir {
            std::fs::remove_dir_all(path_of(dir, name))
        } else {
            Ok(unlinkat(dir, name, UnlinkatFlags::NoRemoveDir)?)
        }
    }
}

fn components(path: &[u8]) -> impl DoubleEndedIterator<Item = Vec<u8>> + '_ {
    path.split(|b| *b == b'/')
        .filter(|c| !c.is_empty() && *c != b".")
        .map(<[u8]>::to_vec)
}

/// Makes a directory with mode 0755, which does not depend on the umask.
pub(super) fn make_dir(dir: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    mkdirat(dir, name, Mode::from_bits_truncate(0o700))?;
    fchmodat(
        dir,
        name,
        Mode::from_bits_truncate(0o755),
        FchmodatFlags::FollowSymlink,
    )
}

/// Tells whether a file is a whiteout of overlayfs: a character device 0/0.
pub(super) fn is_whiteout(stat: &FileStat) -> bool {
    stat.st_mode & libc::S_IFMT == libc::S_IFCHR && stat.st_rdev == 0
}

/// Makes a whiteout. The mounted image then has no file of this name.
pub(super) fn hide(dir: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    mknodat(dir, name, SFlag::S_IFCHR, Mode::empty(), 0)
}

/// Marks a directory as opaque: it hides the content of the lower layers.
pub(super) fn make_opaque(dir: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    let set = xattr::set(
        &path_of(dir, name),
        OsStr::new("trusted.overlay.opaque"),
        b"y",
    );
    set.map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO)))
}

/// Returns a path to `name` for system calls that have no `…at` form. The path leads through the descriptor `dir`, so
/// the kernel resolves only `name`.
pub(super) fn path_of(dir: &OwnedFd, name: &[u8]) -> PathBuf {
    Path::new(&format!("/proc/self/fd/{}", dir.as_raw_fd())).join(OsStr::from_bytes(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, expected: Result<&str, ()>) {
        assert_eq!(
            clean(path.as_bytes()).map_err(|_| ()),
            expected.map(|s| s.as_bytes().to_vec())
        );
    }

    #[test]
    fn paths_are_cleaned_or_refused() {
        check("/etc//./passwd/", Ok("etc/passwd"));
        check("./", Ok(""));
        check("a/../b", Err(()));
        check("..", Err(()));
        check("a\0b", Err(()));
        check("...", Ok("..."));
        check(&"a".repeat(256), Err(()));
        check(&"a/".repeat(2049), Err(()));
    }

    #[test]
    fn walks_end_at_the_root() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("root");
        std::fs::create_dir_all(root.join("real")).unwrap();
        std::fs::create_dir(outer.path().join("outside")).unwrap();
        for (name, target) in [
            ("up", "../../outside"),
            ("abs", "/real"),
            ("loop", "loop"),
            ("out", outer.path().join("outside").to_str().unwrap()),
        ] {
            std::os::unix::fs::symlink(target, root.join(name)).unwrap();
        }
        let mut tree = Tree::open(&root).unwrap();
        let mut reach = |p: &str, create| {
            tree.dir(p.as_bytes(), create).map(|fd| {
                std::fs::read_link(path_of(&fd, b""))
                    .unwrap_or_else(|_| std::fs::canonicalize(path_of(&fd, b"")).unwrap())
            })
        };
        assert_eq!(reach("abs", false).unwrap(), root.join("real"));
        assert_eq!(reach("up", false), Err(Errno::ENOENT));
        assert_eq!(reach("loop", true), Err(Errno::ELOOP));
        assert_eq!(reach("up/x", true).unwrap(), root.join("outside/x"));
        assert!(reach("out/y", true).unwrap().starts_with(&root));
        assert_eq!(
            std::fs::read_dir(outer.path().join("outside"))
                .unwrap()
                .count(),
            0
        );
        assert_eq!(reach(&"d/".repeat(300), true), Err(Errno::ENAMETOOLONG));
    }
}
