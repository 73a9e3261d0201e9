//! A search for the place where the last lines of a log begin.
//!
//! Invariants: pure. Records come in from the last one backwards, and only the beginning of a record is kept. A line of
//! several records counts as one line. Once enough lines are found, the search for the earlier records of a line ends
//! [`GAP`] bytes before the oldest wanted record. Without this limit, a stream that is otherwise silent would make the
//! search read the whole log.

use super::options::LogStream;
use super::record::{HEAD, ORIGINS, Origin, head};

/// Longest distance in bytes at which the search looks for an earlier record of a line, once enough lines are found.
const GAP: u64 = 1 << 20;

/// The position of the first wanted record of each origin. From this position on, every line of the origin is whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start(pub [u64; ORIGINS]);

impl Start {
    /// Returns the position from which the log must be read.
    pub fn first(&self) -> u64 {
        self.0.into_iter().min().unwrap_or(0)
    }

    /// Returns this start for a log in which the bytes before `position` are left out.
    pub fn after(&self, position: u64) -> Self {
        Self(self.0.map(|from| from - position))
    }
}

/// State of the search for the records of one origin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// No record was found yet.
    Nothing,
    /// The oldest record so far belongs to a wanted line, which may begin in an earlier record.
    Wanted,
    /// No earlier record is wanted.
    Enough,
}

/// A search for the last lines of a log.
pub struct Tail {
    stream: LogStream,
    /// Number of lines that are still to be found.
    missing: u64,
    seen: [Seen; ORIGINS],
    start: Start,
    /// Position of the oldest wanted record.
    last_wanted: u64,
}

impl Tail {
    /// Starts a search for the last `lines` lines of a log of `length` bytes.
    pub fn new(lines: u64, stream: LogStream, length: u64) -> Self {
        Self {
            stream,
            missing: lines,
            seen: [Seen::Nothing; ORIGINS],
            start: Start([length; ORIGINS]),
            last_wanted: length,
        }
    }

    /// Tells whether a record before `position` can still be wanted.
    pub fn goes_on(&self, position: u64) -> bool {
        let near = self.last_wanted.saturating_sub(position) <= GAP;
        self.missing > 0 || near && self.seen.contains(&Seen::Wanted)
    }

    /// Takes the record that begins at `position`. `record` has the whole record, or at least its first [`HEAD`] bytes.
    pub fn take(&mut self, position: u64, record: &[u8]) {
        let head = head(record);
        if !self.stream.has(head.origin) {
            return;
        }
        let origin = head.origin as usize;
        let ends_a_line = !head.partial || self.seen[origin] == Seen::Nothing;
        if ends_a_line {
            self.seen[origin] = match self.missing {
                0 => Seen::Enough,
                _ => Seen::Wanted,
            };
            self.missing = self.missing.saturating_sub(1);
        }
        if self.seen[origin] == Seen::Wanted {
            (self.start.0[origin], self.last_wanted) = (position, position);
        }
        if head.origin == Origin::Unknown {
            // A record of this origin is a whole line, so an earlier record belongs to another line.
            self.seen[origin] = Seen::Nothing;
        }
    }

    /// Returns the position of the first wanted record of each origin.
    pub fn start(self) -> Start {
        self.start
    }
}

/// A cutter that divides a log into records, reading it from its end.
pub struct Backwards {
    /// Position from which on the log has been cut.
    at: u64,
    length: u64,
    /// The first bytes from `at` on, at most [`HEAD`].
    following: Vec<u8>,
}

impl Backwards {
    /// Makes a cutter that stands at the end of a log of `length` bytes.
    pub fn new(length: u64) -> Self {
        Self {
            at: length,
            length,
            following: Vec::new(),
        }
    }

