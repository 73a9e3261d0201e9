//! Reads files and directories into a tar stream.
//!
//! Invariants: the paths in the stream begin with the last name of the source path. If the content of a directory is
//! copied, the paths are relative to this directory. Links are written as links. A file that cannot be copied is left
//! out, and a note in the result and in the stream says which.

use std::fs::File;
use std::io::{self, Read, Write};

use nix::dir::{Dir, OwningIter};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use tar::EntryType;

use super::error::{CopyError, shown};
use super::names::base_name;
use super::place::{Found, Root, Sort, is_kernel, look};
use super::tar_writer::{Entry, TarWriter};
use super::{BUFFER, MAX_DEPTH, Notes};

/// Prefix of a comment in the stream that says which file was left out.
pub(super) const NOTE: &str = "podprobe note: ";
/// Prefix of the comment in the stream that says why the stream ends before its end mark.
pub(super) const ERROR: &str = "podprobe error: ";

/// The file or directory that is to be copied.
pub struct Source {
    found: Found,
    name: Vec<u8>,
}

/// Counts and notes of a copy that was written to its stream.
#[derive(Debug, Default)]
pub struct Packed {
    /// Number of bytes of file content in the stream.
    pub bytes: u64,
    /// Notes about files that were left out.
    pub notes: Notes,
}

impl Source {
    /// Finds the file or directory at `path`. If the path leads to a link, the link itself is found, unless the path
    /// ends with a slash.
    ///
    /// # Errors
    /// Returns an error with the path if the file does not exist or cannot be read, is of a kind that is not copied, or
    /// belongs to a file system of the kernel.
    pub fn find(root: &Root, path: &[u8]) -> Result<Self, CopyError> {
        let failed = |e: Errno| CopyError::of_file("read", path, e);
        let fd = root.open(path, OFlag::O_PATH | OFlag::O_NOFOLLOW);
        let found = Found::of(fd.map_err(failed)?).map_err(failed)?;
        if is_kernel(&found.fd).map_err(failed)? {
            let why = "it belongs to a file system of the kernel; read it with a command in the container";
            return Err(CopyError::refused("read", path, why));
        }
        if let Sort::Other(what) = found.sort() {
            let why = format!("it is {what}; files, directories and links are copied");
            return Err(CopyError::refused("read", path, why));
        }
        let name = base_name(path).unwrap_or(b".").to_vec();
        Ok(Self { found, name })
    }

    /// Writes the source to `out`. When all content is written, calls `check`, which fails if the content that was read
    /// may not be whole. After a success of `check`, writes the end mark.
    ///
    /// # Errors
    /// Returns the error of a file that cannot be read, of `check`, or of `out`. In these cases the stream has no end
    /// mark.
    pub fn pack(
        self,
        out: &mut dyn Write,
        check: impl FnOnce() -> Result<(), CopyError>,
    ) -> Result<Packed, CopyError> {
        let mut packer = Packer {
            tar: TarWriter { out },
            path: self.name,
            stack: Vec::new(),
            buffer: vec![0; BUFFER],
            done: Packed::default(),
        };
        let mut packed = packer.all(self.found).and_then(|()| check());
        if let Err(CopyError::NotFound(text) | CopyError::Refused(text)) = &packed {
            // This comment tells the reader of the stream why the stream ends.
            let told = packer.tar.comment(&format!("{ERROR}{text}"));
            let _ = told.and_then(|()| packer.tar.out.flush());
        }
        if packed.is_ok() {
            packed = packer.end().map_err(CopyError::Stream);
        }
        packed.map(|()| packer.done)
    }
}

/// A directory whose names are being read.
struct Level {
    names: OwningIter,
    found: Found,
    /// Length in bytes of the part of the packer's path that leads to this directory.
    length: usize,
}

struct Packer<'a> {
    tar: TarWriter<'a>,
    path: Vec<u8>,
    stack: Vec<Level>,
    buffer: Vec<u8>,
    done: Packed,
}

