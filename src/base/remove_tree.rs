//! Removes podprobe's own directories, in which containers may have made any kind of file.
//!
//! Invariants: no link and no mount is followed. A tree of any depth costs a constant number of descriptors and no stack,
//! because a directory that is not empty is first moved to the top of the tree. Two threads may remove one tree: a file
//! that is already gone is not an error.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::base::sys::mountinfo;

/// Removes a tree. Does not remove through a mount, because that would empty the mounted file system.
///
/// # Errors
/// Returns an [`io::Error`] if something is mounted below the tree, or if a file cannot be removed. A missing tree is not
/// an error.
pub fn remove_tree(dir: &Path) -> io::Result<()> {
    let mounts = mountinfo::read()?;
    if let Some(at) = mounts.iter().map(|m| &m.at).find(|at| at.starts_with(dir)) {
        return Err(io::Error::other(format!(
            "{} is mounted; unmount it first",
            at.display()
        )));
    }
    let mut result = Ok(());
    for _ in 0..TRIES {
        result = remove(dir);
        match &result {
            Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            _ => break,
        }
    }
    result
}

/// Number of tries to remove a tree, if somebody puts new files into it at the same time.
const TRIES: usize = 10;

fn remove(dir: &Path) -> io::Result<()> {
    match open(dir, DIRECTORY, Mode::empty()) {
        Ok(top) => Tree::new(top).and_then(Tree::empty)?,
        Err(Errno::ENOENT) => return Ok(()),
        // `dir` is not a directory: a link is removed, a file is an error.
        Err(Errno::ELOOP | Errno::ENOTDIR) => return fs::remove_dir_all(dir),
        Err(e) => return Err(e.into()),
    }
    match fs::remove_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

const DIRECTORY: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC);

struct Tree {
    top: OwnedFd,
    listing: Dir,
    /// Number of directories that were moved to the top.
    moved: u64,
}

impl Tree {
    fn new(top: OwnedFd) -> io::Result<Self> {
        let listing = Dir::from_fd(top.try_clone()?)?;
        Ok(Self {
            top,
            listing,
            moved: 0,
        })
    }

    /// Removes everything in the top directory, in passes. Ends with an error after a pass that could not remove something.
    fn empty(mut self) -> io::Result<()> {
        loop {
            let names = names(&mut self.listing)?;
            if names.is_empty() {
                return Ok(());
            }
            let mut result = Ok(());
            for name in &names {
                result = result.and(self.remove(name));
            }
            result?;
        }
    }

    fn remove(&mut self, name: &CStr) -> io::Result<()> {
        if remove_one(&self.top, name)? {
            return Ok(());
        }
        let dir = match openat(&self.top, name, DIRECTORY, Mode::empty()) {
            Err(Errno::ENOENT) => return Ok(()),
            dir => dir?,
        };
        let mut listing = Dir::from_fd(dir.try_clone()?)?;
        loop {
            let names = names(&mut listing)?;
            if names.is_empty() {
                break;
            }
            for name in &names {
                if !remove_one(&dir, name)? {
                    self.move_up(&dir, name)?;
                }
            }
        }
        // `remove_one` returns false if another thread has moved something into the directory. The next pass removes
        // the directory then.
        remove_one(&self.top, name).map(drop)
    }

    /// Moves a directory to the top of the tree, under a free name. An empty directory of that name is replaced.
    fn move_up(&mut self, dir: &OwnedFd, name: &CStr) -> io::Result<()> {
        loop {
            self.moved += 1;
            let free = format!(".removed-{}", self.moved);
            match renameat(dir, name, &self.top, free.as_str()) {
                Err(Errno::ENOTEMPTY | Errno::EEXIST | Errno::ENOTDIR) => {}
                Err(Errno::ENOENT) => return Ok(()),
                renamed => return Ok(renamed?),
            }
        }
    }
}

/// Number of names that are held in memory at a time.
const BATCH: usize = 1000;

