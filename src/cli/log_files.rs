//! The files of one container's log: `<n>.log` is being written, `<n>.log.<time>` are rotated away, oldest first by name.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Reads the rotated files, then the current one, then what rotation puts in its place.
pub struct Follower {
    path: PathBuf,
    current: File,
    identity: (u64, u64),
    older: VecDeque<File>,
}

impl Follower {
    /// Opens what there is. Fails when the current file does not exist.
    pub fn open(path: &Path) -> io::Result<Self> {
        loop {
            let current = File::open(path)?;
            let identity = identity(&current)?;
            let (older, seen) = open_rotated(path, identity)?;
            // Rotated between the two steps: the file opened as the current one is among the older ones now.
            if !seen && still_current(path, identity) {
                return Ok(Self {
                    path: path.into(),
                    current,
                    identity,
                    older,
                });
            }
        }
    }

    /// The next bytes, oldest first; 0 means that there are none for now.
    pub fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        while let Some(file) = self.older.front_mut() {
            match file.read(bytes)? {
                0 => drop(self.older.pop_front()),
                n => return Ok(n),
            }
        }
        // Looked at before the read: what is read as the end of a file that is already replaced is its true end.
        let replaced = !still_current(&self.path, self.identity);
        let n = self.current.read(bytes)?;
        if n > 0 || !replaced {
            return Ok(n);
        }
        if !self.advance()? {
            return Ok(0);
        }
        self.read(bytes)
    }

    /// Goes on to the files that are newer than the one just finished. False: there is none yet.
    fn advance(&mut self) -> io::Result<bool> {
        let next = match Self::open(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            next => next?,
        };
        let finished = self.identity;
        let mut older = next.older;
        // What was read already ends with the finished file. When that one has been removed, so were all before it.
        let at = older
            .iter()
            .position(|f| identity(f).is_ok_and(|i| i == finished));
        older.drain(..at.map_or(0, |i| i + 1));
        *self = Self { older, ..next };
        Ok(true)
    }
}

fn identity(file: &File) -> io::Result<(u64, u64)> {
    file.metadata().map(|m| (m.dev(), m.ino()))
}

fn still_current(path: &Path, identity: (u64, u64)) -> bool {
    path.metadata()
        .is_ok_and(|m| (m.dev(), m.ino()) == identity)
}

/// The rotated files beside `path`, oldest first, and whether the file `current` is one of them. Compressed ones are left out.
fn open_rotated(path: &Path, current: (u64, u64)) -> io::Result<(VecDeque<File>, bool)> {
    let prefix = format!(
        "{}.",
        path.file_name().unwrap_or_default().to_string_lossy()
    );
    let entries = std::fs::read_dir(path.parent().unwrap_or(Path::new(".")))?;
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
                seen |= identity(&file)? == current;
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

    fn drain(f: &mut Follower) -> String {
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
        assert_eq!(drain(&mut Follower::open(&log).unwrap()), "abc");
    }

    #[test]
    fn what_is_appended_and_rotated_is_read_once() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        append(&log, "one ");
        let mut f = Follower::open(&log).unwrap();
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
        let mut f = Follower::open(&log).unwrap();
        assert_eq!(drain(&mut f), "1");
        append(&log, "2");
        fs::rename(&log, dir.path().join("0.log.20260101-000001")).unwrap();
        append(&log, "3");
        fs::rename(&log, dir.path().join("0.log.20260101-000002")).unwrap();
        append(&log, "4");
        assert_eq!(drain(&mut f), "234");
    }

    #[test]
    fn a_log_that_is_not_there_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(
            Follower::open(&dir.path().join("0.log"))
                .err()
                .unwrap()
                .kind(),
            io::ErrorKind::NotFound
        );
    }
}
