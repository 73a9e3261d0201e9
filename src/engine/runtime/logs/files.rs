//! The files of one container's log. `<n>.log` is the current file; `<n>.log.<time>` are rotated files. The names of
//! rotated files sort from the oldest file to the newest.
//!
//! Invariants: every byte is read once, even if the files are rotated during the reading. A log that does not exist is
//! empty.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A reader of a log: it reads the rotated files, then the current file, then the files that replace it.
pub struct Files {
    path: PathBuf,
    current: Option<Current>,
    older: VecDeque<File>,
}

/// The current file of the log, with its device and inode.
struct Current {
    file: File,
    identity: (u64, u64),
}

impl Files {
    /// Opens the existing files of the log. The shim creates the current file when it writes the container's first
    /// line, so the log of a container that has written nothing has no file.
    ///
    /// # Errors
    /// Returns the error of a file or directory that exists and cannot be read.
    pub fn open(path: &Path) -> io::Result<Self> {
        loop {
            let current = match File::open(path) {
                Ok(file) => Some(Current {
                    identity: identity(&file)?,
                    file,
                }),
                Err(e) if e.kind() == io::ErrorKind::NotFound => None,
                Err(e) => return Err(e),
            };
            let opened = current.as_ref().map(|c| c.identity);
            let (older, seen) = open_rotated(path, opened)?;
            // If the log was rotated after the current file was opened, that file is among the rotated files now, and
            // everything is opened again.
            if !seen && current_identity(path) == opened {
                return Ok(Self {
                    path: path.into(),
                    current,
                    older,
                });
            }
        }
    }

    /// Reads the next bytes of the log, oldest first. 0 means that there is nothing to read for now.
    ///
    /// # Errors
    /// Returns the error of a file that cannot be read.
    pub fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        while let Some(file) = self.older.front_mut() {
            match file.read(bytes)? {
                0 => drop(self.older.pop_front()),
                n => return Ok(n),
            }
        }
        // The path is checked before the read: if another file had replaced the current file by then, an end of file is
        // final.
        let replaced = current_identity(&self.path) != self.current.as_ref().map(|c| c.identity);
        if let Some(current) = &mut self.current {
            match current.file.read(bytes)? {
                0 => {}
                n => return Ok(n),
            }
        }
        if !replaced || !self.advance()? {
            return Ok(0);
        }
        self.read(bytes)
    }

    /// Returns the present content of all the files as one range of bytes.
    ///
    /// # Errors
    /// Returns the error of a file whose size cannot be read.
    pub fn extent(&self) -> io::Result<Extent<'_>> {
        let mut extent = Extent(Vec::new());
        for file in self
            .older
            .iter()
            .chain(self.current.iter().map(|c| &c.file))
        {
            let begin = extent.length();
            extent.0.push((file, begin, file.metadata()?.len()));
        }
        Ok(extent)
    }

    /// Skips the first `bytes` bytes of the log. May be called only before the first read.
    ///
    /// # Errors
    /// Returns the error of a file that cannot be read.
    pub fn skip(&mut self, mut bytes: u64) -> io::Result<()> {
        while let Some(file) = self.older.front_mut() {
            let length = file.metadata()?.len();
            if bytes < length {
                return file.seek(SeekFrom::Start(bytes)).map(drop);
            }
            bytes -= length;
            self.older.pop_front();
        }
        match &mut self.current {
            Some(current) => current.file.seek(SeekFrom::Start(bytes)).map(drop),
            None => Ok(()),
        }
    }

    /// Moves on to the files that are newer than the file just finished. Returns false if there is no newer file yet.
    fn advance(&mut self) -> io::Result<bool> {
        let mut next = Self::open(&self.path)?;
        if next.current.is_none() {
            return Ok(false);
        }
        // Every file up to the finished one has been read. If the finished file was removed, all files before it were
        // removed too.
        let finished = self.current.as_ref().map(|c| c.identity);
        let same = |f: &File| identity(f).ok() == finished;
        let at = finished.and_then(|_| next.older.iter().position(same));
        next.older.drain(..at.map_or(0, |i| i + 1));
        *self = next;
        Ok(true)
    }
}

/// The files of a log as one range of bytes: each file with the position at which it begins, and its length.
pub struct Extent<'a>(Vec<(&'a File, u64, u64)>);

impl Extent<'_> {
    /// Returns the size of all files together, in bytes.
    pub fn length(&self) -> u64 {
        self.0.last().map_or(0, |(_, begin, length)| begin + length)
    }

    /// Reads the bytes before position `end`, as many as fit into `bytes` and are in one file. Returns the number of
    /// bytes; 0 if nothing comes before `end`.
    ///
    /// # Errors
    /// Returns the error of a file that cannot be read, or that was truncated meanwhile.
    pub fn read_before(&self, end: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let found = self.0.iter().rev().find(|(_, begin, _)| *begin < end);
        let Some((file, begin, _)) = found else {
            return Ok(0);
        };
        let length = (end - begin).min(bytes.len() as u64) as usize;
        file.read_exact_at(&mut bytes[..length], end - begin - length as u64)?;
        Ok(length)
    }
}

fn identity(file: &File) -> io::Result<(u64, u64)> {
    file.metadata().map(|m| (m.dev(), m.ino()))
}

