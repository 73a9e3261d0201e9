//! Writes the files of a volume so that a reader sees either the old files or the new ones, like the kubelet's atomic
//! writer.
//!
//! ```text
//! ..2026_01_02_03_04_05.1234567/  the files
//! ..data -> ..2026_01_02_03_04_05.1234567
//! user-name -> ..data/user-name
//! ```
//!
//! Invariants: `..data` is replaced by a rename. If the volume already has the payload, nothing is written. A container
//! that can write to the volume can spoil only its own files. The names in the volume are read without following links
//! ([`super::below`]) and in bounded amounts. Files that differ from the payload are written anew.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use nix::errno::Errno;
use nix::fcntl::{OFlag, readlinkat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, symlinkat, unlinkat};
use ring::rand::{SecureRandom, SystemRandom};

use super::below::{names, open, open_dir};
use super::payload::{Payload, PayloadFile};
use crate::base::clock::Time;

/// The name of the link to the directory with the files.
const DATA: &str = "..data";
/// The name of the new link, which is renamed to [`DATA`].
const NEW_DATA: &str = "..data_tmp";
/// The largest number of names of a directory that are looked at. A directory with more names was not made by podprobe.
const MAX_NAMES: usize = 20_000;
/// The greatest depth to which a directory is removed. No payload is as deep.
const MAX_DEPTH: usize = 128;
/// The largest number of files that one removal can remove.
const MAX_REMOVED: usize = 100_000;

/// True if the volume has been written.
pub(super) fn is_written(volume: &OwnedFd) -> bool {
    current(volume).is_some_and(|name| open_dir(volume, name).is_ok())
}

/// Makes the volume have the files of `payload`. Returns true if anything was written. If `group` is given, the files
/// belong to the group and the group can read them.
///
/// # Errors
/// Returns the error of the disk. The volume then keeps its old files.
pub(super) fn write(volume: &OwnedFd, payload: &Payload, group: Option<Gid>) -> io::Result<bool> {
    let files = Files { payload, group };
    files.own_directory(volume, 0o777)?;
    let old = current(volume);
    if old.is_some_and(|name| files.are_in(volume, &name)) {
        files.link(volume)?;
        return Ok(false);
    }
    let name = new_directory(volume)?;
    let written = open_dir(volume, &name)
        .and_then(|dir| files.write_into(&dir))
        .and_then(|()| files.link(volume))
        .and_then(|()| switch(volume, &name));
    if written.is_err() {
        let _ = remove(volume, &name);
    }
    written?;
    files.clear_away(volume, &name);
    Ok(true)
}

/// Makes the directories on which other volumes are mounted. A path is skipped if its first name is a name of the
/// payload, because the volume then already has a file or directory of this name.
///
/// # Errors
/// Returns an error if one of the directories could not be made.
pub(super) fn make_mount_points(
    volume: &OwnedFd,
    payload: &Payload,
    paths: &BTreeSet<PathBuf>,
    group: Option<Gid>,
) -> io::Result<()> {
    let files = Files { payload, group };
    let visible = files.visible();
    for path in paths.iter().filter_map(|path| path.to_str()) {
        let first = path.split('/').next().unwrap_or(path);
        if !visible.contains(first) {
            files.make_parents(volume, path)?;
        }
    }
    Ok(())
}

/// Returns the name of the directory to which the link `..data` points. Returns `None` if there is no such link, or if
/// the name has another form than the names that this writer makes.
fn current(volume: &OwnedFd) -> Option<OsString> {
    let name = readlinkat(volume, DATA).ok()?;
    let bytes = name.as_encoded_bytes();
    (bytes.starts_with(b"..") && bytes.len() > 2 && !bytes.contains(&b'/')).then_some(name)
}

/// Makes a new directory, named after the time like the kubelet's directories.
fn new_directory(volume: &OwnedFd) -> io::Result<OsString> {
    // The text has the form 2026-01-02T03:04:05Z.
    let time = Time::now().to_string().replace(['-', 'T', ':'], "_");
    let mut random = [0; 4];
    SystemRandom::new()
        .fill(&mut random)
        .map_err(|_| io::Error::other("the kernel gives no random bytes (getrandom)"))?;
    let name = format!(
        "..{}.{}",
        time.trim_end_matches('Z'),
        u32::from_ne_bytes(random)
    );
    mkdirat(volume, name.as_str(), Mode::from_bits_truncate(0o700))?;
    Ok(name.into())
}

/// Makes `name` the present directory of the volume.
fn switch(volume: &OwnedFd, name: &OsStr) -> io::Result<()> {
    remove(volume, NEW_DATA.as_ref())?;
    symlinkat(name, volume, NEW_DATA)?;
    Ok(renameat(volume, NEW_DATA, volume, DATA)?)
}

/// Removes a file, or a directory with its content. A missing file is not an error.
///
/// # Errors
/// Returns an error if the file cannot be removed, or if the directory is larger or deeper than a payload can be.
fn remove(at: &OwnedFd, name: &OsStr) -> io::Result<()> {
    let mut left = MAX_REMOVED;
    remove_below(at, name, MAX_DEPTH, &mut left)
}

fn remove_below(at: &OwnedFd, name: &OsStr, depth: usize, left: &mut usize) -> io::Result<()> {
    match unlinkat(at, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => return Ok(()),
        Err(Errno::EISDIR) if depth > 0 && *left > 0 => {}
        Err(e) => return Err(e.into()),
    }
    let dir = open_dir(at, name)?;
    for inside in names(&dir, MAX_NAMES.min(*left))? {
        *left = left.saturating_sub(1);
        remove_below(&dir, &inside, depth - 1, left)?;
    }
    Ok(unlinkat(at, name, UnlinkatFlags::RemoveDir)?)
}