    /// Returns the position at which the next bytes to cut must end.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Passes the records that begin in `bytes` to `tail`, until `tail` has found enough.
    pub fn cut(&mut self, bytes: &[u8], tail: &mut Tail) {
        let begin = self.at.saturating_sub(bytes.len() as u64);
        let all = [bytes, &self.following].concat();
        let window = |from: usize| &all[from..all.len().min(from + HEAD)];
        for (i, _) in bytes.iter().enumerate().rev().filter(|(_, b)| **b == b'\n') {
            let position = begin + i as u64 + 1;
            if position < self.length && tail.goes_on(position) {
                tail.take(position, window(i + 1));
            }
        }
        if begin == 0 && tail.goes_on(0) {
            tail.take(0, window(0));
        }
        self.at = begin;
        self.following = window(0).to_vec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the position of the first wanted record of each origin. `expected` gives the position as the number of
    /// the record in the log.
    #[track_caller]
    fn check(log: &[&str], lines: u64, stream: LogStream, expected: [usize; ORIGINS]) {
        let records: Vec<String> = log.iter().map(|r| format!("2026Z {r}\n")).collect();
        let text = records.concat();
        let position = |n: usize| records[..n].concat().len() as u64;
        for size in [1, 7, 50, 4096] {
            let length = text.len() as u64;
            let (mut tail, mut cutter) = (Tail::new(lines, stream, length), Backwards::new(length));
            while cutter.at() > 0 && tail.goes_on(cutter.at()) {
                let end = cutter.at() as usize;
                cutter.cut(&text.as_bytes()[end.saturating_sub(size)..end], &mut tail);
            }
            let expected = Start(expected.map(position));
            assert_eq!(tail.start(), expected, "{log:?} in pieces of {size}");
        }
    }

    #[test]
    fn the_last_lines_of_both_streams_count_together() {
        let log = ["stdout F a", "stderr F b", "stdout F c"];
        check(&log, 0, LogStream::All, [3, 3, 3]);
        check(&log, 1, LogStream::All, [2, 3, 3]);
        check(&log, 2, LogStream::All, [2, 1, 3]);
        check(&log, 3, LogStream::All, [0, 1, 3]);
        check(&log, 9, LogStream::All, [0, 1, 3]);
        check(&log, 1, LogStream::Stderr, [3, 1, 3]);
        check(&log, 2, LogStream::Stdout, [0, 3, 3]);
    }

    #[test]
    fn a_line_in_parts_is_one_line() {
        let log = [
            "stdout F x",
            "stdout P a",
            "stderr F e",
            "stdout P b",
            "stdout F c",
        ];
        check(&log, 1, LogStream::All, [1, 5, 5]);
        check(&log, 2, LogStream::All, [1, 2, 5]);
        check(&log, 3, LogStream::All, [0, 2, 5]);
        let unfinished = ["stdout F x", "stdout P a", "stdout P b"];
        check(&unfinished, 1, LogStream::All, [1, 3, 3]);
        check(&unfinished, 2, LogStream::All, [0, 3, 3]);
    }

    #[test]
    fn what_is_not_cri_is_a_line() {
        let log = ["stdout F a", "garbage", "more", "stdout F b"];
        check(&log, 2, LogStream::All, [3, 4, 2]);
        check(&log, 3, LogStream::All, [3, 4, 1]);
        check(&log, 2, LogStream::Stdout, [0, 4, 4]);
    }

    /// A single line of stderr at the end of the log must not make the search read all of stdout.
    #[test]
    fn the_search_ends_soon_after_the_lines_are_found() {
        let mut tail = Tail::new(1, LogStream::All, 10 * GAP);
        tail.take(10 * GAP - 100, b"2026Z stderr F last\n");
        assert!(tail.goes_on(10 * GAP - 200), "the line may have parts");
        assert!(!tail.goes_on(9 * GAP - 200));
        tail.take(9 * GAP, b"2026Z stderr P part\n");
        assert!(tail.goes_on(8 * GAP), "one part is near the next");
        tail.take(8 * GAP, b"2026Z stderr F before\n");
        assert!(!tail.goes_on(8 * GAP - 1));
        assert_eq!(tail.start().0[Origin::Stderr as usize], 9 * GAP);
    }
}
