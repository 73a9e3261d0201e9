//! Writes the files of a tar stream.
//!
//! Invariants: nothing is written outside of the destination, whatever names the stream has, and whatever another
//! process changes in the destination meanwhile. Each directory on the way is opened by its name in the directory
//! above, and a link in the place of a directory is an error. A file is written without a name, or under a temporary
//! name, and gets its final name when it is whole. Set-user-id and set-group-id bits and extended attributes of the
//! stream are dropped.

use std::fmt;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, renameat};
use nix::sys::stat::{Mode, UtimensatFlags, fstat, mkdirat, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, fchownat, symlinkat, unlinkat};

use super::destination::{Target, Way, write_failed};
use super::draft::{Draft, free_name, set_mode_and_time, time_spec};
use super::error::{CopyError, shown};
use super::pack::{ERROR, NOTE};
use super::place::{Sort, is_kernel, look};
use super::{BUFFER, MAX_DEPTH, Notes, Placement};
use crate::engine::images::tarstream::{Kind, TarEntry, TarReader};
use crate::engine::images::tree;

/// Largest number of bytes that are read after the end mark. Other tar programs pad the end of an archive.
const MAX_TRAILER: u64 = 1 << 20;

/// Counts and notes of a copy that has succeeded.
#[derive(Debug, Default)]
pub struct Unpacked {
    /// Number of files and links that were written.
    pub files: u64,
    /// Number of bytes of file content that were written.
    pub bytes: u64,
    /// Notes about files that the sender of the stream or this side has left out.
    pub notes: Notes,
}

/// A copy that failed before its end.
#[derive(Debug)]
pub struct Failed {
    /// The error that stopped the copy.
    pub error: CopyError,
    /// Path of the file that was being written when the copy failed. At this path there is no file, or still the old
    /// file.
    pub current: Option<String>,
    /// Counts and notes of the files that were written before the failure.
    pub done: Unpacked,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)?;
        if let (Some(current), CopyError::Stream(_)) = (&self.current, &self.error) {
            write!(f, "; {current} was being written, and is as it was before")?;
        }
        match self.done.files {
            0 => write!(f, "; nothing was written"),
            1 => write!(f, "; 1 file was written before"),
            n => write!(f, "; {n} files were written before"),
        }
    }
}

/// Writes the files of `stream` to the target.
///
/// # Errors
/// Returns the error that stopped the copy, the path of the file that was being written, and the counts of what was
/// written before. The files that were written before are not removed.
pub fn unpack(target: &Target<'_>, stream: &mut dyn Read) -> Result<Unpacked, Box<Failed>> {
    let mut tar = TarReader::new(stream);
    let mut unpacker = Unpacker {
        owner: target
            .owner
            .map(|(u, g)| (Uid::from_raw(u), Gid::from_raw(g))),
        way: Way::default(),
        stack: Vec::new(),
        current: None,
        buffer: vec![0; BUFFER],
        done: Unpacked::default(),
    };
    let mut result = unpacker.all(target, &mut tar);
    let finished = unpacker.leave(0);
    for comment in &tar.comments {
        let text = String::from_utf8_lossy(comment);
        if let Some(note) = text.strip_prefix(NOTE) {
            unpacker.done.notes.add(note.to_owned());
        } else if let (Some(why), Err(CopyError::Stream(_))) = (text.strip_prefix(ERROR), &result) {
            result = Err(CopyError::Refused(why.to_owned()));
        }
    }
    match result.and(finished) {
        Ok(()) => Ok(unpacker.done),
        Err(error) => Err(Box::new(Failed {
            error,
            current: unpacker.current,
            done: unpacker.done,
        })),
    }
}

/// An open directory on the way to the current entry.
struct Level {
    name: Vec<u8>,
    dir: OwnedFd,
    device: u64,
    /// Mode and time of a new directory, which are set when all files of the directory are written. None if the
    /// directory existed before.
    later: Option<(u32, TimeSpec)>,
}

struct Unpacker {
    owner: Option<(Uid, Gid)>,
    way: Way,
    /// Open directories from the base, which is the first one, to the directory of the current entry.
    stack: Vec<Level>,
    current: Option<String>,
    buffer: Vec<u8>,
    done: Unpacked,
}

type Tar<'a> = TarReader<&'a mut dyn Read>;

impl Unpacker {
    fn all(&mut self, target: &Target<'_>, tar: &mut Tar<'_>) -> Result<(), CopyError> {
        while let Some(entry) = tar.next().map_err(CopyError::Stream)? {
            if self.stack.is_empty() {
                let (base, way) = target.begin(&entry)?;
                self.way = way;
                self.push_base(target, base)?;
            }
            self.entry(&entry, tar)?;
            self.current = None;
        }
        if !tar.complete {
            return Err(CopyError::Stream(io::ErrorKind::UnexpectedEof.into()));
        }
        let rest = io::copy(&mut tar.source().take(MAX_TRAILER), &mut io::sink());
        rest.map_err(CopyError::Stream)?;
        match self.stack.is_empty() && target.placement == Placement::Copy {
            true => Err(CopyError::Refused("the stream has no files".into())),
            false => Ok(()),
        }
    }

