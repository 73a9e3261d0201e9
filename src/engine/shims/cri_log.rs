//! Writes a container's output as CRI log lines, `<RFC3339Nano> <stream> <F|P> <text>`, and rotates the log by size and
//! number of files.
//!
//! Invariants: a full disk never blocks the writer and never makes the container fail. Lines that cannot be written are
//! counted, and the log has a note about the gap as soon as writing works again. A line of the file is always whole:
//! after a write that was cut short, a newline comes first. Memory is bounded by one partial line per stream. Nothing
//! is written to a file that was removed or replaced. The names of rotated files sort by age, even if the clock is set
//! back.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::base::clock::Time;

/// Longest text of one log line in bytes. Longer text is cut into parts tagged `P`, as containerd does.
pub const MAX_LINE: usize = 16 * 1024;

/// The stream from which a line comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// stdout.
    Stdout,
    /// stderr.
    Stderr,
}

impl Stream {
    fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// A cutter that divides the bytes of one stream into log lines.
#[derive(Debug)]
pub struct Lines {
    stream: Stream,
    partial: Vec<u8>,
}

impl Lines {
    /// Makes a cutter at the start of a line.
    pub fn new(stream: Stream) -> Self {
        Self {
            stream,
            partial: Vec::new(),
        }
    }

    /// Appends the lines that `input` completes to `out`, and keeps the text of an unfinished line for the next call.
    pub fn push(&mut self, mut input: &[u8], stamp: &str, out: &mut Vec<u8>) {
        while !input.is_empty() {
            let room = MAX_LINE - self.partial.len();
            let window = &input[..input.len().min(room + 1)];
            if let Some(end) = window.iter().position(|&b| b == b'\n') {
                self.end(&input[..end], stamp, out);
                input = &input[end + 1..];
            } else if input.len() > room {
                self.line(&input[..room], stamp, "P", out);
                input = &input[room..];
            } else {
                self.partial.extend_from_slice(input);
                return;
            }
        }
    }

    /// Ends a line. A terminal ends its lines with `\r\n`: both characters are removed, as in containerd.
    fn end(&mut self, rest: &[u8], stamp: &str, out: &mut Vec<u8>) {
        match rest.strip_suffix(b"\r") {
            Some(rest) => self.line(rest, stamp, "F", out),
            None => {
                if rest.is_empty() && self.partial.ends_with(b"\r") {
                    self.partial.pop();
                }
                self.line(rest, stamp, "F", out);
            }
        }
    }

    /// Ends the stream: writes text that has no newline, tagged `P`.
    pub fn finish(&mut self, stamp: &str, out: &mut Vec<u8>) {
        if !self.partial.is_empty() {
            self.line(&[], stamp, "P", out);
        }
    }

    fn line(&mut self, rest: &[u8], stamp: &str, tag: &str, out: &mut Vec<u8>) {
        for part in [
            stamp.as_bytes(),
            b" ",
            self.stream.as_str().as_bytes(),
            b" ",
            tag.as_bytes(),
            b" ",
            &self.partial,
            rest,
            b"\n",
        ] {
            out.extend_from_slice(part);
        }
        self.partial.clear();
    }
}

/// The log file of one container instance.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    max_size: u64,
    max_files: u32,
    file: Option<File>,
    size: u64,
    /// Number of lines that were lost since the last successful write.
    lost: u64,
    cause: String,
    /// True if the last write was cut in the middle of a line.
    torn: bool,
}

impl LogFile {
    /// Makes a log at `path`; the first write opens it. `max_size` is in bytes. `max_files` includes the current file.
    pub fn new(path: PathBuf, max_size: u64, max_files: u32) -> Self {
        Self {
            path,
            max_size,
            max_files: max_files.max(1),
            file: None,
            size: 0,
            lost: 0,
            cause: String::new(),
            torn: false,
        }
    }

    /// Writes whole lines. Lines that cannot be written are counted as lost.
    pub fn write(&mut self, lines: &[u8]) {
        if lines.is_empty() {
            return;
        }
        self.leave_removed_file();
        if self.size >= self.max_size {
            self.rotate();
        }
        let result = self.note_gap().and_then(|()| self.append(lines));
        if let Err((written, e)) = result {
            self.lost += lines.iter().skip(written).filter(|&&b| b == b'\n').count() as u64;
            self.cause = e.to_string();
        }
    }

