//! Measures the usage of a volume on the disk like `du -x`. The measurement goes in steps, so that a large volume does
//! not delay the measurement of other volumes.
//!
//! Invariants: a container may change the volume at any moment, so every file is looked at below a descriptor, by one
//! name. No link and no mount is followed, and only directories are opened. A walk has at most [`DEPTH`] directories
//! open with their listings, and [`LATER`] directories without. The memory of a walk does not grow with the number of
//! files. A walk ends after [`MOST_ENTRIES`].

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::dir::{Dir, OwningIter};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};

use super::below::open_dir;

/// The largest number of nested directories that are read at a time.
const DEPTH: usize = 32;
/// The largest number of deeper directories that are kept open for later.
const LATER: usize = 32;
/// The largest number of files and directories that a walk looks at.
const MOST_ENTRIES: u64 = 10_000_000;
/// The unit of `st_blocks` in bytes.
const BLOCK: u128 = 512;
/// The number of bits after the binary point in a sum of bytes. A file with several names counts in parts, one for each
/// name.
const SHARE: u32 = 32;

/// The usage that a walk has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The number of bytes on the disk.
    pub bytes: u64,
    /// True if all files were counted.
    pub whole: bool,
}

/// The walk through a volume that is being measured.
pub struct Walk {
    device: u64,
    /// The directories that are being read, each nested in the directory before it in the list.
    levels: Vec<Level>,
    later: Vec<OwnedFd>,
    /// The bytes that were counted so far, with [`SHARE`] bits after the binary point.
    sum: u128,
    entries: u64,
    whole: bool,
}

struct Level {
    dir: OwnedFd,
    entries: OwningIter,
}

impl Level {
    fn new(dir: OwnedFd) -> io::Result<Self> {
        let entries = Dir::from_fd(dir.try_clone()?)?.into_iter();
        Ok(Self { dir, entries })
    }
}

impl Walk {
    /// Begins a walk at the directory of the volume.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be opened. The error is `NotFound` if the volume has not been set up
    /// yet.
    pub fn begin(volume: &Path) -> io::Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let dir = open(volume, flags, Mode::empty())?;
        let stat = fstat(&dir)?;
        let mut walk = Self {
            device: stat.st_dev,
            levels: vec![Level::new(dir)?],
            later: Vec::new(),
            sum: 0,
            entries: 0,
            whole: true,
        };
        walk.add(&stat);
        Ok(walk)
    }

    /// Looks at `entries` more files. Returns true if the walk has ended, or if it has found more than `limit` bytes.
    pub fn go_on(&mut self, entries: usize, limit: u64) -> bool {
        for _ in 0..entries {
            if self.bytes() > limit || !self.next() {
                return true;
            }
        }
        false
    }

    /// Returns the usage that has been counted so far.
    pub fn usage(&self) -> Usage {
        Usage {
            bytes: self.bytes(),
            whole: self.whole,
        }
    }

    fn bytes(&self) -> u64 {
        u64::try_from(self.sum >> SHARE).unwrap_or(u64::MAX)
    }

    /// Looks at the next name. Returns false if there are no more names.
    fn next(&mut self) -> bool {
        let Some(level) = self.levels.last_mut() else {
            return self.resume();
        };
        if self.entries >= MOST_ENTRIES {
            self.whole = false;
            return false;
        }
        self.entries += 1;
        match level.entries.next() {
            Some(Ok(entry)) => self.look_at(entry.file_name()),
            Some(Err(_)) => {
                self.whole = false;
                self.levels.pop();
            }
            None => drop(self.levels.pop()),
        }
        true
    }

    /// Continues with a directory that was left for later. Returns false if no directory is left.
    fn resume(&mut self) -> bool {
        let Some(dir) = self.later.pop() else {
            return false;
        };
        match Level::new(dir) {
            Ok(level) => self.levels.push(level),
            Err(_) => self.whole = false,
        }
        true
    }

    /// Counts the file or directory with this name. A name that is gone by now, or on which something is mounted, is not
    /// counted as part of the volume.
    fn look_at(&mut self, name: &CStr) {
        let Some(level) = self
            .levels
            .last()
            .filter(|_| ![c".", c".."].contains(&name))
        else {
            return;
        };
        let flags = AtFlags::AT_SYMLINK_NOFOLLOW | AtFlags::AT_NO_AUTOMOUNT;
        let stat = fstatat(&level.dir, name, flags);
        let Some(stat) = stat.ok().filter(|stat| stat.st_dev == self.device) else {
            return;
        };
        let inside = is_directory(&stat)
            .then(|| open_dir(&level.dir, OsStr::from_bytes(name.to_bytes())))
            .transpose();
        self.add(&stat);
        match inside {
            Ok(None) => {}
            Ok(Some(dir)) => self.enter(dir),
            Err(e) => self.whole &= has_changed(&e),
        }
    }

    fn enter(&mut self, dir: OwnedFd) {
        if self.levels.len() >= DEPTH {
            match self.later.len() < LATER {
                true => self.later.push(dir),
                false => self.whole = false,
            }
            return;
        }
        match Level::new(dir) {
            Ok(level) => self.levels.push(level),
            Err(_) => self.whole = false,
        }
    }

    /// Adds the size of a file. A file with several names counts once as a whole, because each name counts for its
    /// part. So no list of files is needed.
    fn add(&mut self, stat: &FileStat) {
        let names = match is_directory(stat) {
            true => 1,
            false => u128::from(stat.st_nlink.max(1)),
        };
        let blocks = u128::try_from(stat.st_blocks).unwrap_or(0);
        self.sum += ((blocks * BLOCK) << SHARE).div_ceil(names);
    }
}

