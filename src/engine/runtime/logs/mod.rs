//! A reader for a container's log as CRI runtimes write it, with the options of the kubelet's `ReadLogs`. The reader
//! returns the container's output, from the oldest file that is kept, or from the first of the last lines.
//!
//! Invariants: the reader knows no pod, no client and no daemon: a path goes in, bytes come out. A log that does not
//! exist is empty. Only the log of one instance is read, and the caller chooses the instance. To follow a log, the
//! caller calls again. The last lines are searched from the end of the log, and nothing before them is read.

mod files;
mod lines;
mod options;
mod record;
mod tail;

use std::io::{self, Write};
use std::path::Path;

use files::Files;
use lines::Lines;
pub use options::{LogOptions, LogStream};
use tail::{Backwards, Start, Tail};

/// Number of bytes that are read at once.
const CHUNK: usize = 64 << 10;

/// An error while a log is copied to a reader.
#[derive(Debug)]
pub enum LogError {
    /// The log cannot be read.
    Read(io::Error),
    /// The writer failed.
    Write(io::Error),
}

/// Progress of a copy of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More of the log may be there to read now.
    More,
    /// Everything that the log has up to now is copied.
    Waiting,
    /// `limit_bytes` bytes are written: the reader writes nothing more.
    Full,
}

/// A reader for the log of one instance of a container.
pub struct LogReader {
    files: Files,
    lines: Lines,
    bytes: Vec<u8>,
}

impl LogReader {
    /// Opens the log whose current file is `path` (`<attempt>.log`). The rotated files are in the same directory.
    ///
    /// # Errors
    /// Returns the error of a file that exists and cannot be read.
    pub fn open(path: &Path, options: &LogOptions) -> io::Result<Self> {
        let mut files = Files::open(path)?;
        let mut bytes = vec![0; CHUNK];
        let start = start(&files, options, &mut bytes)?;
        let first = start.first();
        files.skip(first)?;
        Ok(Self {
            files,
            lines: Lines::new(options.clone(), start.after(first)),
            bytes,
        })
    }

    /// Reads up to 64 KiB of the log, and writes the lines that end in this part.
    ///
    /// # Errors
    /// Returns the error of the log that cannot be read, or of the writer.
    pub fn step(&mut self, out: &mut dyn Write) -> Result<Progress, LogError> {
        if self.lines.is_full() {
            return Ok(Progress::Full);
        }
        match self.files.read(&mut self.bytes).map_err(LogError::Read)? {
            0 => Ok(Progress::Waiting),
            n => {
                let pushed = self.lines.push(&self.bytes[..n], out);
                pushed.map_err(LogError::Write)?;
                Ok(Progress::More)
            }
        }
    }

    /// Writes every line that the log has gained since the last call. Returns [`Progress::Waiting`] or
    /// [`Progress::Full`].
    ///
    /// # Errors
    /// Returns the error of the log that cannot be read, or of the writer.
    pub fn copy(&mut self, out: &mut dyn Write) -> Result<Progress, LogError> {
        loop {
            match self.step(out)? {
                Progress::More => {}
                end => return Ok(end),
            }
        }
    }

    /// Writes the last line if it has no end of line. The caller reads no more of this log.
    ///
    /// # Errors
    /// Returns the writer's error.
    pub fn finish(mut self, out: &mut dyn Write) -> io::Result<()> {
        self.lines.finish(out)
    }
}

