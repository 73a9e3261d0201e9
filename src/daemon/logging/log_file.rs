//! A file for the log that never grows beyond a size: the daemon keeps it and one older file beside it.
//!
//! Invariants: a line is in one of the two files as a whole. A file that somebody removes or replaces is made again with the
//! next line. A full file that cannot be kept as the older one loses its lines, because a full disk would cost more.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Size at which a file is renamed and a new one begins.
pub const LARGEST: u64 = 5 << 20;

/// The file of the log.
pub(super) struct LogFile {
    path: PathBuf,
    /// Path of the older file.
    older: PathBuf,
    file: File,
    largest: u64,
    /// True if the last write failed, so that the file may end with a part of a line.
    is_torn: bool,
    /// Called with each file that is opened.
    opened: fn(&File) -> io::Result<()>,
}

impl LogFile {
    /// Opens the file, and lets stderr go to it, so that the file also has what is written there.
    ///
    /// # Errors
    /// Returns the system's error if the file cannot be opened.
    pub(super) fn in_place_of_stderr(path: &Path) -> io::Result<Self> {
        let opened = |file: &File| nix::unistd::dup2_stderr(file.as_fd()).map_err(Into::into);
        Self::open(path, LARGEST, opened)
    }

    fn open(path: &Path, largest: u64, opened: fn(&File) -> io::Result<()>) -> io::Result<Self> {
        let mut older = OsString::from(path);
        older.push(".1");
        let file = append_to(path)?;
        opened(&file)?;
        Ok(Self {
            path: path.to_owned(),
            older: older.into(),
            file,
            largest,
            is_torn: false,
            opened,
        })
    }

    /// Makes the file ready for a line of `len` bytes.
    fn make_ready(&mut self, len: u64) -> io::Result<()> {
        let own = self.file.metadata()?;
        let is_own = |m: &fs::Metadata| (m.dev(), m.ino()) == (own.dev(), own.ino());
        let is_full = own.len() > 0 && own.len() + len > self.largest;
        match fs::metadata(&self.path) {
            Ok(found) if is_own(&found) && !is_full => return Ok(()),
            Ok(found) if is_own(&found) => match fs::rename(&self.path, &self.older) {
                Ok(()) => {}
                Err(_) => return self.file.set_len(0),
            },
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        self.file = append_to(&self.path)?;
        (self.opened)(&self.file)
    }
}

/// Writes one line with each call.
impl Write for LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // A file that cannot be replaced goes on.
        let _ = self.make_ready(line.len() as u64);
        let was_torn = std::mem::replace(&mut self.is_torn, true);
        if was_torn {
            self.file.write_all(b"\n")?;
        }
        self.file.write_all(line)?;
        self.is_torn = false;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o640)
        .open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixture {
        dir: tempfile::TempDir,
        log: LogFile,
    }

    impl Fixture {
        fn new(largest: u64) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let log = LogFile::open(&dir.path().join("log"), largest, |_| Ok(())).unwrap();
            Self { dir, log }
        }

        fn read(&self, name: &str) -> String {
            fs::read_to_string(self.dir.path().join(name)).unwrap_or_default()
        }
    }

    #[test]
    fn a_full_file_is_kept_as_the_older_one_and_no_more_than_two_are_there() {
        let mut f = Fixture::new(8);
        for n in 0..9 {
            f.log.write_all(format!("{n}..\n").as_bytes()).unwrap();
        }
        assert_eq!(
            (f.read("log.1"), f.read("log")),
            ("6..\n7..\n".into(), "8..\n".into())
        );
        assert_eq!(fs::read_dir(f.dir.path()).unwrap().count(), 2);
        // A line that is longer than a file has one to itself.
        f.log.write_all(b"a long line\n").unwrap();
        f.log.write_all(b"x\n").unwrap();
        assert_eq!(
            (f.read("log.1"), f.read("log")),
            ("a long line\n".into(), "x\n".into())
        );
    }

    #[test]
    fn what_an_earlier_daemon_has_written_stays_and_counts() {
        let mut f = Fixture::new(8);
        f.log.write_all(b"old\n").unwrap();
        let path = f.dir.path().join("log");
        f.log = LogFile::open(&path, 8, |_| Ok(())).unwrap();
        f.log.write_all(b"new\n").unwrap();
        assert_eq!(f.read("log"), "old\nnew\n");
        f.log.write_all(b"next\n").unwrap();
        assert_eq!(
            (f.read("log.1"), f.read("log")),
            ("old\nnew\n".into(), "next\n".into())
        );
    }

    #[test]
    fn a_file_that_somebody_has_removed_or_replaced_is_made_again() {
        let mut f = Fixture::new(100);
        f.log.write_all(b"a\n").unwrap();
        fs::remove_file(f.dir.path().join("log")).unwrap();
        f.log.write_all(b"b\n").unwrap();
        assert_eq!(f.read("log"), "b\n");
        fs::rename(f.dir.path().join("log"), f.dir.path().join("moved")).unwrap();
        fs::write(f.dir.path().join("log"), "theirs\n").unwrap();
        f.log.write_all(b"c\n").unwrap();
        assert_eq!(
            (f.read("moved"), f.read("log")),
            ("b\n".into(), "theirs\nc\n".into())
        );
    }

    #[test]
    fn after_a_failed_write_the_next_line_is_a_line_of_its_own() {
        let mut f = Fixture::new(100);
        f.log.write_all(b"half").unwrap();
        f.log.is_torn = true;
        f.log.write_all(b"whole\n").unwrap();
        assert_eq!(f.read("log"), "half\nwhole\n");
        f.log.file = File::open(f.dir.path().join("log")).unwrap();
        assert!(f.log.write_all(b"lost\n").is_err());
        assert!(f.log.is_torn);
    }

    #[test]
    fn a_full_file_that_cannot_be_kept_begins_anew() {
        let mut f = Fixture::new(4);
        f.log.write_all(b"abc\n").unwrap();
        // The name of the older file is taken by a directory that is not empty.
        fs::create_dir_all(f.dir.path().join("log.1/x")).unwrap();
        f.log.write_all(b"def\n").unwrap();
        assert_eq!(f.read("log"), "def\n");
    }
}