    /// Closes the file if `path` no longer leads to the open file: a log cleaner or a person may have removed or
    /// replaced it. If the file was truncated, its new size is taken.
    fn leave_removed_file(&mut self) {
        let Some(own) = self.file.as_ref().and_then(|f| f.metadata().ok()) else {
            return;
        };
        match fs::symlink_metadata(&self.path) {
            Ok(there) if (there.dev(), there.ino()) == (own.dev(), own.ino()) => {
                self.size = there.len();
            }
            Err(e) if e.kind() != io::ErrorKind::NotFound => {}
            _ => (self.file, self.size, self.torn) = (None, 0, false),
        }
    }

    /// Writes a note about the lost lines, if there are any, as soon as writing works again.
    fn note_gap(&mut self) -> Result<(), (usize, io::Error)> {
        let newline = if self.torn { "\n" } else { "" };
        let mut note = newline.to_owned();
        if self.lost > 0 {
            let stamp = Time::with_nanos(SystemTime::now());
            note = format!(
                "{newline}{stamp} stderr F podprobe: {} lines of output are missing here: {}\n",
                self.lost, self.cause
            );
        }
        if note.is_empty() {
            return Ok(());
        }
        self.append(note.as_bytes()).map_err(|(_, e)| (0, e))?;
        (self.lost, self.torn) = (0, false);
        Ok(())
    }

    /// Appends bytes to the file. An error comes with the number of bytes that were written before it.
    fn append(&mut self, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
        self.open().map_err(|e| (0, e))?;
        let file = self.file.as_mut().expect("just opened");
        let mut done = 0;
        while done < bytes.len() {
            match file.write(&bytes[done..]) {
                Ok(0) => return Err((done, io::ErrorKind::WriteZero.into())),
                Ok(n) => {
                    done += n;
                    self.size += n as u64;
                    self.torn = bytes[done - 1] != b'\n';
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err((done, e)),
            }
        }
        Ok(())
    }

    fn open(&mut self) -> io::Result<()> {
        if self.file.is_none() {
            if let Some(dir) = self.path.parent() {
                fs::create_dir_all(dir)?;
            }
            // Mode 0640 as in containerd: not every user of the node may read a container's output.
            let file = OpenOptions::new()
                .create(true)
                .append(true)
                .mode(0o640)
                .open(&self.path)?;
            self.size = file.metadata()?.len();
            self.file = Some(file);
        }
        Ok(())
    }

    /// Renames `0.log` to `0.log.<UTC time>`, and removes the oldest files. If the rename fails, the log grows beyond
    /// its maximum size.
    fn rotate(&mut self) {
        self.rotate_at(SystemTime::now());
    }

    fn rotate_at(&mut self, now: SystemTime) {
        let stamp = Time::with_nanos(now)
            .replace([':', 'Z'], "")
            .replace('T', "-");
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{stamp}"));
        let mut name = PathBuf::from(name);
        if let Some(newest) = rotated(&self.path).pop().filter(|newest| *newest >= name) {
            name = just_after(&newest);
        }
        if fs::rename(&self.path, name).is_ok() {
            self.file = None;
            self.size = 0;
        }
        let mut old = rotated(&self.path);
        old.truncate(old.len().saturating_sub(self.max_files as usize - 1));
        for path in old {
            let _ = fs::remove_file(path);
        }
    }
}

/// Writes a note at the end of a log that the container's shim is gone. Without the note a reader would wait for more
/// output. The note is written only once, even if a later daemon calls this function again.
pub fn note_loss(log: &Path) {
    let text = "stderr F podprobe: the shim of this container was killed: what the container writes from here on is lost";
    let end = last_bytes(log).unwrap_or_default();
    if String::from_utf8_lossy(&end).trim_end().ends_with(text) {
        return;
    }
    let stamp = Time::with_nanos(SystemTime::now());
    let mut file = LogFile::new(log.to_owned(), u64::MAX, 1);
    // The shim may have been killed in the middle of a line.
    file.torn = end.last().is_some_and(|b| *b != b'\n');
    file.write(format!("{stamp} {text}\n").as_bytes());
}

/// Reads the last 512 bytes of a log. The note that [`note_loss`] writes is shorter, so a note at the end of the log is
/// read whole.
fn last_bytes(log: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(512)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns a name that sorts right after `newest`: its time is one nanosecond later. Used if the clock was set back.
fn just_after(newest: &Path) -> PathBuf {
    let name = newest.as_os_str().to_string_lossy();
    let later = name.rsplit_once('.').and_then(|(rest, nanos)| {
        let next = nanos.parse::<u32>().ok()?.checked_add(1)?;
        (nanos.len() == 9 && next < 1_000_000_000).then(|| format!("{rest}.{next:09}"))
    });
    later.unwrap_or_else(|| format!("{name}0")).into()
}

/// Lists the rotated files of a log, oldest first.
pub fn rotated(log: &Path) -> Vec<PathBuf> {
    let (Some(dir), Some(name)) = (log.parent(), log.file_name().and_then(|n| n.to_str())) else {
        return Vec::new();
    };
    let prefix = format!("{name}.");
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .filter(|e| e.file_name().to_string_lossy().starts_with(&prefix))
        .map(|e| e.path())
        .collect();
    found.sort();
    found
}

/// Number of instances of a container that keep their logs: the starting instance, and the instance before it (`logs
/// -p`).
const KEPT_ATTEMPTS: u32 = 2;

/// Removes the logs of older instances from a container's log directory. Otherwise a container that crashes for a year
/// would fill the disk. A file that cannot be removed is logged, and the next start of the container tries again.
pub fn prune(dir: &Path, attempt: u32) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let of = name
            .to_str()
            .and_then(|n| n.split_once(".log"))
            .and_then(|(n, _)| n.parse::<u32>().ok());
        if of.is_some_and(|n| n.saturating_add(KEPT_ATTEMPTS) <= attempt)
            && let Err(e) = fs::remove_file(entry.path())
        {
            log::warn!("cannot remove the old log {}: {e}", entry.path().display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_not_for_every_user() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c/0.log");
        LogFile::new(path.clone(), 1000, 2).write(b"x\n");
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(path).unwrap().permissions());
        assert_eq!(mode & 0o7, 0, "{mode:o}");
    }

    #[test]
    fn logs_of_older_instances_go_rotated_ones_included() {
        let dir = tempfile::tempdir().unwrap();
        let names = [
            "0.log",
            "3.log",
            "3.log.2026-01-01-000000.000000000",
            "4.log",
            "5.log",
            "notes.txt",
        ];
        names
            .iter()
            .for_each(|n| fs::write(dir.path().join(n), "").unwrap());
        prune(dir.path(), 5);
        let mut left: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, ["4.log", "5.log", "notes.txt"]);
    }