struct Files<'a> {
    payload: &'a Payload,
    group: Option<Gid>,
}

impl Files<'_> {
    /// Returns the first parts of the paths, which are the names that a container sees in the volume.
    fn visible(&self) -> BTreeSet<&str> {
        let paths = self.payload.files().map(|(path, _)| path);
        paths.map(|p| p.split('/').next().unwrap_or(p)).collect()
    }

    fn is_owned(&self, stat: &FileStat, user: Option<u32>, mode: u32) -> bool {
        let user = user.is_none_or(|user| stat.st_uid == user);
        let group = self.group.is_none_or(|group| stat.st_gid == group.as_raw());
        user && group && stat.st_mode & 0o7777 == mode
    }

    /// Gives a new file or directory its user, the group and its permission bits.
    fn own(&self, file: impl AsFd, user: Option<u32>, mode: u32) -> io::Result<()> {
        if self.is_owned(&fstat(&file)?, user, mode) {
            return Ok(());
        }
        if user.is_some() || self.group.is_some() {
            fchown(&file, user.map(Uid::from_raw), self.group)?;
        }
        Ok(fchmod(&file, Mode::from_bits_truncate(mode))?)
    }

    /// Gives a directory to the group, if there is a group. New files in the directory also get the group. The group
    /// can enter the directory.
    fn own_directory(&self, dir: impl AsFd, mode: u32) -> io::Result<()> {
        self.own(dir, None, self.group.map_or(mode, |_| mode | 0o2550))
    }

    fn mode(&self, file: &PayloadFile) -> u32 {
        self.group.map_or(file.mode, |_| file.mode | 0o440)
    }

    /// Tells whether the directory has exactly the files of the payload.
    fn are_in(&self, volume: &OwnedFd, name: &OsStr) -> bool {
        let found = open_dir(volume, name).and_then(|dir| self.count_same(&dir, ""));
        found.is_ok_and(|count| count == self.payload.len())
    }

    /// Counts the files below `dir`.
    ///
    /// # Errors
    /// Returns an error if a file or directory differs from the payload.
    fn count_same(&self, dir: &OwnedFd, at: &str) -> io::Result<usize> {
        let mut count = 0;
        for name in names(dir, self.payload.len() + 1)? {
            let name = name.to_str().ok_or(io::ErrorKind::InvalidData)?;
            let path = match at {
                "" => name.to_owned(),
                at => format!("{at}/{name}"),
            };
            count += match self.payload.file(&path) {
                Some(file) if self.is_same(dir, name, file)? => 1,
                None if self.payload.has_below(&path) => {
                    self.count_same(&open_dir(dir, name)?, &path)?
                }
                _ => return Err(io::ErrorKind::InvalidData.into()),
            };
        }
        Ok(count)
    }

    fn is_same(&self, dir: &OwnedFd, name: &str, expected: &PayloadFile) -> io::Result<bool> {
        let file = File::from(open(dir, name, OFlag::O_RDONLY, Mode::empty())?);
        let stat = fstat(&file)?;
        let is_file = stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFREG.bits();
        if !is_file || !self.is_owned(&stat, expected.user, self.mode(expected)) {
            return Ok(false);
        }
        let length = expected.data.len();
        let mut data = Vec::with_capacity(length + 1);
        file.take(length as u64 + 1).read_to_end(&mut data)?;
        Ok(data == expected.data)
    }

    fn write_into(&self, dir: &OwnedFd) -> io::Result<()> {
        self.own_directory(dir, 0o755)?;
        for (path, file) in self.payload.files() {
            let (parents, name) = path.rsplit_once('/').unwrap_or(("", path));
            let parent = self.make_parents(dir, parents)?;
            let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
            let new = open(&parent, name, flags, Mode::from_bits_truncate(0o600))?;
            let mut new = File::from(new);
            new.write_all(&file.data)?;
            self.own(&new, file.user, self.mode(file))?;
        }
        Ok(())
    }

    fn make_parents(&self, dir: &OwnedFd, parents: &str) -> io::Result<OwnedFd> {
        let mut at = open_dir(dir, ".")?;
        for name in parents.split('/').filter(|name| !name.is_empty()) {
            match mkdirat(&at, name, Mode::from_bits_truncate(0o700)) {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(e) => return Err(e.into()),
            }
            at = open_dir(&at, name)?;
            self.own_directory(&at, 0o755)?;
        }
        Ok(at)
    }

    /// Makes the links that containers see. Anything else with the name of a link is removed.
    fn link(&self, volume: &OwnedFd) -> io::Result<()> {
        for name in self.visible() {
            let target = format!("{DATA}/{name}");
            if readlinkat(volume, name).is_ok_and(|there| there == target.as_str()) {
                continue;
            }
            remove(volume, name.as_ref())?;
            symlinkat(target.as_str(), volume, name)?;
        }
        Ok(())
    }

    /// Removes older directories, and links to files that no longer exist. If a removal fails now, it is tried again
    /// after the next write.
    fn clear_away(&self, volume: &OwnedFd, current: &OsStr) {
        let visible = self.visible();
        for name in names(volume, MAX_NAMES).unwrap_or_default() {
            let text = name.to_string_lossy();
            let is_old = match text.starts_with("..") {
                true => name != DATA && name != current,
                false => {
                    let ours = |to: OsString| to == format!("{DATA}/{text}").as_str();
                    !visible.contains(&*text) && readlinkat(volume, &*name).is_ok_and(ours)
                }
            };
            if is_old {
                let _ = remove(volume, &name);
            }
        }
    }
}

#[cfg(test)]
#[path = "atomic_writer_tests.rs"]
mod tests;