    fn push_base(&mut self, target: &Target<'_>, dir: OwnedFd) -> Result<(), CopyError> {
        let failed = |e: Errno| write_failed(target.path, e);
        let stat = fstat(&dir).map_err(failed)?;
        if is_kernel(&dir).map_err(failed)? {
            return Err(of_the_kernel(target.path));
        }
        self.stack.push(Level {
            name: Vec::new(),
            dir,
            device: stat.st_dev,
            later: None,
        });
        Ok(())
    }

    fn entry(&mut self, entry: &TarEntry, tar: &mut Tar<'_>) -> Result<(), CopyError> {
        let path = self.way.of(&entry.path);
        let path = path.map_err(|why| CopyError::refused("write", &entry.path, why))?;
        let Some((above, name)) = tree::split(&path) else {
            return match entry.kind {
                Kind::Directory => Ok(()),
                _ => Err(CopyError::refused("write", &entry.path, "it has no name")),
            };
        };
        self.current = Some(shown(&path));
        self.enter(above)?;
        match entry.kind {
            Kind::Directory => self.directory(&path, name, Some(entry)),
            Kind::File => self.file(&path, name, entry, tar),
            Kind::Symlink => self.symlink(&path, name, entry),
            Kind::HardLink => Err(CopyError::refused(
                "write",
                &path,
                "it is a hard link, which is not copied; pack with tar --hard-dereference",
            )),
            Kind::Fifo | Kind::CharDevice | Kind::BlockDevice => {
                let text = format!("{} is left out: a FIFO or a device", shown(&path));
                self.done.notes.add(text);
                Ok(())
            }
        }
    }

    fn top(&self) -> &Level {
        self.stack.last().expect("the base is there")
    }

    /// Opens or makes the directories of a clean path, so that the last of them is on top of the stack. Directories
    /// that the path has in common with the path of the previous entry stay open.
    fn enter(&mut self, path: &[u8]) -> Result<(), CopyError> {
        let names: Vec<&[u8]> = path
            .split(|b| *b == b'/')
            .filter(|n| !n.is_empty())
            .collect();
        let known = self.stack[1..].iter().zip(&names);
        let known = known
            .take_while(|(level, name)| level.name == **name)
            .count();
        self.leave(known + 1)?;
        let mut length = names[..known].iter().map(|n| n.len() + 1).sum::<usize>();
        for name in &names[known..] {
            length += name.len() + 1;
            self.directory(&path[..length - 1], name, None)?;
        }
        Ok(())
    }

    /// Closes the directories on top of the stack until `length` directories remain. A new directory gets its mode and
    /// time when it is closed.
    fn leave(&mut self, length: usize) -> Result<(), CopyError> {
        let mut result = Ok(());
        while self.stack.len() > length {
            let level = self.stack.pop().expect("it is longer");
            let Some((mode, time)) = level.later else {
                continue;
            };
            let set = set_mode_and_time(&level.dir, mode, time);
            result = result.and(set.map_err(|e| write_failed(&level.name, e)));
        }
        result
    }

    /// Makes a directory if it does not exist, and puts it on top of the stack. A new directory without an entry in the
    /// stream gets mode 0755.
    fn directory(
        &mut self,
        path: &[u8],
        name: &[u8],
        entry: Option<&TarEntry>,
    ) -> Result<(), CopyError> {
        let failed = |e: Errno| write_failed(path, e);
        if self.stack.len() > MAX_DEPTH {
            let why = format!("more than {MAX_DEPTH} directories inside one another");
            return Err(CopyError::refused("write", path, why));
        }
        let above = self.top();
        let is_new = match mkdirat(&above.dir, name, Mode::S_IRWXU) {
            Ok(()) => true,
            Err(Errno::EEXIST) => false,
            Err(e) => return Err(failed(e)),
        };
        let found = look(&above.dir, name).map_err(failed)?;
        if found.sort() != Sort::Directory {
            let why = "what is there is not a directory; a link is not followed";
            return Err(CopyError::refused("write", path, why));
        }
        if found.stat.st_dev != above.device && is_kernel(&found.fd).map_err(failed)? {
            return Err(of_the_kernel(path));
        }
        let mut level = Level {
            name: name.to_vec(),
            device: found.stat.st_dev,
            later: None,
            // A descriptor that was made with `O_PATH` cannot change the mode of a directory, so a new directory is
            // opened for reading.
            dir: match is_new {
                true => found.open_dir().map_err(failed)?,
                false => found.fd,
            },
        };
        if is_new {
            self.give(&level.dir).map_err(failed)?;
            level.later = Some(match entry {
                Some(entry) => (entry.mode, time_spec(entry.mtime)),
                None => (0o755, TimeSpec::UTIME_OMIT),
            });
        }
        self.stack.push(level);
        Ok(())
    }