    /// The carriage return is left out even if it and the newline arrive in separate pieces.
    #[test]
    fn a_carriage_return_before_a_newline_is_left_out() {
        let mut lines = Lines::new(Stream::Stdout);
        let mut out = Vec::new();
        for input in [&b"a\r\nb\rc\r"[..], b"\n\r\nd\r"] {
            lines.push(input, "T", &mut out);
        }
        lines.finish("T", &mut out);
        let text = String::from_utf8(out).unwrap();
        let expected = "T stdout F a\nT stdout F b\rc\nT stdout F \nT stdout P d\r\n";
        assert_eq!(text, expected);
    }

    #[track_caller]
    fn check(inputs: &[&[u8]], expected: &[(&str, usize)]) {
        let mut lines = Lines::new(Stream::Stderr);
        let mut out = Vec::new();
        for input in inputs {
            lines.push(input, "T", &mut out);
        }
        lines.finish("T", &mut out);
        let text = String::from_utf8(out).unwrap();
        let found: Vec<_> = text
            .lines()
            .map(|l| {
                let mut parts = l.splitn(4, ' ');
                assert_eq!((parts.next(), parts.next()), (Some("T"), Some("stderr")));
                (parts.next().unwrap(), parts.next().unwrap().len())
            })
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn lines_are_whole_or_cut_at_16_kib() {
        check(&[b"one\ntwo\n"], &[("F", 3), ("F", 3)]);
        check(&[b"o", b"ne\n\n"], &[("F", 3), ("F", 0)]);
        check(&[b"no newline"], &[("P", 10)]);
        let long = vec![b'x'; MAX_LINE];
        check(&[&long, b"\n"], &[("F", MAX_LINE)]);
        check(&[&long, b"yz\n"], &[("P", MAX_LINE), ("F", 2)]);
        check(
            &[&vec![b'x'; 2 * MAX_LINE + 5], b"\n"],
            &[("P", MAX_LINE), ("P", MAX_LINE), ("F", 5)],
        );
        check(&[], &[]);
    }

    #[test]
    fn a_full_log_is_rotated_and_the_oldest_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c/0.log");
        let mut log = LogFile::new(path.clone(), 10, 3);
        for n in 0..6 {
            log.write(format!("line number {n}\n").as_bytes());
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "line number 5\n");
        let old: Vec<_> = rotated(&path)
            .iter()
            .map(|p| fs::read_to_string(p).unwrap())
            .collect();
        assert_eq!(old, ["line number 3\n", "line number 4\n"]);
    }

