//! Walks over a cgroup and all cgroups below it.
//!
//! Invariants: a walk of any depth uses two descriptors and no stack per level, and no path longer than that of the top. A
//! process in a container may nest cgroups deeper than a thread's stack or PATH_MAX would allow.

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::dir::{Dir, Type};
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};

const DIRECTORY: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC);

/// Returns the ids of all processes in the cgroup and below. Pid 0 (a process of an outer pid namespace) is left out.
pub fn processes(top: &Path) -> Vec<i32> {
    let mut found = Vec::new();
    each(top, |dir| {
        let text = read(dir, c"cgroup.procs").unwrap_or_default();
        let pids = text.lines().filter_map(|l| l.parse().ok());
        found.extend(pids.filter(|pid: &i32| *pid > 0));
    });
    found
}

/// Writes `text` to a file of the cgroup and of each cgroup below it. Errors are ignored.
pub fn write_to_each(top: &Path, file: &CStr, text: &str) {
    each(top, |dir| {
        if let Ok(file) = openat(dir, file, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty()) {
            let _ = File::from(file).write_all(text.as_bytes());
        }
    });
}

/// Removes all cgroups below the cgroup `top`, deepest first. Returns the number of removed cgroups.
///
/// # Errors
/// Returns the error of the first cgroup that stays. The remaining cgroups are removed nonetheless, if possible.
pub fn remove_below(top: &Path) -> (usize, io::Result<()>) {
    let (mut count, mut result) = (0, Ok(()));
    let walked = walk(
        top,
        |_| {},
        |parent, name| match unlinkat(parent, name, UnlinkatFlags::RemoveDir) {
            Ok(()) => count += 1,
            Err(nix::Error::ENOENT) => {}
            Err(e) if result.is_ok() => result = Err(e.into()),
            Err(_) => {}
        },
    );
    (count, result.and(walked))
}

/// Removes the cgroup and all cgroups below it. A missing cgroup is not an error.
///
/// # Errors
/// Returns the error of a cgroup that stays, for example EBUSY if it has a process.
pub fn remove(top: &Path) -> io::Result<()> {
    // Removed without a listing first: few cgroups have cgroups below them, and a listing costs as much as a removal.
    let removed = fs::remove_dir(top).or_else(|_| {
        remove_below(top).1?;
        fs::remove_dir(top)
    });
    match removed {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn each(top: &Path, visit: impl FnMut(BorrowedFd<'_>)) {
    // The error is ignored: a cgroup that goes away during the walk need not be visited.
    let _ = walk(top, visit, |_, _| {});
}

/// A cgroup on the path from the top to the cgroup that the walk is at.
struct Level {
    name: CString,
    /// Names of the cgroups below this one that are still to be visited.
    left: Vec<CString>,
}

/// Calls `enter` with the top and each cgroup below it. Calls `leave` with the parent and the name of each cgroup
/// except the top, after all cgroups below it.
fn walk(
    top: &Path,
    mut enter: impl FnMut(BorrowedFd<'_>),
    mut leave: impl FnMut(BorrowedFd<'_>, &CStr),
) -> io::Result<()> {
    let mut at = match open(top, DIRECTORY, Mode::empty()) {
        Err(nix::Error::ENOENT) => return Ok(()),
        top => top?,
    };
    enter(at.as_fd());
    let mut levels = vec![Level {
        name: CString::default(),
        left: below(&at),
    }];
    while let Some(mut level) = levels.pop() {
        let Some(name) = level.left.pop() else {
            if !levels.is_empty() {
                at = openat(&at, c"..", DIRECTORY, Mode::empty())?;
                leave(at.as_fd(), &level.name);
            }
            continue;
        };
        levels.push(level);
        match openat(&at, name.as_c_str(), DIRECTORY, Mode::empty()) {
            Err(nix::Error::ENOENT) => {}
            dir => {
                at = dir?;
                enter(at.as_fd());
                let left = below(&at);
                levels.push(Level { name, left });
            }
        }
    }
    Ok(())
}

/// Returns the names of the cgroups directly below `dir`. The list is empty if `dir` is gone.
fn below(dir: &OwnedFd) -> Vec<CString> {
    let listing = dir.try_clone().map(Dir::from_fd);
    let Ok(Ok(mut listing)) = listing else {
        return Vec::new();
    };
    let entries = listing.iter().flatten();
    let dirs = entries.filter(|e| e.file_type() == Some(Type::Directory));
    let names = dirs.map(|e| e.file_name().to_owned());
    names
        .filter(|name| ![c".", c".."].contains(&name.as_c_str()))
        .collect()
}

fn read(dir: BorrowedFd<'_>, file: &CStr) -> io::Result<String> {
    let file = openat(dir, file, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    let mut text = String::new();
    File::from(file).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deep_trees::{nest, on_a_small_stack};

    #[test]
    fn a_tree_deeper_than_a_stack_and_longer_than_a_path_is_walked() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("top");
        fs::create_dir_all(top.join("beside/below")).unwrap();
        let last = nest(&top, 5_000);
        for (at, pids) in [(last, "7\n0\n8\n"), (nest(&top.join("beside"), 0), "9\n")] {
            let flags = OFlag::O_WRONLY | OFlag::O_CREAT;
            let file = openat(&at, c"cgroup.procs", flags, Mode::S_IRWXU).unwrap();
            File::from(file).write_all(pids.as_bytes()).unwrap();
        }
        on_a_small_stack(|| {
            let mut found = processes(&top);
            found.sort_unstable();
            assert_eq!(found, [7, 8, 9]);
            write_to_each(&top, c"cgroup.procs", "");
            // A directory with a file stays, and so do the directories above it. The others are removed.
            let (removed, result) = remove_below(&top);
            assert_eq!((removed, result.is_err()), (1, true));
        });
        assert!(!top.join("beside/below").exists());
        crate::base::remove_tree::remove_tree(&top).unwrap();
        nest(dir.path(), 5_000);
        on_a_small_stack(|| remove(&dir.path().join("nested")).unwrap());
        remove(&dir.path().join("nested")).unwrap();
        assert!(!dir.path().join("nested").exists());
    }
}
