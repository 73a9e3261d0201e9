//! Turns the CRI log format (`<time> <stdout|stderr> <P|F> <text>`) back into the text that the container wrote, and
//! leaves out the lines that the options exclude.
//!
//! Invariants: pure except for the writer. The parser never holds more than [`MAX_LINE`] bytes per stream. A partial
//! line of one stream is not mixed with the other stream's text. A line is as old as its first record.

use std::io::{self, Write};

use super::options::LogOptions;
use super::record::{Head, Origin, head};
use super::tail::Start;
use crate::base::clock::Time;

/// Longest line in bytes that is kept until its end is read. A longer line is written in parts.
const MAX_LINE: usize = 1 << 20;

/// A parser that joins partial records (`P`) with the record that ends their line (`F`). The parser takes bytes in
/// pieces of any size.
#[derive(Default)]
pub struct Lines {
    options: LogOptions,
    /// Position of the first wanted record of each origin. Earlier records are left out.
    start: Start,
    /// Position in the log at which `record` begins.
    position: u64,
    record: Vec<u8>,
    stdout: Line,
    stderr: Line,
    /// Number of bytes that have been written.
    written: u64,
}

/// The unfinished line of a stream.
#[derive(Default)]
struct Line {
    text: Vec<u8>,
    begun: bool,
    wanted: bool,
}

impl Lines {
    /// Makes a parser for a log that is read from position 0 on.
    pub fn new(options: LogOptions, start: Start) -> Self {
        Self {
            options,
            start,
            ..Self::default()
        }
    }

    /// Takes the next bytes of the log, and writes the lines that they complete.
    ///
    /// # Errors
    /// Returns the writer's error.
    pub fn push(&mut self, bytes: &[u8], out: &mut dyn Write) -> io::Result<()> {
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            self.record.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.record.len() > MAX_LINE {
                self.end_record(out)?;
            }
        }
        Ok(())
    }

    /// Writes the last line, although it has no end yet. Called at the end of the log.
    ///
    /// # Errors
    /// Returns the writer's error.
    pub fn finish(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if !self.record.is_empty() {
            self.end_record(out)?;
        }
        for text in [self.stdout.take(), self.stderr.take()] {
            self.write(&text, out)?;
        }
        Ok(())
    }

    /// Tells whether `limit_bytes` bytes have been written.
    pub fn is_full(&self) -> bool {
        self.room() == 0
    }

    fn room(&self) -> u64 {
        let limit = self.options.limit_bytes.unwrap_or(u64::MAX);
        limit.saturating_sub(self.written)
    }

    fn end_record(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let record = std::mem::take(&mut self.record);
        let head = head(&record);
        let is_early = self.position < self.start.0[head.origin as usize];
        self.position += record.len() as u64;
        if !is_early && self.options.stream.has(head.origin) {
            self.take(&head, &record, out)?;
        }
        // The next record reuses this buffer.
        self.record = record;
        self.record.clear();
        Ok(())
    }

    fn take(&mut self, head: &Head<'_>, record: &[u8], out: &mut dyn Write) -> io::Result<()> {
        let line = match head.origin {
            Origin::Stdout => &mut self.stdout,
            Origin::Stderr => &mut self.stderr,
            // A record that is not in CRI's form is shown as it is, rather than left out.
            Origin::Unknown => return self.write(record, out),
        };
        if !line.begun {
            line.begin(head, &self.options);
        }
        let text = &record[head.text..];
        line.add(text.strip_suffix(b"\n").unwrap_or(text));
        if !head.partial {
            line.add(b"\n");
            line.begun = false;
        }
        if !head.partial || line.text.len() > MAX_LINE {
            let text = line.take();
            self.write(&text, out)?;
        }
        Ok(())
    }

    /// Writes `text`, cut so that no more than `limit_bytes` are written in all.
    fn write(&mut self, text: &[u8], out: &mut dyn Write) -> io::Result<()> {
        let length = self.room().min(text.len() as u64);
        self.written += length;
        out.write_all(&text[..length as usize])
    }
}

impl Line {
    fn begin(&mut self, head: &Head<'_>, options: &LogOptions) {
        let is_old = |since| Time::instant(head.time).is_some_and(|time| time < since);
        (self.begun, self.wanted) = (true, !options.since.is_some_and(is_old));
        if options.timestamps {
            self.add(head.time.as_bytes());
            self.add(b" ");
        }
    }

    fn add(&mut self, text: &[u8]) {
        if self.wanted {
            self.text.extend_from_slice(text);
        }
    }

    fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::LogStream;
    use super::*;

    const T: &str = "2026-11-21T01:02:03.000000004Z";

    /// Checks the output for a log that is read in pieces of several sizes: the output must not depend on the size.
    #[track_caller]
    fn check_with(options: &LogOptions, log: &str, expected: &str) {
        let log = log.replace('@', T);
        for size in [1, 7, 4096] {
            let (mut lines, mut out) = (Lines::new(options.clone(), Start::default()), Vec::new());
            for piece in log.as_bytes().chunks(size) {
                lines.push(piece, &mut out).unwrap();
            }
            lines.finish(&mut out).unwrap();
            assert_eq!(
                String::from_utf8_lossy(&out),
                expected,
                "in pieces of {size}"
            );
        }
    }