    #[test]
    fn a_clock_that_is_set_back_costs_no_newer_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        let mut log = LogFile::new(path.clone(), 1, 4);
        let day = std::time::Duration::from_secs(86_400);
        for (n, days) in [9, 8, 7, 7, 1].into_iter().enumerate() {
            log.append(format!("{n}\n").as_bytes()).unwrap();
            log.rotate_at(SystemTime::UNIX_EPOCH + days * day);
        }
        let old: Vec<_> = rotated(&path)
            .iter()
            .map(|p| fs::read_to_string(p).unwrap())
            .collect();
        assert_eq!(old, ["2\n", "3\n", "4\n"]);
        let last = Path::new("a.999999999");
        assert_eq!(just_after(last), Path::new("a.9999999990"));
        assert!(*just_after(last) > *last);
    }

    #[test]
    fn a_removed_or_replaced_log_is_begun_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c/0.log");
        let mut log = LogFile::new(path.clone(), 10, 2);
        log.write(b"one\n");
        fs::remove_dir_all(dir.path().join("c")).unwrap();
        log.write(b"two\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "two\n");
        fs::rename(&path, dir.path().join("c/moved")).unwrap();
        fs::write(&path, "other\n").unwrap();
        log.write(b"three\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "other\nthree\n");
        // With both lines the file has reached its maximum size, so the next write rotates it first.
        log.write(b"four\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "four\n");
        File::create(&path).unwrap();
        for _ in 0..2 {
            log.write(b"five\n");
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "five\nfive\n");
    }

    #[test]
    fn a_log_without_a_shim_says_once_that_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c/0.log");
        LogFile::new(path.clone(), 1000, 2)
            .append(b"half a li")
            .unwrap();
        (0..2).for_each(|_| note_loss(&path));
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!((lines.len(), lines[0]), (2, "half a li"), "{text}");
        assert!(lines[1].ends_with("from here on is lost"), "{text}");
    }

    #[test]
    fn lost_lines_are_counted_and_the_gap_is_noted() {
        let dir = tempfile::tempdir().unwrap();
        // A file stands where the directory should be, so nothing can be written until the file is removed.
        let blocked = dir.path().join("c");
        fs::write(&blocked, "").unwrap();
        let mut log = LogFile::new(blocked.join("0.log"), 1000, 2);
        log.write(b"a\nb\n");
        log.write(b"c\n");
        fs::remove_file(&blocked).unwrap();
        log.write(b"d\n");
        log.write(b"e\n");
        let text = fs::read_to_string(blocked.join("0.log")).unwrap();
        let mut lines = text.lines();
        let note = lines.next().unwrap();
        assert!(
            note.contains(" stderr F podprobe: 3 lines of output are missing here: "),
            "{note}"
        );
        assert_eq!(lines.collect::<Vec<_>>(), ["d", "e"]);
    }

    #[test]
    fn a_full_disk_is_survived() {
        // /dev/full can be opened, and refuses every write with ENOSPC.
        let mut log = LogFile::new("/dev/full".into(), u64::MAX, 2);
        log.write(b"a\nb\n");
        assert_eq!(log.lost, 2);
        assert!(log.cause.contains("No space left"), "{}", log.cause);
    }

    #[test]
    fn a_torn_line_is_closed_before_the_note() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = LogFile::new(dir.path().join("0.log"), 1000, 2);
        log.append(b"half a li").unwrap();
        (log.lost, log.cause) = (1, "full".into());
        log.write(b"next\n");
        let text = fs::read_to_string(dir.path().join("0.log")).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!((lines.len(), lines[0], lines[2]), (3, "half a li", "next"));
    }
}