    /// Changes the owner of a file to the owner of new files, if one is set.
    fn give(&self, fd: impl AsFd) -> Result<(), Errno> {
        match self.owner {
            Some((uid, gid)) => fchown(fd, Some(uid), Some(gid)),
            None => Ok(()),
        }
    }

    fn file(
        &mut self,
        path: &[u8],
        name: &[u8],
        entry: &TarEntry,
        tar: &mut Tar<'_>,
    ) -> Result<(), CopyError> {
        let failed = |e: Errno| write_failed(path, e);
        self.replaceable(path, name)?;
        let draft = Draft::new(&self.top().dir).map_err(failed)?;
        let written = self.content(path, &draft, entry, tar);
        let finished = written.and_then(|()| {
            self.give(&draft.file).map_err(failed)?;
            set_mode_and_time(&draft.file, entry.mode, time_spec(entry.mtime)).map_err(failed)?;
            draft.publish(&self.top().dir, name).map_err(failed)
        });
        if finished.is_err() {
            draft.discard(&self.top().dir);
        }
        self.done.files += u64::from(finished.is_ok());
        finished
    }

    /// Returns an error if there is a directory at this name. A directory is never replaced by a file or a link.
    fn replaceable(&self, path: &[u8], name: &[u8]) -> Result<(), CopyError> {
        match look(&self.top().dir, name) {
            Ok(found) if found.sort() == Sort::Directory => Err(write_failed(path, Errno::EISDIR)),
            Ok(_) | Err(Errno::ENOENT) => Ok(()),
            Err(e) => Err(write_failed(path, e)),
        }
    }

    fn content(
        &mut self,
        path: &[u8],
        draft: &Draft,
        entry: &TarEntry,
        tar: &mut Tar<'_>,
    ) -> Result<(), CopyError> {
        let whole = [(0, entry.size)];
        for &(offset, length) in entry.segments.as_deref().unwrap_or(&whole) {
            let mut done = 0;
            while done < length {
                let most = usize::try_from(length - done).unwrap_or(BUFFER).min(BUFFER);
                let n = tar.read_content(&mut self.buffer[..most]);
                let n = n.map_err(CopyError::Stream)?;
                let written = draft.file.write_all_at(&self.buffer[..n], offset + done);
                written.map_err(|e| write_failed(path, e))?;
                done += n as u64;
                self.done.bytes += n as u64;
            }
        }
        match entry.segments {
            Some(_) => draft
                .file
                .set_len(entry.size)
                .map_err(|e| write_failed(path, e)),
            None => Ok(()),
        }
    }

    fn symlink(&mut self, path: &[u8], name: &[u8], entry: &TarEntry) -> Result<(), CopyError> {
        if entry.link.is_empty() || entry.link.contains(&0) {
            return Err(CopyError::refused("write", path, "it is a link to nothing"));
        }
        self.replaceable(path, name)?;
        let dir = &self.top().dir;
        let made = free_name(|draft| symlinkat(entry.link.as_slice(), dir, draft));
        let draft = made.map_err(|e| write_failed(path, e))?.1;
        let placed = self
            .dress_link(&draft, entry.mtime)
            .and_then(|()| renameat(dir, draft.as_str(), dir, name));
        if placed.is_err() {
            let _ = unlinkat(dir, draft.as_str(), UnlinkatFlags::NoRemoveDir);
        }
        placed.map_err(|e| write_failed(path, e))?;
        self.done.files += 1;
        Ok(())
    }

    /// Sets the owner and the time of a new link. The owner is set through a descriptor, because the container may have
    /// replaced the link with a hard link to another file.
    fn dress_link(&self, draft: &str, time: (i64, i64)) -> Result<(), Errno> {
        let dir = &self.top().dir;
        let found = look(dir, draft.as_bytes())?;
        if found.sort() != Sort::Symlink {
            return Err(Errno::EEXIST);
        }
        if let Some((uid, gid)) = self.owner {
            fchownat(&found.fd, "", Some(uid), Some(gid), AtFlags::AT_EMPTY_PATH)?;
        }
        let time = time_spec(time);
        utimensat(dir, draft, &time, &time, UtimensatFlags::NoFollowSymlink)
    }
}

fn of_the_kernel(path: &[u8]) -> CopyError {
    CopyError::refused("write", path, "it belongs to a file system of the kernel")
}