fn is_directory(stat: &FileStat) -> bool {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR
}

/// True if the file was replaced or removed before it was opened, or if something was mounted there.
fn has_changed(e: &io::Error) -> bool {
    let changed = [Errno::ENOENT, Errno::ENOTDIR, Errno::ELOOP, Errno::EXDEV];
    let of = |errno: &Errno| e.raw_os_error() == Some(*errno as i32);
    changed.iter().any(of)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    const NO_LIMIT: u64 = u64::MAX;

    fn walk(volume: &Path) -> Usage {
        let mut walk = Walk::begin(volume).unwrap();
        assert!(walk.go_on(usize::MAX, NO_LIMIT));
        walk.usage()
    }

    fn blocks(path: &Path) -> u64 {
        fs::symlink_metadata(path).unwrap().blocks() * 512
    }

    #[track_caller]
    fn check(volume: &Path, expected: u64) {
        let (bytes, whole) = (expected, true);
        assert_eq!(walk(volume), Usage { bytes, whole });
    }

    #[test]
    fn blocks_count_and_a_file_of_many_names_counts_once() {
        let (volume, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = |name: &str| volume.path().join(name);
        fs::write(outside.path().join("large"), vec![1; 1 << 20]).unwrap();
        fs::create_dir_all(at("a/b")).unwrap();
        fs::write(at("a/b/f"), vec![1; 100_000]).unwrap();
        for name in ["second", "a/third"] {
            fs::hard_link(at("a/b/f"), at(name)).unwrap();
        }
        // a hole has no blocks on the disk
        File::create(at("hole")).unwrap().set_len(1 << 30).unwrap();
        symlink(outside.path(), at("link")).unwrap();
        symlink(outside.path().join("large"), at("a/file-link")).unwrap();
        let names = ["", "a", "a/b", "a/b/f", "hole", "link", "a/file-link"];
        let expected = names.iter().map(|name| blocks(&at(name))).sum();
        check(volume.path(), expected);
    }

    #[test]
    fn directories_of_any_depth_count_and_few_are_open_at_a_time() {
        let volume = tempfile::tempdir().unwrap();
        let mut expected = blocks(volume.path());
        let mut dir: OwnedFd = File::open(volume.path()).unwrap().into();
        for _ in 0..3000 {
            nix::sys::stat::mkdirat(&dir, "d", Mode::S_IRWXU).unwrap();
            dir = open_dir(&dir, "d").unwrap();
            expected += u64::try_from(fstat(&dir).unwrap().st_blocks).unwrap() * 512;
        }
        check(volume.path(), expected);
        drop(dir);
        crate::base::remove_tree::remove_tree(volume.path()).unwrap();
    }

    #[test]
    fn what_is_too_broad_that_deep_is_left_out_and_said() {
        let volume = tempfile::tempdir().unwrap();
        let deep = volume.path().join("d/".repeat(DEPTH - 1));
        for name in 0..=LATER {
            fs::create_dir_all(deep.join(name.to_string())).unwrap();
        }
        assert!(!walk(volume.path()).whole);
        fs::remove_dir(deep.join("0")).unwrap();
        assert!(walk(volume.path()).whole);
    }

    #[test]
    fn a_walk_goes_in_steps_and_ends_once_it_is_over_the_limit() {
        let volume = tempfile::tempdir().unwrap();
        for name in 0..100 {
            fs::write(volume.path().join(name.to_string()), vec![1; 5000]).unwrap();
        }
        let mut steps = Walk::begin(volume.path()).unwrap();
        let count = (1..).find(|_| steps.go_on(10, NO_LIMIT)).unwrap();
        // the count includes the names, `.`, `..` and the end of the listing
        assert_eq!(count, 103_usize.div_ceil(10));
        assert_eq!(steps.usage(), walk(volume.path()));
        let mut early = Walk::begin(volume.path()).unwrap();
        assert!(early.go_on(usize::MAX, 50_000));
        let found = early.usage().bytes;
        assert!(found > 50_000 && found < 150_000, "{found}");
    }

    #[test]
    fn a_volume_that_is_not_there_or_a_link_in_its_place_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let missing = Walk::begin(&dir.path().join("missing")).err().unwrap();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        symlink("/", dir.path().join("link")).unwrap();
        assert!(Walk::begin(&dir.path().join("link")).is_err());
    }

    /// A walk does not leave the volume, although a container may move directories about while they are counted.
    #[test]
    fn directories_that_are_renamed_meanwhile_lead_nowhere_else() {
        let (volume, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = |name: &str| volume.path().join(name);
        fs::write(outside.path().join("large"), vec![1; 1 << 20]).unwrap();
        fs::create_dir(at("d")).unwrap();
        symlink(outside.path(), at("link")).unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        let (d, link, aside) = (at("d"), at("link"), at("aside"));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    fs::rename(&d, &aside).unwrap();
                    fs::rename(&link, &d).unwrap();
                    fs::rename(&d, &link).unwrap();
                    fs::rename(&aside, &d).unwrap();
                }
            });
            for _ in 0..2000 {
                assert!(walk(volume.path()).bytes < 1 << 20);
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
}