/// Returns the next names in a directory, at most [`BATCH`]. The list is empty if no names are left or the directory is
/// gone.
fn names(listing: &mut Dir) -> io::Result<Vec<CString>> {
    let names = listing
        .iter()
        .map(|entry| Ok(entry?.file_name().to_owned()));
    let own = |name: &io::Result<CString>| !matches!(name, Ok(name) if [c".", c".."].contains(&name.as_c_str()));
    let names: io::Result<_> = names.filter(own).take(BATCH).collect();
    match names {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        names => names,
    }
}

/// Removes a file or an empty directory. Returns false for a directory that is not empty.
fn remove_one(dir: impl AsFd, name: &CStr) -> io::Result<bool> {
    let removed = match unlinkat(&dir, name, UnlinkatFlags::NoRemoveDir) {
        Err(Errno::EISDIR) => unlinkat(&dir, name, UnlinkatFlags::RemoveDir),
        removed => removed,
    };
    match removed {
        Ok(()) | Err(Errno::ENOENT) => Ok(true),
        Err(Errno::ENOTEMPTY | Errno::EEXIST) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use nix::sys::stat::mkdirat;

    use super::*;

    #[test]
    fn everything_goes_and_no_link_is_followed() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("a/b/c")).unwrap();
        fs::create_dir_all(tree.join("a/empty")).unwrap();
        // The tree already has the names to which the removal would itself move directories.
        fs::create_dir_all(tree.join(".removed-1/x/y")).unwrap();
        fs::write(tree.join(".removed-2"), "").unwrap();
        fs::create_dir(tree.join(".removed-3")).unwrap();
        fs::write(tree.join("a/b/c/file"), "").unwrap();
        fs::write(outside.path().join("kept"), "").unwrap();
        for at in ["link", "a/link", "a/b/c/link"] {
            symlink(outside.path(), tree.join(at)).unwrap();
        }
        for n in 0..BATCH + 10 {
            fs::write(tree.join(format!("a/b/{n}")), "").unwrap();
        }
        remove_tree(&tree).unwrap();
        assert!(!tree.exists() && outside.path().join("kept").exists());
        remove_tree(&tree).unwrap();
        let link = dir.path().join("link");
        symlink(outside.path(), &link).unwrap();
        remove_tree(&link).unwrap();
        assert!(!link.is_symlink() && outside.path().join("kept").exists());
    }

    /// A tree is removed even if it is deeper than the number of descriptors and the size of the stack would allow. A
    /// container can nest directories to any depth.
    #[test]
    fn a_tree_deeper_than_there_are_descriptors_or_stack_goes() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir(&tree).unwrap();
        let mut at = open(&tree, DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..20_000 {
            mkdirat(&at, "d", Mode::S_IRWXU).unwrap();
            mkdirat(&at, "e", Mode::S_IRWXU).unwrap();
            at = openat(&at, "d", DIRECTORY, Mode::empty()).unwrap();
        }
        let small = std::thread::Builder::new().stack_size(64 * 1024);
        let removed = small.spawn({
            let tree = tree.clone();
            move || remove_tree(&tree)
        });
        removed.unwrap().join().unwrap().unwrap();
        assert!(!tree.exists());
    }

    /// Several threads can remove one tree. A listing and a worker may remove the files of an ended container at the
    /// same time.
    #[test]
    fn several_threads_may_remove_one_tree() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        for _ in 0..100 {
            for n in 0..10 {
                fs::create_dir_all(tree.join(format!("{n}/a/b/c"))).unwrap();
                fs::write(tree.join(format!("{n}/a/file")), "").unwrap();
            }
            std::thread::scope(|scope| {
                let removers = [(); 3].map(|()| scope.spawn(|| remove_tree(&tree)));
                for remover in removers {
                    remover.join().unwrap().unwrap();
                }
            });
            assert!(!tree.exists());
        }
    }

    #[test]
    fn what_cannot_be_removed_is_an_error() {
        let missing = Path::new("/proc/self/fdinfo");
        assert!(remove_tree(missing).is_err());
    }
}
