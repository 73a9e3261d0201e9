//! Turns the CRI log format (`<time> <stdout|stderr> <P|F> <text>`) back into what the container
//! wrote.
//!
//! Invariants: pure but for the writer; never holds more than [`MAX_LINE`] bytes per stream. A partial line of one stream is
//! not mixed with the other stream's.

use std::io::{self, Write};

/// Longest line kept until its end is seen; a longer one is written in parts.
const MAX_LINE: usize = 1 << 20;

/// Joins partial lines (`P`) with the line that ends them (`F`). Takes bytes in pieces of any size.
#[derive(Default)]
pub struct Lines {
    record: Vec<u8>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Lines {
    /// Takes the next bytes of the file and writes the lines they complete.
    ///
    /// # Errors
    /// The writer's.
    pub fn push(&mut self, bytes: &[u8], out: &mut dyn Write) -> io::Result<()> {
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            self.record.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.record.len() > MAX_LINE {
                let record = std::mem::take(&mut self.record);
                self.record(&record, out)?;
            }
        }
        Ok(())
    }

    /// Writes the last line, which has no end yet: the log ends here.
    ///
    /// # Errors
    /// The writer's.
    pub fn finish(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let record = std::mem::take(&mut self.record);
        if !record.is_empty() {
            self.record(&record, out)?;
        }
        out.write_all(&std::mem::take(&mut self.stdout))?;
        out.write_all(&std::mem::take(&mut self.stderr))
    }

    fn record(&mut self, record: &[u8], out: &mut dyn Write) -> io::Result<()> {
        let Some((stream, partial, text)) = parse(record) else {
            // A line that is not in CRI's form is shown as it is rather than left out.
            return out.write_all(record);
        };
        let line = if stream == b"stderr" {
            &mut self.stderr
        } else {
            &mut self.stdout
        };
        line.extend_from_slice(text);
        if !partial {
            line.push(b'\n');
        }
        if !partial || line.len() > MAX_LINE {
            out.write_all(line)?;
            line.clear();
        }
        Ok(())
    }
}

/// Returns the stream, whether the line is partial, and the text without its newline. The tag may
/// have more parts after a colon.
fn parse(record: &[u8]) -> Option<(&[u8], bool, &[u8])> {
    let record = record.strip_suffix(b"\n").unwrap_or(record);
    let mut parts = record.splitn(4, |b| *b == b' ');
    let (time, stream, tag) = (parts.next()?, parts.next()?, parts.next()?);
    let text = parts.next().unwrap_or_default();
    let tag = tag.split(|b| *b == b':').next()?;
    let known = time.first()?.is_ascii_digit()
        && matches!(stream, b"stdout" | b"stderr")
        && matches!(tag, b"P" | b"F");
    known.then_some((stream, tag == b"P", text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: &str = "2026-11-21T01:02:03.000000004Z";

    /// Checks that the result does not depend on the size of the pieces.
    #[track_caller]
    fn check(log: &str, expected: &str) {
        let log = log.replace('@', T);
        for size in [1, 7, 4096] {
            let (mut lines, mut out) = (Lines::default(), Vec::new());
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
            assert!(lines.stdout.len() <= MAX_LINE);
        }
        lines.finish(&mut out).unwrap();
        assert_eq!(out.len(), 5_000_000);
    }
}