/// Returns device and inode of the file that has this path now; None if there is no file.
fn current_identity(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|m| (m.dev(), m.ino()))
}

/// Opens the rotated files beside `path`, oldest first. The bool says whether the file `current` is one of them.
/// Compressed files are left out.
fn open_rotated(path: &Path, current: Option<(u64, u64)>) -> io::Result<(VecDeque<File>, bool)> {
    let prefix = format!(
        "{}.",
        path.file_name().unwrap_or_default().to_string_lossy()
    );
    let entries = match std::fs::read_dir(path.parent().unwrap_or(Path::new("."))) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok((VecDeque::new(), false)),
        entries => entries?,
    };
    let mut names: Vec<String> = entries
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .collect();
    names.retain(|n| {
        n.strip_prefix(&prefix).is_some_and(|rest| {
            rest.bytes()
                .all(|b| b.is_ascii_digit() || matches!(b, b'-' | b'.'))
        })
    });
    names.sort();
    let mut files = VecDeque::new();
    let mut seen = false;
    for name in names {
        match File::open(path.with_file_name(name)) {
            Ok(file) => {
                seen |= Some(identity(&file)?) == current;
                files.push_back(file);
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    Ok((files, seen))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn drain(f: &mut Files) -> String {
        let (mut all, mut bytes) = (Vec::new(), [0; 3]);
        loop {
            match f.read(&mut bytes).unwrap() {
                0 => return String::from_utf8(all).unwrap(),
                n => all.extend_from_slice(&bytes[..n]),
            }
        }
    }

    fn append(path: &Path, text: &str) {
        use std::io::Write;
        fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
    }

    #[test]
    fn older_files_come_first_and_strangers_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("1.log");
        append(&dir.path().join("1.log.2026-01-01-000001.000000002"), "b");
        append(&dir.path().join("1.log.2026-01-01-000001.000000001"), "a");
        append(&dir.path().join("1.log.20260101-000000.gz"), "zip");
        append(&dir.path().join("1.log.tmp"), "temporary");
        append(&dir.path().join("11.log.20260101-000000"), "other");
        append(&log, "c");
        assert_eq!(drain(&mut Files::open(&log).unwrap()), "abc");
    }

    #[test]
    fn what_is_appended_and_rotated_is_read_once() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        append(&log, "one ");
        let mut f = Files::open(&log).unwrap();
        assert_eq!(drain(&mut f), "one ");
        append(&log, "two ");
        fs::rename(&log, dir.path().join("0.log.20260101-000001")).unwrap();
        assert_eq!(drain(&mut f), "two ", "rotated, and no new file yet");
        append(&log, "three ");
        assert_eq!(drain(&mut f), "three ");
    }

    #[test]
    fn two_rotations_between_two_looks_lose_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        append(&log, "1");
        let mut f = Files::open(&log).unwrap();
        assert_eq!(drain(&mut f), "1");
        append(&log, "2");
        fs::rename(&log, dir.path().join("0.log.20260101-000001")).unwrap();
        append(&log, "3");
        fs::rename(&log, dir.path().join("0.log.20260101-000002")).unwrap();
        append(&log, "4");
        assert_eq!(drain(&mut f), "234");
    }

    #[test]
    fn the_files_are_one_range_that_can_be_read_from_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        for (name, text) in [
            ("0.log.1", "abc"),
            ("0.log.2", ""),
            ("0.log.3", "de"),
            ("0.log", "fg"),
        ] {
            append(&dir.path().join(name), text);
        }
        let f = Files::open(&log).unwrap();
        let extent = f.extent().unwrap();
        let (mut end, mut pieces, mut bytes) = (extent.length(), Vec::new(), [0; 2]);
        while end > 0 {
            let n = extent.read_before(end, &mut bytes).unwrap();
            pieces.push(String::from_utf8_lossy(&bytes[..n]).into_owned());
            end -= n as u64;
        }
        assert_eq!(pieces, ["fg", "de", "bc", "a"]);
        for skipped in 0..=7 {
            let mut f = Files::open(&log).unwrap();
            f.skip(skipped).unwrap();
            assert_eq!(drain(&mut f), "abcdefg"[skipped as usize..], "{skipped}");
        }
    }

    #[test]
    fn what_comes_after_a_skip_is_read_once() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        append(&log, "one ");
        let mut f = Files::open(&log).unwrap();
        f.skip(4).unwrap();
        append(&log, "two ");
        fs::rename(&log, dir.path().join("0.log.20260101-000001")).unwrap();
        append(&log, "three ");
        assert_eq!(drain(&mut f), "two three ");
    }

    #[test]
    fn a_log_that_is_not_there_is_empty_until_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("main/0.log");
        let mut f = Files::open(&log).unwrap();
        assert_eq!(drain(&mut f), "", "no directory");
        fs::create_dir(dir.path().join("main")).unwrap();
        assert_eq!(drain(&mut f), "", "no file");
        append(&log, "1");
        fs::rename(&log, dir.path().join("main/0.log.20260101-000001")).unwrap();
        append(&log, "2");
        assert_eq!(drain(&mut f), "12");
    }

    #[test]
    fn a_log_that_cannot_be_read_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("main"), "").unwrap();
        assert_eq!(
            Files::open(&dir.path().join("main/0.log"))
                .err()
                .unwrap()
                .kind(),
            io::ErrorKind::NotADirectory
        );
    }
}