impl Packer<'_> {
    /// Adds `first` and everything below it to the stream. The function does not recurse, because the stack of a thread
    /// is small.
    fn all(&mut self, first: Found) -> Result<(), CopyError> {
        self.add(first)?;
        while let Some(level) = self.stack.last_mut() {
            self.path.truncate(level.length);
            let name = match level.names.next() {
                Some(name) => name,
                None => {
                    self.stack.pop();
                    continue;
                }
            };
            let name = name.map_err(|e| CopyError::of_file("read", &self.path, e))?;
            let name = name.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            self.path.push(b'/');
            self.path.extend_from_slice(name);
            match look(&level.found.fd, name) {
                Ok(found) => self.next(found)?,
                // The file was removed after its name was read, so it is passed over.
                Err(Errno::ENOENT) => {}
                Err(e) => return Err(CopyError::of_file("read", &self.path, e)),
            }
        }
        Ok(())
    }

    /// Adds a file that lies below the first directory to the stream, unless the file belongs to a file system of the
    /// kernel.
    fn next(&mut self, found: Found) -> Result<(), CopyError> {
        let above = self.stack.last().map(|level| level.found.stat.st_dev);
        let is_mounted = above != Some(found.stat.st_dev);
        let failed = |e: Errno| CopyError::of_file("read", &self.path, e);
        if is_mounted && is_kernel(&found.fd).map_err(failed)? {
            self.left_out("a file system of the kernel");
            return Ok(());
        }
        self.add(found)
    }

    fn left_out(&mut self, what: &str) {
        let path = shown(&self.path);
        self.done.notes.add(format!("{path} is left out: {what}"));
    }

    fn add(&mut self, found: Found) -> Result<(), CopyError> {
        match found.sort() {
            Sort::File => self.file(&found),
            Sort::Directory => self.directory(found),
            Sort::Symlink => {
                let target = found.target();
                let target = target.map_err(|e| CopyError::of_file("read", &self.path, e))?;
                self.entry(EntryType::Symlink, &target, &found, 0)
            }
            Sort::Other(what) => {
                self.left_out(what);
                Ok(())
            }
        }
    }

    fn entry(
        &mut self,
        kind: EntryType,
        target: &[u8],
        found: &Found,
        size: u64,
    ) -> Result<(), CopyError> {
        let entry = Entry {
            path: &self.path,
            kind,
            target,
            stat: &found.stat,
            size,
        };
        self.tar.entry(&entry).map_err(CopyError::Stream)
    }

    fn directory(&mut self, found: Found) -> Result<(), CopyError> {
        if self.stack.len() == MAX_DEPTH {
            let why = format!("more than {MAX_DEPTH} directories inside one another");
            return Err(CopyError::refused("read", &self.path, why));
        }
        self.entry(EntryType::Directory, b"", &found, 0)?;
        let names = found.open_dir().and_then(Dir::from_fd);
        let names = names.map_err(|e| CopyError::of_file("read", &self.path, e))?;
        self.stack.push(Level {
            names: names.into_iter(),
            found,
            length: self.path.len(),
        });
        Ok(())
    }

    fn file(&mut self, found: &Found) -> Result<(), CopyError> {
        let file = found.open_file();
        let file = file.map_err(|e| CopyError::of_file("read", &self.path, e))?;
        let size = u64::try_from(found.stat.st_size).unwrap_or(0);
        self.entry(EntryType::Regular, b"", found, size)?;
        self.content(file, size)?;
        self.done.bytes += size;
        self.tar.pad(size).map_err(CopyError::Stream)
    }

    /// Writes exactly `size` bytes of content, even if the file becomes shorter or longer while it is read.
    fn content(&mut self, mut file: File, size: u64) -> Result<(), CopyError> {
        let mut left = size;
        let mut is_over = false;
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(BUFFER).min(BUFFER);
            let mut n = most;
            if !is_over {
                n = match file.read(&mut self.buffer[..most]) {
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                    Err(e) => return Err(self.broken_off(e)),
                    Ok(n) => n,
                };
                is_over = n == 0;
                if is_over {
                    let path = shown(&self.path);
                    let text =
                        format!("{path} became shorter while it was read; zeros are at its end");
                    self.done.notes.add(text);
                    self.buffer.fill(0);
                    continue;
                }
            }
            let written = self.tar.out.write_all(&self.buffer[..n]);
            written.map_err(CopyError::Stream)?;
            left -= n as u64;
        }
        Ok(())
    }

    /// Returns the error of a file that could not be read to its end. The stream gets no comment about this error,
    /// because a comment cannot stand in the middle of a file.
    fn broken_off(&self, e: io::Error) -> CopyError {
        let text = CopyError::of_file("read", &self.path, e).to_string();
        CopyError::Stream(io::Error::other(text))
    }

    fn end(&mut self) -> io::Result<()> {
        for text in self.done.notes.clone().into_texts() {
            self.tar.comment(&format!("{NOTE}{text}"))?;
        }
        self.tar.finish()
    }
}