/// Finds the positions at which to start, so that the last `tail_lines` lines of the wanted streams are read.
fn start(files: &Files, options: &LogOptions, bytes: &mut [u8]) -> io::Result<Start> {
    let Some(lines) = options.tail_lines else {
        return Ok(Start::default());
    };
    let extent = files.extent()?;
    let length = extent.length();
    let (mut tail, mut cutter) = (
        Tail::new(lines, options.stream, length),
        Backwards::new(length),
    );
    while cutter.at() > 0 && tail.goes_on(cutter.at()) {
        let n = extent.read_before(cutter.at(), bytes)?;
        cutter.cut(&bytes[..n], &mut tail);
    }
    Ok(tail.start())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read(path: &Path, options: &LogOptions) -> String {
        let mut out = Vec::new();
        let mut log = LogReader::open(path, options).unwrap();
        log.copy(&mut out).unwrap();
        log.finish(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn record(second: usize, rest: &str) -> String {
        format!("2026-01-01T00:00:{second:02}.000000000Z {rest}\n")
    }

    fn tail(lines: u64) -> LogOptions {
        LogOptions {
            tail_lines: Some(lines),
            ..LogOptions::default()
        }
    }

    /// Writes a log in three files. The border between two files can lie within a record, as after a full disk.
    fn in_three_files(dir: &Path) -> std::path::PathBuf {
        let all: String = (0..60)
            .map(|i| match i % 6 {
                0..=2 => record(i, &format!("stdout P <{i}")),
                3 => record(i, &format!("stderr F e{i}")),
                4 => record(i, &format!("stdout F {i}>")),
                _ => format!("garbage {i}\n"),
            })
            .collect();
        let third = all.len() / 3;
        fs::write(dir.join("0.log.2026-01-01-000001.000000001"), &all[..third]).unwrap();
        let (second, last) = all[third..].split_at(third);
        fs::write(dir.join("0.log.2026-01-01-000002.000000001"), second).unwrap();
        fs::write(dir.join("0.log"), last).unwrap();
        dir.join("0.log")
    }

    #[test]
    fn the_last_lines_are_the_end_of_the_whole_log_across_files() {
        let dir = tempfile::tempdir().unwrap();
        let log = in_three_files(dir.path());
        let all = read(&log, &LogOptions::default());
        let lines: Vec<&str> = all.split_inclusive('\n').collect();
        assert_eq!(lines.len(), 30);
        for n in 0..=31 {
            let expected = lines[30_usize.saturating_sub(n)..].concat();
            assert_eq!(read(&log, &tail(n as u64)), expected, "the last {n}");
        }
        let of_stdout = LogOptions {
            stream: LogStream::Stdout,
            ..tail(2)
        };
        assert_eq!(read(&log, &of_stdout), "<48<49<5052>\n<54<55<5658>\n");
    }

    /// The last lines are counted first, and then old lines among them are left out, as in the kubelet.
    #[test]
    fn of_the_last_lines_the_old_ones_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        let text: String = (0..9)
            .map(|i| record(i, &format!("stdout F {i}")))
            .collect();
        fs::write(&log, text).unwrap();
        let since = crate::base::clock::Time::instant("2026-01-01T00:00:07Z");
        let options = |lines| LogOptions {
            since,
            ..tail(lines)
        };
        assert_eq!(read(&log, &options(4)), "7\n8\n");
        assert_eq!(read(&log, &options(1)), "8\n");
    }

    #[test]
    fn what_comes_after_the_last_lines_is_written_as_well() {
        use std::io::Write as _;
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        fs::write(&log, record(1, "stdout F old") + &record(2, "stdout P un")).unwrap();
        let (mut out, mut reader) = (Vec::new(), LogReader::open(&log, &tail(1)).unwrap());
        assert_eq!(reader.copy(&mut out).unwrap(), Progress::Waiting);
        let mut file = fs::OpenOptions::new().append(true).open(&log).unwrap();
        let more = record(3, "stdout F finished") + &record(4, "stderr F next");
        file.write_all(more.as_bytes()).unwrap();
        reader.copy(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "unfinished\nnext\n");
    }

    #[test]
    fn a_full_log_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        fs::write(&log, record(1, "stdout F abc") + &record(2, "stdout F def")).unwrap();
        let options = LogOptions {
            limit_bytes: Some(5),
            ..LogOptions::default()
        };
        let (mut out, mut reader) = (Vec::new(), LogReader::open(&log, &options).unwrap());
        assert_eq!(reader.copy(&mut out).unwrap(), Progress::Full);
        assert_eq!(out, b"abc\nd");
    }

    /// The log is a file with a hole. A hole takes no space, and takes time only if it is read.
    #[test]
    fn the_last_lines_of_a_huge_log_are_found_from_its_end() {
        use std::os::unix::fs::FileExt;
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        let file = fs::File::create(&log).unwrap();
        let end = format!("\n{}", record(1, "stderr F last"));
        // A hole of 8 TiB could not be read before the test is stopped.
        file.write_all_at(end.as_bytes(), 8 << 40).unwrap();
        assert_eq!(read(&log, &tail(1)), "last\n");
    }

    #[test]
    fn a_log_that_does_not_exist_has_no_last_lines() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(&dir.path().join("c/0.log"), &tail(3)), "");
    }
}
