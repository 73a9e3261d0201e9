//! Walks over a cgroup and all those below it.
//!
//! Invariants: whatever the depth, a walk takes no stack and two descriptors, and no path is longer than that of the top: who is in
//! a container may nest cgroups as deep as it likes, beyond a thread's stack and beyond PATH_MAX.

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

/// Every process in the cgroup and below. Pid 0 (a process of an outer pid namespace) is left out.
pub fn processes(top: &Path) -> Vec<i32> {
    let mut found = Vec::new();
    each(top, |dir| {
        let text = read(dir, c"cgroup.procs").unwrap_or_default();
        let pids = text.lines().filter_map(|l| l.parse().ok());
        found.extend(pids.filter(|pid: &i32| *pid > 0));
    });
    found
}

/// Writes to a file of the cgroup and of each below it, as far as they take it.
pub fn write_to_each(top: &Path, file: &CStr, text: &str) {
    each(top, |dir| {
        if let Ok(file) = openat(dir, file, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty()) {
            let _ = File::from(file).write_all(text.as_bytes());
        }
    });
}

/// Removes what is below the cgroup, deepest first, and returns how many cgroups were removed.
///
/// # Errors
/// Returns the error of the first cgroup that stays; the others are removed as far as they can be.
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

/// Removes the cgroup with all below it. A cgroup that is not there counts as removed.
///
/// # Errors
/// Returns the error of a cgroup that stays; EBUSY where a process is in it.
pub fn remove(top: &Path) -> io::Result<()> {
    // Hardly any has one below it, and listing costs as much as removing.
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
    // What goes away meanwhile is not there.
    let _ = walk(top, visit, |_, _| {});
}

/// A cgroup on the way from the top.
struct Level {
    name: CString,
    /// Cgroups below this one whose turn has not come.
    left: Vec<CString>,
}

/// Calls `enter` with the top and each cgroup below it, and `leave` with the parent and the name of each below the top, when all
/// below that have been left.
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

/// The names of the cgroups directly below; none of one that is gone.
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
pub(crate) mod tests {
    use nix::sys::stat::mkdirat;

    use super::*;

    /// Makes so many below `top`, each in the one before, and says what the last one is.
    pub(crate) fn nest(top: &Path, depth: usize) -> OwnedFd {
        let mut at = open(top, DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..depth {
            mkdirat(&at, c"nested", Mode::S_IRWXU).unwrap();
            at = openat(&at, c"nested", DIRECTORY, Mode::empty()).unwrap();
        }
        at
    }

    /// On a stack that is smaller than that of any thread here.
    pub(crate) fn on_a_small_stack<T: Send>(f: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let small = std::thread::Builder::new().stack_size(64 << 10);
            small.spawn_scoped(scope, f).unwrap().join().unwrap()
        })
    }

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
            // A directory with a file stays, and those above it; the others go.
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