    #[track_caller]
    fn check(log: &str, expected: &str) {
        check_with(&LogOptions::default(), log, expected);
    }

    #[test]
    fn the_prefix_goes_and_the_text_stays() {
        check(
            "@ stdout F hello  world \n@ stderr F oops\n",
            "hello  world \noops\n",
        );
        check("@ stdout F \n@ stdout F\n", "\n\n");
        check("@ stdout F:tag x\n", "x\n");
    }

    #[test]
    fn partial_lines_are_joined_per_stream() {
        check("@ stdout P ab\n@ stdout P cd\n@ stdout F ef\n", "abcdef\n");
        check(
            "@ stdout P ab\n@ stderr F err\n@ stdout F cd\n",
            "err\nabcd\n",
        );
        check("@ stdout P no end", "no end");
    }

    #[test]
    fn what_is_not_cri_is_shown_as_it_is() {
        check(
            "garbage\n@ stdout X y\n",
            &format!("garbage\n{T} stdout X y\n"),
        );
    }

    #[test]
    fn memory_is_bounded() {
        let (mut lines, mut out) = (Lines::default(), Vec::new());
        let part = format!("{T} stdout P {}\n", "x".repeat(100_000));
        for _ in 0..50 {
            lines.push(part.as_bytes(), &mut out).unwrap();
            assert!(lines.stdout.text.len() <= MAX_LINE);
        }
        lines.finish(&mut out).unwrap();
        assert_eq!(out.len(), 5_000_000);
    }

    #[test]
    fn a_line_in_parts_has_one_timestamp() {
        let options = LogOptions {
            timestamps: true,
            ..LogOptions::default()
        };
        let log = "@ stdout P a\n@ stderr F e\n@ stdout F b\n@ stdout F \ngarbage\n@ stdout P c\n";
        let expected = "@ e\n@ ab\n@ \ngarbage\n@ c".replace('@', T);
        check_with(&options, log, &expected);
    }

    #[test]
    fn lines_that_began_before_since_are_left_out() {
        let options = LogOptions {
            since: Time::instant("2026-01-01T00:00:05Z"),
            timestamps: true,
            ..LogOptions::default()
        };
        let log = "2026-01-01T00:00:04.999999999Z stdout F old\n\
                   2026-01-01T00:00:04Z stdout P old too,\n\
                   2026-01-01T00:00:05Z stderr F new\n\
                   2026-01-01T00:00:06Z stdout F and its end\n\
                   2026-01-01T01:00:05+01:00 stdout F elsewhere\n\
                   2026-99-99 stdout F no time\n";
        let expected = "2026-01-01T00:00:05Z new\n\
                        2026-01-01T01:00:05+01:00 elsewhere\n\
                        2026-99-99 no time\n";
        check_with(&options, log, expected);
    }

    #[test]
    fn the_other_stream_is_left_out() {
        let log = "@ stdout P a\n@ stderr F e\ngarbage\n@ stdout F b\n";
        for (stream, expected) in [
            (LogStream::All, "e\ngarbage\nab\n"),
            (LogStream::Stdout, "ab\n"),
            (LogStream::Stderr, "e\n"),
        ] {
            let options = LogOptions {
                stream,
                ..LogOptions::default()
            };
            check_with(&options, log, expected);
        }
    }

    /// The kubelet's TestWriteLogsWithBytesLimit: timestamps count for the limit; the text of an unwanted stream does
    /// not.
    #[test]
    fn the_limit_cuts_what_is_written() {
        let log = "@ stdout F abcdefg\n@ stderr F abcdefg\n@ stdout F abcdefg\n";
        let options = |limit_bytes, timestamps, stream| LogOptions {
            limit_bytes: Some(limit_bytes),
            timestamps,
            stream,
            ..LogOptions::default()
        };
        let all = LogStream::All;
        check_with(&options(0, false, all), log, "");
        check_with(&options(8, false, all), log, "abcdefg\n");
        check_with(&options(11, false, all), log, "abcdefg\nabc");
        check_with(&options(99, false, all), log, &"abcdefg\n".repeat(3));
        let twice = "abcdefg\nabc";
        check_with(&options(11, false, LogStream::Stdout), log, twice);
        let stamped = format!("{T} abcdefg\n{}", &T[..2]);
        check_with(&options(T.len() as u64 + 11, true, all), log, &stamped);
        check_with(&options(3, false, all), "@ stdout P abcdefg\n", "abc");
    }

    #[test]
    fn records_before_the_start_of_their_stream_are_left_out() {
        let log = format!("{T} stdout F a\n{T} stderr F b\n{T} stdout F c\n");
        let second = (log.len() / 3) as u64;
        let mut lines = Lines::new(LogOptions::default(), Start([second + 1, second, 0]));
        let mut out = Vec::new();
        lines.push(log.as_bytes(), &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "b\nc\n");
    }
}
